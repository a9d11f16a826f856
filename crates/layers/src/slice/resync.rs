//! Resync of the slice's zone table with the device: at the start, and after failures.

use zonda_zoned::zones::{ZoneSnapshot, ZoneTable};
use zonda_zoned::{
    Blocks, Command, CommandId, Geometry, Instant, Lba, Operation, Origin, Outcome, ReportFilter, Status, ZoneAction,
    ZoneDescriptor, ZoneIndex, ZoneReport, ZoneState, ZoneTarget, ZoneType, ZonedDevice,
};

use super::decide::{Touched, is_degraded};
use super::{Pending, Slice};
use crate::limits::{RESYNC_ATTEMPTS_MAX, RESYNC_ZONES_MAX};

/// The state of the resync.
#[derive(Debug)]
pub(super) struct Resync {
    /// The first resync is complete.
    pub(super) mounted: bool,
    /// The command that gets the Changed Zone List when the resync is complete.
    pub(super) changed_list_for: Option<CommandId>,
    pub(super) shown_full: u64,
    /// Number of outstanding reports.
    reports: usize,
    /// The zones that are being reported, from the first to the last.
    requested: Vec<(ZoneIndex, ZoneIndex)>,
    /// A report failed after all attempts.
    failed: bool,
    /// Zones, from the first to the last, that are resynced before the next command of the host.
    pub(super) unknown: Vec<(ZoneIndex, ZoneIndex)>,
    /// The geometry of a namespace with one zone and without limits, in which the reported state of
    /// a zone is rebuilt.
    model: Geometry,
}

impl Resync {
    pub(super) fn new(slice: &Geometry) -> Resync {
        let zrwa = slice.zrwa.map(|zrwa| zonda_zoned::ZrwaGeometry { explicit_flush: true, ..zrwa });
        let model = Geometry {
            zone_count: 1,
            conventional_zone_count: 0,
            max_active_zones: None,
            max_open_zones: None,
            zrwa,
            ..slice.clone()
        };
        Resync {
            mounted: false,
            changed_list_for: None,
            shown_full: 0,
            reports: 0,
            requested: Vec::new(),
            failed: false,
            unknown: Vec::new(),
            model,
        }
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.reports > 0
    }
}

impl<D: ZonedDevice> Slice<D> {
    pub(super) fn resync_all(&mut self) {
        let last = ZoneIndex(self.zones.geometry().zone_count - 1);
        self.resync_zones(ZoneIndex(0), last);
    }

    /// Starts a resync of the zones whose states are unknown.
    pub(super) fn resync_unknown(&mut self) {
        if !self.resync.is_in_flight() {
            for (first, last) in std::mem::take(&mut self.resync.unknown) {
                self.resync_zones(first, last);
            }
        }
    }

    /// Resyncs the zones of a command that completed with a status other than the table expected.
    pub(super) fn invalidate(&mut self, touched: Touched, status: Status) {
        match touched {
            Touched::Changed(first, last) => self.resync_zones(first, last),
            Touched::Read(first, last) if matches!(status, Status::ZoneIsReadOnly | Status::ZoneIsOffline) => {
                self.resync_zones(first, last);
            }
            Touched::Read(..) | Touched::Nothing => {}
        }
    }

    /// Requests reports, after everything in the outbox, so that they include its effects. No
    /// further command is processed before they arrive.
    fn resync_zones(&mut self, first: ZoneIndex, last: ZoneIndex) {
        if self.resync.requested.iter().any(|requested| requested.0 <= first && last <= requested.1) {
            return;
        }
        self.resync.requested.push((first, last));
        let mut next = first.0;
        while next <= last.0 {
            let count = (last.0 - next + 1).min(RESYNC_ZONES_MAX);
            self.resync.reports += 1;
            self.request_report(ZoneIndex(next), count, 0);
            next += count;
        }
    }

    fn request_report(&mut self, first: ZoneIndex, count: u32, attempts: u32) {
        let geometry = self.zones.geometry();
        let operation = Operation::ReportZones {
            start: geometry.zone_start(first),
            filter: ReportFilter::All,
            extended: geometry.descriptor_extension_bytes > 0,
            partial: true,
            descriptors_max: count,
        };
        self.send(Pending::Report { first, count, attempts }, Origin::default(), operation);
    }

    pub(super) fn on_report(&mut self, now: Instant, first: ZoneIndex, count: u32, attempts: u32, outcome: Outcome) {
        match outcome {
            Outcome::Report(report) if report.zones.len() == count as usize => self.adopt(first, *report),
            _ if attempts + 1 < RESYNC_ATTEMPTS_MAX => {
                self.request_report(first, count, attempts + 1);
                return;
            }
            _ => {
                self.resync.failed = true;
                self.resync.unknown.push((first, ZoneIndex(first.0 + (count - 1))));
            }
        }
        self.resync.reports -= 1;
        if self.resync.reports == 0 {
            self.end_resync(now);
        }
    }

