//! [`Releases`]: what v-zones that become active wait for.

use std::collections::{BTreeMap, BTreeSet};

/// What of a namespace is not recorded yet, by number: a mount would find v-zones active that the
/// limits do not count any more. A v-zone that becomes active by a command with a greater number waits.
#[derive(Debug, Default)]
pub(super) struct Releases {
    /// Finishes, resets, and writes that fill a v-zone.
    commands: BTreeSet<u64>,
    /// Failures by the number of the first write that has failed, and the number up to which commands
    /// were accepted that did not count the v-zone as active.
    failures: BTreeMap<u64, u64>,
}

impl Releases {
    pub(super) fn add_command(&mut self, number: u64) {
        self.commands.insert(number);
    }

    /// Commands with numbers above the first, and below the other, wait for this failure.
    pub(super) fn add_failure(&mut self, number: u64, before: u64) {
        let earlier = self.failures.insert(number, before);
        assert_eq!(earlier, None, "a write fails in one v-zone, once");
    }

    #[inline]
    pub(super) fn has_commands(&self) -> bool {
        !self.commands.is_empty()
    }

    /// Returns whether it was there.
    pub(super) fn remove_command(&mut self, number: u64) -> bool {
        self.commands.remove(&number)
    }

    pub(super) fn remove_failure(&mut self, number: u64) -> bool {
        self.failures.remove(&number).is_some()
    }

    pub(super) fn must_wait(&self, number: u64) -> bool {
        self.commands.first().is_some_and(|first| *first < number)
            || self.failures.range(..number).any(|(_, before)| number < *before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_waits_for_commands_before_it_and_for_failures_that_it_did_not_count() {
        let mut releases = Releases::default();
        releases.add_command(5);
        assert!(!releases.must_wait(5) && releases.must_wait(6));
        assert!(releases.remove_command(5) && !releases.remove_command(5));
        releases.add_failure(3, 7);
        assert!(!releases.must_wait(3) && releases.must_wait(4) && releases.must_wait(6));
        assert!(!releases.must_wait(7), "it was accepted after the failure");
        assert!(releases.remove_failure(3) && !releases.must_wait(6));
    }
}
