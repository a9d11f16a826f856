//! The pool at the end of a run.

use std::collections::BTreeMap;

use serde::Serialize;
use zonda_elastic::Share;
use zonda_zoned::{Duration, ZoneIndex, ZonedDevice};

use super::{Joined, PoolPlan};
use crate::series::Sampled;

/// The pool at the end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ElasticSummary {
    /// Physical zones of a v-zone.
    pub zones_per_vzone: u32,
    /// Active zones that suffice for the drive's write bandwidth.
    pub essential_zones: u32,
    /// Active zones beyond.
    pub spare_zones: u32,
    /// The widest stripe group that is allowed.
    pub width_max: u32,
    /// The namespaces, in the order of the file.
    pub namespaces: Vec<ElasticNamespace>,
    /// The active zones of the namespaces over time, from the start of the run to the last completion.
    pub series: Vec<ElasticSample>,
}

/// A namespace at the end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ElasticNamespace {
    /// Its name.
    pub name: String,
    /// Number of v-zones.
    pub zones: u32,
    /// Active v-zones that it may have.
    pub max_active_zones: u32,
    /// Its part of the active zones of the drive.
    pub weight: u32,
    /// Active zones that are always available to it.
    pub essentials: u32,
    /// Spares of its own, including those that it has lent.
    pub spares_own: u32,
    /// Its own spares that others have.
    pub spares_lent: u32,
    /// Spares of others that it has.
    pub spares_leased: u32,
    /// Spares in its stripe groups.
    pub spares_used: u32,
    /// The minimum width of its stripe groups.
    pub width_min: u32,
    /// Memory of the v-zone that takes most, in bytes.
    pub vzone_memory_max_bytes: u32,
    /// The stripe groups of its v-zones, full ones included, the narrowest first.
    pub groups: Vec<GroupCount>,
}

/// The active zones of all namespaces at one moment of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ElasticSample {
    /// Time since the start of the run.
    pub at_ns: u64,
    /// The namespaces, in the order of the file.
    pub namespaces: Vec<ActiveZones>,
}

/// The active zones of a namespace at one moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ActiveZones {
    /// Active zones that it may use: its essentials, its spares that it has not lent, and leased ones.
    pub available: u32,
    /// Its own spares that others have.
    pub spares_lent: u32,
    /// Spares of others that it has.
    pub spares_leased: u32,
    /// Spares in its stripe groups.
    pub spares_used: u32,
}

/// Stripe groups of one width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GroupCount {
    /// Physical zones of each.
    pub width: u32,
    /// How many there are.
    pub groups: u32,
}

impl ElasticSummary {
    pub(crate) fn of<D: ZonedDevice>(
        device: &Joined<D>,
        plan: &PoolPlan,
        series: Vec<ElasticSample>,
    ) -> ElasticSummary {
        let pool = device.pool();
        let namespaces = device.ids().zip(&plan.configs).map(|(id, config)| {
            let share = pool.share(id).expect("the namespace was created");
            let Share { essentials, spares_own, spares_lent, spares_leased, spares_used, width_min } = share;
            let mut groups: BTreeMap<u32, u32> = BTreeMap::new();
            for zone in (0..config.zone_count).map(ZoneIndex) {
                pool.group_widths(id, zone).into_iter().for_each(|width| *groups.entry(width).or_default() += 1);
            }
            ElasticNamespace {
                name: config.name.clone(),
                zones: config.zone_count,
                max_active_zones: config.max_active_zones,
                weight: config.weight,
                essentials,
                spares_own,
                spares_lent,
                spares_leased,
                spares_used,
                width_min,
                vzone_memory_max_bytes: u32::try_from(pool.vzone_memory_max_bytes(id))
                    .expect("it is some hundred bytes"),
                groups: groups.into_iter().map(|(width, groups)| GroupCount { width, groups }).collect(),
            }
        });
        let namespaces = namespaces.collect();
        let shape = pool.shape();
        ElasticSummary {
            zones_per_vzone: shape.zones_per_vzone,
            essential_zones: shape.essential_zones,
            spare_zones: shape.spare_zones,
            width_max: shape.width_max,
            namespaces,
            series,
        }
    }
}

impl ElasticSample {
    pub(crate) fn of<D: ZonedDevice>(at: Duration, device: &Joined<D>) -> ElasticSample {
        let pool = device.pool();
        let namespaces = device.ids().map(|id| {
            let share = pool.share(id).expect("the namespace was created");
            ActiveZones {
                available: share.essentials + share.spares(),
                spares_lent: share.spares_lent,
                spares_leased: share.spares_leased,
                spares_used: share.spares_used,
            }
        });
        ElasticSample { at_ns: at.0, namespaces: namespaces.collect() }
    }
}

impl Sampled for ElasticSample {
    fn at_ns(&self) -> u64 {
        self.at_ns
    }
}
