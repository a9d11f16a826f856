//! [`WriteProtected`]: a drive to which nothing is written.

use zonda_zoned::{
    Blocks, Command, Completion, CompletionQueue, Instant, Namespaces, Operation, QueueFull, Status, ZoneState,
    ZonedDevice,
};

use crate::drive::as_the_drive_below;
use crate::{Drive, DriveFacts, SchedulerFacts};

/// A drive whose user may read only: commands that would change something fail as those to a write
/// protected namespace, and do not reach it, and flushes, of which none is needed, succeed.
pub(crate) struct WriteProtected {
    drive: Box<dyn Drive>,
    /// Completions of commands that did not reach the drive.
    completions: Vec<Completion>,
}

impl WriteProtected {
    pub(crate) fn new(drive: Box<dyn Drive>) -> WriteProtected {
        WriteProtected { drive, completions: Vec::new() }
    }

    fn drive(&self) -> &dyn Drive {
        &*self.drive
    }

    fn drive_mut(&mut self) -> &mut dyn Drive {
        &mut *self.drive
    }
}

impl ZonedDevice for WriteProtected {
    fn namespaces(&self) -> &Namespaces {
        self.drive.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        let status = match command.operation {
            Operation::Read { .. } | Operation::ReportZones { .. } | Operation::ReadChangedZones => {
                return self.drive.submit(now, command);
            }
            Operation::Flush => Status::Success,
            Operation::Write { .. }
            | Operation::Append { .. }
            | Operation::WriteZeroes { .. }
            | Operation::Deallocate { .. }
            | Operation::ManageZones { .. } => Status::NamespaceWriteProtected,
        };
        self.completions.push(Completion::of(command.id, status));
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.completions.drain(..).for_each(|completion| completions.push(completion));
        self.drive.poll(now, completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        if self.completions.is_empty() { self.drive.next_timeout() } else { Some(Instant::ZERO) }
    }
}

impl Drive for WriteProtected {
    as_the_drive_below!(drive, drive_mut);

    fn facts(&self) -> DriveFacts {
        self.drive.facts()
    }

    fn visit_zones(&self, visit: &mut dyn FnMut(ZoneState, Blocks)) {
        self.drive.visit_zones(visit);
    }

    fn scheduler(&self) -> Option<SchedulerFacts> {
        self.drive.scheduler()
    }

    fn close(&mut self, now: Instant) {
        self.drive.close(now);
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::reference::{CommandSource, ReferenceDevice};
    use zonda_zoned::{CommandId, Geometry, Lba, NamespaceId, Payload, PayloadKind, Prng, ZoneIndex};

    use super::*;
    use crate::MemoryDrive;

    #[test]
    fn random_commands_read_and_change_nothing() {
        let geometry = Geometry::tiny();
        let mut drive = MemoryDrive::new(geometry.clone(), u64::MAX);
        let payload = Payload::None;
        let write = Operation::Write { start: Lba(0), blocks: Blocks(2), payload };
        let execute = |drive: &mut dyn Drive, command: Command| {
            let mut completions = CompletionQueue::new();
            drive.submit(Instant::ZERO, command).expect("the queue is empty");
            drive.poll(Instant::ZERO, &mut completions);
            completions.pop().expect("it completes at once")
        };
        let command = Command::new(CommandId(1), NamespaceId::FIRST, write);
        assert_eq!(execute(&mut drive, command.clone()).status, Status::Success);
        let mut drive = WriteProtected::new(Box::new(drive));
        let before = drive.facts();
        let mut oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
        oracle.execute(&command);
        let mut source = CommandSource::new(&geometry, PayloadKind::Bytes, Prng::new(1));
        let (mut read, mut refused) = (0, 0);
        for _ in 0..500 {
            let command = source.next(&oracle);
            let completion = execute(&mut drive, command.clone());
            let is_read = matches!(command.operation, Operation::Read { .. } | Operation::ReportZones { .. });
            if is_read {
                assert!(completion == oracle.execute(&command), "{:?}", command.operation);
            }
            refused += usize::from(completion.status == Status::NamespaceWriteProtected);
            read += usize::from(is_read);
        }
        assert!(read > 50 && refused > 50, "{read} reads, {refused} refused");
        assert_eq!(drive.facts(), before);
        assert_eq!(oracle.image(ZoneIndex(0)).write_pointer_blocks, Blocks(2));
    }
}
