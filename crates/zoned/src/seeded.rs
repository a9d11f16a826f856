//! [`Seeded`]: the mistake that a tester has put into a machine.

/// The seeded bug of a machine, if it has one. `B` is the crate's list of bugs, and `CAN_BE` whether
/// any can be seeded: a crate passes `cfg!(any(test, feature = "testing"))`. Without that the
/// compiler removes the code that asks for bugs.
#[derive(Clone, Copy, Debug)]
pub struct Seeded<B, const CAN_BE: bool>(Option<B>);

impl<B, const CAN_BE: bool> Seeded<B, CAN_BE> {
    /// No bug.
    pub const NONE: Seeded<B, CAN_BE> = Seeded(None);

    /// Whether the machine has any bug.
    #[inline]
    #[must_use]
    pub const fn is_any(&self) -> bool {
        CAN_BE && self.0.is_some()
    }
}

impl<B: PartialEq, const CAN_BE: bool> Seeded<B, CAN_BE> {
    /// Whether the machine has this bug.
    #[inline]
    #[must_use]
    pub fn has(&self, bug: B) -> bool {
        CAN_BE && self.0 == Some(bug)
    }
}

impl<B, const CAN_BE: bool> Default for Seeded<B, CAN_BE> {
    fn default() -> Seeded<B, CAN_BE> {
        Seeded::NONE
    }
}

/// # Panics
/// For a bug in a build in which none can be seeded.
impl<B, const CAN_BE: bool> From<Option<B>> for Seeded<B, CAN_BE> {
    fn from(bug: Option<B>) -> Seeded<B, CAN_BE> {
        assert!(CAN_BE || bug.is_none(), "bugs are seeded with the feature `testing`");
        Seeded(bug)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_the_bug_that_was_seeded_and_no_other() {
        let seeded = Seeded::<char, true>::from(Some('a'));
        assert!(seeded.has('a') && !seeded.has('b') && seeded.is_any());
        let sound = Seeded::<char, true>::default();
        assert!(!sound.has('a') && !sound.is_any());
    }

    #[test]
    #[should_panic(expected = "with the feature `testing`")]
    fn a_product_has_none() {
        let _ = Seeded::<char, false>::from(Some('a'));
    }
}
