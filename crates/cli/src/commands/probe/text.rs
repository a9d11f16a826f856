//! The result of a measurement of conflict groups, in words.

use std::collections::BTreeMap;

use zonda_profiler::{Evidence, GroupTable, UnknownReason, Verdict, ZoneEntry};

use super::groups::Measured;
use super::picture;
use crate::output::Screen;
use crate::units;

/// The verdict, the effort, how sure the groups are, and a picture of them.
pub(super) fn text(drive: &str, measured: &Measured, screen: Screen) -> String {
    let table = &measured.stored.table;
    let mut text = format!("{}: {}\n", screen.bold(drive), table.verdict);
    let effort = table.effort;
    text += &format!(
        "  {} in {}, {}\n",
        units::counted(effort.probes, "probe"),
        effort.elapsed,
        units::counted(effort.commands, "command")
    );
    if let Some((read_bytes, slowdown)) = measured.calibration {
        let bytes = units::bytes(read_bytes);
        text += &format!("  reads of {bytes}; beside its own reads a zone is {slowdown:.1} times slower\n");
    }
    text += &counts(table);
    match table.verdict {
        Verdict::Groups { .. } => {
            text += &sizes(table);
            text += "\nGroups of zones (. unknown):\n";
            text += &picture::draw(table, usize::from(screen.width));
        }
        Verdict::OneGroup => text += "  a scheduler by groups gains nothing on this drive\n",
        Verdict::NoInterference => {
            text += "  the data may come from a cache, or the host or the network may be slower than the drive\n";
        }
        Verdict::NotMeasured => text += "  write data to some zones, or allow more time with --budget\n",
    }
    text
}

/// How many zones are measured, inferred and unknown.
fn counts(table: &GroupTable) -> String {
    let (mut certain, mut measured, mut inferred, mut compared) = (0u64, 0u64, 0u64, 0u64);
    let mut unknown = BTreeMap::<UnknownReason, u64>::new();
    for entry in &table.zones {
        match entry {
            ZoneEntry::Known { .. } if entry.is_certain() => certain += 1,
            ZoneEntry::Known { evidence: Evidence::Measured { .. }, .. } => measured += 1,
            ZoneEntry::Known { evidence: Evidence::Inferred { .. }, .. } => inferred += 1,
            ZoneEntry::Known { evidence: Evidence::Threshold, .. } => compared += 1,
            ZoneEntry::Unknown(reason) => *unknown.entry(*reason).or_default() += 1,
        }
    }
    let zones = |count: u64, what: &str| match count {
        0 => String::new(),
        _ => format!("  {}: {what}\n", units::counted(count, "zone")),
    };
    let mut text = zones(certain, "measured, with a confidence of 99.99% and more");
    text += &zones(measured, "measured, with less confidence");
    text += &zones(inferred, "inferred from the order of allocation, which the measured zones confirm");
    text += &zones(compared, "compared once, without an estimate of the confidence");
    for (reason, count) in unknown {
        text += &zones(count, &format!("unknown: {reason}"));
    }
    text
}

/// The smallest and the largest group.
fn sizes(table: &GroupTable) -> String {
    let mut sizes = vec![0u64; table.groups() as usize];
    for entry in &table.zones {
        if let ZoneEntry::Known { group, .. } = entry {
            sizes[group.0 as usize] += 1;
        }
    }
    let (least, most) = (sizes.iter().min().copied().unwrap_or(0), sizes.iter().max().copied().unwrap_or(0));
    match least == most {
        true => format!("  {} in each group\n", units::counted(least, "zone")),
        false => format!("  {least} to {} in a group\n", units::counted(most, "zone")),
    }
}
