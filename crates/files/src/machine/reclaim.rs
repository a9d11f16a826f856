//! Reclaiming zones: they are finished at the limit of active zones, reset when they have no live
//! data, and inspected after a failure.

use zonda_zoned::{Operation, Outcome, ReportFilter, Status, ZoneAction, ZoneIndex, ZoneTarget};

use crate::format::record::Record;
use crate::{FileStore, Lifetime};

use super::commands::InFlight;
use super::zones::{Holder, Inspected, State};

impl FileStore {
    /// Makes an empty zone active.
    pub(super) fn open_zone(&mut self, zone: ZoneIndex, lifetime: Lifetime) {
        self.zones.open(zone, lifetime);
        self.log.push(&Record::ZoneOpened { zone, lifetime });
    }

    /// Finishes a zone without writes in flight.
    pub(super) fn finish(&mut self, zone: ZoneIndex) {
        self.zones.begin_finish(zone);
        self.manage(zone, ZoneAction::Finish, InFlight::Finish { zone });
    }

    pub(super) fn on_finish(&mut self, zone: ZoneIndex, status: Status) {
        if !status.is_success() {
            return self.inspect(zone, true);
        }
        if let Some(written) = self.zones.end_finish(zone) {
            self.log.push(&Record::ZoneFinished { zone, written });
        }
    }

    /// Checks zones that have changed: resets those without live data.
    pub(super) fn process_touched_zones(&mut self) {
        while let Some(zone) = self.zones.next_touched() {
            let entry = &self.zones[zone];
            if entry.is_doubtful && entry.writes == 0 && matches!(entry.state, State::Active | State::Full) {
                self.inspect(zone, false);
            } else if entry.is_dead() && entry.is_idle() && !entry.is_doubtful {
                if entry.written == 0 {
                    self.zones.close_unwritten(zone);
                } else {
                    self.reset(zone);
                }
            }
        }
    }

    pub(super) fn reset(&mut self, zone: ZoneIndex) {
        self.zones.begin_reset(zone);
        self.manage(zone, ZoneAction::Reset, InFlight::Reset { zone });
    }

    pub(super) fn on_reset(&mut self, zone: ZoneIndex, status: Status) {
        if !status.is_success() {
            return self.inspect(zone, true);
        }
        self.zones.end_reset(zone);
        self.migrator.on_zone_emptied();
    }

    /// Withdraws a zone from its holder, because a write to it has failed.
    pub(super) fn withdraw_zone(&mut self, zone: ZoneIndex) {
        match self.zones[zone].holder {
            Some(Holder::File(id)) => {
                if let Some(writer) = self.files.writer_mut(id) {
                    writer.take_zone();
                }
            }
            Some(Holder::Migration) => self.migrator.leave_target(),
            None => {}
        }
        self.zones.clear_holder(zone);
    }

    /// Requests a report on a zone.
    fn inspect(&mut self, zone: ZoneIndex, is_last: bool) {
        self.zones.begin_inspection(zone);
        let report = Operation::ReportZones {
            start: self.shape.zone_start(zone),
            filter: ReportFilter::All,
            extended: false,
            partial: true,
            descriptors_max: 1,
        };
        self.commands.send(InFlight::Inspect { zone, is_last }, report);
    }

    pub(super) fn on_inspect(&mut self, zone: ZoneIndex, is_last: bool, status: Status, outcome: Outcome) {
        let start = self.shape.zone_start(zone);
        let descriptor = match outcome {
            Outcome::Report(report) if status.is_success() => report.zones.into_iter().next(),
            _ => None,
        };
        let found = descriptor.filter(|descriptor| descriptor.start == start).map(|descriptor| {
            let pointer = descriptor.write_pointer.and_then(|pointer| pointer.0.checked_sub(start.0));
            (descriptor.state, pointer)
        });
        match self.zones.end_inspection(zone, is_last, found) {
            Inspected::Nothing => {}
            Inspected::Finish => self.finish(zone),
            Inspected::Reset => self.reset(zone),
        }
    }

    fn manage(&mut self, zone: ZoneIndex, action: ZoneAction, in_flight: InFlight) {
        let target = ZoneTarget::Zone(self.shape.zone_start(zone));
        self.commands.send(in_flight, Operation::ManageZones { action, target });
    }
}
