//! The testbed: programs with directories of one volume, their simulated clock, and the results of
//! hosts.

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
use super::coverage::Coverage;
use super::history::History;
use super::plan::Plan;
use crate::volume::{TakeoverOptions, VOLUME_FILE, VolumeDrive, VolumeOpenOptions, VolumeState};
use crate::{Drive, DriveError, mock};

/// Blocks that hosts use.
pub(super) const HOST_BLOCKS: u64 = 24;
/// Polls at one time after which a program is considered to be spinning.
const POLLS_MAX: u32 = 20_000;
/// One program may mount while another does.
const DEPTH_MAX: u32 = 2;

/// The testbed, and the event loop in which programs wait while the others run.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) testbed: Rc<RefCell<Testbed>>,
    pub(super) ring: Rc<Ring>,
}

pub(super) struct Testbed {
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
    /// A program has taken these drives over and accepted the others as missing: all other programs
    /// reach them, since a server that reaches only the others cannot detect it.
    pub(super) protected: Option<(usize, Vec<usize>)>,
    /// The program from which they are taken over: it stays paused until the plan wakes it.
    pub(super) stays_paused: Option<usize>,
    /// The volume can be used with either of two disjoint sets of members.
    pub(super) has_halves: bool,
    /// The active members, as locations in `volume.toml`, at the last mount or completed command.
    pub(super) last_members: Vec<String>,
    /// The program that mounted the volume last.
    pub(super) last_owner: Option<usize>,
    /// The programs that became owners, and when.
    pub(super) served: Vec<(usize, u64)>,
    pub(super) coverage: Coverage,
    pub(super) trace: Vec<String>,
    pub(super) failure: Option<String>,
    pub(super) depth: u32,
    /// The clock of the ring is being advanced to that of the testbed.
    pub(super) is_syncing: bool,
}

/// A directory, and the program that uses it.
pub(super) struct Program {
    pub(super) directory: PathBuf,
    pub(super) state: State,
    pub(super) is_paused: bool,
    /// It was killed while it mounts or takes over.
    pub(super) is_killed: bool,
    /// Drives that it cannot reach.
    pub(super) cut_off: Vec<usize>,
    /// Drives to which its traffic is dropped silently.
    pub(super) silent: Vec<usize>,
    /// The values of `place` in its file, once it has mounted.
    pub(super) places: Vec<String>,
    asked: BTreeMap<CommandId, HostCommand>,
    /// Commands that hosts sent while it was paused.
    waiting: Vec<Command>,
}

pub(super) enum State {
    Down,
    /// It is mounting or taking over.
    Busy,
    Up {
        drive: Box<VolumeDrive>,
        opened: u64,
        is_closing: bool,
    },
}

/// A command of a host.
struct HostCommand {
    begun: u64,
    start: u64,
    blocks: u64,
    /// The value, for a write.
    value: Option<u32>,
}

impl HostCommand {
    fn lbas(&self) -> std::ops::Range<u64> {
        self.start..self.start + self.blocks
    }

