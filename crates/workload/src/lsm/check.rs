//! Checks a specification against a drive and bounds, and fills in the defaults.

use zonda_config::{ByteSize, ConfigError, Spanned, TimeSpan};
use zonda_files::{FilesConfig, Lifetime, Migration};
use zonda_zoned::{Duration, Geometry, PayloadKind};

use super::compaction::LevelSizes;
use super::entry::EntryFormat;
use super::plan::{Load, TreeOptions};
use super::spec::{LifetimesSpec, StoreSpec, StoreWorkload};
use super::table::TableFormat;
use crate::Fraction;
use crate::limits::{
    STORE_BLOCK_BYTES_MAX, STORE_BLOOM_BITS_MAX, STORE_CACHE_BYTES_MAX, STORE_CLIENTS_MAX, STORE_ENTRY_BYTES_MAX,
    STORE_JOBS_MAX, STORE_KEY_BYTES_MIN, STORE_LEVELS, STORE_MEMTABLES_MAX, STORE_OPERATIONS_MAX, STORE_REPEATS_MAX,
    STORE_TABLE_BYTES_MAX, TIME_MAX_NS,
};

const MIB: u64 = 1 << 20;
/// Overlap of one output with the level after its own, in target sizes (RocksDB,
/// `max_compaction_bytes`).
const GRANDPARENT_TARGETS_MAX: u64 = 25;
/// Bytes of a write to the drive, if it supports this size.
const WRITE_UNIT_DEFAULT_BYTES: u64 = 256 << 10;
/// Active zones besides those for the outputs of background jobs: metadata, manifest, and a log.
const ACTIVE_ZONES_FIXED: u32 = 3;

/// A specification and its position in the file.
pub(super) struct Check<'a> {
    pub(super) place: &'a Spanned<StoreSpec>,
    pub(super) spec: &'a StoreSpec,
    pub(super) geometry: &'a Geometry,
}

