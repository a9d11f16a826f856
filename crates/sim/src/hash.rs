//! The hash of a run: equal for equal runs.

use zonda_zoned::{Command, Completion, Instant, Outcome};

use crate::run::kind_number;

/// A running hash of words, in their order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hash(u64);

impl Hash {
    pub(crate) fn value(self) -> u64 {
        self.0
    }

    /// Mixes a word in: one step of a multiply-and-rotate hash, which is enough to distinguish two
    /// runs.
    #[inline]
    pub(crate) fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }

    pub(crate) fn submission(&mut self, now: Instant, command: &Command) {
        self.mix(now.0);
        self.mix(command.id.0);
        self.mix(kind_number(command) << 32 | u64::from(command.namespace.0));
        self.mix(command.operation.blocks().0);
    }

    /// The data of a completion are compared with the oracle elsewhere; instant and status are
    /// enough here.
    pub(crate) fn completion(&mut self, now: Instant, completion: &Completion) {
        self.mix(now.0);
        self.mix(completion.id.0);
        self.mix(completion.status as u64);
        if let Outcome::Appended(lba) = completion.outcome {
            self.mix(lba.0);
        }
    }
}
