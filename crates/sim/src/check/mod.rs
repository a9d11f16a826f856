//! The checkers, one file each: safety (completions, limits and stored data) and liveness.

pub(crate) mod answers;
pub(crate) mod limits;
pub(crate) mod liveness;
pub(crate) mod quiescent;
pub(crate) mod survival;