    /// It has failed, or its result will never be known.
    fn fail(&self, history: &mut History) {
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
    /// Advances the time to `until`; later, if a program blocks meanwhile. Returns the time.
    pub(super) fn pass(&self, until: Instant) -> Instant {
        if self.testbed.borrow().is_syncing {
            return until;
        }
        let mut polls_at = (Instant::ZERO, 0);
        loop {
            let is_due = {
                let mut testbed = self.testbed.borrow_mut();
                let Some(next) = testbed.next_event().filter(|next| *next <= until && testbed.failure.is_none()) else {
                    testbed.now = testbed.now.max(until);
                    mock::advance(testbed.now);
                    return testbed.now;
                };
                testbed.now = testbed.now.max(next);
                mock::advance(testbed.now);
                polls_at = if polls_at.0 == testbed.now { (testbed.now, polls_at.1 + 1) } else { (testbed.now, 0) };
                if polls_at.1 > POLLS_MAX {
                    testbed.fail("a program does not quiesce".to_owned());
                }
                testbed.take_due_action()
            };
            if is_due {
                self.act();
            }
            self.testbed.borrow_mut().poll_all();
        }
    }

    /// Runs a blocking operation of a program. Returns its result, or `None` if the program was
    /// killed meanwhile.
    fn block<T>(&self, at: usize, body: impl FnOnce(&Ring) -> Result<T, DriveError>) -> Option<Result<T, DriveError>> {
        let now = {
            let mut testbed = self.testbed.borrow_mut();
            testbed.programs[at].state = State::Busy;
            testbed.depth += 1;
            testbed.is_syncing = true;
            testbed.now
        };
        self.ring.run_once(Some(now)).expect("time passes");
        self.testbed.borrow_mut().is_syncing = false;
        let result = mock::as_program(at, || body(&self.ring));
        let mut testbed = self.testbed.borrow_mut();
        testbed.now = testbed.now.max(self.ring.now());
        testbed.depth -= 1;
        testbed.programs[at].state = State::Down;
        if std::mem::take(&mut testbed.programs[at].is_killed) {
            testbed.log(format!("{at} was killed meanwhile"));
            testbed.coverage.kills_while_busy += 1;
            mock::as_program(at, || drop(result));
            mock::set_killed(at, false);
            return None;
        }
        Some(result)
    }

    /// A program mounts the volume, and becomes its only owner.
    pub(super) fn mount(&self, at: usize) -> Result<(), DriveError> {
        self.mount_with(at, &VolumeOpenOptions::default())
    }

    pub(super) fn mount_with(&self, at: usize, accepted: &VolumeOpenOptions) -> Result<(), DriveError> {
        let directory = self.testbed.borrow().programs[at].directory.clone();
        let Some(result) = self.block(at, |ring| VolumeDrive::open_with(&directory, accepted, ring)) else {
            return Ok(());
        };
        let testbed = &mut *self.testbed.borrow_mut();
        match result {
            Ok(drive) => {
                let opened = testbed.history.tick();
                testbed.served.push((at, opened));
                testbed.coverage.mounts += 1;
                let status = drive.report();
                testbed.coverage.degraded_mounts += u64::from(status.state == VolumeState::Degraded);
                testbed.log(format!("{at} has mounted: {}", status.state));
                testbed.programs[at].note_place();
                testbed.last_members = active_members(&drive);
                testbed.last_owner = Some(at);
                testbed.programs[at].state = State::Up { drive: Box::new(drive), opened, is_closing: false };
                Ok(())
            }
            Err(error) => {
                testbed.coverage.refused_mounts += 1;
                testbed.coverage.copies_refused += u64::from(is_about_missing(&error));
                testbed.log(format!("{at} does not mount: {}", error.message));
                Err(error)
            }
        }
    }

    pub(super) fn take_over(&self, at: usize, accepts_missing: bool) -> Result<(), DriveError> {
        self.take_over_with(at, TakeoverOptions { accepts_missing, ..TakeoverOptions::default() })
    }

    /// Releases the members that are reserved for a directory: no other program runs that could
    /// continue.
    pub(super) fn release(&self, at: usize) -> Result<(), DriveError> {
        self.take_over_with(at, TakeoverOptions { releases: true, ..TakeoverOptions::default() })
    }

    fn take_over_with(&self, at: usize, options: TakeoverOptions) -> Result<(), DriveError> {
        let directory = self.testbed.borrow().programs[at].directory.clone();
        let Some(result) = self.block(at, |ring| VolumeDrive::take_over(&directory, options, ring)) else {
            return Ok(());
        };
        let testbed = &mut *self.testbed.borrow_mut();
        match result {
            Ok(report) => {
                let is_whole = report.drives.iter().all(|drive| drive.error.is_none());
                if is_whole && !options.releases {
                    let now = testbed.history.tick();
                    testbed.served.push((at, now));
                }
                testbed.coverage.takeovers += 1;
                let what = if options.releases { "released the volume" } else { "taken over the volume" };
                testbed.log(format!("{at} has {what}{}", if is_whole { "" } else { ", in part" }));
                Ok(())
            }
            Err(error) => {
                testbed.coverage.refused_takeovers += 1;
                testbed.coverage.insufficient_takeovers += u64::from(is_insufficient(&error));
                testbed.log(format!("{at} fails to take over: {}", error.message));
                Err(error)
            }
        }
    }
}

/// Whether a mount is refused since members cannot be reached.
pub(super) fn is_about_missing(error: &DriveError) -> bool {
    error.message.contains("since it was last assembled from this directory")
}

/// Whether a takeover is refused because of a superblock.
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
        let text = fs::read_to_string(self.directory.join(VOLUME_FILE)).expect("it exists");
        self.places.extend(text.lines().find(|line| line.starts_with("place = ")).map(str::to_owned));
        self.places.dedup();
    }

    /// Whether it serves hosts, or would if it were not paused.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { is_closing: false, .. })
    }

    pub(super) fn is_down(&self) -> bool {
        matches!(self.state, State::Down)
    }

    /// Whether commands of hosts are outstanding.
    pub(super) fn has_outstanding(&self) -> bool {
        !self.asked.is_empty()
    }
}

