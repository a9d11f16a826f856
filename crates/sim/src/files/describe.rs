//! Describes a file store scenario.

use std::fmt::Write;

use zonda_files::testing::Mix;
use zonda_stack::Layer;
use zonda_zoned::Duration;

use super::simulation::FilesSimulation;
use crate::event_trace::{describe_flash, describe_layers, describe_limits};

/// Describes the scenario in a few lines.
pub(crate) fn describe(simulation: &FilesSimulation) -> String {
    let mut text = String::new();
    let mut line = |head: &str, tail: String| {
        writeln!(text, "  {head:<8}{tail}").expect("writing to a string cannot fail");
    };
    let geometry = &simulation.geometry;
    let log = simulation.log_zones();
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
    line("flash", describe_flash(&simulation.profile));
    let faults = (!simulation.faults.is_empty()).then(|| Layer::Fault(simulation.faults.clone()));
    line("layers", describe_layers(simulation.layers.iter().chain(&faults)));
    let config = &simulation.config;
    let migration = config.migration.map_or_else(
        || "no migration".to_owned(),
        |migration| {
            format!(
                "migration below {}% empty zones from zones with {}% garbage",
                migration.start_empty_zones_percent, migration.garbage_percent
            )
        },
    );
    let mut store = format!(
        "writes of {} B, finish threshold {}%, {migration}",
        config.write_unit_bytes, config.finish_threshold_percent
    );
    if simulation.flushes {
        store += ", with flushes";
    }
    if !simulation.mounts.is_empty() {
        store += "; different configuration with each mount";
    }
    line("store", store);
    line("load", describe_load(simulation));
    let every = |every: Option<u64>| every.map_or_else(|| "never".to_owned(), |every| format!("every {every} events"));
    line(
        "faults",
        format!(
            "power loss {}, process kill {}, zone degradation {}",
            every(simulation.power_loss_every),
            every(simulation.death_every),
            every(simulation.degradation_every)
        ),
    );
    text
}

fn describe_load(simulation: &FilesSimulation) -> String {
    let load = &simulation.load;
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
        text += &format!(", mean pause {}", load.pause);
    }
    text
}
