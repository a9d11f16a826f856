//! A trace, carried out on a file store on a device.

mod order;
mod result;
mod run;
#[cfg(test)]
mod tests;

use zonda_files::{Event, FileError, FileStore, FilesConfig, FilesOn};
use zonda_zoned::{Duration, Instant, NamespaceId, ZonedDevice};

pub use result::{KindSummary, ReplayResult, TraceEnd};

use super::entry::TraceEntry;
use super::limits::SAMPLE_NS;

/// The store is of no interest to anybody after the replay.
const UUID: [u8; 16] = *b"zonda-file-trace";

/// A file store that is ready for a trace.
pub struct Replay<D> {
    files: FilesOn<D>,
    now: Instant,
}

impl<D: ZonedDevice> Replay<D> {
    /// Makes a file store on the device, whatever is on it.
    ///
    /// # Errors
    /// When the device or the configuration does not suit a store, or the device fails.
    pub fn format(device: D, config: FilesConfig, start: Instant) -> Result<Replay<D>, FileError> {
        let store = FileStore::format(device.geometry(NamespaceId::FIRST), config, UUID)?;
        let mut files = FilesOn::new(store, device);
        let mut now = start;
        loop {
            files.turn(now);
            match files.poll_event() {
                Some(Event::Ready) => return Ok(Replay { files, now }),
                Some(Event::Failed(error)) => return Err(error),
                Some(Event::Done { .. }) => unreachable!("nothing was asked for"),
                None => now = files.next_wakeup().expect("a store that is neither ready nor failed is at work"),
            }
        }
    }

    /// The device, as the trace will find it.
    #[must_use]
    pub fn device(&self) -> &D {
        self.files.device()
    }

    /// Carries the trace out, and waits until the device is at rest.
    #[must_use]
    pub fn run(self, entries: impl IntoIterator<Item = TraceEntry>) -> (ReplayResult, D) {
        run::Run::new(self.files, self.now, Duration(SAMPLE_NS), entries.into_iter()).finished()
    }
}
