//! Reads the superblocks of devices for commands that do not write: in parallel, with a timeout of
//! a few seconds.

use zonda_initiator::{Claim, Holder, Preempts};
use zonda_nvme::reservation::ReservationKey;
use zonda_raid::Identity;
use zonda_ring::Ring;
use zonda_zoned::{Duration, Instant, NamespaceId, ZonedDevice};

use super::member_device::{MemberDevice, release_acquired};
use crate::look::Snapshot;
use crate::opening::{OnRing, Opening};
use crate::probe::Probe;
use crate::{Access, Drive, DriveError, Location};

/// Timeout for all devices together.
const LOOK_MAX: Duration = Duration(5_000_000_000);

type Looked = Result<Option<Identity>, DriveError>;

/// The progress of one device.
enum Step {
    Opening(Opening),
    Probing(Box<(Box<dyn Drive>, Probe)>),
    Done(Looked),
}

/// Reads the superblocks of devices; nothing is written or reserved.
pub(super) fn identities(accesses: Vec<Result<Access, DriveError>>, ring: &Ring) -> Vec<Looked> {
    let until = ring.now() + LOOK_MAX;
    let shown = |access: &Result<Access, DriveError>| {
        access.as_ref().map_or_else(|_| String::new(), |access| access.location.to_string())
    };
    let places: Vec<String> = accesses.iter().map(shown).collect();
    let mut steps: Vec<Step> = accesses.into_iter().map(|access| begin(access, ring)).collect();
    loop {
        let now = ring.now();
        steps.iter_mut().for_each(|step| step.poll(now));
        let is_done = steps.iter().all(|step| matches!(step, Step::Done(_)));
        let next = steps.iter().filter_map(Step::next_timeout).min().map_or(until, |next| next.min(until));
        if is_done || now >= until || ring.run_once(Some(next)).is_err() {
            break;
        }
    }
    let looked = steps.into_iter().zip(places).map(|(step, place)| match step {
        Step::Done(looked) => looked,
        Step::Opening(_) | Step::Probing(_) => Err(DriveError::new(
            format!("{place} did not respond within {LOOK_MAX}"),
            "check that its server runs and can be reached",
        )),
    });
    looked.collect()
}

/// Reads the superblock of one device.
pub(super) fn identity(access: &Access, ring: &Ring) -> Looked {
    identities(vec![Ok(access.clone())], ring).pop().expect("one device has one result")
}

/// The host that has reserved a device of a server; `None` if it is not reserved, or that cannot be
/// determined.
pub(crate) fn holder(access: &Access, ring: &Ring) -> Option<Holder> {
    let mut access = access.clone();
    // With a new host identifier: the reservation of the one in `volume.toml` would not be
    // reported.
    (access.options.host_id, access.options.claim) = (None, None);
    identity(&access, ring).err().filter(|error| error.is_in_use)?;
    // An attempt to reserve it without preempting reports the holder.
    access.options.claim = Some(Claim { key: ReservationKey(1), preempts: Preempts::NoHost });
    match MemberDevice::open(&access, ring) {
        Ok(device) => {
            release_acquired([device], ring);
            None
        }
        Err(error) => error.holder,
    }
}

fn begin(access: Result<Access, DriveError>, ring: &Ring) -> Step {
    let begun = access.and_then(|access| match &access.location {
        Location::Image(path) => Ok(Step::Done(Ok(Snapshot::open(path)?.identity()))),
        Location::Device(_) | Location::NvmeTcp(_) => Opening::begin(access, OnRing::of(ring)).map(Step::Opening),
    });
    begun.unwrap_or_else(|error| Step::Done(Err(error)))
}

impl Step {
    fn poll(&mut self, now: Instant) {
        if let Step::Opening(opening) = self
            && let Some(opened) = opening.poll(now)
        {
            *self = match opened {
                Ok(drive) => {
                    let probe = Probe::of_superblock(drive.geometry(NamespaceId::FIRST));
                    Step::Probing(Box::new((drive, probe)))
                }
                Err(error) => Step::Done(Err(error)),
            };
        }
        if let Step::Probing(probing) = self {
            let (drive, probe) = &mut **probing;
            if let Some(probed) = probe.poll(&mut **drive, now) {
                *self = Step::Done(probed.map(|probed| probed.identity));
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        match self {
            Step::Opening(opening) => opening.next_timeout(),
            Step::Probing(probing) => probing.0.next_timeout(),
            Step::Done(_) => None,
        }
    }
}
