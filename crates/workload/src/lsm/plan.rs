//! A store's specification checked against a drive, with all defaults filled in.

use zonda_config::{ConfigError, Spanned};
use zonda_files::{FileStore, FilesConfig, Lifetime};
use zonda_zoned::{Duration, Geometry};

use super::check::Check;
use super::compaction::LevelSizes;
use super::spec::{StoreSpec, StoreWorkload};
use super::table::TableFormat;
use crate::limits::STORE_LEVELS;
use crate::plan::{NamedNamespace, index_of, is_without_name};

/// A store and its workload, checked against a drive's geometry.
#[derive(Clone, Debug)]
pub struct StorePlan {
    pub(super) geometry: Geometry,
    pub(super) files: FilesConfig,
    pub(super) load: Load,
    pub(super) tree: TreeOptions,
}

/// The load of the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) workload: StoreWorkload,
    pub(super) operations: u64,
    pub(super) preload: u64,
    pub(super) keys: u64,
    pub(super) repeat: u32,
    /// All clients, including the writer of a read-while-writing workload.
    pub(super) clients: u32,
    pub(super) operation_cpu: Duration,
}

/// The options of the store.
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
    /// Jobs append their output to the file store in pieces of this size.
    pub(super) write_unit_bytes: u64,
    /// Bytes that a log collects before they are appended to its file: a file's buffer writes no
    /// less.
    pub(super) log_unit_bytes: u64,
    pub(super) wal_lifetime: Lifetime,
    pub(super) manifest_lifetime: Lifetime,
    pub(super) level_lifetimes: [Lifetime; STORE_LEVELS],
}

impl StorePlan {
    /// Checks a store against the geometry of its drive.
    ///
    /// # Errors
    /// The first value that is invalid or not supported by this drive, with its position, and the
    /// allowed values.
    pub fn new(spec: &Spanned<StoreSpec>, geometry: &Geometry) -> Result<StorePlan, ConfigError> {
        is_without_name(spec.get_ref().namespace.as_ref())?;
        StorePlan::checked(spec, geometry)
    }

    /// Checks a store against the namespace of a pool that it names. Returns the index of the namespace, too.
    ///
    /// # Errors
    /// As [`StorePlan::new`], and if it names none of several, or one that is not there.
    pub fn over_namespaces(
        spec: &Spanned<StoreSpec>,
        namespaces: &[NamedNamespace],
    ) -> Result<(StorePlan, usize), ConfigError> {
        let index = index_of(namespaces, spec.get_ref().namespace.as_ref(), "store", spec)?;
        Ok((StorePlan::checked(spec, &namespaces[index].geometry)?, index))
    }

    fn checked(spec: &Spanned<StoreSpec>, geometry: &Geometry) -> Result<StorePlan, ConfigError> {
        let check = Check { place: spec, spec: spec.get_ref(), geometry };
        let load = check.load()?;
        let files = check.files()?;
        let tree = check.tree(&files)?;
        // Further requirements of a file store; the UUID does not matter here.
        FileStore::format(geometry, files, [0; 16]).map_err(|error| {
            ConfigError::at(spec, format!("the drive is not suitable for a file store: {error}"))
                .help("use a drive with more zones, or larger ones")
        })?;
        Ok(StorePlan { geometry: geometry.clone(), files, load, tree })
    }

    /// The load of the store.
    #[must_use]
    pub fn workload(&self) -> StoreWorkload {
        self.load.workload
    }

    /// The measured operations of all repetitions together.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.load.operations * u64::from(self.load.repeat)
    }
}