impl Check<'_> {
    pub(super) fn load(&self) -> Result<Load, ConfigError> {
        let spec = self.spec;
        let workload = *spec.workload.get_ref();
        let operations = number(&spec.operations, 1_000_000, 1, STORE_OPERATIONS_MAX)?;
        let preload = number(&spec.preload, 0, 0, STORE_OPERATIONS_MAX)?;
        if workload.needs_preload() && preload == 0 {
            let message = format!("workload = \"{workload}\" needs existing entries");
            let error = match &spec.preload {
                Some(place) => ConfigError::at(place, message),
                None => ConfigError::at(&spec.workload, message),
            };
            return Err(error.help("add a line like preload = 1000000"));
        }
        let keys_default = if preload > 0 { preload } else { operations };
        let keys = number(&spec.keys, keys_default, 1, STORE_OPERATIONS_MAX)?;
        if let Some(place) = &spec.keys {
            if !workload.has_fixed_keys() {
                return Err(ConfigError::at(place, format!("workload = \"{workload}\" generates its own keys"))
                    .help("remove keys; it applies to fillrandom, overwrite, readrandom and readwhilewriting"));
            }
            if keys < preload {
                return Err(ConfigError::at(place, format!("keys is less than preload = {preload}"))
                    .help("write at least as many keys: each preloaded entry has its own key"));
            }
        }
        let readers = number(&spec.clients, 1, 1, STORE_CLIENTS_MAX - 1)?;
        let writers = u32::from(workload == StoreWorkload::Readwhilewriting);
        Ok(Load {
            workload,
            operations,
            preload,
            keys,
            repeat: number(&spec.repeat, 1, 1, STORE_REPEATS_MAX)?,
            clients: readers + writers,
            operation_cpu: time(&spec.operation_cpu, Duration::from_micros(2))?,
        })
    }

    fn entry(&self) -> Result<EntryFormat, ConfigError> {
        let entry_bytes = size(&self.spec.entry_size, 512, STORE_KEY_BYTES_MIN, STORE_ENTRY_BYTES_MAX)?;
        let key_bytes = size(&self.spec.key_size, 16, STORE_KEY_BYTES_MIN, STORE_ENTRY_BYTES_MAX)?;
        if key_bytes > entry_bytes {
            let message =
                format!("an entry of {} is smaller than a key of {}", ByteSize(entry_bytes), ByteSize(key_bytes));
            return Err(self
                .at(self.spec.entry_size.as_ref().or(self.spec.key_size.as_ref()), message)
                .help("entry_size is the size of key and value together"));
        }
        Ok(EntryFormat { key_bytes: key_bytes as u32, value_bytes: (entry_bytes - key_bytes) as u32 })
    }

    pub(super) fn tree(&self, files: &FilesConfig) -> Result<TreeOptions, ConfigError> {
        let spec = self.spec;
        let entry = self.entry()?;
        let entry_bytes = u64::from(entry.key_bytes + entry.value_bytes);
        let block_bytes = size(&spec.block_size, 4 << 10, 64, STORE_BLOCK_BYTES_MAX)?;
        let table = TableFormat {
            entry,
            block_bytes: block_bytes as u32,
            bloom_bits_per_key: number(&spec.bloom_bits_per_key, 10, 0, STORE_BLOOM_BITS_MAX)?,
        };
        let target_file_bytes =
            size(&spec.target_file_size, 64 * MIB, block_bytes.max(entry_bytes), STORE_TABLE_BYTES_MAX)?;
        let jobs = number(&spec.background_jobs, 2, 1, STORE_JOBS_MAX)?;
        let compactions = (jobs - 1).max(1);
        self.active_zones_suffice(compactions + 1)?;
        let trigger = number(&spec.level0_compaction_trigger, 4, 1, u32::MAX)?;
        let slowdown = number(&spec.level0_slowdown, 20.max(trigger), trigger, u32::MAX)?;
        let lifetimes = spec.lifetimes.clone().unwrap_or_default();
        Ok(TreeOptions {
            table,
            sizes: LevelSizes {
                level0_trigger: trigger as usize,
                level1_bytes: size(&spec.level1_size, 256 * MIB, 1, u64::MAX)?,
                multiplier: number(&spec.level_multiplier, 10, 2, 1_000)?,
                grandparent_bytes_max: target_file_bytes * GRANDPARENT_TARGETS_MAX,
            },
            target_file_bytes,
            write_buffer_bytes: size(&spec.write_buffer_size, 64 * MIB, entry_bytes, STORE_TABLE_BYTES_MAX)?,
            memtables_max: number(&spec.write_buffers_max, 2, 1, STORE_MEMTABLES_MAX)? as usize,
            level0_slowdown: slowdown as usize,
            level0_stop: number(&spec.level0_stop, 36.max(slowdown), slowdown, u32::MAX)? as usize,
            block_cache_bytes: size(&spec.block_cache, 32 * MIB, 0, STORE_CACHE_BYTES_MAX)?,
            compactions_max: compactions as usize,
            wal_sync: spec.wal_sync.as_ref().is_some_and(|sync| *sync.get_ref()),
            merge_cpu: time(&spec.merge_cpu, Duration(200))?,
            readahead_bytes: size(&spec.compaction_readahead, 2 * MIB, block_bytes, STORE_TABLE_BYTES_MAX)? as u32,
            write_unit_bytes: u64::from(files.write_unit_bytes),
            log_unit_bytes: u64::from(self.geometry.block_size_bytes),
            wal_lifetime: lifetimes.wal.into(),
            manifest_lifetime: lifetimes.manifest.into(),
            level_lifetimes: level_lifetimes(&lifetimes)?,
        })
    }

    /// A log, the manifest and the output of each job each use a zone while they are written.
    fn active_zones_suffice(&self, outputs: u32) -> Result<(), ConfigError> {
        let Some(max) = self.geometry.max_active_zones else { return Ok(()) };
        let needed = outputs + ACTIVE_ZONES_FIXED;
        if needed <= max {
            return Ok(());
        }
        let message = format!(
            "{outputs} background jobs write to {needed} zones at a time, and the drive allows {max} active zones"
        );
        let error = self.at(self.spec.background_jobs.as_ref(), message);
        if max < ACTIVE_ZONES_FIXED + 2 {
            return Err(error.help("use a drive that allows at least 5 active zones"));
        }
        Err(error.help(format!("write background_jobs = {} or less", max - ACTIVE_ZONES_FIXED)))
    }

    pub(super) fn files(&self) -> Result<FilesConfig, ConfigError> {
        let block = u64::from(self.geometry.block_size_bytes);
        let transfer = self.geometry.max_transfer_blocks.bytes(self.geometry.block_size_bytes);
        let default = FilesConfig::default();
        let unit_default = WRITE_UNIT_DEFAULT_BYTES.min(transfer).max(block);
        let write_unit = size(&self.spec.write_unit, unit_default, block, transfer.max(block))?;
        if let Some(place) = &self.spec.write_unit
            && !write_unit.is_multiple_of(block)
        {
            return Err(ConfigError::at(
                place,
                format!("{} is not a multiple of the block size", ByteSize(write_unit)),
            )
            .help(format!("write a multiple of the drive's block size, \"{}\"", ByteSize(block))));
        }
        let threshold = match &self.spec.finish_threshold {
            Some(place) => percent(place.get_ref(), place)?,
            None => default.finish_threshold_percent,
        };
        let migration = match &self.spec.migration {
            Some(place) => Some(Migration {
                start_empty_zones_percent: percent(&place.get_ref().start_empty_zones, place)?,
                garbage_percent: percent(&place.get_ref().garbage, place)?,
            }),
            None => None,
        };
        Ok(FilesConfig {
            keeps: PayloadKind::None,
            finish_threshold_percent: threshold,
            write_unit_bytes: write_unit as u32,
            file_buffer_bytes: default.file_buffer_bytes.max(write_unit as u32),
            read_unit_bytes: (transfer.max(block) as u32).min(default.read_unit_bytes.max(block as u32)),
            migration,
        })
    }

    fn at<T>(&self, value: Option<&Spanned<T>>, message: String) -> ConfigError {
        match value {
            Some(place) => ConfigError::at(place, message),
            None => ConfigError::at(self.place, message),
        }
    }
}

