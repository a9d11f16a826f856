//! The jobs' view of the zones. All jobs of a run share it, so that a reader follows a writer, and
//! appenders do not overfill a zone.
//!
//! Devices apply commands in the order of submission, so that a zone counts as written when the
//! write is submitted.

use zonda_zoned::{Blocks, Geometry, Lba, Status, ZoneIndex, ZoneType};

use crate::RequestKind;

/// The view of one zone, but for its written blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ZoneView {
    /// Blocks whose writes have completed.
    confirmed: u64,
    /// Counts resets and finishes: completions from an earlier epoch are ignored.
    pub(super) epoch: u32,
    pub(super) writes_outstanding: u32,
    /// A write has failed. Later ones fail too, as the write pointer did not move: writing
    /// continues at the device's write pointer when all have ended.
    is_recovering: bool,
    /// Since the zone last had no outstanding writes, one has succeeded, or failed for a reason
    /// other than its address.
    is_explained: bool,
    /// Its write pointer is unknown: all outstanding writes failed because of their address only.
    /// This happens after a failed write that was executed all the same. Only a reset or finish
    /// helps.
    pub(super) is_lost: bool,
    /// A reset or finish is in flight.
    pub(super) is_managed: bool,
    /// Read only or offline.
    pub(super) is_dead: bool,
    pub(super) is_conventional: bool,
}

/// All zones of the namespace.
#[derive(Debug)]
pub(super) struct ZoneViews {
    /// Blocks submitted from each zone's start on; the capacity when it is full. Reads need nothing
    /// else of a zone, and those of the largest drives stay in the second-level cache.
    written: Vec<u64>,
    views: Vec<ZoneView>,
    capacity: u64,
    zone_size: u64,
}

impl ZoneViews {
    /// Zones in the state that the plan requires before the run.
    pub(super) fn new(geometry: &Geometry, prefill: &[(ZoneIndex, Blocks)]) -> ZoneViews {
        let mut views: Vec<ZoneView> = (0..geometry.zone_count)
            .map(|zone| ZoneView {
                is_conventional: geometry.zone_type(ZoneIndex(zone)) == ZoneType::Conventional,
                ..ZoneView::default()
            })
            .collect();
        let mut written = vec![0; views.len()];
        for (zone, blocks) in prefill {
            written[zone.as_usize()] = blocks.0;
            views[zone.as_usize()].confirmed = blocks.0;
        }
        ZoneViews { written, views, capacity: geometry.zone_capacity_blocks.0, zone_size: geometry.zone_size_blocks.0 }
    }

    #[inline]
    pub(super) fn view(&self, zone: ZoneIndex) -> &ZoneView {
        &self.views[zone.as_usize()]
    }

    /// Blocks submitted from the zone's start on; the capacity when it is full.
    #[inline]
    pub(super) fn written(&self, zone: ZoneIndex) -> u64 {
        self.written[zone.as_usize()]
    }

    pub(super) fn view_mut(&mut self, zone: ZoneIndex) -> &mut ZoneView {
        &mut self.views[zone.as_usize()]
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    #[inline]
    pub(super) fn start(&self, zone: ZoneIndex) -> Lba {
        Lba(self.zone_size * u64::from(zone.0))
    }

    pub(super) fn is_full(&self, zone: ZoneIndex) -> bool {
        self.written(zone) >= self.capacity
    }

    /// The range for reads of `blocks`: the written blocks, or the whole capacity of a zone with
    /// less than one request.
    #[inline]
    pub(super) fn readable(&self, zone: ZoneIndex, blocks: u64) -> u64 {
        let written = self.written(zone);
        if written >= blocks { written } else { self.capacity }
    }

    /// Reserves the next `blocks` of a zone for a write or append, and returns their start.
    pub(super) fn reserve(&mut self, zone: ZoneIndex, blocks: u64) -> Lba {
        let start = self.start(zone);
        let written = &mut self.written[zone.as_usize()];
        let place = start + Blocks(*written);
        *written += blocks;
        assert!(*written <= self.capacity, "a writer does not exceed the free blocks of a zone");
        self.view_mut(zone).writes_outstanding += 1;
        place
    }

    /// A write or append has ended. True if it was the zone's last outstanding one.
    pub(super) fn write_ended(&mut self, zone: ZoneIndex, status: Status, blocks: u64, epoch: u32) -> bool {
        let (written, view) = (&mut self.written[zone.as_usize()], &mut self.views[zone.as_usize()]);
        view.writes_outstanding -= 1;
        let is_news = !view.is_conventional && epoch == view.epoch;
        match status {
            Status::ZoneIsReadOnly | Status::ZoneIsOffline => view.is_dead = true,
            Status::Success if is_news => {
                view.confirmed += blocks;
                view.is_explained = true;
            }
            Status::ZoneIsFull if is_news => {
                *written = self.capacity;
                view.begin_epoch(self.capacity);
            }
            _ if is_news => {
                view.is_recovering = true;
                view.is_explained |= status != Status::ZoneInvalidWrite;
            }
            _ => {}
        }
        if view.writes_outstanding > 0 {
            return false;
        }
        if view.is_recovering {
            view.is_recovering = false;
            *written = view.confirmed;
            view.is_lost = !view.is_explained;
        }
        view.is_explained = false;
        true
    }

    /// A conventional zone is written from its start again.
    pub(super) fn start_again(&mut self, zone: ZoneIndex) {
        self.written[zone.as_usize()] = 0;
    }

    /// A reset or finish has succeeded.
    pub(super) fn managed(&mut self, zone: ZoneIndex, kind: RequestKind) {
        let written = if kind == RequestKind::Reset { 0 } else { self.capacity };
        self.written[zone.as_usize()] = written;
        self.view_mut(zone).begin_epoch(written);
    }
}

impl ZoneView {
    /// Whether a write must wait until an outstanding command has ended.
    pub(super) fn is_busy(&self) -> bool {
        self.is_managed || self.is_recovering
    }

    /// Whether a full zone may get free blocks, because a write in flight may fail.
    pub(super) fn may_come_back(&self) -> bool {
        self.writes_outstanding > 0 && !self.is_dead
    }

    /// The written blocks of the zone were set, whatever is still outstanding.
    fn begin_epoch(&mut self, written: u64) {
        self.confirmed = written;
        (self.is_recovering, self.is_explained, self.is_lost) = (false, false, false);
        self.epoch = self.epoch.wrapping_add(1);
    }
}
