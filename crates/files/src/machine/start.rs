//! Formatting, and the steps that it shares with mounting: both begin with a report on all zones.

use std::collections::VecDeque;

use zonda_zoned::{
    Geometry, Operation, Outcome, PayloadKind, ReportFilter, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget,
};

use crate::bug::Seeded;
use crate::limits::{FORMAT_RESETS_MAX, REPORT_ZONES_MAX};
use crate::{Event, FileError, FileStore, FilesConfig};

use super::Phase;
use super::commands::{Commands, InFlight};
use super::files::Files;
use super::log::Log;
use super::migrate::Migrator;
use super::mount::MountStep;
use super::place::Placement;
use super::read::Reads;
use super::requests::Requests;
use super::shape::Shape;
use super::zones::Zones;

/// A store that is not ready yet.
#[derive(Debug)]
pub(super) struct Start {
    goal: Goal,
    pub(super) step: Step,
    /// All sequential zones, from the first metadata zone on.
    pub(super) reports: Vec<Report>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Format,
    Mount,
}

/// The current step. Only resets run in parallel.
#[derive(Debug)]
pub(super) enum Step {
    /// Report Zones, [`REPORT_ZONES_MAX`] at a time.
    ReportZones,
    /// Reset every zone that is not empty.
    ResetZones {
        left: VecDeque<ZoneIndex>,
        in_flight: usize,
    },
    Mount(MountStep),
    /// Write a superblock and an empty snapshot, or those of a mount.
    WriteSnapshot,
}

/// A zone as the drive reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) state: ZoneState,
    /// Blocks before the write pointer, if there is one.
    pub(super) written: Option<u32>,
}

impl FileStore {
    /// Formats a store on a drive of this geometry, and discards its contents: [`Event::Ready`]
    /// comes when that is durable, [`Event::Failed`] if it fails. `uuid` must be unique.
    ///
    /// # Errors
    /// [`FileError::Config`] when configuration and geometry do not match.
    pub fn format(geometry: &Geometry, config: FilesConfig, uuid: [u8; 16]) -> Result<FileStore, FileError> {
        FileStore::begin(geometry, config, uuid, Goal::Format)
    }

    /// Mounts a store from a drive of this geometry: [`Event::Ready`] comes when its files are
    /// known, [`Event::Failed`] if it cannot be read.
    ///
    /// # Errors
    /// [`FileError::Config`] when configuration and geometry do not match, and for a configuration
    /// that keeps no contents.
    pub fn mount(geometry: &Geometry, config: FilesConfig) -> Result<FileStore, FileError> {
        if config.keeps == PayloadKind::None {
            let words = "keeps: a store that keeps no contents cannot be mounted: format it again";
            return Err(FileError::Config(words.to_owned()));
        }
        FileStore::begin(geometry, config, [0; 16], Goal::Mount)
    }

    /// A store on a drive with a volatile write cache, which loses acknowledged and unflushed
    /// writes when the power fails. Data are flushed before the metadata that refer to them, and
    /// these before a request ends. Without this option, a completed write counts as durable, as on
    /// a drive whose cache survives a loss of power.
    #[must_use]
    pub fn with_flushes(mut self) -> FileStore {
        self.log.enable_flushes();
        self
    }

    fn begin(geometry: &Geometry, config: FilesConfig, uuid: [u8; 16], goal: Goal) -> Result<FileStore, FileError> {
        let shape = Shape::new(geometry, &config)?;
        let start = Start { goal, step: Step::ReportZones, reports: Vec::new() };
        let mut store = FileStore {
            zones: Zones::new(shape.data_zones()),
            log: Log::new(shape.first_log, shape.log_zones),
            files: Files::new(&shape, config.migration.is_some()),
            shape,
            config,
            uuid,
            phase: Phase::Starting,
            start: Some(Box::new(start)),
            placement: Placement::default(),
            migrator: Migrator::default(),
            reads: Reads::default(),
            commands: Commands::default(),
            requests: Requests::default(),
            seeded: Seeded::default(),
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
        self.commands.send(InFlight::Start, report);
    }

    /// Called when a command of the start has ended.
    pub(super) fn on_start(&mut self, status: Status, outcome: Outcome) {
        // Results of commands in flight when a start failed are ignored.
        let Some(mut start) = self.start.take() else { return };
        let step = std::mem::replace(&mut start.step, Step::WriteSnapshot);
        let result = match step {
            Step::ReportZones => self.on_zones_reported(&mut start, status, outcome),
            Step::ResetZones { .. } => panic!("the end of a reset is handled elsewhere"),
            Step::Mount(step) => self.on_mount_step(&mut start, step, status, outcome),
            Step::WriteSnapshot => panic!("the log writes snapshots"),
        };
        match result {
            Ok(()) if matches!(self.phase, Phase::Starting) => self.start = Some(start),
            Ok(()) => {}
            Err(error) => {
                self.phase = Phase::Failed(error.clone());
                self.requests.notify(Event::Failed(error));
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
                let words = format!("the drive's report of zone {zone} does not match its geometry");
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

    /// Resets zones that are not empty, metadata zones first.
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

    fn send_resets(&mut self, start: &mut Start, mut left: VecDeque<ZoneIndex>, mut in_flight: usize) {
        while in_flight < FORMAT_RESETS_MAX
            && let Some(zone) = left.pop_front()
        {
            let target = ZoneTarget::Zone(self.shape.zone_start(zone));
            let reset = Operation::ManageZones { action: ZoneAction::Reset, target };
            self.commands.send(InFlight::FormatReset { zone }, reset);
            in_flight += 1;
        }
        if in_flight > 0 {
            start.step = Step::ResetZones { left, in_flight };
            return;
        }
        start.step = Step::WriteSnapshot;
        self.log.begin_with_first_zone(&self.shape);
        self.await_readiness();
        let progress = self.log.begin_snapshot(&self.shape, &mut self.commands);
        self.on_log_progress(progress);
    }

    /// Called when a reset of the format has ended.
    pub(super) fn on_format_reset(&mut self, zone: ZoneIndex, status: Status) {
        let Some(mut start) = self.start.take() else { return };
        let step = std::mem::replace(&mut start.step, Step::WriteSnapshot);
        let Step::ResetZones { left, in_flight } = step else {
            panic!("no other step is in progress while zones are reset")
        };
        if !status.is_success() {
            self.retire(zone);
        }
        self.send_resets(&mut start, left, in_flight - 1);
        if matches!(self.phase, Phase::Starting) {
            self.start = Some(start);
        }
    }

    /// Retires a zone. The log detects unusable metadata zones by itself.
    fn retire(&mut self, zone: ZoneIndex) {
        if self.shape.data_zones().contains(zone) {
            self.zones.retire(zone, false);
        }
    }
}
