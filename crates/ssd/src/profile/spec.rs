//! The tables of a profile, as in its file.

use serde::{Deserialize, Serialize};
use zonda_config::{ByteSize, ConfigError, TimeSpan};

use super::{Bandwidth, FirmwareSpec, Sources, check, locate};
use crate::allocation::AllocationKind;
use crate::service_time::{BySize, ServiceTimeSpec};

/// One drive: its namespace, its hardware and its firmware.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name of the drive on the command line.
    pub name: String,
    /// Title, in one line.
    pub title: String,
    /// Description: what it is suitable for, and what not.
    pub description: String,
    /// The namespace.
    pub geometry: GeometrySpec,
    /// Dies and their operations.
    pub flash: FlashSpec,
    /// Buses between controller and dies.
    pub channel: ChannelSpec,
    /// Link to the host.
    pub link: LinkSpec,
    /// Processing times of commands.
    pub firmware: FirmwareSpec,
    /// The write buffer, where writes wait for their program.
    pub write_buffer: BufferSpec,
    /// Placement of zones on dies.
    pub zones: ZonesSpec,
    /// Storage of conventional zones.
    #[serde(default)]
    pub conventional: ConventionalSpec,
    /// Source of each number.
    pub sources: Sources,
}

/// The namespace's shape and limits; see [`Geometry`](zonda_zoned::Geometry).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GeometrySpec {
    /// Size of a logical block.
    pub block_size: ByteSize,
    /// Metadata with each block, 0 to 64 bytes.
    #[serde(default)]
    pub metadata_bytes: u16,
    /// From one zone's start to the next.
    pub zone_size: ByteSize,
    /// Writable capacity of a zone.
    pub zone_capacity: ByteSize,
    /// Zones in the namespace.
    pub zones: u32,
    /// How many of them, at its start, take random writes.
    #[serde(default)]
    pub conventional_zones: u32,
    /// Absent: no limit.
    pub max_active_zones: Option<u32>,
    /// Absent: no limit.
    pub max_open_zones: Option<u32>,
    /// The largest read or write.
    pub max_transfer: ByteSize,
    /// The largest append.
    pub max_append: ByteSize,
    /// Whether a read may cross a zone's end.
    #[serde(default)]
    pub read_across_zones: bool,
    /// A multiple of 64; 0 is none.
    #[serde(default)]
    pub descriptor_extension_bytes: u32,
    /// Zone Random Write Areas, if the drive has them.
    pub zrwa: Option<ZrwaSpec>,
}

/// Zone Random Write Areas; see [`ZrwaGeometry`](zonda_zoned::ZrwaGeometry).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ZrwaSpec {
    /// Size of an area.
    pub size: ByteSize,
    /// Commit granularity.
    pub flush_granularity: ByteSize,
    /// Areas in use at a time.
    pub resources: u32,
    /// Whether explicit commits are supported.
    #[serde(default)]
    pub explicit_flush: bool,
}

/// Dies and their operations.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FlashSpec {
    /// Channels of the drive.
    pub channels: u32,
    /// Dies on each channel.
    pub dies_per_channel: u32,
    /// Bytes read by one sensing: a page, times the planes read together. Also the unit in which a
    /// zone's data are striped over its dies.
    pub read_unit: ByteSize,
    /// Bytes one program writes: a page, times planes, times bits a cell where they are programmed
    /// in one shot.
    pub program_unit: ByteSize,
    /// Bytes one erase frees on a die.
    pub erase_unit: ByteSize,
    /// Sensing (tR), by the bytes wanted of the page.
    pub read: BySize,
    /// Programming one unit (tPROG).
    pub program: ServiceTimeSpec,
    /// Erasing one unit (tBERS).
    pub erase: ServiceTimeSpec,
    /// Types of the pages of cells with several bits, in the order in which pages are programmed.
    /// Empty: all pages take the same times.
    #[serde(default)]
    pub page_types: Vec<PageTypeSpec>,
    /// Whether a die can sense while a page is transferred from its cache register.
    #[serde(default)]
    pub cache_read: bool,
    /// Programs and erases are suspended for waiting reads at multiples of this time. Zero: never.
    #[serde(default)]
    pub suspend_slice: TimeSpan,
    /// From the end of a slice until the waiting reads are served.
    #[serde(default)]
    pub suspend_latency: TimeSpan,
    /// The same of an erase. Absent: as `suspend_latency`.
    pub erase_suspend_latency: Option<TimeSpan>,
    /// How often one operation is suspended, at most. Zero: without limit.
    #[serde(default)]
    pub suspends_max: u32,
    /// Added to a suspended operation when it is resumed.
    #[serde(default)]
    pub resume_latency: TimeSpan,
    /// How far the drive reads ahead of a sequential reader. Zero: not at all.
    #[serde(default)]
    pub read_ahead: ByteSize,
    /// Order of the programs that wait at a die.
    #[serde(default)]
    pub program_order: ProgramOrder,
    /// Whether the padding of a finished zone is transferred to the dies like data; otherwise it is
    /// made there.
    #[serde(default)]
    pub transfers_padding: bool,
}

/// A type of pages: lower, center or upper bits of their cells.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PageTypeSpec {
    /// Added to the sensing of such a page.
    #[serde(default)]
    pub read_extra: TimeSpan,
    /// Added to the program of such a page, where pages are programmed one by one.
    #[serde(default)]
    pub program_extra: TimeSpan,
}

