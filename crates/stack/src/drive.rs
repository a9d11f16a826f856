//! `[drive]`: which drive, with which changes, and what lies around it.

use zonda_config::ConfigError;
use zonda_layers::SliceConfig;
use zonda_ssd::description::{self, DrivePlan, Profiles, SpecError};
use zonda_ssd::profile::Profile;
use zonda_zoned::{Geometry, PayloadKind, ZoneIndex};

use crate::layer::{LayerPlan, LayerSpec};
use crate::limits::LAYERS_MAX;

/// The table `[drive]`, as it stands in a file.
pub type DriveSpec = description::DriveSpec<LayerSpec>;

/// A drive that has been checked and can be built, with its layers.
#[derive(Clone, Debug)]
pub struct Drive {
    plan: DrivePlan,
    pub(crate) layers: Vec<LayerPlan>,
    geometry: Geometry,
}

impl Drive {
    /// Finds the profile, changes it, and checks the layers against it.
    ///
    /// # Errors
    /// The first mistake, in this table or in the profile that it names.
    pub fn new(spec: &DriveSpec, profiles: &Profiles<'_>) -> Result<Drive, SpecError> {
        let plan = spec.plan(profiles)?;
        if let Some(excess) = spec.layer.get(LAYERS_MAX) {
            let error = ConfigError::at(excess, format!("there are {} layers", spec.layer.len()));
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

    /// The text of that profile, which can be read again.
    #[must_use]
    pub fn profile_text(&self) -> &str {
        self.plan.profile_text()
    }

    /// What the drive keeps of what is written to it.
    #[must_use]
    pub fn keeps(&self) -> PayloadKind {
        self.plan.keeps()
    }

    /// The namespace that the outermost layer shows.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// A zone of the outermost layer as the drive itself counts it.
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