impl Testbed {
    pub(super) fn log(&mut self, line: impl Into<String>) {
        let line = format!("{:9.3} {}", self.now.0 as f64 / 1e9, line.into());
        self.trace.push(line);
    }

    fn fail(&mut self, what: String) {
        self.log(&what);
        self.failure.get_or_insert(what);
    }

    pub(super) fn may_block(&self) -> bool {
        self.depth < DEPTH_MAX
    }

    fn next_event(&self) -> Option<Instant> {
        let wakeups =
            self.programs.iter().filter(|program| !program.is_paused).filter_map(|program| match &program.state {
                State::Up { drive, .. } => drive.next_timeout().map(|at| at.max(self.now)),
                _ => None,
            });
        wakeups.chain((self.actions_left > 0).then_some(self.next_action_at)).min()
    }

    fn take_due_action(&mut self) -> bool {
        if self.actions_left == 0 || self.next_action_at > self.now {
            return false;
        }
        self.actions_left -= 1;
        let most =
            *self.prng.pick(&[100_000, 5_000_000, 700_000_000, 5_000_000_000_u64]).expect("the list is not empty");
        self.next_action_at = self.now + Duration(self.prng.below(most));
        true
    }

    fn poll_all(&mut self) {
        let count = self.programs.len();
        let first = self.prng.below(count as u64) as usize;
        (0..count).for_each(|at| self.poll((at + first) % count));
    }

    fn poll(&mut self, at: usize) {
        let (now, mut ended, mut log) = (self.now, CompletionQueue::new(), Vec::new());
        let program = &mut self.programs[at];
        let State::Up { drive, opened, .. } = &mut program.state else { return };
        if program.is_paused {
            return;
        }
        let opened = *opened;
        mock::as_program(at, || drive.poll(now, &mut ended));
        drive.check_invariants();
        log.extend(std::iter::from_fn(|| drive.take_notice()).map(|notice| format!("{at}: {}", notice.text)));
        let is_closed = drive.is_closed();
        for line in log {
            self.coverage.fenced += u64::from(line.contains("is no longer served"));
            self.coverage.restored += u64::from(line.contains("its reservation is restored"));
            self.log(line);
        }
        while let Some(completion) = ended.pop() {
            if let Err(what) = self.ended(at, opened, &completion) {
                self.fail(what);
            }
        }
        if is_closed {
            self.log(format!("{at} has exited"));
            self.kill(at);
        }
    }

