//! The drive from outside: times, power loss, zone allocation, and a million commands against the
//! oracle.

mod amplification;
mod conventional;
mod element_tables;
mod element_tracker;
mod oracle;
mod power;
mod support;
mod timing;
mod zone_allocation;
mod zone_allocation_is_optimal;
