//! I/O schedulers: which of the commands that wait before a device is submitted next.
//!
//! [`Scheduled`] is a device around another one. Commands wait in it, and a [`Scheduler`] chooses
//! among those that may be submitted: [`Fifo`] the one that came first, [`MqDeadline`] as the Linux
//! scheduler of that name, [`Ezns`] as the scheduler of eZNS, [`Interference`] one whose flash
//! hardware has the fewest requests. A command takes effect when it is *released* to the device below
//! ([decision 24](../../../docs/decisions/0024-effect-at-release.md)), so the order of effects is
//! that of releases. What may not be exchanged keeps its order whatever the scheduler chooses: see
//! [`Request::must_wait_for`].
//!
//! A scheduler decides, and does nothing else: it sees requests (who, what, where, since when), and
//! returns numbers. So it can be tested without a device, and a policy has no access to contents.
//!
//! What is absent: clocks, randomness, contents of blocks, and rules of zones. A command that the
//! device will reject is scheduled like any other.
#![forbid(unsafe_code)]

mod bug;
mod deadline;
mod direction;
mod ezns;
mod fifo;
mod interference;
mod load;
mod order;
#[cfg(test)]
mod passing;
mod policy;
mod request;
mod scheduled;
mod scheduler;
#[cfg(test)]
mod tests;
mod zone_groups;

#[cfg(feature = "testing")]
pub use bug::SeededBug;
pub use deadline::{MqDeadline, MqDeadlineConfig};
pub use ezns::{Ezns, EznsConfig};
pub use fifo::Fifo;
pub use interference::{Interference, InterferenceConfig, Within};
pub use load::{GroupLoad, TableReport, TenantLoad};
pub use policy::Policy;
pub use request::{ConflictGroup, Request, RequestKind};
pub use scheduled::{Scheduled, ScheduledCounters};
pub use scheduler::{Accepts, Outcome, RequestId, Scheduler};
pub use zone_groups::ZoneGroups;

/// Named limits.
pub mod limits {
    use zonda_zoned::Duration;

    /// Commands that wait in one [`crate::Scheduled`] device.
    pub const WAITING_MAX: usize = 4096;
    /// Commands released to the device below, by default: enough for every die of a drive, and few
    /// enough that most of a burst is still to be scheduled.
    pub const IN_FLIGHT_MAX: usize = 256;
    /// Requests that touch more zones than this are compared with every waiting request.
    pub const NARROW_ZONES_MAX: u32 = 4;
    /// The block in which [`crate::Ezns`] measures latencies, whatever that of the device is.
    pub const EZNS_BLOCK_BYTES: u64 = 4096;
    /// The time for a block is at least this: the rate of writes is its inverse.
    pub const EZNS_BLOCK_LATENCY_MIN: Duration = Duration(1);
    /// The time for a block is at most this, so that a zone writes 400 KiB/s in any case.
    pub const EZNS_BLOCK_LATENCY_MAX: Duration = Duration::from_millis(10);
    /// A larger request counts as one of this size.
    pub const EZNS_REQUEST_BYTES_MAX: u64 = 16 << 20;
    /// What a tenant of weight 1 releases in its turn.
    pub const EZNS_QUANTUM_BYTES: u64 = 128 << 10;
    /// The greatest weight of a tenant.
    pub const EZNS_WEIGHT_MAX: u32 = 1000;
    /// Active zones of the drive of the eZNS paper, for which its parameters are.
    pub const EZNS_ACTIVE_ZONES: u32 = 256;
    /// Streams that are kept although none of their requests is in progress.
    pub const EZNS_IDLE_STREAMS_MAX: usize = 1024;
    /// Rounds whose mean latency changes a window of reads; a round has a completion for each command. With
    /// one, the tail of a few reads is often a mean; with eight, a window is reduced late.
    pub const EZNS_WINDOW_ROUNDS: u32 = 4;
    /// Releases of [`crate::Interference`] before the oldest waiting request is the next one.
    pub const INTERFERENCE_OVERTAKES_MAX: u32 = 1024;
    /// Reads that [`crate::Interference`] samples before it judges its table, and after which old ones
    /// fade.
    pub const INTERFERENCE_SAMPLES_MIN: u32 = 512;
    /// See [`INTERFERENCE_SAMPLES_MIN`].
    pub const INTERFERENCE_SAMPLES_MAX: u32 = 8192;
    /// The longest trial, in releases: they follow the order of arrival, so that groups have different
    /// numbers of requests in flight.
    pub const INTERFERENCE_TRIAL_MAX: u64 = 4096;
    /// Releases from the beginning of a trial to the next.
    pub const INTERFERENCE_TRIAL_PERIOD: u64 = 128 << 10;
    /// What an owner of weight 1 releases in its turn in a group.
    pub const INTERFERENCE_QUANTUM_BYTES: u64 = 128 << 10;
    /// A larger request counts as one of this size in the turns of a group.
    pub const INTERFERENCE_REQUEST_BYTES_MAX: u64 = 16 << 20;
    /// The greatest weight of a tenant in [`crate::Interference`].
    pub const INTERFERENCE_WEIGHT_MAX: u32 = 1000;

    const _: () = assert!(INTERFERENCE_TRIAL_PERIOD > INTERFERENCE_TRIAL_MAX, "a trial ends before the next");
    const _: () = assert!(IN_FLIGHT_MAX <= WAITING_MAX, "what is refused by the device below has a place to wait");
}
