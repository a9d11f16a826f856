//! The drive of a simulation: a small random profile.
//!
//! It is generated as profile text and parsed, so that it passes every check of a profile file, and
//! so that the drive of a failure can be printed and stored.

use std::fmt::Write;

use zonda_zoned::reference::random_geometry;
use zonda_zoned::{Geometry, PayloadKind, Prng};

use crate::options::{Options, Part};

/// The `[sources]` table, which every profile must have.
const SOURCES: &str = "\
[sources]
geometry = \"generated\"
flash = \"generated\"
channel = \"generated\"
link = \"generated\"
firmware = \"generated\"
write_buffer = \"generated\"
zones = \"generated\"
conventional = \"generated\"
";

/// What the drive stores of payloads: mostly fingerprints, sometimes bytes, seldom nothing.
pub(crate) fn generate_payload_kind(prng: &mut Prng, options: &Options) -> PayloadKind {
    match prng.below(12) {
        0 | 1 if options.has(Part::Bytes) => PayloadKind::Bytes,
        2 => PayloadKind::None,
        _ => PayloadKind::Fingerprints,
    }
}

/// Generates the profile text of a drive.
pub(crate) fn generate_profile(root: &Prng, keeps: PayloadKind, options: &Options) -> String {
    profile_of(root, &generate_geometry(&mut root.fork("geometry"), keeps, options))
}

/// Generates the profile text of a drive with this geometry.
pub(crate) fn profile_of(root: &Prng, geometry: &Geometry) -> String {
    let mut text =
        String::from("name = \"generated\"\ntitle = \"A drive of the simulator\"\ndescription = \"Generated.\"\n\n");
    write_geometry(&mut text, geometry).expect("writing to a string cannot fail");
    let shape = Shape::generate(&mut root.fork("shape"), geometry);
    write_flash(&mut text, &shape, &mut root.fork("flash")).expect("writing to a string cannot fail");
    write_firmware(&mut text, &mut root.fork("firmware")).expect("writing to a string cannot fail");
    let buffer = Buffer::generate(&mut root.fork("buffer"), &shape, geometry);
    buffer.write(&mut text).expect("writing to a string cannot fail");
    write_zones(&mut text, &shape, &buffer, &mut root.fork("zones")).expect("writing to a string cannot fail");
    text + SOURCES
}

/// A random geometry with any option of a namespace, except those that are left out.
fn generate_geometry(prng: &mut Prng, keeps: PayloadKind, options: &Options) -> Geometry {
    let mut geometry = random_geometry(prng);
    if keeps == PayloadKind::Bytes {
        geometry.block_size_bytes = 512; // Small blocks, because every byte is generated and compared.
    }
    if !options.has(Part::Zrwa) {
        geometry.zrwa = None;
    }
    if !options.has(Part::Conventional) {
        geometry.zone_count -= geometry.conventional_zone_count;
        geometry.conventional_zone_count = 0;
    }
    geometry
}

fn write_geometry(text: &mut String, geometry: &Geometry) -> std::fmt::Result {
    let block = u64::from(geometry.block_size_bytes);
    writeln!(text, "[geometry]\nblock_size = \"{block} B\"\nmetadata_bytes = {}", geometry.metadata_bytes)?;
    for (key, blocks) in [
        ("zone_size", geometry.zone_size_blocks),
        ("zone_capacity", geometry.zone_capacity_blocks),
        ("max_transfer", geometry.max_transfer_blocks),
        ("max_append", geometry.max_append_blocks),
    ] {
        writeln!(text, "{key} = \"{} B\"", blocks.0 * block)?;
    }
    writeln!(text, "zones = {}\nconventional_zones = {}", geometry.zone_count, geometry.conventional_zone_count)?;
    for (key, limit) in [("max_active_zones", geometry.max_active_zones), ("max_open_zones", geometry.max_open_zones)] {
        if let Some(limit) = limit {
            writeln!(text, "{key} = {limit}")?;
        }
    }
    writeln!(text, "read_across_zones = {}", geometry.read_across_zones)?;
    writeln!(text, "descriptor_extension_bytes = {}", geometry.descriptor_extension_bytes)?;
    if let Some(zrwa) = &geometry.zrwa {
        writeln!(
            text,
            "zrwa = {{ size = \"{} B\", flush_granularity = \"{} B\", resources = {}, explicit_flush = {} }}",
            zrwa.size_blocks.0 * block,
            zrwa.flush_granularity_blocks.0 * block,
            zrwa.resources,
            zrwa.explicit_flush
        )?;
    }
    writeln!(text)
}

