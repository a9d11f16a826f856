//! A file-backed drive image.

use serde::{Deserialize, Serialize};
use zonda_config::ConfigError;
use zonda_zoned::{Geometry, Prng};

use super::parts::GeometryDef;
use crate::images::{ImageEvents, ImageLoad, ImagesSimulation};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImagesScenario {
    load: ImageLoad,
    events: ImageEvents,
    #[serde(with = "GeometryDef")]
    geometry: Geometry,
}

impl ImagesScenario {
    pub(super) fn of(simulation: &ImagesSimulation) -> ImagesScenario {
        let ImagesSimulation { geometry, load, events, .. } = simulation;
        ImagesScenario { load: load.clone(), events: events.clone(), geometry: geometry.clone() }
    }

    pub(super) fn simulation(&self, root: Prng) -> Result<ImagesSimulation, ConfigError> {
        let ImagesScenario { load, events, geometry } = self.clone();
        geometry.validate().map_err(|error| ConfigError::new(format!("images.geometry: {error}")))?;
        super::at_least_one("images.load.queue_depth", load.queue_depth)?;
        let percents = [
            ("cut_creations", events.cut_creations_percent),
            ("cut_openings", events.cut_openings_percent),
            ("degradations", events.degradations_percent),
            ("faults", events.faults_percent),
            ("full_disk", events.full_disk_percent),
            ("rot", events.rot_percent),
            ("truncation", events.truncation_percent),
            ("old_copies", events.old_copies_percent),
        ];
        if let Some((name, percent)) = percents.iter().find(|(_, percent)| *percent > 100) {
            return Err(ConfigError::new(format!("images.events.{name}_percent = {percent} must be at most 100")));
        }
        Ok(ImagesSimulation { root, geometry, load, events })
    }
}
