//! Namespaces are created, resized and deleted.

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};
use zonda_config::ByteSize;
use zonda_elastic::limits::{NAME_BYTES_MAX, WEIGHT_MAX};
use zonda_elastic::{AdminError, NamespaceConfig, PoolEvent};
use zonda_ring::Ring;
use zonda_zoned::{Instant, NamespaceId, ZonedDevice};

use super::drive::{PoolDrive, loop_failed};
use super::report::PoolReport;
use super::shared::{OpenPool, Phase};
use super::shares;
use crate::{DriveError, Location, random};

/// A namespace is not smaller; it has at least one zone.
const SIZE_MIN_BYTES: u64 = 512;
/// The remedy if the log of a pool fails.
const LOG_FAILED: &str = "see the state of its drive: zonda pool show DIR, and the log of the server";

/// The size of a namespace. It has whole zones, at least as many as needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamespaceSize {
    /// Bytes.
    Bytes(u64),
    /// Zones.
    Zones(u32),
}

/// The parameters of a new namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewNamespace {
    /// Its name, unique in the pool: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Its size.
    pub size: NamespaceSize,
    /// Zones that may be active at a time, and open ones.
    pub max_active_zones: u32,
    /// Its part of the active zones of the drive, relative to that of others.
    pub weight: u32,
}

/// A request of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolRequest {
    /// Report the state of the pool.
    Report,
    /// Create a namespace.
    Create(NewNamespace),
    /// Change the number of zones of a namespace.
    Resize {
        /// Its name.
        name: String,
        /// Its new size.
        size: NamespaceSize,
    },
    /// Delete a namespace that is not in use, and its data.
    Delete {
        /// Its name.
        name: String,
    },
}

impl fmt::Display for NamespaceSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NamespaceSize::Bytes(bytes) => write!(f, "{}", ByteSize(*bytes)),
            NamespaceSize::Zones(1) => f.write_str("1 zone"),
            NamespaceSize::Zones(zones) => write!(f, "{zones} zones"),
        }
    }
}

impl fmt::Display for PoolRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolRequest::Report => f.write_str("report the state"),
            PoolRequest::Create(new) => {
                let NewNamespace { name, size, max_active_zones, weight } = new;
                write!(f, "create namespace \"{name}\", {size}, {max_active_zones} active, weight {weight}")
            }
            PoolRequest::Resize { name, size } => write!(f, "resize namespace \"{name}\" to {size}"),
            PoolRequest::Delete { name } => write!(f, "delete namespace \"{name}\""),
        }
    }
}

/// Identifies a request until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolRequestId(u64);

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Create,
    Resize,
    Delete,
}

/// Requests whose changes are not recorded yet, and answers.
#[derive(Debug, Default)]
pub(super) struct Pending {
    next: u64,
    waiting: Vec<(PoolRequestId, Change, NamespaceId)>,
    answers: VecDeque<(PoolRequestId, Result<(), DriveError>)>,
}

impl Pending {
    fn wait(&mut self, change: Change, namespace: NamespaceId) -> PoolRequestId {
        let id = PoolRequestId(self.next);
        self.next += 1;
        self.waiting.push((id, change, namespace));
        id
    }

    /// Answers all requests with an error.
    pub(super) fn fail_all(&mut self, error: &DriveError) {
        let failed = self.waiting.drain(..).map(|(id, ..)| (id, Err(error.clone())));
        self.answers.extend(failed);
    }

    /// `failed` is why a change cannot be recorded, if it cannot.
    pub(super) fn on_event(&mut self, event: PoolEvent, failed: &DriveError) {
        let (change, namespace, is_durable) = match event {
            PoolEvent::Created { namespace, is_durable } => (Change::Create, namespace, is_durable),
            PoolEvent::Resized { namespace, is_durable } => (Change::Resize, namespace, is_durable),
            PoolEvent::Deleted { namespace } => (Change::Delete, namespace, true),
            PoolEvent::Started { .. } => return,
            // Changes that are not recorded by now will not be.
            PoolEvent::ReadOnly => return self.fail_all(failed),
        };
        let is_first = |(_, waited, of): &(PoolRequestId, Change, NamespaceId)| (*waited, *of) == (change, namespace);
        if let Some(place) = self.waiting.iter().position(is_first) {
            let (id, ..) = self.waiting.remove(place);
            self.answers.push_back((id, if is_durable { Ok(()) } else { Err(failed.clone()) }));
        }
    }
}

