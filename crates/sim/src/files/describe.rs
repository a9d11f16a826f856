//! A world with files told for a person.

use std::fmt::Write;

use zonda_files::testing::Mix;
use zonda_zoned::Duration;

use super::world::FilesWorld;
use crate::story::{describe_flash, describe_layers, describe_limits};
use crate::world::Layer;

/// The world in a few lines.
pub(crate) fn describe(world: &FilesWorld) -> String {
    let mut text = String::new();
    let mut line = |head: &str, tail: String| {
        writeln!(text, "  {head:<8}{tail}").expect("a string takes what is written to it");
    };
    let geometry = &world.geometry;
    let log = world.log_zones();
    line(
        "drive",
        format!(
            "{} zones of {} blocks of {} B, zones {} to {} for metadata",
            geometry.zone_count,
            geometry.zone_capacity_blocks,
            geometry.block_size_bytes,
            log.start,
            log.end - 1
        ),
    );
    line("limits", describe_limits(geometry));
    line("flash", describe_flash(&world.profile));
    let faults = (!world.faults.is_empty()).then(|| Layer::Fault(world.faults.clone()));
    line("layers", describe_layers(world.layers.iter().chain(&faults)));
    let config = &world.config;
    let migration = config.migration.map_or_else(
        || "nothing is moved".to_owned(),
        |migration| {
            format!(
                "data are moved below {}% empty zones out of {}% garbage",
                migration.start_empty_zones_percent, migration.garbage_percent
            )
        },
    );
    let mut store = format!(
        "writes of {} B, finishes from {}% on, {migration}",
        config.write_unit_bytes, config.finish_threshold_percent
    );
    if world.flushes {
        store += ", with flushes";
    }
    if !world.mounts.is_empty() {
        store += "; other numbers with each mount";
    }
    line("store", store);
    line("load", describe_load(world));
    let every = |every: Option<u64>| every.map_or_else(|| "never".to_owned(), |every| format!("every {every} events"));
    line(
        "world",
        format!(
            "power is lost {}, the program dies {}, a zone degrades {}",
            every(world.power_loss_every),
            every(world.death_every),
            every(world.degradation_every)
        ),
    );
    text
}

fn describe_load(world: &FilesWorld) -> String {
    let load = &world.load;
    let total: u64 = load.mix.weights.iter().sum();
    let favoured: Vec<&str> = Mix::KINDS
        .into_iter()
        .zip(load.mix.weights)
        .filter(|(_, weight)| weight * 3 > total)
        .map(|(kind, _)| kind)
        .collect();
    let mut text = format!("{} requests of {} clients for {} files", load.requests, load.clients, load.mix.names.len());
    if !favoured.is_empty() {
        text += &format!(", mostly {}", favoured.join(" and "));
    }
    if load.pause > Duration::ZERO {
        text += &format!(", with pauses of {}", load.pause);
    }
    text
}
