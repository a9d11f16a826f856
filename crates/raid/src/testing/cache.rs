//! A write cache that may be lost: of each zone a crash leaves what it was at the last flush, or at any moment since, down to
//! a block. Zones are on their own: of two commands to two zones the later one may be kept, and the earlier one lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use zonda_zoned::reference::ZoneImage;
use zonda_zoned::{
    Blocks, Command, CommandId, Lba, NamespaceId, Operation, Outcome, Payload, ZoneAction, ZoneIndex, ZoneState,
    ZoneTarget,
};

use super::Drive;

/// What of each zone is in the cache alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Cache {
    /// What zones were since the last flush, the oldest first.
    zones: BTreeMap<u32, Vec<Past>>,
}

/// What a zone was.
#[derive(Clone, Debug)]
pub(super) struct Past {
    image: ZoneImage,
    /// Its blocks with their metadata, if a reset has erased them since.
    erased: Option<Arc<[(Bytes, Bytes)]>>,
}

impl Drive {
    /// The same with a cache that a loss of power may take along.
    #[must_use]
    pub fn with_volatile_cache(mut self) -> Drive {
        self.cache = Some(Cache::default());
        self
    }

    /// What the zones of a command are before it takes effect.
    pub(super) fn before(&mut self, operation: &Operation) -> Vec<(u32, Past)> {
        let (zones, is_reset) = match operation {
            _ if self.cache.is_none() => return Vec::new(),
            Operation::ManageZones { action, target } => {
                let zones = match target {
                    ZoneTarget::All => 0..self.geometry.zone_count,
                    ZoneTarget::Zone(_) => self.zone_of(operation).map_or(0..0, |zone| zone..zone + 1),
                };
                (zones, *action == ZoneAction::Reset)
            }
            Operation::Write { .. } | Operation::Append { .. } => {
                (self.zone_of(operation).map_or(0..0, |zone| zone..zone + 1), false)
            }
            _ => return Vec::new(),
        };
        let mut pasts = Vec::new();
        for zone in zones {
            let image = self.device.image(ZoneIndex(zone));
            let erased = is_reset.then(|| self.blocks_of(zone, image.write_pointer_blocks));
            pasts.push((zone, Past { image, erased }));
        }
        pasts
    }

    /// A command has taken effect on zones that were like this before.
    pub(super) fn after(&mut self, operation: &Operation, before: Vec<(u32, Past)>) {
        let ignored = self.faults.ignored_flushes;
        let is_ignored = *operation == Operation::Flush && ignored > 0 && self.prng.chance(ignored, 1000);
        self.is_unreliable |= is_ignored && self.cache.is_some();
        let Some(cache) = &mut self.cache else { return };
        if *operation == Operation::Flush && !is_ignored {
            cache.zones.clear();
        }
        for (zone, past) in before {
            if self.device.image(ZoneIndex(zone)) == past.image {
                continue;
            }
            let pasts = cache.zones.entry(zone).or_default();
            if let Some(erased) = &past.erased {
                for earlier in pasts.iter_mut().filter(|earlier| earlier.erased.is_none()) {
                    earlier.erased = Some(erased.clone());
                }
            }
            pasts.push(past);
        }
    }

    /// Blocks of what is in a zone now that no loss of power takes along.
    pub(super) fn durable_blocks(&self, zone: u32) -> u64 {
        let blocks = |image: &ZoneImage| image.write_pointer_blocks.0;
        let now = blocks(&self.device.image(ZoneIndex(zone)));
        match self.cache.as_ref().and_then(|cache| cache.zones.get(&zone)) {
            Some(pasts) if pasts.iter().any(|past| past.erased.is_some()) => 0,
            Some(pasts) => pasts.first().map_or(now, |past| blocks(&past.image).min(now)),
            None => now,
        }
    }

    /// What a zone is now, it stays.
    pub(super) fn forget_past_of(&mut self, zone: u32) {
        if let Some(cache) = &mut self.cache {
            cache.zones.remove(&zone);
        }
    }

