//! The constant properties of a subsystem: its namespaces by identifier, and the limits that its
//! controllers report.

use zonda_nvme::identify;
use zonda_zoned::Geometry;

use crate::config::{SubsystemConfig, TargetConfigError};
use crate::limits::Limits;

#[derive(Debug)]
pub(crate) struct Subsystem {
    /// Indexes in the target's table, by namespace identifier.
    by_id: Vec<Option<u32>>,
    /// MDTS.
    pub(crate) max_transfer_exponent: u8,
    /// Whether any namespace has zones.
    pub(crate) zoned: bool,
    pub(crate) volatile_write_cache: bool,
    pub(crate) capacity_bytes: u128,
}

impl Subsystem {
    /// The subsystem whose namespaces start at `first` in the target's table.
    pub(crate) fn new(config: &SubsystemConfig, first: usize, limits: &Limits) -> Result<Subsystem, TargetConfigError> {
        let greatest = config.namespaces.iter().map(|namespace| namespace.id.0).max().unwrap_or(0);
        let mut by_id = vec![None; greatest as usize + 1];
        for (i, namespace) in config.namespaces.iter().enumerate() {
            by_id[namespace.id.0 as usize] = Some((first + i) as u32);
        }
        let geometries = || config.namespaces.iter().map(|namespace| &namespace.geometry);
        let target_exponent = (limits.transfer_bytes / identify::MEMORY_PAGE_BYTES).ilog2() as u8;
        let exponent = match identify::Controller::max_transfer_exponent_for(geometries()) {
            Ok(0) => target_exponent,
            Ok(exponent) => exponent.min(target_exponent),
            Err(error) => {
                let subject = format!("subsystem {}", config.nqn);
                return Err(TargetConfigError { subject, remedy: error.to_string() });
            }
        };
        Ok(Subsystem {
            by_id,
            max_transfer_exponent: exponent,
            zoned: geometries().any(is_zoned),
            volatile_write_cache: config.namespaces.iter().any(|namespace| namespace.volatile_write_cache),
            capacity_bytes: geometries()
                .map(|geometry| u128::from(geometry.zone_capacity_bytes()) * u128::from(geometry.zone_count))
                .sum(),
        })
    }

    /// The index of a namespace in the target's table.
    #[inline]
    pub(crate) fn namespace(&self, id: u32) -> Option<u32> {
        self.by_id.get(id as usize).copied().flatten()
    }

    /// The greatest namespace identifier.
    pub(crate) fn namespaces_max(&self) -> u32 {
        self.by_id.len() as u32 - 1
    }

    /// Indexes of all namespaces, in the order of their identifiers.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_id.iter().copied().flatten()
    }
}

/// Whether a geometry has sequential zones; one with conventional zones only is served as an NVM
/// command set namespace.
pub(crate) fn is_zoned(geometry: &Geometry) -> bool {
    geometry.conventional_zone_count < geometry.zone_count
}
