//! Where a writer goes next: the zone, and what to do when that is full.

use zonda_zoned::{Prng, ZoneIndex};

use super::worker::Step;
use super::zones::ZoneViews;
use crate::plan::JobPlan;
use crate::{EndReason, OnFull, RequestKind, ZoneOrder};

/// Where a writer stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WriterPlace {
    /// Index of the zone written now, or to be written next.
    rotor: usize,
    /// Whether the zone at `rotor` was written since the writer came to it. A sequential writer leaves a zone that it
    /// has filled; what to do with a full one it comes to is up to `on_full`.
    has_begun: bool,
}

/// What a writer can do with a zone.
enum Standing {
    /// Write up to so many blocks.
    Room(u64),
    /// Finish or reset it first.
    Manage(RequestKind),
    /// Nothing until a command to it has ended.
    Busy,
    /// Nothing any more.
    Gone,
    /// End here.
    Stop,
}

impl WriterPlace {
    /// The next step, and the index of its zone.
    pub(super) fn next(
        &mut self,
        kind: RequestKind,
        zones: &[ZoneIndex],
        job: &JobPlan,
        views: &mut ZoneViews,
        prng: &mut Prng,
    ) -> (usize, Step) {
        match job.zone_order {
            ZoneOrder::Sequential => self.in_sequence(kind, zones, job, views),
            ZoneOrder::RoundRobin => self.around(self.rotor, kind, zones, job, views),
            ZoneOrder::Random => self.around(prng.below(zones.len() as u64) as usize, kind, zones, job, views),
        }
    }

    fn in_sequence(
        &mut self,
        kind: RequestKind,
        zones: &[ZoneIndex],
        job: &JobPlan,
        views: &mut ZoneViews,
    ) -> (usize, Step) {
        let mut last = Step::Done(EndReason::ZonesDone);
        // One round, and once more the zone that was filled last.
        for _ in 0..=zones.len() {
            let index = self.rotor;
            let zone = zones[index];
            let is_filled = self.has_begun && views.is_full(zone) && !views.view(zone).is_busy();
            let standing =
                if is_filled && job.on_full != OnFull::Stop { Standing::Gone } else { standing(job, views, zone) };
            match standing {
                Standing::Room(room) => {
                    self.has_begun = true;
                    return (index, write(kind, zone, room, job, views));
                }
                Standing::Manage(kind) => return (index, Step::Manage { kind, zone }),
                Standing::Busy => return (index, Step::Wait),
                Standing::Stop => return (index, Step::Done(EndReason::ZoneFull)),
                Standing::Gone => {
                    if views.view(zone).may_come_back() {
                        last = Step::Wait;
                    }
                    self.rotor = (index + 1) % zones.len();
                    self.has_begun = false;
                }
            }
        }
        (self.rotor, last)
    }

    /// Takes the first zone from `first` on with which something can be done.
    fn around(
        &mut self,
        first: usize,
        kind: RequestKind,
        zones: &[ZoneIndex],
        job: &JobPlan,
        views: &mut ZoneViews,
    ) -> (usize, Step) {
        let mut last = Step::Done(EndReason::ZonesDone);
        for index in (first..zones.len()).chain(0..first) {
            let zone = zones[index];
            match standing(job, views, zone) {
                Standing::Room(room) => {
                    self.rotor = (index + 1) % zones.len();
                    return (index, write(kind, zone, room, job, views));
                }
                Standing::Manage(kind) => {
                    self.rotor = (index + 1) % zones.len();
                    return (index, Step::Manage { kind, zone });
                }
                Standing::Stop => return (index, Step::Done(EndReason::ZoneFull)),
                Standing::Busy => last = Step::Wait,
                Standing::Gone if views.view(zone).may_come_back() => last = Step::Wait,
                Standing::Gone => {}
            }
        }
        (first, last)
    }
}

/// The zone's last request may be shorter, so that the zone ends up full.
fn write(kind: RequestKind, zone: ZoneIndex, room: u64, job: &JobPlan, views: &mut ZoneViews) -> Step {
    let blocks = job.part_blocks.min(room);
    let start = views.reserve(zone, blocks);
    Step::Data { kind, zone, start, blocks }
}

fn standing(job: &JobPlan, views: &mut ZoneViews, zone: ZoneIndex) -> Standing {
    let capacity = views.capacity();
    let view = views.view_mut(zone);
    if view.is_dead {
        return Standing::Gone;
    }
    if view.is_busy() {
        return Standing::Busy;
    }
    let limit = job.finish_at_blocks.unwrap_or(capacity);
    if !view.is_lost && view.written < limit {
        return Standing::Room(limit - view.written);
    }
    // A host waits for its writes before it finishes or resets a zone: on a real drive commands may overtake each other.
    let manage = |kind| if view.writes_outstanding > 0 { Standing::Busy } else { Standing::Manage(kind) };
    if view.is_lost {
        return if job.on_full == OnFull::Reset { manage(RequestKind::Reset) } else { Standing::Gone };
    }
    if view.written < capacity {
        return manage(RequestKind::Finish);
    }
    match job.on_full {
        OnFull::Next => Standing::Gone,
        OnFull::Stop => Standing::Stop,
        OnFull::Reset if view.is_conventional => {
            view.written = 0;
            Standing::Room(capacity)
        }
        OnFull::Reset => manage(RequestKind::Reset),
    }
}
