//! Drives in memory in the place of images, for scenarios: a thread that has put drives on its shelf opens these.
//!
//! Commands end at once. A run can be crashed at any of its steps, which are commands to drives and writings of `volume.toml`: from that
//! step on nothing has an effect, until [`revive`]. With [`add_wire`] commands to drives of servers take their time, and several programs, one of
//! which runs at a time, may be paused, killed and cut off from drives each for itself.

mod wire;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use zonda_initiator::{Claimed, Conflict, Holder};
use zonda_nvme::HostId;
use zonda_nvme::reservation::ReservationKey;
use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Geometry, Instant, NamespaceId, Operation, PayloadKind,
    Prng, QueueFull, Status, ZonedDevice,
};

use crate::{Access, Drive, DriveError, DriveFacts, Location};
use wire::{Sender, Wire};

thread_local! {
    static PROGRAM: Cell<usize> = const { Cell::new(0) };
    static SHELF: RefCell<Option<Shelf>> = const { RefCell::new(None) };
}

/// The drives of a thread.
#[derive(Default)]
struct Shelf {
    drives: BTreeMap<PathBuf, Kept>,
    /// Drives whose files are elsewhere.
    away: BTreeSet<PathBuf>,
    /// Directories in which no file can be written.
    full: BTreeSet<PathBuf>,
    steps: u64,
    uuids: u64,
    crash_at: Option<u64>,
    is_dead: bool,
    /// Programs that were killed, and what they had has not been dropped.
    killed: BTreeSet<usize>,
    /// Drives that programs cannot reach.
    cut_off: BTreeSet<(usize, PathBuf)>,
    /// Drives that programs cannot reach any more after so many commands to any of their drives.
    cut_off_after: BTreeMap<usize, (u32, Vec<PathBuf>)>,
    wire: Option<Wire>,
}

struct Kept {
    device: Rc<RefCell<ReferenceDevice>>,
    geometry: Geometry,
    is_open: bool,
    is_failing: bool,
    /// It has no space for anything.
    is_out_of_space: bool,
    /// It is behind a connection. Counts those that were lost.
    lost_connections: Option<u32>,
    /// Who has reserved it, of a drive of a server.
    holder: Option<Holder>,
    /// What it held when a copy of it was made.
    copy: Option<ReferenceDevice>,
}

impl Shelf {
    /// Counts a step. Says whether it has an effect.
    fn step(&mut self) -> bool {
        self.steps += 1;
        self.is_dead |= self.crash_at == Some(self.steps);
        !self.is_dead
    }

    /// A program submits a command to one of its drives: it may be the last one before it is cut off from some.
    fn count_command(&mut self, program: usize) {
        let Some((left, _)) = self.cut_off_after.get_mut(&program) else { return };
        *left = left.saturating_sub(1);
        if *left == 0 {
            let (_, paths) = self.cut_off_after.remove(&program).expect("it is there");
            self.cut_off.extend(paths.into_iter().map(|path| (program, path)));
        }
    }
}

fn with<T>(body: impl FnOnce(&mut Shelf) -> T) -> T {
    SHELF.with_borrow_mut(|shelf| body(shelf.as_mut().expect("the thread has a shelf")))
}

fn change(path: &Path, body: impl FnOnce(&mut Kept)) {
    with(|shelf| body(shelf.drives.get_mut(path).expect("it is on the shelf")));
}

/// The shape of small drives: tests that fill zones and run out of them take little time.
pub(crate) fn geometry(zone_count: u32) -> Geometry {
    Geometry {
        block_size_bytes: 512,
        metadata_bytes: 64,
        zone_size_blocks: Blocks(64),
        zone_capacity_blocks: Blocks(64),
        zone_count,
        max_active_zones: Some(8),
        max_open_zones: Some(8),
        max_transfer_blocks: Blocks(32),
        max_append_blocks: Blocks(32),
        ..Geometry::tiny()
    }
}

/// An empty shelf for this thread.
pub(crate) fn begin() {
    SHELF.set(Some(Shelf::default()));
}

/// Puts an empty drive on the shelf.
pub(crate) fn add(path: &Path, geometry: &Geometry) {
    let device = Rc::new(RefCell::new(ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes)));
    let kept = Kept {
        device,
        geometry: geometry.clone(),
        is_open: false,
        is_failing: false,
        is_out_of_space: false,
        lost_connections: None,
        holder: None,
        copy: None,
    };
    with(|shelf| shelf.drives.insert(path.to_owned(), kept));
}

/// The run crashes at this step from now on, counted from 1, or not.
pub(crate) fn crash_in(steps: Option<u64>) {
    with(|shelf| shelf.crash_at = steps.map(|steps| shelf.steps + steps));
}

