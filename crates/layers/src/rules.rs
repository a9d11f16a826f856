//! Which commands a rule is about, and how often it strikes: what [`crate::Fault`] and [`crate::Delay`] have in common.

use std::ops::Range;

use zonda_zoned::{Blocks, Command, Geometry, Lba, NamespaceId, Operation, Prng, ZoneAction, ZoneIndex, ZoneTarget};

use crate::{OperationKind, OperationSet};

/// Which commands a rule is about. A restriction that is `None` lets everything pass.
///
/// A command lies in a range of zones or blocks when it touches any block of it. An append and a management action touch
/// all blocks of their zone, Select All those of every zone, a report those from its start to the end of the namespace.
/// Flush and the reading of the Changed Zone List touch none: rules with a range are never about them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    /// The namespace. Rules for several namespaces are several rules.
    pub namespace: NamespaceId,
    /// The operations.
    pub operations: OperationSet,
    /// The zones, of that namespace.
    pub zones: Option<Range<ZoneIndex>>,
    /// The blocks, of that namespace.
    pub lbas: Option<Range<Lba>>,
}

/// Which of the commands that match a rule strikes at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// All.
    Always,
    /// The first.
    Once,
    /// Each n-th: of 3, the third, the sixth, ...; at least 1.
    EveryNth(u64),
    /// All but the first n.
    After(u64),
    /// Each with this chance.
    Chance {
        /// So many times ...
        numerator: u64,
        /// ... out of so many; at least 1.
        denominator: u64,
    },
}

/// How often a rule had the occasion, and how often it took it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCounters {
    /// Commands taken that the rule is about.
    pub matched: u64,
    /// Those of them that it struck at.
    pub struck: u64,
}

impl Default for Matcher {
    fn default() -> Matcher {
        Matcher { namespace: NamespaceId::FIRST, operations: OperationSet::ALL, zones: None, lbas: None }
    }
}

impl Matcher {
    /// All commands of some kinds, in the first namespace.
    #[must_use]
    pub fn operations(operations: OperationSet) -> Matcher {
        Matcher { operations, ..Matcher::default() }
    }

    /// Only those of them that touch `zones`.
    #[must_use]
    pub fn in_zones(self, zones: Range<ZoneIndex>) -> Matcher {
        Matcher { zones: Some(zones), ..self }
    }

    /// Only those of them that touch `lbas`.
    #[must_use]
    pub fn in_lbas(self, lbas: Range<Lba>) -> Matcher {
        Matcher { lbas: Some(lbas), ..self }
    }
}

/// The rules of a layer, with their counters and their randomness.
///
/// A command that the inner device then refuses was never taken: [`RuleBook::undo`] puts counters and randomness back, so
/// that its resubmission meets the same rules again.
#[derive(Debug)]
pub(crate) struct RuleBook {
    rules: Vec<Rule>,
    prng: Prng,
    prng_before: Prng,
    /// What the last command did to the counters: the rule, and whether it struck.
    log: Vec<(usize, bool)>,
}

#[derive(Debug)]
struct Rule {
    matches: Matcher,
    when: When,
    zone_size_blocks: Blocks,
    counters: RuleCounters,
}

impl RuleBook {
    /// # Panics
    /// When a rule divides by zero.
    pub(crate) fn new(prng: Prng) -> RuleBook {
        RuleBook { rules: Vec::new(), prng_before: prng.clone(), prng, log: Vec::new() }
    }

    pub(crate) fn add(&mut self, matches: Matcher, when: When, geometry: &Geometry) {
        match when {
            When::EveryNth(n) => assert!(n > 0, "every 0th command does not exist"),
            When::Chance { denominator, .. } => assert!(denominator > 0, "a chance needs a denominator"),
            When::Always | When::Once | When::After(_) => {}
        }
        let zone_size_blocks = geometry.zone_size_blocks;
        self.rules.push(Rule { matches, when, zone_size_blocks, counters: RuleCounters::default() });
    }

    /// Starts on a command.
    pub(crate) fn begin(&mut self) {
        self.log.clear();
        self.prng_before.clone_from(&self.prng);
    }

    /// Whether rule `index` strikes at `command`.
    pub(crate) fn strikes(&mut self, index: usize, command: &Command) -> bool {
        let rule = &mut self.rules[index];
        if !rule.is_about(command) {
            return false;
        }
        let seen = rule.counters.matched;
        rule.counters.matched += 1;
        let struck = match rule.when {
            When::Always => true,
            When::Once => seen == 0,
            When::EveryNth(n) => (seen + 1).is_multiple_of(n),
            When::After(n) => seen >= n,
            When::Chance { numerator, denominator } => self.prng.chance(numerator, denominator),
        };
        rule.counters.struck += u64::from(struck);
        self.log.push((index, struck));
        struck
    }

    /// Randomness for the effect of a rule; undone with the rest.
    pub(crate) fn prng(&mut self) -> &mut Prng {
        &mut self.prng
    }

    /// Forgets the command since [`RuleBook::begin`].
    pub(crate) fn undo(&mut self) {
        for (index, struck) in self.log.drain(..) {
            let counters = &mut self.rules[index].counters;
            counters.matched -= 1;
            counters.struck -= u64::from(struck);
        }
        self.prng.clone_from(&self.prng_before);
    }

    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    pub(crate) fn counters(&self, index: usize) -> RuleCounters {
        self.rules[index].counters
    }
}