    /// The cache is lost, more of it or less.
    pub(super) fn lose_cache(&mut self) {
        let Some(cache) = &mut self.cache else { return };
        let zones = std::mem::take(&mut cache.zones);
        let mood = self.prng.below(5);
        let mut left: BTreeMap<u32, Past> = BTreeMap::new();
        for (&zone, pasts) in &zones {
            let at = match mood {
                0 => continue,
                1 => 0,
                // What was written is lost, and what was reset is not.
                2 if self.device.image(ZoneIndex(zone)).state == ZoneState::Empty => continue,
                2 => 0,
                _ if self.prng.chance(1, 2) => continue,
                _ => self.prng.below(pasts.len() as u64) as usize,
            };
            let past = self.part_of_next(zone, pasts, at);
            left.insert(zone, past);
        }
        self.keep_to_limit(&zones, &mut left);
        for (zone, past) in left {
            self.restore(zone, past);
        }
    }

    /// What a zone was, perhaps with the beginning of what was written next.
    fn part_of_next(&mut self, zone: u32, pasts: &[Past], at: usize) -> Past {
        let mut past = pasts[at].clone();
        let next = match pasts.get(at + 1) {
            Some(next) => next.image.clone(),
            None => self.device.image(ZoneIndex(zone)),
        };
        let is_same_use = match pasts.get(at + 1) {
            Some(next) => next.erased.as_ref().map(Arc::as_ptr) == past.erased.as_ref().map(Arc::as_ptr),
            None => past.erased.is_none(),
        };
        let (from, to) = (past.image.write_pointer_blocks.0, next.write_pointer_blocks.0);
        if is_same_use && to > from && self.prng.chance(1, 2) {
            let blocks = from + self.prng.below(to - from);
            if blocks > 0 {
                past.image = ZoneImage {
                    state: ZoneState::Closed,
                    write_pointer_blocks: Blocks(blocks),
                    zrwa: false,
                    extension: None,
                };
            }
        }
        past
    }

    /// No more zones are active than may be: then some are as they were at the last flush, when they were not.
    fn keep_to_limit(&self, zones: &BTreeMap<u32, Vec<Past>>, left: &mut BTreeMap<u32, Past>) {
        let Some(most) = self.geometry.max_active_zones else { return };
        let state = |left: &BTreeMap<u32, Past>, zone: u32| {
            left.get(&zone).map_or_else(|| self.device.image(ZoneIndex(zone)).state, |past| past.image.state)
        };
        for (&zone, pasts) in zones {
            let active = (0..self.geometry.zone_count).filter(|&zone| state(left, zone).is_active()).count();
            if active <= most as usize {
                return;
            }
            if state(left, zone).is_active() && !pasts[0].image.state.is_active() {
                left.insert(zone, pasts[0].clone());
            }
        }
    }

    fn restore(&mut self, zone: u32, past: Past) {
        let index = ZoneIndex(zone);
        let blocks = past.image.write_pointer_blocks.0;
        if past.erased.is_some() {
            let empty =
                ZoneImage { state: ZoneState::Empty, write_pointer_blocks: Blocks::ZERO, zrwa: false, extension: None };
            self.device.set_zone(index, empty);
        }
        self.device.set_zone(index, past.image);
        let start = self.geometry.zone_start(index);
        for (at, (data, metadata)) in (0..blocks).zip(past.erased.iter().flat_map(|erased| erased.iter())) {
            self.device.set_block_bytes(start + Blocks(at), data, metadata);
        }
        // What was damaged behind its end was never written, and can be.
        let lost = start + Blocks(blocks)..start + self.geometry.zone_size_blocks;
        self.forget_damage(lost);
    }

    fn blocks_of(&mut self, zone: u32, blocks: Blocks) -> Arc<[(Bytes, Bytes)]> {
        let start = self.geometry.zone_start(ZoneIndex(zone));
        let read = |lba: Lba| {
            let operation = Operation::Read { start: lba, blocks: Blocks(1) };
            let command = Command { id: CommandId(0), namespace: NamespaceId::FIRST, operation };
            match self.device.execute(&command).outcome {
                Outcome::Data(Payload::Bytes(buffer)) => (buffer.data, buffer.metadata),
                _ => {
                    let (data, metadata) = (self.geometry.block_size_bytes, self.geometry.metadata_bytes);
                    (vec![0; data as usize].into(), vec![0; usize::from(metadata)].into())
                }
            }
        };
        (0..blocks.0).map(|at| start + Blocks(at)).map(read).collect()
    }
}
