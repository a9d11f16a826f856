//! Whether a zone that came back after a loss of power is one that may come back.
//!
//! What is acknowledged has happened. Of what is not, a beginning has happened, in the order in which it was asked; of
//! writes a beginning in blocks, and where blocks are written in any order each of them or not. Then the rule of power
//! cycles applies: open zones are closed, and those that the host opened and nothing was written to are empty.
//!
//! So there is one candidate for each number of commands that may have happened; the zone must be like one of them.

use std::cmp::Ordering;

use zonda_zoned::{Geometry, ZERO_FINGERPRINT, ZoneIndex, ZoneState};

use super::quiet::place;
use crate::ledger::{Page, Phase, Shape, What};
use crate::outcome::FailureKind;
use crate::survey::{SeenZone, Trouble};

/// A course of events that is allowed: the zone, and the contents that each of its blocks can have.
struct Candidate {
    shape: Shape,
    prints: Vec<Vec<u64>>,
}

/// Why a zone is not like a candidate. The further the comparison came, the better the candidate tells what is wrong.
struct Mismatch {
    how_far: u32,
    kind: FailureKind,
    message: String,
}

impl Mismatch {
    /// What tells more; both where neither does. A loss, where there is one, is what people want to know.
    fn or(self, other: Mismatch) -> Mismatch {
        let weight = |mismatch: &Mismatch| (mismatch.how_far, mismatch.kind == FailureKind::LostWrite);
        match weight(&self).cmp(&weight(&other)) {
            Ordering::Greater => self,
            Ordering::Less => other,
            Ordering::Equal if self.message.contains(&other.message) => self,
            Ordering::Equal => Mismatch { message: format!("{}; or {}", self.message, other.message), ..self },
        }
    }
}

/// Whether a command that was not acknowledged can have happened in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halves {
    /// The power went while the drive was at it.
    Possible,
    /// It reached the drive or it did not. Zeros and deallocations can take several commands on the wire.
    Impossible,
}

impl Halves {
    fn excludes(self, what: &What) -> bool {
        let takes_rounds = match what {
            What::Write { prints, .. } => prints.iter().all(|print| *print == ZERO_FINGERPRINT),
            What::Deallocate { .. } => true,
            _ => false,
        };
        self == Halves::Impossible && !takes_rounds
    }
}

