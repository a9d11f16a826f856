//! Checks that the state of a zone after a power loss is allowed.
//!
//! Acknowledged commands are applied. Of the others a prefix is applied, in the order of
//! submission; of a write a prefix of its blocks, or any subset where blocks can be written in any
//! order. Then the power cycle rules apply: open zones are closed, and explicitly opened zones
//! without data are empty.
//!
//! So there is one candidate state for each length of the prefix; the zone must match one of them.

use std::cmp::Ordering;

use zonda_zoned::{Geometry, ZERO_FINGERPRINT, ZoneIndex, ZoneState};

use super::quiescent::place;
use crate::ledger::{Change, Phase, Shape, ZoneEntry};
use crate::observe::{CheckError, ObservedZone};
use crate::outcome::FailureKind;

/// An allowed state of a zone, with the possible contents of each of its blocks.
struct Candidate {
    shape: Shape,
    prints: Vec<Vec<u64>>,
}

/// Why a zone does not match a candidate. The mismatch of the candidate whose comparison got
/// furthest is the most informative one.
struct Mismatch {
    progress: u32,
    kind: FailureKind,
    message: String,
}

impl Mismatch {
    /// The more informative of two mismatches, a lost write before others; both if they are equally
    /// informative.
    fn or(self, other: Mismatch) -> Mismatch {
        let weight = |mismatch: &Mismatch| (mismatch.progress, mismatch.kind == FailureKind::LostWrite);
        match weight(&self).cmp(&weight(&other)) {
            Ordering::Greater => self,
            Ordering::Less => other,
            Ordering::Equal if self.message.contains(&other.message) => self,
            Ordering::Equal => Mismatch { message: format!("{}; or {}", self.message, other.message), ..self },
        }
    }
}

/// Whether an unacknowledged command can be applied in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartialExecution {
    /// The drive lost power while it executed the command.
    Possible,
    /// The command reached the drive as a whole or not at all. Write Zeroes and Deallocate can take
    /// several commands on the wire.
    Impossible,
}

impl PartialExecution {
    fn excludes(self, change: &Change) -> bool {
        let is_split = match change {
            Change::Write { prints, .. } => prints.iter().all(|print| *print == ZERO_FINGERPRINT),
            Change::Deallocate { .. } => true,
            _ => false,
        };
        self == PartialExecution::Impossible && !is_split
    }
}

/// Checks a zone against its ledger entry; returns the state that is certain now.
pub(crate) fn check(
    geometry: &Geometry,
    zone: ZoneIndex,
    entry: &ZoneEntry,
    seen: &ObservedZone,
    partial: PartialExecution,
) -> Result<Shape, CheckError> {
    let mut candidate = Candidate::certain(entry);
    let acknowledged = entry.effects.iter().rposition(|effect| effect.is_acknowledged).map_or(0, |last| last + 1);
    let mut best: Option<Mismatch> = None;
    for applied in 0..=entry.effects.len() {
        if applied > 0 {
            let effect = &entry.effects[applied - 1];
            candidate.apply(&effect.change, effect.is_acknowledged || partial.excludes(&effect.change), geometry);
        }
        if applied < acknowledged {
            continue;
        }
        match candidate.compare(seen, geometry) {
            Ok(shape) => return Ok(shape),
            Err(mismatch) => {
                best = Some(match best {
                    Some(best) => best.or(mismatch),
                    None => mismatch,
                });
            }
        }
    }
    let Mismatch { kind, message, .. } = best.expect("at least the candidate with all effects was compared");
    let message = format!("zone {zone} is {} after the power loss: {message}", place(seen.state, seen.pointer));
    Err(CheckError::new(kind, zone, message))
}

/// Checks that a zone outside the host's slice was never written.
pub(crate) fn check_untouched(zone: ZoneIndex, seen: &ObservedZone) -> Result<(), CheckError> {
    let is_new = matches!(seen.state, ZoneState::Empty | ZoneState::NotWritePointer);
    if is_new && seen.prints.iter().all(|print| *print == ZERO_FINGERPRINT) {
        return Ok(());
    }
    let message = format!("zone {zone} of the drive is outside the slice, but is {} or has data", seen.state);
    Err(CheckError::new(FailureKind::ImpossibleZone, None, message))
}