/// The lifetimes in the table, level by level.
fn level_lifetimes(lifetimes: &LifetimesSpec) -> Result<[Lifetime; STORE_LEVELS], ConfigError> {
    let words = lifetimes.levels.get_ref();
    let Some(&last) = words.last() else {
        return Err(ConfigError::at(&lifetimes.levels, "the list of lifetimes is empty").help(
            "write one for each level; the last applies to all further levels: [\"medium\", \"medium\", \"long\"]",
        ));
    };
    if words.len() > STORE_LEVELS {
        return Err(ConfigError::at(&lifetimes.levels, format!("{} lifetimes are too many", words.len()))
            .help(format!("a store has {STORE_LEVELS} levels: write at most one lifetime for each")));
    }
    Ok(std::array::from_fn(|level| Lifetime::from(words.get(level).copied().unwrap_or(last))))
}

/// A number within bounds, or its default.
fn number<N: Copy + PartialOrd + std::fmt::Display>(
    value: &Option<Spanned<N>>,
    default: N,
    min: N,
    max: N,
) -> Result<N, ConfigError> {
    let Some(place) = value else { return Ok(default) };
    let number = *place.get_ref();
    if (min..=max).contains(&number) {
        return Ok(number);
    }
    Err(ConfigError::at(place, format!("{number} is out of range")).help(format!("write {min} to {max}")))
}

/// A size within bounds, or its default.
fn size(value: &Option<Spanned<ByteSize>>, default: u64, min: u64, max: u64) -> Result<u64, ConfigError> {
    let Some(place) = value else { return Ok(default) };
    let size = *place.get_ref();
    if (min..=max).contains(&size.0) {
        return Ok(size.0);
    }
    let help = format!("write \"{}\" to \"{}\"", ByteSize(min), ByteSize(max));
    Err(ConfigError::at(place, format!("{size} is out of range")).help(help))
}

/// A time of at most a year, or its default.
fn time(value: &Option<Spanned<TimeSpan>>, default: Duration) -> Result<Duration, ConfigError> {
    match value {
        Some(place) if place.get_ref().0 > TIME_MAX_NS => {
            Err(ConfigError::at(place, "the time is longer than a year").help("write at most \"8760 h\""))
        }
        Some(place) => Ok(Duration(place.get_ref().0)),
        None => Ok(default),
    }
}

