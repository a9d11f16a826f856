//! Consistency checks of the numbers of a profile.

use zonda_config::ByteSize;

use super::{AllocationKind, CapScope, FirmwareSpec, Profile};
use crate::allocation::ElementGrid;
use crate::limits::{
    BANDWIDTH_MIN, CHANNELS_MAX, DIES_MAX, ELEMENTS_MAX, GC_LOW_UNITS_MAX, PAGE_TYPES_MAX, SERVERS_MAX,
    SERVICE_TIME_MAX_NS,
};

/// An invalid number, and what it must be.
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
    check_page_types(profile)?;
    check_buffer(profile)?;
    check_zones(profile)?;
    check_conventional(profile)?;
    check_firmware(&profile.firmware)?;
    check_times(profile)
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
        // A size is often derived from the capacity: the error must name the value that was given.
        ("geometry.zone_capacity", geometry.zone_capacity),
        ("geometry.zone_size", geometry.zone_size),
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
    require(profile.channel.bandwidth.0 >= BANDWIDTH_MIN, "channel.bandwidth", "must be at least 1 KiB/s")?;
    require(profile.link.read_bandwidth.0 >= BANDWIDTH_MIN, "link.read_bandwidth", "must be at least 1 KiB/s")?;
    require(profile.link.write_bandwidth.0 >= BANDWIDTH_MIN, "link.write_bandwidth", "must be at least 1 KiB/s")
}

fn check_page_types(profile: &Profile) -> Result<(), Mistake> {
    let (flash, key) = (&profile.flash, "flash.page_types");
    let (types, pages) = (flash.page_types.len(), flash.program_unit.0 / flash.read_unit.0);
    if types == 0 {
        return Ok(());
    }
    require(types <= PAGE_TYPES_MAX, key, "must be at most 8")?;
    let is_whole = pages == 1 || pages.is_multiple_of(types as u64);
    let remedy = format!("must divide the number of pages in flash.program_unit, which is {pages}");
    require(is_whole, key, &remedy)?;
    // The layer under conventional zones does not keep what types its pages have.
    require(profile.geometry.conventional_zones == 0, key, "is for drives without conventional zones")?;
    for (index, page) in flash.page_types.iter().enumerate() {
        for (name, time) in [("read_extra", page.read_extra), ("program_extra", page.program_extra)] {
            let key = format!("{key}.{index}.{name}");
            require(time.0 <= SERVICE_TIME_MAX_NS, &key, "must be at most an hour")?;
        }
        let remedy = "is for drives that program page by page: flash.program_unit is several pages, of all types";
        require(pages == 1 || page.program_extra.0 == 0, &format!("{key}.{index}.program_extra"), remedy)?;
    }
    Ok(())
}

fn check_buffer(profile: &Profile) -> Result<(), Mistake> {
    let buffer = &profile.write_buffer;
    let stripe = profile.flash.program_unit.0 * u64::from(profile.zones.parallelism);
    let remedy = format!("must hold a program unit for each die of a zone: at least {}", ByteSize(stripe));
    require(buffer.capacity.0 >= stripe, "write_buffer.capacity", &remedy)?;
    let quotas = [
        ("write_buffer.reset_quota", buffer.reset_quota),
        ("write_buffer.reset_quota_per_zone", buffer.reset_quota_per_zone),
    ];
    for (key, quota) in quotas {
        let page = profile.flash.read_unit;
        require(quota.is_none_or(|quota| quota >= page), key, "must be at least flash.read_unit")?;
    }
    let Some(cap) = buffer.cap else { return Ok(()) };
    require(
        profile.geometry.conventional_zones == 0,
        "write_buffer.cap",
        "must be absent if there are conventional zones: their data is not stored by zone",
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
    )?;
    check_elements(profile)
}

