//! Recreates the directory of a pool from its drive, and takes the drive over from the server that had
//! the lost directory.
//!
//! A reserved drive cannot be read, and its pool is not known before. The key of the holder has the
//! first bytes of the UUID of the pool ([`crate::volume::owner`]): the pool that is then read must match,
//! or the reservation is restored. From then on the drive is reserved without interruption: first for
//! this program, then for the directory that it has written. `pool.toml` has the state `restoring` until
//! then. A takeover that is interrupted is repeated: it recognizes the reservation of the program before by
//! the place in its host identifier, which is that of the directory.

use std::path::{Path, PathBuf};

use zonda_elastic::PoolId;
use zonda_initiator::{Claim, Holder, Preempts};
use zonda_nvme::HostId;
use zonda_nvme::reservation::ReservationKey;
use zonda_ring::Ring;

use super::directory::PoolDirectory;
use super::drive::PoolDrive;
use super::look::{read_image, read_on};
use crate::creation::remove_directories;
use crate::look::Snapshot;
use crate::probe::{Probe, Probed};
use crate::volume::member_device::{MemberDevice, release};
use crate::volume::owner::{describe_holder, place_of_path, upper_half};
use crate::volume::targets::restore_reservation;
use crate::{
    Access, Credentials, DriveError, Location, NamespaceOptions, TakenDrive, TakeoverOptions, TakeoverReport, random,
};

/// The host that was preempted, if it was an earlier takeover into the same directory.
const INTERRUPTED: &str = "an interrupted takeover into this directory";

/// The pool whose directory is recreated.
#[derive(Clone, Debug)]
pub struct LostPool {
    /// Its drive.
    pub drive: Location,
    /// Credentials for a drive of a server; paths are relative to the program.
    pub credentials: Credentials,
    /// Also preempts a host that is no server of this pool.
    pub force: bool,
}

/// The drive of a server, reserved for this program.
struct Reserved {
    access: Access,
    /// Identifies this program.
    host: HostId,
    device: MemberDevice,
    /// The host that was preempted.
    from: Option<Holder>,
    /// It was a takeover into the same directory, which was interrupted.
    is_repeated: bool,
}

/// A directory that was written.
struct Written {
    path: PathBuf,
    /// Directories that were created for it.
    made: Vec<PathBuf>,
    pool: PoolId,
    /// An interrupted takeover had written it before.
    is_continued: bool,
}

impl PoolDrive {
    /// Recreates the directory of a pool in `path`, which must be empty or not exist, from its drive.
    /// A drive of a server is taken over as by [`take_over`](PoolDrive::take_over); of an image, only
    /// its log is read.
    ///
    /// # Errors
    /// When the drive has no pool or a damaged one, cannot be reached, is in use, or is reserved by a
    /// host that is no server of its pool; with the remedy. A reservation that was preempted is restored
    /// then, and no directory is left.
    pub fn restore(path: &Path, lost: &LostPool, ring: &Ring) -> Result<TakeoverReport, DriveError> {
        PoolDirectory::must_be_free(path)?;
        match &lost.drive {
            Location::Image(image) => restore_on_image(path, lost, image),
            Location::Device(_) => restore_on_device(path, lost, ring),
            Location::NvmeTcp(_) => {
                let mut reserved = Reserved::open(path, lost, ring)?;
                match reserved.restore(path, lost, ring) {
                    Ok(written) => reserved.pass_on(&written, lost, ring),
                    Err(error) => Err(reserved.undo(error, ring)),
                }
            }
        }
    }
}

fn restore_on_image(path: &Path, lost: &LostPool, image: &Path) -> Result<TakeoverReport, DriveError> {
    let mut snapshot = Snapshot::open(image)?;
    let geometry = snapshot.own_geometry().clone();
    let probed = Probe::of_user(&geometry).run_at_once(&mut snapshot, zonda_zoned::Instant::ZERO);
    let probed = probed.ok_or_else(|| {
        let shown = image.display();
        DriveError::new(format!("cannot read {shown}"), format!("check it: zonda drive check {shown}"))
    })?;
    let mut directory = PoolDirectory::restore(path, &lost.drive, &lost.credentials, pool_of(&lost.drive, &probed)?)?;
    let saved = read_image(&directory, &mut snapshot).and_then(|report| directory.save_epoch(report.epoch));
    if let Err(error) = saved {
        directory.remove();
        return Err(error);
    }
    let drive = TakenDrive { at: directory.shown_drive(), taken_from: None, error: None };
    Ok(TakeoverReport { owner_epoch: 0, drives: vec![drive], is_enough: true })
}

