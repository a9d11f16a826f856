//! A member's device, and how much is under way on it.

use zonda_ring::Ring;
use zonda_zoned::{
    Command, CommandId, CompletionQueue, Geometry, Instant, NamespaceId, Operation, Outcome, QueueFull, ReportFilter,
    ZoneIndex, ZoneState, ZonedDevice,
};

use crate::{Drive, DriveError, FileBacked, Location, NamespaceOptions, Remote, is_volume};

/// Zones in one report: more than one transfer of any drive carries.
const REPORT_ZONES_MAX: u32 = 4096;

/// A device in a member's place, or beside it.
pub(super) struct Seat {
    pub(super) drive: Box<dyn Drive>,
    under_way: usize,
}

impl Seat {
    /// Opens a device.
    pub(super) fn open(location: &Location, ring: &Ring) -> Result<Seat, DriveError> {
        let drive: Box<dyn Drive> = match location {
            Location::Image(path) if is_volume(path) => {
                return Err(DriveError::new(
                    format!("{} is a volume itself", path.display()),
                    "name zoned drives: their directories, or nvme-tcp:// URLs",
                ));
            }
            Location::Image(path) => Box::new(FileBacked::open(path, ring)?.0),
            Location::NvmeTcp(url) => Box::new(Remote::connect(url, &NamespaceOptions::default(), ring)?),
        };
        Ok(Seat { drive, under_way: 0 })
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    pub(super) fn own_geometry(&self) -> &Geometry {
        self.drive.geometry(NamespaceId::FIRST)
    }

    /// Whether no zone holds anything. Waits for the device.
    pub(super) fn is_empty(&mut self, ring: &Ring) -> Result<bool, DriveError> {
        let geometry = self.own_geometry().clone();
        let mut completions = CompletionQueue::new();
        let mut next = 0;
        while next < geometry.zone_count {
            let operation = Operation::ReportZones {
                start: geometry.zone_start(ZoneIndex(next)),
                filter: ReportFilter::All,
                extended: false,
                partial: true,
                descriptors_max: REPORT_ZONES_MAX,
            };
            let command = Command { id: CommandId(u64::from(next)), namespace: NamespaceId::FIRST, operation };
            let cannot = || DriveError::new("its zones cannot be reported", "see whether the drive is well");
            self.submit(ring.now(), command).map_err(|_| cannot())?;
            let zones = loop {
                self.poll(ring.now(), &mut completions);
                if let Some(completion) = completions.pop() {
                    match completion.outcome {
                        Outcome::Report(report) if !report.zones.is_empty() => break report.zones,
                        _ => return Err(cannot()),
                    }
                }
                ring.turn(self.next_wakeup()).map_err(|_| cannot())?;
            };
            let is_free = |state| matches!(state, ZoneState::Empty | ZoneState::Offline | ZoneState::ReadOnly);
            if !zones.iter().all(|zone| is_free(zone.state)) {
                return Ok(false);
            }
            next += zones.len() as u32;
        }
        Ok(true)
    }

    /// Goes on with closing; what still ends is of no interest to anybody.
    pub(super) fn close_on(&mut self, now: Instant) {
        let mut completions = CompletionQueue::new();
        self.poll(now, &mut completions);
        if self.is_idle() {
            self.drive.close(now);
            self.drive.poll(now, &mut completions);
        }
    }
}

impl ZonedDevice for Seat {
    fn geometry(&self, namespace: NamespaceId) -> &Geometry {
        self.drive.geometry(namespace)
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.drive.submit(now, command)?;
        self.under_way += 1;
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let before = completions.len();
        self.drive.poll(now, completions);
        self.under_way -= completions.len() - before;
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.drive.next_wakeup()
    }
}
