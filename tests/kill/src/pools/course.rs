//! What happens between the start of a load and the kill: hosts are paused and resumed until the
//! pool overdrives, recalls or reclaims, and operators change the namespaces.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use zonda_devices::{PoolNamespaceReport, PoolReport};
use zonda_zoned::Prng;

use super::change::{Change, Pending, Sizes, reconcile};
use super::site::Site;
use crate::loss::{Loss, RunError};
use crate::pace::Pace;
use crate::server::Launcher;

/// How long hosts run before something is done.
const RUN_MS_MAX: u64 = 300;
/// How long to wait for what a course is about.
const WAIT: Duration = Duration::from_secs(8);
/// The greatest time of a kill after it has begun.
const LINGER_MS_MAX: u64 = 150;
/// The greatest time between two commands of a slow host, in microseconds.
const INTERVAL_US_MAX: u64 = 8_000;
/// The pool reclaims groups of a namespace that was not written for so long
/// ([`zonda_elastic::limits::FROZEN_TIME`]).
const FROZEN_TIME: Duration = Duration::from_secs(2);
/// Commands in flight when a host is paused have ended after so long.
const QUIET: Duration = Duration::from_millis(200);
/// The greatest time between the start of a copy, as far as it is known, and the kill.
const COPY_US_MAX: u64 = 20_000;
/// Answered changes before the one that is in flight at the kill.
const CHANGES_MAX: u64 = 3;
/// How long the file system stays full before something else happens.
const FULL_MS_MAX: u64 = 2_500;
/// The greatest time between the receipt of a change by the server and the kill.
const CHANGE_US_MAX: u64 = 4_000;

/// What a kill is aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// Hosts of all namespaces run.
    Load,
    /// One tenant is alone, and uses spares of others.
    Overdrive,
    /// Another tenant wakes, whose spares are still lent.
    Recall,
    /// A tenant is paused, and the spares in its groups are reclaimed.
    Reclaim,
    /// An operator creates, resizes or deletes a namespace.
    Change,
    /// The file system below the drive is full, and perhaps has space again.
    Fill,
}

/// A host: its namespace, and its pace.
pub(super) type Paces = BTreeMap<String, Pace>;

/// The course of one load.
pub(super) struct Course<'a> {
    pub(super) launcher: &'a Launcher,
    pub(super) site: &'a Site,
    pub(super) paces: &'a Paces,
    pub(super) prng: &'a mut Prng,
    /// What the pool reported last.
    report: Option<PoolReport>,
    /// Spares in the groups of paused namespaces, some time after their pause.
    at_pause: BTreeMap<String, u32>,
    /// Zones in stripe groups while all hosts are paused, and nothing is copied.
    quiescent_zones: Option<u32>,
    pending: Option<Pending>,
}

/// What an operator may change, and what it has changed.
pub(super) struct Operator<'a> {
    /// Namespaces that the pool must have.
    pub(super) sizes: &'a mut Sizes,
    /// Those that may be created and deleted.
    pub(super) guests: &'a [&'a str],
    /// Namespaces that were created or deleted: their contents are not those of before.
    pub(super) renewed: Vec<String>,
    /// Answered changes, by kind.
    pub(super) changes: BTreeMap<&'static str, u32>,
}

impl Aim {
    /// A random aim.
    pub(super) fn random(prng: &mut Prng, can_fill: bool) -> Aim {
        // The other aims of a seed do not depend on whether a file system can be mounted.
        if can_fill && prng.fork("fill").chance(1, 5) {
            return Aim::Fill;
        }
        match prng.below(10) {
            0 => Aim::Load,
            1..3 => Aim::Overdrive,
            3..5 => Aim::Recall,
            5..7 => Aim::Reclaim,
            _ => Aim::Change,
        }
    }
}

