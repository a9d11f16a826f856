//! `profile`, `payload` and `set`: a drive and the changes of its numbers.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use zonda_config::{ConfigError, Spanned};
use zonda_zoned::PayloadKind;

use super::{Profiles, SpecError, set};
use crate::limits::{MAPPED_BLOCKS_MAX, ZONE_UNITS_MAX, ZONES_MAX};
use crate::profile::Profile;

/// Placeholder of a layer for drives without layers: ignored.
pub type AnyLayer = IgnoredAny;

/// The table of a drive, as written in a file. This crate has no layers: `L` is the caller's type
/// of a layer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveSpec<L = AnyLayer> {
    /// A built-in profile by its name, or a path to a file that ends in `.toml`.
    pub profile: Spanned<String>,
    /// What the drive stores of written data. Default: nothing.
    #[serde(default)]
    pub payload: PayloadSpec,
    /// Dotted keys of the profile, and their new values.
    #[serde(default)]
    pub set: BTreeMap<Spanned<String>, Spanned<toml::Value>>,
    /// Layers around the drive, the innermost first.
    #[serde(default = "Vec::new")]
    pub layer: Vec<Spanned<L>>,
}

/// What the drive stores of written data; see [`PayloadKind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PayloadSpec {
    /// Nothing.
    #[default]
    None,
    /// A 64-bit fingerprint of each block.
    Fingerprints,
    /// Every byte.
    Bytes,
}

/// A drive without layers that has been checked and can be built.
#[derive(Clone, Debug)]
pub struct DrivePlan {
    profile: Profile,
    profile_text: String,
    keeps: PayloadKind,
}

impl<L> DriveSpec<L> {
    /// Finds the profile and changes it. The caller checks `layer`.
    ///
    /// # Errors
    /// The first error, in this table or in the profile that it names.
    pub fn plan(&self, profiles: &Profiles<'_>) -> Result<DrivePlan, SpecError> {
        let found = profiles
            .find(self.profile.get_ref())
            .map_err(|error| SpecError::from(error.within(self.profile.span())))?;
        let (profile, profile_text) = set::apply(&found.text, found.parse()?, &self.set)?;
        self.size_fits(&profile)?;
        Ok(DrivePlan { profile, profile_text, keeps: self.payload.kind() })
    }

    /// A drive that does not fit in memory is rejected here rather than by the operating system.
    fn size_fits(&self, profile: &Profile) -> Result<(), ConfigError> {
        let geometry = profile.geometry();
        let units_of_zone = geometry.zone_capacity_bytes() / profile.flash.erase_unit.0;
        let mapped = u64::from(geometry.conventional_zone_count).saturating_mul(geometry.zone_capacity_blocks.0);
        let sizes = [
            ("geometry.zones", "zones", u64::from(geometry.zone_count), ZONES_MAX),
            ("flash.erase_unit", "erase units in a zone", units_of_zone, ZONE_UNITS_MAX),
            ("geometry.conventional_zones", "blocks in conventional zones", mapped, MAPPED_BLOCKS_MAX),
        ];
        for (key, what, count, max) in sizes {
            if count > max {
                let error = ConfigError::new(format!("a drive with {count} {what} is too large"));
                let error = error.within(set::place_of(key, &self.set).unwrap_or_else(|| self.profile.span()));
                return Err(error.help(format!("the maximum is {max}; reduce {key}")));
            }
        }
        Ok(())
    }
}

impl DrivePlan {
    /// The drive's profile, with all changes.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The text of that profile, which can be parsed again.
    #[must_use]
    pub fn profile_text(&self) -> &str {
        &self.profile_text
    }

    /// What the drive stores of written data.
    #[must_use]
    pub fn keeps(&self) -> PayloadKind {
        self.keeps
    }
}

impl PayloadSpec {
    /// The corresponding kind of the drive.
    #[must_use]
    pub fn kind(self) -> PayloadKind {
        match self {
            PayloadSpec::None => PayloadKind::None,
            PayloadSpec::Fingerprints => PayloadKind::Fingerprints,
            PayloadSpec::Bytes => PayloadKind::Bytes,
        }
    }
}