/// Whether it has crashed.
pub(crate) fn is_dead() -> bool {
    with(|shelf| shelf.is_dead)
}

/// What comes now is another program; the crashed one is to be dropped before.
pub(crate) fn revive() {
    with(|shelf| {
        shelf.is_dead = false;
        shelf.crash_at = None;
    });
}

/// A drive's files are moved away, or back.
pub(crate) fn set_away(path: &Path, is_away: bool) {
    with(|shelf| if is_away { shelf.away.insert(path.to_owned()) } else { shelf.away.remove(path) });
}

/// Commands of a drive fail, or not.
pub(crate) fn set_failing(path: &Path, is_failing: bool) {
    change(path, |kept| kept.is_failing = is_failing);
}

/// The file system of a drive is full, or is not.
pub(crate) fn set_out_of_space(path: &Path, is_out_of_space: bool) {
    change(path, |kept| kept.is_out_of_space = is_out_of_space);
}

/// A drive is one of a server: it may be opened more than once, and its connections may be lost.
pub(crate) fn set_remote(path: &Path) {
    change(path, |kept| kept.lost_connections = Some(0));
}

/// Whether a drive is one of a server.
pub(crate) fn is_remote(path: &Path) -> bool {
    SHELF.with_borrow(|shelf| {
        let kept = shelf.as_ref().and_then(|shelf| shelf.drives.get(path));
        kept.is_some_and(|kept| kept.lost_connections.is_some())
    })
}

/// All connections to a drive are lost.
pub(crate) fn disconnect(path: &Path) {
    change(path, |kept| kept.lost_connections = kept.lost_connections.map(|lost| lost + 1));
}

/// A copy of what a drive holds is made.
pub(crate) fn copy(path: &Path) {
    change(path, |kept| kept.copy = Some(kept.device.borrow().clone()));
}

/// A drive holds what its copy holds, and the copy what it held.
pub(crate) fn swap_with_copy(path: &Path) {
    change(path, |kept| {
        let copy = kept.copy.as_mut().expect("it was copied");
        std::mem::swap(copy, &mut kept.device.borrow_mut());
    });
}

/// Commands to drives of servers take their time from now on. With `never_aborts` servers make a mistake: what a host that is preempted has
/// under way is done all the same.
pub(crate) fn add_wire(prng: Prng, never_aborts: bool) {
    with(|shelf| shelf.wire = Some(Wire::new(prng, never_aborts)));
}

/// What arrives at drives until now is done there.
pub(crate) fn advance(now: Instant) {
    with(|shelf| {
        if let Some(wire) = &mut shelf.wire {
            wire.advance(now, &mut shelf.drives);
        }
    });
}

/// Runs a part of a program.
pub(crate) fn as_program<T>(program: usize, body: impl FnOnce() -> T) -> T {
    let before = PROGRAM.replace(program);
    let result = body();
    PROGRAM.set(before);
    result
}

/// Nothing that a program does has an effect any more, or has again.
pub(crate) fn set_killed(program: usize, is_killed: bool) {
    with(|shelf| if is_killed { shelf.killed.insert(program) } else { shelf.killed.remove(&program) });
}

/// A program cannot reach a drive, or can again. Its connections to it are lost.
pub(crate) fn set_cut_off(program: usize, path: &Path, is_cut_off: bool) {
    let key = (program, path.to_owned());
    with(|shelf| if is_cut_off { shelf.cut_off.insert(key) } else { shelf.cut_off.remove(&key) });
}

/// A program cannot reach these drives any more after so many commands, until it can again.
pub(crate) fn cut_off_after(program: usize, commands: u32, paths: Vec<PathBuf>) {
    with(|shelf| shelf.cut_off_after.insert(program, (commands, paths)));
}

/// A program is cut off from no drive that it reaches now.
pub(crate) fn cut_off_no_more(program: usize) {
    with(|shelf| shelf.cut_off_after.remove(&program));
}

/// Between a program and a drive nothing arrives any more, and nobody is told; or all that was sent meanwhile does.
pub(crate) fn set_silent(program: usize, path: &Path, is_silent: bool) {
    with(|shelf| {
        let wire = shelf.wire.as_mut().expect("there is a wire");
        wire.set_silent(program, path, is_silent);
    });
}

/// Files cannot be written in a directory, or can.
pub(crate) fn set_full(path: &Path, is_full: bool) {
    with(|shelf| if is_full { shelf.full.insert(path.to_owned()) } else { shelf.full.remove(path) });
}

/// A UUID that a thread with a shelf makes: the next number.
pub(crate) fn uuid() -> Option<[u8; 16]> {
    SHELF.with_borrow_mut(|shelf| {
        let shelf = shelf.as_mut()?;
        shelf.uuids += 1;
        Some(u128::from(shelf.uuids).to_be_bytes())
    })
}

