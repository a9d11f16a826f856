//! A network told for a person.

use std::fmt::Write;

use super::world::Network;

/// The world in a few lines.
pub(crate) fn describe(world: &Network) -> String {
    let mut text = String::new();
    let mut line = |head: &str, tail: String| {
        writeln!(text, "  {head:<8}{tail}").expect("a string takes what is written to it");
    };
    for (place, drive) in world.drives.iter().enumerate() {
        let geometry = &drive.geometry;
        let kind = if drive.profile.is_some() { "a model" } else { "in memory" };
        let faults = if drive.faults.is_empty() { "" } else { ", with faults" };
        line(
            &format!("drive {place}"),
            format!("{} zones of {} blocks, {kind}{faults}", geometry.zone_count, geometry.zone_size_blocks),
        );
    }
    for (place, host) in world.hosts.iter().enumerate() {
        let config = &host.config;
        let mut tail = format!(
            "drive {} from zone {} on, {} commands, {} at a time over {} queues of {}",
            host.drive,
            host.window.first,
            host.load.commands,
            host.load.queue_depth,
            config.io_queues,
            config.queue_depth
        );
        if let Some(keep_alive) = config.keep_alive {
            tail += &format!(", keep alive {keep_alive}");
        }
        if config.host_secret.is_some() {
            tail += ", authenticated";
        }
        line(&format!("host {place}"), tail);
    }
    if let Some(sharing) = &world.sharing {
        let keeps = if sharing.keeps { ", which keeps reservations" } else { "" };
        line(
            "sharing",
            format!(
                "{} hosts on drive {}{keeps}, {} commands of each",
                sharing.hosts,
                world.drives.len() - 1,
                sharing.commands
            ),
        );
    }
    let limits = &world.target.limits;
    line(
        "target",
        format!(
            "transfers of {} B, {} B in a capsule, {} B on the way in and out of a connection, {} connections",
            limits.transfer_bytes, limits.in_capsule_bytes, limits.receive_bytes, limits.connections
        ),
    );
    let kinds: Vec<&str> = world.chaos.iter().map(|kind| kind.name()).collect();
    let what = if kinds.is_empty() || world.chaos_max == 0 { "nothing".to_owned() } else { kinds.join(", ") };
    line("world", format!("{what}; {} times, about every {} events", world.chaos_max, world.chaos_every));
    text
}
