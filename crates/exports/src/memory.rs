//! The memory budget of one server, and the number of connections that follows from it.
//!
//! [`zonda_target::Budget`] divides a budget among connections. Here its size is determined: that
//! of the configuration, or a part of the machine's memory; and the number of connections whose
//! reserved shares leave half of it for the pool.

use std::fs;

use rustix::process::{Resource, getrlimit};
use zonda_target::{Budget, Limits, SHARE_BYTES};

use crate::ServeError;
use crate::nbd::{self, CONNECTIONS_MAX as NBD_CONNECTIONS_MAX};
use crate::sockets::RECEIVE_BYTES;

/// The smallest budget, in bytes: half of it suffices for the longest NBD request, when no other
/// client uses memory.
pub const MEMORY_MIN: u64 = 128 << 20;
/// The largest default budget of a server, in bytes.
pub const MEMORY_DEFAULT_MAX: u64 = 4 << 30;
/// The default budget is this part of the machine's memory.
const MACHINE_PARTS: u64 = 4;
/// Open files of a server besides those of connections: drives, HTTP, control sockets. Connections get half
/// of the rest, so that drives can be opened while all are in use.
const FILES_RESERVED: u64 = 64;
/// The smallest limit of open files of a server: half of what is beyond the reserve is for 32 connections.
const FILES_MIN: u64 = FILES_RESERVED + 64;
/// Registered buffers of the ring have at most this part of what a budget has beyond the smallest one.
const REGISTERED_PARTS: u64 = 8;
/// Bytes that are reserved for each connection.
const RESERVED_BYTES: usize = SHARE_BYTES + RECEIVE_BYTES;

const _: () = assert!(
    REGISTERED_PARTS >= 2,
    "half of a pool without the registered buffers is at least half of the pool of the smallest budget"
);
const _: () = assert!(MEMORY_MIN <= MEMORY_DEFAULT_MAX);
const _: () = assert!(
    MEMORY_MIN as usize / 4 + SHARE_BYTES >= zonda_nbd::limits::REQUEST_BYTES_MAX as usize + nbd::REPLY_RESERVE_BYTES,
    "one connection gets half of the pool, and the pool is half of the budget"
);

/// A budget and the limits that follow from it.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) budget: Budget,
    /// Limits of NVMe/TCP.
    pub(crate) limits: Limits,
    pub(crate) nbd_connections: usize,
}

impl Memory {
    /// Divides `bytes`, at least [`MEMORY_MIN`], for a process that may have `files` open, at least
    /// [`FILES_MIN`].
    pub(crate) fn of(bytes: u64, files: u64, has_nbd: bool) -> Memory {
        let bytes = usize::try_from(bytes.max(MEMORY_MIN)).unwrap_or(usize::MAX);
        let defaults = Limits::default();
        let files = files.max(FILES_MIN).saturating_sub(FILES_RESERVED) / 2;
        let most = (bytes / 2 / RESERVED_BYTES).min(usize::try_from(files).unwrap_or(usize::MAX));
        let nbd_connections = if has_nbd { NBD_CONNECTIONS_MAX.min(most / 4) } else { 0 };
        let connections = defaults.connections.min(most - nbd_connections);
        // With fewer connections, each kind is reduced in proportion.
        let part = |number: usize| (number * connections / defaults.connections).max(1);
        let limits = Limits {
            connections,
            half_open: part(defaults.half_open),
            half_open_per_address: part(defaults.half_open_per_address),
            controllers: part(defaults.controllers),
            discovery_controllers: part(defaults.discovery_controllers),
            ..defaults
        };
        Memory { budget: Budget::new(bytes, connections + nbd_connections, RECEIVE_BYTES), limits, nbd_connections }
    }
}

/// The files that this process may have open.
///
/// # Errors
/// They are fewer than [`FILES_MIN`].
pub(crate) fn files() -> Result<u64, ServeError> {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < FILES_MIN => Err(ServeError::new(
            format!("this process may have {limit} open files, a server needs at least {FILES_MIN}"),
            "raise the limit: ulimit -n, or LimitNOFILE= of a systemd service",
        )),
        limit => Ok(limit.unwrap_or(u64::MAX)),
    }
}

