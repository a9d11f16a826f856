//! A volume, its drives, and a host with a model of the contents.

use std::collections::BTreeSet;

use bytes::Bytes;
use zonda_zoned::{Command, Duration, Instant, Operation, Outcome, Payload, Prng, fingerprint};

use super::lifecycle::Absent;
use super::{Drive, Journal, Mix, Model, Promise, Request, Strictness, Violation};
use crate::bug::SeededBug;
use crate::{ArrayId, Event, MemberIndex, MountOptions, Volume, VolumeConfig, VolumeError};

/// Steps after which a simulation that does not quiesce counts as hung.
const STEPS_TO_QUIESCE_MAX: u64 = 400_000;
/// Steps without quiescence after which a tick passes.
const STEPS_OF_TICK: u64 = 1_000;
const TICK: Duration = Duration::from_millis(1);
/// Blocks per request of sequential fills and reads.
const BLOCKS_OF_FILLING: u64 = 8;
/// Completions between checks of the volume's invariants.
const COMPLETIONS_BETWEEN_CHECKS: u64 = 32;

/// A simulation of one volume.
#[derive(Debug)]
pub struct Simulation {
    /// The configuration of the volume.
    pub config: VolumeConfig,
    /// The volume.
    pub volume: Volume,
    /// Its members.
    pub drives: Vec<Drive>,
    /// The model of its contents.
    pub model: Model,
    /// The mix of requests.
    pub mix: Mix,
    /// Weights of the drives in the random choice of the next one.
    pub speeds: Vec<u64>,
    /// Members that may fail, as bits: no others may.
    pub suspects: u32,
    /// What the caller of the next mounts knows and accepts.
    pub options: MountOptions,
    /// The caller stores the newest reported epoch, and passes it to the next mount.
    pub keeps_epochs: bool,
    /// A mount may be refused.
    pub(super) may_be_refused: bool,
    /// All events since the last mount, or since they were last taken.
    pub events: Vec<Event>,
    /// Completions of members since the beginning.
    pub completions: u64,
    /// The event trace.
    pub journal: Journal,
    /// Random requests that were generated, and their maximum.
    pub generated: u64,
    /// See [`generated`](Simulation::generated).
    pub generated_max: u64,
    /// Maximum requests in flight when a random one is submitted.
    pub queue_depth: usize,
    pub(super) now: Instant,
    /// Time before the last mount, at which the volume's own time starts.
    pub(super) before: Instant,
    pub(super) prng: Prng,
    requests: Prng,
    pub(super) replacements: u64,
    pub(super) bug: Option<SeededBug>,
    pub(super) absent: Absent,
    /// A hash over all commands and all completions that hosts received.
    hash: u64,
}

impl Simulation {
    /// Creates a volume on empty drives.
    ///
    /// # Errors
    /// If configuration and drives do not suit each other.
    pub fn create(config: VolumeConfig, drives: Vec<Drive>, prng: Prng) -> Result<Simulation, VolumeError> {
        let array: ArrayId = *b"world of volumes";
        let ids: Vec<[u8; 16]> = (0..drives.len() as u8).map(|at| [at + 1; 16]).collect();
        let geometries = drives.iter().map(|drive| drive.geometry().clone()).collect();
        let volume = Volume::create(config.clone(), geometries, array, &ids, false)?;
        Ok(Simulation::of(volume, config, drives, prng))
    }

    /// The same with a volume that is being created on these drives.
    ///
    /// # Panics
    /// If the volume does not become ready on working drives.
    #[must_use]
    pub fn of(volume: Volume, config: VolumeConfig, drives: Vec<Drive>, prng: Prng) -> Simulation {
        let blocks = volume.geometry().namespace_blocks().0;
        let block_bytes = volume.geometry().block_size_bytes as usize;
        let mut model = Model::new(blocks, block_bytes);
        model.is_cache_volatile = config.tuning.is_cache_volatile;
        let mut simulation = Simulation {
            config,
            volume,
            model,
            mix: Mix::default(),
            speeds: vec![1; drives.len()],
            drives,
            suspects: 0,
            options: MountOptions::default(),
            keeps_epochs: false,
            may_be_refused: false,
            events: Vec::new(),
            completions: 0,
            journal: Journal::default(),
            generated: 0,
            generated_max: u64::MAX,
            queue_depth: usize::MAX,
            now: Instant::ZERO,
            before: Instant::ZERO,
            requests: prng.fork("requests"),
            prng,
            bug: None,
            absent: Absent::default(),
            replacements: 0,
            hash: 0,
        };
        simulation.quiesce().expect("working drives quiesce");
        assert_eq!(simulation.events, [Event::Ready], "working empty drives become a volume");
        simulation.events.clear();
        simulation
    }

