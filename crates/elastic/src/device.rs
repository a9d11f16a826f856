//! [`ElasticDevice`]: a pool on its drive, as a device.
//!
//! A pool is opened again where it is if it could do more then, and on another connection to its drive
//! if the one that it had is lost. Its hosts see the same namespaces all the time.

use zonda_zoned::{
    Command, Completion, CompletionQueue, Duration, Instant, NamespaceId, Namespaces, PayloadKind, QueueFull,
    ZonedDevice,
};

use crate::bug::Seeded;
use crate::limits::{REOPEN_PAUSE_MAX, REOPEN_PAUSE_MIN};
use crate::machine::{Activity, AdminError, NamespaceConfig, Pool, PoolEvent};
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
    kind: PayloadKind,
    bug: Seeded,
    reopen: Reopen,
}

/// When a pool that could do more after another mount is opened again.
#[derive(Debug)]
struct Reopen {
    at: Option<Instant>,
    pause: Duration,
}

#[derive(Debug)]
enum State {
    Starting(Box<Start>),
    Open(Box<Pool>),
    /// It is opened again. Meanwhile its hosts see the namespaces that it had.
    Reopening {
        before: Box<Pool>,
        start: Box<Start>,
        is_reconnected: bool,
    },
    /// The connection to its drive is lost, or what was behind another one was refused.
    Lost {
        before: Box<Pool>,
        error: Option<StartError>,
    },
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
            kind,
            bug,
            reopen: Reopen { at: None, pause: REOPEN_PAUSE_MIN },
        }
    }

    /// The pool, once it was read.
    pub fn pool(&self) -> Option<&Pool> {
        match &self.state {
            State::Open(pool) | State::Reopening { before: pool, .. } | State::Lost { before: pool, .. } => Some(pool),
            State::Starting(_) | State::Refused(_) => None,
        }
    }

    /// What the pool is doing; `None` if it is not open.
    pub fn activity(&self) -> Option<Activity> {
        let is_reopening = |activity: Activity| Activity { is_reopening: true, ..activity };
        match &self.state {
            State::Open(pool) => Some(pool.activity()),
            State::Reopening { before, .. } | State::Lost { before, .. } => Some(is_reopening(before.activity())),
            State::Starting(_) | State::Refused(_) => None,
        }
    }

    /// Whether the pool has nothing to do, and the drive nothing of it: the drive can be closed.
    pub fn is_quiescent(&self) -> bool {
        matches!(&self.state, State::Open(pool) if pool.is_quiescent())
    }

    /// Why there is no pool, or it does not continue on its last drive.
    pub fn error(&self) -> Option<&StartError> {
        match &self.state {
            State::Refused(error) => Some(error),
            State::Lost { error, .. } => error.as_ref(),
            _ => None,
        }
    }

    /// The connection to the drive is lost. The pool takes no commands until it
    /// [continues](ElasticDevice::continue_on) on another one; those that it has do not complete.
    ///
    /// # Panics
    /// If there is no pool.
    pub fn lose_drive(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Refused(StartError::NoPool));
        let (State::Open(before) | State::Reopening { before, .. } | State::Lost { before, .. }) = state else {
            panic!("a pool that was mounted loses its drive")
        };
        let mut before = before;
        before.pause();
        (self.retry_at, self.reopen.at) = (None, None);
        self.state = State::Lost { before, error: None };
    }

    /// Opens the pool again over another connection to its drive. It is refused, as
    /// [`error`](ElasticDevice::error) reports, if that is not the pool as it was left. Returns the
    /// connection before.
    ///
    /// # Panics
    /// If the connection before is not lost: commands would be sent twice.
    pub fn continue_on(&mut self, drive: D) -> D {
        let state = std::mem::replace(&mut self.state, State::Refused(StartError::NoPool));
        let State::Lost { before, .. } = state else { panic!("a drive is replaced once its connection is lost") };
        let drive = std::mem::replace(&mut self.drive, drive);
        self.retry_at = None;
        self.state = State::Reopening { start: self.start_again(&before), before, is_reconnected: true };
        drive
    }

    fn start_again(&self, before: &Pool) -> Box<Start> {
        let goal = Goal::Mount { id: Some(before.id()), epoch_min: before.epoch() - 1 };
        let namespace = NamespaceId::FIRST;
        let start = Start::seeded(goal, self.drive.geometry(namespace).clone(), namespace, self.kind, self.bug);
        Box::new(start.again_after(before))
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
            State::Open(pool) | State::Reopening { before: pool, .. } | State::Lost { before: pool, .. } => pool,
            _ => panic!("the pool is open before it is changed"),
        }
    }

    /// Exchanges commands and completions with the drive until neither has any at `now`.
    fn process(&mut self, now: Instant) {
        self.retry_at.take_if(|at| *at <= now);
        loop {
            let (drive, scratch) = (&mut self.drive, &mut self.scratch);
            let (has_more, is_stuck) = match &mut self.state {
                State::Open(pool) => pool.exchange(drive, now, scratch),
                State::Starting(start) | State::Reopening { start, .. } => start.exchange(drive, now, scratch),
                State::Lost { .. } | State::Refused(_) => Lost.exchange(drive, now, scratch),
            };
            if is_stuck {
                self.retry_at = Some(now + FULL_PAUSE);
            }
            if !self.take_outcome() && !has_more && !self.reopen_if_due(now) {
                return;
            }
        }
    }

    /// Whether a start has ended.
    fn take_outcome(&mut self) -> bool {
        let (State::Starting(start) | State::Reopening { start, .. }) = &mut self.state else { return false };
        let Some(outcome) = start.take_outcome() else { return false };
        let state = std::mem::replace(&mut self.state, State::Refused(StartError::NoPool));
        self.state = match (outcome, state) {
            (Ok(mut pool), State::Reopening { before, is_reconnected, .. }) => {
                match pool.lacks(&before).filter(|_| is_reconnected) {
                    Some((namespace, zone)) => {
                        State::Lost { before, error: Some(StartError::Lacks { namespace, zone }) }
                    }
                    None => {
                        pool.succeed(*before);
                        State::Open(Box::new(pool))
                    }
                }
            }
            (Ok(pool), _) => State::Open(Box::new(pool)),
            // What it knows of its drive may not hold for this one.
            (Err(error), State::Reopening { before, is_reconnected: true, .. }) => {
                State::Lost { before, error: Some(error) }
            }
            (Err(_), State::Reopening { mut before, .. }) => {
                before.resume();
                State::Open(before)
            }
            (Err(error), _) => State::Refused(error),
        };
        true
    }

    /// Whether a pool that could do more after another mount begins it.
    fn reopen_if_due(&mut self, now: Instant) -> bool {
        let State::Open(pool) = &mut self.state else { return false };
        if !pool.must_reopen() {
            if pool.is_started() {
                self.reopen = Reopen { at: None, pause: REOPEN_PAUSE_MIN };
            }
            return false;
        }
        let at = *self.reopen.at.get_or_insert(now + self.reopen.pause);
        if now < at {
            return false;
        }
        pool.pause();
        if !pool.is_quiescent() || pool.has_completions() {
            return false;
        }
        let pause = self.reopen.pause;
        self.reopen = Reopen { at: None, pause: Duration((pause.0 * 2).min(REOPEN_PAUSE_MAX.0)) };
        let state = std::mem::replace(&mut self.state, State::Refused(StartError::NoPool));
        let State::Open(before) = state else { unreachable!("it was just looked at") };
        self.state = State::Reopening { start: self.start_again(&before), before, is_reconnected: false };
        true
    }
}

