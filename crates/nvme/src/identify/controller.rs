//! Identify Controller (NVMe Base 2.0, section 5.17.2.1, Figure 275; NVM Command Set 1.0, section
//! 4.1.5.2).

use zerocopy::little_endian::{U16, U32, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::Geometry;

use super::capabilities::{attributes, log_attributes, optional_commands, sgl_support, sharing, write_cache};
use super::transfer::common_exponent;
use crate::features::notices;
use crate::page::{Page, PageError, ascii_field, field_text, name_field};

/// NVMe 2.0.0 as in the Version field (VER) and the Version property.
pub const VERSION_2_0: u32 = 0x0002_0000;

/// Identity and capabilities of a controller.
///
/// ```text
///    0 PCI vendor (VID, SSVID) | 4 serial (SN) | 24 model (MN) | 64 firmware (FR) | 72 RAB | 73 IEEE | 76 CMIC
///   77 MDTS | 78 CNTLID | 80 VER | 84 RTD3R | 88 RTD3E | 92 OAES | 96 CTRATT | 100 RRLS | 111 CNTRLTYPE
///  112 FGUID | 128 CRDT1..3 | 240 NVMe-MI | 256 OACS | 258 ACL | 259 AERL | 260 FRMW | 261 LPA | 262 ELPE
///  263 NPSS | 264 AVSCC | 265 APSTA | 266 WCTEMP | 268 CCTEMP | 270 MTFA | 272 HMPRE | 276 HMMIN
///  280 TNVMCAP | 296 UNVMCAP | 312 RPMBS | 316 EDSTT | 318 DSTO | 319 FWUG | 320 KAS | 322 HCTMA..MXTMT
///  328 SANICAP | 332 HMMINDS | 336 HMMAXD | 338 NSETIDMAX | 340 ENDGIDMAX | 342 ANA | 352 PELS | 356 DOMAINID
///  368 MEGCAP | 512 SQES | 513 CQES | 514 MAXCMD | 516 NN | 520 ONCS | 522 FUSES | 524 FNA | 525 VWC
///  526 AWUN | 528 AWUPF | 530 ICSVSCC | 531 NWPC | 532 ACWU | 534 CDFS | 536 SGLS | 540 MNAN | 544 MAXDNA
///  560 MAXCNA | 768 SUBNQN | 1792 IOCCSZ | 1796 IORCSZ | 1800 ICDOFF | 1802 FCATT | 1803 MSDBD | 1804 OFCS
///  2048 power state 0 .. 31 | 3072 vendor specific
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Controller {
    /// PCI Vendor ID (VID); zero without PCI.
    pub pci_vendor_id: U16,
    /// PCI Subsystem Vendor ID (SSVID).
    pub pci_subsystem_vendor_id: U16,
    /// Serial Number (SN), ASCII; see [`Controller::serial_number`].
    pub serial_number_bytes: [u8; 20],
    /// Model Number (MN), ASCII; see [`Controller::model_number`].
    pub model_number_bytes: [u8; 40],
    /// Firmware Revision (FR), ASCII; see [`Controller::firmware_revision`].
    pub firmware_revision_bytes: [u8; 8],
    /// Recommended Arbitration Burst (RAB), 2^n commands.
    pub arbitration_burst: u8,
    /// IEEE OUI Identifier (IEEE), least significant byte first.
    pub ieee_oui: [u8; 3],
    /// Controller Multi-Path I/O and Namespace Sharing Capabilities (CMIC); see [`sharing`].
    pub sharing: u8,
    /// Maximum Data Transfer Size (MDTS), 2^n memory pages of 4 KiB; 0 is no limit.
    pub max_transfer_exponent: u8,
    /// Controller ID (CNTLID).
    pub controller_id: U16,
    /// Version (VER).
    pub version: U32,
    /// RTD3 Resume Latency (RTD3R), microseconds.
    pub resume_latency_us: U32,
    /// RTD3 Entry Latency (RTD3E), microseconds.
    pub entry_latency_us: U32,
    /// Optional Asynchronous Events Supported (OAES); see [`notices`].
    pub async_events: U32,
    /// Controller Attributes (CTRATT); see [`attributes`].
    pub attributes: U32,
    /// Read Recovery Levels Supported (RRLS).
    pub read_recovery_levels: U16,
    _reserved_102: [u8; 9],
    /// Controller Type (CNTRLTYPE); see [`ControllerKind`].
    pub kind: u8,
    /// FRU Globally Unique Identifier (FGUID).
    pub fru_guid: [u8; 16],
    /// Command Retry Delay Times (CRDT1 to CRDT3), in 100 ms.
    pub command_retry_delays_100ms: [U16; 3],
    _reserved_134: [u8; 106],
    /// Bytes of the NVMe Management Interface (NVMSR, VWCI and MEC last).
    pub management_interface: [u8; 16],
    /// Optional Admin Command Support (OACS).
    pub optional_admin_commands: U16,
    /// Abort Command Limit (ACL), zero-based.
    pub abort_limit: u8,
    /// Asynchronous Event Request Limit (AERL), zero-based.
    pub async_event_limit: u8,
    /// Firmware Updates (FRMW).
    pub firmware_updates: u8,
    /// Log Page Attributes (LPA); see [`log_attributes`].
    pub log_attributes: u8,
    /// Error Log Page Entries (ELPE), zero-based.
    pub error_log_entries: u8,
    /// Number of Power States Support (NPSS), zero-based.
    pub power_states_count: u8,
    /// Admin Vendor Specific Command Configuration (AVSCC).
    pub vendor_admin_format: u8,
    /// Autonomous Power State Transition Attributes (APSTA).
    pub autonomous_power: u8,
    /// Warning Composite Temperature Threshold (WCTEMP), kelvins.
    pub warning_temperature_kelvin: U16,
    /// Critical Composite Temperature Threshold (CCTEMP), kelvins.
    pub critical_temperature_kelvin: U16,
    /// Maximum Time for Firmware Activation (MTFA), in 100 ms.
    pub firmware_activation_100ms: U16,
    /// Host Memory Buffer Preferred Size (HMPRE).
    pub host_memory_preferred: U32,
    /// Host Memory Buffer Minimum Size (HMMIN).
    pub host_memory_minimum: U32,
    /// Total NVM Capacity (TNVMCAP), bytes.
    pub total_capacity_bytes: U128,
    /// Unallocated NVM Capacity (UNVMCAP), bytes.
    pub unallocated_capacity_bytes: U128,
    /// Replay Protected Memory Block Support (RPMBS).
    pub replay_protected_memory: U32,
    /// Extended Device Self-test Time (EDSTT), minutes.
    pub self_test_minutes: U16,
    /// Device Self-test Options (DSTO).
    pub self_test_options: u8,
    /// Firmware Update Granularity (FWUG), in 4 KiB.
    pub firmware_granularity: u8,
    /// Keep Alive Support (KAS): granularity of the keep alive timer in 100 ms; zero is no keep
    /// alive, which Linux refuses.
    pub keep_alive_granularity_100ms: U16,
    /// Host Controlled Thermal Management Attributes (HCTMA).
    pub thermal_management: U16,
    /// Minimum Thermal Management Temperature (MNTMT), kelvins.
    pub thermal_minimum_kelvin: U16,
    /// Maximum Thermal Management Temperature (MXTMT), kelvins.
    pub thermal_maximum_kelvin: U16,
    /// Sanitize Capabilities (SANICAP).
    pub sanitize_capabilities: U32,
    /// Host Memory Buffer Minimum Descriptor Entry Size (HMMINDS).
    pub host_memory_descriptor_minimum: U32,
    /// Host Memory Maximum Descriptors Entries (HMMAXD).
    pub host_memory_descriptors_max: U16,
    /// NVM Set Identifier Maximum (NSETIDMAX).
    pub nvm_sets_max: U16,
    /// Endurance Group Identifier Maximum (ENDGIDMAX).
    pub endurance_groups_max: U16,
    /// ANA Transition Time (ANATT), seconds.
    pub ana_transition_seconds: u8,
    /// Asymmetric Namespace Access Capabilities (ANACAP).
    pub ana_capabilities: u8,
    /// ANA Group Identifier Maximum (ANAGRPMAX).
    pub ana_group_max: U32,
    /// Number of ANA Group Identifiers (NANAGRPID).
    pub ana_groups: U32,
    /// Persistent Event Log Size (PELS), in 64 KiB.
    pub persistent_event_log_size: U32,
    /// Domain Identifier.
    pub domain_id: U16,
    _reserved_358: [u8; 10],
    /// Max Endurance Group Capacity (MEGCAP), bytes.
    pub endurance_group_capacity_max_bytes: U128,
    _reserved_384: [u8; 128],
    /// Submission Queue Entry Size (SQES): bits 3:0 required, 7:4 maximum, 2^n bytes.
    pub submission_entry_sizes: u8,
    /// Completion Queue Entry Size (CQES): bits 3:0 required, 7:4 maximum, 2^n bytes.
    pub completion_entry_sizes: u8,
    /// Maximum Outstanding Commands (MAXCMD) of one I/O queue, which Fabrics requires.
    pub max_outstanding_commands: U16,
    /// Number of Namespaces (NN): the largest namespace identifier.
    pub namespaces_max: U32,
    /// Optional NVM Command Support (ONCS); see [`optional_commands`].
    pub optional_commands: U16,
    /// Fused Operation Support (FUSES).
    pub fused_operations: U16,
    /// Format NVM Attributes (FNA).
    pub format_attributes: u8,
    /// Volatile Write Cache (VWC); see [`write_cache`].
    pub write_cache: u8,
    /// Atomic Write Unit Normal (AWUN), zero-based blocks.
    pub atomic_write_normal: U16,
    /// Atomic Write Unit Power Fail (AWUPF), zero-based blocks.
    pub atomic_write_power_fail: U16,
    /// I/O Command Set Vendor Specific Command Configuration (ICSVSCC).
    pub vendor_io_format: u8,
    /// Namespace Write Protection Capabilities (NWPC).
    pub write_protection: u8,
    /// Atomic Compare & Write Unit (ACWU), zero-based blocks.
    pub atomic_compare_write: U16,
    /// Copy Descriptor Formats Supported (CDFS).
    pub copy_formats: U16,
    /// SGL Support (SGLS); see [`sgl_support`].
    pub sgl_support: U32,
    /// Maximum Number of Allowed Namespaces (MNAN); zero is as many as
    /// [`Controller::namespaces_max`].
    pub allowed_namespaces_max: U32,
    /// Maximum Domain Namespace Attachments (MAXDNA).
    pub domain_attachments_max: U128,
    /// Maximum I/O Controller Namespace Attachments (MAXCNA).
    pub controller_attachments_max: U32,
    _reserved_564: [u8; 204],
    /// NVM Subsystem NVMe Qualified Name (SUBNQN); see [`Controller::subsystem_nqn`].
    pub subsystem_nqn_bytes: [u8; 256],
    _reserved_1024: [u8; 768],
    /// I/O Queue Command Capsule Supported Size (IOCCSZ), in 16 bytes: 64 bytes of command and the
    /// in-capsule data.
    pub command_capsule_16b: U32,
    /// I/O Queue Response Capsule Supported Size (IORCSZ), in 16 bytes.
    pub response_capsule_16b: U32,
    /// In Capsule Data Offset (ICDOFF), in 16 bytes after the command; zero for TCP.
    pub in_capsule_offset_16b: U16,
    /// Fabrics Controller Attributes (FCATT): bit 0 is the static controller model.
    pub fabrics_attributes: u8,
    /// Maximum SGL Data Block Descriptors (MSDBD) of one command.
    pub data_descriptors_max: u8,
    /// Optional Fabrics Commands Support (OFCS): bit 0 is Disconnect.
    pub optional_fabrics_commands: U16,
    _reserved_1806: [u8; 242],
    /// Power State Descriptors (PSD0 to PSD31).
    pub power_states: [PowerState; 32],
    _vendor_3072: [u8; 1024],
}

/// One power state (NVMe Base 2.0, Figure 276).
///
/// ```text
/// 0 maximum power (MP) | 3 scale (MXPS, NOPS) | 4 ENLAT | 8 EXLAT | 12 RRT | 13 RRL | 14 RWT | 15 RWL
/// 16 IDLP | 18 IPS | 20 ACTP | 22 APW, APS
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PowerState {
    /// Maximum Power (MP), in 0.01 W while the scale is 0; zero is not reported.
    pub max_power: U16,
    _reserved_2: u8,
    /// Bit 0: scale of the maximum power (MXPS). Bit 1: non-operational state (NOPS).
    pub scale: u8,
    /// Entry Latency (ENLAT), microseconds.
    pub entry_latency_us: U32,
    /// Exit Latency (EXLAT), microseconds.
    pub exit_latency_us: U32,
    /// Relative Read Throughput, Read Latency, Write Throughput and Write Latency (RRT, RRL, RWT,
    /// RWL); 0 is the best.
    pub relative_performance: [u8; 4],
    /// Idle Power (IDLP).
    pub idle_power: U16,
    /// Idle Power Scale (IPS), bits 7:6.
    pub idle_power_scale: u8,
    _reserved_19: u8,
    /// Active Power (ACTP).
    pub active_power: U16,
    /// Active Power Workload and Scale (APW, APS).
    pub active_power_scale: u8,
    _reserved_23: [u8; 9],
}

const _: () = assert!(size_of::<Controller>() == super::IDENTIFY_BYTES);
const _: () = assert!(size_of::<PowerState>() == 32);

/// Controller Type (CNTRLTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ControllerKind {
    /// 01h: has namespaces.
    Io = 1,
    /// 02h: a discovery controller.
    Discovery = 2,
    /// 03h: manages a subsystem, without I/O. Never offered here.
    Administrative = 3,
}

