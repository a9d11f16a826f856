//! Describes a volume scenario.

use std::fmt::Write;

use zonda_raid::testing::Incident;

use super::simulation::VolumesSimulation;
use crate::event_trace::describe_limits;

/// Describes the scenario in a few lines.
pub(crate) fn describe(simulation: &VolumesSimulation) -> String {
    let mut text = String::new();
    let mut line = |head: &str, tail: String| {
        writeln!(text, "  {head:<8}{tail}").expect("writing to a string cannot fail");
    };
    let swarm = &simulation.swarm;
    let (config, geometry) = (&swarm.config, &swarm.geometries[0]);
    let scheme = config.scheme;
    line("volume", format!("{:?} of {} data and {} parity members", scheme.level, scheme.data, scheme.parity));
    let mut members = format!(
        "{} zones of {} blocks of {} B, {} B of metadata",
        geometry.zone_count, geometry.zone_capacity_blocks, geometry.block_size_bytes, geometry.metadata_bytes
    );
    if swarm.geometries.iter().any(|other| other != geometry) {
        members += ", not all identical";
    }
    if config.tuning.is_cache_volatile {
        members += ", with volatile caches";
    }
    line("members", members);
    line("limits", describe_limits(geometry));
    line(
        "streams",
        format!(
            "small: {} segments, units of {} blocks, groups of {}; large: {} segments, units of {} blocks, groups of {}",
            config.tuning.small_segments,
            config.small.unit_blocks,
            config.small.group_stripes,
            config.tuning.large_segments,
            config.large.unit_blocks,
            config.large.group_stripes
        ),
    );
    line("load", describe_load(simulation));
    line("faults", describe_events(simulation));
    text
}

fn describe_load(simulation: &VolumesSimulation) -> String {
    let (swarm, mix) = (&simulation.swarm, &simulation.swarm.mix);
    let mut text = format!(
        "{} steps between crashes, a request in one of {}; weights: reads {}, writes {}, trims {}, flushes {}",
        swarm.steps, swarm.calm, mix.reads, mix.writes, mix.trims, mix.flushes
    );
    if swarm.is_loop {
        text += "; every block is written first";
    }
    if !swarm.slow_members.is_empty() {
        let members: Vec<String> = swarm.slow_members.iter().map(usize::to_string).collect();
        text += &format!("; slow members: {}", members.join(", "));
    }
    text
}

fn describe_events(simulation: &VolumesSimulation) -> String {
    let swarm = &simulation.swarm;
    let mut events = Vec::new();
    if swarm.crashes > 0 {
        let kinds = match (swarm.has_power_losses, swarm.has_deaths) {
            (true, true) => "power losses and process kills",
            (true, false) => "power losses",
            (false, true) => "process kills",
            (false, false) => "crashes (left out)",
        };
        events.push(format!("{} {kinds}", swarm.crashes));
        if swarm.has_power_losses {
            events.push(format!("{}% of mounts interrupted", swarm.cut_mounts_percent));
        }
    }
    if swarm.injected_faults_per_mille > 0 {
        let kinds = [
            (swarm.injected_faults.rot, "blocks"),
            (swarm.injected_faults.zones, "zones"),
            (swarm.injected_faults.members && swarm.is_rough, "whole members"),
        ];
        let kinds: Vec<&str> = kinds.into_iter().filter(|(is_enabled, _)| *is_enabled).map(|(_, kind)| kind).collect();
        events.push(format!(
            "faults injected into {} in {} of 1000 steps",
            kinds.join(" and "),
            swarm.injected_faults_per_mille
        ));
    }
    for (is_enabled, what) in [
        (swarm.has_faults, "command faults"),
        (swarm.has_absences && swarm.crashes > 0, "members missing at mounts"),
        (swarm.heals, "rebuilds"),
        (swarm.has_scrubs, "scrubs"),
    ] {
        if is_enabled {
            events.push(what.to_owned());
        }
    }
    let hazards = &swarm.hazards;
    for (is_enabled, what) in [
        (hazards.fails_resets, "failing resets and reports of faulty members"),
        (hazards.ignores_flushes, "ignored flushes of faulty members"),
        (hazards.misdirects_writes, "misdirected writes of faulty members"),
        (hazards.pauses_per_mille > 0, "process pauses"),
    ] {
        if is_enabled {
            events.push(what.to_owned());
        }
    }
    let incident = |(round, incident): &(u64, Incident)| format!("after round {round}: {}", incident.name());
    events.extend(hazards.incidents.iter().map(incident));
    if events.is_empty() { "none".to_owned() } else { events.join(", ") }
}
