//! Limits of the target: every table has one.

use zonda_nvme::tcp::{ADMIN_CAPSULE_DATA_BYTES, HOST_DATA_BYTES_MIN};
use zonda_zoned::Duration;

/// Connections with a connected queue, over all portals.
pub const CONNECTIONS_MAX: usize = 4096;
/// Connections that have not connected a queue, or not authenticated. The longest silent one is
/// evicted for a new one.
pub const HALF_OPEN_MAX: usize = 512;
/// If an address has more than so many of those, its connections are evicted first.
pub const HALF_OPEN_USUAL: usize = 16;
/// Handshake steps that count as activity of a connection: ICReq, Connect, three authentication
/// messages that it sends, the response to each, and two that it receives. A conforming host needs
/// no more.
pub const HANDSHAKE_STEPS: u8 = 10;
/// Controllers of all subsystems.
pub const CONTROLLERS_MAX: usize = 1024;
/// Controllers of the discovery service. The longest idle one is evicted for a new one.
pub const DISCOVERY_CONTROLLERS_MAX: usize = 256;
/// I/O queues of one controller.
pub const IO_QUEUES_MAX: u16 = 128;
/// Authentication steps that the caller computes at the same time, including those in its queue.
pub const AUTH_STEPS_MAX: usize = 64;
/// Entries of one queue.
pub const QUEUE_ENTRIES_MAX: u16 = 1024;
/// Entries of an admin queue that every controller must support (NVMe Base 2.0, section 5: 32 over
/// Fabrics).
pub const ADMIN_QUEUE_ENTRIES_MIN: u16 = 32;
/// Bytes of data, without metadata, that one command moves.
pub const TRANSFER_BYTES_MAX: u32 = 4 << 20;
/// The smallest `transfer_bytes` that MDTS can express: MDTS of 1 is two pages.
pub const TRANSFER_BYTES_MIN: u32 = 8192;
/// Bytes of data in a command capsule of an I/O queue.
pub const IN_CAPSULE_BYTES_MAX: u32 = 64 << 10;
/// Unsent bytes for a host. At the limit, its further commands wait.
pub const OUTGOING_BYTES_MAX: usize = 256 << 20;
/// Solicited bytes of one connection, until the device has completed their commands.
pub const RECEIVE_BYTES_MAX: usize = 256 << 20;
/// Data of a command of at least so many bytes stays in the buffer in which it was received. Less
/// is copied, so that a few bytes never hold a large buffer of the caller.
pub const SHARED_DATA_BYTES_MIN: usize = 64 << 10;
/// While connections wait for memory, a connection that holds memory of the pool and transfers less
/// than one [`STALL_PARTS`]th of it in this time is closed.
pub const STALL_MAX: Duration = Duration::from_secs(10);
/// The required progress: one in so many of the bytes that the connection holds of the pool.
pub const STALL_PARTS: u64 = 16;
/// How often progress is checked.
pub const STALL_INTERVAL: Duration = Duration::from_secs(1);
/// Asynchronous Event Requests of one controller (AERL + 1).
pub const ASYNC_EVENT_REQUESTS: usize = 4;
/// Hosts that can be registered with one namespace.
pub const REGISTRANTS_MAX: usize = 64;
/// Preemptions, of all hosts, that wait for commands of other hosts to complete.
pub const FENCES_MAX: usize = 64;
/// Reservation commands, of all hosts, that wait until their change is durable, and preemptions.
pub const RESERVATION_REQUESTS_MAX: usize = 256;
/// Reservation notifications that a controller queues for its host; a new one replaces the oldest.
pub const RESERVATION_NOTICES_MAX: usize = 255;
/// Entries of a controller's error log (ELPE + 1).
pub const ERROR_LOG_ENTRIES: usize = 64;
/// Namespaces of one subsystem, and the greatest namespace identifier.
pub const NAMESPACES_MAX: u32 = 1024;
/// Namespaces of all subsystems together, including removed ones whose commands are still at
/// devices.
pub const NAMESPACE_TABLE_MAX: usize = 4096;
/// Subsystems that [`crate::Target::add_subsystem`] accepts, including removed ones whose
/// connections or commands are still in progress.
pub const SUBSYSTEMS_MAX: usize = 1024;
/// How long the connections of a removed subsystem may wait for commands at devices.
pub const REMOVED_SUBSYSTEM_DRAIN: Duration = Duration::from_secs(10);
/// Keep alive timer unit, KAS, in 100 ms.
pub const KEEP_ALIVE_GRANULARITY_100MS: u16 = 1;
/// The longest Keep Alive Timeout that is accepted.
pub const KEEP_ALIVE_TIMEOUT_MAX_MS: u32 = 3_600_000;
/// A discovery controller is removed after this time without a command, whatever its Keep Alive
/// Timeout (NVMe Base 2.0, section 3.1.2.3.4: two minutes if the host sets none).
pub const DISCOVERY_IDLE: Duration = Duration::from_secs(120);
/// How long a host whose Connect or authentication was refused may take to close its connection. If
/// the target closed it at once, a Linux host might not process the response, and would wait for
/// its admin timeout of 60 s.
pub const REFUSAL_LINGER: Duration = Duration::from_secs(5);
/// Bytes that an Authentication Receive may request.
pub const AUTHENTICATION_BYTES_MAX: u32 = 16 << 10;
/// Bytes that one Get Log Page returns.
pub const LOG_PAGE_BYTES_MAX: u32 = 1 << 20;
/// Data bytes per byte of metadata: at most 64 bytes of metadata per 512 bytes.
const METADATA_SHARE: usize = 512 / 64;