/// Holds a zone against its page in the books; returns what the zone now certainly is.
pub(crate) fn check(
    geometry: &Geometry,
    zone: ZoneIndex,
    page: &Page,
    seen: &SeenZone,
    halves: Halves,
) -> Result<Shape, Trouble> {
    let mut candidate = Candidate::certain(page);
    let acknowledged = page.effects.iter().rposition(|effect| effect.is_acknowledged).map_or(0, |last| last + 1);
    let mut best: Option<Mismatch> = None;
    for happened in 0..=page.effects.len() {
        if happened > 0 {
            let effect = &page.effects[happened - 1];
            candidate.apply(&effect.what, effect.is_acknowledged || halves.excludes(&effect.what), geometry);
        }
        if happened < acknowledged {
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
    let Mismatch { kind, message, .. } = best.expect("there is a candidate for what is certain");
    let message = format!("zone {zone} came back {}: {message}", place(seen.state, seen.pointer));
    Err(Trouble::new(kind, zone, message))
}

/// Holds a zone of the drive that is not the host's against one that nobody ever touched.
pub(crate) fn check_untouched(zone: ZoneIndex, seen: &SeenZone) -> Result<(), Trouble> {
    let is_new = matches!(seen.state, ZoneState::Empty | ZoneState::NotWritePointer);
    if is_new && seen.prints.iter().all(|print| *print == ZERO_FINGERPRINT) {
        return Ok(());
    }
    let message = format!("zone {zone} of the drive is outside the slice, and is {} or has contents", seen.state);
    Err(Trouble::new(FailureKind::ImpossibleZone, None, message))
}

impl Candidate {
    fn certain(page: &Page) -> Candidate {
        Candidate { shape: page.base.clone(), prints: page.prints.iter().map(|print| vec![*print]).collect() }
    }

    fn apply(&mut self, what: &What, is_acknowledged: bool, geometry: &Geometry) {
        let in_order = !self.shape.is_random;
        match what {
            What::Write { first, prints } => {
                for (block, print) in (*first as usize..).zip(prints) {
                    // Where blocks are written in order, nothing else can be there if anything is.
                    replace(&mut self.prints[block], *print, is_acknowledged || in_order);
                }
            }
            What::Deallocate { first, blocks } => {
                for block in *first..first + blocks {
                    replace(&mut self.prints[block as usize], ZERO_FINGERPRINT, is_acknowledged);
                }
            }
            What::Reset | What::BecomeOffline => {
                for prints in &mut self.prints {
                    replace(prints, ZERO_FINGERPRINT, true);
                }
            }
            _ => {}
        }
        self.shape.apply(what, is_acknowledged, geometry);
    }

    /// Whether a zone is like this after the power has come back; if so, what it certainly is.
    fn compare(&self, seen: &SeenZone, geometry: &Geometry) -> Result<Shape, Mismatch> {
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
            let message = format!("it must be {state}{or}");
            return Err(Mismatch { how_far: 0, kind: FailureKind::ImpossibleZone, message });
        }
        if pointer < low {
            let message = format!("{low} blocks are acknowledged, {high} submitted");
            return Err(Mismatch { how_far: 1, kind: FailureKind::LostWrite, message });
        }
        if pointer > high {
            let message = format!("no more than {high} blocks were submitted");
            return Err(Mismatch { how_far: 1, kind: FailureKind::ImpossibleZone, message });
        }
        let is_empty = matches!(seen.state, ZoneState::Empty | ZoneState::Offline);
        let extension = if is_empty { &None } else { &self.shape.extension };
        let zrwa = self.shape.zrwa && seen.state.is_active();
        if seen.zrwa != zrwa || seen.extension != *extension {
            let message = format!(
                "it must have {} ZRWA and {} descriptor extension",
                if zrwa { "a" } else { "no" },
                if extension.is_some() { "the right" } else { "no" }
            );
            return Err(Mismatch { how_far: 2, kind: FailureKind::ImpossibleZone, message });
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

    /// The states in which the zone can be with its write pointer there; the two may be the same.
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
            // Writes to it that are lost may take the zone's being closed with them.
            Phase::Closed if high > 0 => [ZoneState::Closed, ZoneState::Empty],
            Phase::Closed => one(ZoneState::Closed),
            Phase::Empty | Phase::Opened | Phase::Written => one(ZoneState::Empty),
        }
    }

    /// The write pointer of a read only zone does not show: it is the furthest at which the contents make sense.
    fn pointer_by_contents(&self, seen: &SeenZone) -> u64 {
        let Shape { low, high, is_random, .. } = self.shape;
        if is_random || seen.prints.is_empty() {
            return high;
        }
        (low..=high).rev().find(|pointer| self.compare_contents(seen, *pointer).is_ok()).unwrap_or(high)
    }

    fn compare_contents(&self, seen: &SeenZone, pointer: u64) -> Result<(), Mismatch> {
        for (block, (print, allowed)) in (0..).zip(seen.prints.iter().zip(&self.prints)) {
            let is_behind = !self.shape.is_random && block >= pointer;
            if if is_behind { *print == ZERO_FINGERPRINT } else { allowed.contains(print) } {
                continue;
            }
            let kind = if *print == ZERO_FINGERPRINT { FailureKind::LostWrite } else { FailureKind::WrongContents };
            let allowed = if is_behind { &[ZERO_FINGERPRINT][..] } else { allowed };
            let allowed: Vec<String> = allowed.iter().map(|print| format!("{print:016x}")).collect();
            let message = format!("block {block} is {print:016x}, and must be {}", allowed.join(" or "));
            return Err(Mismatch { how_far: 3, kind, message });
        }
        Ok(())
    }
}

/// A block can have these contents now, and no others if that is certain.
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

    /// The books of a tiny namespace, and the commands that the host has been told of.
    struct Books {
        ledger: Ledger,
        next: u64,
    }

    impl Books {
        fn new(geometry: &Geometry) -> Books {
            Books { ledger: Ledger::new(geometry), next: 0 }
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

        fn check(&self, seen: &SeenZone) -> Result<Shape, FailureKind> {
            let page = &self.ledger.pages[ZONE.as_usize()];
            check(&self.ledger.geometry, ZONE, page, seen, Halves::Possible).map_err(|trouble| trouble.kind)
        }

        fn kind(&self, seen: &SeenZone) -> FailureKind {
            self.check(seen).expect_err("it may not come back like this")
        }
    }

    fn write(start: u64, prints: &[u64]) -> Operation {
        let payload = Payload::Fingerprints(prints.into());
        Operation::Write { start: Lba(start), blocks: Blocks(prints.len() as u64), payload }
    }

    fn manage(action: ZoneAction) -> Operation {
        Operation::ManageZones { action, target: ZoneTarget::Zone(Lba(0)) }
    }

    fn seen(state: ZoneState, pointer: Option<u64>, prints: &[u64]) -> SeenZone {
        let mut all = prints.to_vec();
        all.resize(16, 0);
        SeenZone { state, pointer, zrwa: false, extension: None, prints: all, bytes: Vec::new() }
    }

    fn closed(prints: &[u64]) -> SeenZone {
        seen(ZoneState::Closed, Some(prints.len() as u64), prints)
    }

    fn empty() -> SeenZone {
        seen(ZoneState::Empty, Some(0), &[])
    }

    fn full(prints: &[u64]) -> SeenZone {
        seen(ZoneState::Full, None, prints)
    }

    #[test]
    fn a_write_under_way_may_have_happened_up_to_any_block() {
        let mut books = Books::new(&Geometry::tiny());
        books.done(&write(0, &[1, 2]));
        books.take(&write(2, &[3, 4]));
        for prints in [&[1, 2][..], &[1, 2, 3], &[1, 2, 3, 4]] {
            assert_eq!(books.check(&closed(prints)).unwrap().low, prints.len() as u64);
        }
        assert_eq!(books.kind(&closed(&[1])), FailureKind::LostWrite);
        assert_eq!(books.kind(&empty()), FailureKind::LostWrite);
        assert_eq!(books.kind(&closed(&[1, 2, 3, 4, 5])), FailureKind::ImpossibleZone);
        assert_eq!(books.kind(&closed(&[1, 2, 9])), FailureKind::WrongContents, "neither old nor new");
        assert_eq!(books.kind(&closed(&[1, 0, 3])), FailureKind::LostWrite, "a hole");
        let behind = seen(ZoneState::Closed, Some(2), &[1, 2, 3]);
        assert_eq!(books.kind(&behind), FailureKind::WrongContents, "behind the write pointer");
        assert_eq!(books.kind(&full(&[1, 2, 3, 4])), FailureKind::ImpossibleZone);
    }

    #[test]
    fn an_acknowledged_write_takes_those_before_it_along() {
        let mut books = Books::new(&Geometry::tiny());
        books.take(&write(0, &[1, 2]));
        books.done(&write(2, &[3]));
        assert_eq!(books.kind(&closed(&[1, 2])), FailureKind::LostWrite);
        assert!(books.check(&closed(&[1, 2, 3])).is_ok());
    }

    #[test]
    fn a_reset_under_way_leaves_the_zone_as_it_was_or_empty() {
        let mut books = Books::new(&Geometry::tiny());
        books.done(&write(0, &[1, 2]));
        books.take(&manage(ZoneAction::Reset));
        assert!(books.check(&closed(&[1, 2])).is_ok());
        assert!(books.check(&empty()).is_ok());
        assert_eq!(books.kind(&closed(&[1])), FailureKind::LostWrite);
        assert_eq!(books.kind(&seen(ZoneState::Empty, Some(0), &[1])), FailureKind::WrongContents);
    }

    #[test]
    fn what_is_acknowledged_after_a_reset_says_that_the_reset_has_happened() {
        let mut books = Books::new(&Geometry::tiny());
        books.done(&write(0, &[1, 2]));
        books.take(&manage(ZoneAction::Reset));
        books.done(&manage(ZoneAction::Reset));
        assert!(books.check(&closed(&[1, 2])).is_err());
        books.done(&write(0, &[7]));
        assert!(books.check(&empty()).is_err());
        assert!(books.check(&closed(&[7])).is_ok());
    }

    #[test]
    fn a_finish_keeps_all_writes_before_it() {
        let mut books = Books::new(&Geometry::tiny());
        books.take(&write(0, &[1, 2]));
        books.take(&manage(ZoneAction::Finish));
        assert!(books.check(&full(&[1, 2])).is_ok());
        assert!(books.check(&closed(&[1])).is_ok(), "not finished, and not wholly written");
        assert_eq!(books.kind(&full(&[1])), FailureKind::LostWrite);
    }

    #[test]
    fn a_zone_that_writes_filled_is_full_only_if_the_last_block_is_there() {
        let mut books = Books::new(&Geometry::tiny());
        let prints: Vec<u64> = (1..=12).collect();
        books.done(&write(0, &prints[..8]));
        books.take(&write(8, &prints[8..]));
        assert!(books.check(&full(&prints)).is_ok());
        assert!(books.check(&closed(&prints[..11])).is_ok());
        assert_eq!(books.kind(&full(&prints[..11])), FailureKind::LostWrite);
    }

    #[test]
    fn an_opened_zone_comes_back_empty_and_a_closed_one_closed() {
        let mut books = Books::new(&Geometry::tiny());
        books.done(&manage(ZoneAction::Open { zrwa: false }));
        assert!(books.check(&empty()).is_ok());
        assert_eq!(books.kind(&closed(&[])), FailureKind::ImpossibleZone);
        books.done(&manage(ZoneAction::Close));
        assert!(books.check(&closed(&[])).is_ok());
        assert_eq!(books.kind(&empty()), FailureKind::ImpossibleZone);
    }

    #[test]
    fn a_descriptor_extension_comes_back_with_its_zone() {
        let mut books = Books::new(&Geometry::tiny());
        let extension: Box<[u8]> = vec![5; 64].into();
        books.done(&manage(ZoneAction::SetDescriptorExtension { extension: extension.clone(), zrwa: false }));
        assert!(books.check(&SeenZone { extension: Some(extension), ..closed(&[]) }).is_ok());
        assert_eq!(books.kind(&closed(&[])), FailureKind::ImpossibleZone);
        let other = Some(vec![6; 64].into());
        assert_eq!(books.kind(&SeenZone { extension: other, ..closed(&[]) }), FailureKind::ImpossibleZone);
    }

    #[test]
    fn a_block_of_a_zrwa_is_old_or_new_and_whole() {
        let zrwa = ZrwaGeometry {
            size_blocks: Blocks(4),
            flush_granularity_blocks: Blocks(2),
            resources: 1,
            explicit_flush: true,
        };
        let mut books = Books::new(&Geometry { zrwa: Some(zrwa), ..Geometry::tiny() });
        books.done(&manage(ZoneAction::Open { zrwa: true }));
        books.done(&write(0, &[1, 2]));
        books.take(&write(1, &[3, 4]));
        let with_zrwa = |prints: &[u64]| SeenZone { zrwa: true, ..seen(ZoneState::Closed, Some(0), prints) };
        for prints in [&[1, 2][..], &[1, 3], &[1, 2, 4], &[1, 3, 4]] {
            assert!(books.check(&with_zrwa(prints)).is_ok(), "{prints:?}");
        }
        assert_eq!(books.kind(&with_zrwa(&[1, 5])), FailureKind::WrongContents);
        assert_eq!(books.kind(&with_zrwa(&[0, 2])), FailureKind::LostWrite);
        assert_eq!(books.kind(&seen(ZoneState::Closed, Some(0), &[1, 2])), FailureKind::ImpossibleZone);
    }

    #[test]
    fn a_deallocation_under_way_may_have_happened_to_each_block() {
        let mut books = Books::new(&Geometry::tiny());
        books.done(&write(0, &[1, 2, 3]));
        let ranges = [zonda_zoned::LbaRange { start: Lba(1), blocks: Blocks(2) }].into();
        books.take(&Operation::Deallocate { ranges });
        for prints in [[1, 2, 3], [1, 0, 3], [1, 2, 0], [1, 0, 0]] {
            assert!(books.check(&closed(&prints)).is_ok(), "{prints:?}");
        }
        assert_eq!(books.kind(&closed(&[0, 2, 3])), FailureKind::LostWrite);
    }

    #[test]
    fn a_zone_that_degraded_stays_so_with_what_it_held() {
        let mut books = Books::new(&Geometry::tiny());
        books.done(&write(0, &[1, 2]));
        books.take(&write(2, &[3]));
        books.ledger.degrade(ZONE, ZoneState::ReadOnly);
        assert!(books.check(&seen(ZoneState::ReadOnly, None, &[1, 2])).is_ok());
        assert!(books.check(&seen(ZoneState::ReadOnly, None, &[1, 2, 3])).is_ok());
        assert_eq!(books.kind(&seen(ZoneState::ReadOnly, None, &[1])), FailureKind::LostWrite);
        assert_eq!(books.kind(&closed(&[1, 2])), FailureKind::ImpossibleZone);
        books.ledger.degrade(ZONE, ZoneState::Offline);
        assert!(books.check(&SeenZone { prints: Vec::new(), ..seen(ZoneState::Offline, None, &[]) }).is_ok());
    }

    #[test]
    fn a_zone_that_nobody_touched_must_be_as_it_was() {
        let books = Books::new(&Geometry::tiny());
        assert!(books.check(&empty()).is_ok());
        assert_eq!(books.kind(&closed(&[4])), FailureKind::ImpossibleZone);
        assert_eq!(books.kind(&full(&[])), FailureKind::ImpossibleZone);
        assert!(check_untouched(ZONE, &empty()).is_ok());
        assert!(check_untouched(ZONE, &closed(&[])).is_err());
    }
}
