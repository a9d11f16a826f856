//! The profiles that come with zonda.

/// Name and text of each, in the order in which they are listed.
const BUILTIN: &[(&str, &str)] = &[
    ("ezns-small", include_str!("../../profiles/ezns-small.toml")),
    ("zn540", include_str!("../../profiles/zn540.toml")),
    ("zn540-zapraid", include_str!("../../profiles/zn540-zapraid.toml")),
    ("zn540-study", include_str!("../../profiles/zn540-study.toml")),
    ("bae-small", include_str!("../../profiles/bae-small.toml")),
    ("bae-large", include_str!("../../profiles/bae-large.toml")),
    ("silent-custom", include_str!("../../profiles/silent-custom.toml")),
    ("zn540-emulated", include_str!("../../profiles/zn540-emulated.toml")),
    ("conventional", include_str!("../../profiles/conventional.toml")),
    ("tiny", include_str!("../../profiles/tiny.toml")),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn every_built_in_profile_is_valid_and_has_its_own_name() {
        for name in builtin_names() {
            let profile = Profile::parse(builtin_text(name).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(profile.name, name);
        }
    }
}
