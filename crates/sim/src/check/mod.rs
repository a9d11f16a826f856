//! The checkers, one file each. Safety first: what a device says and what it keeps; then liveness.

pub(crate) mod answers;
pub(crate) mod limits;
pub(crate) mod liveness;
pub(crate) mod quiet;
pub(crate) mod survival;