    /// A command of a host has completed.
    fn ended(&mut self, at: usize, opened: u64, completion: &Completion) -> Result<(), String> {
        let asked = self.programs[at].asked.remove(&completion.id).ok_or("a command completes twice")?;
        self.log(format!("{at}: {} ends with {}", asked.shown(), completion.status));
        if !completion.status.is_success() {
            self.coverage.refused_commands += 1;
            asked.fail(&mut self.history);
            return Ok(());
        }
        let others = self.served.iter().filter(|(owner, _)| *owner != at);
        if let Some((owner, _)) = others.clone().find(|(_, from)| (opened..asked.begun).contains(from)) {
            return Err(format!("{at} completes a command that was submitted after {owner} owned the volume"));
        }
        if let State::Up { drive, .. } = &self.programs[at].state {
            self.last_members = active_members(drive);
        }
        let ended = self.history.tick();
        match (asked.value, &completion.outcome) {
            (Some(value), _) => {
                self.coverage.writes += 1;
                asked.lbas().try_for_each(|lba| self.history.write_succeeds(lba, value, ended))?;
            }
            (None, Outcome::Data(Payload::Bytes(buffer))) => {
                self.coverage.reads += 1;
                for (lba, block) in (asked.start..).zip(buffer.data.chunks(BLOCK_BYTES)) {
                    let value = version_of(lba, block)
                        .ok_or_else(|| format!("block {lba} has contents that were never written"))?;
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

    /// Reads every block that hosts use.
    pub(super) fn read_all(&mut self, at: usize) {
        (0..HOST_BLOCKS).step_by(4).for_each(|start| self.ask(at, start, 4, None));
    }

    /// A host submits a write of a value, a read, or a flush (no blocks).
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
        let command = Command::new(id, NamespaceId::FIRST, operation);
        let asked = HostCommand { begun, start, blocks, value };
        self.log(format!("{at}: {}", asked.shown()));
        let program = &mut self.programs[at];
        program.asked.insert(id, asked);
        program.waiting.push(command);
        if !program.is_paused {
            self.deliver(at);
        }
    }

    pub(super) fn wake(&mut self, at: usize) {
        self.programs[at].is_paused = false;
        self.deliver(at);
    }

    /// Submits the commands that hosts have sent to a program.
    pub(super) fn deliver(&mut self, at: usize) {
        let (now, program) = (self.now, &mut self.programs[at]);
        let State::Up { drive, .. } = &mut program.state else { return };
        for command in program.waiting.drain(..) {
            mock::as_program(at, || drive.submit(now, command)).expect("there is a queue slot");
        }
    }

    /// Stops a program in an orderly way.
    pub(super) fn stop(&mut self, at: usize) {
        let (now, program) = (self.now, &mut self.programs[at]);
        if let State::Up { drive, is_closing, .. } = &mut program.state
            && !*is_closing
        {
            *is_closing = true;
            program.waiting.clear();
            mock::as_program(at, || drive.close(now));
            self.log(format!("{at} is stopped"));
        }
    }

    /// Kills a program, and closes its drives. One that is mounting is killed at its next step.
    pub(super) fn kill(&mut self, at: usize) {
        let program = &mut self.programs[at];
        program.is_paused = false;
        program.waiting.clear();
        std::mem::take(&mut program.asked).values().for_each(|asked| asked.fail(&mut self.history));
        if let State::Busy = program.state {
            program.is_killed = true;
            mock::set_killed(at, true);
            return;
        }
        let state = std::mem::replace(&mut program.state, State::Down);
        mock::set_killed(at, true);
        mock::as_program(at, || drop(state));
        mock::set_killed(at, false);
    }

    /// Whether a program must reach a drive.
    pub(super) fn is_protected(&self, at: Option<usize>, drive: usize) -> bool {
        self.protected.as_ref().is_some_and(|(owner, drives)| Some(*owner) != at && drives.contains(&drive))
    }

    /// A program is about to take these drives over from another one, which uses the volume with
    /// all its members. Returns whether that is so.
    pub(super) fn protect(&mut self, at: usize, from: usize, drives: &[usize]) -> bool {
        let State::Up { drive, is_closing: false, .. } = &self.programs[from].state else { return false };
        let report = drive.report();
        let is_active = |drive: &usize| {
            let at = format!("../{}", self.drives[*drive].file_name().expect("it has a name").display());
            report.members.iter().any(|member| member.at == at && member.state == "active")
        };
        let is_working = |drive: &usize| !self.failing.contains(drive);
        let is_paused = self.programs[from].is_paused;
        if self.protected.is_some() || !is_paused || !drives.iter().all(is_active) || !drives.iter().all(is_working) {
            return false;
        }
        for other in (0..self.programs.len()).filter(|other| *other != at) {
            self.reconnect(other);
        }
        // The network may have been partitioned since the plan began.
        self.reconnect(at);
        (0..self.drives.len()).filter(|drive| !drives.contains(drive)).for_each(|drive| self.cut_off(at, drive));
        self.protected = Some((at, drives.to_vec()));
        self.stays_paused = Some(from);
        self.coverage.partial_takeovers += 1;
        true
    }

    pub(super) fn cut_off(&mut self, at: usize, drive: usize) {
        if self.is_protected(Some(at), drive) {
            return;
        }
        if !self.programs[at].cut_off.contains(&drive) {
            self.programs[at].cut_off.push(drive);
            mock::set_cut_off(at, &self.drives[drive], true);
        }
    }

    /// Cuts a program off from some drives after this number of its commands.
    pub(super) fn cut_off_after(&mut self, at: usize, commands: u32, drives: &[usize]) {
        self.programs[at].cut_off.extend(drives);
        mock::cut_off_after(at, commands, drives.iter().map(|drive| self.drives[*drive].clone()).collect());
    }

    /// Drops all traffic between a program and a drive.
    pub(super) fn silence(&mut self, at: usize, drive: usize) {
        if self.is_protected(Some(at), drive) {
            return;
        }
        if !self.programs[at].silent.contains(&drive) {
            self.programs[at].silent.push(drive);
            mock::set_silent(at, &self.drives[drive], true);
        }
    }

    /// Makes all drives reachable for a program.
    pub(super) fn reconnect(&mut self, at: usize) {
        mock::cancel_cut_off(at);
        for drive in std::mem::take(&mut self.programs[at].cut_off) {
            mock::set_cut_off(at, &self.drives[drive], false);
        }
        for drive in std::mem::take(&mut self.programs[at].silent) {
            mock::set_silent(at, &self.drives[drive], false);
        }
    }
}
