//! The configuration of a slice.

use std::fmt;

use zonda_zoned::{Geometry, NamespaceId, PayloadKind, ZoneIndex, ZrwaGeometry};

/// The zones of a [`crate::Slice`], and its share of the resources for zones.
///
/// A share is guaranteed only if the shares of all slices of a device together are within its
/// limits: see [`SliceConfig::check_together`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceConfig {
    /// The namespace of the device that contains the slice. The slice itself is
    /// [`NamespaceId::FIRST`].
    pub namespace: NamespaceId,
    /// The first zone, which becomes zone 0 of the slice.
    pub first: ZoneIndex,
    /// Number of zones.
    pub count: u32,
    /// Share of the active resources. `None`, no limit, only where the device has none.
    pub max_active_zones: Option<u32>,
    /// Share of the open resources. `None`, no limit, only where the device has none.
    pub max_open_zones: Option<u32>,
    /// Share of the ZRWA resources; 0: no ZRWAs.
    pub zrwa_resources: u32,
    /// What the device stores of payloads. With [`PayloadKind::Bytes`] the slice refuses a payload
    /// of fingerprints before it changes any state.
    pub keeps: PayloadKind,
}

/// An invalid configuration of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceError {
    /// The field at fault, by its name in [`SliceConfig`].
    pub field: &'static str,
    /// The valid values.
    pub remedy: String,
}

impl fmt::Display for SliceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.remedy)
    }
}

impl std::error::Error for SliceError {}

impl SliceConfig {
    /// The geometry of the slice on a device of this geometry.
    ///
    /// # Errors
    /// The first field that exceeds the device.
    pub fn geometry(&self, device: &Geometry) -> Result<Geometry, SliceError> {
        let SliceConfig { first, count, .. } = *self;
        require(count > 0, "count", || "must be at least 1".to_owned())?;
        require(u64::from(first.0) + u64::from(count) <= u64::from(device.zone_count), "count", || {
            format!(
                "zones {first} to {} do not exist: the device has {} zones; use fewer zones, or start at a lower one",
                u64::from(first.0) + u64::from(count) - 1,
                device.zone_count
            )
        })?;
        check_share("max_active_zones", self.max_active_zones, device.max_active_zones)?;
        check_share("max_open_zones", self.max_open_zones, device.max_open_zones)?;
        let zrwa_left = device.zrwa.map_or(0, |zrwa| zrwa.resources);
        require(self.zrwa_resources <= zrwa_left, "zrwa_resources", || {
            format!("must be at most {zrwa_left}, the number of the device")
        })?;
        let geometry = Geometry {
            zone_count: count,
            conventional_zone_count: device.conventional_zone_count.saturating_sub(first.0).min(count),
            max_active_zones: self.max_active_zones,
            max_open_zones: self.max_open_zones,
            zrwa: device
                .zrwa
                .filter(|_| self.zrwa_resources > 0)
                .map(|zrwa| ZrwaGeometry { resources: self.zrwa_resources, ..zrwa }),
            ..device.clone()
        };
        match geometry.validate() {
            Ok(()) => Ok(geometry),
            Err(error) => Err(SliceError { field: error.field, remedy: error.remedy }),
        }
    }

    /// Checks that these slices of one namespace of this geometry do not overlap, and that the sums
    /// of their shares are within the limits. Then the device never lacks a resource that a slice
    /// has, and never closes a zone on its own.
    ///
    /// # Errors
    /// The first slice that is invalid, overlaps an earlier one, or makes the sum of the shares
    /// exceed a limit.
    pub fn check_together(device: &Geometry, slices: &[SliceConfig]) -> Result<(), SliceError> {
        let (mut active, mut open, mut zrwa) = (0, 0, 0);
        for (index, slice) in slices.iter().enumerate() {
            slice.geometry(device)?;
            let end = |slice: &SliceConfig| slice.first.0 + slice.count;
            for earlier in &slices[..index] {
                let apart = end(earlier) <= slice.first.0 || end(slice) <= earlier.first.0;
                require(apart, "first", || {
                    format!(
                        "the slices from zone {} and from zone {} overlap; move one of them",
                        earlier.first, slice.first
                    )
                })?;
            }
            active += u64::from(slice.max_active_zones.unwrap_or(0));
            open += u64::from(slice.max_open_zones.unwrap_or(0));
            zrwa += u64::from(slice.zrwa_resources);
        }
        check_sum("max_active_zones", active, device.max_active_zones)?;
        check_sum("max_open_zones", open, device.max_open_zones)?;
        check_sum("zrwa_resources", zrwa, device.zrwa.map(|zrwa| zrwa.resources))
    }
}

