//! Takes a pool over from an owner that cannot be reached.
//!
//! As for a volume ([`crate::volume::takeover`]), and simpler: one drive has one owner at a time. Of
//! two concurrent takeovers the later one preempts the earlier one, which finds its reservation lost
//! before it succeeds.

use std::path::Path;

use zonda_initiator::{Claimed, Holder, Preempts};
use zonda_ring::Ring;
use zonda_zoned::{CompletionQueue, Duration, Instant, ZonedDevice};

use super::directory::PoolDirectory;
use super::drive::{PoolDrive, loop_failed, reserved, reserved_by};
use super::look::read_on;
use crate::volume::lease::LEASE;
use crate::volume::member_device::{MemberDevice, is_behind_server, release};
use crate::volume::takeover::FROM_HERE;
use crate::volume::targets::{epoch_of, restore_reservation};
use crate::{DriveError, TakenDrive, TakeoverOptions, TakeoverReport};

/// Timeout for the drive to confirm its reservation.
const ANSWER_MAX: Duration = Duration(1_000_000_000);
/// How often the holder of the drive may change while it is preempted.
const HOLDERS_MAX: u32 = 4;

impl PoolDrive {
    /// Reserves the drive of the pool in `path`, and preempts another owner of this pool, whose
    /// outstanding commands are aborted. The reservation persists from now on, for programs that open
    /// the pool from this directory. Waits until the other owner can complete no command any more;
    /// with [`releases`](TakeoverOptions::releases) no other owner is preempted, and the drive is
    /// released after that.
    ///
    /// # Errors
    /// When there is no such pool, it is in use by a program on this machine, its drive is an image,
    /// cannot be reached, is reserved by a host that is no server of this pool, or has another pool,
    /// a damaged one, or an older epoch than this directory; or when another takeover has preempted
    /// this one; with the remedy. A reservation that was preempted is restored then, except in the
    /// last case.
    pub fn take_over(path: &Path, options: TakeoverOptions, ring: &Ring) -> Result<TakeoverReport, DriveError> {
        PoolDrive::take_over_for(PoolDirectory::open(path)?, options, ring)
    }

    /// The same, for a directory that is open.
    pub(super) fn take_over_for(
        mut directory: PoolDirectory,
        options: TakeoverOptions,
        ring: &Ring,
    ) -> Result<TakeoverReport, DriveError> {
        let path = directory.path().to_owned();
        if !is_behind_server(&directory.access()?.location) {
            return Err(DriveError::new(
                format!("the pool in {} cannot be taken over: its drive is an image", path.display()),
                "an image is unlocked when the program that has it open exits",
            ));
        }
        let stayed_reserved = directory.stays_reserved();
        let mut device = take(&mut directory, options, ring)?;
        let claimed = device.drive.claimed().expect("a drive that cannot be reserved is refused");
        let had = directory.owner().is_some_and(|owner| owner.had(&claimed));
        while let Err(error) = read_on(&directory, &mut device, ring) {
            if !device.is_refused() {
                return Err(undo(&mut directory, device, claimed, stayed_reserved, error, ring));
            }
            // If another takeover has preempted this one, its reservation stays.
            device = still_own(&mut directory, device, ring).map_err(|error| begun(&directory, claimed, error))?;
        }
        poll_until(&mut device, ring.now() + LEASE, ring, |_| false)?;
        let device = still_own(&mut directory, device, ring).map_err(|error| begun(&directory, claimed, error))?;
        let taken_from = claimed.preempted.map(|holder| match had {
            true => FROM_HERE.to_owned(),
            false => directory.shown(&holder),
        });
        if options.releases {
            release(vec![device], ring);
            directory.save_reserved(false)?;
        } else {
            leave_reserved(device, ring);
        }
        directory.end_restoring()?;
        let drive = TakenDrive { at: directory.drive().to_owned(), taken_from, error: None };
        Ok(TakeoverReport { owner_epoch: directory.owner_epoch(), drives: vec![drive], is_enough: true })
    }
}

/// Reserves the drive, and records that it stays so.
fn take(directory: &mut PoolDirectory, options: TakeoverOptions, ring: &Ring) -> Result<MemberDevice, DriveError> {
    let stayed_reserved = directory.stays_reserved();
    let mut opened = open(directory, None, ring);
    let mut preempted = None;
    for _ in 0..HOLDERS_MAX {
        let Err(error) = &opened else { break };
        let Some(holder) = error.holder else { break };
        must_preempt(directory, holder, options)?;
        // Saved before the holder is preempted: from then on the drive must stay reserved.
        directory.save_reserved(true)?;
        preempted = Some(holder);
        opened = open(directory, Some(&holder), ring);
    }
    let taken = match (opened, preempted) {
        (Ok(device), _) => reserved(directory, device, ring),
        (Err(error @ DriveError { holder: None, .. }), Some(holder)) => Err(interrupted(directory, &holder, &error)),
        (Err(error), _) => Err(error.holder.map_or(error, |holder| reserved_by(directory, holder))),
    };
    let stays_reserved = stayed_reserved || taken.as_ref().map_or_else(|error| error.has_effect, |_| true);
    let saved = directory.save_reserved(stays_reserved);
    match (taken, saved) {
        (Ok(device), Err(error)) => {
            leave_reserved(device, ring);
            Err(error)
        }
        (taken, _) => taken,
    }
}

