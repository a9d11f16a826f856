//! What reservations of NVMe hosts leave to NBD clients: what they leave to a host that is not registered.
//!
//! A command is checked when it goes to its drive, so that the rest of a long request ends where a host reserves the namespace.

use std::collections::BTreeMap;

use zonda_target::{DeviceKey, UnregisteredAccess};
use zonda_zoned::Operation;

/// What the clients may do to each drive.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// As of so many changes of reservations; `None`: nobody has said yet.
    changes: Option<u64>,
    drives: BTreeMap<u32, Drive>,
}

#[derive(Debug)]
struct Drive {
    access: UnregisteredAccess,
    /// The log has it that a request was refused under this reservation.
    is_told: bool,
}

impl Admission {
    /// Looks again at what they may do, if a reservation has changed since.
    pub(crate) fn update(
        &mut self,
        changes: u64,
        drives: impl IntoIterator<Item = DeviceKey>,
        access: impl Fn(DeviceKey) -> UnregisteredAccess,
    ) {
        if self.changes == Some(changes) {
            return;
        }
        self.changes = Some(changes);
        for key in drives {
            let access = access(key);
            let drive = self.drives.entry(key.0).or_insert(Drive { access, is_told: false });
            drive.access = access;
            // The next reservation is told again.
            drive.is_told &= access != UnregisteredAccess::ALL;
        }
    }

    /// Whether a command may go to a drive.
    pub(crate) fn permits(&self, drive: DeviceKey, operation: &Operation) -> bool {
        let access = self.access(drive);
        match operation {
            Operation::Read { .. } => access.reads,
            _ => access.writes,
        }
    }

    /// Whether clients may learn what a drive holds.
    pub(crate) fn permits_reads(&self, drive: DeviceKey) -> bool {
        self.access(drive).reads
    }

    /// Something was refused; whether that is to be told.
    pub(crate) fn is_news(&mut self, drive: DeviceKey) -> bool {
        self.drives.get_mut(&drive.0).is_some_and(|drive| !std::mem::replace(&mut drive.is_told, true))
    }

    fn access(&self, drive: DeviceKey) -> UnregisteredAccess {
        self.drives.get(&drive.0).map_or(UnregisteredAccess::NONE, |drive| drive.access)
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::{Blocks, Lba};

    use super::*;

    const DRIVE: DeviceKey = DeviceKey(2);

    #[test]
    fn clients_may_do_what_a_reservation_leaves_to_hosts_that_are_not_registered() {
        let read = Operation::Read { start: Lba(0), blocks: Blocks(1) };
        let zeroes = Operation::WriteZeroes { start: Lba(0), blocks: Blocks(1) };
        let mut admission = Admission::default();
        assert!(!admission.permits(DRIVE, &read), "before anybody has said so");
        let cases = [(true, true), (true, false), (false, false)];
        for (changes, (reads, writes)) in (1..).zip(cases) {
            admission.update(changes, [DRIVE], |_| UnregisteredAccess { reads, writes });
            let found = [&read, &zeroes, &Operation::Flush].map(|operation| admission.permits(DRIVE, operation));
            assert_eq!((found, admission.permits_reads(DRIVE)), ([reads, writes, writes], reads));
        }
        admission.update(3, [DRIVE], |_| unreachable!("nothing has changed"));
    }

    #[test]
    fn a_refusal_is_told_once_for_each_reservation() {
        let mut admission = Admission::default();
        let mut told = Vec::new();
        // A second host registers, which changes nothing for clients; then the reservation is released, and acquired again.
        for (changes, writes) in (1..).zip([false, false, true, false]) {
            admission.update(changes, [DRIVE], |_| UnregisteredAccess { reads: true, writes });
            if !writes {
                told.push([admission.is_news(DRIVE), admission.is_news(DRIVE)]);
            }
        }
        assert_eq!(told, [[true, false], [false, false], [true, false]]);
    }
}