    /// Seeds a bug in the volume, and in those that are mounted after it.
    pub fn seed_bug(&mut self, bug: SeededBug) {
        self.volume.seed_bug(bug);
        self.bug = Some(bug);
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The time since the simulation began: that of the volume restarts with each mount.
    #[must_use]
    pub fn time(&self) -> Instant {
        Instant(self.before.0 + self.now.0)
    }

    /// Adds a line to the event trace.
    pub fn trace(&mut self, line: impl FnOnce() -> String) {
        self.journal.trace(self.time(), line);
    }

    /// A hash over all commands sent to members, and all completions that hosts received.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether drives have commands in flight.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.drives.iter().any(Drive::has_work)
    }

    /// Submits a request to the volume. Returns whether it was accepted.
    ///
    /// # Errors
    /// If an immediate completion or event is wrong.
    pub fn submit(&mut self, request: &Request) -> Result<bool, Violation> {
        let time = self.time();
        let Simulation { volume, model, now, journal, .. } = self;
        let is_taken = model.submit(request, |command| {
            let id = command.id;
            volume.submit(*now, command)?;
            journal.submitted(time, id, request);
            Ok(())
        });
        self.check_output()?;
        Ok(is_taken)
    }

    /// Submits a random request, unless the maximum is reached.
    ///
    /// # Errors
    /// As [`submit`](Simulation::submit).
    pub fn submit_random(&mut self) -> Result<bool, Violation> {
        if self.generated >= self.generated_max || self.model.in_flight() >= self.queue_depth {
            return Ok(false);
        }
        let request = self.mix.generate(&mut self.requests, self.model.volume_blocks());
        let is_taken = self.submit(&request)?;
        self.generated += u64::from(is_taken);
        Ok(is_taken)
    }

    /// Writes every block once.
    ///
    /// # Errors
    /// As [`submit`](Simulation::submit) and [`quiesce`](Simulation::quiesce).
    pub fn fill(&mut self) -> Result<(), Violation> {
        let (blocks, mut start) = (self.model.volume_blocks(), 0);
        while start < blocks {
            let count = BLOCKS_OF_FILLING.min(blocks - start);
            if self.submit(&Request::Write { start, blocks: count })? {
                start += count;
            } else {
                self.quiesce()?;
            }
        }
        self.quiesce()
    }

    /// A random step: a host submits a request, one time in `calm`; else a member is sent commands,
    /// a drive executes one, or time passes.
    ///
    /// # Errors
    /// If the volume misbehaves.
    pub fn step(&mut self, calm: u64) -> Result<(), Violation> {
        match self.prng.below(calm.max(1)) {
            0 => self.submit_random().map(|_| ()),
            _ => match self.prng.below(16) {
                0..6 => {
                    self.send_some();
                    Ok(())
                }
                6..15 => self.step_drive().map(|_| ()),
                _ => self.advance_time(),
            },
        }
    }

    /// Lets `span` pass without host I/O.
    ///
    /// # Errors
    /// If the volume misbehaves.
    pub fn wait(&mut self, span: Duration) -> Result<(), Violation> {
        let end = self.now + span;
        loop {
            for at in 0..self.drives.len() {
                while self.send_command(at) {}
            }
            if self.step_drive()? {
                continue;
            }
            self.check_output()?;
            let Some(due) = self.volume.next_timeout().filter(|&due| due <= end) else { break };
            self.now = self.now.max(due);
            self.volume.on_timeout(self.now);
        }
        self.now = end;
        Ok(())
    }

    /// Advances the time to at least `at`.
    pub fn wait_until(&mut self, at: Instant) {
        self.now = self.now.max(at);
    }

    fn advance_time(&mut self) -> Result<(), Violation> {
        self.now += Duration::from_micros(self.prng.below(100));
        if self.volume.next_timeout().is_some_and(|due| due <= self.now) {
            self.volume.on_timeout(self.now);
        }
        self.check_output()
    }

    pub(super) fn send_some(&mut self) {
        let at = self.prng.below(self.drives.len() as u64) as usize;
        while self.send_command(at) && self.prng.chance(3, 4) {}
    }

