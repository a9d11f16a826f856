//! The load of one host on its zones.

use std::collections::{BTreeMap, BTreeSet};

use zonda_zoned::{Blocks, Geometry, Lba, Operation, Prng, ZoneAction, ZoneIndex, ZoneTarget};

use super::{Load, Meaning, Planned, length};
use crate::oracle::{Change, ZoneHistory};
use crate::stamp::{Contents, Sequence, Stamper};

/// Writes, appends, reads and management of the zones of one host.
pub struct ZoneLoad {
    geometry: Geometry,
    /// The zones, for the duration of the load.
    pub zones: BTreeMap<u32, ZoneHistory>,
    /// Zones that were opened and not written since: active without data.
    opened: BTreeSet<u32>,
    /// Zones in which a command has failed: they are finished and reset, and not written. Appends are not
    /// used, because their places are not known then.
    failed: BTreeSet<u32>,
    lacks_space: bool,
    /// The limit on active zones of this host.
    active_max: usize,
    prng: Prng,
    stamper: Stamper,
    number: u32,
    host: u32,
    writes: u64,
}

/// How a zone is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteKind {
    Write,
    Append,
    Zeros,
}

impl ZoneLoad {
    /// Creates load `number` of a host. `active_spare`: additional active zones that the host may
    /// use.
    #[must_use]
    pub fn new(
        geometry: &Geometry,
        zones: BTreeMap<u32, ZoneHistory>,
        active_spare: usize,
        stamper: &Stamper,
        prng: Prng,
        (number, host): (u32, u32),
    ) -> ZoneLoad {
        let mut load = ZoneLoad {
            geometry: geometry.clone(),
            zones,
            opened: BTreeSet::new(),
            failed: BTreeSet::new(),
            lacks_space: false,
            active_max: 0,
            prng,
            stamper: stamper.clone(),
            number,
            host,
            writes: 0,
        };
        load.active_max = load.active().count() + active_spare;
        load
    }

    /// The drive of the namespace may run out of space.
    #[must_use]
    pub fn without_space(self) -> ZoneLoad {
        ZoneLoad { lacks_space: true, ..self }
    }

    fn active(&self) -> impl Iterator<Item = u32> {
        let is_active = |(zone, history): &(&u32, &ZoneHistory)| {
            !history.is_full() && (history.pointer() > 0 || self.opened.contains(zone))
        };
        self.zones.iter().filter(is_active).map(|(&zone, _)| zone)
    }

    /// A random zone that satisfies the predicate.
    fn pick(&mut self, wanted: impl Fn(u32, &ZoneHistory) -> bool) -> Option<u32> {
        let zones: Vec<u32> =
            self.zones.iter().filter(|(zone, history)| wanted(**zone, history)).map(|(zone, _)| *zone).collect();
        self.prng.pick(&zones).copied()
    }

    /// An active zone, or an empty one if that may become active.
    fn writable(&mut self) -> Option<u32> {
        let active: Vec<u32> = self.active().collect();
        let may_begin = active.len() < self.active_max;
        if may_begin && (active.is_empty() || self.prng.chance(1, 8)) {
            let failed = self.failed.clone();
            let is_empty = |history: &ZoneHistory| history.pointer() == 0 && !history.is_full();
            let is_used = |zone: u32| active.contains(&zone) || failed.contains(&zone);
            let empty = self.pick(|zone, history| is_empty(history) && !is_used(zone));
            if empty.is_some() {
                return empty;
            }
        }
        let writable: Vec<u32> = active.into_iter().filter(|zone| !self.failed.contains(zone)).collect();
        self.prng.pick(&writable).copied()
    }

    fn start(&self, zone: u32) -> Lba {
        self.geometry.zone_start(ZoneIndex(zone))
    }

    fn write(&mut self, kind: WriteKind) -> Planned {
        let Some(zone) = self.writable() else { return self.reset() };
        let zone_start = self.start(zone);
        let sequence = Sequence::new(self.number, self.host, self.writes);
        self.writes += 1;
        let history = self.zones.get_mut(&zone).expect("the host has the zone");
        let blocks = length(&mut self.prng, history.free_blocks());
        let start = zone_start + Blocks(history.pointer());
        let contents = if kind == WriteKind::Zeros { Contents::Zeros } else { Contents::Write(sequence) };
        let change = history.write(blocks, contents);
        let placed = (kind == WriteKind::Append).then_some(start);
        let operation = match kind {
            WriteKind::Zeros => Operation::WriteZeroes { start, blocks: Blocks(blocks) },
            WriteKind::Write => {
                let payload = self.stamper.payload(start, blocks, sequence);
                Operation::Write { start, blocks: Blocks(blocks), payload }
            }
            WriteKind::Append => {
                let payload = self.stamper.payload(start, blocks, sequence);
                Operation::Append { zone_start, blocks: Blocks(blocks), payload }
            }
        };
        Planned { operation, meaning: Meaning::Zone { zone, change, blocks, placed } }
    }