/// What has commands for a drive.
trait Submitter {
    fn poll_command(&mut self, now: Instant) -> Option<Command>;
    fn on_queue_full(&mut self, command: Command);
    fn on_completion(&mut self, now: Instant, completion: Completion);

    /// Whether completions may have left commands to submit.
    fn has_commands(&self) -> bool {
        true
    }

    /// Submits commands to a drive. Returns whether it has refused one although nothing is in flight.
    #[inline]
    fn send<D: ZonedDevice>(&mut self, drive: &mut D, now: Instant) -> bool {
        while let Some(command) = self.poll_command(now) {
            if let Err(QueueFull(command)) = drive.submit(now, command) {
                self.on_queue_full(command);
                return drive.next_timeout().is_none();
            }
        }
        false
    }

    /// Exchanges commands and completions with a drive once. Returns whether there is more to exchange after
    /// completions, and whether the drive has refused a command.
    #[inline]
    fn exchange<D: ZonedDevice>(&mut self, drive: &mut D, now: Instant, scratch: &mut CompletionQueue) -> (bool, bool) {
        let is_stuck = self.send(drive, now);
        drive.poll(now, scratch);
        let has_completions = !scratch.is_empty();
        while let Some(completion) = scratch.pop() {
            self.on_completion(now, completion);
        }
        // A drive for which nothing is due has nothing more, and is not asked again.
        let is_due = || drive.next_timeout().is_some_and(|at| at <= now);
        (has_completions && (self.has_commands() || is_due()), is_stuck)
    }
}

impl Submitter for Pool {
    #[inline]
    fn poll_command(&mut self, now: Instant) -> Option<Command> {
        Pool::poll_command(self, now)
    }

    fn on_queue_full(&mut self, command: Command) {
        Pool::on_queue_full(self, command);
    }

    fn on_completion(&mut self, now: Instant, completion: Completion) {
        Pool::on_completion(self, now, completion);
    }

    #[inline]
    fn has_commands(&self) -> bool {
        Pool::has_commands(self)
    }
}

impl Submitter for Start {
    fn poll_command(&mut self, now: Instant) -> Option<Command> {
        Start::poll_command(self, now)
    }

    fn on_queue_full(&mut self, command: Command) {
        Start::on_queue_full(self, command);
    }

    fn on_completion(&mut self, now: Instant, completion: Completion) {
        Start::on_completion(self, now, completion);
    }
}

/// After the loss of its pool, the drive has commands that no one waits for.
struct Lost;

impl Submitter for Lost {
    fn poll_command(&mut self, _now: Instant) -> Option<Command> {
        None
    }

    fn on_queue_full(&mut self, _command: Command) {}

    fn on_completion(&mut self, _now: Instant, _completion: Completion) {}
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
        // What the drive has completed waits for a poll, which is due by then.
        self.retry_at.take_if(|at| *at <= now);
        if let State::Open(pool) = &mut self.state
            && pool.send(&mut self.drive, now)
        {
            self.retry_at = Some(now + FULL_PAUSE);
        }
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
            pool.take_completions(completions);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let open = if let State::Open(pool) = &self.state { Some(pool) } else { None };
        let own = open.and_then(|pool| pool.next_timeout());
        // A pool that is paused waits for the drive, if that has commands of it.
        let reopen = self.reopen.at.filter(|_| open.is_none_or(|pool| !pool.is_paused() || pool.is_quiescent()));
        let has_completions = open.is_some_and(|pool| pool.has_completions());
        let now = has_completions.then_some(Instant::ZERO);
        self.drive.next_timeout().into_iter().chain(own).chain(self.retry_at).chain(reopen).chain(now).min()
    }
}
