//! Limits of the initiator, each with its reason.

/// I/O queues of one initiator. Linux offers 128 by default; more connections than cores are
/// useless.
pub const IO_QUEUES_MAX: u16 = 64;
/// Outstanding commands of one queue: twelve bits of the command identifier are the index in the
/// table.
pub const QUEUE_DEPTH_MAX: u16 = 4095;
/// Commands that the admin queue holds: a procedure, keep alive, an event request, and reads of the
/// changed zone list.
pub const ADMIN_QUEUE_DEPTH: u16 = 31;
/// Bytes of the longest transfer that can be configured: the lengths of PDUs and of command data
/// have 32 bits, and must include headers and metadata.
pub const TRANSFER_BYTES_MAX: u32 = 64 << 20;
/// Bytes of the shortest one: a page of Identify, and a zone report with a few descriptors.
pub const TRANSFER_BYTES_MIN: u32 = 8192;
/// Bytes of one round of a zone report: about a thousand descriptors.
pub const REPORT_ROUND_BYTES_MAX: u32 = 64 << 10;
/// Zones whose descriptors are read while connecting. Later ones are assumed to be the same.
pub const SURVEYED_ZONES_MAX: u32 = 1 << 17;
/// Lanes by which conflicting commands are detected (a power of two). Commands of zones that share
/// a lane may wait for each other unnecessarily.
pub const LANES: usize = 1024;
/// Lanes that one command may touch before it counts as touching all.
pub const LANES_OF_A_COMMAND_MAX: u64 = 16;
/// Bytes of the largest discovery log that is read: 4096 records.
pub const DISCOVERY_LOG_BYTES_MAX: u64 = 1024 * 4097;
/// How often the discovery log is read again because it has changed meanwhile.
pub const DISCOVERY_ATTEMPTS_MAX: u32 = 8;
/// Bytes of a Reservation Report to request: 126 registrants, more than zonda's target supports.
pub const RESERVATION_REPORT_BYTES: u32 = 8192;
/// Reports that a claim reads: each except the first follows an Acquire at which another host was
/// faster.
pub const CLAIM_ATTEMPTS_MAX: u32 = 8;
/// The most bytes of an authentication message of the controller: the size of the host's buffer (as
/// in Linux).
pub const AUTHENTICATION_RECEIVE_BYTES: u32 = 4096;

const _: () = assert!(LANES.is_power_of_two() && LANES_OF_A_COMMAND_MAX < LANES as u64);
const _: () = assert!(RESERVATION_REPORT_BYTES <= TRANSFER_BYTES_MIN);
const _: () = assert!(REPORT_ROUND_BYTES_MAX >= TRANSFER_BYTES_MIN);