const _: () = assert!(ADMIN_QUEUE_ENTRIES_MIN <= QUEUE_ENTRIES_MAX);
const _: () = assert!(REGISTRANTS_MAX <= zonda_nvme::reservation::SAVED_REGISTRANTS_MAX);
const _: () = assert!(FENCES_MAX <= RESERVATION_REQUESTS_MAX);
const _: () = assert!(HALF_OPEN_MAX < CONNECTIONS_MAX);
const _: () = assert!(STALL_INTERVAL.0 > 0 && STALL_MAX.0.is_multiple_of(STALL_INTERVAL.0));
const _: () = assert!(IN_CAPSULE_BYTES_MAX <= TRANSFER_BYTES_MAX);
const _: () = assert!(TRANSFER_BYTES_MIN >= HOST_DATA_BYTES_MIN);
const _: () =
    assert!(CONTROLLERS_MAX + DISCOVERY_CONTROLLERS_MAX < 0xfff0, "controller identifiers from FFF0h are reserved");
const _: () = assert!(
    ASYNC_EVENT_REQUESTS < ADMIN_QUEUE_ENTRIES_MIN as usize,
    "event requests leave queue entries for other commands"
);
const _: () = assert!(AUTHENTICATION_BYTES_MAX as usize >= zonda_chap::message::MESSAGE_BYTES_MAX);
const _: () = assert!(ADMIN_CAPSULE_DATA_BYTES as usize >= zonda_chap::message::MESSAGE_BYTES_MAX);
const _: () = assert!(TRANSFER_BYTES_MAX as usize * (METADATA_SHARE + 1) / METADATA_SHARE <= RECEIVE_BYTES_MAX);

/// The limits of one target. The defaults suit a server with a few hosts on a machine with a few
/// GiB of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// At most [`CONNECTIONS_MAX`].
    pub connections: usize,
    /// At most [`HALF_OPEN_MAX`], and fewer than `connections`.
    pub half_open: usize,
    /// Half-open connections of one address: at most [`HALF_OPEN_MAX`].
    pub half_open_per_address: usize,
    /// At most [`CONTROLLERS_MAX`].
    pub controllers: usize,
    /// At most [`DISCOVERY_CONTROLLERS_MAX`].
    pub discovery_controllers: usize,
    /// At most [`AUTH_STEPS_MAX`]; for one address one less, but at least one.
    pub auth_steps: usize,
    /// At most [`IO_QUEUES_MAX`].
    pub io_queues: u16,
    /// From [`ADMIN_QUEUE_ENTRIES_MIN`] to [`QUEUE_ENTRIES_MAX`].
    pub queue_entries: u16,
    /// A power of two from [`TRANSFER_BYTES_MIN`] to [`TRANSFER_BYTES_MAX`].
    pub transfer_bytes: u32,
    /// A multiple of 16, at most [`IN_CAPSULE_BYTES_MAX`].
    pub in_capsule_bytes: u32,
    /// At least twice `transfer_bytes`, at most [`OUTGOING_BYTES_MAX`].
    pub outgoing_bytes: usize,
    /// At least twice `transfer_bytes`, at most [`RECEIVE_BYTES_MAX`].
    pub receive_bytes: usize,
    /// From the start of a connection until its queue is connected and authenticated.
    pub handshake: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 1024,
            half_open: 512,
            half_open_per_address: 256,
            // The maximum of half-open connections, so that they are evicted at their own limit,
            // and 256 more.
            controllers: 768,
            discovery_controllers: 64,
            auth_steps: 2,
            io_queues: 64,
            queue_entries: 128,
            transfer_bytes: 1 << 20,
            in_capsule_bytes: 8192,
            outgoing_bytes: 8 << 20,
            receive_bytes: 8 << 20,
            handshake: Duration::from_secs(20),
        }
    }
}

