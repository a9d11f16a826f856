//! An exclusive connection of a handle, in the thread that opened it.

use std::thread::ThreadId;
use std::time::Instant;

use rustix::io::Errno;
use zonda_devices::Connection;
use zonda_zoned::{Command, CommandId, CompletionQueue, Duration, NamespaceId, Operation, QueueFull};

use crate::failure::Failure;
use crate::link::Link;

/// Connection and ring of one handle. The ring is bound to its thread (io_uring with a single
/// issuer), so the handle is.
pub(crate) struct Own {
    connection: Connection,
    thread: ThreadId,
    /// Completions found while commands were sent, for the next `collect`.
    ended: CompletionQueue,
}

impl Own {
    pub(crate) fn new(connection: Connection) -> Own {
        Own { connection, thread: std::thread::current().id(), ended: CompletionQueue::new() }
    }
}

impl Own {
    fn take(&mut self, ended: &mut CompletionQueue) {
        while let Some(completion) = self.ended.pop() {
            ended.push(completion);
        }
        self.connection.poll(ended);
    }
}

impl Link for Own {
    fn check(&self) -> Result<(), Failure> {
        // A child after fork() passes, because its thread has the same id; the handle checks the
        // process.
        if std::thread::current().id() == self.thread {
            return Ok(());
        }
        Err(Failure::new(
            Errno::PERM,
            "the namespace was opened by another thread, and is not shared",
            "open it in the thread that uses it, or with sharing = ZONDA_SHARE_YES",
        ))
    }

    fn submit(&mut self, token: u64, operation: Operation) -> Result<(), Operation> {
        let command = Command::new(CommandId(token), NamespaceId::FIRST, operation);
        self.connection.submit(command).map_err(|QueueFull(command)| command.operation)
    }

    fn kick(&mut self) -> Result<(), Failure> {
        // Commands leave a connection when it is polled, those of a batch together.
        self.connection.poll(&mut self.ended);
        let now = self.connection.now();
        self.connection.run_once(Some(now)).map_err(Failure::of)
    }

    fn collect(&mut self, ended: &mut CompletionQueue) -> Result<(), Failure> {
        self.take(ended);
        Ok(())
    }

    fn sleep(&mut self, until: Option<Instant>, ended: &mut CompletionQueue) -> Result<(), Failure> {
        // Operations that a device ends at once, such as refused ones, wake no ring.
        self.take(ended);
        let now = self.connection.now();
        let until = if ended.is_empty() { until } else { Some(Instant::now()) };
        let until = until.map(|until| {
            let span = until.saturating_duration_since(Instant::now());
            now + Duration(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
        });
        self.connection.run_once(until).map_err(Failure::of)?;
        self.connection.poll(ended);
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        self.connection.close().map_err(Failure::of)
    }
}
