//! An SSD of any geometry.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of this")]

pub mod real;
pub mod volume;

use zonda_config::{ByteSize, TimeSpan};
use zonda_profiles::builtin_text;
use zonda_ssd::Ssd;
use zonda_ssd::profile::Profile;
use zonda_zoned::{Geometry, PayloadKind, Prng};

/// An SSD, and its profile.
pub fn ssd(geometry: &Geometry, keeps: PayloadKind) -> (Ssd, Profile) {
    let mut prng = Prng::new(u64::from(geometry.zone_count)).fork("conformance/ssd");
    let profile = profile_of(geometry, &mut prng);
    (Ssd::new(&profile, keeps, &prng.fork("drive")), profile)
}

/// Power cycles a drive.
pub fn cycle(drive: Ssd, profile: &Profile) -> Ssd {
    let mut prng = Prng::new(5);
    let media = drive.power_loss(&mut prng);
    Ssd::power_on(profile, media, &prng)
}

/// A drive of this geometry, with hardware that varies.
fn profile_of(geometry: &Geometry, prng: &mut Prng) -> Profile {
    let text = builtin_text("tiny").expect("tiny is built in");
    let mut profile = Profile::parse(text).expect("built-in profiles are valid");
    let block = u64::from(geometry.block_size_bytes);
    profile.geometry = geometry.into();
    let flash = &mut profile.flash;
    flash.read_unit = ByteSize(block);
    flash.program_unit = ByteSize(block * (1 + prng.below(4)));
    flash.erase_unit = ByteSize(flash.program_unit.0 * (2 + prng.below(3)));
    flash.cache_read = prng.chance(1, 2);
    flash.suspend_slice = TimeSpan([0, 100_000][prng.below(2) as usize]);
    let capacity_blocks = geometry.zone_capacity_blocks.0;
    let divides = |width: &u64| capacity_blocks.is_multiple_of(*width) && prng.chance(1, 2);
    profile.zones.parallelism = [4, 2, 1].into_iter().find(divides).unwrap_or(1) as u32;
    let stripe = profile.flash.program_unit.0 * u64::from(profile.zones.parallelism);
    profile.write_buffer.capacity = ByteSize(stripe + block * 4);
    profile.write_buffer.cap = (geometry.conventional_zone_count == 0).then_some(ByteSize(stripe));
    assert_eq!(&profile.geometry(), geometry);
    profile
}
