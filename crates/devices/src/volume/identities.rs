//! Whose superblocks devices have, for commands that only look: all are asked side by side, and none is waited for longer than a few seconds.

use zonda_initiator::{Claim, Holder, Preempts};
use zonda_nvme::reservation::ReservationKey;
use zonda_raid::Identity;
use zonda_ring::Ring;
use zonda_zoned::{Duration, Instant, NamespaceId, ZonedDevice};

use super::seat::{Seat, give_back};
use crate::look::LookedAt;
use crate::opening::{OnRing, Opening};
use crate::probe::Probe;
use crate::{Access, Drive, DriveError, Location};

/// So long is waited for all of them.
const LOOK_MAX: Duration = Duration(5_000_000_000);

type Looked = Result<Option<Identity>, DriveError>;

/// A device on its way.
enum Step {
    Opening(Opening),
    Looking(Box<(Box<dyn Drive>, Probe)>),
    Done(Looked),
}

/// Looks at devices; nothing is written, and nothing is reserved.
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
        let next = steps.iter().filter_map(Step::next_wakeup).min().map_or(until, |next| next.min(until));
        if is_done || now >= until || ring.turn(Some(next)).is_err() {
            break;
        }
    }
    let looked = steps.into_iter().zip(places).map(|(step, place)| match step {
        Step::Done(looked) => looked,
        Step::Opening(_) | Step::Looking(_) => Err(DriveError::new(
            format!("{place} does not answer: nothing came within {LOOK_MAX}"),
            "see whether its server runs and can be reached",
        )),
    });
    looked.collect()
}

/// Looks at one device, and waits for it.
pub(super) fn identity(access: &Access, ring: &Ring) -> Looked {
    identities(vec![Ok(access.clone())], ring).pop().expect("there is one")
}

/// Who has reserved a device of a server; `None` where nobody has, or that cannot be found out.
pub(super) fn holder(access: &Access, ring: &Ring) -> Option<Holder> {
    let mut access = access.clone();
    // As a host that nobody knows: the one that `volume.toml` names would be let in by its own reservation.
    (access.options.host_id, access.options.claim) = (None, None);
    identity(&access, ring).err().filter(|error| error.is_in_use)?;
    // Who it is is told to a host that asks for the device without insisting.
    access.options.claim = Some(Claim { key: ReservationKey(1), preempts: Preempts::Nobody });
    match Seat::open(&access, ring) {
        Ok(seat) => {
            give_back([seat], ring);
            None
        }
        Err(error) => error.holder,
    }
}

fn begin(access: Result<Access, DriveError>, ring: &Ring) -> Step {
    let begun = access.and_then(|access| match &access.location {
        Location::Image(path) => Ok(Step::Done(Ok(LookedAt::open(path)?.identity()))),
        Location::NvmeTcp(_) => Opening::begin(access, OnRing::of(ring)).map(Step::Opening),
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
                    Step::Looking(Box::new((drive, probe)))
                }
                Err(error) => Step::Done(Err(error)),
            };
        }
        if let Step::Looking(looking) = self {
            let (drive, probe) = &mut **looking;
            if let Some(probed) = probe.poll(&mut **drive, now) {
                *self = Step::Done(probed.map(|probed| probed.identity));
            }
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        match self {
            Step::Opening(opening) => opening.next_wakeup(),
            Step::Looking(looking) => looking.0.next_wakeup(),
            Step::Done(_) => None,
        }
    }
}
