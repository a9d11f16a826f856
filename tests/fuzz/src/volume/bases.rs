//! Volumes to be damaged, created once, as left behind by a crash.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use zonda_raid::{Level, Scheme, StreamShape, Tuning, Volume, VolumeConfig, VolumeDevice};
use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{Blocks, Geometry, PayloadKind, Prng};

use super::host::Host;
use crate::history::History;

/// Number of volumes.
pub(super) const BASES: usize = 5;
pub(super) const ZONE_BLOCKS: u64 = 32;
const ZONES: u32 = 20;
const COMMANDS: usize = 160;

/// A volume's members, and the writes to it.
pub(super) struct Base {
    pub(super) members: Vec<ReferenceDevice>,
    pub(super) written: History,
    /// Members that may be missing or damaged.
    pub(super) tolerance: usize,
}

pub(super) fn base(which: usize) -> &'static Base {
    static MADE: [OnceLock<Base>; BASES] = [const { OnceLock::new() }; BASES];
    MADE[which].get_or_init(|| {
        let (scheme, metadata_bytes) = match which {
            0 => (Scheme::raid5(2), 64),
            1 => (Scheme::raid5(2), 0),
            2 => (Scheme { level: Level::Raid1, data: 1, parity: 1 }, 64),
            3 => (Scheme { level: Level::Raid0, data: 2, parity: 0 }, 0),
            _ => (Scheme { level: Level::Raid6, data: 2, parity: 2 }, 64),
        };
        make(scheme, metadata_bytes, which as u64)
    })
}

fn geometry(metadata_bytes: u16) -> Geometry {
    Geometry {
        metadata_bytes,
        zone_size_blocks: Blocks(ZONE_BLOCKS),
        zone_capacity_blocks: Blocks(ZONE_BLOCKS),
        zone_count: ZONES,
        max_active_zones: Some(5),
        max_open_zones: Some(5),
        max_transfer_blocks: Blocks(16),
        max_append_blocks: Blocks(8),
        descriptor_extension_bytes: 0,
        ..Geometry::tiny()
    }
}

pub(super) fn tuning() -> Tuning {
    Tuning { large_from_blocks: 4, reserve_percent: 30, ..Tuning::default() }
}

fn make(scheme: Scheme, metadata_bytes: u16, seed: u64) -> Base {
    let mut config = VolumeConfig::new("fuzzed", scheme);
    config.small = StreamShape { unit_blocks: 1, group_stripes: 4 };
    config.large = StreamShape { unit_blocks: 2, group_stripes: 1 };
    config.tuning = tuning();
    let members = scheme.members();
    let ids: Vec<[u8; 16]> = (1..=members as u8).map(|id| [id; 16]).collect();
    let geometry = geometry(metadata_bytes);
    let volume = Volume::create(config, vec![geometry.clone(); members], [7; 16], &ids, false).expect("valid members");
    let device = || Some(ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes));
    let volume = VolumeDevice::new(volume, (0..members).map(|_| device()).collect());
    let mut host = Host::until_ready(volume).expect("empty members make a volume");
    let (mut history, mut latest) = (History::default(), BTreeMap::new());
    let mut prng = Prng::new(seed);
    for _ in 0..COMMANDS {
        host.random_command(&mut prng, &mut history, &mut latest);
    }
    // The last writes may not have reached the members, as after a crash.
    let members = host.into_members().into_iter().flatten().collect();
    Base { members, written: history, tolerance: usize::from(scheme.parity) }
}
