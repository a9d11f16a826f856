//! Describes a pool scenario.

use std::fmt::Write;

use super::simulation::{ElasticSimulation, SchedulerKind};
use crate::event_trace::{describe_flash, describe_limits};

/// Describes the scenario in a few lines.
pub(crate) fn describe(simulation: &ElasticSimulation) -> String {
    let mut text = String::new();
    let mut line = |head: &str, tail: String| {
        writeln!(text, "  {head:<8}{tail}").expect("writing to a string cannot fail");
    };
    let (geometry, pool, load) = (&simulation.geometry, &simulation.pool, &simulation.load);
    let mut drive = format!(
        "{} zones of {} blocks of {} B, {} B of metadata",
        geometry.zone_count, geometry.zone_capacity_blocks, geometry.block_size_bytes, geometry.metadata_bytes
    );
    drive += match (pool.is_file_backed, pool.is_volatile) {
        (false, false) => "",
        (false, true) => ", with a volatile cache",
        (true, false) => ", in files",
        (true, true) => ", in files, with the cache of the machine",
    };
    line("drive", drive);
    line("limits", describe_limits(geometry));
    line("flash", describe_flash(&simulation.profile));
    let scheduler = match pool.scheduler {
        SchedulerKind::Absent => "no scheduler".to_owned(),
        SchedulerKind::Fifo => format!("scheduler none, {} commands released", pool.released_max),
        SchedulerKind::MqDeadline => format!("scheduler mq-deadline, {} commands released", pool.released_max),
        SchedulerKind::Ezns => format!("scheduler ezns, {} commands released", pool.released_max),
    };
    let essentials = pool.essential_zones.map_or_else(String::new, |zones| format!(", {zones} essentials"));
    line(
        "pool",
        format!(
            "v-zones of {} zones, groups of up to {}{essentials}; {scheduler}",
            pool.zones_per_vzone, pool.width_max
        ),
    );
    line(
        "load",
        format!(
            "{} lives of about {} commands, queue depth {}, {} tenants; changes of namespaces {}",
            load.lives,
            load.commands_of_life,
            load.queue_depth,
            load.tenants,
            if load.changes_every > 0 { format!("every {} steps", load.changes_every) } else { "never".to_owned() }
        ),
    );
    let (events, faults) = (&simulation.events, &simulation.faults);
    line(
        "events",
        format!(
            "weights: kills {}, power losses {}; interrupted: {}% of mounts; degradation {}; of 1000 commands fail: reads \
             {}, writes {}, management {}, flushes {}{}",
            events.kills,
            events.power_losses,
            events.cut_mounts_percent,
            if events.degradations_every > 0 {
                format!("every {} steps", events.degradations_every)
            } else {
                "never".to_owned()
            },
            faults.read_per_mille,
            faults.write_per_mille,
            faults.manage_per_mille,
            faults.flush_per_mille,
            if faults.full_every > 0 {
                format!("; space comes and goes every {} steps", faults.full_every)
            } else {
                String::new()
            }
        ),
    );
    text
}
