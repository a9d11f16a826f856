//! A scenario with an image told for a person.

use std::fmt::Write;

use super::world::ImagesWorld;
use crate::story::describe_limits;

/// The scenario in a few lines.
pub(crate) fn describe(world: &ImagesWorld) -> String {
    let mut text = String::new();
    let mut line = |head: &str, tail: String| {
        writeln!(text, "  {head:<8}{tail}").expect("a string takes what is written to it");
    };
    let geometry = &world.geometry;
    let mut drive = format!(
        "{} zones of {} blocks of {} B, {} B of metadata",
        geometry.zone_count, geometry.zone_capacity_blocks, geometry.block_size_bytes, geometry.metadata_bytes
    );
    if geometry.conventional_zone_count > 0 {
        drive += &format!(", the first {} conventional", geometry.conventional_zone_count);
    }
    line("drive", drive);
    line("limits", describe_limits(geometry));
    line("journal", format!("{} bytes", world.spec().journal_bytes));
    let load = &world.load;
    line(
        "load",
        format!(
            "{} openings, up to {} commands after each, up to {} at a time",
            load.lives, load.commands_of_life, load.queue_depth
        ),
    );
    let events = &world.events;
    line(
        "ends",
        format!(
            "kills {}, losses of power {}, shutdowns {}; of 100 creations {} and of 100 openings {} are cut short",
            events.kills, events.power_losses, events.closes, events.cut_creations_percent, events.cut_openings_percent
        ),
    );
    line(
        "events",
        format!(
            "of 100 lives: operations fail in {}, no space in {}, a zone degrades in {}; of 100 stops: rot {}, \
             truncated files {}, old copies {}",
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
