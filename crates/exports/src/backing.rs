//! [`Backing`]: what a namespace of the server is stored on.

use zonda_devices::{Drive, VolumeDrive};

/// A drive of the server. A volume keeps its type, since operators manage its members, and the
/// server reports them; the data path treats all alike.
pub(crate) enum Backing {
    /// A redundant volume.
    Volume(Box<VolumeDrive>),
    /// Any other drive.
    Drive(Box<dyn Drive>),
}

impl Backing {
    pub(crate) fn drive(&self) -> &dyn Drive {
        match self {
            Backing::Volume(volume) => &**volume,
            Backing::Drive(drive) => &**drive,
        }
    }

    pub(crate) fn drive_mut(&mut self) -> &mut dyn Drive {
        match self {
            Backing::Volume(volume) => &mut **volume,
            Backing::Drive(drive) => &mut **drive,
        }
    }

    /// The volume, if it is one.
    pub(crate) fn volume(&self) -> Option<&VolumeDrive> {
        match self {
            Backing::Volume(volume) => Some(volume),
            Backing::Drive(_) => None,
        }
    }

    /// The same, for requests of operators.
    pub(crate) fn volume_mut(&mut self) -> Option<&mut VolumeDrive> {
        match self {
            Backing::Volume(volume) => Some(volume),
            Backing::Drive(_) => None,
        }
    }
}
