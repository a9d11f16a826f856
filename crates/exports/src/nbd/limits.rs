//! Bounds of the NBD server, beside those of each connection ([`zonda_nbd::limits`]).

use zonda_zoned::Duration;
use zonda_zoned::limits::COMMAND_BLOCKS_MAX;

/// Connections to all exports together, if memory has room for them. More are turned away, unless one of these gives way.
pub(crate) const CONNECTIONS_MAX: usize = 128;
/// Requests under way on one connection.
pub(crate) const REQUESTS_PER_CONNECTION: usize = 128;
/// Bytes of data under way on one connection; the least that the protocol's machine takes.
pub(crate) const DATA_BYTES_PER_CONNECTION: usize = zonda_nbd::limits::DATA_BYTES_MIN;
/// Commands to the drive that one request has under way.
pub(crate) const COMMANDS_PER_REQUEST_MAX: u32 = 8;
/// Bytes that one command reads or writes: a drive in memory copies them while all others wait.
pub(crate) const DATA_STEP_BYTES: u64 = 256 << 10;
/// Zeros that one command writes: a drive may have to write them as data.
pub(crate) const ZEROES_STEP_BYTES: u64 = 16 << 20;
/// Bytes that one command deallocates.
pub(crate) const TRIM_STEP_BYTES: u64 = 64 << 20;
/// Blocks that the reply to one BLOCK_STATUS tells of; a client asks again for those behind them.
pub(crate) const STATUS_BLOCKS_MAX: u64 = 1 << 18;
/// From the start of a connection until its client has chosen an export.
pub(crate) const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// An honest client has chosen its export after so long. One that has not gives way to any other, when all places are taken.
pub(crate) const HANDSHAKE_USUAL: Duration = Duration::from_secs(1);
/// Messages of a client that has not chosen its export by which it shows that it is not silent: its flags, options, and those of TLS.
pub(crate) const HANDSHAKE_STEPS: u8 = 8;
/// An address with no more connections than so many is no crowd: among those that have just come, all such addresses are equal.
pub(crate) const CONNECTIONS_USUAL: usize = 8;
/// A client that has chosen an export and asked for nothing for so long gives way to others, when all places are taken.
pub(crate) const UNUSED_MIN: Duration = Duration::from_secs(30);
/// A client that takes nothing of what it was sent for so long is cut.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(60);
/// Bytes that a connection gets beside those of a request, for short replies.
pub(crate) const REPLY_ROOM_BYTES: usize = 4096;
/// How often the limits above are looked at.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// A quiet TCP connection is probed after so long. A mounted disk may be quiet for days, so silence alone ends nothing; a
/// client whose machine is gone is found out.
pub(crate) const PROBE_AFTER: std::time::Duration = std::time::Duration::from_secs(60);
/// Time between two probes, and how many go unanswered before the connection ends.
pub(crate) const PROBE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);
/// See [`PROBE_INTERVAL`].
pub(crate) const PROBES: u32 = 6;
/// How long a Unix socket whose lock is free may accept connections. The kernel closes the sockets of a killed server up to
/// 30 ms after the process has ended (measured, Linux 6.18); under load that takes longer. What still accepts after this is
/// the socket of another program.
pub(crate) const DEAD_SOCKET_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);
/// Time between two looks at such a socket.
pub(crate) const DEAD_SOCKET_INTERVAL: std::time::Duration = std::time::Duration::from_millis(5);

const _: () = assert!(ZEROES_STEP_BYTES / 512 <= COMMAND_BLOCKS_MAX, "a step is one command with the smallest blocks");
const _: () = assert!(SWEEP_INTERVAL.0 < HANDSHAKE_MAX.0 && HANDSHAKE_MAX.0 <= STALL_MAX.0);
const _: () = assert!(zonda_target::limits::STALL_MAX.0 <= STALL_MAX.0);
const _: () = assert!(SWEEP_INTERVAL.0 == zonda_target::limits::STALL_INTERVAL.0, "a sweep looks for stalled clients");
const _: () = assert!(REQUESTS_PER_CONNECTION <= zonda_nbd::limits::REQUESTS_MAX);
const _: () = assert!(CONNECTIONS_MAX * REQUESTS_PER_CONNECTION <= u32::MAX as usize, "a job has a number of 32 bits");
