//! [`FileStoreDevice`]: a store with its device.

use zonda_zoned::{CompletionQueue, Instant, QueueFull, ZonedDevice};

use crate::{Event, FileStore};

/// A store and the device below it, for callers that control time.
#[derive(Debug)]
pub struct FileStoreDevice<D> {
    store: FileStore,
    device: D,
    completions: CompletionQueue,
}

impl<D: ZonedDevice> FileStoreDevice<D> {
    /// Combines a store with a device. No command is submitted before the first
    /// [`run_once`](FileStoreDevice::run_once).
    pub fn new(store: FileStore, device: D) -> FileStoreDevice<D> {
        FileStoreDevice { store, device, completions: CompletionQueue::new() }
    }

    /// The store.
    pub fn store(&self) -> &FileStore {
        &self.store
    }

    /// The store, for requests.
    pub fn store_mut(&mut self) -> &mut FileStore {
        &mut self.store
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device. Completions of commands submitted to it directly must not be polled here.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Passes commands and completions until no progress is possible at `now`.
    pub fn run_once(&mut self, now: Instant) {
        loop {
            let mut moves = false;
            while let Some(command) = self.store.poll_command(now) {
                if let Err(QueueFull(command)) = self.device.submit(now, command) {
                    self.store.on_queue_full(command);
                    break;
                }
                moves = true;
            }
            self.device.poll(now, &mut self.completions);
            while let Some(completion) = self.completions.pop() {
                self.store.on_completion(now, completion);
                moves = true;
            }
            if !moves {
                return;
            }
        }
    }

    /// The store's next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.store.poll_event()
    }

    /// The next time to call [`run_once`](FileStoreDevice::run_once): the earliest instant at which
    /// the device may have a completion.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.device.next_timeout()
    }

    /// Returns the store and the device.
    pub fn into_parts(self) -> (FileStore, D) {
        (self.store, self.device)
    }
}
