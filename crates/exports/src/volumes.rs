//! What is asked of volumes beside commands, and what they tell.

use std::path::Path;

use zonda_devices::{Asked, DriveError, VolumeRequest};
use zonda_ring::Ring;

use crate::control::Answerer;
use crate::drives::Drives;
use crate::events;

impl Drives {
    /// Takes what an operator asks of the volume in this directory. The answer is sent now, or by [`answer`](Drives::answer): no
    /// request stops the loop.
    pub(crate) fn ask(&mut self, volume: &Path, request: &VolumeRequest, answer: Answerer, ring: &Ring) {
        let mut volumes = self.each_drive().enumerate().filter_map(|(at, drive)| Some((at, drive.as_volume_mut()?)));
        // Who asked may have stopped waiting.
        let Some((at, found)) = volumes.find(|(_, found)| found.path() == volume) else {
            let message = format!("this server has no volume {}", volume.display());
            let _ = answer.send(Err(DriveError::new(message, "zonda status shows what it has")));
            return;
        };
        events::asked(volume, request);
        match found.ask(request, ring) {
            Asked::Answered(result) => {
                let _ = answer.send(*result);
            }
            Asked::Later(id) => {
                drop(volumes);
                self.asked.push((at, id, answer));
            }
        }
    }

    /// Sends the answers that have come since.
    pub(crate) fn answer(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        let mut answers = Vec::new();
        for (at, drive) in self.each_drive().enumerate() {
            let Some(volume) = drive.as_volume_mut() else { continue };
            answers.extend(std::iter::from_fn(|| volume.take_answer()).map(|(id, answer)| (at, id, answer)));
        }
        for (at, id, answer) in answers {
            if let Some(place) = self.asked.iter().position(|(volume, asked, _)| (*volume, *asked) == (at, id)) {
                let _ = self.asked.swap_remove(place).2.send(answer);
            }
        }
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