/// The Identify data of a controller with namespaces.
#[derive(Clone, Debug)]
pub struct IoController<'a> {
    /// At most 20 characters.
    pub serial_number: &'a str,
    /// At most 40 characters.
    pub model_number: &'a str,
    /// At most 8 characters.
    pub firmware_revision: &'a str,
    /// The name of the subsystem.
    pub subsystem_nqn: &'a str,
    /// The identifier in the response to Connect. Linux refuses a different one.
    pub controller_id: u16,
    /// The largest namespace identifier.
    pub namespaces_max: u32,
    /// MDTS; see [`Controller::max_transfer_exponent_for`].
    pub max_transfer_exponent: u8,
    /// Whether writes are lost with power until they are flushed.
    pub volatile_write_cache: bool,
    /// Whether Flush supports the namespace FFFFFFFFh.
    pub flush_all_namespaces: bool,
    /// The limit of in-capsule data, a multiple of 16 bytes.
    pub in_capsule_data_bytes: u32,
    /// Outstanding commands of one I/O queue, at least 1.
    pub max_outstanding_commands: u16,
    /// Asynchronous Event Requests that wait at the same time, at least 1.
    pub async_event_requests: u8,
    /// Entries of the error log, at least 1.
    pub error_log_entries: u8,
    /// The unit of the keep alive timer in 100 ms, at least 1.
    pub keep_alive_granularity_100ms: u16,
    /// Whether any command restarts the keep alive timer.
    pub traffic_keeps_alive: bool,
    /// Bytes of all namespaces.
    pub total_capacity_bytes: u128,
}

