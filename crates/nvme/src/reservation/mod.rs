//! Reservations (NVMe Base 2.0, sections 7.2 to 7.5 and 8.19): access control between hosts that
//! share a namespace.
//!
//! A host registers a key; a registrant may acquire the reservation, whose type determines the
//! access of other hosts.
//!
//! ```text
//! Register (0Dh)  dword 10  02:00 action (RREGA) | 03 ignore key (IEKEY) | 31:30 change PTPL (CPTPL)   data  0 CRKEY | 8 NRKEY
//! Acquire  (11h)  dword 10  02:00 action (RACQA) | 03 ignore key (IEKEY) | 15:08 type (RTYPE)          data  0 CRKEY | 8 PRKEY
//! Release  (15h)  dword 10  02:00 action (RRELA) | 03 ignore key (IEKEY) | 15:08 type (RTYPE)          data  0 CRKEY
//! Report   (0Eh)  dword 10  31:00 dwords (NUMD), zero-based    dword 11  00 extended (EDS)
//! ```

mod saved;
mod status;

use crate::io::Transfer;
use crate::{IoOpcode, StatusCode, SubmissionEntry};

pub use saved::{SAVED_REGISTRANTS_MAX, SAVED_RESERVATIONS_BYTES_MAX, SavedReservations, SavedReservationsError};
pub use status::{CONTROLLER_ID_NONE, RegisteredController, ReservationStatus};

/// A reservation key: chosen by the host, the same for all its controllers. Zero is not a valid
/// key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationKey(pub u64);

/// Reservation Type (RTYPE; NVMe Base 2.0, section 8.19, Figure 483): the accesses that a
/// reservation excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ReservationType {
    /// 1h: only the holder writes; everybody reads.
    WriteExclusive = 1,
    /// 2h: only the holder reads and writes.
    ExclusiveAccess = 2,
    /// 3h: registrants write; everybody reads.
    WriteExclusiveRegistrantsOnly = 3,
    /// 4h: registrants read and write.
    ExclusiveAccessRegistrantsOnly = 4,
    /// 5h: as 3h, and each registrant is a holder.
    WriteExclusiveAllRegistrants = 5,
    /// 6h: as 4h, and each registrant is a holder.
    ExclusiveAccessAllRegistrants = 6,
}

impl ReservationType {
    /// All types, in the order of their codes.
    pub const ALL: [ReservationType; 6] = [
        ReservationType::WriteExclusive,
        ReservationType::ExclusiveAccess,
        ReservationType::WriteExclusiveRegistrantsOnly,
        ReservationType::ExclusiveAccessRegistrantsOnly,
        ReservationType::WriteExclusiveAllRegistrants,
        ReservationType::ExclusiveAccessAllRegistrants,
    ];

    /// The type of a code; `None` for a reserved one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<ReservationType> {
        ReservationType::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The code on the wire.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Whether all registrants have the access of the holder.
    #[must_use]
    pub fn admits_registrants(self) -> bool {
        self.code() >= ReservationType::WriteExclusiveRegistrantsOnly.code()
    }

    /// Whether every registrant is a holder.
    #[must_use]
    pub fn is_held_by_all(self) -> bool {
        self.code() >= ReservationType::WriteExclusiveAllRegistrants.code()
    }

    /// Whether others may not even read.
    #[must_use]
    pub fn excludes_reads(self) -> bool {
        self.code().is_multiple_of(2)
    }
}

/// Register, by its action (RREGA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RegisterAction {
    /// 0h: register the new key.
    Register = 0,
    /// 1h: unregister the key.
    Unregister = 1,
    /// 2h: replace the key with the new one.
    Replace = 2,
}

/// Acquire, by its action (RACQA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AcquireAction {
    /// 0h: acquire a free reservation.
    Acquire = 0,
    /// 1h: preempt the host with the other key, or remove its registration.
    Preempt = 1,
    /// 2h: the same, and abort that host's commands before completing.
    PreemptAndAbort = 2,
}

/// Release, by its action (RRELA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReleaseAction {
    /// 0h: release the reservation.
    Release = 0,
    /// 1h: end the reservation and all registrations.
    Clear = 1,
}

/// Change Persist Through Power Loss State (CPTPL) of Register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum PersistChange {
    /// 00b: as it is.
    #[default]
    Keep = 0,
    /// 10b: registrations and reservations end with the power.
    Clear = 2,
    /// 11b: they outlive it.
    Set = 3,
}

