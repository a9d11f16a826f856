//! Hosts that share a namespace by reservations: they register, acquire, preempt, release, report,
//! read and write.
//!
//! They have a namespace of their own, so that reservations do not affect the other hosts; faults
//! of connections, server and power affect them as all others. [`rules`] implements the rules of
//! the specification, [`history`] checks that an order of all commands explains every response.

mod commands;
mod history;
mod peer;
mod rules;
mod run;
mod store;

use serde::{Deserialize, Serialize};
use zonda_zoned::{Blocks, Duration, Geometry, Prng};

use super::simulation::DriveShape;
use crate::drive::one_of;
use crate::options::Options;
use crate::scenario::DurationDef;

pub(crate) use run::Sharing;
pub(crate) use store::Store;

/// Maximum number of hosts.
const HOSTS_MAX: usize = 4;

/// Generated properties of the hosts. Their namespace is that of the last drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SharingTraits {
    pub(crate) hosts: usize,
    /// Commands of each host.
    pub(crate) commands: u64,
    /// Queue depth of each host.
    pub(crate) queue_depth: usize,
    /// Mean pause between two commands of a host.
    #[serde(rename = "pause_ns", with = "DurationDef")]
    pub(crate) pause: Duration,
    /// Reservations of the namespace can persist through power loss.
    pub(crate) keeps: bool,
    /// Its device sometimes fails to save them.
    pub(crate) fails: bool,
}

impl SharingTraits {
    pub(super) fn generate(prng: &mut Prng, options: &Options) -> SharingTraits {
        let commands = (15 + prng.below(30)) * options.scale.max(1);
        let queue_depth = one_of(prng, &[1, 1, 2]) as usize;
        SharingTraits {
            hosts: 2 + prng.below(HOSTS_MAX as u64 - 1) as usize,
            commands: commands.min(options.commands_max.unwrap_or(u64::MAX)),
            queue_depth: queue_depth.min(options.queue_depth_max.map_or(usize::MAX, |most| most as usize)).max(1),
            pause: Duration(one_of(prng, &[1_000, 200_000, 3_000_000, 30_000_000])),
            keeps: prng.chance(2, 3),
            fails: prng.chance(1, 3),
        }
    }

    /// Checks the number of hosts and the queue depth.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.hosts == 0 || self.hosts > HOSTS_MAX || self.queue_depth == 0 {
            return Err("one to four hosts with a queue depth of at least 1");
        }
        Ok(())
    }
}

/// The drive of the shared namespace.
pub(super) fn drive() -> DriveShape {
    let geometry = Geometry {
        block_size_bytes: 512,
        metadata_bytes: 0,
        zone_size_blocks: Blocks(16),
        zone_capacity_blocks: Blocks(16),
        zone_count: 4,
        conventional_zone_count: 0,
        max_active_zones: None,
        max_open_zones: None,
        max_transfer_blocks: Blocks(16),
        max_append_blocks: Blocks(16),
        zrwa: None,
        read_across_zones: true,
        descriptor_extension_bytes: 0,
    };
    DriveShape {
        geometry,
        profile: None,
        profile_text: None,
        has_volatile_cache: false,
        delays: Vec::new(),
        faults: Vec::new(),
    }
}
