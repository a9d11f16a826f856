//! [`PoolDrive`]: opens a pool, and hands out its namespaces.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use zonda_elastic::{ElasticDevice, Goal, Pool, PoolEvent, StartError};
use zonda_initiator::Holder;
use zonda_ring::Ring;
use zonda_zoned::{CompletionQueue, Duration, Geometry, NamespaceId, PayloadKind, ZonedDevice};

use super::base::{PoolBase, PoolOpenOptions, SchedulerOfDrive};
use super::directory::PoolDirectory;
use super::namespace::PoolNamespace;
use super::report::PoolReport;
use super::shared::{OpenPool, PoolOnDrive};
use super::zones::PoolZone;
use crate::opening::OnRing;
use crate::volume::member_device::{MemberDevice, release};
use crate::{Access, DriveError, random};

/// Timeout of closing a pool or its drive.
const CLOSE_MAX: Duration = Duration(60_000_000_000);

/// An open pool: the namespaces of many tenants on one zoned drive.
///
/// Clones are the same pool. It is closed with the last of its namespaces, or with
/// [`close`](PoolDrive::close).
#[derive(Clone)]
pub struct PoolDrive {
    pub(super) open: Rc<RefCell<OpenPool>>,
}

impl PoolDrive {
    /// Opens the pool in a directory: mounts it from its drive. Blocks until that is done.
    ///
    /// # Errors
    /// When there is no pool, it or its drive is in use, or the drive cannot be used; with the
    /// remedy.
    pub fn open(path: &Path, ring: &Ring) -> Result<PoolDrive, DriveError> {
        PoolDrive::open_with(path, &PoolOpenOptions::default(), ring)
    }

    /// The same, with a scheduler before the drive, or the latencies of its profile.
    ///
    /// # Errors
    /// As of [`open`](PoolDrive::open), and if the drive cannot have these latencies.
    pub fn open_with(path: &Path, options: &PoolOpenOptions, ring: &Ring) -> Result<PoolDrive, DriveError> {
        PoolDrive::open_scheduled(path, options, &mut |_, _| Ok(options.scheduler.clone()), ring)
    }

    /// The same, with a scheduler that is chosen for the drive in place of that of the options.
    ///
    /// # Errors
    /// As of [`open_with`](PoolDrive::open_with), and those of `scheduler`. Nothing is written then.
    pub fn open_scheduled(
        path: &Path,
        options: &PoolOpenOptions,
        scheduler: &mut SchedulerOfDrive<'_>,
        ring: &Ring,
    ) -> Result<PoolDrive, DriveError> {
        let mut directory = PoolDirectory::open(path)?;
        let (drive, scheduler) = PoolBase::open(&mut directory, options, scheduler, ring)?;
        let goal = Goal::Mount { id: Some(directory.id()), epoch_min: directory.epoch() };
        let mut device = ElasticDevice::new(drive, goal, PayloadKind::Bytes);
        match started(&mut device, ring).map_err(|error| not_mounted(&error, &directory)) {
            Ok(is_recorded) => {
                let pool = PoolDrive::of(device, directory, is_recorded, ring)?;
                pool.open.borrow_mut().options = PoolOpenOptions { scheduler, ..options.clone() };
                Ok(pool)
            }
            Err(error) => {
                release(vec![device.into_drive().into_member()], ring);
                Err(error)
            }
        }
    }

    /// A pool that was started. The epoch of a pool that can be written is saved: an old copy of its
    /// drive is refused from now on.
    pub(super) fn of(
        device: PoolOnDrive,
        mut directory: PoolDirectory,
        is_recorded: bool,
        ring: &Ring,
    ) -> Result<PoolDrive, DriveError> {
        let epoch = device.pool().expect("it was started").epoch();
        let saved = if is_recorded { directory.save_epoch(epoch) } else { Ok(()) };
        let mut open = OpenPool::new(device, directory);
        if !is_recorded {
            open.warnings.push_back(
                "nothing can be written to the log of the pool: its namespaces can be read, and writes that need a new \
                 stripe group fail"
                    .to_owned(),
            );
        }
        open.reconnect.on_ring = Some(OnRing::of(ring));
        let pool = PoolDrive { open: Rc::new(RefCell::new(open)) };
        match saved {
            Ok(()) => Ok(pool),
            Err(error) => {
                // The error of the file is reported.
                let _ = pool.close(ring);
                Err(error)
            }
        }
    }

