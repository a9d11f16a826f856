//! Management requests to volumes, and their notices.

use std::path::Path;

use zonda_devices::{DriveError, VolumeReply, VolumeRequest};
use zonda_ring::Ring;

use crate::control::ReplySender;
use crate::drives::Drives;
use crate::events;

impl Drives {
    /// Executes a management request on the volume in this directory. The reply is sent now, or by
    /// [`answer`](Drives::answer): no request blocks the loop.
    pub(crate) fn ask(&mut self, volume: &Path, request: &VolumeRequest, answer: ReplySender, ring: &Ring) {
        let mut volumes = self.each_volume();
        // The requester may have timed out.
        let Some((at, found)) = volumes.find(|(_, found)| found.path() == volume) else {
            let message = format!("this server does not serve the volume {}", volume.display());
            let _ = answer.send(Err(DriveError::new(message, "list its volumes with zonda status")));
            return;
        };
        events::asked(volume, request);
        match found.ask(request, ring) {
            VolumeReply::Done(result) => {
                if let Err(error) = &*result {
                    events::request_failed(volume, error);
                }
                let _ = answer.send(*result);
            }
            VolumeReply::Pending(id) => {
                drop(volumes);
                self.asked.push((at, id, answer));
            }
        }
    }

    /// Sends replies of completed requests.
    pub(crate) fn answer(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        let mut answers = Vec::new();
        for (at, volume) in self.each_volume() {
            while let Some((id, answer)) = volume.take_answer() {
                if let Err(error) = &answer {
                    events::request_failed(volume.path(), error);
                }
                answers.push((at, id, answer));
            }
        }
        for (at, id, answer) in answers {
            if let Some(place) = self.asked.iter().position(|(volume, asked, _)| (*volume, *asked) == (at, id)) {
                let _ = self.asked.swap_remove(place).2.send(answer);
            }
        }
    }

    /// Logs notices of volumes.
    pub(crate) fn log_notices(&mut self) {
        for (_, volume) in self.each_volume() {
            while let Some(notice) = volume.take_notice() {
                events::notice(volume.path(), &notice);
            }
        }
    }
}
