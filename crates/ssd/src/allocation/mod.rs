//! Which dies and which erase units a zone gets.
//!
//! A policy is behind [`ZoneAllocator`], one file each. The rest of the model asks it three things: where a zone lies
//! (at its first write), whether an erase unit must be erased before it is programmed, and how much of a zone FINISH
//! has to pad.

mod fixed;

use zonda_zoned::ZoneIndex;

pub use fixed::FixedAllocator;

use crate::counters::Wear;

/// A die of the drive, counted channel first: die `d` is on channel `d % channels`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DieIndex(pub u16);

/// Where a zone lies: data go round these dies, one read unit each.
pub type Stripe = std::sync::Arc<[DieIndex]>;

/// An erase unit of a zone: its place in the zone's stripe, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitOfZone {
    /// Index into the zone's stripe.
    pub slot: u16,
    /// Which of the zone's erase units on that die, from the start of the zone.
    pub row: u32,
}

/// A zone allocation policy.
pub trait ZoneAllocator: std::fmt::Debug {
    /// Gives a zone its place. Called at its first write, or its FINISH, after it was empty.
    fn allocate(&mut self, zone: ZoneIndex) -> Stripe;

    /// A program is about to go to a unit: returns whether the unit has to be erased first, and counts that erase.
    fn program(&mut self, zone: ZoneIndex, unit: UnitOfZone) -> bool;

    /// How far into the zone FINISH pads, in bytes, when `written_bytes` are written.
    fn pad_until_bytes(&self, zone: ZoneIndex, written_bytes: u64) -> u64;

    /// The zone was reset: what was written of it is invalid, to be erased when it is next programmed.
    fn reset(&mut self, zone: ZoneIndex);

    /// Marks everything up to `written_bytes` as programmed, without counting: for filling a drive before a study.
    fn prefill(&mut self, zone: ZoneIndex, written_bytes: u64);

    /// Wear so far.
    fn wear(&self) -> Wear;

    /// Asserts what must always hold.
    fn check_invariants(&self);
}
