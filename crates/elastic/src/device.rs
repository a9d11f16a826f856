//! [`ElasticDevice`]: a pool on its drive, as a device.

use zonda_zoned::{
    Command, CompletionQueue, Duration, Instant, NamespaceId, Namespaces, PayloadKind, QueueFull, ZonedDevice,
};

use crate::bug::Seeded;
use crate::machine::{AdminError, NamespaceConfig, Pool, PoolEvent};
use crate::start::{Goal, Start, StartError};

/// Interval between retries of a drive that refuses commands although nothing is in flight.
const FULL_PAUSE: Duration = Duration::from_micros(100);

/// A pool and its drive. It is a device with the namespaces of the pool.
#[derive(Debug)]
pub struct ElasticDevice<D> {
    drive: D,
    state: State,
    /// The namespaces of a pool that is not open.
    none: Namespaces,
    scratch: CompletionQueue,
    retry_at: Option<Instant>,
}

#[derive(Debug)]
enum State {
    Starting(Box<Start>),
    Open(Box<Pool>),
    Refused(StartError),
}

impl<D: ZonedDevice> ElasticDevice<D> {
    /// Starts a pool on the first namespace of a drive that keeps contents of this kind.
    pub fn new(drive: D, goal: Goal, kind: PayloadKind) -> ElasticDevice<D> {
        ElasticDevice::seeded(drive, goal, kind, Seeded::NONE)
    }

    pub(crate) fn seeded(drive: D, goal: Goal, kind: PayloadKind, bug: Seeded) -> ElasticDevice<D> {
        let namespace = NamespaceId::FIRST;
        let start = Start::seeded(goal, drive.geometry(namespace).clone(), namespace, kind, bug);
        ElasticDevice {
            drive,
            state: State::Starting(Box::new(start)),
            none: Namespaces::none(),
            scratch: CompletionQueue::new(),
            retry_at: None,
        }
    }

    /// The pool, once it was read.
    pub fn pool(&self) -> Option<&Pool> {
        match &self.state {
            State::Open(pool) => Some(pool),
            _ => None,
        }
    }

    /// Why there is no pool.
    pub fn error(&self) -> Option<&StartError> {
        match &self.state {
            State::Refused(error) => Some(error),
            _ => None,
        }
    }

    /// The drive.
    pub fn drive(&self) -> &D {
        &self.drive
    }

    /// The drive, for what is not a command. Commands submitted to it directly must be polled directly.
    pub fn drive_mut(&mut self) -> &mut D {
        &mut self.drive
    }

    /// The drive; the state of the pool is lost, as in a crash.
    pub fn into_drive(self) -> D {
        self.drive
    }

    /// What has happened to the pool.
    pub fn poll_event(&mut self) -> Option<PoolEvent> {
        match &mut self.state {
            State::Open(pool) => pool.poll_event(),
            _ => None,
        }
    }

    /// Creates a namespace ([`Pool::create_namespace`]).
    ///
    /// # Errors
    /// What is wrong with the configuration, or what the drive lacks.
    ///
    /// # Panics
    /// If the pool is not open.
    pub fn create_namespace(&mut self, now: Instant, config: &NamespaceConfig) -> Result<NamespaceId, AdminError> {
        let created = self.open_pool().create_namespace(now, config);
        self.process(now);
        created
    }

    /// Changes the number of v-zones of a namespace ([`Pool::resize_namespace`]).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// If the pool is not open.
    pub fn resize_namespace(&mut self, now: Instant, id: NamespaceId, zone_count: u32) -> Result<(), AdminError> {
        let resized = self.open_pool().resize_namespace(now, id, zone_count);
        self.process(now);
        resized
    }

    /// Deletes a namespace ([`Pool::delete_namespace`]).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// If the pool is not open.
    pub fn delete_namespace(&mut self, now: Instant, id: NamespaceId) -> Result<(), AdminError> {
        let deleted = self.open_pool().delete_namespace(now, id);
        self.process(now);
        deleted
    }

    fn open_pool(&mut self) -> &mut Pool {
        match &mut self.state {
            State::Open(pool) => pool,
            _ => panic!("the pool is open before it is changed"),
        }
    }

    /// Exchanges commands and completions with the drive until neither has any at `now`.
    fn process(&mut self, now: Instant) {
        self.retry_at.take_if(|at| *at <= now);
        loop {
            self.send(now);
            let mut ended = std::mem::take(&mut self.scratch);
            self.drive.poll(now, &mut ended);
            let is_over = ended.is_empty();
            while let Some(completion) = ended.pop() {
                match &mut self.state {
                    State::Starting(start) => start.on_completion(now, completion),
                    State::Open(pool) => pool.on_completion(now, completion),
                    State::Refused(_) => {}
                }
            }
            self.scratch = ended;
            if let State::Starting(start) = &mut self.state
                && let Some(outcome) = start.take_outcome()
            {
                self.state = match outcome {
                    Ok(pool) => State::Open(Box::new(pool)),
                    Err(error) => State::Refused(error),
                };
                continue;
            }
            if is_over {
                return;
            }
        }
    }

    fn send(&mut self, now: Instant) {
        loop {
            let command = match &mut self.state {
                State::Starting(start) => start.poll_command(now),
                State::Open(pool) => pool.poll_command(now),
                State::Refused(_) => None,
            };
            let Some(command) = command else { return };
            if let Err(QueueFull(command)) = self.drive.submit(now, command) {
                match &mut self.state {
                    State::Starting(start) => start.on_queue_full(command),
                    State::Open(pool) => pool.on_queue_full(command),
                    State::Refused(_) => {}
                }
                if self.drive.next_timeout().is_none() {
                    self.retry_at = Some(now + FULL_PAUSE);
                }
                return;
            }
        }
    }
}

impl<D: ZonedDevice> ZonedDevice for ElasticDevice<D> {
    fn namespaces(&self) -> &Namespaces {
        self.pool().map_or(&self.none, Pool::namespaces)
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        match &mut self.state {
            State::Open(pool) => pool.submit(now, command)?,
            _ => return Err(QueueFull(command)),
        }
        self.process(now);
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        if let State::Open(pool) = &mut self.state
            && pool.next_timeout().is_some_and(|at| at <= now)
        {
            pool.on_timeout(now);
        }
        self.process(now);
        if let State::Open(pool) = &mut self.state {
            while let Some(completion) = pool.poll_completion() {
                completions.push(completion);
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let own = self.pool().and_then(Pool::next_timeout);
        let has_completions = self.pool().is_some_and(Pool::has_completions);
        let now = has_completions.then_some(Instant::ZERO);
        self.drive.next_timeout().into_iter().chain(own).chain(self.retry_at).chain(now).min()
    }
}
