//! [`SharedConnection`]: a namespace in a thread of its own, for programs with several threads.

mod owner;
mod registry;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use zonda_zoned::{Command, CommandId, Completion, CompletionQueue, Geometry, NamespaceId, Operation};

use crate::{DriveError, Location, NamespaceOptions};
use owner::{ClientId, Owner, Request, failed};
use registry::Slot;

/// A handle on a namespace that an owner thread has opened. Handles can be opened, cloned, used and
/// closed in any thread; the first one starts the owner thread of the namespace, and the last one
/// that is closed closes the namespace.
///
/// An image can be opened only once, by one thread, because its ring belongs to that thread; so
/// programs with several threads use it like this. The cost is two thread switches for each
/// command, and the CPU time of one thread for all handles. Data cross threads by reference. A
/// program that uses a namespace in one thread needs only a [`Connection`](crate::Connection).
///
/// Each handle has its own command ids and gets the completions of its own commands. Commands of one
/// handle are executed in the order in which they were submitted. They wait in the owner thread
/// while the queue of the namespace is full, so the number of outstanding commands is limited only
/// by the caller.
///
/// A namespace is found by its canonical path or its URL. Handles on a server share a connection if
/// they were opened with the same host, secrets, digests and queues; otherwise each such group has
/// a connection of its own.
///
/// ```
/// # use zonda_devices::{create_image, sized};
/// # use zonda_ssd::description::Profiles;
/// # let directory = tempfile::tempdir().expect("there is space");
/// # let path = directory.path().join("image");
/// # let profiles = Profiles::without_files(zonda_profiles::BUILTIN);
/// # let spec = sized("tiny", None, None, &profiles).expect("the profile is built in");
/// # create_image(&path, &spec.plan(&profiles).expect("it is valid")).expect("there is space");
/// use zonda_devices::{Location, NamespaceOptions, SharedConnection};
/// use zonda_zoned::{Blocks, Lba, Operation, Payload};
///
/// let connection = SharedConnection::open(&Location::Image(path), &NamespaceOptions::default())?;
/// let zone_size = connection.geometry().zone_size_blocks.0;
/// let writers = [0, 1].map(|zone| {
///     let mut connection = connection.clone();
///     std::thread::spawn(move || {
///         // A block of zeros, at the write pointer of a zone of this thread.
///         let write = Operation::Write { start: Lba(zone * zone_size), blocks: Blocks(1), payload: Payload::None };
///         connection.execute(write).map(|completion| completion.status.is_success())
///     })
/// });
/// for writer in writers {
///     assert!(writer.join().expect("it does not panic")?);
/// }
/// connection.close()?;
/// # Ok::<(), zonda_devices::DriveError>(())
/// ```
pub struct SharedConnection {
    /// `None` only after closing.
    owner: Option<Arc<Owner>>,
    slot: Arc<Slot>,
    client: ClientId,
    completions: Receiver<Completion>,
    /// Commands whose completion was not received.
    outstanding: u64,
    /// The owner was not woken since the last submission.
    needs_wake: bool,
    spin: Duration,
    /// Commands of `execute` so far.
    executed: u64,
}

impl SharedConnection {
    /// A handle on an image or on a namespace of a server, which is opened if this process has no
    /// other handle on it.
    ///
    /// # Errors
    /// As [`Connection::open`](crate::Connection::open).
    pub fn open(location: &Location, options: &NamespaceOptions) -> Result<SharedConnection, DriveError> {
        let (slot, owner) = registry::owner(location, options)?;
        Ok(SharedConnection::new(slot, owner, Duration::from_nanos(options.spin.0)))
    }

    fn new(slot: Arc<Slot>, owner: Arc<Owner>, spin: Duration) -> SharedConnection {
        let (client, completions) = owner.join();
        SharedConnection {
            owner: Some(owner),
            slot,
            client,
            completions,
            outstanding: 0,
            needs_wake: false,
            spin,
            executed: 0,
        }
    }

