//! Types that both sides share.

use crate::group::Group;
use crate::hash::Hash;
use crate::random::Random;

/// The state after a message was accepted. In each case `message` returns the next message, if
/// there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The exchange continues with a message of this side.
    Continue,
    /// This side is authenticated. Its last message may still have to be sent.
    Authenticated,
}

/// The parameters that the two sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The hash of challenges and responses.
    pub hash: Hash,
    /// The Diffie-Hellman group.
    pub group: Group,
    /// Whether the controller has to authenticate, too.
    pub bidirectional: bool,
}

/// Sequence numbers: a random start, then increasing by one, skipping 0 (NVMe Base Specification
/// 2.0, section 8.13, DH-HMAC-CHAP_Challenge, SEQNUM).
#[derive(Debug)]
pub(crate) struct SequenceNumbers {
    last: Option<u32>,
}

impl SequenceNumbers {
    pub(crate) fn new() -> SequenceNumbers {
        SequenceNumbers { last: None }
    }

    pub(crate) fn next(&mut self, random: &mut Random) -> u32 {
        let next = match self.last {
            None => random.nonzero_u32(),
            Some(last) => last.checked_add(1).unwrap_or(1),
        };
        self.last = Some(next);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_increase_by_one_and_skip_zero() {
        let mut random = Random::new([3; 32]);
        let mut numbers = SequenceNumbers::new();
        let first = numbers.next(&mut random);
        assert_ne!(first, 0);
        assert_eq!(numbers.next(&mut random), first + 1);
        numbers.last = Some(u32::MAX);
        assert_eq!(numbers.next(&mut random), 1);
    }
}
