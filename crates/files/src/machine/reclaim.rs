//! Reclaiming zones: they are finished at the limit of active zones, reset when they have no live
//! data, and inspected after a failure.

use zonda_zoned::{Operation, Outcome, ReportFilter, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget};

use crate::format::record::Record;
use crate::{FileStore, Lifetime};

use super::commands::InFlight;
use super::zones::{Holder, State};

impl FileStore {
    /// Makes an empty zone active.
    pub(super) fn open_zone(&mut self, zone: ZoneIndex, lifetime: Lifetime) {
        self.zones.set_state(zone, State::Active);
        self.zones[zone].lifetime = lifetime;
        self.log.push(&Record::ZoneOpened { zone, lifetime });
    }

    /// Finishes a zone without writes in flight.
    pub(super) fn finish(&mut self, zone: ZoneIndex) {
        let entry = &self.zones[zone];
        assert!(entry.writes == 0 && entry.holder.is_none(), "no write is sent to a zone that is being finished");
        self.zones.set_state(zone, State::Finishing);
        self.manage(zone, ZoneAction::Finish, InFlight::Finish { zone });
    }

    pub(super) fn on_finish(&mut self, zone: ZoneIndex, status: Status) {
        if !status.is_success() {
            return self.inspect(zone, true);
        }
        self.zones.set_state(zone, State::Full);
        self.counters.zone_finishes += 1;
        let entry = &mut self.zones[zone];
        entry.is_doubtful = false;
        if entry.written < self.shape.capacity_blocks {
            entry.is_finished_early = true;
            self.log.push(&Record::ZoneFinished { zone, written: entry.written });
        }
        self.zones.touch(zone);
    }

    /// Checks zones that have changed: resets those without live data.
    pub(super) fn process_touched_zones(&mut self) {
        while let Some(zone) = self.zones.next_touched() {
            let entry = &self.zones[zone];
            if entry.is_doubtful && entry.writes == 0 && matches!(entry.state, State::Active | State::Full) {
                self.inspect(zone, false);
            } else if entry.is_dead() && entry.is_idle() && !entry.is_doubtful {
                if entry.written == 0 {
                    // It was held and never written: it is empty on the drive.
                    self.zones.set_state(zone, State::Empty);
                } else {
                    self.reset(zone);
                }
            }
        }
    }

    pub(super) fn reset(&mut self, zone: ZoneIndex) {
        let was_active = self.zones[zone].state.is_active();
        self.zones.set_state(zone, State::Resetting { was_active });
        self.manage(zone, ZoneAction::Reset, InFlight::Reset { zone });
    }

    pub(super) fn on_reset(&mut self, zone: ZoneIndex, status: Status) {
        if !status.is_success() {
            return self.inspect(zone, true);
        }
        self.counters.zone_resets += 1;
        self.zones.set_state(zone, State::Empty);
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
            Some(Holder::Migration) => self.migrator.target = None,
            None => {}
        }
        self.zones.clear_holder(zone);
    }

    /// Requests a report on a zone.
    fn inspect(&mut self, zone: ZoneIndex, is_last: bool) {
        // Until the report, the zone is not used.
        let state = self.zones[zone].state;
        if !matches!(state, State::Finishing | State::Resetting { .. }) {
            self.zones.set_state(
                zone,
                if state.is_active() { State::Finishing } else { State::Resetting { was_active: false } },
            );
        }
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
        let was_active = self.zones[zone].state.is_active();
        let was_reset = matches!(self.zones[zone].state, State::Resetting { .. });
        let entry = &mut self.zones[zone];
        entry.is_doubtful = false;
        let is_live = entry.live_blocks > 0;
        let Some(descriptor) = descriptor.filter(|descriptor| descriptor.start == start) else {
            return self.zones.set_state(zone, State::Retired { is_active: was_active });
        };
        let pointer = descriptor.write_pointer.and_then(|pointer| pointer.0.checked_sub(start.0));
        match descriptor.state {
            ZoneState::Empty if !is_live => self.zones.set_state(zone, State::Empty),
            ZoneState::Full if !(is_last && was_reset) => {
                self.zones.set_state(zone, State::Full);
                self.zones.touch(zone);
            }
            state if state.is_active() && !is_last => {
                entry.written =
                    pointer.map_or(entry.written, |pointer| pointer.min(self.shape.capacity_blocks.into()) as u32);
                let is_written = entry.written > 0;
                self.zones.set_state(zone, State::Active);
                if is_live {
                    self.finish(zone);
                } else if is_written {
                    self.zones.touch(zone);
                } else {
                    self.reset(zone);
                }
            }
            state => self.zones.set_state(zone, State::Retired { is_active: state.is_active() }),
        }
    }

    fn manage(&mut self, zone: ZoneIndex, action: ZoneAction, in_flight: InFlight) {
        let target = ZoneTarget::Zone(self.shape.zone_start(zone));
        self.commands.send(in_flight, Operation::ManageZones { action, target });
    }
}
