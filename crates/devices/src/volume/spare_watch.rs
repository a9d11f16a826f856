//! Keeps the connections of remote spares alive, and reconnects them, so that they can replace a
//! failed member at once.

use zonda_zoned::{CompletionQueue, Duration, Instant, ZonedDevice};

use super::VolumeDrive;
use super::adopt::{Adoption, Role};
use super::directory::{MISSING, Place};
use super::drive::Phase;
use super::member_device::{MemberDevice, can_vanish_at};
use super::returns::{LOOK_AFTER, LOOK_AFTER_MAX};
use super::spares::Spare;
use crate::DriveError;
use crate::opening::OnRing;
use crate::probe::{Probed, describe};

/// How often a spare has to confirm that it is reserved for this volume.
const ASK_INTERVAL: Duration = Duration(5_000_000_000);

/// A spare that cannot be reached, and that the volume tries to open again.
pub(super) struct AwaySpare {
    pub(super) place: Place,
    look_at: Instant,
    wait: Duration,
    /// Another host has reserved it.
    is_reserved: bool,
}

/// The state of the remote spares of a volume.
#[derive(Default)]
pub(super) struct SpareWatch {
    pub(super) away: Vec<AwaySpare>,
    ask_at: Instant,
}

impl SpareWatch {
    /// Stops the attempts to open a spare.
    pub(super) fn forget(&mut self, at: &str) {
        self.away.retain(|away| away.place.at != at);
    }

    /// The locations of spares that another host has reserved.
    pub(super) fn reserved(&self) -> impl Iterator<Item = String> + '_ {
        self.away.iter().filter(|away| away.is_reserved).map(|away| away.place.at.clone())
    }

    fn add(&mut self, place: Place, is_reserved: bool, now: Instant) {
        self.forget(&place.at);
        self.away.push(AwaySpare { place, look_at: now + LOOK_AFTER, wait: LOOK_AFTER, is_reserved });
    }
}

impl VolumeDrive {
    /// Schedules attempts to open spares of servers and of this machine that were missing when the volume was opened.
    pub(super) fn watch_spares(&mut self, now: Instant, places: Vec<Place>) {
        for place in places {
            let location = self.directory.location(&place);
            if place.at != MISSING && location.is_ok_and(|location| can_vanish_at(&location)) {
                self.spare_watch.add(place, false, now);
            }
        }
    }

    /// Polls spares, and tries to open those that cannot be reached.
    pub(super) fn look_after_spares(&mut self, now: Instant) {
        let mut ignored = CompletionQueue::new();
        self.spares.iter_mut().for_each(|spare| spare.device.poll(now, &mut ignored));
        if self.phase != Phase::Open {
            return;
        }
        while let Some(at) = self.spares.iter().position(|spare| is_lost(&spare.device)) {
            self.lose_spare(now, at);
        }
        if self.spare_watch.ask_at <= now {
            self.spare_watch.ask_at = now + ASK_INTERVAL;
            self.spares.iter_mut().for_each(|spare| spare.device.confirm(now));
        }
        self.look_for_spares(now);
    }

    /// When to poll spares next.
    pub(super) fn next_spare_wakeup(&self) -> Option<Instant> {
        let polls = self.spares.iter().filter_map(|spare| spare.device.next_timeout());
        let ask = self.spares.iter().any(|spare| spare.device.is_claimed()).then_some(self.spare_watch.ask_at);
        let sought = self.spare_watch.away.iter().filter(|away| !self.is_spare_looked_for(&away.place));
        let looks = sought.map(|away| away.look_at);
        let while_open = ask.into_iter().chain(looks).filter(|_| self.phase == Phase::Open);
        polls.chain(while_open).min()
    }

    fn lose_spare(&mut self, now: Instant, at: usize) {
        let Spare { place, device } = self.spares.remove(at);
        let is_reserved = device.is_refused();
        let why = match is_reserved {
            true => "another host has reserved it",
            false if device.is_remote() => "its connection is lost",
            false => "the drive is missing",
        };
        self.notify(
            true,
            format!(
                "the spare {} cannot be reached: {why}; it cannot replace a failed member until it can be reached",
                place.shown()
            ),
        );
        self.detach(device, now);
        self.spare_watch.add(place, is_reserved, now);
    }

    fn is_spare_looked_for(&self, place: &Place) -> bool {
        self.adoptions.iter().any(|adoption| adoption.role == Role::SpareAgain && adoption.place.at == place.at)
    }

    fn look_for_spares(&mut self, now: Instant) {
        let mut away = std::mem::take(&mut self.spare_watch.away);
        for spare in away.iter_mut().filter(|spare| spare.look_at <= now) {
            if self.is_spare_looked_for(&spare.place) {
                continue;
            }
            spare.wait = Duration((spare.wait.0 * 2).min(LOOK_AFTER_MAX.0));
            spare.look_at = now + spare.wait;
            let Some(on_ring) = self.on_ring.as_ref().map(OnRing::another) else { continue };
            let Ok(location) = self.directory.location(&spare.place) else { continue };
            let named = (&*spare.place.shown(), location, spare.place.clone());
            self.adoptions.push(Adoption::new(None, Role::SpareAgain, named, false, now, on_ring));
        }
        self.spare_watch.away = away;
    }

    /// Refuses a spare that is used by another volume now.
    pub(super) fn must_be_spare_still(&self, text: &str, probed: &Probed) -> Result<(), DriveError> {
        let is_own = probed.membership().is_some_and(|own| own.array == self.array());
        match &probed.identity {
            Some(identity) if !is_own => Err(DriveError::new(
                format!("the drive is {}", describe(identity)),
                "zonda volume spare add --force uses it anyway",
            )),
            _ => self.must_not_be_member(text, probed),
        }
    }

    /// A spare can be reached again.
    pub(super) fn take_spare_again(&mut self, now: Instant, place: Place, device: MemberDevice) {
        self.spare_watch.forget(&place.at);
        // It may have been removed meanwhile.
        if !self.directory.file.spare.iter().any(|listed| listed.at == place.at) {
            return self.detach(device, now);
        }
        self.notify(false, format!("the spare {} can be reached again", place.shown()));
        self.spares.push(Spare { place, device });
        self.use_spares(now);
    }

    /// An attempt to open a spare has failed, or the device was refused.
    pub(super) fn look_for_spare_ended(&mut self, at: &str, is_open: bool, error: &DriveError) {
        for away in self.spare_watch.away.iter_mut().filter(|away| away.place.at == at) {
            away.is_reserved = error.is_in_use;
        }
        // Its contents do not change by themselves, and each attempt would lock out its present
        // owner.
        if is_open {
            self.spare_watch.forget(at);
            self.notify(true, format!("the spare {at} can be reached again, but is not used: {error}"));
        }
    }
}

fn is_lost(device: &MemberDevice) -> bool {
    device.can_vanish() && (device.is_refused() || device.drive.is_disconnected())
}
