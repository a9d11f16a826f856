//! `[drive]`: which drive, with which changes, and what lies around it.

use std::collections::BTreeMap;

use serde::Deserialize;
use zonda_config::{ConfigError, Spanned, did_you_mean_help};
use zonda_layers::SliceConfig;
use zonda_ssd::profile::{Profile, builtin_names, builtin_text};
use zonda_zoned::{Geometry, PayloadKind, ZoneIndex};

use crate::layer::{LayerPlan, LayerSpec};
use crate::limits::{LAYERS_MAX, MAPPED_BLOCKS_MAX, ZONE_UNITS_MAX, ZONES_MAX};
use crate::{ErrorSource, StackError, set};

/// The table `[drive]`, as it stands in a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveSpec {
    /// A built-in profile by its name, or a path to a file that ends in `.toml`.
    pub profile: Spanned<String>,
    /// What the drive keeps of what is written to it. Default nothing.
    #[serde(default)]
    pub payload: PayloadSpec,
    /// Keys of the profile, dotted, and the values they get instead.
    #[serde(default)]
    pub set: BTreeMap<Spanned<String>, Spanned<toml::Value>>,
    /// Layers around the drive, the innermost first.
    #[serde(default)]
    pub layer: Vec<Spanned<LayerSpec>>,
}

/// What the drive keeps of what is written to it; see [`PayloadKind`].
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

/// A drive that has been checked and can be built.
#[derive(Clone, Debug)]
pub struct Drive {
    pub(crate) profile: Profile,
    pub(crate) profile_text: String,
    pub(crate) keeps: PayloadKind,
    pub(crate) layers: Vec<LayerPlan>,
    pub(crate) geometry: Geometry,
}

/// A profile's text, and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundProfile {
    /// The path, if it is not a built-in one.
    pub path: Option<String>,
    /// The text.
    pub text: String,
}

/// For [`find_profile`] where there are no files: profiles can only be built-in ones.
///
/// # Errors
/// Always.
pub fn no_files(_path: &str) -> Result<String, String> {
    Err("there are no files here".to_owned())
}

/// The profile with this name. A name that ends in `.toml` or has a `/` in it is a path, whose text `read_file` gets, or
/// says in a few words why it cannot.
///
/// # Errors
/// When there is no such profile. The error has no place.
pub fn find_profile(
    name: &str,
    read_file: &dyn Fn(&str) -> Result<String, String>,
) -> Result<FoundProfile, ConfigError> {
    if name.ends_with(".toml") || name.contains('/') {
        let text = read_file(name).map_err(|reason| {
            ConfigError::new(format!("the profile \"{name}\" cannot be read: {reason}"))
                .help("write the path of a profile, or the name of a built-in one: zonda drive profiles lists them")
        })?;
        return Ok(FoundProfile { path: Some(name.to_owned()), text });
    }
    let Some(text) = builtin_text(name) else {
        let names: Vec<&str> = builtin_names().collect();
        let help = format!("{}, or a path that ends in .toml", did_you_mean_help(name, &names));
        return Err(ConfigError::new(format!("there is no profile \"{name}\"")).help(help));
    };
    Ok(FoundProfile { path: None, text: text.to_owned() })
}

impl FoundProfile {
    /// Reads the profile, as [`Profile::parse`].
    ///
    /// # Errors
    /// What is wrong with a profile found by its path, at its place in that file.
    ///
    /// # Panics
    /// When a built-in profile is wrong.
    pub fn parse(&self) -> Result<Profile, StackError> {
        Profile::parse(&self.text).map_err(|error| {
            let Some(path) = self.path.clone() else { panic!("a built-in profile is wrong: {error}") };
            StackError { error, source: ErrorSource::Profile { path, text: self.text.clone() } }
        })
    }
}

impl DriveSpec {
    /// Finds the profile, changes it, and checks the layers against it.
    ///
    /// # Errors
    /// The first mistake, in this table or in the profile that it names.
    pub fn check(&self, read_file: &dyn Fn(&str) -> Result<String, String>) -> Result<Drive, StackError> {
        let found = find_profile(self.profile.get_ref(), read_file)
            .map_err(|error| StackError::from(error.within(self.profile.span())))?;
        let (profile, profile_text) = set::apply(&found.text, found.parse()?, &self.set)?;
        self.size_fits(&profile)?;
        let keeps = self.payload.kind();
        if let Some(excess) = self.layer.get(LAYERS_MAX) {
            let error = ConfigError::at(excess, format!("there are {} layers", self.layer.len()));
            return Err(error.help(format!("at most {LAYERS_MAX} are allowed")).into());
        }
        let mut geometry = profile.geometry();
        let mut layers = Vec::with_capacity(self.layer.len());
        for layer in &self.layer {
            layers.push(LayerPlan::new(layer, &mut geometry, keeps)?);
        }
        Ok(Drive { profile, profile_text, keeps, layers, geometry })
    }
}

impl DriveSpec {
    /// A drive that no memory holds is refused here rather than by the operating system.
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
                let error = ConfigError::new(format!("a drive with {count} {what} is too large to be simulated"));
                let error = error.within(set::place_of(key, &self.set).unwrap_or_else(|| self.profile.span()));
                return Err(error.help(format!("at most {max} are possible; {key} decides it")));
            }
        }
        Ok(())
    }
}

impl Drive {
    /// The drive's profile, with all changes.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The text of that profile, which can be read again.
    #[must_use]
    pub fn profile_text(&self) -> &str {
        &self.profile_text
    }

    /// What the drive keeps of what is written to it.
    #[must_use]
    pub fn keeps(&self) -> PayloadKind {
        self.keeps
    }

    /// The namespace that the outermost layer shows.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// A zone of the outermost layer as the drive itself counts it.
    #[must_use]
    pub fn zone_of_drive(&self, zone: ZoneIndex) -> ZoneIndex {
        let offset: u32 = self
            .layers
            .iter()
            .map(|layer| match layer {
                LayerPlan::Slice(SliceConfig { first, .. }) => first.0,
                _ => 0,
            })
            .sum();
        ZoneIndex(zone.0 + offset)
    }
}

impl PayloadSpec {
    /// The drive's word for it.
    #[must_use]
    pub fn kind(self) -> PayloadKind {
        match self {
            PayloadSpec::None => PayloadKind::None,
            PayloadSpec::Fingerprints => PayloadKind::Fingerprints,
            PayloadSpec::Bytes => PayloadKind::Bytes,
        }
    }
}
