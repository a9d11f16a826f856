//! Values of configuration files: sizes, durations, rates and lists, and errors with their
//! position.
//!
//! Files are TOML. [`parse`] reads one into any deserializable type, and converts errors of serde
//! and the TOML parser into a [`ConfigError`]: a message, its byte range, and a remedy. A mistyped
//! key or choice is reported with the nearest allowed one ([`did_you_mean`]) and the list of all.
//!
//! Values with a unit have types of their own: [`ByteSize`], [`TimeSpan`], [`Rate`], and
//! [`IndexSet`] for lists of zones. Each is parsed from TOML and from a command line (`FromStr`),
//! and printed in the same notation. Errors found later, for example against a drive, are reported
//! with [`ConfigError::at`].
//!
//! Not part of this crate: file access (the caller passes the text), rendering of errors with
//! source lines, and the keys of particular files.
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
//! let cache: Cache = parse("size = \"1.5 MiB\"").expect("the file is valid");
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

mod any_table;
mod error;
mod index_set;
mod parse;
mod phrases;
mod quantity;
mod rate;
mod size;
mod suggest;
mod time;
mod words;

pub use any_table::AnyTable;
pub use error::{ConfigError, unplaced};
pub use index_set::{INDEX_SET_MAX, IndexSet};
pub use parse::{parse, parse_with};
pub use rate::Rate;
pub use size::ByteSize;
pub use suggest::{did_you_mean, did_you_mean_help, unknown_name_help};
pub use time::TimeSpan;
pub use toml::Spanned;
pub use words::{one_or_several, one_word};
