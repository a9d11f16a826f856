//! Devices of a volume, opened side by side.
//!
//! A server that does not answer is waited for; meanwhile the connections to all others are kept alive, and what they hold is read.

use zonda_ring::Ring;
use zonda_zoned::{CompletionQueue, Instant, ZonedDevice};

use super::seat::{Seat, give_back, is_behind_server, refuse_volume};
use crate::opening::{OnRing, Opening};
use crate::probe::{Probe, Probed};
use crate::{Access, DriveError};

/// A device that is open, and what it holds if that was asked for.
pub(super) type Gathered = Result<(Seat, Option<Probed>), DriveError>;

/// A device on its way.
enum Step {
    Opening(Opening),
    Looking(Box<(Seat, Probe)>),
    /// It waits for the others.
    Done(Option<Gathered>),
}

/// Opens devices, and with `looks` reads what they hold. Waits until each is open or cannot be opened.
pub(super) fn gather(accesses: Vec<Result<Access, DriveError>>, looks: bool, ring: &Ring) -> Vec<Gathered> {
    let mut steps: Vec<Step> = accesses.into_iter().map(|access| begin(access, looks, ring)).collect();
    loop {
        let now = ring.now();
        steps.iter_mut().for_each(|step| step.poll(looks, now, ring));
        if steps.iter().all(|step| matches!(step, Step::Done(_))) {
            break;
        }
        let next = steps.iter().filter_map(Step::next_wakeup).min();
        if let Err(error) = ring.turn(next) {
            let what = DriveError::new(format!("the device does not answer: {error}"), "see whether its server runs");
            steps.iter_mut().for_each(|step| step.give_up(&what));
        }
    }
    steps.into_iter().filter_map(Step::into_gathered).collect()
}

fn begin(access: Result<Access, DriveError>, looks: bool, ring: &Ring) -> Step {
    let begun = access.and_then(|access| {
        refuse_volume(&access.location)?;
        if is_behind_server(&access.location) {
            return Opening::begin(access, OnRing::of(ring)).map(Step::Opening);
        }
        let seat = Seat::open(&access, ring)?;
        Ok(Step::opened(seat, looks))
    });
    begun.unwrap_or_else(|error| Step::Done(Some(Err(error))))
}

impl Step {
    fn opened(seat: Seat, looks: bool) -> Step {
        if !looks {
            return Step::Done(Some(Ok((seat, None))));
        }
        let probe = Probe::of_all(seat.own_geometry());
        Step::Looking(Box::new((seat, probe)))
    }

    fn poll(&mut self, looks: bool, now: Instant, ring: &Ring) {
        if let Step::Opening(opening) = self
            && let Some(opened) = opening.poll(now)
        {
            *self = match opened {
                Ok(drive) => Step::opened(Seat::of(drive), looks),
                Err(error) => Step::Done(Some(Err(error))),
            };
        }
        if let Step::Looking(looking) = self {
            let (seat, probe) = &mut **looking;
            let Some(probed) = probe.poll(seat, now) else { return };
            let Step::Looking(looked) = std::mem::replace(self, Step::Done(None)) else { unreachable!() };
            let (seat, _) = *looked;
            *self = Step::Done(Some(match probed {
                Ok(probed) => Ok((seat, Some(probed))),
                Err(error) => {
                    give_back([seat], ring);
                    Err(error)
                }
            }));
        }
        if let Step::Done(Some(Ok((seat, _)))) = self {
            // Nothing is under way there; its connection is kept alive.
            seat.poll(now, &mut CompletionQueue::new());
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        match self {
            Step::Opening(opening) => opening.next_wakeup(),
            Step::Looking(looking) => looking.0.next_wakeup(),
            Step::Done(Some(Ok((seat, _)))) => seat.next_wakeup(),
            Step::Done(_) => None,
        }
    }

    fn give_up(&mut self, error: &DriveError) {
        if !matches!(self, Step::Done(_)) {
            *self = Step::Done(Some(Err(error.clone())));
        }
    }

    fn into_gathered(self) -> Option<Gathered> {
        match self {
            Step::Done(gathered) => gathered,
            Step::Opening(_) | Step::Looking(_) => None,
        }
    }
}