impl Limits {
    /// The first limit that is out of range, by name, and the valid range.
    pub(crate) fn fault(&self) -> Option<(&'static str, &'static str)> {
        let transfer = self.transfer_bytes as usize;
        let rules = [
            ((2..=CONNECTIONS_MAX).contains(&self.connections), "connections", "must be 2 to 4096"),
            (
                self.half_open >= 1 && self.half_open <= HALF_OPEN_MAX && self.half_open < self.connections,
                "half_open",
                "must be 1 to 512, and less than connections",
            ),
            ((1..=HALF_OPEN_MAX).contains(&self.half_open_per_address), "half_open_per_address", "must be 1 to 512"),
            ((1..=CONTROLLERS_MAX).contains(&self.controllers), "controllers", "must be 1 to 1024"),
            (
                (1..=DISCOVERY_CONTROLLERS_MAX).contains(&self.discovery_controllers),
                "discovery_controllers",
                "must be 1 to 256",
            ),
            ((1..=AUTH_STEPS_MAX).contains(&self.auth_steps), "auth_steps", "must be 1 to 64"),
            ((1..=IO_QUEUES_MAX).contains(&self.io_queues), "io_queues", "must be 1 to 128"),
            (
                (ADMIN_QUEUE_ENTRIES_MIN..=QUEUE_ENTRIES_MAX).contains(&self.queue_entries),
                "queue_entries",
                "must be 32 to 1024",
            ),
            (
                self.transfer_bytes.is_power_of_two()
                    && (TRANSFER_BYTES_MIN..=TRANSFER_BYTES_MAX).contains(&self.transfer_bytes),
                "transfer_bytes",
                "must be a power of two from 8192 to 4194304",
            ),
            (
                self.in_capsule_bytes.is_multiple_of(16)
                    && self.in_capsule_bytes <= IN_CAPSULE_BYTES_MAX.min(self.transfer_bytes),
                "in_capsule_bytes",
                "must be a multiple of 16, at most 65536 and at most transfer_bytes",
            ),
            (
                (2 * transfer..=OUTGOING_BYTES_MAX).contains(&self.outgoing_bytes),
                "outgoing_bytes",
                "must be at least twice transfer_bytes, and at most 256 MiB",
            ),
            (
                (2 * transfer..=RECEIVE_BYTES_MAX).contains(&self.receive_bytes),
                "receive_bytes",
                "must be at least twice transfer_bytes, and at most 256 MiB",
            ),
            (self.handshake > Duration::ZERO, "handshake", "must be more than zero"),
        ];
        rules.into_iter().find(|(holds, ..)| !holds).map(|(_, field, remedy)| (field, remedy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_each_fault_names_its_field() {
        assert_eq!(Limits::default().fault(), None);
        type Spoil = fn(&mut Limits);
        let spoil: [(&str, Spoil); 8] = [
            ("auth_steps", |limits| limits.auth_steps = AUTH_STEPS_MAX + 1),
            ("half_open_per_address", |limits| limits.half_open_per_address = 0),
            ("discovery_controllers", |limits| limits.discovery_controllers = 0),
            ("half_open", |limits| limits.half_open = limits.connections),
            ("queue_entries", |limits| limits.queue_entries = 31),
            ("transfer_bytes", |limits| limits.transfer_bytes = 100_000),
            ("in_capsule_bytes", |limits| limits.in_capsule_bytes = 100),
            ("outgoing_bytes", |limits| limits.outgoing_bytes = 1 << 20),
        ];
        for (field, spoil) in spoil {
            let mut limits = Limits::default();
            spoil(&mut limits);
            assert_eq!(limits.fault().map(|(field, _)| field), Some(field));
        }
    }
}
