//! A drive with layers and one host.

use serde::{Deserialize, Serialize};
use zonda_config::ConfigError;
use zonda_stack::Layer;
use zonda_zoned::{PayloadKind, Prng};

use super::parts::{LayerText, PayloadKindDef};
use crate::simulation::{Load, Simulation};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DriveScenario {
    #[serde(with = "PayloadKindDef")]
    payload: PayloadKind,
    /// In events, as the two fields below.
    power_loss_every: Option<u64>,
    degradation_every: Option<u64>,
    check_every: u64,
    /// The drive's profile.
    profile: String,
    load: Load,
    /// The lowest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    layers: Vec<LayerText>,
}

impl DriveScenario {
    pub(super) fn of(simulation: &Simulation) -> DriveScenario {
        DriveScenario {
            payload: simulation.keeps,
            power_loss_every: simulation.power_loss_every,
            degradation_every: simulation.degradation_every,
            check_every: simulation.check_every,
            profile: simulation.profile_text.clone(),
            load: simulation.load.clone(),
            layers: simulation.layers.iter().map(LayerText::of).collect(),
        }
    }

    pub(super) fn simulation(&self, root: Prng) -> Result<Simulation, ConfigError> {
        let profile = super::profile("drive.profile", &self.profile)?;
        let whole = profile.geometry();
        let layers: Vec<Layer> = self.layers.iter().map(LayerText::layer).collect();
        let slices: Vec<_> = layers.iter().filter_map(Layer::slice).collect();
        let geometry = match slices[..] {
            [] => whole,
            [slice] => {
                slice.geometry(&whole).map_err(|error| ConfigError::new(format!("drive.layers: slice: {error}")))?
            }
            _ => return Err(ConfigError::new("drive.layers: more than one slice")),
        };
        super::at_least_one("drive.check_every", self.check_every)?;
        super::every("drive.power_loss_every", self.power_loss_every)?;
        super::every("drive.degradation_every", self.degradation_every)?;
        self.load.check("drive.load")?;
        Ok(Simulation {
            root,
            profile_text: self.profile.clone(),
            profile,
            keeps: self.payload,
            geometry,
            layers,
            load: self.load.clone(),
            power_loss_every: self.power_loss_every,
            degradation_every: self.degradation_every,
            check_every: self.check_every,
        })
    }
}
