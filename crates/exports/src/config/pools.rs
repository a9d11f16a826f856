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
    groups: Option<PathBuf>,
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
        let groups = groups_of(table.scheduler, table.path.span(), &table.groups, base)?;
        all.push(PoolSettings { path, place: table.path.span(), timing, scheduler: table.scheduler, groups });
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

/// The path of the conflict groups that a scheduler needs; `place` is where it is configured.
///
/// # Errors
/// If it needs them and has none, or the reverse.
pub(super) fn groups_of(
    scheduler: SchedulerSpec,
    place: std::ops::Range<usize>,
    groups: &Option<Spanned<String>>,
    base: &Path,
) -> Result<Option<PathBuf>, ConfigError> {
    match (scheduler, groups) {
        (SchedulerSpec::Interference, Some(path)) => Ok(Some(base.join(path.get_ref()))),
        (SchedulerSpec::Interference, None) => {
            let error = ConfigError::new("scheduler = \"interference\" needs the conflict groups of the drive");
            Err(error.within(place).help(
                "measure them with zonda probe --groups-only DRIVE --out groups.json, and add groups = \"groups.json\"",
            ))
        }
        (_, Some(path)) => Err(ConfigError::at(path, "groups applies to scheduler = \"interference\" alone")
            .help("write scheduler = \"interference\", or remove this line")),
        (_, None) => Ok(None),
    }
}

/// Timing, scheduler and conflict groups of a namespace of the pool in `path`.
///
/// # Errors
/// If the namespace has others.
pub(super) fn of_namespace(
    spec: &Spanned<NamespaceSpec>,
    path: &Path,
    timing: TimingSpec,
    all: &[PoolSettings],
) -> Result<(TimingSpec, SchedulerSpec, Option<PathBuf>), ConfigError> {
    let own = all.iter().find(|settings| settings.path == path);
    let (timing, scheduler, groups) = own.map_or((timing, SchedulerSpec::None, None), |settings| {
        (settings.timing, settings.scheduler, settings.groups.clone())
    });
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
    if let Some(place) = &table.groups {
        return refuse(place.span(), "groups", "groups = \"FILE\"");
    }
    Ok((timing, scheduler, groups))
}