/// Sizes of the flash, which must match the zones.
struct Shape {
    parallelism: u64,
    dies: u64,
    read_unit_bytes: u64,
    program_unit_bytes: u64,
    erase_unit_bytes: u64,
    /// Erase units per zone on each of its dies.
    rows: u64,
}

impl Shape {
    fn generate(prng: &mut Prng, geometry: &Geometry) -> Shape {
        let capacity = geometry.zone_capacity_blocks.0;
        let parallelism = divisor(prng, capacity, 4);
        let read_unit = divisor(prng, capacity / parallelism, 4) * u64::from(geometry.block_size_bytes);
        let program_unit = read_unit * (1 + prng.below(4));
        // Collecting an erase unit of a single program unit would free no space.
        let erase_programs = (1 + prng.below(6)).max(1 + u64::from(geometry.conventional_zone_count.min(1)));
        let erase_unit = program_unit * erase_programs;
        Shape {
            parallelism,
            dies: parallelism * (1 + prng.below(3)),
            read_unit_bytes: read_unit,
            program_unit_bytes: program_unit,
            erase_unit_bytes: erase_unit,
            rows: (capacity / parallelism * u64::from(geometry.block_size_bytes)).div_ceil(erase_unit),
        }
    }

    /// The minimum size of the write buffer: one program unit for each die of a zone.
    fn stripe_bytes(&self) -> u64 {
        self.program_unit_bytes * self.parallelism
    }
}

fn write_flash(text: &mut String, shape: &Shape, prng: &mut Prng) -> std::fmt::Result {
    let channels = divisor(prng, shape.dies, shape.dies);
    writeln!(text, "[flash]\nchannels = {channels}\ndies_per_channel = {}", shape.dies / channels)?;
    writeln!(text, "read_unit = \"{} B\"", shape.read_unit_bytes)?;
    writeln!(text, "program_unit = \"{} B\"", shape.program_unit_bytes)?;
    writeln!(text, "erase_unit = \"{} B\"", shape.erase_unit_bytes)?;
    writeln!(text, "read = [{{ time = {} }}]", distribution(prng, 50_000))?;
    writeln!(text, "program = {}", distribution(prng, 500_000))?;
    writeln!(text, "erase = {}", distribution(prng, 3_000_000))?;
    writeln!(text, "cache_read = {}", prng.chance(1, 2))?;
    if prng.chance(1, 2) {
        let slice_ns = one_of(prng, &[1_000, 50_000, 200_000]);
        writeln!(text, "suspend_slice = \"{slice_ns} ns\"")?;
    }
    let mut bandwidth = || format!("{} MiB/s", one_of(prng, &[1, 40, 800, 3_200]));
    writeln!(text, "\n[channel]\nbandwidth = \"{}\"", bandwidth())?;
    writeln!(text, "\n[link]\nread_bandwidth = \"{}\"\nwrite_bandwidth = \"{}\"\n", bandwidth(), bandwidth())
}