    fn end_resync(&mut self, now: Instant) {
        self.resync.requested.clear();
        let failed = std::mem::take(&mut self.resync.failed);
        if !self.resync.mounted {
            // Zones that degraded before the slice existed are not reported as changed.
            self.zones.take_changed_zones();
            self.resync.mounted = !failed;
            if failed {
                while let Some(Command { id, .. }) = self.parked.pop_front() {
                    self.answer(now, id, Err(Status::NamespaceNotReady));
                }
            }
        }
        if let Some(id) = self.resync.changed_list_for.take() {
            let list = self.zones.take_changed_zones();
            self.answer(now, id, Ok(Outcome::ChangedZones(Box::new(list))));
        }
    }

    /// Updates the table to a report of the device.
    fn adopt(&mut self, first: ZoneIndex, report: ZoneReport) {
        for (zone, descriptor) in (first.0..).map(ZoneIndex).zip(report.zones) {
            if descriptor.zone_type == ZoneType::SequentialWriteRequired {
                self.adopt_zone(zone, &descriptor);
            }
        }
    }

    fn adopt_zone(&mut self, zone: ZoneIndex, descriptor: &ZoneDescriptor) {
        let known = self.zones.zone(zone).state;
        if is_degraded(descriptor.state) && known != descriptor.state {
            self.zones.degrade(zone, descriptor.state);
        }
        let start = Lba(self.zones.geometry().zone_start(zone).0 + self.offset.0);
        assert_eq!(descriptor.start, start, "the device reports the wrong zone for zone {zone} of the slice");
        let pointer = descriptor.write_pointer.map_or(Blocks::ZERO, |pointer| pointer - start);
        if self.agrees(zone, descriptor) {
            return;
        }
        let restored =
            build(&self.resync.model, descriptor, pointer).is_some_and(|snapshot| self.zones.restore(zone, &snapshot));
        if !restored {
            self.resync.shown_full += 1;
            let full = ZoneDescriptor { state: ZoneState::Full, write_pointer: None, ..descriptor.clone() };
            let snapshot = build(&self.resync.model, &full, Blocks::ZERO).expect("every zone can be full");
            self.put_back(zone, &snapshot);
        }
        if descriptor.state.is_open() && !self.zones.zone(zone).state.is_open() {
            self.send_close(Origin::default(), zone);
        }
    }

    fn agrees(&self, zone: ZoneIndex, descriptor: &ZoneDescriptor) -> bool {
        let geometry = self.zones.geometry();
        let extended = geometry.descriptor_extension_bytes > 0;
        let report = self.zones.report(geometry.zone_start(zone), ReportFilter::All, extended, true, 1);
        let known = report.map(|report| report.zones);
        known.is_ok_and(|known| {
            let [known] = known.as_slice() else { return false };
            known.state == descriptor.state
                && known.attributes == descriptor.attributes
                && known.extension == descriptor.extension
                && known.write_pointer.map(|lba| lba + self.offset) == descriptor.write_pointer
        })
    }
}

/// Rebuilds a zone in the state of a descriptor, by the actions that lead to it. `None` if that is
/// impossible: a ZRWA without a share of ZRWA resources.
fn build(model: &Geometry, descriptor: &ZoneDescriptor, pointer: Blocks) -> Option<ZoneSnapshot> {
    let zone = ZoneIndex(0);
    let start = Lba(0);
    let mut table = ZoneTable::new(model.clone());
    let mut effects = Vec::new();
    let mut act = |table: &mut ZoneTable, action: ZoneAction, block: Lba| {
        table.manage(&action, ZoneTarget::Zone(block), &mut effects).ok()
    };
    let active = descriptor.state.is_active();
    let zrwa = descriptor.attributes.zrwa_valid && active;
    if descriptor.attributes.extension_valid {
        let extension = descriptor.extension.clone()?;
        act(&mut table, ZoneAction::SetDescriptorExtension { extension, zrwa }, start)?;
    } else if zrwa {
        act(&mut table, ZoneAction::Open { zrwa: true }, start)?;
        act(&mut table, ZoneAction::Close, start)?;
    }
    if active && zrwa {
        let step = model.zrwa?.size_blocks.0;
        let mut committed = 0;
        while committed < pointer.0 {
            committed = (committed + step).min(pointer.0);
            act(&mut table, ZoneAction::FlushZrwa, Lba(committed - 1))?;
        }
        if pointer == Blocks::ZERO && descriptor.state == ZoneState::ImplicitlyOpened {
            table.write_zeroes(start, Blocks(1)).ok()?;
        }
    } else if active && pointer > Blocks::ZERO {
        table.write_zeroes(start, pointer).ok()?;
    }
    match descriptor.state {
        ZoneState::Empty | ZoneState::ImplicitlyOpened | ZoneState::NotWritePointer => {}
        ZoneState::ExplicitlyOpened => act(&mut table, ZoneAction::Open { zrwa: false }, start)?,
        ZoneState::Closed => {
            act(&mut table, ZoneAction::Open { zrwa: false }, start)?;
            act(&mut table, ZoneAction::Close, start)?;
        }
        ZoneState::Full => act(&mut table, ZoneAction::Finish, start)?,
        ZoneState::ReadOnly | ZoneState::Offline => table.degrade(zone, descriptor.state),
    }
    Some(table.snapshot(zone))
}
