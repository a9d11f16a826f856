//! Mock drives in memory in place of images, for scenarios: a thread that has added mock drives
//! opens these.
//!
//! Commands complete at once. A run can crash at any of its steps, which are commands to drives and
//! writes of `volume.toml`: from that step on nothing has an effect, until [`restart`]. With
//! [`add_wire`] commands to remote drives have latencies, and several programs, one of which runs
//! at a time, can be paused, killed and cut off from drives independently.

mod wire;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use zonda_initiator::{Claimed, Conflict, Holder};
use zonda_nvme::HostId;
use zonda_nvme::identify::NamespaceIdentity;
use zonda_nvme::reservation::ReservationKey;
use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Geometry, Instant, NamespaceId, Namespaces, Operation,
    PayloadKind, Prng, QueueFull, Status, ZonedDevice,
};

use crate::{Access, Drive, DriveError, DriveFacts, Location};
use wire::{Sender, Wire};

thread_local! {
    static PROGRAM: Cell<usize> = const { Cell::new(0) };
    static MOCKS: RefCell<Option<MockDrives>> = const { RefCell::new(None) };
}

/// The mock drives of a thread.
#[derive(Default)]
struct MockDrives {
    drives: BTreeMap<PathBuf, MockMedia>,
    /// Drives whose files are moved away.
    away: BTreeSet<PathBuf>,
    /// Directories in which no file can be written.
    full: BTreeSet<PathBuf>,
    steps: u64,
    uuids: u64,
    crash_at: Option<u64>,
    has_crashed: bool,
    /// Programs that were killed, and whose state is not dropped yet.
    killed: BTreeSet<usize>,
    /// Drives that programs cannot reach.
    cut_off: BTreeSet<(usize, PathBuf)>,
    /// Drives that programs cannot reach after this number of commands to any of their drives.
    cut_off_after: BTreeMap<usize, (u32, Vec<PathBuf>)>,
    wire: Option<Wire>,
}

struct MockMedia {
    device: Rc<RefCell<ReferenceDevice>>,
    geometry: Geometry,
    is_open: bool,
    is_failing: bool,
    /// Commands that have changed it, without a wire.
    changes: u64,
    /// Its file system is full.
    is_out_of_space: bool,
    /// For a drive that can vanish: the number of connections that were lost, or how often it was
    /// unplugged.
    lost_connections: Option<u32>,
    /// Whether it is a drive of this machine, which is opened exclusively.
    is_device: bool,
    identity: Option<NamespaceIdentity>,
    /// For a remote drive: the reservation holder.
    holder: Option<Holder>,
    /// A copy of its contents.
    copy: Option<ReferenceDevice>,
}

impl MockMedia {
    fn is_remote(&self) -> bool {
        self.lost_connections.is_some() && !self.is_device
    }
}

impl MockDrives {
    /// Counts a step. Returns whether it has an effect.
    fn step(&mut self) -> bool {
        self.steps += 1;
        self.has_crashed |= self.crash_at == Some(self.steps);
        !self.has_crashed
    }

    /// A program submits a command to one of its drives, which may be the last one before it is cut
    /// off.
    fn count_command(&mut self, program: usize) {
        let Some((left, _)) = self.cut_off_after.get_mut(&program) else { return };
        *left = left.saturating_sub(1);
        if *left == 0 {
            let (_, paths) = self.cut_off_after.remove(&program).expect("it exists");
            self.cut_off.extend(paths.into_iter().map(|path| (program, path)));
        }
    }
}

fn with<T>(body: impl FnOnce(&mut MockDrives) -> T) -> T {
    MOCKS.with_borrow_mut(|mocks| body(mocks.as_mut().expect("the thread has mock drives")))
}

fn change(path: &Path, body: impl FnOnce(&mut MockMedia)) {
    with(|mocks| body(mocks.drives.get_mut(path).expect("the drive was added")));
}

/// The geometry of small drives, so that tests can fill all zones quickly.
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

/// Begins a run of this thread without drives.
pub(crate) fn begin() {
    MOCKS.set(Some(MockDrives::default()));
}

