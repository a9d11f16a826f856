//! Drive profiles: everything that distinguishes one SSD from another.
//!
//! A profile is a TOML file with a source for each number; a new drive needs no code. The built-in
//! ones are under `crates/profiles/drives/`; `docs/guide/drives.md` explains each key.

mod bandwidth;
mod check;
mod firmware;
mod geometry;
mod locate;
mod source;
mod sources;
mod spec;

pub use crate::allocation::AllocationKind;
pub use bandwidth::Bandwidth;
pub use firmware::{FirmwareSpec, OpcodeSpec, ResetSpec};
pub use source::{Source, SourceKind};
pub use sources::Sources;
pub use spec::{
    Admission, BufferSpec, CapScope, ChannelSpec, ConventionalSpec, FlashSpec, GeometrySpec, LinkSpec, PageTypeSpec,
    Placement, Profile, ProgramOrder, ZonesSpec, ZrwaSpec,
};

#[cfg(test)]
pub(crate) mod tests {
    use zonda_profiles::{builtin_names, builtin_text};

    use super::*;

    #[test]
    fn every_built_in_profile_is_valid_and_has_its_own_name() {
        for name in builtin_names() {
            let profile = Profile::parse(builtin_text(name).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(profile.name, name);
        }
    }

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
        assert_eq!(error, "missing source of \"link.read_bandwidth\" in [sources]");
    }

