//! Devices that are detached from a volume and being closed.

use zonda_raid::MemberIndex;
use zonda_zoned::Instant;

use super::VolumeDrive;
use super::bugs::{OwnerBug, is_seeded};
use super::drive::Phase;
use super::member_device::MemberDevice;

impl VolumeDrive {
    /// Closes a device that is not needed any more.
    pub(super) fn detach(&mut self, device: MemberDevice, now: Instant) {
        let stays_reserved = self.directory.file.stays_reserved && !is_seeded(OwnerBug::NothingStaysReserved);
        self.close_device(device, stays_reserved, now);
    }

    /// Closes a device that was opened for the volume, and is not used after all. Its reservation
    /// is released if no host had reserved it before: it locks out no other owner.
    pub(super) fn detach_unused(&mut self, device: MemberDevice, now: Instant) {
        if device.was_free() { self.close_device(device, false, now) } else { self.detach(device, now) }
    }

    fn close_device(&mut self, mut device: MemberDevice, stays_reserved: bool, now: Instant) {
        // Closing would release the reservation of a drive that the volume also uses at another
        // address.
        let is_connected = device.is_claimed() && !device.drive.is_disconnected();
        if is_connected && self.devices().any(|other| other.is_same_drive(&device)) {
            return;
        }
        if stays_reserved {
            device.stay_reserved();
        }
        device.close_on(now);
        self.closing.push(device);
    }

    pub(super) fn detach_member(&mut self, now: Instant, member: MemberIndex) {
        if let Some(device) = self.on.replace(member, None) {
            self.detach(device, now);
        }
    }

    pub(super) fn poll_closing(&mut self, now: Instant) {
        self.closing.iter_mut().for_each(|device| device.close_on(now));
        if self.phase == Phase::Closing {
            let closed = self.closing.iter().filter(|device| device.is_idle() && device.drive.is_closed());
            self.close_errors.extend(closed.filter_map(|device| device.drive.close_error()));
        }
        self.closing.retain(|device| !(device.is_idle() && device.drive.is_closed()));
    }
}
