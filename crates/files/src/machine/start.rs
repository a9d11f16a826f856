//! Formatting, and what it has in common with mounting: both begin with a report on all zones.

use std::collections::{BTreeMap, VecDeque};

use zonda_zoned::{
    Geometry, Operation, Outcome, PayloadKind, ReportFilter, Slab, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget,
};

use crate::limits::{FORMAT_RESETS_MAX, REPORT_ZONES_MAX};
use crate::{Event, FileError, FileStore, FilesConfig};

use super::log::{Log, Waiter};
use super::migrate::Migrator;
use super::mount::MountStep;
use super::shape::Shape;
use super::zones::{State, Zones};
use super::{Counters, Phase, UnderWay};

/// A store that is not ready yet.
#[derive(Debug)]
pub(super) struct Start {
    goal: Goal,
    pub(super) step: Step,
    /// All zones that may be written, from the first metadata zone on.
    pub(super) reports: Vec<Report>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Format,
    Mount,
}

/// What is being done. All but resets is one command after the other.
#[derive(Debug)]
pub(super) enum Step {
    /// Report Zones, as many at once as [`REPORT_ZONES_MAX`] says.
    ReportZones,
    /// Reset every zone that is not empty.
    ResetZones {
        left: VecDeque<ZoneIndex>,
        under_way: usize,
    },
    Mount(MountStep),
    /// A superblock and an empty snapshot are being written, or those of a mount.
    WriteSnapshot,
}

/// A zone as the drive reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) state: ZoneState,
    /// Blocks before the write pointer, where there is one.
    pub(super) written: Option<u32>,
}

impl FileStore {
    /// A store that is to be made on a drive of this shape, whatever is there now: [`Event::Ready`] comes when that is
    /// durable, [`Event::Failed`] if it cannot be done. `uuid` is to be unique.
    ///
    /// # Errors
    /// [`FileError::Config`] when configuration and geometry do not suit.
    pub fn format(geometry: &Geometry, config: FilesConfig, uuid: [u8; 16]) -> Result<FileStore, FileError> {
        FileStore::begin(geometry, config, uuid, Goal::Format)
    }

    /// A store that is to be read from a drive of this shape: [`Event::Ready`] comes when its files are known,
    /// [`Event::Failed`] if it cannot be read.
    ///
    /// # Errors
    /// [`FileError::Config`] when configuration and geometry do not suit; so for a configuration that keeps nothing.
    pub fn mount(geometry: &Geometry, config: FilesConfig) -> Result<FileStore, FileError> {
        if config.keeps == PayloadKind::None {
            let words = "keeps: a store that keeps nothing cannot be mounted: format it anew";
            return Err(FileError::Config(words.to_owned()));
        }
        FileStore::begin(geometry, config, [0; 16], Goal::Mount)
    }

    /// The store of a drive with a volatile write cache, which loses what was acknowledged and not flushed when the power
    /// goes. Data are flushed before the metadata that speak of them, and these before a request ends. Without it, a write
    /// is taken to be durable when it has ended, as on a drive that keeps its cache through a loss of power.
    #[must_use]
    pub fn with_flushes(mut self) -> FileStore {
        self.log.flushes = true;
        self
    }

    fn begin(geometry: &Geometry, config: FilesConfig, uuid: [u8; 16], goal: Goal) -> Result<FileStore, FileError> {
        let shape = Shape::new(geometry, &config)?;
        let start = Start { goal, step: Step::ReportZones, reports: Vec::new() };
        let mut store = FileStore {
            zones: Zones::new(shape.data_zones()),
            log: Log::new(shape.first_log, shape.log_zones),
            snapshot_bytes: shape.empty_snapshot_bytes(),
            shape,
            config,
            uuid,
            phase: Phase::Starting,
            start: Some(Box::new(start)),
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            next_file: 1,
            names_ticket: 0,
            waiting: VecDeque::new(),
            migrator: Migrator::default(),
            reads: Slab::new(),
            commands: Slab::new(),
            outbox: VecDeque::new(),
            is_blocked: false,
            events: VecDeque::new(),
            requests: 0,
            data_writes: 0,
            uses: 0,
            counters: Counters::default(),
            bug: None,
        };
        store.report_zones(store.shape.first_log);
        Ok(store)
    }

    fn report_zones(&mut self, from: u32) {
        let report = Operation::ReportZones {
            start: self.shape.zone_start(ZoneIndex(from)),
            filter: ReportFilter::All,
            extended: false,
            partial: true,
            descriptors_max: REPORT_ZONES_MAX,
        };
        self.send(UnderWay::Start, report);
    }

