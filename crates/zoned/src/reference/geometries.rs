//! Small namespaces of every kind, for comparing implementations with the oracle.

use crate::{Blocks, Geometry, Prng, ZrwaGeometry};

/// A valid geometry of at most sixteen zones of at most forty blocks, with any combination of what
/// a namespace may have: metadata, conventional zones, a capacity below the size, limits, ZRWAs,
/// descriptor extensions, reads across zones. At least three of its zones are sequential.
#[must_use]
pub fn random_geometry(prng: &mut Prng) -> Geometry {
    let zone_size_blocks = one_of(prng, &[8, 16, 32, 10, 12, 24, 36, 40]);
    let conventional_zone_count = if prng.chance(1, 3) { 1 + prng.below(3) as u32 } else { 0 };
    let zone_capacity_blocks = if conventional_zone_count > 0 || prng.chance(1, 3) {
        zone_size_blocks
    } else {
        zone_size_blocks - prng.below(zone_size_blocks / 2)
    };
    let max_open = 1 + prng.below(4) as u32;
    let (max_active_zones, max_open_zones) = match prng.below(6) {
        0 => (None, None),
        1 => (None, Some(max_open)),
        _ => (Some(max_open + prng.below(3) as u32), Some(max_open)),
    };
    let max_transfer_blocks = one_of(prng, &[1, 4, 7, 8, 16, 64]);
    let geometry = Geometry {
        block_size_bytes: one_of(prng, &[512, 4096]) as u32,
        metadata_bytes: one_of(prng, &[0, 8, 64]) as u16,
        zone_size_blocks: Blocks(zone_size_blocks),
        zone_capacity_blocks: Blocks(zone_capacity_blocks),
        zone_count: conventional_zone_count + 3 + prng.below(11) as u32,
        conventional_zone_count,
        max_active_zones,
        max_open_zones,
        max_transfer_blocks: Blocks(max_transfer_blocks),
        max_append_blocks: Blocks(1 + prng.below(max_transfer_blocks)),
        zrwa: if prng.chance(1, 2) { Some(random_zrwa(prng, zone_capacity_blocks)) } else { None },
        read_across_zones: prng.chance(1, 2),
        descriptor_extension_bytes: one_of(prng, &[0, 64, 128]) as u32,
    };
    assert_eq!(geometry.validate(), Ok(()), "a random geometry is valid");
    geometry
}

fn random_zrwa(prng: &mut Prng, zone_capacity_blocks: u64) -> ZrwaGeometry {
    let granularities: Vec<u64> = (1..=8).filter(|blocks| zone_capacity_blocks.is_multiple_of(*blocks)).collect();
    let granularity = one_of(prng, &granularities);
    let granules = 1 + prng.below((zone_capacity_blocks / granularity).min(4));
    ZrwaGeometry {
        size_blocks: Blocks(granularity * granules),
        flush_granularity_blocks: Blocks(granularity),
        resources: 1 + prng.below(3) as u32,
        explicit_flush: prng.chance(2, 3),
    }
}

fn one_of(prng: &mut Prng, items: &[u64]) -> u64 {
    *prng.pick(items).expect("the slice is not empty")
}

#[cfg(test)]
mod tests {
    use super::*;

    type HasOption = fn(&Geometry) -> bool;

    #[test]
    fn random_geometries_are_valid_and_meet_every_option() {
        let mut prng = Prng::new(1);
        let geometries: Vec<Geometry> = (0..300).map(|_| random_geometry(&mut prng)).collect();
        let options: [(&str, HasOption); 13] = [
            ("blocks of 4096 bytes", |g| g.block_size_bytes == 4096),
            ("no metadata", |g| g.metadata_bytes == 0),
            ("metadata of 64 bytes", |g| g.metadata_bytes == 64),
            ("conventional zones", |g| g.conventional_zone_count > 0),
            ("a capacity below the size", |g| g.zone_capacity_blocks < g.zone_size_blocks),
            ("zones that are a power of two", |g| g.zone_size_blocks.0.is_power_of_two()),
            ("no active limit, but an open one", |g| g.max_active_zones.is_none() && g.max_open_zones.is_some()),
            ("limits that are equal", |g| g.max_active_zones.is_some() && g.max_active_zones == g.max_open_zones),
            ("ZRWAs", |g| g.zrwa.is_some()),
            ("ZRWAs with explicit flush", |g| g.zrwa.is_some_and(|zrwa| zrwa.explicit_flush)),
            ("reads across zones", |g| g.read_across_zones),
            ("descriptor extensions", |g| g.descriptor_extension_bytes > 0),
            ("no limits", |g| g.max_active_zones.is_none() && g.max_open_zones.is_none()),
        ];
        for (option, has) in options {
            let with = geometries.iter().filter(|geometry| has(geometry)).count();
            assert!((10..290).contains(&with), "{with} of 300 have {option}");
        }
    }
}