/// Adds an empty drive.
pub(crate) fn add(path: &Path, geometry: &Geometry) {
    let device = Rc::new(RefCell::new(ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes)));
    let media = MockMedia {
        device,
        geometry: geometry.clone(),
        is_open: false,
        is_failing: false,
        changes: 0,
        is_out_of_space: false,
        lost_connections: None,
        is_device: false,
        identity: None,
        holder: None,
        copy: None,
    };
    with(|mocks| mocks.drives.insert(path.to_owned(), media));
}

/// The run crashes at this step, counted from 1 from now on; `None`: it does not crash.
pub(crate) fn crash_in(steps: Option<u64>) {
    with(|mocks| mocks.crash_at = steps.map(|steps| mocks.steps + steps));
}

/// Whether the run has crashed.
pub(crate) fn has_crashed() -> bool {
    with(|mocks| mocks.has_crashed)
}

/// Begins another program; the crashed one must have been dropped.
pub(crate) fn restart() {
    with(|mocks| {
        mocks.has_crashed = false;
        mocks.crash_at = None;
    });
}

/// Moves the files of a drive away, or back.
pub(crate) fn set_away(path: &Path, is_away: bool) {
    with(|mocks| if is_away { mocks.away.insert(path.to_owned()) } else { mocks.away.remove(path) });
}

/// Makes the commands of a drive fail, or not.
pub(crate) fn set_failing(path: &Path, is_failing: bool) {
    change(path, |media| media.is_failing = is_failing);
}

/// Makes the file system of a drive full, or not.
pub(crate) fn set_out_of_space(path: &Path, is_out_of_space: bool) {
    change(path, |media| media.is_out_of_space = is_out_of_space);
}

/// Makes a drive remote: it can be opened more than once, and its connections can be lost.
pub(crate) fn set_remote(path: &Path) {
    change(path, |media| media.lost_connections = Some(0));
}

/// Makes a drive one of this machine, with this NGUID: it can be unplugged.
pub(crate) fn set_device(path: &Path, nguid: [u8; 16]) {
    change(path, |media| {
        media.is_device = true;
        media.lost_connections.get_or_insert(0);
        media.identity = Some(NamespaceIdentity { nguid: Some(nguid), ..NamespaceIdentity::default() });
    });
}

/// Changes the number of zones that a drive reports; its device keeps all.
pub(crate) fn resize(path: &Path, zone_count: u32) {
    change(path, |media| media.geometry.zone_count = zone_count);
}

/// Whether a drive is remote.
pub(crate) fn is_remote(path: &Path) -> bool {
    MOCKS.with_borrow(|mocks| {
        let media = mocks.as_ref().and_then(|mocks| mocks.drives.get(path));
        media.is_some_and(MockMedia::is_remote)
    })
}

/// Whether a drive can disappear without failing.
pub(crate) fn can_vanish(path: &Path) -> bool {
    MOCKS.with_borrow(|mocks| {
        let media = mocks.as_ref().and_then(|mocks| mocks.drives.get(path));
        media.is_some_and(|media| media.lost_connections.is_some())
    })
}

/// Drops all connections to a drive, or unplugs it for a moment.
pub(crate) fn disconnect(path: &Path) {
    change(path, |media| media.lost_connections = media.lost_connections.map(|lost| lost + 1));
}

/// Makes a copy of the contents of a drive.
pub(crate) fn copy(path: &Path) {
    change(path, |media| media.copy = Some(media.device.borrow().clone()));
}

/// Swaps the contents of a drive with its copy.
pub(crate) fn swap_with_copy(path: &Path) {
    change(path, |media| {
        let copy = media.copy.as_mut().expect("it was copied");
        std::mem::swap(copy, &mut media.device.borrow_mut());
    });
}

/// The number of commands that have changed a drive, or flushed it.
pub(crate) fn changes(path: &Path) -> u64 {
    with(|mocks| mocks.drives[path].changes)
}