    /// A command of the start has ended.
    pub(super) fn on_start(&mut self, status: Status, outcome: Outcome) {
        // What was under way when a start failed says nothing any more.
        let Some(mut start) = self.start.take() else { return };
        let step = std::mem::replace(&mut start.step, Step::WriteSnapshot);
        let result = match step {
            Step::ReportZones => self.on_zones_reported(&mut start, status, outcome),
            Step::ResetZones { .. } => panic!("a reset has an end of its own"),
            Step::Mount(step) => self.on_mount_step(&mut start, step, status, outcome),
            Step::WriteSnapshot => panic!("the log writes snapshots"),
        };
        match result {
            Ok(()) if matches!(self.phase, Phase::Starting) => self.start = Some(start),
            Ok(()) => {}
            Err(error) => {
                self.phase = Phase::Failed(error.clone());
                self.events.push_back(Event::Failed(error));
            }
        }
    }

    fn on_zones_reported(&mut self, start: &mut Start, status: Status, outcome: Outcome) -> Result<(), FileError> {
        let what = "reporting zones";
        let Outcome::Report(report) = outcome else {
            let status = if status.is_success() { Status::InternalError } else { status };
            return Err(FileError::Media { status, what });
        };
        let zone_count = self.shape.data_zones().first + self.shape.data_zones().count;
        let before = start.reports.len();
        for descriptor in report.zones {
            let zone = ZoneIndex(self.shape.first_log + start.reports.len() as u32);
            if zone.0 >= zone_count || descriptor.start != self.shape.zone_start(zone) {
                let words = format!("the drive's report of zone {zone} does not fit its geometry");
                return Err(FileError::Config(words));
            }
            let pointer = descriptor.write_pointer.and_then(|pointer| pointer.0.checked_sub(descriptor.start.0));
            let written = pointer.map(|blocks| blocks.min(self.shape.capacity_blocks.into()) as u32);
            start.reports.push(Report { state: descriptor.state, written });
        }
        let next = self.shape.first_log + start.reports.len() as u32;
        if next < zone_count {
            if start.reports.len() == before {
                return Err(FileError::Media { status: Status::InternalError, what });
            }
            self.report_zones(next);
            start.step = Step::ReportZones;
            return Ok(());
        }
        match start.goal {
            Goal::Format => {
                self.begin_resets(start);
                Ok(())
            }
            Goal::Mount => self.begin_mount(start),
        }
    }

    /// Resets what is not empty, metadata zones first.
    fn begin_resets(&mut self, start: &mut Start) {
        let mut left = VecDeque::new();
        for (zone, report) in (self.shape.first_log..).map(ZoneIndex).zip(&start.reports) {
            match report.state {
                ZoneState::Empty => {}
                ZoneState::ReadOnly | ZoneState::Offline => self.retire(zone),
                _ => left.push_back(zone),
            }
        }
        self.send_resets(start, left, 0);
    }

    fn send_resets(&mut self, start: &mut Start, mut left: VecDeque<ZoneIndex>, mut under_way: usize) {
        while under_way < FORMAT_RESETS_MAX
            && let Some(zone) = left.pop_front()
        {
            let target = ZoneTarget::Zone(self.shape.zone_start(zone));
            let reset = Operation::ManageZones { action: ZoneAction::Reset, target };
            self.send(UnderWay::FormatReset { zone }, reset);
            under_way += 1;
        }
        if under_way > 0 {
            start.step = Step::ResetZones { left, under_way };
            return;
        }
        start.step = Step::WriteSnapshot;
        // So that the first metadata zone is the next.
        self.log.current = self.log.zones.len() - 1;
        self.log.written = self.shape.capacity_blocks;
        self.when_durable(self.log.tickets + 1, Waiter::Ready);
        self.begin_snapshot();
    }

    /// A reset of the format has ended.
    pub(super) fn on_format_reset(&mut self, zone: ZoneIndex, status: Status) {
        let Some(mut start) = self.start.take() else { return };
        let step = std::mem::replace(&mut start.step, Step::WriteSnapshot);
        let Step::ResetZones { left, under_way } = step else { panic!("zones are reset while nothing else is done") };
        if !status.is_success() {
            self.retire(zone);
        }
        self.send_resets(&mut start, left, under_way - 1);
        if matches!(self.phase, Phase::Starting) {
            self.start = Some(start);
        }
    }

    /// The zone is not to be used. Of metadata zones the log finds out by itself.
    fn retire(&mut self, zone: ZoneIndex) {
        if self.shape.data_zones().contains(zone) {
            self.zones.set_state(zone, State::Retired { is_active: false });
        }
    }
}
