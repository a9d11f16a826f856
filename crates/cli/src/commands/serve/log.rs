//! The log: a line for each event, on the standard error.

use std::fmt;
use std::io::{self, IsTerminal};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::log_writer::{self, UntilWritten};

/// Characters of a time to the second: 2026-01-01T00:00:00.
const SECONDS_CHARACTERS: usize = 19;

/// The format of a line: time, level of errors and warnings, message.
struct Line {
    /// False under systemd, whose journal adds the time.
    with_time: bool,
}

/// Starts logging; with `quiet`, errors only. What is returned waits for the last lines when it is dropped.
pub(super) fn start(quiet: bool) -> io::Result<UntilWritten> {
    let level = if quiet { Level::ERROR } else { Level::INFO };
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let line = Line { with_time: std::env::var_os("JOURNAL_STREAM").is_none() };
    let (lines, until_written) = log_writer::start(io::stderr())?;
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(lines).with_ansi(colour);
    // Reporting a line that cannot be written would panic.
    let log = log.log_internal_errors(false);
    // An already installed subscriber is kept.
    let _ = log.event_format(line).try_init();
    Ok(until_written)
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let colour = to.has_ansi_escapes();
        let styled =
            |code: &str, text: &str| if colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() };
        if self.with_time {
            let mut time = String::new();
            SystemTime.format_time(&mut Writer::new(&mut time))?;
            let seconds = time.get(..SECONDS_CHARACTERS).unwrap_or(&time);
            write!(to, "{} ", styled("2", &format!("{seconds}Z")))?;
        }
        match *event.metadata().level() {
            Level::ERROR => write!(to, "{} ", styled("1;31", "error:"))?,
            Level::WARN => write!(to, "{} ", styled("1;33", "warning:"))?,
            _ => {}
        }
        context.field_format().format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}
