//! Programs with directories of one volume, their shared time, and what hosts saw.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;

use zonda_ring::Ring;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, CompletionQueue, Duration, Instant, Lba, NamespaceId,
    Operation, Outcome, Payload, Prng, ZonedDevice,
};

use super::super::ledger::{BLOCK_BYTES, contents, version_of};
use super::history::History;
use super::plan::Plan;
use super::seen::Seen;
use crate::volume::{TakeoverOptions, VOLUME_FILE, VolumeDrive, VolumeOpenOptions, VolumeState};
use crate::{Drive, DriveError, shelf};

/// Blocks that hosts use.
pub(super) const HOST_BLOCKS: u64 = 24;
/// Polls at one time after which a program is said to spin.
const POLLS_MAX: u32 = 20_000;
/// One program may mount while another does.
const DEPTH_MAX: u32 = 2;

/// The world, and the event loop in whose turns programs wait: meanwhile the others go on.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) world: Rc<RefCell<World>>,
    pub(super) ring: Rc<Ring>,
}

pub(super) struct World {
    pub(super) prng: Prng,
    /// How often each action happens.
    pub(super) weights: Vec<u64>,
    pub(super) plan: Plan,
    pub(super) now: Instant,
    pub(super) next_action_at: Instant,
    pub(super) actions_left: u32,
    pub(super) programs: Vec<Program>,
    pub(super) drives: Vec<PathBuf>,
    /// Drives that fail their commands.
    pub(super) failing: Vec<usize>,
    pub(super) history: History,
    pub(super) last_value: u32,
    pub(super) last_command: u64,
    /// The volume can be used with either of two sets of members.
    pub(super) has_halves: bool,
    /// The members, as places in `volume.toml`, with which the volume was last mounted or hosts were last answered.
    pub(super) last_members: Vec<String>,
    /// Which program mounted the volume last.
    pub(super) last_owner: Option<usize>,
    /// Who had the volume from when on.
    pub(super) served: Vec<(usize, u64)>,
    pub(super) seen: Seen,
    pub(super) trace: Vec<String>,
    pub(super) failure: Option<String>,
    pub(super) depth: u32,
    /// The ring is only brought up to the time.
    pub(super) is_syncing: bool,
}

/// A directory, and the program that has it.
pub(super) struct Program {
    pub(super) directory: PathBuf,
    pub(super) state: State,
    pub(super) is_paused: bool,
    /// It mounts or takes over just now, and may have been killed meanwhile.
    pub(super) is_killed: bool,
    /// Drives that it cannot reach.
    pub(super) cut_off: Vec<usize>,
    /// The same, and its connections seem to stand.
    pub(super) silent: Vec<usize>,
    /// How its file names this directory, once it has mounted.
    pub(super) places: Vec<String>,
    asked: BTreeMap<CommandId, Asked>,
    /// Sent by hosts while it was paused.
    waiting: Vec<Command>,
}

pub(super) enum State {
    Down,
    /// It mounts, or takes over.
    Busy,
    Up {
        drive: Box<VolumeDrive>,
        opened: u64,
        is_closing: bool,
    },
}

/// A command of a host.
struct Asked {
    begun: u64,
    start: u64,
    blocks: u64,
    /// Of a write.
    value: Option<u32>,
}

impl Asked {
    fn lbas(&self) -> std::ops::Range<u64> {
        self.start..self.start + self.blocks
    }

    /// It has failed, or nobody will ever say how it has ended.
    fn is_lost(&self, history: &mut History) {
        if let Some(value) = self.value {
            self.lbas().for_each(|lba| history.write_fails(lba, value));
        }
    }

    fn shown(&self) -> String {
        let (start, blocks) = (self.start, self.blocks);
        match self.value {
            Some(value) => format!("write {value} to {start}+{blocks}"),
            None if blocks == 0 => "flush".to_owned(),
            None => format!("read {start}+{blocks}"),
        }
    }
}

impl Stage {
    /// Time passes up to here; a program that blocks meanwhile may make it later. Returns when it ends.
    pub(super) fn pass(&self, until: Instant) -> Instant {
        if self.world.borrow().is_syncing {
            return until;
        }
        let mut polls_at = (Instant::ZERO, 0);
        loop {
            let is_due = {
                let mut world = self.world.borrow_mut();
                let Some(next) = world.next_event().filter(|next| *next <= until && world.failure.is_none()) else {
                    world.now = world.now.max(until);
                    shelf::advance(world.now);
                    return world.now;
                };
                world.now = world.now.max(next);
                shelf::advance(world.now);
                polls_at = if polls_at.0 == world.now { (world.now, polls_at.1 + 1) } else { (world.now, 0) };
                if polls_at.1 > POLLS_MAX {
                    world.fail("a program does not come to rest".to_owned());
                }
                world.take_due_action()
            };
            if is_due {
                self.act();
            }
            self.world.borrow_mut().poll_all();
        }
    }

