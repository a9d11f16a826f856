//! The base of the advice: the flash of a drive, and the drives that can be built of it.

use std::collections::BTreeMap;

use toml::{Table, Value};
use zonda_config::{ByteSize, ConfigError, Spanned, unplaced};
use zonda_ssd::allocation::AllocationKind;
use zonda_ssd::profile::{CapScope, Profile};
use zonda_stack::{Drive, DriveSpec, FoundProfile, PayloadSpec, Profiles, StackError};
use zonda_workload::filetrace::PresetSize;

use crate::candidate::{Shape, elements_of};
use crate::limits::{
    ACTIVE_ZONES_ASSUMED, PARALLELISMS_MAX, PRESET_PAGES_MAX, PRESET_SHARE_OF_DRIVE, PRESET_SUPERBLOCKS, SEGMENTS_MAX,
    ZONE_SEGMENTS_MAX, ZONES_MIN,
};

/// Keys of `[zones]` that are valid for one allocation policy only.
const KEYS_OF_A_POLICY: [&str; 3] = ["luns_min", "elements_per_lun_max", "luns_eligible"];

/// A profile, and values derived from it.
#[derive(Clone, Debug)]
pub struct Base {
    profile: Profile,
    text: String,
}

/// The changes of a profile for a shape: keys with their values.
pub type Changes = Vec<(&'static str, Value)>;

impl Base {
    /// The profile that was found.
    ///
    /// # Errors
    /// If the profile is invalid.
    pub fn new(found: &FoundProfile) -> Result<Base, StackError> {
        let profile = found.parse()?;
        let text = without_keys_of_a_policy(&found.text);
        Ok(Base { profile, text })
    }

    /// The profile as it was found.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Bytes of one erase unit on each die.
    #[must_use]
    pub fn superblock_bytes(&self) -> u64 {
        self.profile.flash.erase_unit.0 * u64::from(self.profile.dies())
    }

    /// Capacity of the zones of the profile.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.profile.geometry.zone_capacity.0 * u64::from(self.profile.geometry.zones)
    }

    /// Amount of data that a preset writes on this drive: enough for several zones of every
    /// candidate, limited by the time of a run.
    #[must_use]
    pub fn preset_size(&self) -> PresetSize {
        PresetSize::new(self.preset_bytes()).with_write_rate(self.write_rate_bytes_per_s())
    }

    /// Maximum program bandwidth of all dies, in bytes per second.
    fn write_rate_bytes_per_s(&self) -> u64 {
        let flash = &self.profile.flash;
        let programs = u128::from(flash.program_unit.0) * u128::from(self.profile.dies()) * 1_000_000_000;
        (programs / u128::from(flash.program.base.0.max(1))) as u64
    }

    fn preset_bytes(&self) -> u64 {
        let whole = (PRESET_SUPERBLOCKS * self.superblock_bytes()).min(self.capacity_bytes() / PRESET_SHARE_OF_DRIVE);
        whole.min(PRESET_PAGES_MAX * self.profile.flash.read_unit.0)
    }

    /// The limit on active zones that candidates have, and whether it is assumed.
    #[must_use]
    pub fn active_zones(&self) -> (u32, bool) {
        match self.profile.geometry.max_active_zones {
            Some(zones) => (zones, false),
            None => (ACTIVE_ZONES_ASSUMED, true),
        }
    }

    /// Every shape that this flash allows: over all dies, a half, a quarter, and as many as the
    /// profile; of one segment, two, and as many as the profile has, or four; of every element that
    /// fits.
    #[must_use]
    pub fn shapes(&self) -> Vec<Shape> {
        let dies = self.profile.dies();
        let mut shapes = Vec::new();
        for parallelism in self.parallelisms() {
            for segments in self.segments() {
                let zone_bytes = segments * u64::from(parallelism) * self.profile.flash.erase_unit.0;
                for element in elements_of(parallelism, segments, dies) {
                    shapes.push(Shape { parallelism, segments, zone_bytes, element });
                }
            }
        }
        shapes
    }

    fn parallelisms(&self) -> Vec<u32> {
        let dies = self.profile.dies();
        let mut all = vec![dies, self.profile.zones.parallelism];
        all.extend([2, 4].into_iter().filter(|part| dies.is_multiple_of(*part)).map(|part| dies / part));
        all.sort_unstable_by(|one, other| other.cmp(one));
        all.dedup();
        assert!(all.len() <= PARALLELISMS_MAX, "no duplicates");
        all
    }

    fn segments(&self) -> Vec<u64> {
        let segment = self.profile.flash.erase_unit.0 * u64::from(self.profile.zones.parallelism);
        let own = self.profile.geometry.zone_capacity.0.div_ceil(segment).min(ZONE_SEGMENTS_MAX);
        let all = vec![1, 2, if own > 2 { own } else { 4 }];
        assert!(all.len() <= SEGMENTS_MAX, "no duplicates");
        all
    }

    /// The changes of the profile for a shape, on a drive with a capacity of `capacity_bytes`.
    #[must_use]
    pub fn changes(&self, shape: &Shape, capacity_bytes: u64) -> Changes {
        let geometry = &self.profile.geometry;
        let size = |bytes: u64| Value::String(ByteSize(bytes).to_string());
        let number = |value: u64| Value::Integer(i64::try_from(value).expect("no number of a drive is so large"));
        let has_gap = geometry.zone_size > geometry.zone_capacity;
        let zone_size = if has_gap { shape.zone_bytes.next_power_of_two() } else { shape.zone_bytes };
        let mut changes: Changes = vec![
            ("geometry.zone_size", size(zone_size)),
            ("geometry.zone_capacity", size(shape.zone_bytes)),
            ("geometry.zones", number((capacity_bytes / shape.zone_bytes).max(1))),
            ("zones.allocation", Value::String(shape.element.to_string())),
            ("zones.parallelism", number(shape.parallelism.into())),
            ("zones.placement", Value::String("round-robin".to_owned())),
        ];
        if let (zones, true) = self.active_zones() {
            changes.push(("geometry.max_active_zones", number(zones.into())));
            changes.push(("geometry.max_open_zones", number(zones.into())));
        }
        if geometry.conventional_zones > 0 {
            changes.push(("geometry.conventional_zones", number(0)));
        }
        let buffer = &self.profile.write_buffer;
        if let Some(cap) = buffer.cap.filter(|_| shape.parallelism != self.profile.zones.parallelism) {
            let share = cap.0 / u64::from(self.profile.zones.parallelism) * u64::from(shape.parallelism);
            changes.push(("write_buffer.cap", size(share.min(buffer.capacity.0))));
        }
        if buffer.cap_scope == CapScope::Die && shape.parallelism > 1 {
            changes.push(("write_buffer.cap_scope", Value::String("zone".to_owned())));
        }
        changes
    }

    /// The drive with these zones and a capacity of about `capacity_bytes`.
    ///
    /// # Errors
    /// Why such a drive cannot be built.
    pub fn drive(&self, shape: &Shape, capacity_bytes: u64) -> Result<Drive, ConfigError> {
        let zones = capacity_bytes / shape.zone_bytes;
        if zones < ZONES_MIN {
            let message = format!("the drive would have {zones} zones");
            return Err(ConfigError::new(message).help(format!("at least {ZONES_MIN} are needed")));
        }
        let set = self.changes(shape, capacity_bytes);
        let set: BTreeMap<Spanned<String>, Spanned<Value>> =
            set.into_iter().map(|(key, value)| (unplaced(key.to_owned()), unplaced(value))).collect();
        let spec = DriveSpec {
            profile: unplaced("profile.toml".to_owned()),
            payload: PayloadSpec::None,
            set,
            layer: Vec::new(),
        };
        let read_file = |_: &str| Ok(self.text.clone());
        Drive::new(&spec, &Profiles::new(&[], &read_file)).map_err(|error| error.error)
    }

    /// The zones of the profile, if they are among the candidates.
    #[must_use]
    pub fn own_shape(&self) -> Option<Shape> {
        let zones = &self.profile.zones;
        let is_own = |shape: &Shape| {
            shape.parallelism == zones.parallelism
                && shape.zone_bytes == self.profile.geometry.zone_capacity.0
                && shape.element == zones.allocation
        };
        self.shapes().into_iter().find(is_own)
    }

    /// Bytes of a zone after which every element of its first segment holds data: a page on each of
    /// its dies.
    #[must_use]
    pub fn stripe_bytes(&self, shape: &Shape) -> u64 {
        let step = match shape.element {
            AllocationKind::Vchunk(luns) => luns,
            _ => 1,
        };
        self.profile.flash.read_unit.0 * u64::from(shape.parallelism - step) + 1
    }
}