    /// Reads anywhere in a zone, also beyond the write pointer.
    fn read(&mut self) -> Planned {
        let zone = self.pick(|_, history| history.pointer() > 0).or_else(|| self.pick(|_, _| true));
        let zone = zone.expect("a host has zones");
        let history = &self.zones[&zone];
        let capacity = self.geometry.zone_capacity_blocks.0;
        let first = self.prng.below(capacity.min(history.pointer() + 8));
        let blocks = length(&mut self.prng, capacity - first);
        let expected = (first..first + blocks).map(|block| history.expected(block)).collect();
        let start = self.start(zone) + Blocks(first);
        Planned {
            operation: Operation::Read { start, blocks: Blocks(blocks) },
            meaning: Meaning::Read { start, expected },
        }
    }

    /// Resets a zone that is not empty: a full one, or one that is being written.
    fn reset(&mut self) -> Planned {
        let full = self.prng.chance(3, 4).then(|| self.pick(|_, history| history.is_full())).flatten();
        let has_any = |history: &ZoneHistory| history.pointer() > 0 || history.is_full() || history.is_unknown();
        let Some(zone) = full.or_else(|| self.pick(|_, history| has_any(history))) else { return flush() };
        self.opened.remove(&zone);
        self.failed.remove(&zone);
        let change = self.zones.get_mut(&zone).expect("the host has the zone").reset();
        self.manage(zone, ZoneAction::Reset, Some(change))
    }

    fn finish(&mut self) -> Planned {
        let Some(zone) = self.pick(|_, history| !history.is_full() && !history.is_unknown()) else {
            return self.reset();
        };
        self.opened.remove(&zone);
        let change = self.zones.get_mut(&zone).expect("the host has the zone").finish();
        self.manage(zone, ZoneAction::Finish, Some(change))
    }

    fn open(&mut self) -> Planned {
        let Some(zone) = self.writable() else { return self.reset() };
        if self.zones[&zone].pointer() == 0 {
            self.opened.insert(zone);
        }
        self.manage(zone, ZoneAction::Open { zrwa: false }, None)
    }

    fn close(&mut self) -> Planned {
        match self.pick(|_, history| !history.is_full() && history.pointer() > 0) {
            Some(zone) => self.manage(zone, ZoneAction::Close, None),
            None => flush(),
        }
    }

    fn manage(&self, zone: u32, action: ZoneAction, change: Option<Change>) -> Planned {
        let operation = Operation::ManageZones { action, target: ZoneTarget::Zone(self.start(zone)) };
        let meaning = change.map_or(Meaning::Nothing, |change| Meaning::Zone { zone, change, blocks: 0, placed: None });
        Planned { operation, meaning }
    }
}

impl Load for ZoneLoad {
    fn next(&mut self) -> Planned {
        match self.prng.below(100) {
            0..40 => self.write(WriteKind::Write),
            40..70 if self.lacks_space => self.write(WriteKind::Write),
            40..70 => self.write(WriteKind::Append),
            70..73 => self.write(WriteKind::Zeros),
            73..86 => self.read(),
            86..90 => self.reset(),
            90..92 => self.finish(),
            92..95 => self.open(),
            95..97 => self.close(),
            _ => flush(),
        }
    }

    fn acknowledge(&mut self, meaning: &Meaning) {
        if let Meaning::Zone { zone, change, .. } = meaning {
            self.zones.get_mut(zone).expect("the host has the zone").acknowledge(*change);
        }
    }

    fn fail(&mut self, meaning: &Meaning) {
        if let Meaning::Zone { zone, change, .. } = meaning
            && self.zones.get_mut(zone).expect("the host has the zone").fail(*change)
        {
            self.failed.insert(*zone);
        }
    }
}

fn flush() -> Planned {
    Planned { operation: Operation::Flush, meaning: Meaning::Nothing }
}
