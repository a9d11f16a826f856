//! What people write in files: sizes, durations, rates and lists, and errors that point at their place.
//!
//! Files are TOML. [`parse`] reads one into any type that serde can fill, and turns what serde and the TOML parser have
//! to say into a [`ConfigError`]: one sentence for a person, the byte range it is about, and what to do. A mistyped key
//! or choice comes with the nearest allowed one ([`did_you_mean`]) and the list of all.
//!
//! Values with a unit have types of their own: [`ByteSize`], [`TimeSpan`], [`Rate`], and [`IndexSet`] for lists of zones.
//! Each reads itself from TOML and from a command line (`FromStr`), and prints itself in the notation it reads.
//! Mistakes that show only later, against a drive say, are reported at their place with [`ConfigError::at`].
//!
//! What is absent: files (the caller hands in the text), the drawing of errors with source lines and carets, and any
//! key of any particular file.
//!
//! ```
//! use serde::Deserialize;
//! use zonda_config::{ByteSize, ConfigError, Spanned, parse};
//!
//! #[derive(Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Cache {
//!     size: Spanned<ByteSize>,
//! }
//!
//! let cache: Cache = parse("size = \"1.5 MiB\"").expect("the file is right");
//! assert_eq!(cache.size.get_ref().0, 1_572_864);
//!
//! let error = parse::<Cache>("siez = \"4 KiB\"").err().expect("the key is mistyped");
//! assert_eq!(error.message, "unknown key \"siez\"");
//! assert_eq!(error.span, Some(0..4));
//! assert_eq!(error.help.as_deref(), Some("did you mean \"size\"? allowed here: size"));
//!
//! let error = ConfigError::at(&cache.size, "the cache is larger than the drive").help("make it at most 1 MiB");
//! assert_eq!(error.span, Some(7..16));
//! ```
#![forbid(unsafe_code)]

mod error;
mod index_set;
mod parse;
mod phrases;
mod quantity;
mod rate;
mod size;
mod suggest;
mod time;

pub use error::{ConfigError, unplaced};
pub use index_set::{INDEX_SET_MAX, IndexSet};
pub use parse::{parse, parse_with};
pub use rate::Rate;
pub use size::ByteSize;
pub use suggest::{did_you_mean, did_you_mean_help};
pub use time::TimeSpan;
pub use toml::Spanned;