    /// Something of a program that waits in turns. It is told why nothing came of it.
    fn block<T>(&self, at: usize, body: impl FnOnce(&Ring) -> Result<T, DriveError>) -> Option<Result<T, DriveError>> {
        let now = {
            let mut world = self.world.borrow_mut();
            world.programs[at].state = State::Busy;
            world.depth += 1;
            world.is_syncing = true;
            world.now
        };
        self.ring.turn(Some(now)).expect("time passes");
        self.world.borrow_mut().is_syncing = false;
        let result = shelf::as_program(at, || body(&self.ring));
        let mut world = self.world.borrow_mut();
        world.now = world.now.max(self.ring.now());
        world.depth -= 1;
        world.programs[at].state = State::Down;
        if std::mem::take(&mut world.programs[at].is_killed) {
            world.tell(format!("{at} was killed meanwhile"));
            world.seen.kills_while_busy += 1;
            shelf::as_program(at, || drop(result));
            shelf::set_killed(at, false);
            return None;
        }
        Some(result)
    }

    /// A program starts. Whoever has the volume then is the only one.
    pub(super) fn mount(&self, at: usize) -> Result<(), DriveError> {
        self.mount_with(at, &VolumeOpenOptions::default())
    }

    pub(super) fn mount_with(&self, at: usize, accepted: &VolumeOpenOptions) -> Result<(), DriveError> {
        let directory = self.world.borrow().programs[at].directory.clone();
        let Some(result) = self.block(at, |ring| VolumeDrive::open_with(&directory, accepted, ring)) else {
            return Ok(());
        };
        let world = &mut *self.world.borrow_mut();
        match result {
            Ok(drive) => {
                let opened = world.history.tick();
                world.served.push((at, opened));
                world.seen.mounts += 1;
                let status = drive.report();
                world.seen.degraded_mounts += u64::from(status.state == VolumeState::Degraded);
                world.tell(format!("{at} has mounted: {:?}", status.state));
                world.programs[at].note_place();
                world.last_members = active_members(&drive);
                world.last_owner = Some(at);
                world.programs[at].state = State::Up { drive: Box::new(drive), opened, is_closing: false };
                Ok(())
            }
            Err(error) => {
                world.seen.refused_mounts += 1;
                world.seen.copies_refused += u64::from(is_about_missing(&error));
                world.tell(format!("{at} does not mount: {}", error.message));
                Err(error)
            }
        }
    }

    pub(super) fn take_over(&self, at: usize, accepts_missing: bool) -> Result<(), DriveError> {
        self.take_over_with(at, TakeoverOptions { accepts_missing, ..TakeoverOptions::default() })
    }

    /// What is reserved for a directory is released: no program runs that might go on where it was.
    pub(super) fn release(&self, at: usize) -> Result<(), DriveError> {
        self.take_over_with(at, TakeoverOptions { releases: true, ..TakeoverOptions::default() })
    }

    fn take_over_with(&self, at: usize, options: TakeoverOptions) -> Result<(), DriveError> {
        let directory = self.world.borrow().programs[at].directory.clone();
        let Some(result) = self.block(at, |ring| VolumeDrive::take_over(&directory, options, ring)) else {
            return Ok(());
        };
        let world = &mut *self.world.borrow_mut();
        match result {
            Ok(report) => {
                let is_whole = report.drives.iter().all(|drive| drive.error.is_none());
                if is_whole && !options.releases {
                    let now = world.history.tick();
                    world.served.push((at, now));
                }
                world.seen.takeovers += 1;
                let what = if options.releases { "released the volume" } else { "taken the volume over" };
                world.tell(format!("{at} has {what}{}", if is_whole { "" } else { ", in part" }));
                Ok(())
            }
            Err(error) => {
                world.seen.refused_takeovers += 1;
                world.seen.insufficient_takeovers += u64::from(is_insufficient(&error));
                world.tell(format!("{at} takes nothing over: {}", error.message));
                Err(error)
            }
        }
    }
}

/// Whether a mount is refused since members are not reached.
pub(super) fn is_about_missing(error: &DriveError) -> bool {
    error.message.contains("is not known to be the one")
}

/// Whether a takeover is refused by what a superblock says.
pub(super) fn is_insufficient(error: &DriveError) -> bool {
    error.message.contains("the volume is not taken over, since")
}

fn active_members(drive: &VolumeDrive) -> Vec<String> {
    let members = drive.report().members.into_iter().filter(|member| member.state == "active");
    members.map(|member| member.at).collect()
}

