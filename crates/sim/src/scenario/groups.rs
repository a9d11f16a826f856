//! A scheduler over a drive with hidden conflict groups.

use serde::{Deserialize, Serialize};
use zonda_config::ConfigError;
use zonda_zoned::{Geometry, Prng};

use super::parts::GeometryDef;
use crate::groups::{GroupsLoad, GroupsSimulation, HiddenGroups, Table};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupsScenario {
    load: GroupsLoad,
    scheduler: Table,
    drive: HiddenGroups,
    #[serde(with = "GeometryDef")]
    geometry: Geometry,
}

impl GroupsScenario {
    pub(super) fn of(simulation: &GroupsSimulation) -> GroupsScenario {
        let GroupsSimulation { geometry, drive, scheduler, load, .. } = simulation.clone();
        GroupsScenario { load, scheduler, drive, geometry }
    }

    pub(super) fn simulation(&self, root: Prng) -> Result<GroupsSimulation, ConfigError> {
        let GroupsScenario { load, scheduler, drive, geometry } = self.clone();
        geometry.validate().map_err(|error| ConfigError::new(format!("groups.geometry: {error}")))?;
        let numbers = [
            ("load.queue_depth", load.queue_depth),
            ("load.tenants", load.tenants),
            ("drive.service_ns", drive.service_ns),
            ("drive.writes_max", drive.writes_max),
            ("drive.all_max", drive.all_max),
            ("scheduler.in_flight_max", scheduler.in_flight_max),
        ];
        for (name, number) in numbers {
            super::at_least_one(&format!("groups.{name}"), number)?;
        }
        let zones = geometry.zone_count as usize;
        let lengths = [drive.of_zone.len(), drive.after_change.len(), scheduler.of_zone.len()];
        if lengths.iter().any(|length| *length != zones) {
            return Err(ConfigError::new(format!("groups: each list of groups must have {zones} entries, one a zone")));
        }
        if load.background_percent.max(load.reads_percent) > 100 {
            return Err(ConfigError::new("groups.load: percentages must be at most 100"));
        }
        Ok(GroupsSimulation { root, geometry, drive, scheduler, load })
    }
}
