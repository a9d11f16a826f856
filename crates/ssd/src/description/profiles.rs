//! Profiles by name.

use std::fmt;

use zonda_config::{ConfigError, unknown_name_help};

use super::{ErrorSource, SpecError};
use crate::profile::Profile;

/// Where profiles are looked up. This crate has none: the caller passes their texts, and a way to
/// read files.
#[derive(Clone, Copy)]
pub struct Profiles<'a> {
    builtin: &'a [(&'a str, &'a str)],
    read_file: &'a dyn Fn(&str) -> Result<String, String>,
}

/// A profile's text, and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundProfile {
    /// The path, if it is not a built-in one.
    pub path: Option<String>,
    /// The text.
    pub text: String,
}

fn no_files(_path: &str) -> Result<String, String> {
    Err("files are not available".to_owned())
}

impl<'a> Profiles<'a> {
    /// Built-in profiles, each with its name and its text, and files: `read_file` returns the text
    /// of the file at a path, or the reason why it cannot be read.
    #[must_use]
    pub const fn new(
        builtin: &'a [(&'a str, &'a str)],
        read_file: &'a dyn Fn(&str) -> Result<String, String>,
    ) -> Profiles<'a> {
        Profiles { builtin, read_file }
    }

    /// Built-in profiles alone: every path is rejected.
    #[must_use]
    pub const fn without_files(builtin: &'a [(&'a str, &'a str)]) -> Profiles<'a> {
        Profiles { builtin, read_file: &no_files }
    }

    /// The profile with this name. A name that ends in `.toml` or has a `/` in it is the path of a
    /// file.
    ///
    /// # Errors
    /// When there is no such profile. The error has no place.
    pub fn find(&self, name: &str) -> Result<FoundProfile, ConfigError> {
        if name.ends_with(".toml") || name.contains('/') {
            let text = (self.read_file)(name).map_err(|reason| {
                ConfigError::new(format!("cannot read profile \"{name}\": {reason}"))
                    .help("use the path of a profile, or the name of a built-in one; zonda drive profiles lists them")
            })?;
            return Ok(FoundProfile { path: Some(name.to_owned()), text });
        }
        let Some((_, text)) = self.builtin.iter().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = self.builtin.iter().map(|(name, _)| *name).collect();
            let help = format!("{}, or a path that ends in .toml", unknown_name_help(name, &names));
            return Err(ConfigError::new(format!("unknown profile \"{name}\"")).help(help));
        };
        Ok(FoundProfile { path: None, text: (*text).to_owned() })
    }
}

impl fmt::Debug for Profiles<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.builtin.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

impl FoundProfile {
    /// Reads the profile, as [`Profile::parse`].
    ///
    /// # Errors
    /// What is wrong with a profile found by its path, at its place in that file.
    ///
    /// # Panics
    /// When a built-in profile is wrong.
    pub fn parse(&self) -> Result<Profile, SpecError> {
        Profile::parse(&self.text).map_err(|error| {
            let Some(path) = self.path.clone() else { panic!("a built-in profile is invalid: {error}") };
            SpecError { error, source: ErrorSource::Profile { path, text: self.text.clone() } }
        })
    }
}