/// The Identify data of a discovery controller (NVMe Base 2.0, section 3.1.2.3).
#[derive(Clone, Debug)]
pub struct DiscoveryController<'a> {
    /// At most 8 characters.
    pub firmware_revision: &'a str,
    /// The well-known discovery NQN, or a unique one.
    pub subsystem_nqn: &'a str,
    /// The identifier in the response to Connect.
    pub controller_id: u16,
    /// MDTS; 0 is no limit.
    pub max_transfer_exponent: u8,
    /// Commands that the admin queue holds, at least 1.
    pub max_outstanding_commands: u16,
    /// Asynchronous Event Requests that wait at the same time, at least 1.
    pub async_event_requests: u8,
    /// The unit of the keep alive timer in 100 ms, at least 1.
    pub keep_alive_granularity_100ms: u16,
}

impl Page for Controller {
    const NAME: &'static str = "Identify Controller";
}

impl Controller {
    /// A controller with namespaces, over TCP.
    ///
    /// Commands beyond the required ones: Compare, Write Zeroes, Dataset Management and
    /// reservations; no Copy, no Format, no namespace management, no firmware download. Events:
    /// namespace attributes and zone descriptors.
    ///
    /// # Errors
    /// [`PageError`] for a text that does not fit, an in-capsule size that is not a multiple of 16,
    /// or a count of zero.
    pub fn io(with: &IoController<'_>) -> Result<Controller, PageError> {
        if !with.in_capsule_data_bytes.is_multiple_of(16) {
            return Err(value(
                "in-capsule data (IOCCSZ)",
                with.in_capsule_data_bytes.into(),
                "must be a multiple of 16",
            ));
        }
        if with.error_log_entries == 0 {
            return Err(value("error log entries (ELPE)", 0, "must be at least 1"));
        }
        let mut page = Controller::fabrics(
            with.firmware_revision,
            with.subsystem_nqn,
            with.max_outstanding_commands,
            with.async_event_requests,
            with.keep_alive_granularity_100ms,
        )?;
        page.kind = ControllerKind::Io as u8;
        page.serial_number_bytes = ascii_field(Self::NAME, "SN", with.serial_number)?;
        page.model_number_bytes = ascii_field(Self::NAME, "MN", with.model_number)?;
        page.sharing = sharing::MULTIPLE_PORTS | sharing::MULTIPLE_CONTROLLERS;
        page.max_transfer_exponent = with.max_transfer_exponent;
        page.controller_id = with.controller_id.into();
        page.async_events = (notices::NAMESPACE_ATTRIBUTE | notices::ZONE_DESCRIPTOR).into();
        let keep_alive = if with.traffic_keeps_alive { attributes::TRAFFIC_KEEPS_ALIVE } else { 0 };
        page.attributes = (page.attributes.get() | attributes::LIMITS_EXCLUDE_METADATA | keep_alive).into();
        page.log_attributes = log_attributes::COMMAND_EFFECTS | log_attributes::EXTENDED_DATA;
        page.error_log_entries = with.error_log_entries - 1;
        // 157h is the recommendation of the specification for the warning; the critical threshold
        // is higher.
        page.warning_temperature_kelvin = 0x157.into();
        page.critical_temperature_kelvin = 353.into();
        page.total_capacity_bytes = with.total_capacity_bytes.into();
        page.submission_entry_sizes = 0x66;
        page.completion_entry_sizes = 0x44;
        page.namespaces_max = with.namespaces_max.into();
        page.optional_commands = (optional_commands::COMPARE
            | optional_commands::DATASET_MANAGEMENT
            | optional_commands::WRITE_ZEROES
            | optional_commands::RESERVATIONS)
            .into();
        let cache = if with.volatile_write_cache { write_cache::PRESENT } else { 0 };
        let flush = if with.flush_all_namespaces {
            write_cache::FLUSH_ALL_NAMESPACES
        } else {
            write_cache::FLUSH_ONE_NAMESPACE
        };
        page.write_cache = cache | flush;
        page.command_capsule_16b = ((COMMAND_BYTES + with.in_capsule_data_bytes) / 16).into();
        Ok(page)
    }