/// Adds latencies to the commands of remote drives. With `never_aborts` servers have a bug: the
/// outstanding commands of a preempted host are still executed.
pub(crate) fn add_wire(prng: Prng, never_aborts: bool) {
    with(|mocks| mocks.wire = Some(Wire::new(prng, never_aborts)));
}

/// Executes the commands that have arrived at drives by `now`.
pub(crate) fn advance(now: Instant) {
    with(|mocks| {
        if let Some(wire) = &mut mocks.wire {
            wire.advance(now, &mut mocks.drives);
        }
    });
}

/// Runs `body` as a program.
pub(crate) fn as_program<T>(program: usize, body: impl FnOnce() -> T) -> T {
    let before = PROGRAM.replace(program);
    let result = body();
    PROGRAM.set(before);
    result
}

/// Kills a program: its actions have no effect any more; or undoes that.
pub(crate) fn set_killed(program: usize, is_killed: bool) {
    with(|mocks| if is_killed { mocks.killed.insert(program) } else { mocks.killed.remove(&program) });
}

/// Cuts a program off from a drive, with loss of its connections, or undoes that.
pub(crate) fn set_cut_off(program: usize, path: &Path, is_cut_off: bool) {
    let key = (program, path.to_owned());
    with(|mocks| if is_cut_off { mocks.cut_off.insert(key) } else { mocks.cut_off.remove(&key) });
}

/// Cuts a program off from these drives after this number of commands.
pub(crate) fn cut_off_after(program: usize, commands: u32, paths: Vec<PathBuf>) {
    with(|mocks| mocks.cut_off_after.insert(program, (commands, paths)));
}

/// Cancels [`cut_off_after`].
pub(crate) fn cancel_cut_off(program: usize) {
    with(|mocks| mocks.cut_off_after.remove(&program));
}

/// Drops all traffic between a program and a drive silently; or delivers what was sent meanwhile.
pub(crate) fn set_silent(program: usize, path: &Path, is_silent: bool) {
    with(|mocks| {
        let wire = mocks.wire.as_mut().expect("there is a wire");
        wire.set_silent(program, path, is_silent);
    });
}

/// Makes writing files in a directory fail, or not.
pub(crate) fn set_full(path: &Path, is_full: bool) {
    with(|mocks| if is_full { mocks.full.insert(path.to_owned()) } else { mocks.full.remove(path) });
}

/// The next UUID of a thread with mock drives: a counter.
pub(crate) fn uuid() -> Option<[u8; 16]> {
    MOCKS.with_borrow_mut(|mocks| {
        let mocks = mocks.as_mut()?;
        mocks.uuids += 1;
        Some(u128::from(mocks.uuids).to_be_bytes())
    })
}

/// The result of writing `volume.toml`, if it is not to be written.
pub(crate) fn on_save(directory: &Path) -> Option<io::Result<()>> {
    MOCKS.with_borrow_mut(|mocks| {
        let mocks = mocks.as_mut()?;
        if !mocks.step() || mocks.killed.contains(&PROGRAM.get()) {
            return Some(Ok(()));
        }
        mocks.full.contains(directory).then(|| Err(io::ErrorKind::StorageFull.into()))
    })
}

/// Another host preempts the reservation of a drive.
pub(crate) fn seize(path: &Path) {
    let holder = Holder { host: HostId([0xee; 16]), key: ReservationKey(1) };
    change(path, |media| media.holder = Some(holder));
}

/// Sets the reservation holder of a drive.
pub(crate) fn set_holder(path: &Path, holder: Option<Holder>) {
    change(path, |media| media.holder = holder);
}

/// The reservation holder of a drive.
pub(crate) fn holder(path: &Path) -> Option<Holder> {
    with(|mocks| mocks.drives.get(path).and_then(|media| media.holder))
}