/// On a drive of this machine, which is opened exclusively and not reserved.
fn restore_on_device(path: &Path, lost: &LostPool, ring: &Ring) -> Result<TakeoverReport, DriveError> {
    let access = Access { location: lost.drive.clone(), options: NamespaceOptions::default() };
    let mut device = MemberDevice::open(&access, ring)?;
    let restored = read_and_restore(path, lost, &mut device, ring);
    release(vec![device], ring);
    let drive = TakenDrive { at: restored?, taken_from: None, error: None };
    Ok(TakeoverReport { owner_epoch: 0, drives: vec![drive], is_enough: true })
}

/// Reads the pool on an open drive, and writes its directory. Returns the drive as the directory names
/// it.
fn read_and_restore(
    path: &Path,
    lost: &LostPool,
    device: &mut MemberDevice,
    ring: &Ring,
) -> Result<String, DriveError> {
    let geometry = device.own_geometry().clone();
    let probed = Probe::of_user(&geometry).run_on_member(device, ring)?;
    let pool = pool_of(&lost.drive, &probed)?;
    let mut directory = PoolDirectory::restore(path, &lost.drive, &lost.credentials, pool)?;
    let saved = read_on(&directory, device, ring).and_then(|report| directory.save_epoch(report.epoch));
    match saved {
        Ok(()) => Ok(directory.shown_drive()),
        Err(error) => {
            directory.remove();
            Err(error)
        }
    }
}

/// The pool that a drive has.
fn pool_of(location: &Location, probed: &Probed) -> Result<PoolId, DriveError> {
    if let Some(pool) = probed.pool {
        return Ok(pool);
    }
    let (what, help) = match probed.user() {
        Some(user) => (format!("{location} is {user}"), "name the drive of a pool whose log can be read"),
        None => (format!("there is no pool on {location}"), "name the drive on which the pool was created"),
    };
    Err(DriveError::new(what, help))
}

impl Written {
    /// Reserves the drive for the directory.
    fn take_over(&self, options: TakeoverOptions, ring: &Ring) -> Result<TakeoverReport, DriveError> {
        PoolDrive::take_over_for(PoolDirectory::open_restored(&self.path)?, options, ring)
    }

    /// The drive could not be reserved for it.
    fn remove(&self) {
        if let Ok(directory) = PoolDirectory::open_restored(&self.path) {
            directory.remove();
            remove_directories(&self.made);
        }
    }
}

impl Reserved {
    /// Reserves the drive, and preempts the server that holds it.
    fn open(path: &Path, lost: &LostPool, ring: &Ring) -> Result<Reserved, DriveError> {
        let mut host = HostId(random::bytes::<16>()?);
        host.0[..8].copy_from_slice(&place_of_path(path));
        let interrupted = PoolDirectory::interrupted_owner(path);
        let is_earlier = |holder: &Holder| holder.host.0[..8] == host.0[..8] || Some(holder.host) == interrupted;
        let access = Access { location: lost.drive.clone(), options: lost.credentials.options()? };
        // An attempt to reserve it without preempting reports the holder.
        let device = match claim(&access, host, 1, Preempts::NoHost, ring) {
            Ok(device) => device,
            Err(DriveError { holder: Some(holder), .. }) => {
                let keys = upper_of(&holder);
                let preempts = match is_earlier(&holder) {
                    true => Preempts::HostsLike(place_in(&holder.host)),
                    false => preempted(host, &holder, lost)?,
                };
                claim(&access, host, u64::from(keys) << 32 | 1, preempts, ring)?
            }
            Err(error) => return Err(error),
        };
        let Some(claimed) = device.drive.claimed() else {
            release(vec![device], ring);
            return Err(DriveError::new(
                format!("{} cannot be reserved: its server does not support reservations", lost.drive),
                "use a drive of a server that supports reservations, such as zonda serve",
            ));
        };
        let is_repeated = claimed.preempted.as_ref().is_some_and(is_earlier);
        Ok(Reserved { access, host, device, from: claimed.preempted, is_repeated })
    }