/// Order of the programs that wait at a die.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramOrder {
    /// In order of arrival.
    #[default]
    Arrival,
    /// Zones that are written or finished get equal shares of the program bandwidth.
    Fair,
}

/// A bus between the controller and its dies.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelSpec {
    /// Bytes per second.
    pub bandwidth: Bandwidth,
    /// The command that starts the sensing of a page, which waits for the channel like a transfer.
    /// Zero: it does not use the channel.
    #[serde(default)]
    pub read_command: TimeSpan,
    /// Overhead of the transfer of a page that is read, by its bytes.
    #[serde(default)]
    pub read_overhead: BySize,
    /// Overhead of the transfer of a page to be programmed.
    #[serde(default)]
    pub write_overhead: TimeSpan,
}

/// The link between host and controller: one queue for each direction.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// Bytes per second to the host.
    pub read_bandwidth: Bandwidth,
    /// Bytes per second from the host.
    pub write_bandwidth: Bandwidth,
    /// Overhead of each read command.
    #[serde(default)]
    pub read_overhead: TimeSpan,
    /// Overhead of each write command.
    #[serde(default)]
    pub write_overhead: TimeSpan,
}

/// The write buffer, where writes wait for their program.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BufferSpec {
    /// Bytes in all.
    pub capacity: ByteSize,
    /// Bytes that one zone, or one die, may hold. Absent: all of it.
    pub cap: Option<ByteSize>,
    /// What `cap` counts.
    #[serde(default)]
    pub cap_scope: CapScope,
    /// Bytes that are admitted while a reset holds back programs, at most. Absent: no limit.
    pub reset_quota: Option<ByteSize>,
    /// The same of one zone.
    pub reset_quota_per_zone: Option<ByteSize>,
    /// Order of admission when the buffer is full.
    #[serde(default)]
    pub admission: Admission,
    /// A write completes when it is in the buffer; otherwise when it is programmed.
    pub early_completion: bool,
}

/// What the buffer's cap counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapScope {
    /// Bytes of one zone.
    #[default]
    Zone,
    /// Bytes of all zones on one die; only where a zone lies on one die.
    Die,
}

/// Order of admission when the write buffer is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Admission {
    /// In order of arrival; a writer at its cap is passed by those behind it.
    #[default]
    FirstCome,
    /// In order of arrival; a writer at its cap blocks those behind it.
    Strict,
    /// One piece from each waiting zone in turn.
    RoundRobin,
}

/// Placement of zones on dies.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ZonesSpec {
    /// The allocation policy.
    pub allocation: AllocationKind,
    /// Dies that one zone is spread over.
    pub parallelism: u32,
    /// Assignment of dies, if a zone is not on all of them.
    #[serde(default)]
    pub placement: Placement,
    /// LUNs (dies) that a zone takes elements of, at least. Absent: `parallelism`. Not for `fixed`,
    /// nor the next two.
    pub luns_min: Option<u32>,
    /// Elements that a zone takes of one LUN, or group of LUNs that its elements lie across, at
    /// most. Absent: what an even spread over `luns_min` needs.
    pub elements_per_lun_max: Option<u32>,
    /// LUNs that one allocation may choose from. Absent: `parallelism`.
    pub luns_eligible: Option<u32>,
}

/// Assignment of dies, if a zone is not on all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Given by the zone's index: consecutive zones on consecutive sets of dies.
    #[default]
    ByIndex,
    /// Given at the first write after a reset: the next set of dies in turn.
    RoundRobin,
}

/// Conventional zones: a page-mapped translation layer.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConventionalSpec {
    /// Flash for data that are no longer valid, in percent of the capacity of the conventional
    /// zones. Erase units that are kept free or open come on top.
    pub over_provisioning_percent: u32,
    /// A die collects garbage when it has fewer free erase units than this.
    pub gc_low_units: u32,
    /// A die moves the data of an erase unit when its units have been erased this many times more
    /// on average. Absent: never.
    pub wear_leveling_erases: Option<u32>,
    /// Memory for the part of the map that is in use. Absent: all of it is in memory.
    pub map_cache: Option<ByteSize>,
}

impl Default for ConventionalSpec {
    fn default() -> ConventionalSpec {
        ConventionalSpec { over_provisioning_percent: 7, gc_low_units: 3, wear_leveling_erases: None, map_cache: None }
    }
}

/// Names a complete profile in an error about a missing key, since others may be missing, too.
fn with_example(error: ConfigError) -> ConfigError {
    match &error.help {
        Some(help) if error.message.starts_with("missing key") => {
            let help = format!("{help}; crates/profiles/drives/tiny.toml is a complete profile");
            error.help(help)
        }
        _ => error,
    }
}

impl Profile {
    /// Parses and checks a profile.
    ///
    /// # Errors
    /// The first error, with its place in the text if known.
    pub fn parse(text: &str) -> Result<Profile, ConfigError> {
        let mut profile: Profile = zonda_config::parse(text).map_err(with_example)?;
        check::check(&profile).map_err(|mistake| {
            let span = locate::locate(text, &mistake.key);
            ConfigError { message: format!("{} {}", mistake.key, mistake.remedy), span, help: None }
        })?;
        profile.sources.bind(text)?;
        Ok(profile)
    }

    /// Dies of the drive.
    #[must_use]
    pub fn dies(&self) -> u32 {
        self.flash.channels * self.flash.dies_per_channel
    }
}
