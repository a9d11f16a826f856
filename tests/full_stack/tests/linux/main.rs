//! Linux as a host of zonda: a guest, booted once, runs the scripts of all tests one after the
//! other. `soak_...` runs all of each scene.

mod agent;
mod btrfs;
mod changes;
mod commands;
mod drives;
mod files;
mod hosts;
mod pools;
mod reservations;
mod restarts;
mod secrets;
mod volumes;

use serde_json::Value;
use zonda_full_stack::Zone;

/// Sectors of 512 bytes in a block.
const BLOCK_SECTORS: u64 = 8;

/// Compares Linux's last zone report with `zonda drive show --json` of the image; zones may have
/// been closed since.
fn assert_the_image_has(zones: &[Zone], sheet: &Value) {
    assert_eq!(sheet["clean"], true, "the server stopped cleanly");
    let found = sheet["zones"].as_array().expect("an image has zones");
    assert_eq!(found.len(), zones.len());
    for (zone, found) in zones.iter().zip(found) {
        match zone.written {
            Some(sectors) => assert_eq!(found["written_blocks"], sectors / BLOCK_SECTORS, "{zone:?} {found}"),
            None => assert_eq!(found["state"], "full", "{zone:?}"),
        }
        assert_eq!(zone.state == "em", found["state"] == "empty", "{zone:?} {found}");
    }
}