/// A reservation command without its keys, which are its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationCommand {
    /// Reservation Register.
    Register {
        /// The action on the registration.
        action: RegisterAction,
        /// IEKEY: the current key is ignored.
        ignores_key: bool,
        /// CPTPL.
        persist: PersistChange,
    },
    /// Reservation Acquire.
    Acquire {
        /// How.
        action: AcquireAction,
        /// The type of the reservation.
        kind: ReservationType,
    },
    /// Reservation Release. The type must be that of the held reservation, and is ignored for
    /// [`ReleaseAction::Clear`].
    Release {
        /// The action.
        action: ReleaseAction,
        /// RTYPE, unchecked.
        kind_code: u8,
    },
    /// Reservation Report.
    Report {
        /// Length of the host's buffer, a multiple of 4.
        bytes: u64,
        /// EDS: host identifiers have 128 bits.
        extended: bool,
    },
}

/// The keys of a command, from its data: the host's current one, and the new or preempted one, zero
/// if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservationKeys {
    /// CRKEY.
    pub current: ReservationKey,
    /// NRKEY of Register, PRKEY of Acquire.
    pub other: ReservationKey,
}

impl ReservationKeys {
    /// Reads the data of a command; missing bytes are zero.
    #[must_use]
    pub fn read(data: &[u8]) -> ReservationKeys {
        let key = |at: usize| match data.get(at..at + 8) {
            Some(bytes) => ReservationKey(u64::from_le_bytes(bytes.try_into().expect("the slice has eight bytes"))),
            None => ReservationKey::default(),
        };
        ReservationKeys { current: key(0), other: key(8) }
    }

    /// The data of a Register or an Acquire; a Release has the first half.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.current.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.other.0.to_le_bytes());
        bytes
    }
}

const IGNORE_KEY: u32 = 1 << 3;

impl ReservationCommand {
    /// Decodes a command; `None` for one that is not a reservation command.
    ///
    /// # Errors
    /// [`StatusCode::INVALID_FIELD`] for an action, a type or a change that is reserved, and for an
    /// Acquire or a Release that ignores the key: only the specification's first revision knew
    /// that.
    pub fn decode(entry: &SubmissionEntry) -> Result<Option<ReservationCommand>, StatusCode> {
        let dword = entry.cdw10.get();
        let ignores_key = dword & IGNORE_KEY != 0;
        let kind_code = (dword >> 8) as u8;
        let keyed = if ignores_key { Err(StatusCode::INVALID_FIELD) } else { Ok(()) };
        Ok(Some(match IoOpcode::try_from(entry.opcode) {
            Ok(IoOpcode::ReservationRegister) => {
                let action = match dword & 0b111 {
                    0 => RegisterAction::Register,
                    1 => RegisterAction::Unregister,
                    2 => RegisterAction::Replace,
                    _ => return Err(StatusCode::INVALID_FIELD),
                };
                let persist = match dword >> 30 {
                    0 => PersistChange::Keep,
                    2 => PersistChange::Clear,
                    3 => PersistChange::Set,
                    _ => return Err(StatusCode::INVALID_FIELD),
                };
                ReservationCommand::Register { action, ignores_key, persist }
            }
            Ok(IoOpcode::ReservationAcquire) => {
                keyed?;
                let action = match dword & 0b111 {
                    0 => AcquireAction::Acquire,
                    1 => AcquireAction::Preempt,
                    2 => AcquireAction::PreemptAndAbort,
                    _ => return Err(StatusCode::INVALID_FIELD),
                };
                let kind = ReservationType::from_code(kind_code).ok_or(StatusCode::INVALID_FIELD)?;
                ReservationCommand::Acquire { action, kind }
            }
            Ok(IoOpcode::ReservationRelease) => {
                keyed?;
                let action = match dword & 0b111 {
                    0 => ReleaseAction::Release,
                    1 => ReleaseAction::Clear,
                    _ => return Err(StatusCode::INVALID_FIELD),
                };
                ReservationCommand::Release { action, kind_code }
            }
            Ok(IoOpcode::ReservationReport) => {
                ReservationCommand::Report { bytes: (u64::from(dword) + 1) * 4, extended: entry.cdw11.get() & 1 != 0 }
            }
            _ => return Ok(None),
        }))
    }

    /// The opcode, and command dwords 10 and 11.
    ///
    /// # Panics
    /// For a report whose length is not 4 to 2^34, or not a multiple of 4.
    #[must_use]
    pub fn encode(&self) -> (IoOpcode, [u32; 2]) {
        match *self {
            ReservationCommand::Register { action, ignores_key, persist } => (
                IoOpcode::ReservationRegister,
                [action as u32 | if ignores_key { IGNORE_KEY } else { 0 } | (persist as u32) << 30, 0],
            ),
            ReservationCommand::Acquire { action, kind } => {
                (IoOpcode::ReservationAcquire, [action as u32 | u32::from(kind.code()) << 8, 0])
            }
            ReservationCommand::Release { action, kind_code } => {
                (IoOpcode::ReservationRelease, [action as u32 | u32::from(kind_code) << 8, 0])
            }
            ReservationCommand::Report { bytes, extended } => {
                assert!(bytes.is_multiple_of(4) && (4..=1 << 34).contains(&bytes), "a report of {bytes} bytes");
                (IoOpcode::ReservationReport, [(bytes / 4 - 1) as u32, u32::from(extended)])
            }
        }
    }