/// What becomes of a writing of `volume.toml`, where that is not to be done.
pub(crate) fn on_save(directory: &Path) -> Option<io::Result<()>> {
    SHELF.with_borrow_mut(|shelf| {
        let shelf = shelf.as_mut()?;
        if !shelf.step() || shelf.killed.contains(&PROGRAM.get()) {
            return Some(Ok(()));
        }
        shelf.full.contains(directory).then(|| Err(io::ErrorKind::StorageFull.into()))
    })
}

/// Another host takes the reservation of a drive over.
pub(crate) fn seize(path: &Path) {
    let holder = Holder { host: HostId([0xee; 16]), key: ReservationKey(1) };
    change(path, |kept| kept.holder = Some(holder));
}

/// The reservation of a drive is given to a host, or ends.
pub(crate) fn set_holder(path: &Path, holder: Option<Holder>) {
    change(path, |kept| kept.holder = holder);
}

/// Who has reserved a drive.
pub(crate) fn holder(path: &Path) -> Option<Holder> {
    with(|shelf| shelf.drives.get(path).and_then(|kept| kept.holder))
}

/// The drive that is in the place of an image; `None` where the thread has no shelf.
pub(crate) fn open(access: &Access) -> Option<Result<Box<dyn Drive>, DriveError>> {
    let Location::Image(path) = &access.location else { return None };
    let options = &access.options;
    SHELF.with_borrow_mut(|shelf| {
        let shelf = shelf.as_mut()?;
        let program = PROGRAM.get();
        let is_away = shelf.away.contains(path);
        let is_silent = shelf.wire.as_ref().is_some_and(|wire| wire.is_silent(program, path));
        if is_silent || shelf.killed.contains(&program) || shelf.cut_off.contains(&(program, path.clone())) {
            let what = format!("{} cannot be reached", path.display());
            return Some(Err(DriveError::new(what, "see whether its server runs")));
        }
        let Some(kept) = shelf.drives.get_mut(path).filter(|_| !is_away) else {
            return Some(Err(DriveError::new(format!("there is no image in {}", path.display()), "see where it is")));
        };
        if kept.is_open && kept.lost_connections.is_none() {
            let what = format!("the image in {} is in use by another program", path.display());
            return Some(Err(DriveError::in_use(what, "stop it")));
        }
        let host = options.host_id.unwrap_or(HostId([0xff; 16]));
        let held = kept.holder.filter(|holder| kept.lost_connections.is_some() && holder.host != host);
        if let Some(holder) = held.filter(|holder| !options.claim.is_some_and(|claim| claim.preempts.includes(holder)))
        {
            let what = format!("{} is reserved by {holder}", path.display());
            return Some(Err(DriveError::reserved(what, "stop it", holder)));
        }
        let mut claimed = None;
        if let (Some(mut claim), true) = (options.claim, kept.lost_connections.is_some()) {
            claim.outgrow(held.map(|holder| holder.key).into_iter());
            kept.holder = Some(Holder { host, key: claim.key });
            if let Some(wire) = shelf.wire.as_mut().filter(|_| held.is_some()) {
                wire.preempted(path);
            }
            claimed = Some(Claimed { key: claim.key, preempted: held });
        }
        kept.is_open = true;
        let connection = shelf.wire.as_mut().filter(|_| kept.lost_connections.is_some()).map(Wire::connect);
        if connection.is_none() {
            kept.device.borrow_mut().power_cycle();
        }
        let drive = ShelfDrive {
            path: path.clone(),
            device: Rc::clone(&kept.device),
            geometry: kept.geometry.clone(),
            completions: Vec::new(),
            program,
            connection,
            outstanding: BTreeSet::new(),
            has_lost: Cell::new(false),
            lost_connections: kept.lost_connections,
            host,
            claimed,
            is_refused: false,
            is_closed: false,
        };
        Some(Ok(Box::new(drive) as Box<dyn Drive>))
    })
}

/// A drive that is open.
struct ShelfDrive {
    path: PathBuf,
    device: Rc<RefCell<ReferenceDevice>>,
    geometry: Geometry,
    completions: Vec<Completion>,
    /// Whose it is.
    program: usize,
    /// Over the wire.
    connection: Option<u64>,
    /// Commands without an answer.
    outstanding: BTreeSet<CommandId>,
    /// It was cut off once.
    has_lost: Cell<bool>,
    /// When it was opened.
    lost_connections: Option<u32>,
    host: HostId,
    claimed: Option<Claimed>,
    /// A command was refused: another host has it.
    is_refused: bool,
    is_closed: bool,
}

