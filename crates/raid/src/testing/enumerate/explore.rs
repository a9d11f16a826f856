//! Explores all cases after a history.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::check::{CrashedVolume, history_failure};
use super::media::{Media, mixed};
use super::report::kind_of;
use super::sides::check_scrub;
use super::testbed::{Point, Stop, Testbed};
use super::{Case, Cut, CutKind, Damage, Failure, Fault, Op, Report, Setup, Stage, What};
use crate::limits::METADATA_ZONES;

/// What is tried after each history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Every point at which the power may fail.
    pub crashes: bool,
    /// Every block damaged, and members absent, when all commands have completed.
    pub faults: bool,
    /// At every point at which the power may fail, each member absent.
    pub crashes_and_absences: bool,
    /// When all commands have completed, two faults at a time.
    pub pairs: bool,
    /// At every point at which the power may fail, every block damaged in every cut_kind.
    pub crashes_and_damages: bool,
    /// When all commands have completed, every block damaged, and scrubbed.
    pub scrubs: bool,
}

impl Depth {
    /// One fault at a time.
    pub const SINGLE: Depth = Depth {
        crashes: true,
        faults: true,
        crashes_and_absences: false,
        pairs: false,
        crashes_and_damages: false,
        scrubs: false,
    };
    /// Damage that is scrubbed.
    pub const SCRUBS: Depth = Depth { crashes: false, faults: false, scrubs: true, ..Depth::SINGLE };
    /// Two faults at a time when all commands have completed, and a member absent after every
    /// crash.
    pub const FAULTS_IN_PAIRS: Depth = Depth { crashes_and_absences: true, pairs: true, ..Depth::SINGLE };
    /// Two faults at a time.
    pub const PAIRS: Depth = Depth { crashes_and_damages: true, ..Depth::FAULTS_IN_PAIRS };
}

/// Explores a history: the power fails in its last operation; the operations before belong to
/// shorter histories.
#[must_use]
pub fn explore(setup: Setup, history: &[Op], depth: Depth) -> Report {
    let mut explorer = Explorer { setup, history, report: Report::default(), seen: BTreeSet::new() };
    let run = catch_unwind(AssertUnwindSafe(|| points_of(setup, history)));
    let points = match run {
        Ok(Ok(points)) => points,
        Ok(Err(Stop::Idle)) => return explorer.report,
        Ok(Err(stop)) => {
            explorer.note(Cut::End, &[], history_failure(stop), &[]);
            return explorer.report;
        }
        Err(panic) => {
            explorer.note(Cut::End, &[], panicked(&*panic), &[]);
            return explorer.report;
        }
    };
    explorer.report.histories = 1;
    explorer.report.points = points.len() as u64;
    explorer.all(&points, depth);
    explorer.report
}

/// Checks one case.
///
/// # Errors
/// The violated guarantee, or, in the message alone, why the case does not exist.
pub fn replay(case: &Case) -> Result<(), Failure> {
    if let (Cut::Scrub, [fault]) = (case.cut, &case.faults[..]) {
        return check_scrub(case.setup, &case.history, fault);
    }
    let points = points_of(case.setup, &case.history).map_err(history_failure)?;
    let (at, cut_kind) = match case.cut {
        Cut::End | Cut::Scrub => (points.len().saturating_sub(1), CutKind::Nothing),
        Cut::At(at, cut_kind) => (at, cut_kind),
    };
    let left = points.get(at).and_then(|point| Some((point, cut_kind.surviving_media(point)?)));
    let Some((point, media)) = left else {
        let message = format!("no such crash: the history has {} points", points.len());
        return Err(Failure { what: What::History, stage: Stage::Before, is_tolerated: true, message });
    };
    check(&CrashedVolume::of(point, media), &case.faults).map(|_| ())
}