    /// The namespace's shape and limits when it was opened.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        self.owner().geometry()
    }

    /// Number of commands whose completions were not received yet.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Submits a command, which is sent by the next [`notify`](SharedConnection::notify),
    /// [`poll`](SharedConnection::poll) or [`wait`](SharedConnection::wait). If the owner thread
    /// has failed, these report it.
    pub fn submit(&mut self, command: Command) {
        self.owner().send(Request::Submit(self.client, command));
        self.outstanding += 1;
        self.needs_wake = true;
    }

    /// Wakes the owner thread for commands that were submitted, without waiting.
    pub fn notify(&mut self) {
        if std::mem::take(&mut self.needs_wake) {
            self.owner().wake();
        }
    }

    /// Sends submitted commands, and adds the completions that have arrived to `completions`,
    /// without waiting.
    ///
    /// # Errors
    /// When the owner thread has failed: the handle can only be closed.
    pub fn poll(&mut self, completions: &mut CompletionQueue) -> Result<(), DriveError> {
        self.notify();
        loop {
            match self.completions.try_recv() {
                Ok(completion) => self.received(completion, completions),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(failed()),
            }
        }
    }

    /// Sends submitted commands, sleeps until a completion arrives or until the time `until`, and
    /// adds the completions that have arrived to `completions`. Without a time, it returns at once
    /// if no command is outstanding.
    ///
    /// # Errors
    /// As [`poll`](SharedConnection::poll).
    pub fn wait(&mut self, until: Option<Instant>, completions: &mut CompletionQueue) -> Result<(), DriveError> {
        self.notify();
        if self.outstanding == 0 && until.is_none() {
            return Ok(());
        }
        if let Some(completion) = self.wait_for_one(until)? {
            self.received(completion, completions);
            self.poll(completions)?;
        }
        Ok(())
    }

    /// Executes one operation, and waits for its completion. A command that fails returns a
    /// completion with its status.
    ///
    /// # Errors
    /// As [`poll`](SharedConnection::poll).
    ///
    /// # Panics
    /// If another command of this handle is outstanding.
    pub fn execute(&mut self, operation: Operation) -> Result<Completion, DriveError> {
        assert_eq!(self.outstanding, 0, "no other command is outstanding");
        self.executed += 1;
        self.submit(Command::new(CommandId(self.executed), NamespaceId::FIRST, operation));
        let mut completions = CompletionQueue::new();
        self.wait(None, &mut completions)?;
        Ok(completions.pop().expect("a wait without a time ends with a completion"))
    }

    /// Closes the handle. Outstanding commands are executed, and their completions dropped. The
    /// last handle on a namespace closes it and ends the owner thread; only then can another
    /// process open an image.
    ///
    /// # Errors
    /// For the last handle, as [`Connection::close`](crate::Connection::close); or when the owner
    /// thread has failed. Dropping a handle closes it too, and ignores the error.
    pub fn close(mut self) -> Result<(), DriveError> {
        self.leave()
    }

    fn leave(&mut self) -> Result<(), DriveError> {
        let Some(owner) = self.owner.take() else { return Ok(()) };
        owner.send(Request::Leave(self.client));
        if std::mem::take(&mut self.needs_wake) {
            owner.wake();
        }
        self.slot.release(owner)
    }

    fn owner(&self) -> &Owner {
        self.owner.as_ref().expect("the handle is not closed")
    }

    fn received(&mut self, completion: Completion, completions: &mut CompletionQueue) {
        self.outstanding -= 1;
        completions.push(completion);
    }

    fn wait_for_one(&mut self, until: Option<Instant>) -> Result<Option<Completion>, DriveError> {
        if !self.spin.is_zero() {
            let begin = Instant::now();
            while begin.elapsed() < self.spin && until.is_none_or(|until| Instant::now() < until) {
                match self.completions.try_recv() {
                    Ok(completion) => return Ok(Some(completion)),
                    Err(TryRecvError::Disconnected) => return Err(failed()),
                    Err(TryRecvError::Empty) => std::hint::spin_loop(),
                }
            }
        }
        let received = match until {
            None => self.completions.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(until) => self.completions.recv_timeout(until.saturating_duration_since(Instant::now())),
        };
        match received {
            Ok(completion) => Ok(Some(completion)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(failed()),
        }
    }
}

impl Clone for SharedConnection {
    /// A further handle, without outstanding commands.
    fn clone(&self) -> SharedConnection {
        let owner = self.owner.as_ref().expect("the handle is not closed");
        SharedConnection::new(Arc::clone(&self.slot), Arc::clone(owner), self.spin)
    }
}

impl Drop for SharedConnection {
    fn drop(&mut self) {
        let _ = self.leave();
    }
}
