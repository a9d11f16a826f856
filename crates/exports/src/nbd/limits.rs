//! Limits of the NBD server, in addition to those of each connection ([`zonda_nbd::limits`]).

use zonda_zoned::Duration;
use zonda_zoned::limits::COMMAND_BLOCKS_MAX;

/// Connections to all exports together, if the memory budget allows them. More are refused, unless
/// one is evicted.
pub(crate) const CONNECTIONS_MAX: usize = 128;
/// Requests in flight on one connection.
pub(crate) const REQUESTS_PER_CONNECTION: usize = 128;
/// Bytes of data in flight on one connection; the minimum of `zonda_nbd`.
pub(crate) const DATA_BYTES_PER_CONNECTION: usize = zonda_nbd::limits::DATA_BYTES_MIN;
/// Commands to the drive in flight for one request.
pub(crate) const COMMANDS_PER_REQUEST_MAX: u32 = 8;
/// Bytes that one command reads or writes: a drive in memory copies them while other clients wait.
pub(crate) const DATA_STEP_BYTES: u64 = 256 << 10;
/// Zeros that one command writes: a drive may have to write them as data.
pub(crate) const ZEROES_STEP_BYTES: u64 = 16 << 20;
/// Bytes that one command deallocates.
pub(crate) const TRIM_STEP_BYTES: u64 = 64 << 20;
/// Blocks that the reply to one BLOCK_STATUS covers; a client sends another request for the rest.
pub(crate) const STATUS_BLOCKS_MAX: u64 = 1 << 18;
/// Timeout of the handshake, until the client has chosen an export.
pub(crate) const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// The usual maximum duration of a handshake. A slower client may be evicted when all slots are in
/// use.
pub(crate) const HANDSHAKE_USUAL: Duration = Duration::from_secs(1);
/// Messages of the handshake that count as activity: client flags, options, and those of TLS.
pub(crate) const HANDSHAKE_STEPS: u8 = 8;
/// Up to this many connections per address are usual: among new clients, all such addresses are
/// equal.
pub(crate) const CONNECTIONS_USUAL: usize = 8;
/// A client with an export that has sent no request for this long may be evicted when all slots are
/// in use.
pub(crate) const UNUSED_MIN: Duration = Duration::from_secs(30);
/// A client that receives nothing for this long although data are queued is disconnected.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(60);
/// Bytes that a connection gets for short replies, in addition to those of a request.
pub(crate) const REPLY_RESERVE_BYTES: usize = 4096;
/// How often the limits above are checked.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// TCP keepalive: idle time before the first probe. A mounted disk may be idle for days, so idle
/// time alone closes no connection; a client whose machine is down is detected.
pub(crate) const PROBE_AFTER: std::time::Duration = std::time::Duration::from_secs(60);
/// TCP keepalive: interval between two probes.
pub(crate) const PROBE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);
/// TCP keepalive: unanswered probes after which the connection is closed.
pub(crate) const PROBES: u32 = 6;
/// How long to wait for a Unix socket that accepts connections although its lock is free. The
/// kernel closes the sockets of a killed server up to 30 ms after the process has ended (measured,
/// Linux 6.18); under load that takes longer. A socket that still accepts after this belongs to
/// another program.
pub(crate) const DEAD_SOCKET_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);
/// Interval between two checks of such a socket.
pub(crate) const DEAD_SOCKET_INTERVAL: std::time::Duration = std::time::Duration::from_millis(5);

const _: () = assert!(ZEROES_STEP_BYTES / 512 <= COMMAND_BLOCKS_MAX, "a step is one command with the smallest blocks");
const _: () = assert!(SWEEP_INTERVAL.0 < HANDSHAKE_MAX.0 && HANDSHAKE_MAX.0 <= STALL_MAX.0);
const _: () = assert!(zonda_target::limits::STALL_MAX.0 <= STALL_MAX.0);
const _: () = assert!(SWEEP_INTERVAL.0 == zonda_target::limits::STALL_INTERVAL.0, "a sweep looks for stalled clients");
const _: () = assert!(REQUESTS_PER_CONNECTION <= zonda_nbd::limits::REQUESTS_MAX);
const _: () =
    assert!(CONNECTIONS_MAX * REQUESTS_PER_CONNECTION <= u32::MAX as usize, "the number of a job has 32 bits");