fn check(crashed: &CrashedVolume, faults: &[Fault]) -> Result<u32, Failure> {
    catch_unwind(AssertUnwindSafe(|| crashed.check(faults))).unwrap_or_else(|panic| Err(panicked(&*panic)))
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    Failure {
        what: What::Panics,
        stage: Stage::Before,
        is_tolerated: true,
        message: text.unwrap_or("a panic").to_owned(),
    }
}

/// The points of the last operation.
fn points_of(setup: Setup, history: &[Op]) -> Result<Vec<Point>, Stop> {
    let mut bed = Testbed::create(setup)?;
    let Some((&last, before)) = history.split_last() else { return Ok(vec![bed.point()]) };
    before.iter().try_for_each(|&op| bed.apply(op))?;
    bed.record();
    bed.apply(last)?;
    Ok(bed.points())
}

struct Explorer<'a> {
    setup: Setup,
    history: &'a [Op],
    report: Report,
    /// Hashes of the cases that were checked, over everything that matters.
    seen: BTreeSet<u64>,
}

impl Explorer<'_> {
    fn all(&mut self, points: &[Point], depth: Depth) {
        let members = self.setup.scheme().members();
        if let (true, Some(end)) = (depth.faults, points.last())
            && let Some(media) = CutKind::Nothing.surviving_media(end)
        {
            let crashed = CrashedVolume::of(end, media);
            self.damages(Cut::End, &crashed);
            for absence in absences(members).into_iter().chain(split(self.setup, crashed.inactive)) {
                self.case(Cut::End, &crashed, &[absence]);
            }
            if depth.pairs {
                self.damages_and_absences(&crashed);
                self.two_damages(&crashed);
            }
        }
        if let (true, Some(end)) = (depth.scrubs, points.last())
            && let Some(media) = CutKind::Nothing.surviving_media(end)
        {
            self.scrubs(&CrashedVolume::of(end, media));
        }
        if !depth.crashes {
            return;
        }
        for (at, point) in points.iter().enumerate() {
            for cut_kind in CutKind::all(point) {
                let Some(media) = cut_kind.surviving_media(point) else { continue };
                let (cut, crashed) = (Cut::At(at, cut_kind), CrashedVolume::of(point, media));
                self.case(cut, &crashed, &[]);
                if depth.crashes_and_absences {
                    for member in 0..members {
                        self.case(cut, &crashed, &[Fault::Absent(1 << member)]);
                    }
                }
                if depth.crashes_and_damages {
                    self.damages(cut, &crashed);
                }
            }
        }
    }

    fn damages(&mut self, cut: Cut, crashed: &CrashedVolume) {
        for fault in self.every_damage(crashed) {
            self.case(cut, crashed, &[fault]);
        }
    }

    fn scrubs(&mut self, crashed: &CrashedVolume) {
        if crashed.inactive != 0 {
            return;
        }
        for fault in self.every_damage(crashed).into_iter().filter(|fault| matches!(fault, Fault::Block { .. })) {
            self.report.cases += 1;
            let scrubbed = catch_unwind(AssertUnwindSafe(|| check_scrub(self.setup, self.history, &fault)));
            if let Err(failure) = scrubbed.unwrap_or_else(|panic| Err(panicked(&*panic))) {
                let Fault::Block { member, lba, .. } = fault else { continue };
                self.note(Cut::Scrub, &[fault], failure, &[what_is_at(&crashed.media[member], lba)]);
            }
        }
    }

    fn damages_and_absences(&mut self, crashed: &CrashedVolume) {
        let members = self.setup.scheme().members();
        for fault in self.every_damage(crashed) {
            for absent in (0..members).map(|member| 1 << member).filter(|absent| absent & fault.members() == 0) {
                self.case(Cut::End, crashed, &[fault, Fault::Absent(absent)]);
            }
        }
    }

    /// Two blocks, damaged in the same way.
    fn two_damages(&mut self, crashed: &CrashedVolume) {
        for damage in [Damage::Data, Damage::Unreadable] {
            let is_meant = |fault: &Fault| matches!(fault, Fault::Block { damage: other, .. } if *other == damage);
            let faults: Vec<Fault> = self.every_damage(crashed).into_iter().filter(is_meant).collect();
            for (at, &first) in faults.iter().enumerate() {
                for &second in &faults[at + 1..] {
                    self.case(Cut::End, crashed, &[first, second]);
                }
            }
        }
    }

    fn every_damage(&self, crashed: &CrashedVolume) -> Vec<Fault> {
        let damages = Damage::all(!self.setup.is_in_band);
        let mut faults = Vec::new();
        for (member, media) in crashed.media.iter().enumerate() {
            for lba in media.written() {
                faults.extend(damages.iter().map(|&damage| Fault::Block { member, lba, damage }));
            }
            faults.extend(media.used_zones().into_iter().map(|zone| Fault::Zone { member, zone }));
        }
        faults
    }

    fn case(&mut self, cut: Cut, crashed: &CrashedVolume, faults: &[Fault]) {
        let hash = crashed.media.iter().fold(u64::from(crashed.inactive), |hash, media| mixed(hash, media.hash()));
        let rest = format!("{faults:?}{:?}", crashed.model);
        let hash = rest
            .as_bytes()
            .chunks(8)
            .fold(hash, |hash, bytes| mixed(hash, bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte))));
        if !self.seen.insert(hash) {
            self.report.equal += 1;
            return;
        }
        self.report.cases += 1;
        match check(crashed, faults) {
            Ok(mounts) => self.report.mounts += u64::from(mounts),
            Err(failure) => {
                let place = |fault: &Fault| match *fault {
                    Fault::Block { member, lba, .. } => Some(what_is_at(&crashed.media[member], lba)),
                    Fault::Zone { zone, .. } if zone < METADATA_ZONES => Some("superblock zone"),
                    Fault::Zone { .. } => Some("zone"),
                    _ => None,
                };
                let places: Vec<&str> = faults.iter().filter_map(place).collect();
                self.report.mounts += 1;
                self.note(cut, faults, failure, &places);
            }
        }
    }

    fn note(&mut self, cut: Cut, faults: &[Fault], failure: Failure, places: &[&'static str]) {
        let case = Case { setup: self.setup, history: self.history.to_vec(), cut, faults: faults.to_vec() };
        let kind = kind_of(&case, &failure, places);
        self.report.note(case, kind, failure);
    }
}

