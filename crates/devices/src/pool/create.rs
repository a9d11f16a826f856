//! Creates pools.

use std::path::Path;

use zonda_elastic::{ElasticDevice, Goal, PoolOptions, Shape};
use zonda_ring::Ring;
use zonda_zoned::{
    Command, CommandId, CompletionQueue, NamespaceId, Operation, PayloadKind, ZoneAction, ZoneTarget, ZonedDevice,
};

use super::base::PoolBase;
use super::directory::PoolDirectory;
use super::drive::{NotStarted, PoolDrive, loop_failed, open_reserved, started};
use crate::probe::Probe;
use crate::volume::member_device::{MemberDevice, release};
use crate::volume::vacant::must_be_free;
use crate::{Credentials, DriveError, Location, random};

/// The parameters of a new pool.
#[derive(Clone, Debug)]
pub struct NewPool {
    /// Its drive.
    pub drive: Location,
    /// Numbers that do not follow from the drive.
    pub options: PoolOptions,
    /// Whether the drive may be wiped if it is not empty.
    pub may_wipe: bool,
    /// Credentials for a drive of a server; paths are relative to the program.
    pub credentials: Credentials,
}

impl NewPool {
    /// A pool on this drive, which must be empty.
    #[must_use]
    pub fn on(drive: Location) -> NewPool {
        NewPool { drive, options: PoolOptions::default(), may_wipe: false, credentials: Credentials::default() }
    }
}

impl PoolDrive {
    /// Creates a pool without namespaces in `path`, which must be empty, not exist, or have a pool
    /// whose creation was interrupted: that is then continued. Its drive is wiped.
    ///
    /// # Errors
    /// When the drive is unsuitable, in use, or not empty without permission to wipe it; with the
    /// remedy. If nothing was written yet, the directory is as before; otherwise the same call
    /// continues.
    pub fn create(path: &Path, new: &NewPool, ring: &Ring) -> Result<PoolDrive, DriveError> {
        let mut directory = PoolDirectory::make(path, &new.drive, &new.credentials, random::uuid()?)?;
        let drive = match opened(&mut directory, new, ring) {
            Ok(drive) => drive,
            Err(error) => {
                if !directory.was_interrupted() {
                    directory.remove();
                }
                return Err(error);
            }
        };
        // From here on the drive is written: the identity is saved before, so that a repeated command
        // continues.
        let mut drive = drive;
        let begun = directory.begin().and_then(|()| wipe(&mut drive, ring));
        if let Err(error) = begun {
            release(vec![drive], ring);
            return Err(error);
        }
        let goal = Goal::Create { id: directory.id(), options: new.options };
        let mut device = ElasticDevice::new(PoolBase::of(drive), goal, PayloadKind::Bytes);
        let failed = |why: String| {
            DriveError::new(
                format!("cannot create the pool on {}: {why}", new.drive),
                "check the drive, and repeat the command, which continues; or use another drive",
            )
        };
        let error = match started(&mut device, ring) {
            Ok(true) => return PoolDrive::of(device, directory, true, ring),
            Ok(false) => failed("the drive failed to write the log".to_owned()),
            Err(NotStarted::Refused(error)) => failed(error.to_string()),
            Err(NotStarted::Disconnected) => failed("the connection to the drive is lost".to_owned()),
            Err(NotStarted::Loop(error)) => error,
        };
        release(vec![device.into_drive().into_member()], ring);
        Err(error)
    }
}

/// The drive of a new pool, to which nothing was written yet.
fn opened(directory: &mut PoolDirectory, new: &NewPool, ring: &Ring) -> Result<MemberDevice, DriveError> {
    let access = directory.access()?;
    let mut drive = open_reserved(directory, &access, |access| MemberDevice::open(access, ring), ring)?;
    let checked = check(directory, new, &mut drive, ring);
    match checked {
        Ok(()) => Ok(drive),
        Err(error) => {
            release(vec![drive], ring);
            Err(error)
        }
    }
}

fn check(directory: &PoolDirectory, new: &NewPool, drive: &mut MemberDevice, ring: &Ring) -> Result<(), DriveError> {
    let geometry = drive.geometry(NamespaceId::FIRST).clone();
    let location = new.drive.to_string();
    Shape::of_drive(&geometry, new.options).map_err(|why| {
        let help = "change --zones-per-vzone, --essential-zones or --width-max, or name another drive";
        DriveError::new(format!("cannot create a pool on {location}: {why}"), help)
    })?;
    let probed = Probe::of_all(&geometry).thorough().run_on_member(drive, ring)?;
    drive.drive.forget_reads(probed.read_blocks);
    // What an interrupted creation has written is not a pool in use.
    let is_own = directory.was_interrupted() && probed.pool == Some(directory.id());
    if new.may_wipe || is_own { Ok(()) } else { must_be_free(&location, &probed) }
}

/// Resets all zones of a drive.
fn wipe(drive: &mut MemberDevice, ring: &Ring) -> Result<(), DriveError> {
    let operation = Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::All };
    let command = Command::new(CommandId(0), NamespaceId::FIRST, operation);
    let cannot =
        |why: String| DriveError::new(format!("cannot reset the zones of the drive: {why}"), "check the drive");
    drive.submit(ring.now(), command).map_err(|_| cannot("its queue is full".to_owned()))?;
    let mut completions = CompletionQueue::new();
    loop {
        drive.poll(ring.now(), &mut completions);
        match completions.pop() {
            Some(completion) if completion.status.is_success() => return Ok(()),
            Some(completion) => return Err(cannot(completion.status.to_string())),
            None => ring.run_once(drive.next_timeout()).map_err(|error| loop_failed(&error))?,
        }
    }
}
