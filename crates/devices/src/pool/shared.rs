//! [`OpenPool`]: a mounted pool on its drive, and the namespaces of it that are in use.
//!
//! Each user of a namespace has a queue of completions of its own. Whoever polls delivers the
//! completions of all, so that one server can poll its namespaces one after the other.

use std::collections::{BTreeMap, VecDeque};

use zonda_elastic::{ElasticDevice, Pool, PoolEvent};
use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Geometry, Instant, Key, NamespaceId, Operation, QueueFull, Slab,
    Status, ZonedDevice,
};

use super::base::{PoolBase, PoolOpenOptions};
use super::directory::PoolDirectory;
use super::manage::Pending;
use super::ownership::Ownership;
use super::reconnect::Reconnect;
use super::report::PoolReport;
use crate::DriveError;

/// Commands of one namespace in the pool at a time: a tenant with many outstanding commands leaves
/// most of [`zonda_elastic::limits::COMMANDS_MAX`] to others.
const NAMESPACE_COMMANDS_MAX: usize = 512;
/// Identifies the flush before the drive is closed: no other command is in flight then.
const FLUSH: CommandId = CommandId(0);

const _: () = assert!(
    NAMESPACE_COMMANDS_MAX * 8 <= zonda_elastic::limits::COMMANDS_MAX,
    "eight tenants at their limits do not delay one another"
);

/// The device of a pool.
pub(super) type PoolOnDrive = ElasticDevice<PoolBase>;

/// A number of a user of a namespace, which is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UserId(u64);

/// A user of a namespace.
#[derive(Debug)]
pub(super) struct User {
    pub(super) namespace: NamespaceId,
    pub(super) completions: CompletionQueue,
    outstanding: usize,
    is_closing: bool,
}

/// A command in the pool.
struct Flight {
    user: UserId,
    /// As its user knows it.
    id: CommandId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// The connection to the drive is lost: commands wait until it is made again.
    Lost,
    /// No namespace is in use: background operations of the pool complete.
    Quiescing,
    /// The drive is flushed; whether the command was submitted.
    Flushing(bool),
    /// Another owner has the pool: until when to wait for its name.
    TakenOver(Instant),
    /// The drive is closing.
    Closing,
}

/// A mounted pool.
pub(super) struct OpenPool {
    pub(super) device: PoolOnDrive,
    pub(super) directory: PoolDirectory,
    /// With the scheduler that was chosen for the drive.
    pub(super) options: PoolOpenOptions,
    flights: Slab<Flight>,
    users: BTreeMap<UserId, User>,
    next_user: u64,
    pub(super) phase: Phase,
    pub(super) ownership: Ownership,
    now: Instant,
    scratch: CompletionQueue,
    pub(super) pending: Pending,
    /// The UUIDs of namespaces that are being deleted.
    pub(super) leaving: BTreeMap<NamespaceId, [u8; 16]>,
    pub(super) warnings: VecDeque<String>,
    pub(super) reconnect: Reconnect,
    pub(super) close_error: Option<String>,
}

impl OpenPool {
    pub(super) fn new(device: PoolOnDrive, directory: PoolDirectory) -> OpenPool {
        let mut open = OpenPool {
            device,
            directory,
            options: PoolOpenOptions::default(),
            flights: Slab::new(),
            users: BTreeMap::new(),
            next_user: 0,
            phase: Phase::Open,
            ownership: Ownership::default(),
            now: Instant::ZERO,
            scratch: CompletionQueue::new(),
            pending: Pending::default(),
            leaving: BTreeMap::new(),
            warnings: VecDeque::new(),
            reconnect: Reconnect::default(),
            close_error: None,
        };
        open.share_by_weights();
        open
    }

    /// Passes the weights of the namespaces to the scheduler.
    pub(super) fn share_by_weights(&mut self) {
        let weights = self.pool().weights();
        self.device.drive_mut().set_weights(weights);
    }

    pub(super) fn pool(&self) -> &Pool {
        self.device.pool().expect("the pool was mounted before it is used")
    }

    /// The geometry of its drive.
    pub(super) fn drive_geometry(&self) -> &Geometry {
        self.device.drive().member().geometry(NamespaceId::FIRST)
    }

    pub(super) fn report(&self) -> PoolReport {
        let activity = self.device.activity().expect("the pool was mounted before it is used");
        PoolReport {
            scheduler: self.device.drive().scheduler().map(str::to_owned),
            is_disconnected: self.phase == Phase::Lost,
            is_drive_refused: self.phase == Phase::Lost && self.reconnect.is_refused(),
            is_taken_over: self.ownership.is_taken(),
            ..PoolReport::of(self.pool(), activity, self.drive_geometry(), self.directory.drive())
        }
    }

    /// Users may pass an earlier time than another one has.
    pub(super) fn advance(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }

