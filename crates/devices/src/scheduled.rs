//! [`ScheduledDrive`]: a drive whose commands wait for an I/O scheduler.

use zonda_sched::{GroupLoad, Policy, Scheduled, TableReport, TenantLoad};
use zonda_zoned::{
    Blocks, Command, CompletionQueue, Geometry, Instant, NamespaceId, Namespaces, QueueFull, ZoneState, ZonedDevice,
};

use crate::drive::as_the_drive_below;
use crate::{Drive, DriveFacts};

/// The commands that wait for a scheduler, and what it grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedulerFacts {
    /// The name of the scheduler.
    pub name: &'static str,
    /// Commands that wait.
    pub waiting: u64,
    /// Commands that were released and have not completed.
    pub in_flight: u64,
    /// The tenants with requests in progress; none for a scheduler that does not distinguish them.
    pub loads: Vec<TenantLoad>,
    /// The conflict groups with requests in progress; none for a scheduler without groups.
    pub groups: Vec<GroupLoad>,
    /// What the scheduler has found about its table of conflict groups; `None` for one without.
    pub table: Option<TableReport>,
}

impl SchedulerFacts {
    pub(crate) fn of<D: ZonedDevice>(device: &Scheduled<D>) -> SchedulerFacts {
        SchedulerFacts {
            name: device.scheduler_name(),
            waiting: device.waiting() as u64,
            in_flight: device.in_flight() as u64,
            loads: device.loads(),
            groups: device.group_loads(),
            table: device.table(),
        }
    }
}

/// A drive whose commands wait for a scheduler. Everything else is that of the drive.
pub struct ScheduledDrive {
    device: Scheduled<Box<dyn Drive>>,
}

impl ScheduledDrive {
    /// Commands to `drive` wait for a scheduler.
    ///
    /// # Panics
    /// For a drive that ends commands when it is closed, as a volume does: it would not end those
    /// that wait here.
    #[must_use]
    pub fn new(drive: Box<dyn Drive>, policy: &Policy) -> ScheduledDrive {
        assert!(!drive.ends_commands_at_close(), "the members of a volume are scheduled, not the volume");
        let scheduler = policy.scheduler(drive.geometry(NamespaceId::FIRST));
        ScheduledDrive { device: Scheduled::new(drive, scheduler) }
    }

    fn drive(&self) -> &dyn Drive {
        &**self.device.inner()
    }

    fn drive_mut(&mut self) -> &mut dyn Drive {
        &mut **self.device.inner_mut()
    }
}

impl ZonedDevice for ScheduledDrive {
    fn namespaces(&self) -> &Namespaces {
        self.device.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.device.submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.device.poll(now, completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.device.next_timeout()
    }
}

impl Drive for ScheduledDrive {
    as_the_drive_below!(drive, drive_mut);

    fn facts(&self) -> DriveFacts {
        self.drive().facts()
    }

    fn visit_zones(&self, visit: &mut dyn FnMut(ZoneState, Blocks)) {
        self.drive().visit_zones(visit);
    }

    fn scheduler(&self) -> Option<SchedulerFacts> {
        Some(SchedulerFacts::of(&self.device))
    }

    fn whole_geometry(&self) -> Option<&Geometry> {
        self.drive().whole_geometry()
    }

    fn show_zones(&mut self, zone_count: u32) {
        self.drive_mut().show_zones(zone_count);
    }

    fn close(&mut self, now: Instant) {
        assert_eq!(self.device.waiting(), 0, "a drive is closed when its commands have completed");
        self.drive_mut().close(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDrive;
    use zonda_sched::MqDeadlineConfig;
    use zonda_zoned::{Blocks, CommandId, Lba, Operation, Status};

    #[test]
    fn commands_pass_the_scheduler_and_the_drive_below_is_closed() {
        let memory = Box::new(MemoryDrive::new(Geometry::tiny(), u64::MAX));
        let mut drive = ScheduledDrive::new(memory, &Policy::MqDeadline(MqDeadlineConfig::default()));
        let operation = Operation::Read { start: Lba(0), blocks: Blocks(1) };
        let command = Command::new(CommandId(7), NamespaceId::FIRST, operation);
        drive.submit(Instant::ZERO, command).expect("an idle drive accepts it");
        let mut completions = CompletionQueue::new();
        drive.poll(Instant::ZERO, &mut completions);
        let ended = completions.pop().expect("memory takes no time");
        assert_eq!((ended.id, ended.status), (CommandId(7), Status::Success));
        assert_eq!(drive.facts().written_blocks, 0);
        let scheduler = drive.scheduler().expect("it has one");
        assert_eq!((scheduler.name, scheduler.waiting, scheduler.in_flight), ("mq-deadline", 0, 0));
        let mut zones = 0;
        drive.visit_zones(&mut |state, written| {
            assert_eq!((state, written), (ZoneState::Empty, Blocks(0)));
            zones += 1;
        });
        assert_eq!(zones, Geometry::tiny().zone_count);
        drive.close(Instant::ZERO);
        assert!(drive.is_closed());
    }
}