impl Candidate {
    fn certain(entry: &ZoneEntry) -> Candidate {
        Candidate { shape: entry.base.clone(), prints: entry.prints.iter().map(|print| vec![*print]).collect() }
    }

    fn apply(&mut self, change: &Change, is_acknowledged: bool, geometry: &Geometry) {
        let in_order = !self.shape.is_random;
        match change {
            Change::Write { first, prints } => {
                for (block, print) in (*first as usize..).zip(prints) {
                    // A block that is written in order has these contents if the write pointer is
                    // past it.
                    replace(&mut self.prints[block], *print, is_acknowledged || in_order);
                }
            }
            Change::Deallocate { first, blocks } => {
                for block in *first..first + blocks {
                    replace(&mut self.prints[block as usize], ZERO_FINGERPRINT, is_acknowledged);
                }
            }
            Change::Reset | Change::BecomeOffline => {
                for prints in &mut self.prints {
                    replace(prints, ZERO_FINGERPRINT, true);
                }
            }
            _ => {}
        }
        self.shape.apply(change, is_acknowledged, geometry);
    }

    /// Compares a zone with this candidate after power-on; if they match, returns its certain
    /// state.
    fn compare(&self, seen: &ObservedZone, geometry: &Geometry) -> Result<Shape, Mismatch> {
        let capacity = geometry.zone_capacity_blocks.0;
        let Shape { phase, low, high, .. } = self.shape;
        let pointer = match phase {
            Phase::Conventional | Phase::Offline => 0,
            Phase::Full => high,
            Phase::ReadOnly => self.pointer_by_contents(seen),
            Phase::Empty | Phase::Opened | Phase::Written | Phase::Closed => match seen.state {
                ZoneState::Full => capacity,
                _ => seen.pointer.unwrap_or(u64::MAX),
            },
        };
        let has_pointer = pointer != u64::MAX;
        let [state, other] = self.states(if has_pointer { pointer } else { low }, capacity);
        if ![state, other].contains(&seen.state) && (!has_pointer || (low..=high).contains(&pointer)) {
            let or = if state == other { String::new() } else { format!(" or {other}") };
            let message = format!("expected {state}{or}");
            return Err(Mismatch { progress: 0, kind: FailureKind::ImpossibleZone, message });
        }
        if pointer < low {
            let message = format!("{low} blocks were acknowledged, {high} submitted");
            return Err(Mismatch { progress: 1, kind: FailureKind::LostWrite, message });
        }
        if pointer > high {
            let message = format!("only {high} blocks were submitted");
            return Err(Mismatch { progress: 1, kind: FailureKind::ImpossibleZone, message });
        }
        let is_empty = matches!(seen.state, ZoneState::Empty | ZoneState::Offline);
        let extension = if is_empty { &None } else { &self.shape.extension };
        let zrwa = self.shape.zrwa && seen.state.is_active();
        if seen.zrwa != zrwa || seen.extension != *extension {
            let message = format!(
                "expected {} ZRWA and {} descriptor extension",
                if zrwa { "a" } else { "no" },
                if extension.is_some() { "the submitted" } else { "no" }
            );
            return Err(Mismatch { progress: 2, kind: FailureKind::ImpossibleZone, message });
        }
        self.compare_contents(seen, pointer)?;
        Ok(Shape {
            phase: match seen.state {
                ZoneState::NotWritePointer => Phase::Conventional,
                ZoneState::Empty => Phase::Empty,
                ZoneState::Full => Phase::Full,
                ZoneState::ReadOnly => Phase::ReadOnly,
                ZoneState::Offline => Phase::Offline,
                _ => Phase::Closed,
            },
            low: pointer,
            high: pointer,
            zrwa,
            is_random: self.shape.is_random && seen.state != ZoneState::Empty,
            extension: extension.clone(),
        })
    }

    /// The allowed states of the zone with this write pointer; the two may be equal.
    fn states(&self, pointer: u64, capacity: u64) -> [ZoneState; 2] {
        let one = |state| [state, state];
        let Shape { phase, high, zrwa, .. } = self.shape;
        match phase {
            Phase::Conventional => one(ZoneState::NotWritePointer),
            Phase::Full => one(ZoneState::Full),
            Phase::ReadOnly => one(ZoneState::ReadOnly),
            Phase::Offline => one(ZoneState::Offline),
            _ if pointer == capacity => one(ZoneState::Full),
            _ if pointer > 0 || zrwa || self.shape.extension.is_some() => one(ZoneState::Closed),
            // If all writes are lost, the transition to Closed may be lost with them.
            Phase::Closed if high > 0 => [ZoneState::Closed, ZoneState::Empty],
            Phase::Closed => one(ZoneState::Closed),
            Phase::Empty | Phase::Opened | Phase::Written => one(ZoneState::Empty),
        }
    }