/// Opens the mock drive in place of an image; `None` if the thread has no mock drives.
pub(crate) fn open(access: &Access) -> Option<Result<Box<dyn Drive>, DriveError>> {
    let Location::Image(path) = &access.location else { return None };
    let options = &access.options;
    MOCKS.with_borrow_mut(|mocks| {
        let mocks = mocks.as_mut()?;
        let program = PROGRAM.get();
        let is_away = mocks.away.contains(path);
        let is_silent = mocks.wire.as_ref().is_some_and(|wire| wire.is_silent(program, path));
        if is_silent || mocks.killed.contains(&program) || mocks.cut_off.contains(&(program, path.clone())) {
            let what = format!("{} cannot be reached", path.display());
            return Some(Err(DriveError::new(what, "check that its server runs")));
        }
        let Some(media) = mocks.drives.get_mut(path).filter(|_| !is_away) else {
            return Some(Err(DriveError::new(format!("there is no image in {}", path.display()), "check where it is")));
        };
        if media.is_open && !media.is_remote() {
            let what = format!("the image in {} is in use by another program", path.display());
            return Some(Err(DriveError::in_use(what, "stop it")));
        }
        let host = options.host_id.unwrap_or(HostId([0xff; 16]));
        let held = media.holder.filter(|holder| media.is_remote() && holder.host != host);
        if let Some(holder) = held.filter(|holder| !options.claim.is_some_and(|claim| claim.preempts.includes(holder)))
        {
            let what = format!("{} is reserved by {holder}", path.display());
            return Some(Err(DriveError::reserved(what, "stop it", holder)));
        }
        let mut claimed = None;
        if let (Some(mut claim), true) = (options.claim, media.is_remote()) {
            claim.outgrow(held.map(|holder| holder.key).into_iter());
            media.holder = Some(Holder { host, key: claim.key });
            if let Some(wire) = mocks.wire.as_mut().filter(|_| held.is_some()) {
                wire.preempted(path);
            }
            claimed = Some(Claimed { key: claim.key, preempted: held });
        }
        media.is_open = true;
        let connection = mocks.wire.as_mut().filter(|_| media.is_remote()).map(Wire::connect);
        if connection.is_none() {
            media.device.borrow_mut().power_cycle();
        }
        let drive = MockDrive {
            path: path.clone(),
            device: Rc::clone(&media.device),
            namespaces: Namespaces::single(media.geometry.clone()),
            completions: Vec::new(),
            program,
            connection,
            outstanding: BTreeSet::new(),
            has_lost: Cell::new(false),
            lost_connections: media.lost_connections,
            is_device: media.is_device,
            identity: media.identity,
            is_submitting: false,
            is_released: false,
            host,
            claimed,
            is_refused: false,
            is_closed: false,
        };
        Some(Ok(Box::new(drive) as Box<dyn Drive>))
    })
}

/// An open mock drive.
struct MockDrive {
    path: PathBuf,
    device: Rc<RefCell<ReferenceDevice>>,
    namespaces: Namespaces,
    completions: Vec<Completion>,
    /// The program that has opened it.
    program: usize,
    /// The connection of the wire, if there is one.
    connection: Option<u64>,
    /// Outstanding commands.
    outstanding: BTreeSet<CommandId>,
    /// The connection was lost once.
    has_lost: Cell<bool>,
    /// The number of lost connections when it was opened.
    lost_connections: Option<u32>,
    is_device: bool,
    identity: Option<NamespaceIdentity>,
    is_submitting: bool,
    /// It was unplugged, and can be opened again.
    is_released: bool,
    host: HostId,
    claimed: Option<Claimed>,
    /// A command has failed with Reservation Conflict.
    is_refused: bool,
    is_closed: bool,
}

