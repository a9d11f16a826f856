//! Results of an enumeration.

use std::collections::BTreeMap;
use std::fmt;

use super::{Case, Cut, Failure, Fault, What};

/// Counts, and failures by kind.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Histories explored.
    pub histories: u64,
    /// Points at which the power may fail.
    pub points: u64,
    /// Cases that were checked.
    pub cases: u64,
    /// Cases that were equal to a checked one.
    pub equal: u64,
    /// Mounts; of a failing case only the first one is counted.
    pub mounts: u64,
    /// Failing cases by their kind.
    pub found: BTreeMap<String, Found>,
}

/// Failing cases of one kind.
#[derive(Clone, Debug)]
pub struct Found {
    /// Their number.
    pub cases: u64,
    /// The first one.
    pub first: Case,
    /// How it failed.
    pub failure: Failure,
    /// Levels, each with its number of cases.
    pub levels: BTreeMap<&'static str, u64>,
}

impl Report {
    pub(super) fn note(&mut self, case: Case, kind: String, failure: Failure) {
        let level = case.setup.level();
        let new = || Found { cases: 0, first: case, failure, levels: BTreeMap::new() };
        let found = self.found.entry(kind).or_insert_with(new);
        found.cases += 1;
        *found.levels.entry(level).or_default() += 1;
    }

    /// Adds the results of another enumeration.
    pub fn add(&mut self, other: Report) {
        self.histories += other.histories;
        self.points += other.points;
        self.cases += other.cases;
        self.equal += other.equal;
        self.mounts += other.mounts;
        for (kind, found) in other.found {
            match self.found.get_mut(&kind) {
                None => drop(self.found.insert(kind, found)),
                Some(known) => {
                    known.cases += found.cases;
                    found
                        .levels
                        .into_iter()
                        .for_each(|(level, cases)| *known.levels.entry(level).or_default() += cases);
                }
            }
        }
    }
}

/// A name for failures with the same cause, as far as that can be determined from outside. Where
/// less is left than the volume needs, it does not matter how a block was damaged and when the
/// power failed.
pub(super) fn kind_of(case: &Case, failure: &Failure, places: &[&'static str]) -> String {
    let tolerated = if failure.is_tolerated { "tolerated" } else { "beyond" };
    let mut places = places.iter().copied();
    let mut causes: Vec<&str> = Vec::new();
    for fault in &case.faults {
        causes.push(match fault {
            Fault::Block { .. } => places.next().unwrap_or("block"),
            Fault::Zone { .. } => places.next().unwrap_or("zone"),
            Fault::Absent(_) => "absent",
            Fault::Swapped(..) => "swapped",
            Fault::Split(..) => "split",
        });
    }
    match case.cut {
        Cut::At(_, cut_kind) if failure.is_tolerated => causes.push(cut_kind.group()),
        _ => {}
    }
    causes.sort_unstable();
    causes.dedup();
    let message = if failure.what == What::Panics { format!(" ({})", failure.message) } else { String::new() };
    format!("{tolerated}, {:?}, {:?}: {}{message}", failure.stage, failure.what, causes.join(" + "))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { histories, points, cases, equal, mounts, found } = self;
        writeln!(
            f,
            "{histories} histories, {points} points, {cases} cases checked in {mounts} mounts, {equal} equal ones left out, \
             {} kinds of failures",
            found.len()
        )?;
        for (kind, Found { cases, first, failure, levels }) in found {
            writeln!(f, "{kind}: {cases} cases {levels:?}\n    {first}\n    {}", failure.message)?;
        }
        Ok(())
    }
}