    /// Whether it takes commands, now or once its drive is connected again.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Lost)
    }

    /// Whether the connection to the drive is lost: commands wait, maybe for ever.
    pub(super) fn is_lost(&self) -> bool {
        self.phase == Phase::Lost
    }

    /// Whether a namespace is in use.
    pub(super) fn has_users(&self) -> bool {
        !self.users.is_empty()
    }

    /// Whether a user has this namespace.
    pub(super) fn is_used(&self, namespace: NamespaceId) -> bool {
        self.users.values().any(|user| user.namespace == namespace)
    }

    pub(super) fn add_user(&mut self, namespace: NamespaceId) -> UserId {
        let id = UserId(self.next_user);
        self.next_user += 1;
        let user = User { namespace, completions: CompletionQueue::new(), outstanding: 0, is_closing: false };
        self.users.insert(id, user);
        id
    }

    /// Removes a user: completions of its commands are discarded.
    pub(super) fn remove_user(&mut self, id: UserId) {
        self.users.remove(&id);
    }

    pub(super) fn user(&self, id: UserId) -> &User {
        &self.users[&id]
    }

    pub(super) fn user_mut(&mut self, id: UserId) -> &mut User {
        self.users.get_mut(&id).expect("a user exists until it is removed")
    }

    pub(super) fn submit(&mut self, now: Instant, user: UserId, command: Command) -> Result<(), QueueFull> {
        let is_taken = self.ownership.is_taken();
        assert!(self.is_open() || is_taken, "a pool that is being closed takes no commands");
        let now = self.advance(now);
        let own = self.user_mut(user);
        if own.outstanding >= NAMESPACE_COMMANDS_MAX {
            return Err(QueueFull(command));
        }
        if is_taken || command.namespace != NamespaceId::FIRST {
            let status = if is_taken { Status::InternalError } else { Status::InvalidNamespace };
            own.completions.push(Completion::of(command.id, status));
            return Ok(());
        }
        if self.ownership.holds(self.device.drive().member(), now) {
            self.pass_on(now, user, command)?;
        } else {
            self.ownership.hold(user, command);
        }
        self.user_mut(user).outstanding += 1;
        Ok(())
    }

    /// Submits a command of a user, which counts as outstanding already, to the pool.
    pub(super) fn pass_on(&mut self, now: Instant, user: UserId, mut command: Command) -> Result<(), QueueFull> {
        // The user may be gone.
        let Some(own) = self.users.get(&user) else { return Ok(()) };
        let (namespace, id) = (own.namespace, command.id);
        let key = self.flights.insert(Flight { user, id });
        (command.id, command.namespace) = (key.into(), namespace);
        if let Err(QueueFull(mut command)) = self.device.submit(now, command) {
            self.flights.remove(key);
            (command.id, command.namespace) = (id, NamespaceId::FIRST);
            return Err(QueueFull(command));
        }
        Ok(())
    }

    /// Makes progress, and delivers completions to their users.
    pub(super) fn poll(&mut self, now: Instant) {
        let now = self.advance(now);
        let mut ended = std::mem::take(&mut self.scratch);
        if matches!(self.phase, Phase::Open | Phase::Quiescing) {
            self.device.poll(now, &mut ended);
            if self.look_for_conflict(now) {
                // Their users were answered.
                ended = CompletionQueue::new();
            }
            while let Some(completion) = ended.pop() {
                self.deliver(completion);
            }
            let is_owner = matches!(self.phase, Phase::Open | Phase::Quiescing);
            if is_owner && !self.look_for_lost_connection(now) {
                self.keep_ownership(now);
                self.look_for_refusal(now);
            }
            while let Some(event) = self.device.poll_event() {
                self.on_event(event);
            }
            if self.phase == Phase::Quiescing && self.device.is_quiescent() {
                self.phase = Phase::Flushing(false);
            }
        }
        if self.phase == Phase::Lost {
            self.reconnect(now);
        }
        self.poll_former(now);
        self.end_ownership(now);
        // The pool has nothing to do any more: the drive is used directly.
        let drive = self.device.drive_mut().member_mut();
        if self.phase == Phase::Flushing(false) {
            let flush = Command::new(FLUSH, NamespaceId::FIRST, Operation::Flush);
            if drive.submit(now, flush).is_ok() {
                self.phase = Phase::Flushing(true);
            }
        }
        if matches!(self.phase, Phase::Flushing(_)) {
            drive.poll(now, &mut ended);
            while let Some(Completion { status, .. }) = ended.pop() {
                if !status.is_success() {
                    self.close_error = Some(format!("the last flush failed: {status}"));
                }
                self.phase = Phase::Closing;
            }
        }
        if self.phase == Phase::Closing {
            let drive = self.device.drive_mut().member_mut();
            if self.ownership.is_taken() {
                drive.drive.poll(now, &mut ended);
                while ended.pop().is_some() {}
            } else {
                drive.close_on(now);
            }
        }
        self.scratch = ended;
    }

    /// Completes all commands in the pool with this status: it is not polled any more.
    pub(super) fn fail_outstanding(&mut self, status: Status) {
        let keys: Vec<Key<Flight>> = self.flights.iter().map(|(key, _)| key).collect();
        for key in keys {
            let Flight { user, id } = self.flights.remove(key);
            self.complete(user, Completion::of(id, status));
        }
    }

    fn deliver(&mut self, mut completion: Completion) {
        let key = Key::of_command(completion.id).expect("the pool returns identifiers that it was given");
        let Flight { user, id } = self.flights.remove(key);
        completion.id = id;
        self.complete(user, completion);
    }

    /// Completes a command of a user.
    pub(super) fn complete(&mut self, user: UserId, completion: Completion) {
        // Completions of a user that was removed are discarded.
        if let Some(user) = self.users.get_mut(&user) {
            user.outstanding -= 1;
            user.completions.push(completion);
        }
    }

    fn on_event(&mut self, event: PoolEvent) {
        match event {
            PoolEvent::ReadOnly => {
                let drive = self.directory.shown_drive();
                self.warnings.push_back(format!(
                    "both copies of the pool's log on {drive} have failed: its namespaces can be read, and writes that need \
                     a new stripe group fail; the pool is opened again from time to time"
                ));
            }
            // The pool was opened again, after it had lacked space or its log had failed.
            PoolEvent::Started { is_recorded: true } => {
                let epoch = self.pool().epoch();
                let text = match self.directory.save_epoch(epoch) {
                    Ok(()) => "the pool was opened again, and can be written".to_owned(),
                    Err(error) => format!("the pool was opened again; {error}"),
                };
                self.warnings.push_back(text);
            }
            PoolEvent::Created { .. } => self.share_by_weights(),
            PoolEvent::Deleted { namespace } => {
                if let Some(uuid) = self.leaving.remove(&namespace) {
                    self.forget_reservations(&uuid);
                }
                self.share_by_weights();
            }
            _ => {}
        }
        let failed = self.not_recorded();
        self.pending.on_event(event, &failed);
    }

    /// When to poll, unless the ring wakes the caller before.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let former = self.reconnect.former_timeout();
        self.own_timeout().into_iter().chain(former).min()
    }

    fn own_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Lost => self.reconnect.next_timeout(),
            Phase::Open | Phase::Quiescing => {
                let confirm = self.ownership.next_timeout(self.device.drive().member());
                self.device.next_timeout().into_iter().chain(confirm).min()
            }
            Phase::TakenOver(until) => {
                Some(self.device.drive().member().next_timeout().map_or(until, |at| at.min(until)))
            }
            Phase::Flushing(false) => Some(Instant::ZERO),
            Phase::Flushing(true) | Phase::Closing => self.device.drive().member().next_timeout(),
        }
    }

    /// A user closes its namespace, with no command outstanding. The last one closes the pool.
    pub(super) fn close_user(&mut self, now: Instant, id: UserId) {
        self.user_mut(id).is_closing = true;
        if self.users.values().all(|user| user.is_closing) {
            self.close(now);
        }
    }

    /// Begins to close the pool, of which no namespace is in use.
    pub(super) fn close(&mut self, now: Instant) {
        match self.phase {
            Phase::Open => {
                self.phase = Phase::Quiescing;
                self.poll(now);
            }
            Phase::Lost => {
                self.abandon_drive();
                self.poll(now);
            }
            _ => {}
        }
    }

    /// Whether a user that has closed its namespace can leave: the last one waits for the pool.
    pub(super) fn is_user_closed(&self, id: UserId) -> bool {
        self.users[&id].is_closing && (self.is_open() || self.is_closed())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.phase == Phase::Closing && self.device.drive().member().drive.is_closed()
    }

    /// What could not be made durable.
    pub(super) fn close_error(&self) -> Option<String> {
        self.close_error.clone().or_else(|| self.device.drive().member().drive.close_error())
    }

    pub(super) fn take_warning(&mut self) -> Option<String> {
        if let Some(warning) = self.warnings.pop_front() {
            return Some(warning);
        }
        let warning = self.device.drive_mut().member_mut().take_warning()?;
        Some(format!("drive {} of the pool: {warning}", self.directory.shown_drive()))
    }

    /// The error for a pool that is closing.
    pub(super) fn closing_error(&self) -> DriveError {
        if self.ownership.is_taken() {
            return self.taken_error();
        }
        DriveError::in_use(
            format!("the pool in {} is being closed", self.directory.path().display()),
            "try again in a moment",
        )
    }
}
