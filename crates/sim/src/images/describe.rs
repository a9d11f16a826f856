//! Describes an image scenario.

use std::fmt::Write;

use super::simulation::ImagesSimulation;
use crate::event_trace::describe_limits;

/// Describes the scenario in a few lines.
pub(crate) fn describe(simulation: &ImagesSimulation) -> String {
    let mut text = String::new();
    let mut line = |head: &str, tail: String| {
        writeln!(text, "  {head:<8}{tail}").expect("writing to a string cannot fail");
    };
    let geometry = &simulation.geometry;
    let mut drive = format!(
        "{} zones of {} blocks of {} B, {} B of metadata",
        geometry.zone_count, geometry.zone_capacity_blocks, geometry.block_size_bytes, geometry.metadata_bytes
    );
    if geometry.conventional_zone_count > 0 {
        drive += &format!(", the first {} conventional", geometry.conventional_zone_count);
    }
    line("drive", drive);
    line("limits", describe_limits(geometry));
    line("journal", format!("{} bytes", simulation.spec().journal_bytes));
    let load = &simulation.load;
    line(
        "load",
        format!(
            "{} openings, up to {} commands after each, queue depth up to {}",
            load.lives, load.commands_of_life, load.queue_depth
        ),
    );
    let events = &simulation.events;
    line(
        "ends",
        format!(
            "weights: kills {}, power losses {}, shutdowns {}; interrupted: {}% of creations, {}% of openings",
            events.kills, events.power_losses, events.closes, events.cut_creations_percent, events.cut_openings_percent
        ),
    );
    line(
        "events",
        format!(
            "file faults in {}% of lives, full file system in {}%, zone degradation in {}%; after stops: silent \
             corruption {}%, truncation {}%, old copies {}%",
            events.faults_percent,
            events.full_disk_percent,
            events.degradations_percent,
            events.rot_percent,
            events.truncation_percent,
            events.old_copies_percent
        ),
    );
    text
}
