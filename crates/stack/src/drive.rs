//! `[drive]`: the profile of the drive, changes to it, and layers around it.

use zonda_config::ConfigError;
use zonda_layers::SliceConfig;
use zonda_ssd::description::{self, DrivePlan, Profiles, SpecError};
use zonda_ssd::profile::Profile;
use zonda_zoned::{Geometry, PayloadKind, ZoneIndex};

use crate::layer::{LayerPlan, LayerSpec};
use crate::limits::LAYERS_MAX;

/// The table `[drive]` of a file.
pub type DriveSpec = description::DriveSpec<LayerSpec>;

/// A validated drive with its layers.
#[derive(Clone, Debug)]
pub struct Drive {
    plan: DrivePlan,
    pub(crate) layers: Vec<LayerPlan>,
    geometry: Geometry,
}

impl Drive {
    /// Loads the profile, applies the changes, and validates the layers.
    ///
    /// # Errors
    /// The first error in this table or in the profile that it names.
    pub fn new(spec: &DriveSpec, profiles: &Profiles<'_>) -> Result<Drive, SpecError> {
        let plan = spec.plan(profiles)?;
        if let Some(excess) = spec.layer.get(LAYERS_MAX) {
            let error = ConfigError::at(excess, format!("too many layers: {}", spec.layer.len()));
            return Err(error.help(format!("at most {LAYERS_MAX} are allowed")).into());
        }
        let mut geometry = plan.profile().geometry();
        let mut layers = Vec::with_capacity(spec.layer.len());
        for layer in &spec.layer {
            layers.push(LayerPlan::new(layer, &mut geometry, plan.keeps())?);
        }
        Ok(Drive { plan, layers, geometry })
    }

    /// The drive's profile, with all changes.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        self.plan.profile()
    }

    /// The text of that profile, which can be parsed again.
    #[must_use]
    pub fn profile_text(&self) -> &str {
        self.plan.profile_text()
    }

    /// What the drive stores of written data.
    #[must_use]
    pub fn keeps(&self) -> PayloadKind {
        self.plan.keeps()
    }

    /// The geometry of the namespace of the outermost layer.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The zone number of the drive for a zone number of the outermost layer.
    #[must_use]
    pub fn zone_of_drive(&self, zone: ZoneIndex) -> ZoneIndex {
        let offset: u32 = self
            .layers
            .iter()
            .map(|layer| match layer {
                LayerPlan::Slice(SliceConfig { first, .. }) => first.0,
                _ => 0,
            })
            .sum();
        ZoneIndex(zone.0 + offset)
    }
}
