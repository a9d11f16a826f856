//! The log of a pool, as it was read: the newest checkpoint, and the records behind it.

use std::collections::{BTreeMap, BTreeSet};

use super::StartError;
use crate::bug::{Seeded, SeededBug};
use crate::format::{BlockError, Body, LogBlock, NamespaceRecord, PoolId, PoolRecord, Record, VZoneRecord};
use crate::limits::{LOG_COPIES, LOG_ZONES};
use crate::log::CopyEnd;

/// Copy, zone of the copy, and block of the zone.
type Place = (usize, usize, u64);

/// Blocks of the log, by copy, zone and place.
#[derive(Debug, Default)]
pub(crate) struct LogRead {
    blocks: BTreeMap<Place, Result<(PoolId, LogBlock), BlockError>>,
}

/// The state that the log describes.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) id: PoolId,
    pub(crate) pool: PoolRecord,
    pub(crate) sequence: u64,
    /// Whether both copies end with the same record. If they do not, newer ones may be in neither.
    pub(crate) copies_agree: bool,
    pub(crate) ends: [CopyEnd; LOG_COPIES],
    pub(crate) namespaces: BTreeMap<u32, NamespaceRecord>,
    pub(crate) vzones: BTreeMap<(u32, u32), VZoneRecord>,
    pub(crate) retired: Vec<u32>,
}

impl LogRead {
    /// A block; `None` if it cannot be read.
    pub(crate) fn add(&mut self, copy: usize, slot: usize, block: u64, bytes: Option<&[u8]>) {
        let found = bytes.ok_or(BlockError::Damaged).and_then(LogBlock::open);
        self.blocks.insert((copy, slot, block), found);
    }

    /// The state of the pool `id`, or of the only one there is.
    ///
    /// # Errors
    /// If there is no pool, or records are missing from it.
    pub(crate) fn replay(&self, id: Option<PoolId>, epoch_min: u64, bug: Seeded) -> Result<Found, StartError> {
        let id = self.identity(id)?;
        let own: Vec<(Place, &LogBlock)> = self
            .blocks
            .iter()
            .filter_map(|(place, found)| {
                found.as_ref().ok().filter(|(pool, _)| *pool == id).map(|(_, block)| (*place, block))
            })
            .filter(|((copy, ..), block)| usize::from(block.copy) == *copy)
            .collect();
        let (covered, read, checkpoint) = newest_checkpoint(&own)
            .ok_or_else(|| StartError::LogDamaged("no checkpoint can be read in either copy".to_owned()))?;
        let records: BTreeMap<u64, &LogBlock> = own
            .iter()
            .filter(|(_, block)| block.body == Body::Records && block.sequence > covered)
            .map(|(_, block)| (block.sequence, *block))
            .collect();
        let last = records.keys().next_back().copied().unwrap_or(covered);
        let last = if bug.has(SeededBug::IgnoredTail) { last } else { last.max(self.last_unreadable(id)) };
        if let Some(missing) = (covered + 1..=last).find(|sequence| !records.contains_key(sequence)) {
            return Err(StartError::LogDamaged(format!(
                "block {missing} of the records (the last is {last}) can be read in neither copy"
            )));
        }
        let mut found = Found {
            id,
            pool: PoolRecord {
                epoch: 0,
                zones_per_vzone: 1,
                slack_blocks: 0,
                base_stripe_blocks: 1,
                essential_zones: 1,
                width_max: 1,
                next_reservation: 0,
            },
            sequence: last,
            copies_agree: (0..LOG_COPIES).all(|copy| last_of(&own, copy) == Some(last)),
            ends: ends_of(&own, read),
            namespaces: BTreeMap::new(),
            vzones: BTreeMap::new(),
            retired: Vec::new(),
        };
        let mut has_pool = false;
        for record in checkpoint.iter().chain(records.values()).flat_map(|block| &block.records) {
            has_pool |= matches!(record, Record::Pool(_));
            found.apply(record);
        }
        if !has_pool {
            return Err(StartError::LogDamaged("the checkpoint does not describe the pool".to_owned()));
        }
        if found.pool.epoch < epoch_min && !bug.has(SeededBug::IgnoredEpoch) {
            return Err(StartError::OldCopy { found: found.pool.epoch, known: epoch_min });
        }
        Ok(found)
    }

    fn identity(&self, expected: Option<PoolId>) -> Result<PoolId, StartError> {
        let mut ids: Vec<PoolId> = self.blocks.values().flatten().map(|(pool, _)| *pool).collect();
        ids.sort_unstable();
        ids.dedup();
        match (expected, ids.as_slice()) {
            (Some(expected), ids) if ids.contains(&expected) => Ok(expected),
            (None, [only]) => Ok(*only),
            (_, [other, ..]) => Err(StartError::OtherPool(*other)),
            (_, []) => {
                let later = self.blocks.values().find_map(|found| match found {
                    Err(BlockError::OtherVersion(version)) => Some(*version),
                    _ => None,
                });
                let is_damaged = self.blocks.values().any(|found| *found == Err(BlockError::Damaged));
                Err(match later {
                    Some(version) => StartError::OtherVersion(version),
                    None if is_damaged => StartError::LogDamaged("no block of it can be read".to_owned()),
                    None => StartError::NoPool,
                })
            }
        }
    }

