//! The replay of a trace on a file store on a device.

mod order;
mod result;
mod run;
#[cfg(test)]
mod tests;

use zonda_files::{Event, FileError, FileStore, FileStoreDevice, FilesConfig};
use zonda_zoned::{Duration, Instant, NamespaceId, ZonedDevice};

pub use result::{KindSummary, ReplayResult, TraceEnd};

use super::entry::TraceEntry;
use super::limits::SAMPLE_NS;

/// The UUID of the store, which is not used after the replay.
const UUID: [u8; 16] = *b"zonda-file-trace";

/// A file store that is ready for a trace.
pub struct Replay<D> {
    files: FileStoreDevice<D>,
    now: Instant,
}

impl<D: ZonedDevice> Replay<D> {
    /// Formats a file store on the device, and discards its contents.
    ///
    /// # Errors
    /// When the device or the configuration is not suitable for a store, or the device fails.
    pub fn format(device: D, config: FilesConfig, start: Instant) -> Result<Replay<D>, FileError> {
        let store = FileStore::format(device.geometry(NamespaceId::FIRST), config, UUID)?;
        let mut files = FileStoreDevice::new(store, device);
        let mut now = start;
        loop {
            files.run_once(now);
            match files.poll_event() {
                Some(Event::Ready) => return Ok(Replay { files, now }),
                Some(Event::Failed(error)) => return Err(error),
                Some(Event::Done { .. }) => unreachable!("no request was submitted"),
                None => {
                    now =
                        files.next_timeout().expect("a store that is neither ready nor failed has commands in flight");
                }
            }
        }
    }

    /// The device before the replay.
    #[must_use]
    pub fn device(&self) -> &D {
        self.files.device()
    }

    /// Replays the trace, and waits until the device is idle.
    #[must_use]
    pub fn run(self, entries: impl IntoIterator<Item = TraceEntry>) -> (ReplayResult, D) {
        run::Run::new(self.files, self.now, Duration(SAMPLE_NS), entries.into_iter()).finished()
    }
}
