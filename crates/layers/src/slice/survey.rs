//! How a slice learns from the device what its zones are: at the start, and after something went wrong.

use zonda_zoned::zones::{ZoneSnapshot, ZoneTable};
use zonda_zoned::{
    Blocks, Command, CommandId, Geometry, Instant, Lba, Operation, Outcome, ReportFilter, Status, ZoneAction,
    ZoneDescriptor, ZoneIndex, ZoneReport, ZoneState, ZoneTarget, ZoneType, ZonedDevice,
};

use super::judge::{Touched, is_degraded};
use super::{Pending, Slice};
use crate::limits::{SURVEY_ATTEMPTS_MAX, SURVEY_ZONES_MAX};

/// The survey under way, if any.
#[derive(Debug)]
pub(super) struct Survey {
    /// The table has been read from the device once.
    pub(super) mounted: bool,
    /// Who gets the Changed Zone List when the survey is done.
    pub(super) changed_list_for: Option<CommandId>,
    pub(super) shown_full: u64,
    /// Reports asked for and not yet here.
    reports: usize,
    /// The zones they are about, from the first to the last.
    asked: Vec<(ZoneIndex, ZoneIndex)>,
    /// Some of them did not come for all the asking.
    failed: bool,
    /// Zones, from the first to the last, that the next command of the host begins by asking about.
    pub(super) unknown: Vec<(ZoneIndex, ZoneIndex)>,
    /// A namespace of one zone and no limits, in which a zone is brought to the state that the device reports.
    model: Geometry,
}

impl Survey {
    pub(super) fn new(slice: &Geometry) -> Survey {
        let zrwa = slice.zrwa.map(|zrwa| zonda_zoned::ZrwaGeometry { explicit_flush: true, ..zrwa });
        let model = Geometry {
            zone_count: 1,
            conventional_zone_count: 0,
            max_active_zones: None,
            max_open_zones: None,
            zrwa,
            ..slice.clone()
        };
        Survey {
            mounted: false,
            changed_list_for: None,
            shown_full: 0,
            reports: 0,
            asked: Vec::new(),
            failed: false,
            unknown: Vec::new(),
            model,
        }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.reports > 0
    }
}

impl<D: ZonedDevice> Slice<D> {
    pub(super) fn survey_all(&mut self) {
        let last = ZoneIndex(self.zones.geometry().zone_count - 1);
        self.survey_zones(ZoneIndex(0), last);
    }

    /// Asks about what is unknown.
    pub(super) fn survey_unknown(&mut self) {
        if !self.survey.is_under_way() {
            for (first, last) in std::mem::take(&mut self.survey.unknown) {
                self.survey_zones(first, last);
            }
        }
    }

    /// The device ended a command in a way that the table did not foresee. What it says of the zones counts.
    pub(super) fn doubt(&mut self, touched: Touched, status: Status) {
        match touched {
            Touched::Changed(first, last) => self.survey_zones(first, last),
            Touched::Looked(first, last) if matches!(status, Status::ZoneIsReadOnly | Status::ZoneIsOffline) => {
                self.survey_zones(first, last);
            }
            Touched::Looked(..) | Touched::Nothing => {}
        }
    }

    /// Asks for reports, behind everything that is to be sent, so that they tell what all of that has come to. Nothing
    /// further is decided before they are here.
    fn survey_zones(&mut self, first: ZoneIndex, last: ZoneIndex) {
        if self.survey.asked.iter().any(|asked| asked.0 <= first && last <= asked.1) {
            return;
        }
        self.survey.asked.push((first, last));
        let mut next = first.0;
        while next <= last.0 {
            let count = (last.0 - next + 1).min(SURVEY_ZONES_MAX);
            self.survey.reports += 1;
            self.ask(ZoneIndex(next), count, 0);
            next += count;
        }
    }

    fn ask(&mut self, first: ZoneIndex, count: u32, attempts: u32) {
        let geometry = self.zones.geometry();
        let operation = Operation::ReportZones {
            start: geometry.zone_start(first),
            filter: ReportFilter::All,
            extended: geometry.descriptor_extension_bytes > 0,
            partial: true,
            descriptors_max: count,
        };
        self.send(Pending::Report { first, count, attempts }, operation);
    }

    pub(super) fn on_report(&mut self, now: Instant, first: ZoneIndex, count: u32, attempts: u32, outcome: Outcome) {
        match outcome {
            Outcome::Report(report) if report.zones.len() == count as usize => self.adopt(first, *report),
            _ if attempts + 1 < SURVEY_ATTEMPTS_MAX => {
                self.ask(first, count, attempts + 1);
                return;
            }
            _ => {
                self.survey.failed = true;
                self.survey.unknown.push((first, ZoneIndex(first.0 + (count - 1))));
            }
        }
        self.survey.reports -= 1;
        if self.survey.reports == 0 {
            self.end_survey(now);
        }
    }

    fn end_survey(&mut self, now: Instant) {
        self.survey.asked.clear();
        let failed = std::mem::take(&mut self.survey.failed);
        if !self.survey.mounted {
            // What was lost before the slice existed is no news.
            self.zones.take_changed_zones();
            self.survey.mounted = !failed;
            if failed {
                while let Some(Command { id, .. }) = self.parked.pop_front() {
                    self.answer(now, id, Err(Status::NamespaceNotReady));
                }
            }
        }
        if let Some(id) = self.survey.changed_list_for.take() {
            let list = self.zones.take_changed_zones();
            self.answer(now, id, Ok(Outcome::ChangedZones(Box::new(list))));
        }
    }

    /// Brings the table to what the device says.
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
        assert_eq!(descriptor.start, start, "the device reports another zone than zone {zone} of the slice");
        let pointer = descriptor.write_pointer.map_or(Blocks::ZERO, |pointer| pointer - start);
        if self.agrees(zone, descriptor) {
            return;
        }
        let restored =
            build(&self.survey.model, descriptor, pointer).is_some_and(|snapshot| self.zones.restore(zone, &snapshot));
        if !restored {
            self.survey.shown_full += 1;
            let full = ZoneDescriptor { state: ZoneState::Full, write_pointer: None, ..descriptor.clone() };
            let snapshot = build(&self.survey.model, &full, Blocks::ZERO).expect("every zone can be full");
            self.put_back(zone, &snapshot);
        }
        if descriptor.state.is_open() && !self.zones.zone(zone).state.is_open() {
            self.send_close(zone);
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

/// A zone in the state that a descriptor tells, made by the actions that lead there. `None` if none do: a ZRWA where the
/// slice has no share of them.
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
