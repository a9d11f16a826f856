//! A store's specification checked against a drive, with all defaults filled in.

use zonda_config::{ConfigError, Spanned};
use zonda_files::{FileStore, FilesConfig, Lifetime};
use zonda_zoned::{Duration, Geometry};

use super::check::Check;
use super::compaction::LevelSizes;
use super::spec::{StoreSpec, StoreWorkload};
use super::table::TableFormat;
use crate::limits::STORE_LEVELS;

/// A store and its workload, as a drive of one geometry can carry them.
#[derive(Clone, Debug)]
pub struct StorePlan {
    pub(super) geometry: Geometry,
    pub(super) files: FilesConfig,
    pub(super) load: Load,
    pub(super) tree: TreeOptions,
}

/// What is asked of the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) workload: StoreWorkload,
    pub(super) operations: u64,
    pub(super) preload: u64,
    pub(super) keys: u64,
    pub(super) repeat: u32,
    /// All of them, the writer of a read-while-writing workload included.
    pub(super) clients: u32,
    pub(super) operation_cpu: Duration,
}

/// How the store is made.
#[derive(Clone, Debug)]
pub(super) struct TreeOptions {
    pub(super) table: TableFormat,
    pub(super) sizes: LevelSizes,
    pub(super) target_file_bytes: u64,
    pub(super) write_buffer_bytes: u64,
    pub(super) memtables_max: usize,
    pub(super) level0_slowdown: usize,
    pub(super) level0_stop: usize,
    pub(super) block_cache_bytes: u64,
    pub(super) compactions_max: usize,
    pub(super) wal_sync: bool,
    pub(super) merge_cpu: Duration,
    pub(super) readahead_bytes: u32,
    /// Jobs hand their output to the file store in pieces of this.
    pub(super) write_unit_bytes: u64,
    /// Bytes that a log gathers before they go to its file: no less than this leaves a file's buffer.
    pub(super) log_unit_bytes: u64,
    pub(super) wal_lifetime: Lifetime,
    pub(super) manifest_lifetime: Lifetime,
    pub(super) level_lifetimes: [Lifetime; STORE_LEVELS],
}

impl StorePlan {
    /// Checks a store against the geometry of the drive that it is to run on.
    ///
    /// # Errors
    /// The first thing that makes no sense or that this drive cannot do, at its place, and what is allowed.
    pub fn new(spec: &Spanned<StoreSpec>, geometry: &Geometry) -> Result<StorePlan, ConfigError> {
        let check = Check { place: spec, spec: spec.get_ref(), geometry };
        let load = check.load()?;
        let files = check.files()?;
        let tree = check.tree(&files)?;
        // What else a file store asks of a drive; the identity does not matter here.
        FileStore::format(geometry, files, [0; 16]).map_err(|error| {
            ConfigError::at(spec, format!("the drive cannot carry a file store: {error}"))
                .help("use a drive with more zones, or larger ones")
        })?;
        Ok(StorePlan { geometry: geometry.clone(), files, load, tree })
    }

    /// What is asked of the store.
    #[must_use]
    pub fn workload(&self) -> StoreWorkload {
        self.load.workload
    }

    /// The operations that are counted, those of all repetitions together.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.load.operations * u64::from(self.load.repeat)
    }
}