    /// The last sequence that stands in a block which cannot be read: both copies have the same
    /// records one behind the other, so its number follows from the blocks before it. Blocks that
    /// are parts of a checkpoint have none.
    fn last_unreadable(&self, id: PoolId) -> u64 {
        let mut last = 0;
        for copy in 0..LOG_COPIES {
            for slot in 0..LOG_ZONES as usize / LOG_COPIES {
                let (mut sequence, mut parts_left) = (None, 0);
                for (_, found) in self.blocks.range((copy, slot, 0)..=(copy, slot, u64::MAX)) {
                    match (found, &mut sequence) {
                        (Ok((pool, block)), sequence) if *pool == id => {
                            *sequence = Some(block.sequence);
                            parts_left = match block.body {
                                Body::Checkpoint { part, parts } => parts - 1 - part,
                                Body::Records => 0,
                            };
                        }
                        (Err(_), Some(_)) if parts_left > 0 => parts_left -= 1,
                        (Err(_), Some(sequence)) => {
                            *sequence += 1;
                            last = last.max(*sequence);
                        }
                        _ => {}
                    }
                }
            }
        }
        last
    }
}

/// The newest record that a copy has, or that its checkpoint covers.
fn last_of(own: &[(Place, &LogBlock)], copy: usize) -> Option<u64> {
    own.iter().filter(|((other, ..), _)| *other == copy).map(|(_, block)| block.sequence).max()
}

/// The newest checkpoint of which all parts can be read: what it covers, and its copy and zone.
fn newest_checkpoint<'b>(own: &[(Place, &'b LogBlock)]) -> Option<(u64, (usize, usize), Vec<&'b LogBlock>)> {
    let (key, newest) = whole_checkpoints(own).next_back()?;
    Some((key.0, (key.2, key.3), newest.into_values().collect()))
}

/// What a checkpoint covers, its generation, its copy and its slot.
type CheckpointKey = (u64, u64, usize, usize);

/// The checkpoints of which all parts can be read, in their order.
fn whole_checkpoints<'b>(
    own: &[(Place, &'b LogBlock)],
) -> impl DoubleEndedIterator<Item = (CheckpointKey, BTreeMap<u32, &'b LogBlock>)> + use<'b> {
    let mut parts: BTreeMap<CheckpointKey, BTreeMap<u32, &'b LogBlock>> = BTreeMap::new();
    for ((copy, slot, _), block) in own {
        if let Body::Checkpoint { part, .. } = block.body {
            parts.entry((block.sequence, block.generation, *copy, *slot)).or_default().insert(part, block);
        }
    }
    parts.into_iter().filter(|(_, found)| {
        found.values().next().is_some_and(|block| match block.body {
            Body::Checkpoint { parts, .. } => found.len() == parts as usize,
            Body::Records => false,
        })
    })
}

/// Where each copy ends: in the newest of its zones that has records or a whole checkpoint. A zone that
/// an interrupted mount has begun has neither, and nothing is lost with it.
fn ends_of(own: &[(Place, &LogBlock)], read: (usize, usize)) -> [CopyEnd; LOG_COPIES] {
    let whole = whole_checkpoints(own).map(|((_, generation, copy, slot), _)| (copy, generation, slot));
    let records = own.iter().filter(|(_, block)| block.body == Body::Records);
    let homes: BTreeSet<(usize, u64, usize)> =
        whole.chain(records.map(|((copy, slot, _), block)| (*copy, block.generation, *slot))).collect();
    let mut ends = [CopyEnd::default(); LOG_COPIES];
    for (copy, end) in ends.iter_mut().enumerate() {
        let of_copy = || own.iter().filter(move |((other, ..), _)| *other == copy);
        let newest = of_copy().max_by_key(|(_, block)| block.generation);
        let Some(((_, slot, _), block)) = newest else { continue };
        let home = homes.range((copy, 0, 0)..(copy + 1, 0, 0)).next_back();
        *end = CopyEnd { current: home.map_or(*slot, |home| home.2), generation: block.generation, read: None };
    }
    ends[read.0].read = Some(read.1);
    ends
}

impl Found {
    fn apply(&mut self, record: &Record) {
        match record {
            Record::Pool(pool) => self.pool = *pool,
            Record::Namespace(namespace) => {
                self.vzones.retain(|(id, vzone), _| *id != namespace.id || *vzone < namespace.zone_count);
                self.namespaces.insert(namespace.id, namespace.clone());
            }
            Record::Deleted { namespace } => {
                self.namespaces.remove(namespace);
                self.vzones.retain(|(id, _), _| id != namespace);
            }
            Record::VZone(vzone) => {
                // A v-zone of a namespace that was deleted is reset after that.
                let is_there = self.namespaces.get(&vzone.namespace).is_some_and(|own| vzone.vzone < own.zone_count);
                if is_there {
                    self.vzones.insert((vzone.namespace, vzone.vzone), vzone.clone());
                }
            }
            Record::Retired { zone } => self.retired.push(*zone),
        }
    }
}
