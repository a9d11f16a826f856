//! `[[pool]]`: how the server uses the drives of pools. The namespaces of a pool share its drive, so
//! scheduler and timing are those of the pool, whichever namespace is served.

use std::path::{Path, PathBuf};

use zonda_config::{ConfigError, Spanned};

use super::{NamespaceSpec, SchedulerSpec, ServerSpec, Source, SubsystemPlan, TimingSpec};

/// A table `[[pool]]`.
pub(super) struct PoolSettings {
    path: PathBuf,
    place: std::ops::Range<usize>,
    timing: TimingSpec,
    scheduler: SchedulerSpec,
}

/// The settings of the pools of a file.
///
/// # Errors
/// If two tables are of one pool.
pub(super) fn settings(spec: &ServerSpec, base: &Path) -> Result<Vec<PoolSettings>, ConfigError> {
    let mut all: Vec<PoolSettings> = Vec::with_capacity(spec.pool.len());
    for table in spec.pool.iter().map(Spanned::get_ref) {
        let path = base.join(table.path.get_ref());
        if all.iter().any(|other| other.path == path) {
            let error = ConfigError::at(&table.path, "an earlier [[pool]] table has the same path");
            return Err(error.help("merge the two tables"));
        }
        let timing = table.timing.unwrap_or(spec.server.timing);
        all.push(PoolSettings { path, place: table.path.span(), timing, scheduler: table.scheduler });
    }
    Ok(all)
}

/// Refuses settings of a pool of which no namespace is served: its path may be misspelt.
pub(super) fn must_be_served(all: &[PoolSettings], subsystems: &[SubsystemPlan]) -> Result<(), ConfigError> {
    let namespaces = subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
    let served: Vec<&Path> = namespaces
        .filter_map(|namespace| match &namespace.source {
            Source::Pool { path, .. } => Some(path.as_path()),
            _ => None,
        })
        .collect();
    let Some(unused) = all.iter().find(|settings| !served.contains(&settings.path.as_path())) else { return Ok(()) };
    let error = ConfigError::new("no namespace of this pool is served").within(unused.place.clone());
    Err(error.help("write the path as the namespaces of the pool do (pool = \"DIR\"), or remove this [[pool]] table"))
}

/// Timing and scheduler of a namespace of the pool in `path`.
///
/// # Errors
/// If the namespace has others.
pub(super) fn of_namespace(
    spec: &Spanned<NamespaceSpec>,
    path: &Path,
    timing: TimingSpec,
    all: &[PoolSettings],
) -> Result<(TimingSpec, SchedulerSpec), ConfigError> {
    let own = all.iter().find(|settings| settings.path == path);
    let (timing, scheduler) =
        own.map_or((timing, SchedulerSpec::None), |settings| (settings.timing, settings.scheduler));
    let table = spec.get_ref();
    let refuse = |place: std::ops::Range<usize>, key: &str, value: &str| {
        let shown = table.pool.as_ref().map_or("DIR", |pool| pool.get_ref());
        let message = format!("{key} cannot be set for one namespace of a pool: all of them share one drive");
        let help =
            format!("remove this line; for the whole pool, add a table [[pool]] with path = \"{shown}\" and {value}");
        Err(ConfigError::new(message).within(place).help(help))
    };
    if let Some(place) = table.scheduler.as_ref().filter(|place| *place.get_ref() != scheduler) {
        return refuse(place.span(), "scheduler", "scheduler = \"ezns\"");
    }
    if let Some(place) = table.timing.as_ref().filter(|place| *place.get_ref() != timing) {
        return refuse(place.span(), "timing", "timing = \"profile\"");
    }
    Ok((timing, scheduler))
}
