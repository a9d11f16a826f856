//! Describes a scenario with conflict groups.

use std::fmt::Write;

use super::simulation::GroupsSimulation;
use crate::event_trace::describe_limits;

/// Describes the scenario in a few lines.
pub(crate) fn describe(simulation: &GroupsSimulation) -> String {
    let mut text = String::new();
    let mut line = |head: &str, tail: String| {
        writeln!(text, "  {head:<10}{tail}").expect("writing to a string cannot fail");
    };
    let (geometry, drive) = (&simulation.geometry, &simulation.drive);
    line(
        "drive",
        format!(
            "{} zones of {} blocks, the first {} conventional; hidden groups {:?}",
            geometry.zone_count, geometry.zone_capacity_blocks, geometry.conventional_zone_count, drive.of_zone
        ),
    );
    line("limits", describe_limits(geometry));
    let mut times = format!("{} ns a command, and up to {} ns more", drive.service_ns, drive.noise_ns);
    if let Some(at) = drive.changes_at {
        times += &format!("; before command {at} the groups change to {:?}", drive.after_change);
    }
    line("times", times);
    line("queues", format!("the drive accepts {} writes and {} commands", drive.writes_max, drive.all_max));
    let table = &simulation.scheduler;
    line(
        "scheduler",
        format!(
            "groups {:?} (-1: unknown), {}{}, {} commands in flight",
            table.of_zone,
            if table.learns { "learns" } else { "does not learn" },
            if table.is_ezns_within { ", ezns inside groups" } else { "" },
            table.in_flight_max
        ),
    );
    let load = &simulation.load;
    line(
        "load",
        format!(
            "{} commands of {} tenants, queue depth {}, {}% of them reads, {}% in the background",
            load.commands, load.tenants, load.queue_depth, load.reads_percent, load.background_percent
        ),
    );
    text
}
