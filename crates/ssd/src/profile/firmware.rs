//! Processing times of commands in the controller firmware.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use zonda_config::TimeSpan;

use crate::service_time::{BySize, ServiceTimeSpec};

/// Firmware as a set of servers, each with a queue, and the time each command takes of them.
///
/// A command first occupies a core of its server for its serial time, then takes its parallel time
/// concurrently with all others.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FirmwareSpec {
    /// Servers by name, with the number of their cores.
    pub servers: BTreeMap<String, u32>,
    /// Read.
    pub read: OpcodeSpec,
    /// Write and Write Zeroes.
    pub write: OpcodeSpec,
    /// Zone Append.
    pub append: OpcodeSpec,
    /// Open, close, and every other short command.
    pub manage: OpcodeSpec,
    /// Zone reset.
    pub reset: ResetSpec,
    /// Zone finish, in addition to the padding that it programs.
    pub finish: OpcodeSpec,
    /// Added to the serial time of a write or append that opens its zone, or is the first in it.
    #[serde(default)]
    pub zone_open_extra: TimeSpan,
}

/// Times of one kind of command, by its bytes.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OpcodeSpec {
    /// The server that works on it.
    pub server: String,
    /// Time on one of the server's cores.
    #[serde(default)]
    pub serial: BySize,
    /// Parallel time, afterwards; for writes, after their data are in the buffer.
    #[serde(default)]
    pub parallel: BySize,
}

/// Times of a reset: mapping work in proportion to the data the host wrote, done in pieces between
/// other commands.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ResetSpec {
    /// The server that works on it.
    pub server: String,
    /// Time on one of the server's cores.
    #[serde(default)]
    pub serial: ServiceTimeSpec,
    /// More serial time for a zone that the host wrote to its capacity; less in proportion. Padding
    /// does not count.
    #[serde(default)]
    pub serial_whole_zone: TimeSpan,
    /// More serial time for a zone that is partly written and not finished.
    #[serde(default)]
    pub serial_partly_written: TimeSpan,
    /// Parallel time.
    #[serde(default)]
    pub parallel: ServiceTimeSpec,
    /// The serial time is worked off in pieces of this length, each behind waiting commands. Zero:
    /// in one piece.
    #[serde(default)]
    pub piece: TimeSpan,
    /// Of `serial_whole_zone`, the share that excludes programs of data, 0 to 1: it begins when the
    /// data on their way to flash are programmed, and holds back those that follow. If it is not
    /// zero, the work of a reset does not delay commands.
    #[serde(default)]
    pub exclusive_share: f64,
    /// Bytes of mapping that are programmed for each block that the host wrote, when the exclusive
    /// work begins.
    #[serde(default)]
    pub mapping_bytes_per_block: u32,
}