    /// Sends a member its next command. Returns whether it accepted one.
    fn send_command(&mut self, at: usize) -> bool {
        let member = MemberIndex(at as u8);
        let Some(command) = self.volume.poll_command(self.now, member) else { return false };
        let print = fingerprint_of(&command);
        if let Some(lba) = self.journal.watched()
            && let Some(what) = self.watched_write(at, lba, &command)
        {
            self.journal.sent(at, command.id, what);
        }
        match self.drives[at].submit(command) {
            Ok(()) => {
                self.add_to_hash(at as u64);
                self.add_to_hash(print);
                true
            }
            Err(full) => {
                self.volume.on_queue_full(member, full.0);
                false
            }
        }
    }

    /// Advances a random drive that has commands. Returns whether there was one.
    pub(super) fn step_drive(&mut self) -> Result<bool, Violation> {
        let weight = |at: usize| if self.drives[at].has_work() { self.speeds[at].max(1) } else { 0 };
        let all: u64 = (0..self.drives.len()).map(weight).sum();
        if all == 0 {
            return Ok(false);
        }
        let choice = self.prng.below(all);
        let mut sum = 0;
        let at = (0..self.drives.len()).find(|&at| {
            let weight = if self.drives[at].has_work() { self.speeds[at].max(1) } else { 0 };
            sum += weight;
            choice < sum
        });
        let at = at.expect("weights add up");
        let completion = self.drives[at].step();
        self.check_order_after_write(at)?;
        let Some(completion) = completion else { return Ok(true) };
        self.journal.completed(self.time(), at, completion.id, || match completion.outcome {
            Outcome::Appended(lba) => format!("{} at {lba}", completion.status),
            _ => completion.status.to_string(),
        });
        self.volume.on_completion(self.now, MemberIndex(at as u8), completion);
        self.completions += 1;
        if self.completions.is_multiple_of(COMPLETIONS_BETWEEN_CHECKS) {
            self.volume.check_invariants();
        }
        self.check_output()?;
        Ok(true)
    }

    /// Completes everything that can complete: commands, and then whatever the volume does at
    /// timeouts.
    ///
    /// # Errors
    /// If a request does not complete, completes wrongly, or the volume does not quiesce.
    pub fn quiesce(&mut self) -> Result<(), Violation> {
        for step in 1..=STEPS_TO_QUIESCE_MAX {
            for at in 0..self.drives.len() {
                while self.send_command(at) {}
            }
            if self.step_drive()? {
                if step % STEPS_OF_TICK == 0 {
                    self.tick()?;
                }
                continue;
            }
            let refuses = (0..self.drives.len()).any(|at| self.send_command(at));
            if refuses {
                continue;
            }
            let Some(due) = self.volume.next_timeout() else {
                self.volume.check_invariants();
                return self.model.expect_idle();
            };
            self.now = self.now.max(due);
            self.volume.on_timeout(self.now);
            self.check_output()?;
        }
        Err(Violation::new(
            Promise::Ends,
            format!("not quiescent after {STEPS_TO_QUIESCE_MAX} steps: {:?}", self.volume.status()),
        ))
    }

    /// Member activity takes time: collection may continue for as long as a scrub waits for its
    /// rate limit.
    fn tick(&mut self) -> Result<(), Violation> {
        self.now += TICK;
        if self.volume.next_timeout().is_some_and(|due| due <= self.now) {
            self.volume.on_timeout(self.now);
            self.check_output()?;
        }
        Ok(())
    }

    /// Reads everything, and compares it with the model.
    ///
    /// # Errors
    /// If the contents violate a guarantee.
    pub fn read_all(&mut self) -> Result<(), Violation> {
        let (blocks, mut start) = (self.model.volume_blocks(), 0);
        while start < blocks {
            let count = (1 + self.prng.below(32)).min(blocks - start);
            if self.submit(&Request::Read { start, blocks: count })? {
                start += count;
            } else {
                self.quiesce()?;
            }
        }
        self.quiesce()
    }

