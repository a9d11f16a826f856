//! A namespace of the pool: what its host has written, and what a restart must leave of it.

use std::collections::BTreeMap;

use zonda_devices::PoolNamespaceReport;
use zonda_zoned::{Blocks, Geometry, Lba, Prng, ZoneIndex};

use super::site::Kind;
use crate::host::{Channel, connect, read_all};
use crate::load::ZoneLoad;
use crate::loss::{Loss, RunError};
use crate::oracle::ZoneHistory;
use crate::stamp::{BLOCK_BYTES, Contents, Stamper};
use crate::verify;

/// A namespace, and the history of its zones.
#[derive(Clone, Debug)]
pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) stamper: Stamper,
    pub(super) zones: Vec<ZoneHistory>,
    /// Blocks of a zone.
    capacity: u64,
}

/// Who has written which blocks: namespaces that exist, and former ones.
#[derive(Debug, Default)]
pub(super) struct Owners(Vec<(String, Stamper)>);

impl Tenant {
    /// A new namespace, whose name has been used `generation` times before.
    pub(super) fn new(kind: Kind, seed: u64, generation: u32, report: &PoolNamespaceReport) -> Tenant {
        let capacity = report.zone_capacity_bytes / BLOCK_BYTES as u64;
        Tenant {
            name: report.name.clone(),
            kind,
            stamper: Stamper::new(seed, &format!("{}/{generation}", report.name)),
            zones: vec![ZoneHistory::new(capacity); report.zones as usize],
            capacity,
        }
    }

    /// It has so many zones now.
    pub(super) fn resize(&mut self, zones: u32) {
        self.zones.resize(zones as usize, ZoneHistory::new(self.capacity));
    }

    /// Load `number` of a host on its zones.
    pub(super) fn load(&self, geometry: &Geometry, prng: Prng, number: (u32, u32)) -> ZoneLoad {
        let is_active = |history: &&ZoneHistory| history.pointer() > 0 && !history.is_full();
        let spare = self.kind.active_max() - self.zones.iter().filter(is_active).count();
        let zones: BTreeMap<u32, ZoneHistory> = (0..self.kind.zones()).zip(self.zones.iter().cloned()).collect();
        ZoneLoad::new(geometry, zones, spare, &self.stamper, prng, number)
    }

    /// Continues from the commands of a load.
    pub(super) fn take(&mut self, load: ZoneLoad) {
        for (zone, history) in load.zones {
            self.zones[zone as usize] = history;
        }
    }

    /// Reads every block, and compares it with what was submitted and acknowledged. Returns how many
    /// blocks it has read.
    ///
    /// # Errors
    /// The losses, and blocks of other namespaces; or why verification failed.
    pub(super) fn verify(&mut self, url: &str, owners: &Owners) -> Result<u64, RunError> {
        match verify::zones(url, &self.stamper, &mut self.zones) {
            Ok(()) => Ok(self.zones.len() as u64 * self.capacity),
            Err(RunError::Lost(losses)) => {
                let mut losses: Vec<Loss> = losses
                    .into_iter()
                    .map(|loss| Loss { place: format!("{}, {}", self.name, loss.place), ..loss })
                    .collect();
                losses.extend(owners.find_others(url, self)?);
                Err(RunError::Lost(losses))
            }
            Err(failed) => Err(failed),
        }
    }
}

impl Owners {
    /// Adds a namespace that is new.
    pub(super) fn add(&mut self, tenant: &Tenant) {
        self.0.push((tenant.name.clone(), tenant.stamper.clone()));
    }

    /// The first block that a host of `reader` can read and another namespace has written: one that
    /// exists, or a former one.
    fn find_others(&self, url: &str, reader: &Tenant) -> Result<Option<Loss>, RunError> {
        let connection = connect(url)?;
        let geometry = connection.geometry().clone();
        let mut connection = Channel::Nvme(Box::new(connection));
        let mut found = None;
        // The stamps of the namespace itself are no leak.
        'search: for (name, stamper) in self.0.iter().filter(|(_, stamper)| !stamper.is_same(&reader.stamper)) {
            for zone in 0..geometry.zone_count {
                let start = geometry.zone_start(ZoneIndex(zone));
                let blocks =
                    read_all(&mut connection, stamper, &pieces(start, geometry.zone_capacity_blocks))?.concat();
                let is_written = |contents: &Contents| !matches!(contents, Contents::Zeros | Contents::Foreign);
                if let Some(block) = blocks.iter().position(is_written) {
                    let place = format!("{}, zone {zone}, block {block}", reader.name);
                    let block = format!("of namespace {name}: {}", blocks[block]);
                    found = Some(Loss::new(place, "no block of another namespace", block));
                    break 'search;
                }
            }
        }
        connection.close();
        Ok(found)
    }
}

/// Reads of the blocks of a zone.
fn pieces(start: Lba, blocks: Blocks) -> Vec<(Lba, u64)> {
    const AT_ONCE: u64 = 256;
    let firsts = (0..blocks.0).step_by(AT_ONCE as usize);
    firsts.map(|first| (start + Blocks(first), AT_ONCE.min(blocks.0 - first))).collect()
}
