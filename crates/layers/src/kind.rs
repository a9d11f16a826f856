//! The kinds of operations, and sets of them.

use std::fmt;
use std::ops::BitOr;

use zonda_zoned::{Operation, ZoneAction};

/// What an [`Operation`] is, without its arguments; the zone send actions each count as a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum OperationKind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Zone Append.
    Append,
    /// Write Zeroes.
    WriteZeroes,
    /// Dataset Management with Deallocate.
    Deallocate,
    /// Flush.
    Flush,
    /// Close Zone.
    Close,
    /// Finish Zone.
    Finish,
    /// Open Zone.
    Open,
    /// Reset Zone.
    Reset,
    /// Offline Zone.
    Offline,
    /// Set Zone Descriptor Extension.
    SetDescriptorExtension,
    /// Commit of a Zone Random Write Area.
    FlushZrwa,
    /// Zone Management Receive.
    ReportZones,
    /// Get Log Page for the Changed Zone List.
    ReadChangedZones,
}

/// A set of [`OperationKind`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationSet(u16);

impl OperationKind {
    /// Every kind, in the order of declaration.
    pub const ALL: [OperationKind; 15] = [
        OperationKind::Read,
        OperationKind::Write,
        OperationKind::Append,
        OperationKind::WriteZeroes,
        OperationKind::Deallocate,
        OperationKind::Flush,
        OperationKind::Close,
        OperationKind::Finish,
        OperationKind::Open,
        OperationKind::Reset,
        OperationKind::Offline,
        OperationKind::SetDescriptorExtension,
        OperationKind::FlushZrwa,
        OperationKind::ReportZones,
        OperationKind::ReadChangedZones,
    ];

    /// The kind of an operation.
    #[must_use]
    pub fn of(operation: &Operation) -> OperationKind {
        match operation {
            Operation::Read { .. } => OperationKind::Read,
            Operation::Write { .. } => OperationKind::Write,
            Operation::Append { .. } => OperationKind::Append,
            Operation::WriteZeroes { .. } => OperationKind::WriteZeroes,
            Operation::Deallocate { .. } => OperationKind::Deallocate,
            Operation::Flush => OperationKind::Flush,
            Operation::ManageZones { action, .. } => match action {
                ZoneAction::Close => OperationKind::Close,
                ZoneAction::Finish => OperationKind::Finish,
                ZoneAction::Open { .. } => OperationKind::Open,
                ZoneAction::Reset => OperationKind::Reset,
                ZoneAction::Offline => OperationKind::Offline,
                ZoneAction::SetDescriptorExtension { .. } => OperationKind::SetDescriptorExtension,
                ZoneAction::FlushZrwa => OperationKind::FlushZrwa,
            },
            Operation::ReportZones { .. } => OperationKind::ReportZones,
            Operation::ReadChangedZones => OperationKind::ReadChangedZones,
        }
    }

    /// The name, as [`Operation::name`] gives it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            OperationKind::Read => "read",
            OperationKind::Write => "write",
            OperationKind::Append => "append",
            OperationKind::WriteZeroes => "write zeroes",
            OperationKind::Deallocate => "deallocate",
            OperationKind::Flush => "flush",
            OperationKind::Close => "close",
            OperationKind::Finish => "finish",
            OperationKind::Open => "open",
            OperationKind::Reset => "reset",
            OperationKind::Offline => "offline",
            OperationKind::SetDescriptorExtension => "set descriptor extension",
            OperationKind::FlushZrwa => "flush zrwa",
            OperationKind::ReportZones => "report zones",
            OperationKind::ReadChangedZones => "read changed zones",
        }
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl OperationSet {
    /// No operation.
    pub const NONE: OperationSet = OperationSet(0);
    /// Every operation.
    pub const ALL: OperationSet = OperationSet((1 << OperationKind::ALL.len()) - 1);
    /// Read.
    pub const READ: OperationSet = OperationSet::of(&[OperationKind::Read]);
    /// Write, append and write zeroes.
    pub const WRITES: OperationSet =
        OperationSet::of(&[OperationKind::Write, OperationKind::Append, OperationKind::WriteZeroes]);
    /// Zone Management Send, all actions.
    pub const MANAGEMENT: OperationSet = OperationSet::of(&[
        OperationKind::Close,
        OperationKind::Finish,
        OperationKind::Open,
        OperationKind::Reset,
        OperationKind::Offline,
        OperationKind::SetDescriptorExtension,
        OperationKind::FlushZrwa,
    ]);

    /// The set of these kinds.
    #[must_use]
    pub const fn of(kinds: &[OperationKind]) -> OperationSet {
        let mut bits = 0;
        let mut i = 0;
        while i < kinds.len() {
            bits |= 1 << kinds[i] as u16;
            i += 1;
        }
        OperationSet(bits)
    }

    /// Whether a kind is in the set.
    #[must_use]
    pub const fn contains(self, kind: OperationKind) -> bool {
        self.0 & (1 << kind as u16) != 0
    }
}

impl BitOr for OperationSet {
    type Output = OperationSet;
    fn bitor(self, other: OperationSet) -> OperationSet {
        OperationSet(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::{Blocks, Lba, Payload, ReportFilter, ZoneTarget};

    use super::*;

    fn one_of_each() -> Vec<Operation> {
        let (start, blocks, payload) = (Lba(0), Blocks(1), Payload::None);
        let manage = |action| Operation::ManageZones { action, target: ZoneTarget::All };
        vec![
            Operation::Read { start, blocks },
            Operation::Write { start, blocks, payload: payload.clone() },
            Operation::Append { zone_start: start, blocks, payload },
            Operation::WriteZeroes { start, blocks },
            Operation::Deallocate { ranges: [].into() },
            Operation::Flush,
            manage(ZoneAction::Close),
            manage(ZoneAction::Finish),
            manage(ZoneAction::Open { zrwa: false }),
            manage(ZoneAction::Reset),
            manage(ZoneAction::Offline),
            manage(ZoneAction::SetDescriptorExtension { extension: [].into(), zrwa: false }),
            manage(ZoneAction::FlushZrwa),
            Operation::ReportZones {
                start,
                filter: ReportFilter::All,
                extended: false,
                partial: false,
                descriptors_max: 1,
            },
            Operation::ReadChangedZones,
        ]
    }

    #[test]
    fn every_operation_has_its_kind_and_its_name() {
        let operations = one_of_each();
        let kinds: Vec<OperationKind> = operations.iter().map(OperationKind::of).collect();
        assert_eq!(kinds, OperationKind::ALL);
        for (operation, kind) in operations.iter().zip(kinds) {
            assert_eq!(operation.name(), kind.name());
        }
    }

    #[test]
    fn a_set_holds_what_it_was_made_of_and_nothing_else() {
        let set = OperationSet::READ | OperationSet::of(&[OperationKind::Reset]);
        let members: Vec<OperationKind> = OperationKind::ALL.into_iter().filter(|&kind| set.contains(kind)).collect();
        assert_eq!(members, [OperationKind::Read, OperationKind::Reset]);
        assert!(OperationKind::ALL.into_iter().all(|kind| OperationSet::ALL.contains(kind)));
        assert!(!OperationKind::ALL.into_iter().any(|kind| OperationSet::NONE.contains(kind)));
    }
}