/// Refuses to preempt a host that is no server of this pool, and any host for a release.
fn must_preempt(directory: &PoolDirectory, holder: Holder, options: TakeoverOptions) -> Result<(), DriveError> {
    let (drive, shown, by) = (directory.drive(), directory.path().display(), directory.shown(&holder));
    if options.releases {
        return Err(DriveError::reserved(
            format!("cannot release the drive {drive} of the pool: it is reserved by {by}"),
            format!(
                "release it from the directory of that server; if that is lost for good, take the pool over first: zonda pool \
                 takeover {shown}"
            ),
            holder,
        ));
    }
    if epoch_of(&holder, &directory.id().0).is_none() && !options.force {
        return Err(DriveError::reserved(
            format!("the drive {drive} is reserved by {by}, which is no server of this pool"),
            format!("stop that host; if it is lost for good: zonda pool takeover --force {shown}"),
            holder,
        ));
    }
    Ok(())
}

/// Opens the drive, preempting only this holder, or only earlier programs of this directory.
fn open(directory: &mut PoolDirectory, from: Option<&Holder>, ring: &Ring) -> Result<MemberDevice, DriveError> {
    directory.take_from(from);
    MemberDevice::open(&directory.access()?, ring)
}

/// The takeover is refused: restores the previous reservation. If that fails, the error says so.
fn undo(
    directory: &mut PoolDirectory,
    mut device: MemberDevice,
    claimed: Claimed,
    stayed_reserved: bool,
    error: DriveError,
    ring: &Ring,
) -> DriveError {
    let owner = directory.owner().expect("the directory is open for writing");
    match claimed.preempted {
        // A reservation that this directory had before stays: it may be what locks out another owner.
        Some(_) if owner.had(&claimed) => leave_reserved(device, ring),
        Some(holder) => match restore_reservation(directory.access(), holder, Preempts::HostsLike(owner.place()), ring)
        {
            Ok(other) => {
                device.stay_reserved();
                release(vec![device, other], ring);
            }
            Err(why) => {
                leave_reserved(device, ring);
                let message = format!(
                    "{}; cannot restore the reservation of {}, so that the drive stays reserved for this directory: {}",
                    error.message,
                    directory.shown(&holder),
                    why.message
                );
                return DriveError { message, help: repeat(directory), has_effect: true, ..error };
            }
        },
        None => release(vec![device], ring),
    }
    // If this fails, the next program of this directory keeps the drive reserved.
    let _ = directory.save_reserved(stayed_reserved);
    error
}

/// Fails if another takeover has preempted this one. A connection that was lost is made again.
fn still_own(directory: &mut PoolDirectory, mut device: MemberDevice, ring: &Ring) -> Result<MemberDevice, DriveError> {
    let asked_at = ring.now();
    device.confirm(asked_at);
    let is_own = |device: &MemberDevice| device.confirmed_at() >= Some(asked_at);
    let is_answered = |device: &MemberDevice| is_own(device) || device.is_refused() || device.drive.is_disconnected();
    poll_until(&mut device, asked_at + ANSWER_MAX, ring, is_answered)?;
    if is_own(&device) && !device.is_refused() {
        return Ok(device);
    }
    let opened = open(directory, None, ring);
    leave_reserved(device, ring);
    let error = match opened {
        Ok(device) => return reserved(directory, device, ring),
        Err(error) => error,
    };
    let Some(holder) = error.holder else { return Err(error) };
    Err(DriveError::reserved(
        format!("preempted by another takeover: {} is now reserved by {}", directory.drive(), directory.shown(&holder)),
        format!(
            "serve the pool from the directory of the other takeover; to use it here instead, stop that server and repeat: \
             zonda pool takeover {}",
            directory.path().display()
        ),
        holder,
    ))
}

/// The connection was lost after the takeover had preempted an owner, or may have.
fn begun(directory: &PoolDirectory, claimed: Claimed, error: DriveError) -> DriveError {
    match (claimed.preempted, error.holder) {
        (Some(holder), None) => interrupted(directory, &holder, &error),
        _ => error,
    }
}

fn interrupted(directory: &PoolDirectory, holder: &Holder, error: &DriveError) -> DriveError {
    let message = format!(
        "the takeover was interrupted after it had begun to preempt {}, which may have stopped serving the pool: {}",
        directory.shown(holder),
        error.message
    );
    DriveError { has_effect: true, ..DriveError::new(message, repeat(directory)) }
}

fn repeat(directory: &PoolDirectory) -> String {
    format!("repeat it once the server of the drive answers: zonda pool takeover {}", directory.path().display())
}

/// Polls a drive until a time, or until `is_done`.
fn poll_until(
    device: &mut MemberDevice,
    until: Instant,
    ring: &Ring,
    is_done: impl Fn(&MemberDevice) -> bool,
) -> Result<(), DriveError> {
    let mut ignored = CompletionQueue::new();
    loop {
        device.poll(ring.now(), &mut ignored);
        if ring.now() >= until || is_done(device) {
            return Ok(());
        }
        let next = device.next_timeout().map_or(until, |at| at.min(until));
        ring.run_once(Some(next)).map_err(|error| loop_failed(&error))?;
    }
}

/// Closes a drive, which stays reserved.
fn leave_reserved(mut device: MemberDevice, ring: &Ring) {
    device.stay_reserved();
    release(vec![device], ring);
}
