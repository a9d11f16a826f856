//! Generations of zones.

/// Generations that tags distinguish.
const MASK: u32 = (1 << Generation::TAG_BITS) - 1;

/// How often a zone was reset. A block belongs to the generation in which it was written; blocks of
/// earlier ones count as unwritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Generation(pub(crate) u32);

impl Generation {
    /// Bits of a tag that have the generation.
    pub(crate) const TAG_BITS: u32 = 30;

    /// After another reset.
    pub(crate) fn next(self) -> Generation {
        Generation(self.0.wrapping_add(1))
    }

    /// The generation as a tag has it, in its bits.
    pub(crate) fn as_in_tags(self) -> Generation {
        Generation(self.0 & MASK)
    }

    /// The first generation from this one on that has the same tags as `other`.
    pub(crate) fn advance_to(self, other: Generation) -> Generation {
        Generation(self.0.wrapping_add(other.resets_since(self)))
    }

    /// Whether it is later than `other`. Generations wrap around: of two, the later one is ahead by
    /// less than half of their number.
    pub(crate) fn is_later_than(self, other: Generation) -> bool {
        (1..=MASK / 2).contains(&self.resets_since(other))
    }

    fn resets_since(self, other: Generation) -> u32 {
        self.0.wrapping_sub(other.0) & MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_wrap_around_in_tags_and_not_in_entries() {
        let last = Generation(MASK);
        assert_eq!((last.next(), last.next().as_in_tags()), (Generation(1 << 30), Generation(0)));
        assert!(Generation(0).is_later_than(last) && !last.is_later_than(Generation(0)));
        assert!(!last.is_later_than(last));
        assert_eq!(last.advance_to(Generation(2)), Generation(MASK + 3));
        assert_eq!(last.advance_to(last), last);
    }
}
