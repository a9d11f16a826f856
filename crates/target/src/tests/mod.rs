//! A scripted host against the target, over devices that complete at once, or when told.

mod admin;
mod authentication;
mod connecting;
mod data;
mod hostile;
mod hostile_reservations;
mod memory;
mod negotiations;
mod persistence;
mod random;
mod reservations;
mod world;
mod write_protected;
mod zones;