    #[test]
    fn distributions_and_times_are_checked_wherever_they_are() {
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
        assert_eq!(error, "[sources] has an entry \"chanel\", which is not a key of the profile");
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
                "firmware.manage.server is \"cpu\", which is not in firmware.servers; it has core",
            ),
        ] {
            assert_eq!(error_of(change, to), expected);
        }
    }

    #[test]
    fn page_types_that_fit_no_program_are_refused_by_their_key() {
        let several = "is for drives that program page by page: flash.program_unit is several pages, of all types";
        for (types, expected) in [
            ("{}, {}", " must divide the number of pages in flash.program_unit, which is 3".to_owned()),
            ("{}, {}, { program_extra = \"1 ms\" }", format!(".2.program_extra {several}")),
            ("{}, {}, { read_extra = \"5000 h\" }", ".2.read_extra must be at most an hour".to_owned()),
        ] {
            let to = format!("page_types = [{types}]\nsuspend_slice");
            assert_eq!(error_of("suspend_slice", &to), format!("flash.page_types{expected}"));
        }
    }

    /// The error of `tiny` with these lines in `[zones]`; with `parallelism`, instead of its 4.
    fn zones_error(lines: &str) -> String {
        let parallelism = if lines.contains("parallelism") { "" } else { "parallelism = 4\n" };
        error_of("allocation = \"fixed\"\nparallelism = 4\n", &format!("{parallelism}{lines}\n"))
    }

    #[test]
    fn every_kind_of_element_is_read_where_it_fits() {
        let text = builtin_text("tiny").expect("tiny is built in");
        for (name, kind) in [
            ("superblock", AllocationKind::Superblock),
            ("block", AllocationKind::Block),
            ("vchunk-2", AllocationKind::Vchunk(2)),
            ("hchunk-1", AllocationKind::Hchunk(1)),
        ] {
            let profile = Profile::parse(&text.replace("\"fixed\"", &format!("\"{name}\""))).unwrap();
            assert_eq!(profile.zones.allocation, kind);
            assert!(toml::to_string(&profile).unwrap().contains(&format!("allocation = \"{name}\"")));
        }
    }

    #[test]
    fn elements_that_do_not_fit_their_zones_are_refused_by_their_key() {
        for (lines, expected) in [
            (
                "allocation = \"superblock\"\nparallelism = 2",
                "zones.parallelism must be the number of dies (4) where zones.allocation is \"superblock\"",
            ),
            (
                "allocation = \"vchunk-3\"",
                "zones.allocation is \"vchunk-3\", and 3 does not divide zones.parallelism (4)",
            ),
            (
                "allocation = \"hchunk-2\"",
                "zones.allocation is \"hchunk-2\", and 2 does not divide the number of erase blocks of a zone on each die, \
                 which is 1: geometry.zone_capacity (1536 KiB) divided by zones.parallelism (4) and flash.erase_unit \
                 (768 KiB), rounded up",
            ),
        ] {
            assert_eq!(zones_error(lines), expected);
        }
        let text = builtin_text("tiny").expect("tiny is built in").replace("\"fixed\"", "\"blocks\"");
        let unknown = Profile::parse(&text).expect_err("no such kind");
        let help = unknown.help.unwrap_or_default();
        assert_eq!(unknown.message, "unknown value \"blocks\" for \"allocation\"");
        assert!(help.contains("block") && help.contains("vchunk-N"), "{help}");
        let nothing = zones_error("allocation = \"vchunk-0\"");
        assert!(nothing.contains("\"vchunk-0\"") && nothing.contains("such as \"vchunk-2\""), "{nothing}");
    }

    #[test]
    fn limits_on_luns_that_no_zone_could_keep_are_refused_by_their_key() {
        let eligible = |parallelism: u32, width: u32| {
            format!(
                "zones.luns_eligible must be at least zones.parallelism ({parallelism}), a multiple of the {width} dies that \
                 an element lies across, and a divisor of the number of dies (4)"
            )
        };
        let fixed = |key: &str| {
            format!("zones.{key} is for flexible allocation: leave it out where zones.allocation is \"fixed\"")
        };
        let least = "zones.luns_min must be at least 1, and at most the dies that an allocation chooses from (4)";
        for (lines, expected) in [
            ("allocation = \"fixed\"\nluns_min = 4", fixed("luns_min")),
            ("allocation = \"fixed\"\nelements_per_lun_max = 4", fixed("elements_per_lun_max")),
            ("allocation = \"fixed\"\nluns_eligible = 4", fixed("luns_eligible")),
            ("allocation = \"block\"\nluns_eligible = 8", eligible(4, 1)),
            ("allocation = \"block\"\nluns_eligible = 2", eligible(4, 1)),
            ("allocation = \"block\"\nluns_eligible = 0", eligible(4, 1)),
            ("allocation = \"block\"\nparallelism = 1\nluns_eligible = 3", eligible(1, 1)),
            ("allocation = \"vchunk-2\"\nparallelism = 2\nluns_eligible = 3", eligible(2, 2)),
            ("allocation = \"block\"\nluns_min = 5", least.to_owned()),
            ("allocation = \"block\"\nluns_min = 0", least.to_owned()),
            (
                "allocation = \"block\"\nparallelism = 2\nluns_eligible = 4\nluns_min = 3",
                "zones.luns_min must be at most 2: a zone has 2 elements, each on 1 die".to_owned(),
            ),
            (
                "allocation = \"block\"\nelements_per_lun_max = 0",
                "zones.elements_per_lun_max must be at least 1: a zone has 4 elements".to_owned(),
            ),
        ] {
            assert_eq!(zones_error(lines), expected, "{lines}");
        }
    }

    #[test]
    fn a_cap_by_die_needs_zones_that_lie_on_one_die() {
        let by_die = "cap = \"512 KiB\"\ncap_scope = \"die\"\n";
        let text = builtin_text("tiny").unwrap().replace("cap = \"512 KiB\"\n", by_die);
        let with = |zones: &str| {
            let zones = format!("parallelism = 1\nallocation = \"block\"\n{zones}\n");
            Profile::parse(&text.replace("allocation = \"fixed\"\nparallelism = 4\n", &zones))
        };
        assert!(with("").is_ok() && with("luns_eligible = 1").is_ok());
        let error = with("luns_eligible = 2").expect_err("zones on two dies").message;
        let expected = "can be \"die\" only where zones.luns_eligible is 1: a zone must lie on one die";
        assert_eq!(error, format!("write_buffer.cap_scope {expected}"));
    }

    #[test]
    fn more_elements_than_the_tables_hold_are_refused() {
        let text = builtin_text("tiny").unwrap();
        let small_units = text
            .replace("read_unit = \"16 KiB\"", "read_unit = \"4 KiB\"")
            .replace("program_unit = \"48 KiB\"", "program_unit = \"4 KiB\"")
            .replace("erase_unit = \"768 KiB\"", "erase_unit = \"4 KiB\"");
        let many = small_units.replace("zones = 16", "zones = 200000");
        assert!(Profile::parse(&many).is_ok(), "fixed allocates the units of zones that are used");
        let error = Profile::parse(&many.replace("\"fixed\"", "\"block\"")).expect_err("too many").message;
        let expected = "makes more than 67108864 elements of the drive's zones: take larger elements or fewer zones";
        assert_eq!(error, format!("zones.allocation {expected}"));

        let large = small_units
            .replace("zone_size = \"2 MiB\"", "zone_size = \"1 TiB\"")
            .replace("zone_capacity = \"1536 KiB\"", "zone_capacity = \"1 TiB\"");
        let error = Profile::parse(&large).expect_err("a zone of a terabyte").message;
        let expected = "must be larger, or geometry.zone_capacity smaller: a zone has more than 67108864 of them";
        assert_eq!(error, format!("flash.erase_unit {expected}"));
    }
}
