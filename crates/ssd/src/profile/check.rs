//! What a profile's numbers must be to each other.

use zonda_config::ByteSize;

use super::{CapScope, FirmwareSpec, Profile};
use crate::limits::{CHANNELS_MAX, DIES_MAX, SERVERS_MAX};

/// A number that cannot be, and what it must be.
#[derive(Debug)]
pub(super) struct Mistake {
    /// Its key, dotted.
    pub(super) key: String,
    pub(super) remedy: String,
}

pub(super) fn check(profile: &Profile) -> Result<(), Mistake> {
    check_sizes(profile)?;
    profile
        .geometry()
        .validate()
        .map_err(|error| mistake(&format!("geometry.{}", as_in_profile(error.field)), &as_in_profile(&error.remedy)))?;
    check_flash(profile)?;
    check_buffer(profile)?;
    check_zones(profile)?;
    check_conventional(profile)?;
    check_firmware(&profile.firmware)
}

/// A geometry's fields by the names that they have in a profile.
fn as_in_profile(text: &str) -> String {
    let names = [
        ("conventional_zone_count", "conventional_zones"),
        ("zone_count", "zones"),
        ("block_size_bytes", "block_size"),
    ];
    let named = names.iter().fold(text.to_owned(), |text, (field, key)| text.replace(field, key));
    named.replace("_blocks", "")
}

fn mistake(key: &str, remedy: &str) -> Mistake {
    Mistake { key: key.to_owned(), remedy: remedy.to_owned() }
}

fn require(holds: bool, key: &str, remedy: &str) -> Result<(), Mistake> {
    if holds { Ok(()) } else { Err(mistake(key, remedy)) }
}

fn check_sizes(profile: &Profile) -> Result<(), Mistake> {
    let geometry = &profile.geometry;
    let block = geometry.block_size.0;
    require((512..=65_536).contains(&block), "geometry.block_size", "must be 512 B to 64 KiB")?;
    let flash = &profile.flash;
    let in_blocks: [(&str, ByteSize); 7] = [
        ("geometry.zone_size", geometry.zone_size),
        ("geometry.zone_capacity", geometry.zone_capacity),
        ("geometry.max_transfer", geometry.max_transfer),
        ("geometry.max_append", geometry.max_append),
        ("flash.read_unit", flash.read_unit),
        ("flash.program_unit", flash.program_unit),
        ("flash.erase_unit", flash.erase_unit),
    ];
    for (key, size) in in_blocks {
        let remedy = format!("must be a multiple of geometry.block_size ({block} B), and not zero");
        require(size.0 > 0 && size.0.is_multiple_of(block), key, &remedy)?;
    }
    Ok(())
}

fn check_flash(profile: &Profile) -> Result<(), Mistake> {
    let flash = &profile.flash;
    require((1..=CHANNELS_MAX).contains(&flash.channels), "flash.channels", "must be 1 to 256")?;
    require(flash.dies_per_channel > 0, "flash.dies_per_channel", "must be at least 1")?;
    require(profile.dies() <= DIES_MAX, "flash.dies_per_channel", "times flash.channels must be at most 4096 dies")?;
    require(
        flash.program_unit.0.is_multiple_of(flash.read_unit.0),
        "flash.program_unit",
        "must be a multiple of flash.read_unit",
    )?;
    require(
        flash.erase_unit.0.is_multiple_of(flash.program_unit.0),
        "flash.erase_unit",
        "must be a multiple of flash.program_unit",
    )?;
    for (key, law) in [("flash.program", &flash.program), ("flash.erase", &flash.erase)] {
        if let Some(remedy) = law.mistake() {
            return Err(mistake(key, remedy));
        }
    }
    if let Some(remedy) = flash.read.mistake() {
        return Err(mistake("flash.read", remedy));
    }
    require(profile.channel.bandwidth.0 > 0, "channel.bandwidth", "must be more than zero")?;
    require(profile.link.read_bandwidth.0 > 0, "link.read_bandwidth", "must be more than zero")?;
    require(profile.link.write_bandwidth.0 > 0, "link.write_bandwidth", "must be more than zero")
}