fn write_firmware(text: &mut String, prng: &mut Prng) -> std::fmt::Result {
    let servers: &[&str] = if prng.chance(1, 2) { &["core"] } else { &["core", "other"] };
    let cores: Vec<String> = servers.iter().map(|name| format!("{name} = {}", 1 + prng.below(3))).collect();
    writeln!(text, "[firmware]\nservers = {{ {} }}", cores.join(", "))?;
    for key in ["read", "write", "append", "manage", "finish"] {
        let server = servers[prng.below(servers.len() as u64) as usize];
        let mut parts = format!("server = \"{server}\"");
        for part in ["serial", "parallel"] {
            if prng.chance(3, 4) {
                let mean = one_of(prng, &[500, 5_000, 50_000]);
                parts += &format!(", {part} = [{{ time = {} }}]", distribution(prng, mean));
            }
        }
        writeln!(text, "{key} = {{ {parts} }}")?;
    }
    let server = servers[prng.below(servers.len() as u64) as usize];
    let mut reset = format!(
        "server = \"{server}\", serial = {}, parallel = {}",
        distribution(prng, 40_000),
        distribution(prng, 100_000)
    );
    for (key, time_ns) in [("serial_whole_zone", 100_000), ("serial_partly_written", 40_000), ("piece", 20_000)] {
        if prng.chance(1, 2) {
            reset += &format!(", {key} = \"{time_ns} ns\"");
        }
    }
    writeln!(text, "reset = {{ {reset} }}")?;
    writeln!(text, "zone_open_extra = \"{} ns\"\n", one_of(prng, &[0, 10_000]))
}

/// The write buffer, and other properties generated with it.
struct Buffer {
    capacity_bytes: u64,
    cap_bytes: Option<u64>,
    is_capped_by_die: bool,
    admission: &'static str,
    early_completion: bool,
    placement: &'static str,
    over_provisioning_percent: u64,
    gc_low_units: u64,
}

impl Buffer {
    fn generate(prng: &mut Prng, shape: &Shape, geometry: &Geometry) -> Buffer {
        let stripe = shape.stripe_bytes();
        let block = u64::from(geometry.block_size_bytes);
        let capacity_bytes = stripe * one_of(prng, &[1, 1, 1, 2, 3, 16]) + block * prng.below(4);
        let has_cap = geometry.conventional_zone_count == 0 && prng.chance(1, 2);
        let cap_bytes = has_cap.then(|| stripe + block * prng.below((capacity_bytes - stripe) / block + 1));
        Buffer {
            capacity_bytes,
            cap_bytes,
            is_capped_by_die: has_cap && shape.parallelism == 1 && prng.chance(1, 2),
            admission: ["first-come", "strict", "round-robin"][prng.below(3) as usize],
            early_completion: prng.chance(2, 3),
            placement: if prng.chance(1, 2) { "by-index" } else { "round-robin" },
            over_provisioning_percent: one_of(prng, &[5, 25, 100]),
            gc_low_units: 2 + prng.below(3),
        }
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "[write_buffer]\ncapacity = \"{} B\"", self.capacity_bytes)?;
        if let Some(cap) = self.cap_bytes {
            writeln!(text, "cap = \"{cap} B\"")?;
        }
        if self.is_capped_by_die {
            writeln!(text, "cap_scope = \"die\"")?;
        }
        writeln!(text, "admission = \"{}\"\nearly_completion = {}\n", self.admission, self.early_completion)?;
        writeln!(text, "[conventional]\nover_provisioning_percent = {}", self.over_provisioning_percent)?;
        writeln!(text, "gc_low_units = {}\n", self.gc_low_units)
    }
}

/// Zones with any kind of element that fits, mostly with the default distribution over LUNs.
fn write_zones(text: &mut String, shape: &Shape, buffer: &Buffer, prng: &mut Prng) -> std::fmt::Result {
    let (parallelism, dies, rows) = (shape.parallelism, shape.dies, shape.rows);
    let mut kinds = vec![("fixed".to_owned(), 1, 1), ("block".to_owned(), 1, 1)];
    if parallelism == dies {
        kinds.push(("superblock".to_owned(), dies, 1));
    }
    let divisors = |number: u64| (2..=number).filter(move |divisor| number.is_multiple_of(*divisor));
    kinds.extend(divisors(parallelism).map(|luns| (format!("vchunk-{luns}"), luns, 1)));
    kinds.extend(divisors(rows).map(|units| (format!("hchunk-{units}"), 1, units)));
    let (kind, width, height) = prng.pick(&kinds).expect("the list of kinds is not empty").clone();
    writeln!(text, "[zones]\nallocation = \"{kind}\"\nparallelism = {parallelism}")?;
    writeln!(text, "placement = \"{}\"", buffer.placement)?;
    if kind != "fixed" && prng.chance(1, 2) {
        let elements = parallelism / width * (rows / height);
        let sets: Vec<u64> = (1..=dies / parallelism).filter(|runs| dies.is_multiple_of(runs * parallelism)).collect();
        let eligible = if buffer.is_capped_by_die { parallelism } else { parallelism * one_of(prng, &sets) };
        writeln!(text, "luns_eligible = {eligible}")?;
        let least = 1 + prng.below(eligible.min(elements * width));
        writeln!(text, "luns_min = {least}")?;
        if prng.chance(1, 2) {
            let enough = elements.div_ceil(eligible / width);
            writeln!(text, "elements_per_lun_max = {}", enough + prng.below(elements - enough + 1))?;
        }
    }
    writeln!(text)
}