    /// The directory of the pool.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.open.borrow().directory.path().to_owned()
    }

    /// How it was opened.
    #[must_use]
    pub fn options(&self) -> PoolOpenOptions {
        self.open.borrow().options.clone()
    }

    /// The state of the pool.
    #[must_use]
    pub fn report(&self) -> PoolReport {
        self.open.borrow().report()
    }

    /// The zones of its drive, in order.
    #[must_use]
    pub fn zones(&self) -> Vec<PoolZone> {
        self.open.borrow().zones()
    }

    /// The geometry of its drive.
    #[must_use]
    pub fn drive_geometry(&self) -> Geometry {
        self.open.borrow().drive_geometry().clone()
    }

    /// Whether it accepts commands: it is not closed, and not being closed.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.borrow().is_open()
    }

    /// The namespace of this name, as a drive. It can be used once at a time.
    ///
    /// # Errors
    /// When there is no such namespace, it is in use, its saved reservations are lost or damaged, or the
    /// pool is being closed.
    pub fn namespace(&self, name: &str) -> Result<PoolNamespace, DriveError> {
        let open = self.open.borrow();
        if !open.is_open() {
            return Err(open.closing_error());
        }
        let namespace = open.find(name)?;
        if open.is_used(namespace) {
            let path = open.directory.path().display();
            return Err(DriveError::in_use(
                format!("the namespace \"{name}\" of the pool in {path} is in use already"),
                "export each namespace of a pool once",
            ));
        }
        drop(open);
        PoolNamespace::new(&self.open, namespace)
    }

    /// The next warning of the drive for the log.
    #[must_use]
    pub fn take_warning(&self) -> Option<String> {
        self.open.borrow_mut().take_warning()
    }

    /// Whether a namespace is in use.
    #[must_use]
    pub fn has_users(&self) -> bool {
        self.open.borrow().has_users()
    }

    /// Closes the pool, of which no namespace is in use. Blocks until that is done.
    ///
    /// # Errors
    /// When that times out, or the drive could not be flushed. Acknowledged writes are not lost: the
    /// pool is recovered when it is next opened.
    pub fn close(self, ring: &Ring) -> Result<(), DriveError> {
        const RECOVERS: &str = "the pool is recovered when it is next opened";
        let until = ring.now() + CLOSE_MAX;
        self.open.borrow_mut().close(ring.now());
        loop {
            let mut open = self.open.borrow_mut();
            open.poll(ring.now());
            if open.is_closed() {
                let error = open.close_error();
                return error.map_or(Ok(()), |error| Err(DriveError::new(error, RECOVERS)));
            }
            if ring.now() >= until {
                return Err(DriveError::new("closing the pool timed out", RECOVERS));
            }
            let next = open.next_timeout().map_or(until, |at| at.min(until));
            drop(open);
            ring.run_once(Some(next)).map_err(|error| loop_failed(&error))?;
        }
    }
}

impl OpenPool {
    /// The namespace of this name.
    pub(super) fn find(&self, name: &str) -> Result<NamespaceId, DriveError> {
        let pool = self.pool();
        let is_named = |id: &NamespaceId| pool.namespace_config(*id).is_some_and(|config| config.name == name);
        let found = pool.namespaces().iter().map(|(id, _)| id).find(is_named);
        found.ok_or_else(|| no_namespace(self.directory.path(), name, &self.report()))
    }
}

/// The error for a namespace that a pool does not have.
fn no_namespace(path: &Path, name: &str, report: &PoolReport) -> DriveError {
    let shown = path.display();
    let names: Vec<String> = report.namespaces.iter().map(|namespace| format!("\"{}\"", namespace.name)).collect();
    let help = if names.is_empty() {
        format!("create it: zonda namespace create {shown} {name} --size SIZE --active N")
    } else {
        format!("the pool has {}; zonda namespace create {shown} {name} creates another one", names.join(", "))
    };
    DriveError::missing(format!("the pool in {shown} has no namespace \"{name}\""), help)
}

/// Opens the drive of a pool with `open`, and reserves it if it is a namespace of a server.
pub(super) fn open_reserved(
    directory: &mut PoolDirectory,
    access: &Access,
    open: impl FnOnce(&Access) -> Result<MemberDevice, DriveError>,
    ring: &Ring,
) -> Result<MemberDevice, DriveError> {
    let device = open(access).map_err(|error| of_pool(error, directory))?;
    let mut device = reserved(directory, device, ring)?;
    if directory.stays_reserved() {
        device.stay_reserved();
    }
    Ok(device)
}

/// Notes the reservation of the drive of a pool, which must be reserved if it is a namespace of a
/// server.
pub(super) fn reserved(
    directory: &mut PoolDirectory,
    device: MemberDevice,
    ring: &Ring,
) -> Result<MemberDevice, DriveError> {
    if !device.is_remote() {
        return Ok(device);
    }
    let Some(claimed) = device.drive.claimed() else {
        release(vec![device], ring);
        return Err(DriveError::new(
            format!("{} cannot be reserved: its server does not support reservations", directory.shown_drive()),
            "use a drive of a server that supports reservations, such as zonda serve, or an image on this machine: \
             otherwise two servers could write to the pool",
        ));
    };
    directory.note_claimed(&claimed);
    Ok(device)
}

