//! The configuration of a file store.

use serde::Serialize;
use zonda_zoned::{Geometry, PayloadKind};

use crate::FileError;
use crate::limits::{ACTIVE_ZONES_MIN, SEQUENTIAL_ZONES_MIN, ZONE_CAPACITY_BLOCKS_MAX, ZONE_CAPACITY_BLOCKS_MIN};

/// How a file store stores, writes and places data. The media do not contain it: a store can be
/// mounted with another configuration than it was formatted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilesConfig {
    /// [`PayloadKind::Bytes`], the default, or [`PayloadKind::None`] for timing studies: contents
    /// and metadata then exist in memory only, while the commands are the same. Such a store cannot
    /// be mounted again.
    pub keeps: PayloadKind,
    /// 1 to 100, default 90: a zone whose occupancy (written share of its capacity) is at least
    /// this may be finished to free an active resource at the limit of active zones.
    pub finish_threshold_percent: u8,
    /// The size of write commands: a multiple of the block, reduced to the drive's largest
    /// transfer. Default 256 KiB.
    pub write_unit_bytes: u32,
    /// Bytes of one file that may wait or be in flight, at least one write unit. Default 4 MiB.
    pub file_buffer_bytes: u32,
    /// The largest read command, a multiple of the block, reduced to the drive's largest transfer.
    /// Default 256 KiB.
    pub read_unit_bytes: u32,
    /// When live data are migrated to reclaim space; `None`, the default, is never.
    pub migration: Option<Migration>,
}

/// When zones that are partly garbage are emptied by moving their live data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Begins when fewer than this share of the data zones are empty, 1 to 100.
    pub start_empty_zones_percent: u8,
    /// Selects zones of which at least this share of the capacity is garbage, 1 to 100.
    pub garbage_percent: u8,
}

/// How long a file's data are expected to live: RocksDB's `WriteLifeTimeHint`, in its order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Lifetime {
    /// Not set.
    #[default]
    NotSet = 0,
    /// Set to none.
    None = 1,
    /// Logs.
    Short = 2,
    /// Upper levels.
    Medium = 3,
    /// Middle levels.
    Long = 4,
    /// The last levels.
    Extreme = 5,
}

impl Default for FilesConfig {
    fn default() -> FilesConfig {
        FilesConfig {
            keeps: PayloadKind::Bytes,
            finish_threshold_percent: 90,
            write_unit_bytes: 256 << 10,
            file_buffer_bytes: 4 << 20,
            read_unit_bytes: 256 << 10,
            migration: None,
        }
    }
}

impl FilesConfig {
    /// Checks whether a store with this configuration is possible on a namespace of this geometry.
    pub(crate) fn check(&self, geometry: &Geometry) -> Result<(), FileError> {
        geometry.validate().map_err(|error| FileError::Config(format!("invalid geometry: {error}")))?;
        let require = |holds: bool, words: &dyn Fn() -> String| {
            if holds { Ok(()) } else { Err(FileError::Config(words())) }
        };
        let block = geometry.block_size_bytes;
        let percent = |value: u8| (1..=100).contains(&value);
        let unit = |value: u32| value >= block && value.is_multiple_of(block);
        require(self.keeps != PayloadKind::Fingerprints, &|| "keeps: must be Bytes or None".into())?;
        require(percent(self.finish_threshold_percent), &|| "finish_threshold_percent: must be 1 to 100".into())?;
        require(unit(self.write_unit_bytes), &|| {
            format!("write_unit_bytes: must be a multiple of the drive's block of {block} bytes")
        })?;
        require(unit(self.read_unit_bytes), &|| {
            format!("read_unit_bytes: must be a multiple of the drive's block of {block} bytes")
        })?;
        require(self.file_buffer_bytes >= self.write_unit_bytes, &|| {
            "file_buffer_bytes: must be at least write_unit_bytes".into()
        })?;
        if let Some(migration) = self.migration {
            require(percent(migration.start_empty_zones_percent), &|| {
                "migration.start_empty_zones_percent: must be 1 to 100".into()
            })?;
            require(percent(migration.garbage_percent), &|| "migration.garbage_percent: must be 1 to 100".into())?;
        }
        let sequential = geometry.zone_count - geometry.conventional_zone_count;
        require(sequential >= SEQUENTIAL_ZONES_MIN, &|| {
            format!(
                "the drive has {sequential} sequential zones, and a file store needs at least {SEQUENTIAL_ZONES_MIN}"
            )
        })?;
        let capacity = geometry.zone_capacity_blocks.0;
        require((ZONE_CAPACITY_BLOCKS_MIN..=ZONE_CAPACITY_BLOCKS_MAX).contains(&capacity), &|| {
            format!(
                "a zone of the drive holds {capacity} blocks, and a file store needs {ZONE_CAPACITY_BLOCKS_MIN} to \
                 {ZONE_CAPACITY_BLOCKS_MAX}"
            )
        })?;
        require(geometry.max_active_zones.is_none_or(|zones| zones >= ACTIVE_ZONES_MIN), &|| {
            format!("the drive supports fewer than the {ACTIVE_ZONES_MIN} active zones that a file store needs")
        })
    }
}

impl Lifetime {
    /// All of them, by their codes.
    pub const ALL: [Lifetime; 6] =
        [Lifetime::NotSet, Lifetime::None, Lifetime::Short, Lifetime::Medium, Lifetime::Long, Lifetime::Extreme];

    pub(crate) fn of_code(code: u8) -> Option<Lifetime> {
        Lifetime::ALL.get(usize::from(code)).copied()
    }
}
