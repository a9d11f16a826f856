//! `[drive]`: the profile of the drive, changes to it, and layers around it.

use std::sync::Arc;

use zonda_ssd::Ssd;
use zonda_ssd::description::{self, DrivePlan, Profiles, SpecError};
use zonda_ssd::profile::Profile;
use zonda_zoned::{Blocks, Geometry, PayloadKind, Prng, Status, ZoneIndex};

use crate::Node;
use crate::layer::LayerSpec;

/// The table `[drive]` of a file.
pub type DriveSpec = description::DriveSpec<LayerSpec>;

/// A simulated device.
pub(crate) type DriveNode = Node<Arc<DrivePlan>>;

/// A validated drive with its layers.
#[derive(Clone, Debug)]
pub struct Drive {
    plan: Arc<DrivePlan>,
    pub(crate) node: DriveNode,
    geometry: Geometry,
}

impl Drive {
    /// Loads the profile, applies the changes, and validates the layers.
    ///
    /// # Errors
    /// The first error in this table or in the profile that it names.
    pub fn new(spec: &DriveSpec, profiles: &Profiles<'_>) -> Result<Drive, SpecError> {
        let plan = Arc::new(spec.plan(profiles)?);
        let mut geometry = plan.profile().geometry();
        let node = Node::Drive(Arc::clone(&plan)).with_layers(&spec.layer, &mut geometry, plan.keeps())?;
        Ok(Drive { plan, node, geometry })
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

    /// A new drive without layers, with all randomness from `prng`, and with filled zones.
    /// `prefill` uses zone numbers of the outermost layer.
    ///
    /// # Errors
    /// [`Status::TooManyActiveZones`] if more zones would be partly written than the drive allows.
    ///
    /// # Panics
    /// If a zone of `prefill` does not exist, is listed twice, or has a smaller capacity.
    pub fn power_on(&self, prng: &Prng, prefill: &[(ZoneIndex, Blocks)]) -> Result<Ssd, Status> {
        let mut drive = Ssd::new(self.profile(), self.keeps(), prng);
        for &(zone, blocks) in prefill {
            drive.prefill(self.node.zone_of_drive(zone), blocks)?;
        }
        Ok(drive)
    }
}