impl Program {
    pub(super) fn new(directory: PathBuf) -> Program {
        Program {
            directory,
            state: State::Down,
            is_paused: false,
            is_killed: false,
            cut_off: Vec::new(),
            silent: Vec::new(),
            places: Vec::new(),
            asked: BTreeMap::new(),
            waiting: Vec::new(),
        }
    }

    pub(super) fn note_place(&mut self) {
        let text = fs::read_to_string(self.directory.join(VOLUME_FILE)).expect("it is there");
        self.places.extend(text.lines().find(|line| line.starts_with("place = ")).map(str::to_owned));
        self.places.dedup();
    }

    /// Whether it answers hosts, or would if it were not paused.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { is_closing: false, .. })
    }

    pub(super) fn is_down(&self) -> bool {
        matches!(self.state, State::Down)
    }

    /// Whether hosts wait for an answer.
    pub(super) fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }
}

impl World {
    pub(super) fn tell(&mut self, line: impl Into<String>) {
        let line = format!("{:9.3} {}", self.now.0 as f64 / 1e9, line.into());
        self.trace.push(line);
    }

    fn fail(&mut self, what: String) {
        self.tell(&what);
        self.failure.get_or_insert(what);
    }

    pub(super) fn may_block(&self) -> bool {
        self.depth < DEPTH_MAX
    }

    fn next_event(&self) -> Option<Instant> {
        let wakeups =
            self.programs.iter().filter(|program| !program.is_paused).filter_map(|program| match &program.state {
                State::Up { drive, .. } => drive.next_wakeup().map(|at| at.max(self.now)),
                _ => None,
            });
        wakeups.chain((self.actions_left > 0).then_some(self.next_action_at)).min()
    }

    fn take_due_action(&mut self) -> bool {
        if self.actions_left == 0 || self.next_action_at > self.now {
            return false;
        }
        self.actions_left -= 1;
        let most = *self.prng.pick(&[100_000, 5_000_000, 700_000_000, 5_000_000_000_u64]).expect("there are some");
        self.next_action_at = self.now + Duration(self.prng.below(most));
        true
    }

    fn poll_all(&mut self) {
        let count = self.programs.len();
        let first = self.prng.below(count as u64) as usize;
        (0..count).for_each(|at| self.poll((at + first) % count));
    }

    fn poll(&mut self, at: usize) {
        let (now, mut ended, mut told) = (self.now, CompletionQueue::new(), Vec::new());
        let program = &mut self.programs[at];
        let State::Up { drive, opened, .. } = &mut program.state else { return };
        if program.is_paused {
            return;
        }
        let opened = *opened;
        shelf::as_program(at, || drive.poll(now, &mut ended));
        told.extend(std::iter::from_fn(|| drive.take_notice()).map(|notice| format!("{at}: {}", notice.text)));
        let is_closed = drive.is_closed();
        for line in told {
            self.seen.fenced += u64::from(line.contains("is not served any more"));
            self.seen.given_back += u64::from(line.contains("has been given back"));
            self.tell(line);
        }
        while let Some(completion) = ended.pop() {
            if let Err(what) = self.ended(at, opened, &completion) {
                self.fail(what);
            }
        }
        if is_closed {
            self.tell(format!("{at} has ended"));
            self.kill(at);
        }
    }

