//! Opens the devices of a volume in parallel.
//!
//! While a server does not respond, the connections to all others are kept alive, and they are
//! probed.

use zonda_ring::Ring;
use zonda_zoned::{CompletionQueue, Instant, ZonedDevice};

use super::member_device::{MemberDevice, is_behind_server, refuse_volume, release_acquired};
use crate::opening::{OnRing, Opening};
use crate::probe::{Probe, Probed};
use crate::{Access, DriveError};

/// An open device, and the result of its probe if that was requested.
pub(super) type Gathered = Result<(MemberDevice, Option<Probed>), DriveError>;

/// The progress of one device.
enum Step {
    Opening(Opening),
    Probing(Box<(MemberDevice, Probe)>),
    /// Complete, waiting for the others.
    Done(Option<Gathered>),
}

/// Opens devices, and probes them if `probes` is set. Waits until each is open or has failed.
pub(super) fn gather(accesses: Vec<Result<Access, DriveError>>, probes: bool, ring: &Ring) -> Vec<Gathered> {
    let mut steps: Vec<Step> = accesses.into_iter().map(|access| begin(access, probes, ring)).collect();
    loop {
        let now = ring.now();
        steps.iter_mut().for_each(|step| step.poll(probes, now, ring));
        if steps.iter().all(|step| matches!(step, Step::Done(_))) {
            break;
        }
        let next = steps.iter().filter_map(Step::next_timeout).min();
        if let Err(error) = ring.run_once(next) {
            let what = DriveError::new(format!("the device does not respond: {error}"), "check that its server runs");
            steps.iter_mut().for_each(|step| step.fail(&what));
        }
    }
    steps.into_iter().filter_map(Step::into_gathered).collect()
}

fn begin(access: Result<Access, DriveError>, probes: bool, ring: &Ring) -> Step {
    let begun = access.and_then(|access| {
        refuse_volume(&access.location)?;
        if is_behind_server(&access.location) {
            return Opening::begin(access, OnRing::of(ring)).map(Step::Opening);
        }
        let device = MemberDevice::open(&access, ring)?;
        Ok(Step::opened(device, probes))
    });
    begun.unwrap_or_else(|error| Step::Done(Some(Err(error))))
}

impl Step {
    fn opened(device: MemberDevice, probes: bool) -> Step {
        if !probes {
            return Step::Done(Some(Ok((device, None))));
        }
        let probe = Probe::of_all(device.own_geometry());
        Step::Probing(Box::new((device, probe)))
    }

    fn poll(&mut self, probes: bool, now: Instant, ring: &Ring) {
        if let Step::Opening(opening) = self
            && let Some(opened) = opening.poll(now)
        {
            *self = match opened {
                Ok(drive) => Step::opened(MemberDevice::of(drive), probes),
                Err(error) => Step::Done(Some(Err(error))),
            };
        }
        if let Step::Probing(probing) = self {
            let (device, probe) = &mut **probing;
            let Some(probed) = probe.poll(device, now) else { return };
            let Step::Probing(looked) = std::mem::replace(self, Step::Done(None)) else { unreachable!() };
            let (device, _) = *looked;
            *self = Step::Done(Some(match probed {
                Ok(probed) => Ok((device, Some(probed))),
                Err(error) => {
                    release_acquired([device], ring);
                    Err(error)
                }
            }));
        }
        if let Step::Done(Some(Ok((device, _)))) = self {
            // No command is in flight; this keeps its connection alive.
            device.poll(now, &mut CompletionQueue::new());
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        match self {
            Step::Opening(opening) => opening.next_timeout(),
            Step::Probing(probing) => probing.0.next_timeout(),
            Step::Done(Some(Ok((device, _)))) => device.next_timeout(),
            Step::Done(_) => None,
        }
    }

    fn fail(&mut self, error: &DriveError) {
        if !matches!(self, Step::Done(_)) {
            *self = Step::Done(Some(Err(error.clone())));
        }
    }

    fn into_gathered(self) -> Option<Gathered> {
        match self {
            Step::Done(gathered) => gathered,
            Step::Opening(_) | Step::Probing(_) => None,
        }
    }
}
