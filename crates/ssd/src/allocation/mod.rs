//! Which dies and which erase units a zone gets.
//!
//! A policy is behind [`ZoneAllocator`]: `fixed` in a file of its own, the others are one policy
//! over elements of different shapes. The rest of the model asks it where a zone lies (at its first
//! write), what must be erased before a program, how much of a zone FINISH has to pad, and reports
//! resets, finishes and failures of zones to it. `docs/internals/zone-allocation.md` has the rules.
//!
//! | file | what |
//! |---|---|
//! | `element.rs` | kinds of elements, their shapes and numbers |
//! | `pool.rs` | all elements of a drive, the free ones by wear, and the exact choice among them |
//! | `flexible.rs` | the policy over a pool: eligible LUNs, the zones' elements, FINISH and RESET |
//! | `fixed.rs` | the policy of today's drives |
//! | `stripe.rs` | where a zone's erase units lie |
//! | `state.rs` | state of an element, and counts of all of them |
//! | `table.rs` | serialized element table |
//! | `trial.rs` | a used allocator, to measure allocation times |
//! | `tracker.rs`, `zone_usage.rs` | elements of a drive without simulated flash, derived from its zone events |

mod element;
mod fixed;
mod flexible;
mod pool;
mod state;
mod stripe;
mod table;
mod tracker;
mod trial;
mod zone_usage;

use zonda_zoned::ZoneIndex;

pub use element::AllocationKind;
pub(crate) use element::ElementGrid;
pub use fixed::FixedAllocator;
pub use flexible::FlexibleAllocator;
pub use state::{AllocationFacts, Element, ElementState};
pub use stripe::{DieIndex, Stripe, UnitOfZone};
pub use table::{ElementTable, ElementTableError};
pub use tracker::ElementTracker;
pub use trial::AllocationTrial;
pub use zone_usage::{ElementRecord, ZoneDisposition, ZoneUsage};

use crate::counters::Wear;
use crate::profile::Profile;

/// Erase units to be erased before a program: the same number on each die of these slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementErase {
    /// The first slot.
    pub first_slot: u16,
    /// Slots side by side.
    pub slots: u16,
    /// Erase units on the die of each.
    pub units: u32,
}

/// A zone allocation policy.
pub trait ZoneAllocator: std::fmt::Debug {
    /// Allocates a zone. Called at its first write, or its FINISH, after it was empty. A zone that
    /// has elements already keeps them, and gets those it lacks.
    fn allocate(&mut self, zone: ZoneIndex) -> Stripe;

    /// The first program of an erase unit of a zone is about to go out: returns what has to be
    /// erased before, and counts that erase.
    fn program(&mut self, zone: ZoneIndex, unit: UnitOfZone) -> Option<ElementErase>;

    /// How far FINISH pads each slot of a zone of which so many bytes are written, in bytes of the
    /// slot.
    fn pad_ends(&self, written_bytes: u64, ends_bytes: &mut [u64]);

    /// A zone of which so many bytes are written will never get more before its reset: what holds
    /// none of them is free.
    fn release_untouched(&mut self, zone: ZoneIndex, written_bytes: u64);

    /// The zone was reset: what was written of it is invalid, to be erased when it is next
    /// programmed; the rest is free.
    fn reset(&mut self, zone: ZoneIndex);

    /// The zone went offline: its elements are never used again.
    fn retire(&mut self, zone: ZoneIndex);

    /// Marks everything up to `written_bytes` as programmed, without counting: for filling a drive
    /// before a study.
    fn prefill(&mut self, zone: ZoneIndex, written_bytes: u64);

    /// Wear so far.
    fn wear(&self) -> Wear;

    /// Erases of the units of a die.
    fn erases_of_die(&self, die: DieIndex) -> Vec<u32>;

    /// Statistics of the elements.
    fn facts(&self) -> AllocationFacts;

    /// Wear, state and owner of each element.
    fn elements(&self) -> ElementTable;

    /// Restores wear, states and owners. Must be called before any zone is used.
    ///
    /// # Errors
    /// A table of another drive, or an inconsistent one. Nothing is changed then.
    fn restore(&mut self, table: &ElementTable) -> Result<(), ElementTableError>;

    /// Memory of the policy's tables, in bytes.
    fn table_bytes(&self) -> u64;

    /// Asserts the invariants.
    fn check_invariants(&self);
}

/// The policy that a profile asks for.
#[must_use]
pub fn allocator_of(profile: &Profile) -> Box<dyn ZoneAllocator> {
    match profile.zones.allocation {
        AllocationKind::Fixed => Box::new(FixedAllocator::new(profile)),
        _ => Box::new(FlexibleAllocator::new(profile)),
    }
}
