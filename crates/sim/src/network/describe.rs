//! Describes a network scenario.

use std::fmt::Write;

use super::simulation::Network;

/// Describes the scenario in a few lines.
pub(crate) fn describe(simulation: &Network) -> String {
    let mut text = String::new();
    let mut line = |head: &str, tail: String| {
        writeln!(text, "  {head:<8}{tail}").expect("writing to a string cannot fail");
    };
    for (place, drive) in simulation.drives.iter().enumerate() {
        let geometry = &drive.geometry;
        let kind = if drive.profile.is_some() { "SSD model" } else { "in memory" };
        let faults = if drive.faults.is_empty() { "" } else { ", with faults" };
        line(
            &format!("drive {place}"),
            format!("{} zones of {} blocks, {kind}{faults}", geometry.zone_count, geometry.zone_size_blocks),
        );
    }
    for (place, host) in simulation.hosts.iter().enumerate() {
        let config = &host.config;
        let mut tail = format!(
            "drive {} from zone {}, {} commands, queue depth {}, {} I/O queues with {} entries",
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
    if let Some(sharing) = &simulation.sharing {
        let keeps = if sharing.keeps { ", reservations persist through power loss" } else { "" };
        line(
            "sharing",
            format!(
                "{} hosts on drive {}{keeps}, {} commands each",
                sharing.hosts,
                simulation.drives.len() - 1,
                sharing.commands
            ),
        );
    }
    let limits = &simulation.target.limits;
    line(
        "target",
        format!(
            "transfers up to {} B, in-capsule data up to {} B, buffers of {} B per connection, {} connections",
            limits.transfer_bytes, limits.in_capsule_bytes, limits.receive_bytes, limits.connections
        ),
    );
    let kinds: Vec<&str> = simulation.chaos.iter().map(|kind| kind.name()).collect();
    let faults = if kinds.is_empty() || simulation.chaos_max == 0 { "none".to_owned() } else { kinds.join(", ") };
    line(
        "faults",
        format!("{faults}; up to {} faults, about every {} events", simulation.chaos_max, simulation.chaos_every),
    );
    text
}
