//! Named bounds of the layers: what each keeps at most before it hands commands back with
//! [`QueueFull`](zonda_zoned::QueueFull).

/// Commands that [`crate::Fault`] has refused, dropped or is to damage.
pub const FAULT_OUTSTANDING_MAX: usize = 4096;
/// Commands that [`crate::Delay`] holds back or is to hold back.
pub const DELAY_OUTSTANDING_MAX: usize = 4096;
/// Commands under way through all handles of one [`crate::Shared`] device.
pub const SHARED_OUTSTANDING_MAX: usize = 65_536;
/// Commands of one handle of a [`crate::Shared`] device, from submission to the poll that hands the completion over.
pub const SHARED_HANDLE_OUTSTANDING_MAX: usize = 4096;
/// Events that [`crate::Trace`] keeps unless told otherwise.
pub const TRACE_EVENTS_DEFAULT: usize = 4096;
/// Commands under way through [`crate::Trace`].
pub const TRACE_OUTSTANDING_MAX: usize = 65_536;
/// Commands that [`crate::Slice`] has with the device; as many completions of its own may wait to be polled for.
pub const SLICE_OUTSTANDING_MAX: usize = 4096;
/// Commands that [`crate::Slice`] takes while it reads the state of zones from the device.
pub const SLICE_PARKED_MAX: usize = 1024;
/// Zones that [`crate::Slice`] asks for in one report.
pub const SURVEY_ZONES_MAX: u32 = 1024;
/// How often [`crate::Slice`] asks for a report that fails.
pub const SURVEY_ATTEMPTS_MAX: u32 = 3;
/// Commands that [`crate::Null`] has ended and nobody has polled for.
pub const NULL_OUTSTANDING_MAX: usize = 4096;
/// Commands that [`crate::Memory`] has ended and nobody has polled for; each may hold a transfer of data.
pub const MEMORY_OUTSTANDING_MAX: usize = 4096;
/// Memory that zones of a [`crate::Memory`] gave back and that it keeps for the next writes; data and metadata each.
pub const MEMORY_SPARE_BYTES_MAX: usize = 1 << 30;
/// Commands under way through [`crate::Paced`].
pub const PACED_OUTSTANDING_MAX: usize = 65_536;
