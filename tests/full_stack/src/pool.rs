//! The pool of a scene: namespaces of several tenants on one drive.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::scene::table as table_of;
use crate::server::{create_drive, zonda, zonda_when_released};
use crate::stage::json_of;

/// Its directory.
pub(crate) const POOL: &str = "pool";
/// The image of its drive.
pub(crate) const POOL_DRIVE: &str = "pool-drive";
/// The size of a zone of a namespace: fio needs 8 MiB. It holds less.
pub(crate) const VZONE_MIB: u32 = DRIVE_ZONE_MIB * ZONES_PER_VZONE;

const DRIVE_ZONES: u32 = 200;
const DRIVE_ZONE_MIB: u32 = 2;
const ZONES_PER_VZONE: u32 = 4;
/// How long to wait for a state of the pool.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Creates the drive and the pool.
pub(crate) fn create(folder: &Path) {
    create_drive(&folder.join(POOL_DRIVE), "zn540", DRIVE_ZONES, DRIVE_ZONE_MIB);
    let zones = ZONES_PER_VZONE.to_string();
    let (pool, drive) = (path(folder, POOL), path(folder, POOL_DRIVE));
    zonda(&["pool", "create", &pool, "--drive", &drive, "--zones-per-vzone", &zones, "--width-max", &zones]);
}

/// Creates a namespace. Its weight is that of its active zones, so that each has an essential.
pub(crate) fn create_namespace(folder: &Path, name: &str, zones: u32, active: u32) {
    let (zones, active) = (zones.to_string(), active.to_string());
    let pool = path(folder, POOL);
    zonda(&["namespace", "create", &pool, name, "--zones", &zones, "--active", &active, "--weight", &active]);
}

/// Changes the number of zones of a namespace.
pub(crate) fn resize_namespace(folder: &Path, name: &str, zones: &str) {
    zonda(&["namespace", "resize", &path(folder, POOL), name, "--zones", zones]);
}

/// Deletes a namespace and its data once the server does not use it any more.
pub(crate) fn delete_namespace(folder: &Path, name: &str) {
    zonda_when_released(&["namespace", "delete", &path(folder, POOL), name, "--yes"], "is served");
}

/// The names of its namespaces, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let list = json_of(&["namespace", "list", &path(folder, POOL), "--json"]);
    let list = list.as_array().expect("it is a list");
    let names = list.iter().map(|own| own["name"].as_str().expect("a namespace has a name").to_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// A namespace of the pool in the configuration file.
pub(crate) fn table(id: u32, name: &str) -> String {
    table_of(id, &[("pool", POOL), ("name", name)])
}

/// Waits until a namespace has spares of others in its groups (overdrive), has lent spares (recall),
/// or has fewer spares in its groups than now (reclaim).
///
/// # Panics
/// If that does not happen in time.
pub(crate) fn wait_until(folder: &Path, state: &str, name: &str) {
    let number = |own: &Value, key: &str| own[key].as_u64().expect("the report has this number");
    let find = || {
        let list = json_of(&["namespace", "list", &path(folder, POOL), "--json"]);
        let list = list.as_array().expect("it is a list");
        list.iter().find(|own| own["name"] == name).expect("the pool has this namespace").clone()
    };
    let before = number(&find(), "spares_used");
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let own = find();
        let used = number(&own, "spares_used");
        let is_so = match state {
            "overdrive" => number(&own, "spares_leased") > 0 && used > number(&own, "spares_own"),
            "recall" => number(&own, "spares_lent") > 0,
            "reclaim" => used < before,
            _ => panic!("unknown state of a pool: {state}"),
        };
        if is_so {
            return;
        }
        assert!(Instant::now() < deadline, "no {state} of {name}: {own}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).into_os_string().into_string().expect("temporary folders have names in UTF-8")
}
