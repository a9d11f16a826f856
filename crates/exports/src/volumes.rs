//! What is asked of volumes beside commands, and what they tell.

use std::path::Path;

use zonda_devices::{DriveError, VolumeReport, VolumeRequest};
use zonda_ring::Ring;

use crate::drives::Drives;
use crate::events;

impl Drives {
    /// Does what an operator asks of the volume in this directory.
    pub(crate) fn manage(
        &mut self,
        volume: &Path,
        request: &VolumeRequest,
        ring: &Ring,
    ) -> Result<VolumeReport, DriveError> {
        let mut volumes = self.each_drive().filter_map(zonda_devices::Drive::as_volume_mut);
        let Some(found) = volumes.find(|found| found.path() == volume) else {
            let message = format!("this server has no volume {}", volume.display());
            return Err(DriveError::new(message, "zonda status shows what it has"));
        };
        events::asked(volume, request);
        found.manage(request, ring)
    }

    /// The log hears what has happened to volumes since it last did.
    pub(crate) fn tell_notices(&mut self) {
        for volume in self.each_drive().filter_map(zonda_devices::Drive::as_volume_mut) {
            while let Some(notice) = volume.take_notice() {
                events::notice(volume.path(), &notice);
            }
        }
    }
}
