//! A world with a volume told for a person.

use std::fmt::Write;

use zonda_raid::testing::Incident;

use super::world::VolumesWorld;
use crate::story::describe_limits;

/// The world in a few lines.
pub(crate) fn describe(world: &VolumesWorld) -> String {
    let mut text = String::new();
    let mut line = |head: &str, tail: String| {
        writeln!(text, "  {head:<8}{tail}").expect("a string takes what is written to it");
    };
    let swarm = &world.swarm;
    let (config, geometry) = (&swarm.config, &swarm.geometries[0]);
    let scheme = config.scheme;
    line("volume", format!("{:?} of {} data and {} parity members", scheme.level, scheme.data, scheme.parity));
    let mut members = format!(
        "{} zones of {} blocks of {} B, {} B of metadata",
        geometry.zone_count, geometry.zone_capacity_blocks, geometry.block_size_bytes, geometry.metadata_bytes
    );
    if swarm.geometries.iter().any(|other| other != geometry) {
        members += ", not all alike";
    }
    if config.tuning.is_cache_volatile {
        members += ", with volatile caches";
    }
    line("members", members);
    line("limits", describe_limits(geometry));
    line(
        "streams",
        format!(
            "small: {} open, units of {} blocks, groups of {}; large: {} open, units of {} blocks, groups of {}",
            config.tuning.small_segments,
            config.small.unit_blocks,
            config.small.group_stripes,
            config.tuning.large_segments,
            config.large.unit_blocks,
            config.large.group_stripes
        ),
    );
    line("load", describe_load(world));
    line("world", describe_events(world));
    text
}

fn describe_load(world: &VolumesWorld) -> String {
    let (swarm, mix) = (&world.swarm, &world.swarm.mix);
    let mut text = format!(
        "{} steps between crashes, a request in {} of them; reads {}, writes {}, trims {}, flushes {}",
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

fn describe_events(world: &VolumesWorld) -> String {
    let swarm = &world.swarm;
    let mut events = Vec::new();
    if swarm.crashes > 0 {
        let kinds = match (swarm.has_power_losses, swarm.has_deaths) {
            (true, true) => "losses of power and deaths of the program",
            (true, false) => "losses of power",
            (false, true) => "deaths of the program",
            (false, false) => "crashes that are left out",
        };
        events.push(format!("{} {kinds}", swarm.crashes));
        if swarm.has_power_losses {
            events.push(format!("{} of 100 mounts cut short", swarm.cut_mounts_percent));
        }
    }
    if swarm.blows_per_mille > 0 {
        let kinds = [
            (swarm.blows.rot, "blocks"),
            (swarm.blows.zones, "zones"),
            (swarm.blows.members && swarm.is_rough, "whole members"),
        ];
        let kinds: Vec<&str> = kinds.into_iter().filter(|(is_there, _)| *is_there).map(|(_, kind)| kind).collect();
        events.push(format!("blows to {} in {} of 1000 steps", kinds.join(" and "), swarm.blows_per_mille));
    }
    for (is_there, what) in [
        (swarm.has_faults, "commands that fail"),
        (swarm.has_absences && swarm.crashes > 0, "members that miss a mount"),
        (swarm.heals, "rebuilds"),
        (swarm.has_scrubs, "scrubs"),
    ] {
        if is_there {
            events.push(what.to_owned());
        }
    }
    let hazards = &swarm.hazards;
    for (is_there, what) in [
        (hazards.fails_resets, "resets and reports of victims that fail"),
        (hazards.ignores_flushes, "flushes of victims that do nothing"),
        (hazards.misdirects_writes, "writes of victims that go elsewhere"),
        (hazards.pauses_per_mille > 0, "pauses of the program"),
    ] {
        if is_there {
            events.push(what.to_owned());
        }
    }
    let incident = |(round, incident): &(u64, Incident)| format!("after round {round}: {}", incident.name());
    events.extend(hazards.incidents.iter().map(incident));
    if events.is_empty() { "nothing happens to it".to_owned() } else { events.join(", ") }
}
