//! `zonda top`: a live view of the namespaces of a running server.
//!
//! ```text
//! source.rs   the server: HTTP, or the control socket of a volume or pool
//! rates.rs    rates and latencies of a namespace between two snapshots
//! frame.rs    all namespaces at one moment, with their rates
//! json.rs     a frame as a line of JSON
//! view.rs     what the terminal shows, and what keys do to it
//! draw.rs     the picture of a view (table.rs, groups.rs, map.rs, help.rs on canvas.rs)
//! live.rs     the terminal, keys and signals
//! ```

mod canvas;
mod draw;
mod frame;
#[cfg(test)]
mod golden;
mod groups;
mod help;
mod json;
mod live;
mod map;
mod rates;
#[cfg(test)]
mod samples;
mod source;
mod table;
mod view;

use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use zonda_config::TimeSpan;
use zonda_exports::HTTP_DEFAULT;
use zonda_exports::snapshot::Snapshot;

use crate::errors::Failure;
use crate::output::{Screen, print};
use frame::Frame;
use source::Source;
use view::View;

pub(crate) const LONG_ABOUT: &str = "Show the activity of a running server, updated each second: a row for each namespace, and the \
zone map of the drive.

Each row has bandwidth, IOPS, latencies, and active zones. A namespace of a pool also has the widths of its stripe groups, its \
essentials, and its spares: its own, lent and leased ones. With the scheduler ezns it has read windows and write tokens, with the scheduler \
interference the outstanding commands of each conflict group. Press ? \
for an explanation of each figure (docs/guide/serve.md).

The server is found by its HTTP address, as zonda status does, or by the directory of a pool or volume that it serves. If it is \
stopped, the view reports this, and continues when it is started again.";

const EXAMPLES: &str = "Examples:
  zonda top                          the server on this machine
  zonda top 10.0.0.7:9420            a server on another machine
  zonda top pool                     the server of the pool in ./pool
  zonda top --interval 200ms
  zonda top --once                   print one picture, without keys
  zonda top --json                   one JSON object a second
  zonda top --once --json | jq '.namespaces[] | {name, iops, p99_9_ns}'

Keys: q quits, arrows and tab select a namespace, s sorts, d shows the zones of the drive or of the
namespace, ? explains the figures. Colours are left out if NO_COLOR is set.";

/// Intervals are within these limits, in nanoseconds: a snapshot with zone maps takes the server some
/// milliseconds on a large drive.
const INTERVAL_NS: std::ops::RangeInclusive<u64> = 100_000_000..=3_600_000_000_000;
/// Lines of a single picture, beside its rows.
const PICTURE_LINES: u16 = 30;

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TopArgs {
    /// HTTP address of the server, or the directory of a pool or volume that it serves
    #[arg(value_name = "HOST:PORT|DIR", default_value_t = HTTP_DEFAULT.to_string())]
    server: String,
    /// Time between two updates, from 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: TimeSpan,
    /// Print one JSON object for each interval and nothing else
    #[arg(long)]
    json: bool,
    /// Print the figures of one interval, and exit
    #[arg(long)]
    once: bool,
}

fn interval(text: &str) -> Result<TimeSpan, String> {
    let time = text.parse::<TimeSpan>().map_err(|error| error.to_string())?;
    if INTERVAL_NS.contains(&time.0) { Ok(time) } else { Err("must be from 100ms to 1h".to_owned()) }
}

pub(crate) fn run(args: &TopArgs) -> Result<(), Failure> {
    let is_live = !args.json && !args.once;
    if is_live && !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(Failure::input(
            "zonda top needs a terminal to draw on and to read keys from",
            "use --json for a line of JSON each second, or --once for a single picture",
        ));
    }
    let source = Source::of(&args.server)?;
    let interval = Duration::from_nanos(args.interval.0);
    // A server that is not running at the start is an error; later it may be restarted.
    let first = source.fetch()?;
    match (args.once, args.json) {
        (true, is_json) => once(&source, interval, &first, is_json),
        (false, true) => json::run(&source, interval, first),
        (false, false) => live::run(source, interval, &first),
    }
}

/// Prints the figures of one interval.
fn once(source: &Source, interval: Duration, first: &Snapshot, is_json: bool) -> Result<(), Failure> {
    thread::sleep(interval);
    let frame = Frame::of(Some(first), &source.fetch()?);
    if is_json {
        return json::print_frame(&frame);
    }
    let mut view = View::new(source.name());
    let rows = u16::try_from(frame.rows.len()).unwrap_or(u16::MAX);
    view.show(frame);
    print(&picture(&view, Screen::of_stdout().width, PICTURE_LINES.saturating_add(rows.saturating_mul(2))))
}

/// A view as text, without empty lines at its end.
fn picture(view: &View, width: u16, height: u16) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw::draw(view, &mut buffer);
    let lines = buffer.content.chunks(usize::from(width));
    let lines: Vec<String> = lines.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>()).collect();
    let text: String = lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect();
    text.trim_end().to_owned() + "\n"
}

/// When the next update is due; after a late one, at once.
fn next_update(last: Instant, interval: Duration) -> Instant {
    (last + interval).max(Instant::now())
}
