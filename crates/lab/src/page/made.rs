//! The section about the method.

use zonda_plot::text::counted;

use crate::limits::{SEEDS_DEFAULT, SPREAD_SEEDS, STRETCH_MAX};

/// The section.
pub(super) fn html() -> String {
    let seeds = counted(SEEDS_DEFAULT.into(), "time");
    format!(
        "<dl class=\"made\">\n\
         <dt>Experiments are files</dt><dd>A file has a drive, a workload, varied parameters, metrics, and published results. Every \
         page shows the files of its experiments. <code>zonda lab show ID</code> prints a file, to copy and change.</dd>\n\
         <dt>Time is simulated</dt><dd>The drive model determines when each command completes. Results do not depend on the speed \
         of this machine.</dd>\n\
         <dt>Every point is run several times</dt><dd>Each run has another seed, {seeds} by default. A value is the mean of these \
         runs; the small numbers below it, and whiskers in plots, are minimum and maximum.</dd>\n\
         <dt>The warm-up is detected automatically</dt><dd>A first run, which is not counted, is truncated where the standard error \
         of the rest is smallest (MSER-5, applied to throughput and to mean latency). If the cut is in its second half, the length \
         of the run is doubled, up to a factor of {STRETCH_MAX}; a point without a cut even then is marked as not steady. A run \
         that ends by itself is measured completely.</dd>\n\
         <dt>Spreads</dt><dd><code>zonda lab spread</code> runs a result with {SPREAD_SEEDS} seeds, and with other values of the loads that \
         its paper leaves open. The column shows minimum and maximum, and how many of these runs are within the allowed error. \
         A result that leaves it in any of them is fragile, and does not count as met.</dd>\n\
         <dt>Error</dt><dd>The error is (model \u{2212} published) ÷ published. The allowed error is set for each result, and \
         shown next to it.</dd>\n\
         <dt>Results are deterministic</dt><dd>The same program and file give the same results on every machine, to the last digit. \
         <code>zonda lab run ID</code> runs an experiment, <code>zonda lab run --all</code> all of them; \
         <code>zonda lab compare</code> prints the table above.</dd>\n</dl>\n"
    )
}
