//! [`FilesOn`]: a store with its device.

use zonda_zoned::{CompletionQueue, Instant, QueueFull, ZonedDevice};

use crate::{Event, FileStore};

/// A store and the device below it, for callers that step time.
#[derive(Debug)]
pub struct FilesOn<D> {
    store: FileStore,
    device: D,
    completions: CompletionQueue,
}

impl<D: ZonedDevice> FilesOn<D> {
    /// Puts a store on a device. Nothing moves before the first [`turn`](FilesOn::turn).
    pub fn new(store: FileStore, device: D) -> FilesOn<D> {
        FilesOn { store, device, completions: CompletionQueue::new() }
    }

    /// The store.
    pub fn store(&self) -> &FileStore {
        &self.store
    }

    /// The store, to make requests of.
    pub fn store_mut(&mut self) -> &mut FileStore {
        &mut self.store
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device. What is submitted to it directly must not be polled for here.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Moves commands and completions until nothing moves at `now`.
    pub fn turn(&mut self, now: Instant) {
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

    /// When to turn again: the earliest instant at which the device may have news.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.device.next_wakeup()
    }

    /// The store and the device again.
    pub fn into_parts(self) -> (FileStore, D) {
        (self.store, self.device)
    }
}
