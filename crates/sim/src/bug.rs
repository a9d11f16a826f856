//! Seeded bugs of every kind of scenario.

use zonda_elastic::testing::SeededBug as ElasticBug;
use zonda_files::SeededBug as FilesBug;
use zonda_image::testing::SeededBug as ImageBug;
use zonda_raid::SeededBug as VolumesBug;
use zonda_sched::SeededBug as GroupsBug;
use zonda_ssd::SeededBug;

use crate::network::NetworkBug;
use crate::options::{UnknownName, find, name_of};

/// A seeded bug: a deliberate mistake, to test that the simulator finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// In the drive; only drive scenarios are generated.
    Drive(SeededBug),
    /// Between hosts and drives; only network scenarios are generated.
    Network(NetworkBug),
    /// In the file store; only file store scenarios are generated.
    Files(FilesBug),
    /// In the volume; only volume scenarios are generated.
    Volumes(VolumesBug),
    /// In the image; only image scenarios are generated.
    Images(ImageBug),
    /// In the pool; only pool scenarios are generated.
    Elastic(ElasticBug),
    /// In the scheduler by conflict groups; only scenarios of groups are generated.
    Groups(GroupsBug),
}

impl From<SeededBug> for Bug {
    fn from(bug: SeededBug) -> Bug {
        Bug::Drive(bug)
    }
}

impl From<NetworkBug> for Bug {
    fn from(bug: NetworkBug) -> Bug {
        Bug::Network(bug)
    }
}

impl From<FilesBug> for Bug {
    fn from(bug: FilesBug) -> Bug {
        Bug::Files(bug)
    }
}

impl From<VolumesBug> for Bug {
    fn from(bug: VolumesBug) -> Bug {
        Bug::Volumes(bug)
    }
}

impl From<ImageBug> for Bug {
    fn from(bug: ImageBug) -> Bug {
        Bug::Images(bug)
    }
}

impl From<ElasticBug> for Bug {
    fn from(bug: ElasticBug) -> Bug {
        Bug::Elastic(bug)
    }
}

impl From<GroupsBug> for Bug {
    fn from(bug: GroupsBug) -> Bug {
        Bug::Groups(bug)
    }
}

/// Every seeded bug, with its name.
#[must_use]
pub fn bugs() -> Vec<(&'static str, Bug)> {
    let of_drives = SeededBug::ALL.iter().map(|(name, bug)| (*name, Bug::Drive(*bug)));
    let of_networks = NetworkBug::ALL.iter().map(|(name, bug)| (*name, Bug::Network(*bug)));
    let of_files = FilesBug::ALL.iter().map(|(name, bug)| (*name, Bug::Files(*bug)));
    let of_volumes = VolumesBug::ALL.iter().map(|(name, bug)| (*name, Bug::Volumes(*bug)));
    let of_images = ImageBug::ALL.iter().map(|(name, bug)| (*name, Bug::Images(*bug)));
    let of_pools = ElasticBug::ALL.iter().map(|(name, bug)| (*name, Bug::Elastic(*bug)));
    let of_groups = GroupsBug::ALL.iter().map(|(name, bug)| (*name, Bug::Groups(*bug)));
    let of_stores = of_files.chain(of_volumes).chain(of_images).chain(of_pools);
    of_drives.chain(of_networks).chain(of_stores).chain(of_groups).collect()
}

/// The seeded bug of this name.
///
/// # Errors
/// [`UnknownName`], with the valid names.
pub fn bug_by_name(name: &str) -> Result<Bug, UnknownName> {
    find("a seeded bug", &bugs(), name)
}

/// The name of a seeded bug.
#[must_use]
pub fn bug_name(bug: impl Into<Bug>) -> &'static str {
    name_of(&bugs(), bug.into())
}
