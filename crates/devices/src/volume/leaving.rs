//! Devices that a volume does not need any more, until they are closed.

use zonda_raid::MemberIndex;
use zonda_zoned::Instant;

use super::VolumeDrive;
use super::bugs::{OwnerBug, is_planted};
use super::drive::Phase;
use super::seat::Seat;

impl VolumeDrive {
    /// Nobody needs this device any more.
    pub(super) fn let_go(&mut self, mut seat: Seat, now: Instant) {
        // Closing would give back the reservation of a drive that the volume has under another name, too.
        let is_connected = seat.is_claimed() && !seat.drive.is_disconnected();
        if is_connected && self.seats().any(|other| other.is_same_drive(&seat)) {
            return;
        }
        if self.directory.file.stays_reserved && !is_planted(OwnerBug::NothingStaysReserved) {
            seat.stay_reserved();
        }
        seat.close_on(now);
        self.leaving.push(seat);
    }

    pub(super) fn take_out(&mut self, now: Instant, member: MemberIndex) {
        if let Some(seat) = self.on.replace(member, None) {
            self.let_go(seat, now);
        }
    }

    pub(super) fn look_after_leaving(&mut self, now: Instant) {
        self.leaving.iter_mut().for_each(|seat| seat.close_on(now));
        if self.phase == Phase::Closing {
            let closed = self.leaving.iter().filter(|seat| seat.is_idle() && seat.drive.is_closed());
            self.close_errors.extend(closed.filter_map(|seat| seat.drive.close_error()));
        }
        self.leaving.retain(|seat| !(seat.is_idle() && seat.drive.is_closed()));
    }
}
