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
    /// What is wrong.
    pub message: String,
    /// What to change.
    pub remedy: String,
}

impl fmt::Display for SliceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.remedy)
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
        require(count > 0, "count", || {
            ("a slice needs at least 1 zone".to_owned(), "set count to 1 or more".to_owned())
        })?;
        let end = u64::from(first.0) + u64::from(count);
        require(end <= u64::from(device.zone_count), "count", || {
            let last = u64::from(device.zone_count).saturating_sub(1);
            let wanted = if count == 1 { format!("zone {first}") } else { format!("zones {first} to {}", end - 1) };
            (
                format!("it has {wanted}, but the last zone of the device is {last}"),
                "reduce count, or start at a lower zone (first)".to_owned(),
            )
        })?;
        check_share("max_active_zones", self.max_active_zones, device.max_active_zones)?;
        check_share("max_open_zones", self.max_open_zones, device.max_open_zones)?;
        let zrwa_left = device.zrwa.map_or(0, |zrwa| zrwa.resources);
        require(self.zrwa_resources <= zrwa_left, "zrwa_resources", || {
            let zrwa = self.zrwa_resources;
            exceeds("zrwa_resources", zrwa, zrwa_left)
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
            Err(error) => Err(SliceError {
                field: error.field,
                message: format!("{} {}", error.field, error.remedy),
                remedy: format!("change {}", error.field),
            }),
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
                    (
                        format!("the slices from zone {} and from zone {} overlap", earlier.first, slice.first),
                        "move one of them".to_owned(),
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
    require(share.is_some_and(|share| share <= limit), field, || match share {
        Some(share) => exceeds(field, share, limit),
        None => (
            format!("{field} is missing, and the device has a limit of {limit}"),
            format!("set {field} to at most {limit}"),
        ),
    })
}

fn exceeds(field: &str, share: u32, limit: u32) -> (String, String) {
    (format!("{field} = {share} exceeds {limit}, the limit of the device"), format!("set {field} to at most {limit}"))
}

fn check_sum(field: &'static str, sum: u64, limit: Option<u32>) -> Result<(), SliceError> {
    let Some(limit) = limit else { return Ok(()) };
    require(sum <= u64::from(limit), field, || {
        (
            format!("the sum of {field} of the slices is {sum}, but the device has {limit}"),
            "reduce some of them".to_owned(),
        )
    })
}

/// `error` returns the message and the remedy.
fn require(holds: bool, field: &'static str, error: impl FnOnce() -> (String, String)) -> Result<(), SliceError> {
    if holds {
        return Ok(());
    }
    let (message, remedy) = error();
    Err(SliceError { field, message, remedy })
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
            assert!(!error.message.is_empty() && !error.remedy.is_empty());
        }
        for (max_active_zones, expected) in [
            (Some(9), "max_active_zones = 9 exceeds 3, the limit of the device; set max_active_zones to at most 3"),
            (None, "max_active_zones is missing, and the device has a limit of 3; set max_active_zones to at most 3"),
        ] {
            let error = SliceConfig { max_active_zones, ..half(0) }.geometry(&Geometry::tiny()).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
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