fn check_share(field: &'static str, share: Option<u32>, limit: Option<u32>) -> Result<(), SliceError> {
    let Some(limit) = limit else { return Ok(()) };
    require(share.is_some_and(|share| share <= limit), field, || {
        format!("must be set, and at most {limit}, the limit of the device")
    })
}

fn check_sum(field: &'static str, sum: u64, limit: Option<u32>) -> Result<(), SliceError> {
    let Some(limit) = limit else { return Ok(()) };
    require(sum <= u64::from(limit), field, || {
        format!("the sum of the shares is {sum}, but the device has {limit}; lower some of them")
    })
}

fn require(holds: bool, field: &'static str, remedy: impl FnOnce() -> String) -> Result<(), SliceError> {
    if holds { Ok(()) } else { Err(SliceError { field, remedy: remedy() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Spoil = fn(&mut SliceConfig);

    fn half(first: u32) -> SliceConfig {
        SliceConfig {
            namespace: NamespaceId::FIRST,
            first: ZoneIndex(first),
            count: 4,
            max_active_zones: Some(1),
            max_open_zones: Some(1),
            zrwa_resources: 0,
            keeps: PayloadKind::None,
        }
    }

    #[test]
    fn exceeding_the_device_is_refused_with_the_field_and_a_remedy() {
        let spoil: [(&str, Spoil); 8] = [
            ("count", |s| s.count = 0),
            ("count", |s| s.first = ZoneIndex(5)),
            ("count", |s| s.first = ZoneIndex(u32::MAX)),
            ("max_active_zones", |s| s.max_active_zones = Some(4)),
            ("max_active_zones", |s| s.max_active_zones = None),
            ("max_open_zones", |s| s.max_open_zones = Some(2)),
            ("max_open_zones", |s| s.max_open_zones = Some(0)),
            ("zrwa_resources", |s| s.zrwa_resources = 1),
        ];
        for (field, spoil) in spoil {
            let mut slice = half(0);
            spoil(&mut slice);
            let error = slice.geometry(&Geometry::tiny()).expect_err(field);
            assert_eq!(error.field, field);
            assert!(!error.remedy.is_empty());
        }
        let error = SliceConfig { max_active_zones: Some(9), ..half(0) }.geometry(&Geometry::tiny()).unwrap_err();
        assert_eq!(error.to_string(), "max_active_zones: must be set, and at most 3, the limit of the device");
    }

    #[test]
    fn conventional_zones_belong_to_the_slices_that_hold_them() {
        let device = Geometry {
            zone_capacity_blocks: Geometry::tiny().zone_size_blocks,
            conventional_zone_count: 5,
            ..Geometry::tiny()
        };
        let counts: Vec<u32> =
            [0, 3, 4].map(|first| half(first).geometry(&device).unwrap().conventional_zone_count).into();
        assert_eq!(counts, [4, 2, 1]);
    }

    #[test]
    fn overlapping_or_oversubscribed_slices_are_refused() {
        let tiny = Geometry::tiny();
        let field_of = |slices: &[SliceConfig]| SliceConfig::check_together(&tiny, slices).err().map(|e| e.field);
        assert_eq!(field_of(&[half(0), half(4)]), None);
        assert_eq!(field_of(&[half(4), half(0)]), None);
        assert_eq!(field_of(&[half(0), half(3)]), Some("first"));
        let two_open = SliceConfig { max_active_zones: Some(2), max_open_zones: Some(2), ..half(0) };
        assert_eq!(field_of(&[two_open, half(4)]), Some("max_open_zones"));
        let three_active = SliceConfig { max_active_zones: Some(3), ..half(0) };
        assert_eq!(field_of(&[three_active, half(4)]), Some("max_active_zones"));
    }
}