/// A distribution of service times with a mean of about `mean_ns`: constant, uniform, exponential,
/// bimodal, or with rare long delays.
fn distribution(prng: &mut Prng, mean_ns: u64) -> String {
    match prng.below(6) {
        0 => format!("{{ base = \"{mean_ns} ns\", uniform = \"{} ns\" }}", mean_ns / 4),
        1 => format!("{{ exponential = \"{mean_ns} ns\" }}"),
        2 => format!("{{ base = \"{0} ns\", exponential = \"{0} ns\" }}", mean_ns / 2),
        3 => format!("{{ base = \"{mean_ns} ns\", extra = \"{mean_ns} ns\", extra_chance = 0.3 }}"),
        4 => format!("{{ base = \"{mean_ns} ns\", rare = \"{} ns\", rare_chance = 0.02 }}", mean_ns * 100),
        _ => format!("{{ base = \"{mean_ns} ns\" }}"),
    }
}

/// A divisor of `number` that is at most `most`.
fn divisor(prng: &mut Prng, number: u64, most: u64) -> u64 {
    let divisors: Vec<u64> = (1..=most.min(number)).filter(|candidate| number.is_multiple_of(*candidate)).collect();
    one_of(prng, &divisors)
}

pub(crate) fn one_of(prng: &mut Prng, items: &[u64]) -> u64 {
    *prng.pick(items).expect("the list of choices is not empty")
}

#[cfg(test)]
mod tests {
    use zonda_ssd::profile::Profile;

    use super::*;

    #[test]
    fn every_generated_drive_is_a_valid_profile() {
        for seed in 0..300 {
            let mut root = Prng::new(seed);
            let keeps = generate_payload_kind(&mut root, &Options::default());
            let text = generate_profile(&root, keeps, &Options::default());
            Profile::parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error:?}\n{text}"));
        }
    }

    #[test]
    fn every_kind_of_element_is_generated_with_and_without_limits() {
        let mut kinds = std::collections::BTreeMap::new();
        for seed in 0..1_000 {
            let text = generate_profile(&Prng::new(seed), PayloadKind::Fingerprints, &Options::default());
            let zones = Profile::parse(&text).expect("a generated drive is valid").zones;
            let kind = zones.allocation.to_string();
            let kind = kind.split('-').next().expect("a split has at least one part").to_owned();
            *kinds.entry((kind, zones.luns_eligible.is_some())).or_insert(0) += 1;
        }
        for kind in ["superblock", "block", "vchunk", "hchunk"] {
            for has_limits in [false, true] {
                let count = kinds.get(&(kind.to_owned(), has_limits)).copied().unwrap_or(0);
                assert!(count >= 20, "{kind}, limits {has_limits}: {count} of a thousand");
            }
        }
        assert!(kinds[&("fixed".to_owned(), false)] >= 100, "{kinds:?}");
    }

    #[test]
    fn leaving_out_zrwas_changes_nothing_else() {
        let options = Options { without: [Part::Zrwa].into(), ..Options::default() };
        for seed in 0..50 {
            let root = Prng::new(seed);
            let keeps = PayloadKind::Fingerprints;
            let lines = |options: &Options| {
                let text = generate_profile(&root, keeps, options);
                text.lines().filter(|line| !line.starts_with("zrwa")).map(str::to_owned).collect::<Vec<String>>()
            };
            assert_eq!(lines(&options), lines(&Options::default()));
        }
    }
}