/// Whole percents of a share from 0.01 to 1.0.
fn percent<T>(share: &Fraction, place: &Spanned<T>) -> Result<u8, ConfigError> {
    let percent = (share.0 * 100.0).round();
    if (1.0..=100.0).contains(&percent) {
        return Ok(percent as u8);
    }
    Err(ConfigError::at(place, format!("a share of {} is out of range", share.0))
        .help("write a number from 0.01 to 1.0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::StorePlan;
    use zonda_config::{parse, unplaced};
    use zonda_zoned::Blocks;

    fn geometry() -> Geometry {
        Geometry {
            block_size_bytes: 4096,
            metadata_bytes: 0,
            zone_size_blocks: Blocks(4096),
            zone_capacity_blocks: Blocks(4096),
            zone_count: 100,
            max_active_zones: Some(14),
            max_open_zones: Some(14),
            max_transfer_blocks: Blocks(32),
            max_append_blocks: Blocks(32),
            ..Geometry::tiny()
        }
    }

    fn plan(text: &str) -> Result<StorePlan, ConfigError> {
        StorePlan::new(&unplaced(parse::<StoreSpec>(text)?), &geometry())
    }

    /// The position of an error, its message and its help.
    fn refused(text: &str) -> String {
        let error = plan(text).expect_err("the specification is invalid");
        let place = error.span.map_or("", |span| &text[span]);
        format!("{place} | {} | {}", error.message, error.help.unwrap_or_default())
    }

    #[test]
    fn defaults_are_those_of_rocksdb() {
        let plan = plan("workload = \"kvbench-ii\"").expect("the other keys are optional");
        let tree = &plan.tree;
        assert_eq!((tree.write_buffer_bytes, tree.memtables_max, tree.target_file_bytes), (64 << 20, 2, 64 << 20));
        assert_eq!((tree.sizes.level0_trigger, tree.level0_slowdown, tree.level0_stop), (4, 20, 36));
        assert_eq!((tree.sizes.level_bytes(1), tree.sizes.level_bytes(3)), (256 << 20, 25_600 << 20));
        assert_eq!((tree.wal_lifetime, tree.manifest_lifetime), (Lifetime::Short, Lifetime::NotSet));
        let words: Vec<Lifetime> = tree.level_lifetimes[..5].to_vec();
        assert_eq!(words, [Lifetime::Medium, Lifetime::Medium, Lifetime::Long, Lifetime::Extreme, Lifetime::Extreme]);
        assert_eq!((plan.files.write_unit_bytes, plan.files.keeps), (128 << 10, PayloadKind::None));
        assert_eq!((plan.load.operations, plan.load.clients, plan.load.operation_cpu), (1_000_000, 1, Duration(2_000)));
    }

    #[test]
    fn a_writer_is_added_to_the_readers() {
        let plan =
            plan("workload = \"readwhilewriting\"\npreload = 10\nclients = 3").expect("the specification is valid");
        assert_eq!((plan.load.clients, plan.load.keys), (4, 10));
    }

    #[test]
    fn errors_are_reported_with_position_and_help() {
        for (text, expected) in [
            (
                "workload = \"ycsb-a\"",
                "\"ycsb-a\" | workload = \"ycsb-a\" needs existing entries | add a line like preload = \
                 1000000",
            ),
            (
                "workload = \"ycsb-a\"\npreload = 5\nkeys = 10",
                "10 | workload = \"ycsb-a\" generates its own keys | remove keys; it applies to fillrandom, overwrite, \
                 readrandom and readwhilewriting",
            ),
            (
                "workload = \"overwrite\"\npreload = 5\nkeys = 4",
                "4 | keys is less than preload = 5 | write at least as many keys: each preloaded entry has its own key",
            ),
            ("workload = \"fillrandom\"\nclients = 0", "0 | 0 is out of range | write 1 to 1023"),
            (
                "workload = \"fillrandom\"\nentry_size = \"8 B\"",
                "\"8 B\" | an entry of 8 B is smaller than a key of 16 B | entry_size is the size of key and value together",
            ),
            ("workload = \"fillrandom\"\nlevel0_slowdown = 3", "3 | 3 is out of range | write 4 to 4294967295"),
            (
                "workload = \"fillrandom\"\nwrite_unit = \"6 KiB\"",
                "\"6 KiB\" | 6 KiB is not a multiple of the block size | write a multiple of the drive's block size, \"4 KiB\"",
            ),
            (
                "workload = \"fillrandom\"\nwrite_unit = \"1 MiB\"",
                "\"1 MiB\" | 1 MiB is out of range | write \"4 KiB\" to \"128 KiB\"",
            ),
            (
                "workload = \"fillrandom\"\nfinish_threshold = 0.001",
                "0.001 | a share of 0.001 is out of range | write a number from 0.01 to 1.0",
            ),
            (
                "workload = \"fillrandom\"\nbackground_jobs = 20",
                "20 | 20 background jobs write to 23 zones at a time, and the drive allows 14 active zones | write background_jobs = \
                 11 or less",
            ),
            (
                "workload = \"fillrandom\"\nlifetimes = { levels = [] }",
                "[] | the list of lifetimes is empty | write one for each level; the last applies to all further levels: \
                 [\"medium\", \"medium\", \"long\"]",
            ),
            (
                "workload = \"fillrandom\"\noperation_cpu = \"9000 h\"",
                "\"9000 h\" | the time is longer than a year | write at most \"8760 h\"",
            ),
        ] {
            assert_eq!(refused(text), expected);
        }
    }

    #[test]
    fn a_misspelt_key_or_workload_gets_a_hint() {
        assert!(refused("workload = \"ycsb-g\"").contains("ycsb-a"), "{}", refused("workload = \"ycsb-g\""));
        assert!(refused("workload = \"fillrandom\"\noperation = 5").contains("operations"));
    }

    #[test]
    fn a_drive_with_too_few_active_zones_is_refused() {
        let narrow = Geometry { max_active_zones: Some(4), max_open_zones: Some(4), ..geometry() };
        let spec = unplaced(StoreSpec::new(StoreWorkload::Fillrandom));
        let error = StorePlan::new(&spec, &narrow).expect_err("a flush and a compaction need five");
        assert_eq!(error.help.as_deref(), Some("use a drive that allows at least 5 active zones"));
    }
}