fn check_buffer(profile: &Profile) -> Result<(), Mistake> {
    let buffer = &profile.write_buffer;
    let stripe = profile.flash.program_unit.0 * u64::from(profile.zones.parallelism);
    let remedy = format!("must hold a program unit for each die of a zone: at least {}", ByteSize(stripe));
    require(buffer.capacity.0 >= stripe, "write_buffer.capacity", &remedy)?;
    let Some(cap) = buffer.cap else { return Ok(()) };
    require(
        profile.geometry.conventional_zones == 0,
        "write_buffer.cap",
        "must be absent where there are conventional zones: their data are not kept by zone",
    )?;
    require(cap.0 >= stripe, "write_buffer.cap", &remedy)?;
    require(cap <= buffer.capacity, "write_buffer.cap", "must be at most write_buffer.capacity")?;
    require(
        buffer.cap_scope == CapScope::Zone || profile.zones.parallelism == 1,
        "write_buffer.cap_scope",
        "can be \"die\" only where zones.parallelism is 1",
    )
}

fn check_zones(profile: &Profile) -> Result<(), Mistake> {
    let zones = &profile.zones;
    let dies = profile.dies();
    require(
        zones.parallelism > 0 && dies.is_multiple_of(zones.parallelism),
        "zones.parallelism",
        &format!("must divide the number of dies ({dies})"),
    )?;
    let stripe = profile.flash.read_unit.0 * u64::from(zones.parallelism);
    require(
        profile.geometry.zone_capacity.0.is_multiple_of(stripe),
        "geometry.zone_capacity",
        &format!("must be a multiple of flash.read_unit times zones.parallelism ({})", ByteSize(stripe)),
    )
}

fn check_conventional(profile: &Profile) -> Result<(), Mistake> {
    if profile.geometry.conventional_zones == 0 {
        return Ok(());
    }
    require(
        profile.conventional.gc_low_units >= 2,
        "conventional.gc_low_units",
        "must be at least 2: one unit is kept for the collector itself",
    )?;
    require(
        profile.flash.erase_unit.0 >= 2 * profile.flash.program_unit.0,
        "flash.erase_unit",
        "must be at least two program units where there are conventional zones: collecting one must free something",
    )?;
    require(
        crate::conventional::physical_blocks(profile) < u64::from(u32::MAX) - 1,
        "geometry.conventional_zones",
        "are more than the translation layer can map (2^32 blocks with over-provisioning): use fewer or smaller zones",
    )
}

fn check_firmware(firmware: &FirmwareSpec) -> Result<(), Mistake> {
    let names: Vec<&str> = firmware.servers.keys().map(String::as_str).collect();
    require(
        (1..=SERVERS_MAX).contains(&names.len()) && firmware.servers.values().all(|&cores| cores > 0),
        "firmware.servers",
        "must name 1 to 16 servers with at least one core each",
    )?;
    let users = [
        ("firmware.read", &firmware.read),
        ("firmware.write", &firmware.write),
        ("firmware.append", &firmware.append),
        ("firmware.manage", &firmware.manage),
        ("firmware.finish", &firmware.finish),
    ];
    let servers =
        users.iter().map(|(key, spec)| (*key, &spec.server)).chain([("firmware.reset", &firmware.reset.server)]);
    for (key, server) in servers {
        let remedy = format!("is \"{server}\", which firmware.servers does not have; it has {}", names.join(", "));
        require(firmware.servers.contains_key(server), &format!("{key}.server"), &remedy)?;
    }
    for (key, spec) in users {
        let laws = [(&spec.serial, "serial"), (&spec.parallel, "parallel")];
        for (law, part) in laws {
            if let Some(remedy) = law.mistake() {
                return Err(mistake(&format!("{key}.{part}"), remedy));
            }
        }
    }
    let reset = &firmware.reset;
    match reset.serial.mistake().or(reset.parallel.mistake()) {
        Some(remedy) => Err(mistake("firmware.reset", remedy)),
        None => Ok(()),
    }
}