impl Rule {
    fn is_about(&self, command: &Command) -> bool {
        let Matcher { namespace, operations, zones, lbas } = &self.matches;
        if *namespace != command.namespace || !operations.contains(OperationKind::of(&command.operation)) {
            return false;
        }
        let zone_size = self.zone_size_blocks.0;
        let zones_touched = zones.as_ref().is_none_or(|zones| {
            let first = u64::from(zones.start.0) * zone_size;
            let end = u64::from(zones.end.0) * zone_size;
            touches(&command.operation, zone_size, first..end)
        });
        zones_touched
            && lbas.as_ref().is_none_or(|lbas| touches(&command.operation, zone_size, lbas.start.0..lbas.end.0))
    }
}

/// Whether an operation touches a block in `range`.
fn touches(operation: &Operation, zone_size: u64, range: Range<u64>) -> bool {
    // Addresses come from the host unchecked: saturating sums keep those at the end of the number range harmless.
    let overlaps = |start: u64, blocks: u64| start < range.end && range.start < start.saturating_add(blocks);
    let zone_overlaps = |lba: Lba| overlaps(lba.0 - lba.0 % zone_size, zone_size);
    match operation {
        Operation::Read { start, blocks }
        | Operation::Write { start, blocks, .. }
        | Operation::WriteZeroes { start, blocks } => overlaps(start.0, blocks.0),
        Operation::Append { zone_start, .. } => zone_overlaps(*zone_start),
        Operation::Deallocate { ranges } => ranges.iter().any(|part| overlaps(part.start.0, part.blocks.0)),
        Operation::ManageZones { action: ZoneAction::FlushZrwa, target: ZoneTarget::Zone(block) } => {
            zone_overlaps(*block)
        }
        Operation::ManageZones { target: ZoneTarget::Zone(start), .. } => zone_overlaps(*start),
        Operation::ManageZones { target: ZoneTarget::All, .. } => !range.is_empty(),
        Operation::ReportZones { start, .. } => overlaps(start.0, u64::MAX),
        Operation::Flush | Operation::ReadChangedZones => false,
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::{CommandId, Payload};

    use super::*;

    fn command(operation: Operation) -> Command {
        Command { id: CommandId(1), namespace: NamespaceId::FIRST, operation }
    }

    fn read(start: u64, blocks: u64) -> Command {
        command(Operation::Read { start: Lba(start), blocks: Blocks(blocks) })
    }

    fn book(matches: Matcher, when: When) -> RuleBook {
        let mut book = RuleBook::new(Prng::new(1));
        book.add(matches, when, &Geometry::tiny());
        book
    }

    fn strikes(book: &mut RuleBook, command: &Command) -> bool {
        book.begin();
        book.strikes(0, command)
    }

    #[test]
    fn a_rule_is_about_every_command_that_touches_its_range() {
        let mut zone_two = book(Matcher::default().in_zones(ZoneIndex(2)..ZoneIndex(3)), When::Always);
        for (command, expected) in [
            (read(31, 1), false),
            (read(31, 2), true),
            (read(47, 1), true),
            (read(48, 1), false),
            (read(u64::MAX, u64::MAX), false),
            (read(40, u64::MAX), true),
            (command(Operation::Append { zone_start: Lba(32), blocks: Blocks(1), payload: Payload::None }), true),
            (command(Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::All }), true),
            (command(Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(Lba(48)) }), false),
            (command(Operation::Flush), false),
        ] {
            assert_eq!(strikes(&mut zone_two, &command), expected, "{command:?}");
        }
        let other = Command { namespace: NamespaceId(2), ..read(40, 1) };
        assert!(!strikes(&mut zone_two, &other), "another namespace");
    }

    #[test]
    fn a_rule_strikes_when_its_turn_has_come() {
        let pattern = |when| {
            let mut book = book(Matcher::operations(OperationSet::READ), when);
            (0..6).map(|_| if strikes(&mut book, &read(0, 1)) { 'x' } else { '.' }).collect::<String>()
        };
        assert_eq!(pattern(When::Always), "xxxxxx");
        assert_eq!(pattern(When::Once), "x.....");
        assert_eq!(pattern(When::EveryNth(3)), "..x..x");
        assert_eq!(pattern(When::After(4)), "....xx");
        assert_eq!(pattern(When::Chance { numerator: 0, denominator: 1 }), "......");
        assert_eq!(pattern(When::Chance { numerator: 1, denominator: 1 }), "xxxxxx");
    }

    #[test]
    fn an_undone_command_leaves_no_mark() {
        let mut book = book(Matcher::default(), When::Chance { numerator: 1, denominator: 2 });
        for _ in 0..64 {
            let before = (book.prng.clone(), book.counters(0));
            let first = strikes(&mut book, &read(0, 1));
            book.undo();
            assert_eq!((book.prng.clone(), book.counters(0)), before);
            assert_eq!(strikes(&mut book, &read(0, 1)), first, "the second try meets the same fate");
        }
        assert_eq!(book.counters(0).matched, 64);
    }
}