    /// A host has its answer.
    fn ended(&mut self, at: usize, opened: u64, completion: &Completion) -> Result<(), String> {
        let asked = self.programs[at].asked.remove(&completion.id).ok_or("a command ends twice")?;
        self.tell(format!("{at}: {} ends with {}", asked.shown(), completion.status));
        if !completion.status.is_success() {
            self.seen.refused_commands += 1;
            asked.is_lost(&mut self.history);
            return Ok(());
        }
        let others = self.served.iter().filter(|(owner, _)| *owner != at);
        if let Some((owner, _)) = others.clone().find(|(_, from)| (opened..asked.begun).contains(from)) {
            return Err(format!("{at} answers what it was asked after {owner} had the volume"));
        }
        if let State::Up { drive, .. } = &self.programs[at].state {
            self.last_members = active_members(drive);
        }
        let ended = self.history.tick();
        match (asked.value, &completion.outcome) {
            (Some(value), _) => {
                self.seen.writes += 1;
                asked.lbas().try_for_each(|lba| self.history.write_succeeds(lba, value, ended))?;
            }
            (None, Outcome::Data(Payload::Bytes(buffer))) => {
                self.seen.reads += 1;
                for (lba, block) in (asked.start..).zip(buffer.data.chunks(BLOCK_BYTES)) {
                    let value = version_of(lba, block).ok_or_else(|| format!("block {lba} holds what nobody wrote"))?;
                    self.history.read(lba, value, asked.begun, ended)?;
                }
            }
            // A flush.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn next_value(&mut self) -> u32 {
        self.last_value += 1;
        self.last_value
    }

    /// Hosts read every block that they use.
    pub(super) fn read_all(&mut self, at: usize) {
        (0..HOST_BLOCKS).step_by(4).for_each(|start| self.ask(at, start, 4, None));
    }

    /// A host writes a value, reads, or flushes (no blocks).
    pub(super) fn ask(&mut self, at: usize, start: u64, blocks: u64, value: Option<u32>) {
        let begun = self.history.tick();
        let operation = match value {
            Some(value) => {
                let data: Vec<u8> = (start..start + blocks).flat_map(|lba| contents(lba, value)).collect();
                (start..start + blocks).for_each(|lba| self.history.write_begins(lba, value, begun));
                let buffer = BlockBuffer { data: data.into(), metadata: Vec::new().into() };
                Operation::Write {
                    start: Lba(start),
                    blocks: Blocks(blocks),
                    payload: Payload::Bytes(Box::new(buffer)),
                }
            }
            None if blocks == 0 => Operation::Flush,
            None => Operation::Read { start: Lba(start), blocks: Blocks(blocks) },
        };
        self.last_command += 1;
        let id = CommandId(self.last_command);
        let command = Command { id, namespace: NamespaceId::FIRST, operation };
        let asked = Asked { begun, start, blocks, value };
        self.tell(format!("{at}: {}", asked.shown()));
        let program = &mut self.programs[at];
        program.asked.insert(id, asked);
        program.waiting.push(command);
        if !program.is_paused {
            self.hand_over(at);
        }
    }

    pub(super) fn wake(&mut self, at: usize) {
        self.programs[at].is_paused = false;
        self.hand_over(at);
    }

    /// A program takes what hosts have sent.
    pub(super) fn hand_over(&mut self, at: usize) {
        let (now, program) = (self.now, &mut self.programs[at]);
        let State::Up { drive, .. } = &mut program.state else { return };
        for command in program.waiting.drain(..) {
            shelf::as_program(at, || drive.submit(now, command)).expect("there are not so many");
        }
    }

    /// A program is stopped as its operator does.
    pub(super) fn stop(&mut self, at: usize) {
        let (now, program) = (self.now, &mut self.programs[at]);
        if let State::Up { drive, is_closing, .. } = &mut program.state
            && !*is_closing
        {
            *is_closing = true;
            program.waiting.clear();
            shelf::as_program(at, || drive.close(now));
            self.tell(format!("{at} is stopped"));
        }
    }

    /// A program ends, and what it had open is closed. One that mounts just now ends when it next looks.
    pub(super) fn kill(&mut self, at: usize) {
        let program = &mut self.programs[at];
        program.is_paused = false;
        program.waiting.clear();
        std::mem::take(&mut program.asked).values().for_each(|asked| asked.is_lost(&mut self.history));
        if let State::Busy = program.state {
            program.is_killed = true;
            shelf::set_killed(at, true);
            return;
        }
        let state = std::mem::replace(&mut program.state, State::Down);
        shelf::set_killed(at, true);
        shelf::as_program(at, || drop(state));
        shelf::set_killed(at, false);
    }

    pub(super) fn cut_off(&mut self, at: usize, drive: usize) {
        if !self.programs[at].cut_off.contains(&drive) {
            self.programs[at].cut_off.push(drive);
            shelf::set_cut_off(at, &self.drives[drive], true);
        }
    }

    /// The same of some drives, once the program has submitted so many commands.
    pub(super) fn cut_off_after(&mut self, at: usize, commands: u32, drives: &[usize]) {
        self.programs[at].cut_off.extend(drives);
        shelf::cut_off_after(at, commands, drives.iter().map(|drive| self.drives[*drive].clone()).collect());
    }

    /// Nothing arrives between a program and a drive.
    pub(super) fn silence(&mut self, at: usize, drive: usize) {
        if !self.programs[at].silent.contains(&drive) {
            self.programs[at].silent.push(drive);
            shelf::set_silent(at, &self.drives[drive], true);
        }
    }

    /// A program reaches all drives.
    pub(super) fn mend(&mut self, at: usize) {
        shelf::cut_off_no_more(at);
        for drive in std::mem::take(&mut self.programs[at].cut_off) {
            shelf::set_cut_off(at, &self.drives[drive], false);
        }
        for drive in std::mem::take(&mut self.programs[at].silent) {
            shelf::set_silent(at, &self.drives[drive], false);
        }
    }
}