/// Each member, each pair of members, and each followed by another one.
fn absences(members: usize) -> Vec<Fault> {
    let bits = || (0..members).map(|member| 1_u32 << member);
    let singles = bits().map(Fault::Absent);
    let pairs = bits().flat_map(|first| bits().filter(move |&second| first < second).map(move |second| first | second));
    let swaps =
        bits().flat_map(|first| bits().filter(move |&second| first != second).map(move |second| (first, second)));
    let swaps = swaps.map(|(first, second)| Fault::Swapped(first, second));
    let all = (1 << members) - 1;
    singles
        .chain(pairs.filter(move |&pair| pair != all).map(Fault::Absent))
        .chain(swaps)
        .filter(|fault| *fault != Fault::Absent(all))
        .collect()
}

/// Two halves of the members, each of which is enough.
fn split(setup: Setup, inactive: u32) -> Option<Fault> {
    let members = setup.scheme().members();
    let first = (1_u32 << (members / 2)) - 1;
    let second = ((1 << members) - 1) & !first;
    let are_enough = inactive == 0 && setup.are_enough(first) && setup.are_enough(second);
    are_enough.then_some(Fault::Split(first, second))
}

/// The kind of a member's block, by its place and its first bytes.
fn what_is_at(media: &Media, lba: zonda_zoned::Lba) -> &'static str {
    let zone = media.geometry().zone_of(lba).map_or(0, |zone| zone.0);
    if zone < METADATA_ZONES {
        return "superblock";
    }
    match &media.read(lba).0[..4] {
        b"ZVSG" => "header",
        b"ZVFT" => "footer",
        b"ZVCM" => "data",
        b"ZVTB" => "tombstone",
        _ => "data",
    }
}
