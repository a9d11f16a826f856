//! Jobs on several namespaces: a plan has the zones of all of them, one namespace after the other.

use std::ops::Range;

use zonda_config::{ConfigError, Spanned, did_you_mean_help};
use zonda_zoned::{Geometry, ZoneIndex};

use crate::JobSpec;

/// A namespace that jobs choose by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedNamespace {
    /// The name.
    pub name: String,
    /// Its geometry.
    pub geometry: Geometry,
}

impl NamedNamespace {
    /// The geometry of all namespaces as one, for which [`crate::Plan::over_namespaces`] plans.
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub fn joined(namespaces: &[NamedNamespace]) -> Geometry {
        let first = &namespaces.first().expect("there is a namespace").geometry;
        let sum = |limit: fn(&Geometry) -> Option<u32>| namespaces.iter().map(|it| limit(&it.geometry)).sum();
        let joined = Geometry {
            zone_count: namespaces.iter().map(|it| it.geometry.zone_count).sum(),
            max_active_zones: sum(|geometry| geometry.max_active_zones),
            max_open_zones: sum(|geometry| geometry.max_open_zones),
            ..first.clone()
        };
        for NamedNamespace { name, geometry } in namespaces {
            let (zone_count, max_active_zones) = (joined.zone_count, joined.max_active_zones);
            let widened =
                Geometry { zone_count, max_active_zones, max_open_zones: joined.max_open_zones, ..geometry.clone() };
            assert!(widened == joined, "the zones of the namespace {name:?} are those of the others");
        }
        joined
    }
}

/// Where a job runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// The plan's index of the first zone.
    pub(super) first_zone: u32,
    /// What the job is checked against. Its zones are numbered from 0.
    pub(super) geometry: &'a Geometry,
    /// What has this geometry, in errors.
    pub(super) noun: &'static str,
}

impl Place<'_> {
    /// The plan's index of a zone.
    pub(super) fn zone(&self, zone: ZoneIndex) -> ZoneIndex {
        ZoneIndex(self.first_zone + zone.0)
    }

    /// The plan's indices of all zones.
    pub(super) fn zones(&self) -> Range<u32> {
        self.first_zone..self.first_zone + self.geometry.zone_count
    }
}

/// The namespace of a job.
pub(super) fn chosen<'a>(namespaces: &'a [NamedNamespace], job: &Spanned<JobSpec>) -> Result<Place<'a>, ConfigError> {
    let index = index_of(namespaces, job.get_ref().namespace.as_ref(), "job", job)?;
    let first_zone = namespaces[..index].iter().map(|it| it.geometry.zone_count).sum();
    Ok(Place { first_zone, geometry: &namespaces[index].geometry, noun: "namespace" })
}

/// The index of the namespace of this name, which `user` has; of the only one if it names none.
pub(crate) fn index_of<T>(
    namespaces: &[NamedNamespace],
    name: Option<&Spanned<String>>,
    what: &str,
    user: &Spanned<T>,
) -> Result<usize, ConfigError> {
    let names: Vec<&str> = namespaces.iter().map(|it| it.name.as_str()).collect();
    match (name, names.as_slice()) {
        (Some(place), _) => names.iter().position(|name| name == place.get_ref()).ok_or_else(|| {
            let error = ConfigError::at(place, format!("there is no namespace \"{}\"", place.get_ref()));
            error.help(did_you_mean_help(place.get_ref(), &names))
        }),
        (None, [_]) => Ok(0),
        (None, _) => {
            let message = format!("the {what} names no namespace, and there are {}", names.len());
            Err(ConfigError::at(user, message).help(format!("add a line like namespace = \"{}\"", names[0])))
        }
    }
}

/// Checks that no job names a namespace, where they have no names.
pub(super) fn no_namespace_is_named(jobs: &[Spanned<JobSpec>]) -> Result<(), ConfigError> {
    jobs.iter().try_for_each(|job| is_without_name(job.get_ref().namespace.as_ref()))
}

/// Checks that no namespace is named, where they have no names.
pub(crate) fn is_without_name(name: Option<&Spanned<String>>) -> Result<(), ConfigError> {
    match name {
        None => Ok(()),
        Some(place) => Err(ConfigError::at(place, "namespaces have names only in a pool")
            .help("remove this line, or describe the namespaces in [[elastic.namespace]]")),
    }
}