impl ZonedDevice for MockDrive {
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        assert!(!self.is_closed, "a drive that is closed takes no commands");
        self.is_submitting = true;
        let is_lost = self.is_disconnected();
        self.is_submitting = false;
        if is_lost {
            let status = if self.is_device { Status::InternalError } else { Status::NamespaceNotReady };
            self.completions.push(Completion::of(command.id, status));
            return Ok(());
        }
        if let Some(connection) = self.connection {
            let from = Sender { program: self.program, host: self.host, lost_connections: self.lost_connections };
            self.outstanding.insert(command.id);
            with(|mocks| {
                mocks.count_command(self.program);
                let wire = mocks.wire.as_mut().expect("there is a wire");
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
        let (has_effect, is_failing, is_out_of_space) = with(|mocks| {
            let MockMedia { is_failing, is_out_of_space, .. } = mocks.drives[&self.path];
            (if changes { mocks.step() } else { !mocks.has_crashed }, is_failing, is_out_of_space && writes)
        });
        if has_effect {
            change(&self.path, |media| media.changes += u64::from(changes));
            let completion = if is_failing {
                Completion::of(command.id, Status::InternalError)
            } else if is_out_of_space {
                Completion::of(command.id, Status::CapacityExceeded)
            } else {
                self.device.borrow_mut().execute(&command)
            };
            self.completions.push(completion);
        }
        if self.is_remote() {
            with(|mocks| mocks.count_command(self.program));
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        if let Some(geometry) = with(|mocks| mocks.drives.get(&self.path).map(|media| media.geometry.clone())) {
            self.namespaces.resize(NamespaceId::FIRST, geometry);
        }
        let is_lost = self.is_disconnected();
        if is_lost && self.is_device && !self.is_released {
            self.is_released = true;
            change(&self.path, |media| media.is_open = false);
        }
        if let Some(connection) = self.connection {
            advance(now);
            let take = |wire: &mut Wire| wire.take_answers(connection, self.program, &self.path);
            let answers = with(|mocks| mocks.wire.as_mut().map(take));
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
            Status::Success if is_lost && self.is_device => Completion::of(completion.id, Status::InternalError),
            Status::Success if is_lost => Completion::of(completion.id, Status::AbortedPowerLoss),
            _ => completion,
        };
        self.completions.drain(..).for_each(|completion| completions.push(ended(completion)));
    }

    fn next_timeout(&self) -> Option<Instant> {
        if !self.completions.is_empty() || (self.is_disconnected() && !self.outstanding.is_empty()) {
            return Some(Instant::ZERO);
        }
        let next = |wire: &Wire| wire.next_answer(self.connection?, self.program, &self.path);
        with(|mocks| mocks.wire.as_ref().and_then(next))
    }
}

impl Drive for MockDrive {
    fn facts(&self) -> DriveFacts {
        DriveFacts::default()
    }

    fn media_errors(&self) -> u64 {
        0
    }

    fn is_remote(&self) -> bool {
        self.lost_connections.is_some() && !self.is_device
    }

    fn can_vanish(&self) -> bool {
        self.lost_connections.is_some()
    }

    fn identity(&self) -> Option<&NamespaceIdentity> {
        self.identity.as_ref()
    }

    fn is_disconnected(&self) -> bool {
        let is_lost = with(|mocks| {
            let media = mocks.drives.get(&self.path);
            media.is_some_and(|media| media.lost_connections != self.lost_connections)
                || mocks.killed.contains(&self.program)
                || mocks.cut_off.contains(&(self.program, self.path.clone()))
        });
        // Programs notice by a failed command that a drive of this machine is missing.
        self.has_lost.set(self.has_lost.get() | (is_lost && (!self.is_device || self.is_submitting)));
        self.has_lost.get()
    }

    fn claimed(&self) -> Option<Claimed> {
        // As for the initiator: of the present connection.
        self.claimed.filter(|_| !self.is_disconnected())
    }

    fn conflict(&self) -> Option<Conflict> {
        self.is_refused.then(|| Conflict::answered(holder(&self.path)))
    }

    fn close(&mut self, _now: Instant) {
        self.is_closed = true;
        if !self.is_disconnected()
            && !has_crashed()
            && holder(&self.path).is_some_and(|holder| holder.host == self.host)
        {
            change(&self.path, |media| media.holder = None);
        }
    }

    fn close_reserved(&mut self, _now: Instant) {
        self.is_closed = true;
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl Drop for MockDrive {
    fn drop(&mut self) {
        with(|mocks| {
            if let Some(media) = mocks.drives.get_mut(&self.path).filter(|_| !self.is_released) {
                media.is_open = false;
            }
        });
    }
}
