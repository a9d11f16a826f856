//! Access of NBD clients under reservations of NVMe hosts: that of a host that is not registered.
//!
//! A command is checked when it is submitted to its drive, so the rest of a long request fails once
//! a host acquires a reservation.

use std::collections::BTreeMap;

use zonda_target::{DeviceKey, UnregisteredAccess};
use zonda_zoned::Operation;

/// The access of clients to each drive.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// The number of reservation changes it reflects; `None`: not determined yet.
    changes: Option<u64>,
    drives: BTreeMap<u32, Drive>,
}

#[derive(Debug)]
struct Drive {
    access: UnregisteredAccess,
    /// A refusal under this reservation was logged.
    is_logged: bool,
}

impl Admission {
    /// Updates the access, if a reservation has changed.
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
            let drive = self.drives.entry(key.0).or_insert(Drive { access, is_logged: false });
            drive.access = access;
            // The next reservation is logged again.
            drive.is_logged &= access != UnregisteredAccess::ALL;
        }
    }

    /// Drives were added: determines the access again at the next update.
    pub(crate) fn reset(&mut self) {
        self.changes = None;
    }

    /// A drive was removed.
    pub(crate) fn forget(&mut self, drive: DeviceKey) {
        self.drives.remove(&drive.0);
    }

    /// Whether a command is permitted on a drive.
    pub(crate) fn permits(&self, drive: DeviceKey, operation: &Operation) -> bool {
        let access = self.access(drive);
        match operation {
            Operation::Read { .. } => access.reads,
            _ => access.writes,
        }
    }

    /// Whether clients may read a drive.
    pub(crate) fn permits_reads(&self, drive: DeviceKey) -> bool {
        self.access(drive).reads
    }

    /// Whether a refusal has to be logged.
    pub(crate) fn must_log(&mut self, drive: DeviceKey) -> bool {
        self.drives.get_mut(&drive.0).is_some_and(|drive| !std::mem::replace(&mut drive.is_logged, true))
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
    fn clients_have_the_access_of_unregistered_hosts() {
        let read = Operation::Read { start: Lba(0), blocks: Blocks(1) };
        let zeroes = Operation::WriteZeroes { start: Lba(0), blocks: Blocks(1) };
        let mut admission = Admission::default();
        assert!(!admission.permits(DRIVE, &read), "before the first update");
        let cases = [(true, true), (true, false), (false, false)];
        for (changes, (reads, writes)) in (1..).zip(cases) {
            admission.update(changes, [DRIVE], |_| UnregisteredAccess { reads, writes });
            let found = [&read, &zeroes, &Operation::Flush].map(|operation| admission.permits(DRIVE, operation));
            assert_eq!((found, admission.permits_reads(DRIVE)), ([reads, writes, writes], reads));
        }
        admission.update(3, [DRIVE], |_| unreachable!("nothing has changed"));
    }

    #[test]
    fn a_refusal_is_logged_once_for_each_reservation() {
        let mut admission = Admission::default();
        let mut logged = Vec::new();
        // A second host registers, which changes nothing for clients; then the reservation is
        // released, and acquired again.
        for (changes, writes) in (1..).zip([false, false, true, false]) {
            admission.update(changes, [DRIVE], |_| UnregisteredAccess { reads: true, writes });
            if !writes {
                logged.push([admission.must_log(DRIVE), admission.must_log(DRIVE)]);
            }
        }
        assert_eq!(logged, [[true, false], [false, false], [true, false]]);
    }
}