/// Memory for registered buffers of the ring, in bytes, of a budget of `bytes`.
pub(crate) fn registered_bytes(bytes: u64) -> usize {
    let part = bytes.saturating_sub(MEMORY_MIN) / REGISTERED_PARTS;
    usize::try_from(part).unwrap_or(usize::MAX).min(zonda_ring::limits::REGISTERED_BYTES_DEFAULT)
}

/// The default budget of a server.
pub(crate) fn default_bytes() -> u64 {
    (machine_bytes() / MACHINE_PARTS).clamp(MEMORY_MIN, MEMORY_DEFAULT_MAX)
}

/// The memory of this machine, or of the control group of this process, whichever is less.
fn machine_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    let machine = system.totalram * u64::from(system.mem_unit);
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| {
        let path = text.lines().find_map(|line| line.strip_prefix("0::"))?.trim_start_matches('/').to_owned();
        limit_of(&fs::read_to_string(format!("/sys/fs/cgroup/{path}/memory.max")).ok()?)
    });
    machine.min(group.unwrap_or(u64::MAX))
}

/// Parses a limit of a control group: a number of bytes, or "max".
fn limit_of(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_budget_allows_the_maximum_of_connections() {
        let memory = Memory::of(4 << 30, u64::MAX, true);
        assert_eq!((memory.limits, memory.nbd_connections), (Limits::default(), 128));
        // 1152 connections have 128 KiB for their share and 256 KiB to receive.
        assert_eq!(memory.budget.request_bytes_max(), ((4 << 30) - 1152 * (384 << 10)) / 2 + (128 << 10));
    }

    #[test]
    fn the_smallest_budget_allows_the_longest_request_and_fewer_connections() {
        let memory = Memory::of(MEMORY_MIN, u64::MAX, true);
        assert_eq!((memory.limits.connections, memory.nbd_connections), (128, 42));
        assert_eq!((memory.limits.half_open, memory.limits.controllers), (64, 96));
        assert!(memory.budget.request_bytes_max() >= (32 << 20) + nbd::REPLY_RESERVE_BYTES);
        assert_eq!(Memory::of(MEMORY_MIN, u64::MAX, false).limits.connections, 170);
    }

    #[test]
    fn connections_get_half_of_the_open_files_beyond_a_reserve() {
        let memory = Memory::of(4 << 30, 1024, true);
        assert_eq!((memory.limits.connections, memory.nbd_connections), (480 - 120, 120));
        let memory = Memory::of(4 << 30, 0, false);
        assert_eq!((memory.limits.connections, memory.limits.half_open), (32, 16));
    }

    #[test]
    fn registered_buffers_leave_the_longest_request_its_memory() {
        const MIB: u64 = 1 << 20;
        assert_eq!(registered_bytes(MEMORY_MIN), 0);
        assert_eq!(registered_bytes(MEMORY_MIN + 64 * MIB), 8 << 20);
        assert_eq!(registered_bytes(4 << 30), 32 << 20);
        for mib in [128, 129, 160, 192, 384, 864, 4096] {
            let mut budget = Memory::of(mib * MIB, u64::MAX, true).budget;
            budget.set_outside(registered_bytes(mib * MIB));
            let longest = (32 << 20) + nbd::REPLY_RESERVE_BYTES;
            assert!(budget.admit(&mut zonda_target::Account::default(), longest), "with {mib} MiB");
        }
    }

    #[test]
    fn the_default_is_a_part_of_the_machine_within_bounds() {
        assert!((MEMORY_MIN..=MEMORY_DEFAULT_MAX).contains(&default_bytes()));
        assert!(machine_bytes() >= default_bytes());
        assert_eq!((limit_of("max\n"), limit_of("1048576\n")), (None, Some(1 << 20)));
    }
}