/// The error for the drive of a pool: the remedy must not be to create a new drive.
pub(super) fn of_pool(error: DriveError, directory: &PoolDirectory) -> DriveError {
    let shown = directory.path().display();
    if let Some(holder) = error.holder {
        return reserved_by(directory, holder);
    }
    if !error.is_missing || directory.epoch() == 0 {
        return error;
    }
    let help = format!("restore the drive; if it was moved, correct its path in {shown}/{}", super::POOL_FILE);
    DriveError { help, ..error }
}

/// The error for a drive that another host has reserved.
pub(super) fn reserved_by(directory: &PoolDirectory, holder: Holder) -> DriveError {
    let message =
        format!("the drive {} of the pool is reserved by {}", directory.shown_drive(), directory.shown(&holder));
    let help = if directory.is_new() {
        "stop the program that has reserved the drive; a server that was killed leaves its reservation: take its pool or \
         volume over with zonda pool takeover or zonda volume takeover, in the directory of that pool or volume"
            .to_owned()
    } else {
        format!(
            "stop the server that uses the pool; if it is lost for good or cannot be reached, take the pool over: zonda pool \
             takeover {}",
            directory.path().display()
        )
    };
    DriveError::reserved(message, help, holder)
}

/// Runs a pool until its epoch is recorded, or the log has failed. Returns whether it is recorded.
pub(super) fn started(device: &mut PoolOnDrive, ring: &Ring) -> Result<bool, NotStarted> {
    let mut completions = CompletionQueue::new();
    loop {
        device.poll(ring.now(), &mut completions);
        if let Some(error) = device.error() {
            return Err(NotStarted::Refused(error.clone()));
        }
        // Commands that were aborted with the connection do not complete.
        if device.drive().member().drive.is_disconnected() {
            return Err(NotStarted::Disconnected);
        }
        while let Some(event) = device.poll_event() {
            if let PoolEvent::Started { is_recorded } = event {
                assert!(device.pool().is_some_and(Pool::is_started), "it has reported that");
                return Ok(is_recorded);
            }
        }
        ring.run_once(device.next_timeout()).map_err(|error| NotStarted::Loop(loop_failed(&error)))?;
    }
}

/// Why a pool was not started.
#[derive(Debug)]
pub(super) enum NotStarted {
    Refused(StartError),
    /// The connection to the drive was lost, or its server does not answer.
    Disconnected,
    /// The event loop has failed.
    Loop(DriveError),
}

pub(super) fn not_mounted(error: &NotStarted, directory: &PoolDirectory) -> DriveError {
    let (drive, shown) = (directory.shown_drive(), directory.path().display());
    let error = match error {
        NotStarted::Refused(error) => error,
        NotStarted::Disconnected => {
            let message = format!("cannot mount the pool in {shown} from {drive}: the connection to the drive is lost");
            return DriveError::new(
                message,
                "start the server of the drive, or resume it if it is paused, and try again",
            );
        }
        NotStarted::Loop(error) => return error.clone(),
    };
    let file = format!("{shown}/{}", super::POOL_FILE);
    let help = match error {
        StartError::NoPool | StartError::OtherPool(_) => format!("correct the path of the drive in {file}"),
        StartError::OldCopy { .. } => format!(
            "use the present drive; if it is lost, remove the line \"epoch = {}\" from {file} to accept the copy: what was \
             written since is lost",
            directory.epoch()
        ),
        StartError::OtherVersion(_) => "use the version of zonda that wrote it".to_owned(),
        StartError::Lacks { .. } | StartError::LacksRecords { .. } => {
            "restore the drive, or restart the server to accept the losses".to_owned()
        }
        StartError::LogDamaged(_) => {
            "restore the drive from a backup; nothing was written to it, so what can be read stays as it is".to_owned()
        }
        StartError::Unfit(_) | StartError::NotEmpty { .. } => "use the drive on which the pool was created".to_owned(),
        StartError::Drive(_) => "check the drive: zonda drive check for an image, or the log of its server".to_owned(),
    };
    let why = match error {
        StartError::OtherPool(other) => format!("the drive has the pool {}", random::uuid_text(&other.0)),
        other => other.to_string(),
    };
    DriveError::new(format!("cannot mount the pool in {shown} from {drive}: {why}"), help)
}

pub(super) fn loop_failed(error: &std::io::Error) -> DriveError {
    DriveError::new(format!("the event loop failed: {error}"), "check the limits of this process (ulimit -a)")
}
