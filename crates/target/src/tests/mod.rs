//! A scripted host against the target, over devices that complete at once, or on request.

mod admin;
mod authentication;
mod changes;
mod connecting;
mod data;
mod hostile;
mod hostile_reservations;
mod memory;
mod negotiations;
mod pauses;
mod persistence;
mod random;
mod random_changes;
mod removals;
mod reservations;
mod testbed;
mod write_protected;
mod zones;