impl<'a> Course<'a> {
    pub(super) fn new(launcher: &'a Launcher, site: &'a Site, paces: &'a Paces, prng: &'a mut Prng) -> Course<'a> {
        Course {
            launcher,
            site,
            paces,
            prng,
            report: None,
            at_pause: BTreeMap::new(),
            quiescent_zones: None,
            pending: None,
        }
    }

    /// Runs until the server is to be killed. `busy` and `other` are tenants.
    ///
    /// # Errors
    /// When the server does not report its state, or refuses a change.
    pub(super) fn run(
        &mut self,
        aim: Aim,
        (busy, other): (&str, &str),
        operator: &mut Operator<'_>,
    ) -> Result<(), RunError> {
        self.run_all();
        match aim {
            Aim::Load => self.linger(RUN_MS_MAX),
            Aim::Overdrive => {
                self.overdrive(busy)?;
                self.linger(LINGER_MS_MAX)
            }
            Aim::Recall => {
                self.overdrive(busy)?;
                // The groups of a slow tenant end late, and the spares in them return with them.
                let slow = self.interval();
                self.paces[busy].run(slow);
                self.paces[other].run(if self.prng.chance(1, 2) { Duration::ZERO } else { slow });
                self.linger(LINGER_MS_MAX)
            }
            Aim::Reclaim => self.reclaim(busy),
            Aim::Change => self.change(operator),
            Aim::Fill => self.fill(),
        }
    }

    /// Fills the file system of the drive, and frees it again half of the time. Then the kill follows at any
    /// moment, or once the pool was opened again.
    fn fill(&mut self) -> Result<(), RunError> {
        let Some(space) = self.site.space() else { return Ok(()) };
        self.linger(RUN_MS_MAX)?;
        space.fill();
        self.linger(FULL_MS_MAX)?;
        if self.prng.chance(1, 2) {
            space.free();
            match self.prng.chance(1, 2) {
                true => self.wait(|course| course.report.as_ref().is_some_and(|report| !report.lacks_space))?,
                false => self.linger(FULL_MS_MAX)?,
            }
        }
        Ok(())
    }

    /// What the kill has interrupted, if the server is killed now.
    pub(super) fn interrupted(&mut self) -> Vec<&'static str> {
        let mut all = Vec::new();
        let launcher = self.launcher;
        if let Some(pending) = &mut self.pending
            && pending.is_in_flight(launcher)
        {
            all.push(pending.change.kind());
        }
        let namespaces = self.report.iter().flat_map(|report| &report.namespaces);
        let (mut overdrive, mut recall, mut reclaim) = (false, false, false);
        for own in namespaces {
            let Some(pace) = self.paces.get(&own.name) else { continue };
            overdrive |= is_overdriven(own);
            recall |= pace.running_for().is_some() && own.spares_lent > 0;
            let is_frozen = pace.paused_for().is_some_and(|time| time >= FROZEN_TIME);
            reclaim |= is_frozen && own.spares_used > 0 && self.is_reclaimed(own);
        }
        let copy = self.is_copying();
        let kinds =
            [(overdrive, "overdrive"), (recall, "recall"), (reclaim || copy, "reclaim"), (copy, "copy of a reclaim")];
        all.extend(kinds.into_iter().filter(|(is_hit, _)| *is_hit).map(|(_, kind)| kind));
        all
    }

    /// The change in flight at the kill, if it was not answered with success.
    ///
    /// # Errors
    /// When its result is unknown.
    pub(super) fn end(&mut self, operator: &mut Operator<'_>) -> Result<Option<Change>, RunError> {
        let Some(pending) = self.pending.take() else { return Ok(None) };
        let change = pending.change.clone();
        let (is_done, _) = pending.end()?;
        if is_done {
            operator.answered(&change);
            return Ok(None);
        }
        Ok(Some(change))
    }

    fn run_all(&mut self) {
        for pace in self.paces.values() {
            let interval = if self.prng.chance(1, 2) { 0 } else { self.prng.below(INTERVAL_US_MAX) };
            pace.run(Duration::from_micros(interval));
        }
    }

    fn interval(&mut self) -> Duration {
        Duration::from_micros(1_000 + self.prng.below(INTERVAL_US_MAX))
    }

    /// All but one tenant pause, until this one uses spares of others.
    fn overdrive(&mut self, busy: &str) -> Result<(), RunError> {
        self.linger(RUN_MS_MAX)?;
        self.paces[busy].run(Duration::ZERO);
        self.pause_all_but(busy);
        self.wait(|course| course.named(busy).is_some_and(is_overdriven))
    }

    fn reclaim(&mut self, busy: &str) -> Result<(), RunError> {
        for pace in self.paces.values() {
            pace.run(Duration::ZERO);
        }
        self.linger(RUN_MS_MAX)?;
        let interval = if self.prng.chance(1, 2) { Duration::ZERO } else { self.interval() };
        self.paces[busy].run(interval);
        self.pause_all_but(busy);
        std::thread::sleep(QUIET);
        self.poll()?;
        let namespaces = self.report.iter().flat_map(|report| &report.namespaces);
        self.at_pause = namespaces.map(|own| (own.name.clone(), own.spares_used)).collect();
        match self.prng.below(4) {
            0 => {
                std::thread::sleep(FROZEN_TIME - QUIET);
                return self.linger(1_000);
            }
            1..3 => return self.copy(busy),
            _ => {}
        }
        self.wait(|course| {
            let Some(report) = &course.report else { return false };
            report.namespaces.iter().any(|own| own.name != busy && own.spares_used > 0 && course.is_reclaimed(own))
        })?;
        self.linger(LINGER_MS_MAX / 3)
    }

    /// The other tenant pauses, too, shortly before groups are reclaimed: zones that are taken then are
    /// those of a copy.
    fn copy(&mut self, busy: &str) -> Result<(), RunError> {
        self.paces[busy].run(Duration::ZERO);
        std::thread::sleep(FROZEN_TIME - 2 * QUIET);
        self.paces[busy].pause();
        std::thread::sleep(QUIET);
        self.quiescent_zones = Some(self.poll()?.zones_in_groups);
        self.wait(Course::is_copying)?;
        std::thread::sleep(Duration::from_micros(self.prng.below(COPY_US_MAX)));
        Ok(())
    }

    /// Whether zones were taken while all hosts are paused.
    fn is_copying(&self) -> bool {
        let zones = self.report.as_ref().map(|report| report.zones_in_groups);
        self.quiescent_zones.is_some_and(|quiescent| zones > Some(quiescent))
    }

    fn change(&mut self, operator: &mut Operator<'_>) -> Result<(), RunError> {
        for _ in 0..self.prng.below(CHANGES_MAX + 1) {
            let change = operator.random(self.prng);
            let (is_done, printed) = change.clone().begin(self.launcher)?.end()?;
            if !is_done {
                let place = format!("{} of namespace {}", change.kind(), change.name());
                return Err(RunError::lost(Loss::new(place, "success", printed)));
            }
            operator.answered(&change);
            let report = self.poll()?;
            reconcile(operator.sizes, None, &report.namespaces)?;
            std::thread::sleep(Duration::from_millis(self.prng.below(RUN_MS_MAX / 3)));
        }
        let change = operator.random(self.prng);
        self.report = None;
        self.pending = Some(change.begin(self.launcher)?);
        std::thread::sleep(Duration::from_micros(self.prng.below(CHANGE_US_MAX)));
        Ok(())
    }

    fn pause_all_but(&self, busy: &str) {
        for (_, pace) in self.paces.iter().filter(|(name, _)| *name != busy) {
            pace.pause();
        }
    }

    /// Whether spares of a paused namespace were reclaimed since it paused.
    fn is_reclaimed(&self, own: &PoolNamespaceReport) -> bool {
        self.at_pause.get(&own.name).is_some_and(|before| own.spares_used < *before)
    }

    fn named(&self, name: &str) -> Option<&PoolNamespaceReport> {
        self.report.as_ref()?.namespace(name)
    }

    fn poll(&mut self) -> Result<&PoolReport, RunError> {
        let report = self.site.show()?;
        Ok(self.report.insert(report))
    }

    /// Polls until this is so, or a timeout.
    fn wait(&mut self, is_due: impl Fn(&Self) -> bool) -> Result<(), RunError> {
        let deadline = Instant::now() + WAIT;
        while Instant::now() < deadline {
            self.poll()?;
            if is_due(self) {
                break;
            }
        }
        Ok(())
    }

    /// Polls for a random time.
    fn linger(&mut self, ms_max: u64) -> Result<(), RunError> {
        let deadline = Instant::now() + Duration::from_millis(self.prng.below(ms_max));
        while Instant::now() < deadline {
            self.poll()?;
        }
        Ok(())
    }
}

impl Operator<'_> {
    fn random(&self, prng: &mut Prng) -> Change {
        Change::random(prng, self.sizes, self.guests)
    }

    /// A change was answered with success.
    fn answered(&mut self, change: &Change) {
        change.apply(self.sizes);
        if !matches!(change, Change::Resize { .. }) {
            self.renewed.push(change.name().to_owned());
        }
        *self.changes.entry(change.kind()).or_default() += 1;
    }
}

/// Whether a namespace has more spares in its groups than are its own.
fn is_overdriven(own: &PoolNamespaceReport) -> bool {
    own.spares_leased > 0 && own.spares_used > own.spares_own
}
