//! A handle on a namespace that a thread of its own owns.

use std::time::Instant;

use zonda_devices::SharedConnection;
use zonda_zoned::{Command, CommandId, CompletionQueue, NamespaceId, Operation};

use crate::failure::Failure;
use crate::link::Link;

impl Link for SharedConnection {
    fn check(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn submit(&mut self, token: u64, operation: Operation) -> Result<(), Operation> {
        self.submit(Command::new(CommandId(token), NamespaceId::FIRST, operation));
        Ok(())
    }

    fn kick(&mut self) -> Result<(), Failure> {
        self.notify();
        Ok(())
    }

    fn collect(&mut self, ended: &mut CompletionQueue) -> Result<(), Failure> {
        self.poll(ended).map_err(Failure::of)
    }

    fn sleep(&mut self, until: Option<Instant>, ended: &mut CompletionQueue) -> Result<(), Failure> {
        self.wait(until, ended).map_err(Failure::of)
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        SharedConnection::close(*self).map_err(Failure::of)
    }
}