impl ZonedDevice for ShelfDrive {
    fn geometry(&self, _namespace: NamespaceId) -> &Geometry {
        &self.geometry
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        assert!(!self.is_closed, "a drive that is closed takes no commands");
        if self.is_disconnected() {
            self.completions.push(Completion::of(command.id, Status::NamespaceNotReady));
            return Ok(());
        }
        if let Some(connection) = self.connection {
            let from = Sender { program: self.program, host: self.host, lost_connections: self.lost_connections };
            self.outstanding.insert(command.id);
            with(|shelf| {
                shelf.count_command(self.program);
                let wire = shelf.wire.as_mut().expect("there is a wire");
                wire.send(now, connection, &self.path, from, command);
            });
            return Ok(());
        }
        if holder(&self.path).is_some_and(|holder| holder.host != self.host) && self.is_remote() {
            self.is_refused = true;
            self.completions.push(Completion::of(command.id, Status::ReservationConflict));
            return Ok(());
        }
        let writes = matches!(command.operation, Operation::Write { .. } | Operation::Append { .. });
        let changes = !matches!(command.operation, Operation::Read { .. } | Operation::ReportZones { .. });
        let (has_effect, is_failing, is_out_of_space) = with(|shelf| {
            let Kept { is_failing, is_out_of_space, .. } = shelf.drives[&self.path];
            (if changes { shelf.step() } else { !shelf.is_dead }, is_failing, is_out_of_space && writes)
        });
        if has_effect {
            let completion = if is_failing {
                Completion::of(command.id, Status::InternalError)
            } else if is_out_of_space {
                Completion::of(command.id, Status::CapacityExceeded)
            } else {
                self.device.borrow_mut().execute(&command)
            };
            self.completions.push(completion);
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let is_lost = self.is_disconnected();
        if let Some(connection) = self.connection {
            advance(now);
            let take = |wire: &mut Wire| wire.take_answers(connection, self.program, &self.path);
            let answers = with(|shelf| shelf.wire.as_mut().map(take));
            for completion in answers.into_iter().flatten().filter(|_| !is_lost) {
                self.is_refused |= completion.status == Status::ReservationConflict;
                self.outstanding.remove(&completion.id);
                self.completions.push(completion);
            }
            if is_lost {
                let cut = std::mem::take(&mut self.outstanding).into_iter();
                self.completions.extend(cut.map(|id| Completion::of(id, Status::AbortedPowerLoss)));
            }
        }
        let ended = |completion: Completion| match completion.status {
            Status::Success if is_lost => Completion::of(completion.id, Status::AbortedPowerLoss),
            _ => completion,
        };
        self.completions.drain(..).for_each(|completion| completions.push(ended(completion)));
    }

    fn next_wakeup(&self) -> Option<Instant> {
        if !self.completions.is_empty() || (self.is_disconnected() && !self.outstanding.is_empty()) {
            return Some(Instant::ZERO);
        }
        let next = |wire: &Wire| wire.next_answer(self.connection?, self.program, &self.path);
        with(|shelf| shelf.wire.as_ref().and_then(next))
    }
}

impl Drive for ShelfDrive {
    fn facts(&self) -> DriveFacts {
        DriveFacts::default()
    }

    fn media_errors(&self) -> u64 {
        0
    }

    fn is_remote(&self) -> bool {
        self.lost_connections.is_some()
    }

    fn is_disconnected(&self) -> bool {
        let is_lost = with(|shelf| {
            let kept = shelf.drives.get(&self.path);
            kept.is_some_and(|kept| kept.lost_connections != self.lost_connections)
                || shelf.killed.contains(&self.program)
                || shelf.cut_off.contains(&(self.program, self.path.clone()))
        });
        self.has_lost.set(self.has_lost.get() | is_lost);
        self.has_lost.get()
    }

    fn claimed(&self) -> Option<Claimed> {
        // As the initiator has it: of the present connection.
        self.claimed.filter(|_| !self.is_disconnected())
    }

    fn conflict(&self) -> Option<Conflict> {
        self.is_refused.then(|| Conflict::answered(holder(&self.path)))
    }

    fn close(&mut self, _now: Instant) {
        self.is_closed = true;
        if !self.is_disconnected() && !is_dead() && holder(&self.path).is_some_and(|holder| holder.host == self.host) {
            change(&self.path, |kept| kept.holder = None);
        }
    }

    fn close_reserved(&mut self, _now: Instant) {
        self.is_closed = true;
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl Drop for ShelfDrive {
    fn drop(&mut self) {
        with(|shelf| {
            if let Some(kept) = shelf.drives.get_mut(&self.path) {
                kept.is_open = false;
            }
        });
    }
}
