//! Charts as SVG, HTML pages around them, and readable formats of numbers.
//!
//! A [`Chart`] is series over two axes: lines with markers, long lines, bars. Published values are
//! drawn over those of the model in the same [`Look`], but hollow, and the legend says "model" and
//! "published". A point may have a spread, a chart may have [`Reference`]s such as limits, and an
//! [`Axis`] is linear, logarithmic or of names.
//!
//! [`Chart::figure`] is a part of a page; [`Chart::svg`] is a file of its own. Both do without
//! colour (dashes, markers, hatching), suit light and dark pages and paper, and are legible on a
//! phone. A [`Page`] is a file that loads nothing from servers. The same chart gives the same
//! bytes.
//!
//! This crate has no knowledge of drives, jobs or experiments, and writes no files.
//!
//! ```
//! use zonda_plot::{Axis, Chart, Form, LOOKS, Page, Point, Reference, Series, text};
//!
//! let sizes = Axis::log2("request size", 4096.0, 131_072.0, |bytes| text::round_bytes(bytes as u64));
//! let mut chart = Chart::new("append", "Bandwidth of appends", sizes, Axis::linear("bandwidth (MiB/s)", 3200.0, 5));
//! chart.description = "Appends reach 1,150 MiB/s at 128 KiB; 1,100 MiB/s were published.".to_owned();
//! let model = [Point::new(4096.0, 400.0).with_spread(380.0, 410.0), Point::new(131_072.0, 1150.0)];
//! chart.series.push(Series::new("append", LOOKS[0], Form::Line, model));
//! chart.series.push(Series::new("append", LOOKS[0], Form::Published, [(4096.0, 390.0), (131_072.0, 1100.0)]));
//! chart.references.push(Reference::line(3200.0, "PCIe 3,200 MiB/s"));
//! chart.notes.push("Whiskers span the runs of five seeds.".to_owned());
//!
//! let file = chart.svg();
//! assert!(file.starts_with("<svg xmlns="));
//! let main = format!("<h1>Appends</h1>\n<div class=\"plots\">\n{}</div>\n", chart.figure());
//! let page = Page { title: "Appends", css: "", main: &main, footer: "" }.html();
//! assert!(page.contains("<span>published</span>"));
//! ```
#![forbid(unsafe_code)]

mod axis;
mod chart;
mod draw;
mod legend;
mod look;
mod marks;
mod measure;
mod page;
mod round;
mod series;
mod standalone;
pub mod text;

pub use axis::Axis;
pub use chart::{Chart, Size};
pub use look::{LOOKS, Look, OTHERS};
pub use page::Page;
pub use series::{Form, Pieces, Place, Point, Reference, Series};

/// Style of charts: colours on light and dark pages and on paper, dashes. A file from
/// [`Chart::svg`] has it inside.
pub const PLOT_CSS: &str = include_str!("plot.css");
/// Style of pages, on top of [`PLOT_CSS`]: text, tables (`numbers`, `scroll`), key figures
/// (`facts`, `cards`), figures (`plots`, `legend`).
pub const PAGE_CSS: &str = include_str!("page.css");
