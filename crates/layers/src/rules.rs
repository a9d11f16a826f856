//! Rules of [`crate::Fault`] and [`crate::Delay`]: which commands a rule matches, and how often it
//! strikes.

use std::ops::Range;

use zonda_zoned::{Blocks, Command, Geometry, Lba, NamespaceId, Operation, Prng, ZoneAction, ZoneIndex, ZoneTarget};

use crate::{OperationKind, OperationSet};

/// Which commands a rule matches. A restriction that is `None` matches all.
///
/// A command matches a range of zones or blocks if it touches any block of it. An append and a
/// management action touch all blocks of their zone, Select All those of every zone, a report those
/// from its start to the end of the namespace. Flush and reading the Changed Zone List touch none:
/// rules with a range never match them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    /// The namespace. Several namespaces need several rules.
    pub namespace: NamespaceId,
    /// The operations.
    pub operations: OperationSet,
    /// The zones of that namespace.
    pub zones: Option<Range<ZoneIndex>>,
    /// The blocks of that namespace.
    pub lbas: Option<Range<Lba>>,
}

/// Which of the matching commands a rule strikes at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// All.
    Always,
    /// The first.
    Once,
    /// Every n-th: with 3, the third, the sixth, ...; at least 1.
    EveryNth(u64),
    /// All but the first n.
    After(u64),
    /// Each with this probability.
    Chance {
        /// The numerator of the probability.
        numerator: u64,
        /// The denominator of the probability; at least 1.
        denominator: u64,
    },
}

/// How often a rule matched, and how often it struck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCounters {
    /// Accepted commands that the rule matched.
    pub matched: u64,
    /// The matching commands that it struck at.
    pub struck: u64,
}

impl Default for Matcher {
    fn default() -> Matcher {
        Matcher { namespace: NamespaceId::FIRST, operations: OperationSet::ALL, zones: None, lbas: None }
    }
}

impl Matcher {
    /// Matches all commands of these kinds, in the first namespace.
    #[must_use]
    pub fn operations(operations: OperationSet) -> Matcher {
        Matcher { operations, ..Matcher::default() }
    }

    /// Restricts the matcher to commands that touch `zones`.
    #[must_use]
    pub fn in_zones(self, zones: Range<ZoneIndex>) -> Matcher {
        Matcher { zones: Some(zones), ..self }
    }

    /// Restricts the matcher to commands that touch `lbas`.
    #[must_use]
    pub fn in_lbas(self, lbas: Range<Lba>) -> Matcher {
        Matcher { lbas: Some(lbas), ..self }
    }
}

/// The rules of a layer, with their counters and their random number generator.
///
/// A command that the inner device then refuses does not count: [`RuleSet::undo`] restores counters
/// and generator, so that its resubmission gets the same result.
#[derive(Debug)]
pub(crate) struct RuleSet {
    rules: Vec<Rule>,
    prng: Prng,
    prng_before: Prng,
    /// Changes of the counters by the last command: the rule, and whether it struck.
    log: Vec<(usize, bool)>,
}

#[derive(Debug)]
struct Rule {
    matches: Matcher,
    when: When,
    zone_size_blocks: Blocks,
    counters: RuleCounters,
}

impl RuleSet {
    /// # Panics
    /// When a rule divides by zero.
    pub(crate) fn new(prng: Prng) -> RuleSet {
        RuleSet { rules: Vec::new(), prng_before: prng.clone(), prng, log: Vec::new() }
    }

    pub(crate) fn add(&mut self, matches: Matcher, when: When, geometry: &Geometry) {
        match when {
            When::EveryNth(n) => assert!(n > 0, "EveryNth needs a number of at least 1"),
            When::Chance { denominator, .. } => assert!(denominator > 0, "a chance needs a denominator of at least 1"),
            When::Always | When::Once | When::After(_) => {}
        }
        let zone_size_blocks = geometry.zone_size_blocks;
        self.rules.push(Rule { matches, when, zone_size_blocks, counters: RuleCounters::default() });
    }

    /// Begins the evaluation of a command.
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

    /// The generator for the effect of a rule; [`RuleSet::undo`] restores it too.
    pub(crate) fn prng(&mut self) -> &mut Prng {
        &mut self.prng
    }

    /// Reverts the evaluation since [`RuleSet::begin`].
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
    // Addresses from the host are not validated yet: saturating sums avoid overflows.
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
        Command::new(CommandId(1), NamespaceId::FIRST, operation)
    }

    fn read(start: u64, blocks: u64) -> Command {
        command(Operation::Read { start: Lba(start), blocks: Blocks(blocks) })
    }

    fn rule_set(matches: Matcher, when: When) -> RuleSet {
        let mut rule_set = RuleSet::new(Prng::new(1));
        rule_set.add(matches, when, &Geometry::tiny());
        rule_set
    }

    fn strikes(rule_set: &mut RuleSet, command: &Command) -> bool {
        rule_set.begin();
        rule_set.strikes(0, command)
    }

    #[test]
    fn a_rule_matches_every_command_that_touches_its_range() {
        let mut zone_two = rule_set(Matcher::default().in_zones(ZoneIndex(2)..ZoneIndex(3)), When::Always);
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
        let other = read(40, 1).with_namespace(NamespaceId(2));
        assert!(!strikes(&mut zone_two, &other), "another namespace");
    }

    #[test]
    fn a_rule_strikes_according_to_its_when() {
        let pattern = |when| {
            let mut rule_set = rule_set(Matcher::operations(OperationSet::READ), when);
            (0..6).map(|_| if strikes(&mut rule_set, &read(0, 1)) { 'x' } else { '.' }).collect::<String>()
        };
        assert_eq!(pattern(When::Always), "xxxxxx");
        assert_eq!(pattern(When::Once), "x.....");
        assert_eq!(pattern(When::EveryNth(3)), "..x..x");
        assert_eq!(pattern(When::After(4)), "....xx");
        assert_eq!(pattern(When::Chance { numerator: 0, denominator: 1 }), "......");
        assert_eq!(pattern(When::Chance { numerator: 1, denominator: 1 }), "xxxxxx");
    }

    #[test]
    fn undo_reverts_counters_and_random_numbers() {
        let mut rule_set = rule_set(Matcher::default(), When::Chance { numerator: 1, denominator: 2 });
        for _ in 0..64 {
            let before = (rule_set.prng.clone(), rule_set.counters(0));
            let first = strikes(&mut rule_set, &read(0, 1));
            rule_set.undo();
            assert_eq!((rule_set.prng.clone(), rule_set.counters(0)), before);
            assert_eq!(strikes(&mut rule_set, &read(0, 1)), first, "the resubmission gets the same result");
        }
        assert_eq!(rule_set.counters(0).matched, 64);
    }
}
