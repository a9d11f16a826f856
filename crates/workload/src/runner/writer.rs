//! The next zone of a writer, and its action when that is full.

use zonda_zoned::{Prng, ZoneIndex};

use super::worker::Step;
use super::zones::ZoneViews;
use crate::plan::JobPlan;
use crate::{EndReason, OnFull, RequestKind, ZoneOrder};

/// The position of a writer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WriterPlace {
    /// Index of the current or next zone.
    rotor: usize,
    /// Whether the zone at `rotor` was written since the writer selected it. A sequential writer
    /// leaves a zone that it has filled; `on_full` determines how it treats one that was full
    /// before.
    has_begun: bool,
}

/// How a writer can use a zone.
enum ZoneUse {
    /// Write up to this many blocks.
    Write(u64),
    /// Finish or reset it first.
    Manage(RequestKind),
    /// Wait until a command to it has ended.
    Busy,
    /// It is full or unusable.
    Done,
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
            let zone_use =
                if is_filled && job.on_full != OnFull::Stop { ZoneUse::Done } else { zone_use(job, views, zone) };
            match zone_use {
                ZoneUse::Write(free) => {
                    self.has_begun = true;
                    return (index, write(kind, zone, free, job, views));
                }
                ZoneUse::Manage(kind) => return (index, Step::Manage { kind, zone }),
                ZoneUse::Busy => return (index, Step::Wait),
                ZoneUse::Stop => return (index, Step::Done(EndReason::ZoneFull)),
                ZoneUse::Done => {
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

    /// Selects the first usable zone from `first` on.
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
            match zone_use(job, views, zone) {
                ZoneUse::Write(free) => {
                    self.rotor = (index + 1) % zones.len();
                    return (index, write(kind, zone, free, job, views));
                }
                ZoneUse::Manage(kind) => {
                    self.rotor = (index + 1) % zones.len();
                    return (index, Step::Manage { kind, zone });
                }
                ZoneUse::Stop => return (index, Step::Done(EndReason::ZoneFull)),
                ZoneUse::Busy => last = Step::Wait,
                ZoneUse::Done if views.view(zone).may_come_back() => last = Step::Wait,
                ZoneUse::Done => {}
            }
        }
        (first, last)
    }
}

/// The zone's last request may be shorter, so that the zone ends up full.
fn write(kind: RequestKind, zone: ZoneIndex, free: u64, job: &JobPlan, views: &mut ZoneViews) -> Step {
    let blocks = job.part_blocks.min(free);
    let start = views.reserve(zone, blocks);
    Step::Data { kind, zone, start, blocks }
}

fn zone_use(job: &JobPlan, views: &mut ZoneViews, zone: ZoneIndex) -> ZoneUse {
    let capacity = views.capacity();
    let (view, written) = (views.view(zone), views.written(zone));
    if view.is_dead {
        return ZoneUse::Done;
    }
    if view.is_busy() {
        return ZoneUse::Busy;
    }
    let limit = job.finish_at_blocks.unwrap_or(capacity);
    if !view.is_lost && written < limit {
        return ZoneUse::Write(limit - written);
    }
    // A host waits for its writes before it finishes or resets a zone: a real drive may reorder
    // commands.
    let manage = |kind| if view.writes_outstanding > 0 { ZoneUse::Busy } else { ZoneUse::Manage(kind) };
    if view.is_lost {
        return if job.on_full == OnFull::Reset { manage(RequestKind::Reset) } else { ZoneUse::Done };
    }
    if written < capacity {
        return manage(RequestKind::Finish);
    }
    match job.on_full {
        OnFull::Next => ZoneUse::Done,
        OnFull::Stop => ZoneUse::Stop,
        OnFull::Reset if view.is_conventional => {
            views.start_again(zone);
            ZoneUse::Write(capacity)
        }
        OnFull::Reset => manage(RequestKind::Reset),
    }
}