    /// The write pointer of a read only zone is not reported: the highest one that matches the
    /// contents.
    fn pointer_by_contents(&self, seen: &ObservedZone) -> u64 {
        let Shape { low, high, is_random, .. } = self.shape;
        if is_random || seen.prints.is_empty() {
            return high;
        }
        (low..=high).rev().find(|pointer| self.compare_contents(seen, *pointer).is_ok()).unwrap_or(high)
    }

    fn compare_contents(&self, seen: &ObservedZone, pointer: u64) -> Result<(), Mismatch> {
        for (block, (print, allowed)) in (0..).zip(seen.prints.iter().zip(&self.prints)) {
            let is_behind = !self.shape.is_random && block >= pointer;
            if if is_behind { *print == ZERO_FINGERPRINT } else { allowed.contains(print) } {
                continue;
            }
            let kind = if *print == ZERO_FINGERPRINT { FailureKind::LostWrite } else { FailureKind::WrongContents };
            let allowed = if is_behind { &[ZERO_FINGERPRINT][..] } else { allowed };
            let allowed: Vec<String> = allowed.iter().map(|print| format!("{print:016x}")).collect();
            let message = format!("block {block} is {print:016x}, expected {}", allowed.join(" or "));
            return Err(Mismatch { progress: 3, kind, message });
        }
        Ok(())
    }
}