    /// A discovery controller, over TCP. It reports changes of the discovery log page.
    ///
    /// # Errors
    /// [`PageError`] for a text that does not fit, or a count of zero.
    pub fn discovery(with: &DiscoveryController<'_>) -> Result<Controller, PageError> {
        let mut page = Controller::fabrics(
            with.firmware_revision,
            with.subsystem_nqn,
            with.max_outstanding_commands,
            with.async_event_requests,
            with.keep_alive_granularity_100ms,
        )?;
        page.kind = ControllerKind::Discovery as u8;
        page.serial_number_bytes = [b' '; 20];
        page.model_number_bytes = [b' '; 40];
        page.max_transfer_exponent = with.max_transfer_exponent;
        page.controller_id = with.controller_id.into();
        page.async_events = notices::DISCOVERY_LOG_PAGE.into();
        page.log_attributes = log_attributes::EXTENDED_DATA;
        Ok(page)
    }

    /// The MDTS for all `geometries`: the smallest of their limits, rounded down to a power of two.
    ///
    /// # Errors
    /// [`PageError::Value`] if a limit is below 8 KiB, which MDTS cannot express.
    pub fn max_transfer_exponent_for<'a>(geometries: impl IntoIterator<Item = &'a Geometry>) -> Result<u8, PageError> {
        let limits = geometries.into_iter().map(|geometry| (geometry.max_transfer_blocks, geometry.block_size_bytes));
        common_exponent(Self::NAME, "MDTS", limits)
    }

    /// Serial Number (SN) without its padding.
    #[must_use]
    pub fn serial_number(&self) -> String {
        field_text(&self.serial_number_bytes)
    }

    /// Model Number (MN) without its padding.
    #[must_use]
    pub fn model_number(&self) -> String {
        field_text(&self.model_number_bytes)
    }

    /// Firmware Revision (FR) without its padding.
    #[must_use]
    pub fn firmware_revision(&self) -> String {
        field_text(&self.firmware_revision_bytes)
    }

    /// The NQN of the subsystem (SUBNQN), unchecked.
    #[must_use]
    pub fn subsystem_nqn(&self) -> String {
        field_text(&self.subsystem_nqn_bytes)
    }

    /// The limit of in-capsule data (IOCCSZ less the command); zero also for an invalid size.
    #[must_use]
    pub fn in_capsule_data_bytes(&self) -> u32 {
        self.command_capsule_16b.get().saturating_mul(16).saturating_sub(COMMAND_BYTES)
    }

    /// Whether every bit of `wanted` is set in the Controller Attributes (CTRATT).
    #[must_use]
    pub fn has_attributes(&self, wanted: u32) -> bool {
        self.attributes.get() & wanted == wanted
    }

    /// The data that both kinds of Fabrics controllers have in common.
    fn fabrics(
        firmware_revision: &str,
        subsystem_nqn: &str,
        max_outstanding_commands: u16,
        async_event_requests: u8,
        keep_alive_granularity_100ms: u16,
    ) -> Result<Controller, PageError> {
        for (field, count) in [
            ("outstanding commands (MAXCMD)", max_outstanding_commands),
            ("asynchronous event requests (AERL)", async_event_requests.into()),
            ("keep alive granularity (KAS)", keep_alive_granularity_100ms),
        ] {
            if count == 0 {
                return Err(value(field, 0, "must be at least 1"));
            }
        }
        let mut page = Controller::empty();
        page.firmware_revision_bytes = ascii_field(Self::NAME, "FR", firmware_revision)?;
        page.version = VERSION_2_0.into();
        page.attributes = attributes::LONG_HOST_IDENTIFIER.into();
        page.abort_limit = 3;
        page.async_event_limit = async_event_requests - 1;
        // One slot, read only: firmware download is not supported.
        page.firmware_updates = 0b0011;
        page.keep_alive_granularity_100ms = keep_alive_granularity_100ms.into();
        page.max_outstanding_commands = max_outstanding_commands.into();
        page.sgl_support =
            (sgl_support::SUPPORTED | sgl_support::OFFSET_ADDRESS | sgl_support::TRANSPORT_DATA_BLOCK).into();
        page.subsystem_nqn_bytes = name_field(Self::NAME, "SUBNQN", subsystem_nqn)?;
        page.command_capsule_16b = (COMMAND_BYTES / 16).into();
        page.response_capsule_16b = 1.into();
        page.data_descriptors_max = 1;
        Ok(page)
    }
}

/// Bytes of a submission queue entry (NVMe Base 2.0, section 3.3.3.1).
const COMMAND_BYTES: u32 = 64;

fn value(field: &'static str, value: u64, remedy: &'static str) -> PageError {
    PageError::Value { page: Controller::NAME, field, value, remedy }
}
