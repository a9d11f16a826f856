//! A volume, its drives, and a host that remembers what it was promised.

use std::collections::BTreeSet;

use bytes::Bytes;
use zonda_zoned::{Command, Duration, Instant, Operation, Outcome, Payload, Prng, fingerprint};

use super::lives::Absent;
use super::{Drive, Journal, Mix, Model, Promise, Request, Strictness, Violation};
use crate::bug::SeededBug;
use crate::{ArrayId, Event, MemberIndex, MountOptions, Volume, VolumeConfig, VolumeError};

/// Steps after which a world that does not come to rest is said to hang.
const STEPS_TO_REST_MAX: u64 = 400_000;
/// Steps of a world that does not come to rest in which so much time passes.
const STEPS_OF_TICK: u64 = 1_000;
const TICK: Duration = Duration::from_millis(1);
/// Blocks of a request of those that write every block.
const BLOCKS_OF_FILLING: u64 = 8;
/// The volume's invariants are looked at every so many completions.
const COMPLETIONS_BETWEEN_CHECKS: u64 = 32;

/// The world of one volume.
#[derive(Debug)]
pub struct World {
    /// What the volume was made as.
    pub config: VolumeConfig,
    /// The volume.
    pub volume: Volume,
    /// Its members.
    pub drives: Vec<Drive>,
    /// What it promised.
    pub model: Model,
    /// What is asked of it.
    pub mix: Mix,
    /// How likely it is that a drive moves when something does, one weight a drive.
    pub speeds: Vec<u64>,
    /// Members that may be given up, as bits: nobody else may.
    pub suspects: u32,
    /// What the caller of the next mounts knows and accepts.
    pub options: MountOptions,
    /// Its caller keeps the newest epoch that it was told, and hands it in at the next mount.
    pub keeps_epochs: bool,
    /// A mount may be refused.
    pub(super) may_be_refused: bool,
    /// All events since the last mount, or since they were last taken.
    pub events: Vec<Event>,
    /// Completions of members since the beginning.
    pub completions: u64,
    /// What happened.
    pub journal: Journal,
    /// Requests that were drawn, and how many may be.
    pub drawn: u64,
    /// See [`drawn`](World::drawn).
    pub drawn_max: u64,
    /// Requests under way, at most, when one is drawn.
    pub queue_depth: usize,
    pub(super) now: Instant,
    /// Time before the last mount, with which a volume's own begins.
    pub(super) before: Instant,
    pub(super) prng: Prng,
    requests: Prng,
    pub(super) replacements: u64,
    pub(super) bug: Option<SeededBug>,
    pub(super) absent: Absent,
    /// Over all commands and all that hosts heard.
    hash: u64,
}

impl World {
    /// A volume that was just created on empty drives.
    ///
    /// # Errors
    /// When configuration and drives do not suit each other.
    pub fn create(config: VolumeConfig, drives: Vec<Drive>, prng: Prng) -> Result<World, VolumeError> {
        let array: ArrayId = *b"world of volumes";
        let ids: Vec<[u8; 16]> = (0..drives.len() as u8).map(|at| [at + 1; 16]).collect();
        let geometries = drives.iter().map(|drive| drive.geometry().clone()).collect();
        let volume = Volume::create(config.clone(), geometries, array, &ids, false)?;
        Ok(World::of(volume, config, drives, prng))
    }