    /// Direction and length of the data transfer.
    #[must_use]
    pub fn transfer(&self) -> Transfer {
        match *self {
            ReservationCommand::Register { .. } | ReservationCommand::Acquire { .. } => Transfer::FromHost(16),
            ReservationCommand::Release { .. } => Transfer::FromHost(8),
            ReservationCommand::Report { bytes, .. } => Transfer::ToHost(u32::try_from(bytes).unwrap_or(u32::MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(command: &ReservationCommand) -> SubmissionEntry {
        let (opcode, [dword10, dword11]) = command.encode();
        let mut entry = SubmissionEntry::new(opcode.code(), 1);
        entry.cdw10 = dword10.into();
        entry.cdw11 = dword11.into();
        entry
    }

    #[test]
    fn each_action_has_its_code() {
        let register = ReservationCommand::Register {
            action: RegisterAction::Replace,
            ignores_key: true,
            persist: PersistChange::Set,
        };
        assert_eq!(register.encode(), (IoOpcode::ReservationRegister, [0xc000_000a, 0]));
        let kind = ReservationType::ExclusiveAccessRegistrantsOnly;
        let acquire = ReservationCommand::Acquire { action: AcquireAction::PreemptAndAbort, kind };
        assert_eq!(acquire.encode(), (IoOpcode::ReservationAcquire, [0x402, 0]));
        let release = ReservationCommand::Release { action: ReleaseAction::Clear, kind_code: 0 };
        assert_eq!(release.encode(), (IoOpcode::ReservationRelease, [1, 0]));
        let report = ReservationCommand::Report { bytes: 4096, extended: true };
        assert_eq!(report.encode(), (IoOpcode::ReservationReport, [1023, 1]));
        for command in [register, acquire, release, report] {
            assert_eq!(ReservationCommand::decode(&entry(&command)), Ok(Some(command)));
        }
    }

    #[test]
    fn each_type_has_the_access_of_the_specification() {
        let all = |of: fn(ReservationType) -> bool| ReservationType::ALL.map(of);
        assert_eq!(all(ReservationType::excludes_reads), [false, true, false, true, false, true]);
        assert_eq!(all(ReservationType::admits_registrants), [false, false, true, true, true, true]);
        assert_eq!(all(ReservationType::is_held_by_all), [false, false, false, false, true, true]);
    }

    #[test]
    fn reserved_codes_and_iekey_outside_register_are_refused() {
        let refused = |opcode: IoOpcode, dword: u32| {
            let mut entry = SubmissionEntry::new(opcode.code(), 1);
            entry.cdw10 = dword.into();
            ReservationCommand::decode(&entry) == Err(StatusCode::INVALID_FIELD)
        };
        assert!(refused(IoOpcode::ReservationRegister, 3));
        assert!(refused(IoOpcode::ReservationRegister, 1 << 30));
        assert!(refused(IoOpcode::ReservationAcquire, 0x103));
        assert!(refused(IoOpcode::ReservationAcquire, 0x000) && refused(IoOpcode::ReservationAcquire, 0x700));
        assert!(refused(IoOpcode::ReservationAcquire, 0x108) && refused(IoOpcode::ReservationRelease, 0x108));
        assert!(refused(IoOpcode::ReservationRelease, 2));
        assert!(!refused(IoOpcode::ReservationRegister, 8));
        assert_eq!(ReservationCommand::decode(&SubmissionEntry::new(IoOpcode::Read.code(), 1)), Ok(None));
    }

    proptest! {
        #[test]
        fn keys_survive_their_bytes(current: u64, other: u64) {
            let keys = ReservationKeys { current: ReservationKey(current), other: ReservationKey(other) };
            prop_assert_eq!(ReservationKeys::read(&keys.to_bytes()), keys);
            prop_assert_eq!(ReservationKeys::read(&keys.to_bytes()[..8]).other, ReservationKey(0));
        }

        #[test]
        fn decoded_commands_encode_to_the_same_command(opcode: u8, dword10: u32, dword11: u32) {
            let mut given = SubmissionEntry::new(opcode, 1);
            given.cdw10 = dword10.into();
            given.cdw11 = dword11.into();
            if let Ok(Some(command)) = ReservationCommand::decode(&given) {
                prop_assert_eq!(ReservationCommand::decode(&entry(&command)), Ok(Some(command)));
            }
        }
    }
}
