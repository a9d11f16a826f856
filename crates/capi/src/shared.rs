//! A handle's side of the channels to an owner.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use zonda_zoned::{Completion, CompletionQueue, Operation};

use crate::failure::Failure;
use crate::link::Link;
use crate::owner::{ClientId, Owner, Request, failed};
use crate::registry::Slot;

/// A handle on a shared namespace.
pub(crate) struct Shared {
    owner: Arc<Owner>,
    slot: Arc<Slot>,
    client: ClientId,
    completions: Receiver<Completion>,
    /// The owner was not woken since the last submission.
    needs_wake: bool,
    spin: Duration,
}

impl Shared {
    pub(crate) fn new(slot: Arc<Slot>, owner: Arc<Owner>, spin: Duration) -> Shared {
        let (client, completions) = owner.join();
        Shared { owner, slot, client, completions, needs_wake: false, spin }
    }

    fn wait_for_one(&mut self, until: Option<Instant>) -> Result<Option<Completion>, Failure> {
        if !self.spin.is_zero() {
            let begin = Instant::now();
            while begin.elapsed() < self.spin && until.is_none_or(|until| Instant::now() < until) {
                match self.completions.try_recv() {
                    Ok(completion) => return Ok(Some(completion)),
                    Err(TryRecvError::Disconnected) => return Err(Failure::of(failed())),
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
            Err(RecvTimeoutError::Disconnected) => Err(Failure::of(failed())),
        }
    }
}

impl Link for Shared {
    fn check(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn submit(&mut self, token: u64, operation: Operation) -> Result<(), Operation> {
        self.owner.send(Request::Submit { client: self.client, token, operation });
        self.needs_wake = true;
        Ok(())
    }

    fn kick(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.needs_wake) {
            self.owner.wake();
        }
        Ok(())
    }

    fn collect(&mut self, ended: &mut CompletionQueue) -> Result<(), Failure> {
        loop {
            match self.completions.try_recv() {
                Ok(completion) => ended.push(completion),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(Failure::of(failed())),
            }
        }
    }

    fn sleep(&mut self, until: Option<Instant>, ended: &mut CompletionQueue) -> Result<(), Failure> {
        self.kick()?;
        if let Some(completion) = self.wait_for_one(until)? {
            ended.push(completion);
            self.collect(ended)?;
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        let Shared { owner, slot, client, .. } = *self;
        owner.send(Request::Leave(client));
        slot.release(owner).map_err(Failure::of)
    }
}