    /// The same with a volume that is being created on these drives.
    ///
    /// # Panics
    /// When the volume does not become ready on drives that work.
    #[must_use]
    pub fn of(volume: Volume, config: VolumeConfig, drives: Vec<Drive>, prng: Prng) -> World {
        let blocks = volume.geometry().namespace_blocks().0;
        let block_bytes = volume.geometry().block_size_bytes as usize;
        let mut model = Model::new(blocks, block_bytes);
        model.is_cache_volatile = config.tuning.is_cache_volatile;
        let mut world = World {
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
            drawn: 0,
            drawn_max: u64::MAX,
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
        world.rest().expect("drives that work come to rest");
        assert_eq!(world.events, [Event::Ready], "empty drives that work become a volume");
        world.events.clear();
        world
    }

    /// Plants a bug in the volume, and in those that are mounted after it.
    pub fn plant(&mut self, bug: SeededBug) {
        self.volume.plant(bug);
        self.bug = Some(bug);
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The time since the world began: that of the volume begins anew with each mount.
    #[must_use]
    pub fn time(&self) -> Instant {
        Instant(self.before.0 + self.now.0)
    }

    /// Notes something that was done to the world.
    pub fn tell(&mut self, line: impl FnOnce() -> String) {
        self.journal.tell(self.time(), line);
    }

    /// A number that depends on all commands that members were given, and on all that hosts heard.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Commands that drives have under way.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.drives.iter().any(Drive::has_work)
    }

    /// Asks something of the volume. Says whether it had room.
    ///
    /// # Errors
    /// What was wrong with what it said at once.
    pub fn ask(&mut self, request: &Request) -> Result<bool, Violation> {
        let time = self.time();
        let World { volume, model, now, journal, .. } = self;
        let is_taken = model.ask(request, |command| {
            let id = command.id;
            volume.submit(*now, command)?;
            journal.asked(time, id, request);
            Ok(())
        });
        self.hear()?;
        Ok(is_taken)
    }

    /// Asks something, drawn at random, if any more requests may be drawn.
    ///
    /// # Errors
    /// As [`ask`](World::ask).
    pub fn ask_some(&mut self) -> Result<bool, Violation> {
        if self.drawn >= self.drawn_max || self.model.under_way() >= self.queue_depth {
            return Ok(false);
        }
        let request = self.mix.draw(&mut self.requests, self.model.volume_blocks());
        let is_taken = self.ask(&request)?;
        self.drawn += u64::from(is_taken);
        Ok(is_taken)
    }

    /// Writes every block once.
    ///
    /// # Errors
    /// As [`ask`](World::ask) and [`rest`](World::rest).
    pub fn fill(&mut self) -> Result<(), Violation> {
        let (blocks, mut start) = (self.model.volume_blocks(), 0);
        while start < blocks {
            let count = BLOCKS_OF_FILLING.min(blocks - start);
            if self.ask(&Request::Write { start, blocks: count })? {
                start += count;
            } else {
                self.rest()?;
            }
        }
        self.rest()
    }

    /// Lets something happen: a host asks, one time in `calm`; else a member is given commands, a drive moves, or time passes.
    ///
    /// # Errors
    /// What is wrong with what came of it.
    pub fn step(&mut self, calm: u64) -> Result<(), Violation> {
        match self.prng.below(calm.max(1)) {
            0 => self.ask_some().map(|_| ()),
            _ => match self.prng.below(16) {
                0..6 => {
                    self.hand_out_some();
                    Ok(())
                }
                6..15 => self.move_drive().map(|_| ()),
                _ => self.let_time_pass(),
            },
        }
    }

    /// Nothing happens for so long, but what the volume does by itself.
    ///
    /// # Errors
    /// What is wrong with what came of it.
    pub fn wait(&mut self, span: Duration) -> Result<(), Violation> {
        let end = self.now + span;
        loop {
            for at in 0..self.drives.len() {
                while self.hand_out(at) {}
            }
            if self.move_drive()? {
                continue;
            }
            self.hear()?;
            let Some(due) = self.volume.next_timeout().filter(|&due| due <= end) else { break };
            self.now = self.now.max(due);
            self.volume.on_timeout(self.now);
        }
        self.now = end;
        Ok(())
    }

    /// It is no earlier than this.
    pub fn wait_until(&mut self, at: Instant) {
        self.now = self.now.max(at);
    }

    fn let_time_pass(&mut self) -> Result<(), Violation> {
        self.now += Duration::from_micros(self.prng.below(100));
        if self.volume.next_timeout().is_some_and(|due| due <= self.now) {
            self.volume.on_timeout(self.now);
        }
        self.hear()
    }

    pub(super) fn hand_out_some(&mut self) {
        let at = self.prng.below(self.drives.len() as u64) as usize;
        while self.hand_out(at) && self.prng.chance(3, 4) {}
    }

    /// Gives a member its next command. Says whether it took one.
    fn hand_out(&mut self, at: usize) -> bool {
        let member = MemberIndex(at as u8);
        let Some(command) = self.volume.poll_command(self.now, member) else { return false };
        let print = print_of(&command);
        if let Some(lba) = self.journal.watched()
            && let Some(what) = self.watched_write(at, lba, &command)
        {
            self.journal.given(at, command.id, what);
        }
        match self.drives[at].submit(command) {
            Ok(()) => {
                self.note(at as u64);
                self.note(print);
                true
            }
            Err(full) => {
                self.volume.on_queue_full(member, full.0);
                false
            }
        }
    }

    /// Moves one drive that has something to do. Says whether one had.
    pub(super) fn move_drive(&mut self) -> Result<bool, Violation> {
        let weight = |at: usize| if self.drives[at].has_work() { self.speeds[at].max(1) } else { 0 };
        let all: u64 = (0..self.drives.len()).map(weight).sum();
        if all == 0 {
            return Ok(false);
        }
        let drawn = self.prng.below(all);
        let mut sum = 0;
        let at = (0..self.drives.len()).find(|&at| {
            let weight = if self.drives[at].has_work() { self.speeds[at].max(1) } else { 0 };
            sum += weight;
            drawn < sum
        });
        let at = at.expect("weights add up");
        let completion = self.drives[at].step();
        self.check_order_after_write(at)?;
        let Some(completion) = completion else { return Ok(true) };
        self.journal.done(self.time(), at, completion.id, || match completion.outcome {
            Outcome::Appended(lba) => format!("{} at {lba}", completion.status),
            _ => completion.status.to_string(),
        });
        self.volume.on_completion(self.now, MemberIndex(at as u8), completion);
        self.completions += 1;
        if self.completions.is_multiple_of(COMPLETIONS_BETWEEN_CHECKS) {
            self.volume.check_invariants();
        }
        self.hear()?;
        Ok(true)
    }

    /// Lets everything end that can: commands, and then the time for which the volume waits.
    ///
    /// # Errors
    /// When a request does not end, ends wrongly, or the volume goes on for ever.
    pub fn rest(&mut self) -> Result<(), Violation> {
        for step in 1..=STEPS_TO_REST_MAX {
            for at in 0..self.drives.len() {
                while self.hand_out(at) {}
            }
            if self.move_drive()? {
                if step % STEPS_OF_TICK == 0 {
                    self.tick()?;
                }
                continue;
            }
            let refuses = (0..self.drives.len()).any(|at| self.hand_out(at));
            if refuses {
                continue;
            }
            let Some(due) = self.volume.next_timeout() else {
                self.volume.check_invariants();
                return self.model.expect_rest();
            };
            self.now = self.now.max(due);
            self.volume.on_timeout(self.now);
            self.hear()?;
        }
        Err(Violation::new(
            Promise::Ends,
            format!("no rest after {STEPS_TO_REST_MAX} steps: {:?}", self.volume.status()),
        ))
    }

    /// What members do takes time: collection may go on for as long as a scrub waits for its time to come.
    fn tick(&mut self) -> Result<(), Violation> {
        self.now += TICK;
        if self.volume.next_timeout().is_some_and(|due| due <= self.now) {
            self.volume.on_timeout(self.now);
            self.hear()?;
        }
        Ok(())
    }

    /// Reads everything, and compares.
    ///
    /// # Errors
    /// Where it is not what was promised.
    pub fn read_all(&mut self) -> Result<(), Violation> {
        let (blocks, mut start) = (self.model.volume_blocks(), 0);
        while start < blocks {
            let count = (1 + self.prng.below(32)).min(blocks - start);
            if self.ask(&Request::Read { start, blocks: count })? {
                start += count;
            } else {
                self.rest()?;
            }
        }
        self.rest()
    }

    /// Reads everything, and returns the blocks that cannot be read.
    ///
    /// # Errors
    /// As [`read_all`](World::read_all).
    pub fn read_each(&mut self) -> Result<BTreeSet<u64>, Violation> {
        drop(self.model.take_failed_reads());
        self.read_all()?;
        let failed = self.model.take_failed_reads();
        for lba in failed.into_iter().flat_map(|(start, blocks)| start..start + blocks) {
            while !self.ask(&Request::Read { start: lba, blocks: 1 })? {
                self.rest()?;
            }
        }
        self.rest()?;
        Ok(self.model.take_failed_reads().into_iter().map(|(lba, _)| lba).collect())
    }

    /// The program does not run for so long; what members do meanwhile it sees later.
    ///
    /// # Errors
    /// What is wrong with what comes of it.
    pub fn pause_program(&mut self, span: Duration) -> Result<(), Violation> {
        self.journal.tell(self.time(), || format!("the program does not run for {span}"));
        self.now += span;
        if self.prng.chance(1, 2) && self.volume.next_timeout().is_some_and(|due| due <= self.now) {
            self.volume.on_timeout(self.now);
        }
        self.hear()
    }

    /// Hears of everything that the volume has to tell.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn hear(&mut self) -> Result<(), Violation> {
        let mut is_whole = false;
        while let Some(event) = self.volume.poll_event() {
            is_whole |= matches!(event, Event::Ready | Event::Rebuilt { .. });
            if let Event::MemberFailed { member, .. } = event
                && self.suspects >> member.0 & 1 == 0
            {
                let what = format!("member {} did nothing wrong, and is given up: {event:?}", member.0);
                return Err(Violation::new(Promise::Members, what));
            }
            if let Event::Lost { lba, blocks } = &event
                && let Some(lba) = (lba.0..lba.0 + blocks.0).find(|&lba| !self.model.may_be_lost(lba))
            {
                return Err(Violation::of_block(Promise::Contents, lba, "it is said to be lost".to_owned()));
            }
            if let Event::Failed(error) = &event
                && !self.model.is_lost
                && !self.may_be_refused
            {
                return Err(Violation::new(Promise::Mounts, format!("the volume is lost: {error} {:?}", self.events)));
            }
            if let Event::MemberFailed { member, .. } = event {
                self.absent.given_up.push((member, self.model.next_id()));
            }
            self.journal.tell(self.time(), || format!("the volume says: {event:?}"));
            self.events.push(event);
        }
        if self.keeps_epochs && self.volume.is_ready() {
            self.options.newest_epoch = self.options.newest_epoch.max(Some(self.volume.epoch()));
        }
        while let Some(completion) = self.volume.poll_completion() {
            self.journal.ended(self.time(), completion.id, completion.status);
            self.count_absent(&completion);
            self.note(completion.id.0 << 16 | completion.status as u64);
            self.model.hear(&completion)?;
        }
        // Members have what the volume says that they have.
        if is_whole { self.inspect(Strictness::Excusing) } else { Ok(()) }
    }

    /// What a command writes of a block.
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

    fn note(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
    }
}

/// A number that tells commands apart.
fn print_of(command: &Command) -> u64 {
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