/// Adds possible contents of a block; certain contents replace all others.
fn replace(prints: &mut Vec<u64>, print: u64, is_certain: bool) {
    if is_certain {
        prints.clear();
    }
    if !prints.contains(&print) {
        prints.push(print);
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::{Blocks, CommandId, Lba, Operation, Outcome, Payload, ZoneAction, ZoneTarget, ZrwaGeometry};

    use super::*;
    use crate::ledger::Ledger;

    const ZONE: ZoneIndex = ZoneIndex(0);

    /// The ledger of a tiny namespace.
    struct TestLedger {
        ledger: Ledger,
        next: u64,
    }

    impl TestLedger {
        fn new(geometry: &Geometry) -> TestLedger {
            TestLedger { ledger: Ledger::new(geometry), next: 0 }
        }

        fn take(&mut self, operation: &Operation) -> CommandId {
            let id = CommandId(self.next);
            self.next += 1;
            self.ledger.take(id, operation, &Outcome::None);
            id
        }

        fn done(&mut self, operation: &Operation) {
            let id = self.take(operation);
            self.ledger.acknowledge(id);
        }

        fn check(&self, seen: &ObservedZone) -> Result<Shape, FailureKind> {
            let entry = &self.ledger.entries[ZONE.as_usize()];
            check(&self.ledger.geometry, ZONE, entry, seen, PartialExecution::Possible).map_err(|error| error.kind)
        }

        fn kind(&self, seen: &ObservedZone) -> FailureKind {
            self.check(seen).expect_err("the state is not allowed")
        }
    }

    fn write(start: u64, prints: &[u64]) -> Operation {
        let payload = Payload::Fingerprints(prints.into());
        Operation::Write { start: Lba(start), blocks: Blocks(prints.len() as u64), payload }
    }

    fn manage(action: ZoneAction) -> Operation {
        Operation::ManageZones { action, target: ZoneTarget::Zone(Lba(0)) }
    }

    fn seen(state: ZoneState, pointer: Option<u64>, prints: &[u64]) -> ObservedZone {
        let mut all = prints.to_vec();
        all.resize(16, 0);
        ObservedZone { state, pointer, zrwa: false, extension: None, prints: all, bytes: Vec::new() }
    }

    fn closed(prints: &[u64]) -> ObservedZone {
        seen(ZoneState::Closed, Some(prints.len() as u64), prints)
    }

    fn empty() -> ObservedZone {
        seen(ZoneState::Empty, Some(0), &[])
    }

    fn full(prints: &[u64]) -> ObservedZone {
        seen(ZoneState::Full, None, prints)
    }

    #[test]
    fn a_write_in_flight_may_be_applied_up_to_any_block() {
        let mut test = TestLedger::new(&Geometry::tiny());
        test.done(&write(0, &[1, 2]));
        test.take(&write(2, &[3, 4]));
        for prints in [&[1, 2][..], &[1, 2, 3], &[1, 2, 3, 4]] {
            assert_eq!(test.check(&closed(prints)).unwrap().low, prints.len() as u64);
        }
        assert_eq!(test.kind(&closed(&[1])), FailureKind::LostWrite);
        assert_eq!(test.kind(&empty()), FailureKind::LostWrite);
        assert_eq!(test.kind(&closed(&[1, 2, 3, 4, 5])), FailureKind::ImpossibleZone);
        assert_eq!(test.kind(&closed(&[1, 2, 9])), FailureKind::WrongContents, "neither old nor new");
        assert_eq!(test.kind(&closed(&[1, 0, 3])), FailureKind::LostWrite, "a hole");
        let behind = seen(ZoneState::Closed, Some(2), &[1, 2, 3]);
        assert_eq!(test.kind(&behind), FailureKind::WrongContents, "behind the write pointer");
        assert_eq!(test.kind(&full(&[1, 2, 3, 4])), FailureKind::ImpossibleZone);
    }

    #[test]
    fn an_acknowledged_write_implies_the_writes_before_it() {
        let mut test = TestLedger::new(&Geometry::tiny());
        test.take(&write(0, &[1, 2]));
        test.done(&write(2, &[3]));
        assert_eq!(test.kind(&closed(&[1, 2])), FailureKind::LostWrite);
        assert!(test.check(&closed(&[1, 2, 3])).is_ok());
    }

    #[test]
    fn a_reset_in_flight_leaves_the_zone_as_it_was_or_empty() {
        let mut test = TestLedger::new(&Geometry::tiny());
        test.done(&write(0, &[1, 2]));
        test.take(&manage(ZoneAction::Reset));
        assert!(test.check(&closed(&[1, 2])).is_ok());
        assert!(test.check(&empty()).is_ok());
        assert_eq!(test.kind(&closed(&[1])), FailureKind::LostWrite);
        assert_eq!(test.kind(&seen(ZoneState::Empty, Some(0), &[1])), FailureKind::WrongContents);
    }

    #[test]
    fn an_acknowledged_command_after_a_reset_implies_the_reset() {
        let mut test = TestLedger::new(&Geometry::tiny());
        test.done(&write(0, &[1, 2]));
        test.take(&manage(ZoneAction::Reset));
        test.done(&manage(ZoneAction::Reset));
        assert!(test.check(&closed(&[1, 2])).is_err());
        test.done(&write(0, &[7]));
        assert!(test.check(&empty()).is_err());
        assert!(test.check(&closed(&[7])).is_ok());
    }

    #[test]
    fn a_finish_implies_all_writes_before_it() {
        let mut test = TestLedger::new(&Geometry::tiny());
        test.take(&write(0, &[1, 2]));
        test.take(&manage(ZoneAction::Finish));
        assert!(test.check(&full(&[1, 2])).is_ok());
        assert!(test.check(&closed(&[1])).is_ok(), "not finished, and the write applied in part");
        assert_eq!(test.kind(&full(&[1])), FailureKind::LostWrite);
    }

    #[test]
    fn a_zone_filled_by_writes_is_full_only_with_its_last_block() {
        let mut test = TestLedger::new(&Geometry::tiny());
        let prints: Vec<u64> = (1..=12).collect();
        test.done(&write(0, &prints[..8]));
        test.take(&write(8, &prints[8..]));
        assert!(test.check(&full(&prints)).is_ok());
        assert!(test.check(&closed(&prints[..11])).is_ok());
        assert_eq!(test.kind(&full(&prints[..11])), FailureKind::LostWrite);
    }

    #[test]
    fn an_opened_zone_is_empty_after_a_power_loss_and_a_closed_one_closed() {
        let mut test = TestLedger::new(&Geometry::tiny());
        test.done(&manage(ZoneAction::Open { zrwa: false }));
        assert!(test.check(&empty()).is_ok());
        assert_eq!(test.kind(&closed(&[])), FailureKind::ImpossibleZone);
        test.done(&manage(ZoneAction::Close));
        assert!(test.check(&closed(&[])).is_ok());
        assert_eq!(test.kind(&empty()), FailureKind::ImpossibleZone);
    }

    #[test]
    fn a_descriptor_extension_survives_a_power_loss() {
        let mut test = TestLedger::new(&Geometry::tiny());
        let extension: Box<[u8]> = vec![5; 64].into();
        test.done(&manage(ZoneAction::SetDescriptorExtension { extension: extension.clone(), zrwa: false }));
        assert!(test.check(&ObservedZone { extension: Some(extension), ..closed(&[]) }).is_ok());
        assert_eq!(test.kind(&closed(&[])), FailureKind::ImpossibleZone);
        let other = Some(vec![6; 64].into());
        assert_eq!(test.kind(&ObservedZone { extension: other, ..closed(&[]) }), FailureKind::ImpossibleZone);
    }

    #[test]
    fn a_block_of_a_zrwa_is_old_or_new_and_never_torn() {
        let zrwa = ZrwaGeometry {
            size_blocks: Blocks(4),
            flush_granularity_blocks: Blocks(2),
            resources: 1,
            explicit_flush: true,
        };
        let mut test = TestLedger::new(&Geometry { zrwa: Some(zrwa), ..Geometry::tiny() });
        test.done(&manage(ZoneAction::Open { zrwa: true }));
        test.done(&write(0, &[1, 2]));
        test.take(&write(1, &[3, 4]));
        let with_zrwa = |prints: &[u64]| ObservedZone { zrwa: true, ..seen(ZoneState::Closed, Some(0), prints) };
        for prints in [&[1, 2][..], &[1, 3], &[1, 2, 4], &[1, 3, 4]] {
            assert!(test.check(&with_zrwa(prints)).is_ok(), "{prints:?}");
        }
        assert_eq!(test.kind(&with_zrwa(&[1, 5])), FailureKind::WrongContents);
        assert_eq!(test.kind(&with_zrwa(&[0, 2])), FailureKind::LostWrite);
        assert_eq!(test.kind(&seen(ZoneState::Closed, Some(0), &[1, 2])), FailureKind::ImpossibleZone);
    }

    #[test]
    fn a_deallocation_in_flight_may_be_applied_to_any_of_its_blocks() {
        let mut test = TestLedger::new(&Geometry::tiny());
        test.done(&write(0, &[1, 2, 3]));
        let ranges = [zonda_zoned::LbaRange { start: Lba(1), blocks: Blocks(2) }].into();
        test.take(&Operation::Deallocate { ranges });
        for prints in [[1, 2, 3], [1, 0, 3], [1, 2, 0], [1, 0, 0]] {
            assert!(test.check(&closed(&prints)).is_ok(), "{prints:?}");
        }
        assert_eq!(test.kind(&closed(&[0, 2, 3])), FailureKind::LostWrite);
    }

    #[test]
    fn a_degraded_zone_stays_degraded_and_keeps_its_data() {
        let mut test = TestLedger::new(&Geometry::tiny());
        test.done(&write(0, &[1, 2]));
        test.take(&write(2, &[3]));
        test.ledger.degrade(ZONE, ZoneState::ReadOnly);
        assert!(test.check(&seen(ZoneState::ReadOnly, None, &[1, 2])).is_ok());
        assert!(test.check(&seen(ZoneState::ReadOnly, None, &[1, 2, 3])).is_ok());
        assert_eq!(test.kind(&seen(ZoneState::ReadOnly, None, &[1])), FailureKind::LostWrite);
        assert_eq!(test.kind(&closed(&[1, 2])), FailureKind::ImpossibleZone);
        test.ledger.degrade(ZONE, ZoneState::Offline);
        assert!(test.check(&ObservedZone { prints: Vec::new(), ..seen(ZoneState::Offline, None, &[]) }).is_ok());
    }

    #[test]
    fn an_untouched_zone_must_be_unchanged() {
        let test = TestLedger::new(&Geometry::tiny());
        assert!(test.check(&empty()).is_ok());
        assert_eq!(test.kind(&closed(&[4])), FailureKind::ImpossibleZone);
        assert_eq!(test.kind(&full(&[])), FailureKind::ImpossibleZone);
        assert!(check_untouched(ZONE, &empty()).is_ok());
        assert!(check_untouched(ZONE, &closed(&[])).is_err());
    }
}