    /// Reads everything, and returns the blocks that cannot be read.
    ///
    /// # Errors
    /// As [`read_all`](Simulation::read_all).
    pub fn read_each(&mut self) -> Result<BTreeSet<u64>, Violation> {
        drop(self.model.take_failed_reads());
        self.read_all()?;
        let failed = self.model.take_failed_reads();
        for lba in failed.into_iter().flat_map(|(start, blocks)| start..start + blocks) {
            while !self.submit(&Request::Read { start: lba, blocks: 1 })? {
                self.quiesce()?;
            }
        }
        self.quiesce()?;
        Ok(self.model.take_failed_reads().into_iter().map(|(lba, _)| lba).collect())
    }

    /// Pauses the program; afterwards it receives what members have completed meanwhile.
    ///
    /// # Errors
    /// If the volume misbehaves.
    pub fn pause_program(&mut self, span: Duration) -> Result<(), Violation> {
        self.journal.trace(self.time(), || format!("the program is paused for {span}"));
        self.now += span;
        if self.prng.chance(1, 2) && self.volume.next_timeout().is_some_and(|due| due <= self.now) {
            self.volume.on_timeout(self.now);
        }
        self.check_output()
    }

    /// Checks all events and completions of the volume.
    ///
    /// # Errors
    /// If one is wrong.
    pub fn check_output(&mut self) -> Result<(), Violation> {
        let mut is_whole = false;
        while let Some(event) = self.volume.poll_event() {
            is_whole |= matches!(event, Event::Ready | Event::Rebuilt { .. });
            if let Event::MemberFailed { member, .. } = event
                && self.suspects >> member.0 & 1 == 0
            {
                let what = format!("member {} failed without a fault: {event:?}", member.0);
                return Err(Violation::new(Promise::Members, what));
            }
            if let Event::Lost { lba, blocks } = &event
                && let Some(lba) = (lba.0..lba.0 + blocks.0).find(|&lba| !self.model.may_be_lost(lba))
            {
                return Err(Violation::of_block(Promise::Contents, lba, "reported as lost".to_owned()));
            }
            if let Event::Failed(error) = &event
                && !self.model.is_lost
                && !self.may_be_refused
            {
                return Err(Violation::new(Promise::Mounts, format!("the volume is lost: {error} {:?}", self.events)));
            }
            if let Event::MemberFailed { member, .. } = event {
                self.absent.failed_members.push((member, self.model.next_id()));
            }
            self.journal.trace(self.time(), || format!("event: {event:?}"));
            self.events.push(event);
        }
        if self.keeps_epochs && self.volume.is_ready() {
            self.options.newest_epoch = self.options.newest_epoch.max(Some(self.volume.epoch()));
        }
        while let Some(completion) = self.volume.poll_completion() {
            self.journal.ended(self.time(), completion.id, completion.status);
            self.count_absent(&completion);
            self.add_to_hash(completion.id.0 << 16 | completion.status as u64);
            self.model.on_completion(&completion)?;
        }
        // Members have the data that the volume assumes.
        if is_whole { self.inspect(Strictness::Excusing) } else { Ok(()) }
    }

    /// What a command writes to the watched block.
    fn watched_write(&self, at: usize, lba: u64, command: &Command) -> Option<String> {
        let (start, payload) = match &command.operation {
            Operation::Write { start, payload, .. } => (start, payload),
            Operation::Append { zone_start, payload, .. } => (zone_start, payload),
            _ => return None,
        };
        let Payload::Bytes(buffer) = payload else { return None };
        let geometry = self.drives[at].geometry();
        let mut blocks = buffer.data.chunks(geometry.block_size_bytes as usize);
        let version = blocks.find_map(|block| self.model.version_of(lba, block))?;
        let zone = geometry.zone_of(*start)?;
        Some(format!("version {version} to member {at}, zone {zone}, by {}", command.operation.name()))
    }

    fn add_to_hash(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
    }
}

/// A hash that distinguishes commands.
fn fingerprint_of(command: &Command) -> u64 {
    let (place, contents) = match &command.operation {
        Operation::Write { start, payload, .. } => (start.0, Some(payload)),
        Operation::Append { zone_start, payload, .. } => (zone_start.0, Some(payload)),
        Operation::Read { start, .. } => (start.0, None),
        other => (u64::from(other.name().len() as u32), None),
    };
    let none = Bytes::new();
    let (data, metadata) = match contents {
        Some(Payload::Bytes(buffer)) => (&buffer.data, &buffer.metadata),
        _ => (&none, &none),
    };
    fingerprint(data, metadata) ^ place.rotate_left(32) ^ command.operation.blocks().0 ^ command.id.0.rotate_left(7)
}
