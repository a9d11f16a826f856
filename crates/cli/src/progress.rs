//! Progress of a long run: a bar on a terminal, otherwise a line every few seconds.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Steps of a complete bar.
const STEPS: u64 = 1000;
/// Time before the first line and between lines if the output is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Progress on the standard error.
pub(crate) enum Progress {
    /// A bar.
    Bar(ProgressBar),
    /// Lines.
    Lines {
        /// When the last line was written, or the run started.
        last: Instant,
    },
    /// Nothing.
    Silent,
}

impl Progress {
    /// Progress of a run; none if `quiet`.
    pub(crate) fn new(quiet: bool) -> Progress {
        if quiet {
            return Progress::Silent;
        }
        if !io::stderr().is_terminal() {
            return Progress::Lines { last: Instant::now() };
        }
        let bar = ProgressBar::new(STEPS);
        let style = ProgressStyle::with_template("{bar:40} {percent:>3}% {msg}").expect("the template is well formed");
        bar.set_style(style.progress_chars("=> "));
        Progress::Bar(bar)
    }

    /// Shows the completed share of the run, if it is known.
    pub(crate) fn show(&mut self, share: Option<f64>, message: impl FnOnce() -> String) {
        match self {
            Progress::Silent => {}
            Progress::Bar(bar) => {
                if let Some(share) = share {
                    bar.set_position((share.clamp(0.0, 1.0) * STEPS as f64) as u64);
                }
                bar.set_message(message());
            }
            Progress::Lines { last } => {
                if last.elapsed() >= LINE_INTERVAL {
                    *last = Instant::now();
                    let share = share.map_or_else(String::new, |share| format!("{:.0}% ", share * 100.0));
                    // A failed write to the standard error does not fail the run.
                    let _ = writeln!(io::stderr(), "{share}{}", message());
                }
            }
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(self) {
        if let Progress::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
