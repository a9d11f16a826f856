//! Small drives with flexible zone allocation, and the expected cost of an allocation, by
//! exhaustive search.

use zonda_profiles::builtin_text;
use zonda_ssd::allocation::{AllocationKind, ElementTable};
use zonda_ssd::profile::Profile;

/// Erase unit of the drives here, which is also their program unit: 48 KiB.
pub const UNIT_KIB: u64 = 48;

/// The shape of a drive: `zones` zones of `rows` erase units on each of `slots` of its `luns` LUNs.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub luns: u32,
    pub slots: u32,
    pub rows: u32,
    pub zones: u32,
}

/// A drive of this shape, with these lines in `[zones]`.
///
/// # Panics
/// When the lines are invalid.
pub fn profile_of(shape: Shape, zones: &str) -> Profile {
    let Shape { luns, slots, rows, zones: count } = shape;
    let capacity_kib = UNIT_KIB * u64::from(slots * rows);
    let mut text = builtin_text("tiny").expect("tiny is built in").to_owned();
    let lines = format!("parallelism = {slots}\n{zones}\n");
    for (line, by) in [
        ("zone_size = \"2 MiB\"", format!("zone_size = \"{capacity_kib} KiB\"")),
        ("zone_capacity = \"1536 KiB\"", format!("zone_capacity = \"{capacity_kib} KiB\"")),
        ("zones = 16", format!("zones = {count}")),
        ("max_active_zones = 4\n", String::new()),
        ("max_open_zones = 3\n", String::new()),
        (
            "zrwa = { size = \"64 KiB\", flush_granularity = \"16 KiB\", resources = 2, explicit_flush = true }",
            String::new(),
        ),
        ("max_transfer = \"256 KiB\"", "max_transfer = \"48 KiB\"".to_owned()),
        ("max_append = \"64 KiB\"", "max_append = \"48 KiB\"".to_owned()),
        ("channels = 2", format!("channels = {luns}")),
        ("dies_per_channel = 2", "dies_per_channel = 1".to_owned()),
        ("erase_unit = \"768 KiB\"", format!("erase_unit = \"{UNIT_KIB} KiB\"")),
        ("cap = \"512 KiB\"\n", String::new()),
        ("allocation = \"fixed\"\nparallelism = 4\n", lines),
    ] {
        assert!(text.contains(line), "{line}");
        text = text.replace(line, &by);
    }
    Profile::parse(&text).unwrap_or_else(|error| panic!("{shape:?}, {zones}: {error:?}"))
}

/// The choices of a profile's allocations, computed from its keys in the simplest way.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub luns: usize,
    /// LUNs that an element lies across.
    pub width: usize,
    /// Elements of a zone.
    pub elements: usize,
    /// Elements of a zone one after the other.
    pub rows: usize,
    /// LUN groups of one allocation, the least it takes, and the most elements of one.
    pub groups: usize,
    pub groups_min: usize,
    pub per_group_max: usize,
}

impl Rules {
    pub fn of(profile: &Profile) -> Rules {
        let zones = &profile.zones;
        let slots = zones.parallelism as usize;
        let luns = profile.dies() as usize;
        let units = (profile.geometry.zone_capacity.0 as usize / slots).div_ceil(profile.flash.erase_unit.0 as usize);
        let (width, height) = match zones.allocation {
            AllocationKind::Block | AllocationKind::Fixed => (1, 1),
            AllocationKind::Superblock => (luns, 1),
            AllocationKind::Vchunk(luns) => (luns as usize, 1),
            AllocationKind::Hchunk(units) => (1, units as usize),
        };
        let elements = slots / width * (units / height);
        let groups_min = (zones.luns_min.map_or(slots, |least| least as usize)).div_ceil(width);
        Rules {
            luns,
            width,
            elements,
            rows: units / height,
            groups: zones.luns_eligible.map_or(slots, |luns| luns as usize) / width,
            groups_min,
            per_group_max: zones.elements_per_lun_max.map_or(elements.div_ceil(groups_min), |most| most as usize),
        }
    }

    pub fn sets(&self) -> usize {
        self.luns / self.width / self.groups
    }

    /// Elements of each group of LUNs.
    pub fn per_group(&self, table: &ElementTable) -> usize {
        table.elements.len() / (self.luns / self.width)
    }

    /// The free elements' wear in each group of a set.
    pub fn wear_in_set(&self, table: &ElementTable, set: usize) -> Vec<Vec<u64>> {
        self.wear_in_groups(table, set * self.groups..(set + 1) * self.groups)
    }

    pub fn wear_in_groups(&self, table: &ElementTable, groups: std::ops::Range<usize>) -> Vec<Vec<u64>> {
        let per_group = self.per_group(table);
        let free = |group: usize| {
            let elements = &table.elements[group * per_group..(group + 1) * per_group];
            elements.iter().filter(|element| element.state.is_free()).map(|element| u64::from(element.erases)).collect()
        };
        groups.map(free).collect()
    }
}

/// The least total wear of `elements` elements, at most `per_group_max` of a group and of at least
/// `groups_min` groups, found by trying all sets of elements.
pub fn least_wear_by_trying_all(
    groups: &[Vec<u64>],
    elements: usize,
    groups_min: usize,
    per_group_max: usize,
) -> Option<u64> {
    let all: Vec<(usize, u64)> =
        groups.iter().enumerate().flat_map(|(group, wear)| wear.iter().map(move |wear| (group, *wear))).collect();
    assert!(all.len() <= 20, "{} elements are too many to try all", all.len());
    let sets = (0_u32..1 << all.len()).filter(|set| set.count_ones() as usize == elements);
    let wear_of = |set: u32| {
        let mut taken = vec![0; groups.len()];
        let mut wear = 0;
        for (index, (group, element_wear)) in all.iter().enumerate() {
            if set & 1 << index != 0 {
                taken[*group] += 1;
                wear += element_wear;
            }
        }
        let groups_taken = taken.iter().filter(|taken| **taken > 0).count();
        (groups_taken >= groups_min && taken.iter().all(|taken| *taken <= per_group_max)).then_some(wear)
    };
    sets.filter_map(wear_of).min()
}