/// The elements of zones, and the limits on the LUNs that an allocation chooses from.
fn check_elements(profile: &Profile) -> Result<(), Mistake> {
    let (zones, dies, kind) = (&profile.zones, profile.dies(), profile.zones.allocation);
    let units_per_lun =
        (profile.geometry.zone_capacity.0 / u64::from(zones.parallelism)).div_ceil(profile.flash.erase_unit.0);
    require(
        units_per_lun * u64::from(zones.parallelism) <= ELEMENTS_MAX,
        "flash.erase_unit",
        &format!("must be larger, or geometry.zone_capacity smaller: a zone has more than {ELEMENTS_MAX} of them"),
    )?;
    match kind {
        AllocationKind::Fixed => {
            let keys = [
                ("zones.luns_min", zones.luns_min),
                ("zones.elements_per_lun_max", zones.elements_per_lun_max),
                ("zones.luns_eligible", zones.luns_eligible),
            ];
            for (key, value) in keys {
                let remedy = "is for flexible allocation: leave it out where zones.allocation is \"fixed\"";
                require(value.is_none(), key, remedy)?;
            }
            return Ok(());
        }
        AllocationKind::Superblock => require(
            zones.parallelism == dies,
            "zones.parallelism",
            &format!("must be the number of dies ({dies}) where zones.allocation is \"superblock\""),
        )?,
        AllocationKind::Vchunk(luns) => require(
            zones.parallelism.is_multiple_of(luns),
            "zones.allocation",
            &format!("is \"{kind}\", and {luns} does not divide zones.parallelism ({})", zones.parallelism),
        )?,
        AllocationKind::Hchunk(units) => require(
            units_per_lun.is_multiple_of(u64::from(units)),
            "zones.allocation",
            &format!(
                "is \"{kind}\", and {units} does not divide the number of erase blocks of a zone on each die, which is \
                 {units_per_lun}: geometry.zone_capacity ({}) divided by zones.parallelism ({}) and flash.erase_unit ({}), \
                 rounded up",
                profile.geometry.zone_capacity, zones.parallelism, profile.flash.erase_unit
            ),
        )?,
        AllocationKind::Block => {}
    }
    check_luns(profile)
}

fn check_luns(profile: &Profile) -> Result<(), Mistake> {
    let (zones, dies) = (&profile.zones, profile.dies());
    let width = ElementGrid::new(profile).width;
    let eligible = zones.luns_eligible.unwrap_or(zones.parallelism);
    require(
        eligible >= zones.parallelism && eligible.is_multiple_of(width) && dies.is_multiple_of(eligible),
        "zones.luns_eligible",
        &format!(
            "must be at least zones.parallelism ({}), a multiple of the {width} dies that an element lies across, and a \
             divisor of the number of dies ({dies})",
            zones.parallelism
        ),
    )?;
    require(
        zones.luns_min.is_none_or(|least| (1..=eligible).contains(&least)),
        "zones.luns_min",
        &format!("must be at least 1, and at most the dies that an allocation chooses from ({eligible})"),
    )?;
    let grid = ElementGrid::new(profile);
    let elements = grid.elements_per_zone();
    require(
        grid.groups_min <= elements,
        "zones.luns_min",
        &format!(
            "must be at most {}: a zone has {elements} elements, each on {width} die{}",
            elements * width,
            if width == 1 { "" } else { "s" }
        ),
    )?;
    let groups = grid.groups_eligible;
    require(
        u64::from(grid.per_group_max) * u64::from(groups) >= u64::from(elements),
        "zones.elements_per_lun_max",
        &format!("must be at least {}: a zone has {elements} elements", elements.div_ceil(groups)),
    )?;
    require(
        grid.elements() <= ELEMENTS_MAX,
        "zones.allocation",
        &format!("makes more than {ELEMENTS_MAX} elements of the drive's zones: take larger elements or fewer zones"),
    )?;
    let is_on_one_die = zones.parallelism == 1 && eligible == 1;
    let buffer = &profile.write_buffer;
    require(
        buffer.cap.is_none() || buffer.cap_scope == CapScope::Zone || is_on_one_die,
        "write_buffer.cap_scope",
        "can be \"die\" only where zones.luns_eligible is 1: a zone must lie on one die",
    )
}

