//! How the numbers are made, in words.

use zonda_plot::text::counted;

use crate::limits::{SEEDS_DEFAULT, STRETCH_MAX};

/// The section.
pub(super) fn html() -> String {
    let seeds = counted(SEEDS_DEFAULT.into(), "time");
    format!(
        "<dl class=\"made\">\n\
         <dt>An experiment is a file</dt><dd>It has a drive, a load, what is varied, what is measured, and the published numbers. Every \
         page shows the files of its experiments. <code>zonda lab show ID</code> prints one, to be copied and changed.</dd>\n\
         <dt>Time is simulated</dt><dd>The model of a drive says when each command completes. The speed of this machine is in no \
         number.</dd>\n\
         <dt>Every point is run several times</dt><dd>Each with another seed, {seeds} where the file does not say. A number is \
         the mean over these runs; the small numbers below it, and whiskers in plots, are the least and the greatest.</dd>\n\
         <dt>The warm-up is found by a rule</dt><dd>A first run, which is in no number, is cut where the standard error of what is \
         left is smallest (MSER-5, applied to throughput and to mean latency). If the cut is in its second half, the run is made \
         twice as long, up to {STRETCH_MAX} times; a point without a cut even then is marked as not steady. A run that ends by \
         itself is measured whole.</dd>\n\
         <dt>What counts as met</dt><dd>The error is (model \u{2212} published) ÷ published. The error that is allowed was \
         written down for each result, and stands beside it.</dd>\n\
         <dt>The same file gives the same numbers</dt><dd>With the same program, on every machine, to the last digit. \
         <code>zonda lab run ID</code> repeats an experiment, <code>zonda lab run --all</code> all of them; \
         <code>zonda lab compare</code> prints the table above.</dd>\n</dl>\n"
    )
}