/// The text without keys of a single policy, and without their sources.
fn without_keys_of_a_policy(text: &str) -> String {
    let mut table: Table = toml::from_str(text).expect("the profile was parsed before");
    let keys = KEYS_OF_A_POLICY;
    let Some(Value::Table(zones)) = table.get_mut("zones") else { return text.to_owned() };
    if !keys.iter().any(|key| zones.contains_key(*key)) {
        return text.to_owned();
    }
    keys.iter().for_each(|key| drop(zones.remove(*key)));
    if let Some(Value::Table(sources)) = table.get_mut("sources") {
        keys.iter().for_each(|key| drop(sources.remove(&format!("zones.{key}"))));
    }
    toml::to_string(&table).expect("a parsed table can be serialized")
}

#[cfg(test)]
mod tests {
    use zonda_profiles::{BUILTIN, builtin_names};

    use super::*;

    fn found(name: &str) -> FoundProfile {
        Profiles::without_files(BUILTIN).find(name).expect("a built-in profile")
    }

    fn base(name: &str) -> Base {
        Base::new(&found(name)).expect("a valid profile")
    }

    #[test]
    fn every_shape_of_the_default_drive_can_be_built() {
        let base = base("silent-custom");
        let shapes = base.shapes();
        assert_eq!(shapes.len(), 45);
        for shape in &shapes {
            let drive = base.drive(shape, base.capacity_bytes()).unwrap_or_else(|error| panic!("{shape}: {error}"));
            let geometry = drive.geometry();
            assert_eq!(geometry.zone_capacity_bytes() * u64::from(geometry.zone_count), 16 << 30, "{shape}");
            assert_eq!(geometry.max_active_zones, Some(ACTIVE_ZONES_ASSUMED));
        }
        assert_eq!(base.own_shape().map(|shape| shape.short()).as_deref(), Some("fixed P16 S256"));
    }

    #[test]
    fn every_built_in_drive_has_candidates_that_can_be_built() {
        for name in builtin_names() {
            let base = base(name);
            let shapes = base.shapes();
            let built = shapes.iter().filter(|shape| base.drive(shape, base.capacity_bytes()).is_ok()).count();
            assert!(built >= 4 && built * 2 >= shapes.len(), "{name}: {built} of {}", shapes.len());
            assert!(base.preset_size().bytes() > 0, "{name}");
        }
    }

    #[test]
    fn keys_of_one_policy_are_left_out_with_their_sources() {
        let text = found("silent-custom").text;
        let text = text
            .replace("allocation = \"fixed\"", "allocation = \"block\"\nluns_min = 8")
            .replace("[sources]", "[sources]\n\"zones.luns_min\" = \"assumed: for a test\"");
        let base = Base::new(&FoundProfile { path: Some("a.toml".to_owned()), text }).expect("the profile is valid");
        for shape in base.shapes() {
            assert!(base.drive(&shape, base.capacity_bytes()).is_ok(), "{shape}");
        }
    }
}
