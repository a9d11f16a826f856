//! A drive that is kept in files.

use serde::{Deserialize, Serialize};
use zonda_config::ConfigError;
use zonda_zoned::{Geometry, Prng};

use super::parts::GeometryDef;
use crate::images::{ImageEvents, ImageLoad, ImagesWorld};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImagesScenario {
    load: ImageLoad,
    events: ImageEvents,
    #[serde(with = "GeometryDef")]
    geometry: Geometry,
}

impl ImagesScenario {
    pub(super) fn of(world: &ImagesWorld) -> ImagesScenario {
        let ImagesWorld { geometry, load, events, .. } = world;
        ImagesScenario { load: load.clone(), events: events.clone(), geometry: geometry.clone() }
    }

    pub(super) fn world(&self, root: Prng) -> Result<ImagesWorld, ConfigError> {
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
            return Err(ConfigError::new(format!("images.events.{name}_percent = {percent} is more than 100")));
        }
        Ok(ImagesWorld { root, geometry, load, events })
    }
}