fn check_conventional(profile: &Profile) -> Result<(), Mistake> {
    if profile.geometry.conventional_zones == 0 {
        return Ok(());
    }
    require(
        (2..=GC_LOW_UNITS_MAX).contains(&profile.conventional.gc_low_units),
        "conventional.gc_low_units",
        "must be 2 to 1024: one unit is reserved for the collector",
    )?;
    require(
        profile.conventional.over_provisioning_percent <= 1_000,
        "conventional.over_provisioning_percent",
        "must be at most 1000",
    )?;
    require(
        profile.conventional.wear_leveling_erases.is_none_or(|erases| erases > 0),
        "conventional.wear_leveling_erases",
        "must be at least 1: leave it out for no wear leveling",
    )?;
    require(
        profile.conventional.map_cache.is_none_or(|size| size >= profile.flash.read_unit),
        "conventional.map_cache",
        "must hold a page of the map: at least flash.read_unit",
    )?;
    require(
        profile.flash.erase_unit.0 >= 2 * profile.flash.program_unit.0,
        "flash.erase_unit",
        "must be at least two program units if there are conventional zones: collecting one must free space",
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
        let remedy = format!("is \"{server}\", which is not in firmware.servers; it has {}", names.join(", "));
        require(firmware.servers.contains_key(server), &format!("{key}.server"), &remedy)?;
    }
    let reset = &firmware.reset;
    let is_exclusive = reset.exclusive_share > 0.0;
    require(
        (0.0..=1.0).contains(&reset.exclusive_share),
        "firmware.reset.exclusive_share",
        "must be 0 to 1: the part of firmware.reset.serial_whole_zone",
    )?;
    require(
        !is_exclusive || reset.piece.0 == 0,
        "firmware.reset.piece",
        "must be absent where there is exclusive_share: such work does not delay commands",
    )?;
    require(
        reset.mapping_bytes_per_block == 0 || (is_exclusive && reset.mapping_bytes_per_block <= 64),
        "firmware.reset.mapping_bytes_per_block",
        "must be at most 64, and absent where there is no exclusive_share",
    )?;
    Ok(())
}

/// Checks every distribution and every plain time of a profile.
fn check_times(profile: &Profile) -> Result<(), Mistake> {
    let (flash, channel, link, firmware) = (&profile.flash, &profile.channel, &profile.link, &profile.firmware);
    let reset = &firmware.reset;
    let distributions = [
        ("flash.program", &flash.program),
        ("flash.erase", &flash.erase),
        ("firmware.reset.serial", &reset.serial),
        ("firmware.reset.parallel", &reset.parallel),
    ];
    let by_size = [
        ("flash.read", &flash.read),
        ("channel.read_overhead", &channel.read_overhead),
        ("firmware.read.serial", &firmware.read.serial),
        ("firmware.read.parallel", &firmware.read.parallel),
        ("firmware.write.serial", &firmware.write.serial),
        ("firmware.write.parallel", &firmware.write.parallel),
        ("firmware.append.serial", &firmware.append.serial),
        ("firmware.append.parallel", &firmware.append.parallel),
        ("firmware.manage.serial", &firmware.manage.serial),
        ("firmware.manage.parallel", &firmware.manage.parallel),
        ("firmware.finish.serial", &firmware.finish.serial),
        ("firmware.finish.parallel", &firmware.finish.parallel),
    ];
    let times = [
        ("flash.suspend_slice", flash.suspend_slice),
        ("flash.suspend_latency", flash.suspend_latency),
        ("flash.erase_suspend_latency", flash.erase_suspend_latency.unwrap_or_default()),
        ("flash.resume_latency", flash.resume_latency),
        ("channel.read_command", channel.read_command),
        ("channel.write_overhead", channel.write_overhead),
        ("link.read_overhead", link.read_overhead),
        ("link.write_overhead", link.write_overhead),
        ("firmware.zone_open_extra", firmware.zone_open_extra),
        ("firmware.reset.serial_whole_zone", reset.serial_whole_zone),
        ("firmware.reset.serial_partly_written", reset.serial_partly_written),
        ("firmware.reset.piece", reset.piece),
    ];
    let time_mistakes = distributions.iter().map(|(key, time)| (*key, time.mistake()));
    let by_size_mistakes = by_size.iter().map(|(key, time)| (*key, time.mistake()));
    for (key, found) in time_mistakes.chain(by_size_mistakes) {
        if let Some(remedy) = found {
            return Err(mistake(key, remedy));
        }
    }
    for (key, time) in times {
        require(time.0 <= SERVICE_TIME_MAX_NS, key, "must be at most an hour")?;
    }
    Ok(())
}