impl PoolDrive {
    /// Begins a request of an operator. Returns the state of the pool if that is the answer;
    /// otherwise the request, whose answer [`take_answer`](PoolDrive::take_answer) returns.
    ///
    /// # Errors
    /// Why the request is refused; nothing has changed then.
    pub fn ask(&self, now: Instant, request: &PoolRequest) -> Result<Option<PoolRequestId>, DriveError> {
        let mut open = self.open.borrow_mut();
        if !open.is_open() {
            return Err(open.closing_error());
        }
        open.ask(now, request)
    }

    /// The next request that is complete, and its result.
    pub fn take_answer(&self) -> Option<(PoolRequestId, Result<(), DriveError>)> {
        self.open.borrow_mut().pending.answers.pop_front()
    }

    /// Executes a request, and waits until it is complete. Returns the state of the pool afterwards.
    ///
    /// # Errors
    /// Why the request is refused, or failed.
    pub fn manage(&self, request: &PoolRequest, ring: &Ring) -> Result<PoolReport, DriveError> {
        let Some(id) = self.ask(ring.now(), request)? else { return Ok(self.report()) };
        loop {
            self.open.borrow_mut().poll(ring.now());
            while let Some((answered, result)) = self.take_answer() {
                if answered == id {
                    return result.map(|()| self.report());
                }
            }
            let next = self.open.borrow().next_timeout();
            ring.run_once(next).map_err(|error| loop_failed(&error))?;
        }
    }
}

impl OpenPool {
    fn ask(&mut self, now: Instant, request: &PoolRequest) -> Result<Option<PoolRequestId>, DriveError> {
        let now = self.advance(now);
        if self.phase == Phase::Lost && *request != PoolRequest::Report {
            return Err(self.lost_error());
        }
        let (change, namespace) = match request {
            PoolRequest::Report => return Ok(None),
            PoolRequest::Create(new) => {
                let config = self.config_of(new)?;
                let created = self.device.create_namespace(now, &config);
                (Change::Create, created.map_err(|error| self.not_created(new, &error))?)
            }
            PoolRequest::Resize { name, size } => {
                let namespace = self.find(name)?;
                let capacity_bytes = self.device.geometry(namespace).zone_capacity_bytes();
                let zones = zones_of(*size, capacity_bytes)?;
                let resized = self.device.resize_namespace(now, namespace, zones);
                resized.map_err(|error| self.refused("resize", name, &error))?;
                (Change::Resize, namespace)
            }
            PoolRequest::Delete { name } => {
                let namespace = self.find(name)?;
                if self.is_used(namespace) {
                    return Err(DriveError::in_use(
                        format!("the namespace \"{name}\" is served: hosts use it"),
                        "stop its export first: remove it from zonda.toml and run zonda reload, or stop the server",
                    ));
                }
                let uuid = self.pool().namespace_config(namespace).map(|config| config.uuid);
                let deleted = self.device.delete_namespace(now, namespace);
                deleted.map_err(|error| self.refused("delete", name, &error))?;
                self.leaving.extend(uuid.map(|uuid| (namespace, uuid)));
                (Change::Delete, namespace)
            }
        };
        Ok(Some(self.pending.wait(change, namespace)))
    }

    fn config_of(&self, new: &NewNamespace) -> Result<NamespaceConfig, DriveError> {
        check_name(&new.name)?;
        let drive = self.drive_geometry();
        let capacity_bytes = self.pool().shape().vzone_capacity_blocks().bytes(drive.block_size_bytes);
        let zones = zones_of(new.size, capacity_bytes)?;
        let mut config = NamespaceConfig::new(&new.name, random::uuid()?, zones, new.max_active_zones);
        config.weight = new.weight;
        config.read_across_zones = drive.read_across_zones;
        Ok(config)
    }
}

impl OpenPool {
    /// Why a change cannot be recorded: the drive has no space, or the log has failed.
    pub(super) fn not_recorded(&self) -> DriveError {
        if !self.device.activity().is_some_and(|activity| activity.lacks_space) {
            let message = "the change cannot be recorded: both copies of the pool's log have failed";
            return DriveError::new(message, LOG_FAILED);
        }
        let drive = self.directory.shown_drive();
        let (what, space) = match self.directory.access().map(|access| access.location) {
            Ok(Location::Image(path)) => {
                let path = path.display();
                (
                    format!("the file system of the drive {path} is full"),
                    format!("free space on the file system of {path}"),
                )
            }
            _ => (format!("the drive {drive} has no space"), "free space on the server of the drive".to_owned()),
        };
        DriveError::new(
            format!("the change cannot be recorded: {what}"),
            format!("{space}, and repeat the command; a server opens the pool again within 64 s"),
        )
    }

