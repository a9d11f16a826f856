//! The initiator against a real target and against servers that misbehave.

mod against_target;
mod claims;
mod discovery;
mod errors;
mod loss;
mod resize;
mod testbed;
