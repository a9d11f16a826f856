//! The named checks, by subject. Each is a sentence, and runs on a fresh device.

use crate::rig::{Rig, Verdict};
use crate::shapes::Shape;

mod appends;
mod contents;
mod conventional;
mod conventional_only;
mod degraded;
mod extensions;
mod limits;
mod namespace;
mod power;
mod reads;
mod reports;
mod select_all;
mod states;
mod writes;
mod zrwa;

/// One check.
pub(crate) struct Check {
    /// The rule, as a sentence with underscores.
    pub(crate) sentence: &'static str,
    /// The geometry that it needs.
    pub(crate) shape: Shape,
    pub(crate) body: fn(&mut Rig) -> Verdict,
}

/// A list of checks of one shape, named after their functions.
macro_rules! checks {
    ($shape:ident: $($name:ident),+ $(,)?) => {
        [$($crate::checks::Check { sentence: stringify!($name), shape: $crate::shapes::Shape::$shape, body: $name }),+]
    };
}
use checks;

/// All checks, those of random commands last.
pub(crate) fn all() -> Vec<Check> {
    [
        reads::checks(),
        writes::checks(),
        appends::checks(),
        states::checks(),
        select_all::checks(),
        limits::checks(),
        reports::checks(),
        contents::checks(),
        namespace::checks(),
        extensions::checks(),
        conventional::checks(),
        conventional_only::checks(),
        zrwa::checks(),
        degraded::checks(),
        power::checks(),
        crate::random::checks(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// `blocks` marks up from `mark`.
fn marks(mark: u64, blocks: u64) -> Vec<u64> {
    (0..blocks).map(|block| mark + block).collect()
}