    /// Reads the pool, and writes its directory.
    fn restore(&mut self, path: &Path, lost: &LostPool, ring: &Ring) -> Result<Written, DriveError> {
        let geometry = self.device.own_geometry().clone();
        let probed = Probe::of_user(&geometry).run_on_member(&mut self.device, ring)?;
        let pool = pool_of(&lost.drive, &probed)?;
        let is_known = |holder: &Holder| {
            upper_of(holder) == upper_half(&pool.0) || lost.force || (self.is_repeated && upper_of(holder) == 0)
        };
        if let Some(holder) = self.from.filter(|holder| !is_known(holder)) {
            return Err(no_server(lost, &holder));
        }
        let is_continued = PoolDirectory::is_restoring(path);
        let mut directory = PoolDirectory::restore(path, &lost.drive, &lost.credentials, pool)?;
        let saved =
            read_on(&directory, &mut self.device, ring).and_then(|report| directory.save_restoring(report.epoch));
        match saved {
            Ok(()) => Ok(Written { path: path.to_owned(), made: directory.into_made(), pool, is_continued }),
            Err(error) => {
                directory.remove();
                Err(error)
            }
        }
    }

    /// Reserves the drive for the directory.
    fn pass_on(mut self, written: &Written, lost: &LostPool, ring: &Ring) -> Result<TakeoverReport, DriveError> {
        let options = TakeoverOptions { force: lost.force, ..TakeoverOptions::default() };
        let is_continued = self.is_repeated || written.is_continued;
        let told = |mut report: TakeoverReport, from: Option<String>| {
            if let Some(from) = if is_continued { Some(INTERRUPTED.to_owned()) } else { from } {
                report.drives.iter_mut().for_each(|drive| drive.taken_from = Some(from.clone()));
            }
            report
        };
        // An interrupted takeover whose key is not one of the pool had found the drive not reserved.
        let Some(from) = self.from.filter(|holder| upper_of(holder) != 0 || !self.is_repeated) else {
            // Its key is not one of the pool, and no other host had reserved the drive.
            release(vec![self.device], ring);
            let taken = written.take_over(options, ring).inspect_err(|_| written.remove());
            return taken.map(|report| told(report, None));
        };
        match written.take_over(options, ring) {
            Ok(report) => {
                // The reservation of this program was replaced.
                self.device.stay_reserved();
                release(vec![self.device], ring);
                Ok(told(report, Some(describe_holder("pool", &written.pool.0, &from))))
            }
            Err(error) => {
                written.remove();
                Err(self.undo(error, ring))
            }
        }
    }

    /// Restores the reservation that was preempted. If that fails, the error says so.
    fn undo(mut self, error: DriveError, ring: &Ring) -> DriveError {
        let Some(holder) = self.from else {
            release(vec![self.device], ring);
            return error;
        };
        let own = Preempts::HostsLike(place_in(&self.host));
        let restored = restore_reservation(Ok(self.access), holder, own, ring);
        self.device.stay_reserved();
        match restored {
            Ok(other) => {
                release(vec![self.device, other], ring);
                error
            }
            Err(why) => {
                release(vec![self.device], ring);
                let message = format!("{}; cannot restore the reservation of {holder}: {}", error.message, why.message);
                DriveError { message, ..error }
            }
        }
    }
}

/// Whom to preempt, if this host holds the drive.
fn preempted(host: HostId, holder: &Holder, lost: &LostPool) -> Result<Preempts, DriveError> {
    let keys = upper_of(holder);
    if lost.force {
        return Ok(Preempts::AnyHost);
    }
    // A UUID hardly begins with zeros; keys that users choose usually do.
    if keys == 0 {
        return Err(no_server(lost, holder));
    }
    Ok(Preempts::KeysLike(keys, place_in(&host)))
}

/// The place in a host identifier.
fn place_in(host: &HostId) -> [u8; 8] {
    let mut place = [0; 8];
    place.copy_from_slice(&host.0[..8]);
    place
}

fn no_server(lost: &LostPool, holder: &Holder) -> DriveError {
    DriveError::reserved(
        format!("the drive {} is reserved by {holder}, which is no server of its pool", lost.drive),
        format!("stop that host; if it is lost for good: zonda pool takeover --force DIR --drive {}", lost.drive),
        *holder,
    )
}

fn upper_of(holder: &Holder) -> u32 {
    (holder.key.0 >> 32) as u32
}

fn claim(access: &Access, host: HostId, key: u64, preempts: Preempts, ring: &Ring) -> Result<MemberDevice, DriveError> {
    let claim = Some(Claim { key: ReservationKey(key), preempts });
    let options = NamespaceOptions { host_id: Some(host), claim, ..access.options.clone() };
    MemberDevice::open(&Access { location: access.location.clone(), options }, ring)
}
