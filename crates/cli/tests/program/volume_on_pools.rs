//! A volume whose members are namespaces of pools, each on a server of its own.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::server::Server;
use super::{Scratch, output_in, scratch, wait_until, zonda_in};

const POOLS: [&str; 3] = ["pool-a", "pool-b", "pool-c"];

/// Writes, and reads what was written: in any order on a volume, at write pointers on a zoned namespace.
fn job(operation: &str) -> String {
    format!(
        "[run]\nverify = true\n\n[[job]]\noperation = \"{operation}\"\nblock_size = \"16 KiB\"\nbytes = \"2 MiB\"\n"
    )
}

/// Pools on a drive each, with a namespace for the volume and one for another tenant.
fn make(name: &str) -> Scratch {
    let directory = scratch(name);
    for pool in POOLS {
        let drive = format!("drives/{pool}");
        output_in(&directory, &["drive", "create", &drive, "--zones", "120", "--zone-capacity", "512KiB"]);
        let create = ["pool", "create", pool, "--drive", &drive, "--zones-per-vzone", "4", "--width-max", "4"];
        output_in(&directory, &create);
        let member = ["namespace", "create", pool, "member", "--zones", "20", "--active", "4", "--weight", "3"];
        output_in(&directory, &member);
        output_in(&directory, &["namespace", "create", pool, "other", "--zones", "4", "--active", "1"]);
    }
    fs::write(directory.join("volume.job.toml"), job("randwrite")).expect("there is space");
    fs::write(directory.join("zoned.job.toml"), job("write")).expect("there is space");
    directory
}

fn state(directory: &Path) -> String {
    // The exit code depends on the state.
    let ran = zonda_in(directory, &["volume", "status", "vol", "--json"]);
    let status: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stderr));
    status["state"].as_str().expect("there is a state").to_owned()
}

/// Writes to a namespace of a server, and verifies what was written.
fn write(directory: &Path, job: &str, url: &str) {
    output_in(directory, &["bench", job, "--target", url, "--yes", "--json", "--quiet"]);
}

/// The namespace of a tenant.
fn url_of(server: &Server, name: &str) -> String {
    let urls = [server.url(0), server.url(1)];
    urls.into_iter().find(|url| url.ends_with(name)).expect("it is served").to_owned()
}

#[test]
fn a_volume_on_namespaces_of_pools_survives_the_kill_of_a_pool_server() {
    let directory = make("volume-on-pools");
    let mut pools: Vec<Server> = POOLS.iter().map(|pool| Server::start(&directory, &[pool])).collect();
    let members: Vec<String> = pools.iter().map(|pool| url_of(pool, "member")).collect();
    output_in(&directory, &["volume", "create", "vol", "--members", &members.join(","), "--level", "5"]);
    let volume = Server::start(&directory, &["vol"]);
    write(&directory, "volume.job.toml", volume.url(0));
    // The members are reserved for the volume; the other tenants have nothing to do with that.
    let refused = zonda_in(&directory, &["zone", "reset", &members[1], "3", "--force"]);
    assert!(refused.stderr.contains("reservation conflict"), "{}", refused.stderr);
    for round in 0..2 {
        let at = 1 + round;
        let address = pools[at].address();
        pools.remove(at).kill();
        write(&directory, "volume.job.toml", volume.url(0));
        assert_eq!(state(&directory), "degraded", "round {round}");
        pools.insert(at, Server::start(&directory, &[POOLS[at], "--listen", &address]));
        wait_until("the member is back", || state(&directory) == "healthy");
        write(&directory, "zoned.job.toml", &url_of(&pools[at], "other"));
    }
    write(&directory, "volume.job.toml", volume.url(0));
    let log = volume.stop();
    assert!(!log.contains("lost block"), "{log}");
    let volume = Server::start(&directory, &["vol"]);
    assert_eq!(state(&directory), "healthy");
    volume.stop();
    pools.into_iter().for_each(|pool| drop(pool.stop()));
}
