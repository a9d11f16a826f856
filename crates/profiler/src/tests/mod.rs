//! Measurements of the drive model, compared with its true sharing.

mod effort;
mod faults;
mod truth;

use zonda_layers::{Delay, DelayRule, Matcher, When};
use zonda_profiles::builtin_text;
use zonda_ssd::{Ssd, profile::Profile};
use zonda_zoned::{Duration, NamespaceId, PayloadKind, Prng, ZoneIndex, ZonedDevice};

use crate::*;

pub(crate) fn profile(name: &str, zones: u32) -> Profile {
    let mut profile = Profile::parse(builtin_text(name).expect("a built-in profile")).expect("which is valid");
    profile.geometry.zones = zones.min(profile.geometry.zones);
    profile
}

/// In which order zones are filled, which decides on their dies where dies are taken in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Filled {
    InOrder,
    AtRandom,
}

pub(crate) fn full_drive(profile: &Profile, filled: Filled, seed: u64) -> Ssd {
    let prng = Prng::new(seed);
    let mut drive = Ssd::new(profile, PayloadKind::None, &prng);
    let capacity = profile.geometry().zone_capacity_blocks;
    let mut zones: Vec<u32> = (0..profile.geometry.zones).collect();
    if let Filled::AtRandom = filled {
        let mut prng = prng.fork("order");
        for at in 0..zones.len() {
            let other = at + prng.below((zones.len() - at) as u64) as usize;
            zones.swap(at, other);
        }
    }
    for zone in zones {
        drive.prefill(ZoneIndex(zone), capacity).expect("full zones are not active");
    }
    drive
}

/// The hardware that binds zones of the drive: a channel if a zone alone takes more than half of it,
/// otherwise the die.
pub(crate) fn true_group(drive: &Ssd, zone: ZoneIndex) -> u32 {
    let profile = drive.profile();
    let page = profile.flash.read_unit.0;
    let transfer_ns = Duration::of_transfer(page, profile.channel.bandwidth.0).0;
    let sense_ns = profile.flash.read.classes().last().map_or(0, |class| class.time.base.nanoseconds());
    let period_ns = if profile.flash.cache_read { sense_ns.max(transfer_ns) } else { sense_ns + transfer_ns };
    let die = u32::from(drive.dies_of_zone(zone)[0].0);
    if 2 * transfer_ns > period_ns { die % u32::from(profile.flash.channels as u16) } else { die }
}

pub(crate) fn config(strategy: Strategy, seed: u64) -> ProfilerConfig {
    ProfilerConfig {
        namespace: NamespaceId::FIRST,
        strategy,
        budget: None,
        sample_zones: None,
        prng: Prng::new(seed).fork("profiler"),
    }
}

pub(crate) fn measure<D: ZonedDevice>(device: &mut D, config: ProfilerConfig) -> GroupTable {
    let geometry = device.geometry(NamespaceId::FIRST).clone();
    let mut profiler = Profiler::new(&geometry, config);
    let table = run(&mut profiler, device, &mut VirtualClock::default(), &mut |_, _| {});
    table.expect("the drive reports its zones")
}

/// Zones whose group is certain, wrong, and unknown.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Score {
    pub(crate) right: u32,
    pub(crate) certain_and_wrong: u32,
    pub(crate) wrong: u32,
    pub(crate) unknown: u32,
}

/// Compares with the truth: groups correspond to hardware by the zones in them.
pub(crate) fn score(table: &GroupTable, truth: &dyn Fn(ZoneIndex) -> u32) -> Score {
    let mut score = Score::default();
    // Each group stands for the hardware of most of its zones, and each hardware for one group.
    let mut counts = std::collections::BTreeMap::<(GroupId, u32), u32>::new();
    for (zone, entry) in table.zones.iter().enumerate() {
        if let ZoneEntry::Known { group, .. } = entry {
            *counts.entry((*group, truth(ZoneIndex(zone as u32)))).or_default() += 1;
        }
    }
    let mut pairs: Vec<_> = counts.into_iter().collect();
    pairs.sort_by_key(|(pair, count)| (std::cmp::Reverse(*count), *pair));
    let mut hardware_of = std::collections::BTreeMap::new();
    let mut used = std::collections::BTreeSet::new();
    for ((group, hardware), _) in pairs {
        if !hardware_of.contains_key(&group) && used.insert(hardware) {
            hardware_of.insert(group, hardware);
        }
    }
    for (zone, entry) in table.zones.iter().enumerate() {
        match entry {
            ZoneEntry::Known { group, .. } => {
                let is_right = hardware_of.get(group) == Some(&truth(ZoneIndex(zone as u32)));
                score.right += u32::from(is_right);
                score.wrong += u32::from(!is_right);
                score.certain_and_wrong += u32::from(!is_right && entry.is_certain());
            }
            ZoneEntry::Unknown(_) => score.unknown += 1,
        }
    }
    score
}

/// Delays of completions: uniform for all, and long for a few.
pub(crate) fn noisy(drive: Ssd, level: u32, seed: u64) -> Delay<Ssd> {
    let rule = |when, spread_us| DelayRule {
        matches: Matcher::default(),
        when,
        fixed: Duration::ZERO,
        spread: Duration::from_micros(spread_us),
    };
    let few = |per_thousand| When::Chance { numerator: per_thousand, denominator: 1000 };
    let rules = match level {
        1 => vec![rule(When::Always, 20)],
        2 => vec![rule(When::Always, 60), rule(few(10), 2_000)],
        _ => vec![rule(When::Always, 120), rule(few(30), 5_000)],
    };
    Delay::new(drive, rules, Prng::new(seed).fork("noise"))
}
