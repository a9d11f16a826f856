//! The built-in profiles of drives: their names and their texts, a file each under
//! `crates/profiles/drives/`.
//!
//! What is absent: any meaning. `zonda-ssd` reads a profile, and takes its text from its caller, so
//! that an edited profile rebuilds only what links this crate.
//!
//! ```
//! let tiny = zonda_profiles::builtin_text("tiny").expect("a built-in profile");
//! assert!(tiny.contains("[geometry]"));
//! ```
#![forbid(unsafe_code)]

/// Name and text of each, in the order in which they are listed.
pub const BUILTIN: &[(&str, &str)] = &[
    ("ezns-small", include_str!("../drives/ezns-small.toml")),
    ("zn540", include_str!("../drives/zn540.toml")),
    ("zn540-zapraid", include_str!("../drives/zn540-zapraid.toml")),
    ("zn540-study", include_str!("../drives/zn540-study.toml")),
    ("bae-small", include_str!("../drives/bae-small.toml")),
    ("bae-large", include_str!("../drives/bae-large.toml")),
    ("silent-custom", include_str!("../drives/silent-custom.toml")),
    ("zn540-emulated", include_str!("../drives/zn540-emulated.toml")),
    ("conventional", include_str!("../drives/conventional.toml")),
    ("tiny", include_str!("../drives/tiny.toml")),
];

/// The names of the built-in profiles.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(name, _)| *name)
}

/// The text of a built-in profile.
#[must_use]
pub fn builtin_text(name: &str) -> Option<&'static str> {
    BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
