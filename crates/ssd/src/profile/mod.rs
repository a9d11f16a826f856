//! A drive as data: everything that tells one SSD from another.
//!
//! A profile is a TOML file with a source for each number; a new drive needs no code. The built-in ones are under
//! `crates/ssd/profiles/`; `docs/guide/drives.md` explains each key.

mod bandwidth;
mod builtin;
mod check;
mod firmware;
mod geometry;
mod locate;
mod source;
mod sources;
mod spec;

pub use bandwidth::Bandwidth;
pub use builtin::{builtin_names, builtin_text};
pub use firmware::{FirmwareSpec, OpcodeSpec, ResetSpec};
pub use source::{Source, SourceKind};
pub use sources::Sources;
pub use spec::{
    Admission, AllocationKind, BufferSpec, CapScope, ChannelSpec, ConventionalSpec, FlashSpec, GeometrySpec, LinkSpec,
    Placement, Profile, ZonesSpec, ZrwaSpec,
};

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The built-in `tiny` drive.
    pub(crate) fn tiny() -> Profile {
        Profile::parse(builtin_text("tiny").expect("tiny is built in")).unwrap()
    }

    /// `tiny` with conventional zones only.
    pub(crate) fn tiny_conventional() -> Profile {
        let mut profile = tiny();
        profile.geometry.zone_size = profile.geometry.zone_capacity;
        profile.geometry.conventional_zones = profile.geometry.zones;
        profile.geometry.zrwa = None;
        profile.write_buffer.cap = None;
        profile
    }

    fn error_of(change: &str, to: &str) -> String {
        let text = builtin_text("tiny").expect("tiny is built in");
        assert!(text.contains(change), "{change}");
        Profile::parse(&text.replace(change, to)).expect_err(to).message
    }

    #[test]
    fn a_number_without_a_source_is_refused_by_its_key() {
        let error = error_of("link = \"assumed: PCIe 3.0 x4 less its overhead\"", "");
        assert_eq!(error, "[sources] does not say where \"link.read_bandwidth\" comes from");
    }

    #[test]
    fn laws_and_times_are_checked_wherever_they_stand() {
        let erase = "erase = { base = \"3 ms\" }";
        for (change, to, expected) in [
            (
                erase,
                "erase = { base = \"2 min\", uniform = \"3 min\" }",
                "flash.erase must have a uniform of at most its base: a time cannot be negative",
            ),
            (
                erase,
                "erase = { base = \"3 ms\", extra = \"1 ms\" }",
                "flash.erase must have both or neither of extra and extra_chance, and of rare and rare_chance",
            ),
            (erase, "erase = { base = \"5000 h\" }", "flash.erase must be made of times of at most an hour"),
            (
                "[link]",
                "read_overhead = [{ time = { uniform = \"50 us\" } }]\n[link]",
                "channel.read_overhead must have a uniform of at most its base: a time cannot be negative",
            ),
            ("[link]", "[link]\nread_overhead = \"8760 h\"", "link.read_overhead must be at most an hour"),
            ("bandwidth = \"800 MiB/s\"", "bandwidth = \"1 B/s\"", "channel.bandwidth must be at least 1 KiB/s"),
        ] {
            assert_eq!(error_of(change, to), expected);
        }
    }

    #[test]
    fn a_mistake_in_a_number_is_shown_at_its_place() {
        let text = builtin_text("tiny").expect("tiny is built in").replace("parallelism = 4", "parallelism = 3");
        let span = Profile::parse(&text).expect_err("three dies of four").span.expect("it has a place");
        assert_eq!(&text[span.clone()], "3");
        assert!(text[..span.start].ends_with("parallelism = "));
    }

    #[test]
    fn a_source_for_nothing_is_refused() {
        let error = error_of("channel = \"assumed: ONFI 4, rounded\"", "channel = \"x\"\nchanel = \"y\"");
        assert_eq!(error, "[sources] speaks of \"chanel\", which the profile does not have");
    }

    #[test]
    fn impossible_numbers_are_refused_by_their_key() {
        for (change, to, expected) in [
            (
                "max_open_zones = 3",
                "max_open_zones = 5",
                "geometry.max_open_zones must be at most max_active_zones: an open zone is active",
            ),
            ("zone_size = \"2 MiB\"", "zone_size = \"1 MiB\"", "geometry.zone_capacity must be at most zone_size"),
            ("parallelism = 4", "parallelism = 3", "zones.parallelism must divide the number of dies (4)"),
            (
                "program_unit = \"48 KiB\"",
                "program_unit = \"40 KiB\"",
                "flash.program_unit must be a multiple of flash.read_unit",
            ),
            (
                "zone_capacity = \"1536 KiB\"",
                "zone_capacity = \"1 MB\"",
                "geometry.zone_capacity must be a multiple of geometry.block_size (4096 B), and not zero",
            ),
            (
                "manage = { server = \"core\"",
                "manage = { server = \"cpu\"",
                "firmware.manage.server is \"cpu\", which firmware.servers does not have; it has core",
            ),
        ] {
            assert_eq!(error_of(change, to), expected);
        }
    }
}