    /// The pool refuses a change.
    fn refused(&self, verb: &str, name: &str, error: &AdminError) -> DriveError {
        let activity = self.device.activity().unwrap_or_default();
        if self.pool().can_be_changed() {
            return refused(verb, name, error);
        }
        let why = self.not_recorded();
        if activity.is_reopening && !activity.lacks_space {
            let message = format!("cannot {verb} the namespace \"{name}\": the pool is being opened again");
            return DriveError::new(message, "repeat the command in a few seconds");
        }
        DriveError { message: format!("cannot {verb} the namespace \"{name}\": {}", why.message), ..why }
    }

    /// The pool refuses a namespace.
    fn not_created(&self, new: &NewNamespace, error: &AdminError) -> DriveError {
        if !self.pool().can_be_changed() {
            return self.refused("create", &new.name, error);
        }
        let report = self.report();
        let is_valid = report.namespace(&new.name).is_none() && (1..=WEIGHT_MAX).contains(&new.weight);
        let shortage = if is_valid { shares::shortage(&report, new) } else { None };
        shortage.unwrap_or_else(|| self.refused("create", &new.name, error))
    }
}

/// Zones that hold so much.
fn zones_of(size: NamespaceSize, capacity_bytes: u64) -> Result<u32, DriveError> {
    let zones = match size {
        NamespaceSize::Zones(zones) => u64::from(zones),
        // No namespace is so small: a unit was forgotten.
        NamespaceSize::Bytes(bytes) if bytes < SIZE_MIN_BYTES => {
            return Err(DriveError::new(
                format!("a size of {} is less than {}", ByteSize(bytes), ByteSize(SIZE_MIN_BYTES)),
                "give a size with its unit, as in 64GiB, or a number of zones",
            ));
        }
        NamespaceSize::Bytes(bytes) => bytes.div_ceil(capacity_bytes),
    };
    match u32::try_from(zones) {
        Ok(0) => Err(DriveError::new("a namespace has at least one zone", "give a larger size")),
        Ok(zones) => Ok(zones),
        Err(_) => Err(DriveError::new(format!("{zones} zones are too many"), "give a smaller size")),
    }
}

/// A name is a part of an NQN, and an argument of commands.
fn check_name(name: &str) -> Result<(), DriveError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_valid = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_allowed);
    // As a path, "." and ".." would name something else.
    if is_valid && !name.starts_with('-') && !matches!(name, "." | "..") {
        return Ok(());
    }
    Err(DriveError::new(
        format!("\"{name}\" cannot be the name of a namespace"),
        format!(
            "use 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.', and another first character than '-'; '.' and '..' \
             are no names"
        ),
    ))
}

/// The pool refuses a change.
fn refused(verb: &str, name: &str, error: &AdminError) -> DriveError {
    let text = error.to_string();
    // The pool separates a reason from its remedy.
    let (why, help) = match text.split_once("; ").or_else(|| text.split_once(": make")) {
        Some((why, help)) if text.contains("; ") => (why.to_owned(), help.to_owned()),
        Some((why, help)) => (why.to_owned(), format!("make{help}")),
        None => (text, "zonda pool show DIR shows what the pool has".to_owned()),
    };
    DriveError::new(format!("cannot {verb} the namespace \"{name}\": {why}"), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_rounded_up_to_whole_zones() {
        let zones = |size| zones_of(size, 1000).map_err(|error| error.message);
        assert_eq!(zones(NamespaceSize::Bytes(SIZE_MIN_BYTES)), Ok(1));
        assert_eq!(zones(NamespaceSize::Bytes(4)), Err("a size of 4 B is less than 512 B".to_owned()));
        assert_eq!(zones(NamespaceSize::Bytes(1000)), Ok(1));
        assert_eq!(zones(NamespaceSize::Bytes(1001)), Ok(2));
        assert_eq!(zones(NamespaceSize::Zones(7)), Ok(7));
        assert!(zones(NamespaceSize::Bytes(0)).is_err() && zones(NamespaceSize::Zones(0)).is_err());
        assert!(zones(NamespaceSize::Bytes(u64::MAX)).is_err());
    }

    #[test]
    fn names_are_parts_of_an_nqn() {
        for name in ["db", "a-b_c.1", ".a", "...", &"x".repeat(NAME_BYTES_MAX)] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in ["", "a b", "a/b", "a:b", "-a", "ä", ".", "..", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
