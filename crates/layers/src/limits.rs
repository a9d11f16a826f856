//! Limits of the layers: above most of them, commands are refused with
//! [`QueueFull`](zonda_zoned::QueueFull).

/// Commands that [`crate::Fault`] has failed, dropped or will alter.
pub const FAULT_OUTSTANDING_MAX: usize = 4096;
/// Commands that [`crate::Delay`] delays.
pub const DELAY_OUTSTANDING_MAX: usize = 4096;
/// Commands in flight through all handles of one [`crate::Shared`] device.
pub const SHARED_OUTSTANDING_MAX: usize = 65_536;
/// Commands of one handle of a [`crate::Shared`] device, from submission to the poll that returns
/// the completion.
pub const SHARED_HANDLE_OUTSTANDING_MAX: usize = 4096;
/// Events that [`crate::Trace`] keeps by default.
pub const TRACE_EVENTS_DEFAULT: usize = 4096;
/// Commands in flight through [`crate::Trace`].
pub const TRACE_OUTSTANDING_MAX: usize = 65_536;
/// Commands of [`crate::Slice`] in flight at the device; the same number of its own completions can
/// wait to be polled for.
pub const SLICE_OUTSTANDING_MAX: usize = 4096;
/// Commands that [`crate::Slice`] accepts while it resyncs its zones with the device.
pub const SLICE_PARKED_MAX: usize = 1024;
/// Zones that [`crate::Slice`] requests with one Report Zones command.
pub const RESYNC_ZONES_MAX: u32 = 1024;
/// Attempts of [`crate::Slice`] at a report that fails.
pub const RESYNC_ATTEMPTS_MAX: u32 = 3;
/// Completed commands of [`crate::Null`] that are not yet polled for.
pub const NULL_OUTSTANDING_MAX: usize = 4096;
/// Completed commands of [`crate::Memory`] that are not yet polled for; each may hold the data of a
/// transfer.
pub const MEMORY_OUTSTANDING_MAX: usize = 4096;
/// Memory that zones of a [`crate::Memory`] have released and that it keeps for the next writes;
/// for data and metadata each.
pub const MEMORY_SPARE_BYTES_MAX: usize = 1 << 30;
/// Commands in flight through [`crate::Paced`].
pub const PACED_OUTSTANDING_MAX: usize = 65_536;
