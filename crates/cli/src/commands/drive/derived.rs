//! Figures derived from a profile: sizes, and the maximum bandwidth of each resource.

use serde::Serialize;
use zonda_ssd::allocation::ElementTracker;
use zonda_ssd::profile::Profile;
use zonda_ssd::service_time::BySize;
use zonda_zoned::Duration;

use crate::units;

/// Figures that are not in a profile. Bandwidths are those of one kind of resource alone, fully
/// busy with large requests, in bytes per second; the smallest is the maximum bandwidth of the
/// drive.
#[derive(Debug, Serialize)]
pub(super) struct Derived {
    /// Capacity of all zones.
    capacity_bytes: u64,
    /// Zones of the drive.
    zones: u32,
    /// Zone capacity.
    zone_capacity_bytes: u64,
    /// Dies of the drive.
    dies: u32,
    /// All dies programming: a die receives a unit, then programs it.
    program_bytes_per_second: u64,
    /// All dies sensing full pages.
    sense_bytes_per_second: u64,
    /// All channels transferring full pages from the dies.
    channels_read_bytes_per_second: u64,
    /// All channels transferring full pages to the dies.
    channels_write_bytes_per_second: u64,
    /// The link to the host.
    link_read_bytes_per_second: u64,
    /// The link from the host.
    link_write_bytes_per_second: u64,
    /// Zone allocation; absent if all zones are conventional.
    allocation: Option<Allocation>,
}

/// The zone allocation policy and its costs.
#[derive(Debug, Serialize)]
struct Allocation {
    policy: String,
    /// Storage elements of a zone; erase blocks for `fixed`.
    elements_per_zone: u32,
    /// Size of one element.
    element_bytes: u64,
    /// Elements of the drive.
    elements: u64,
    /// Size of the table that maps zones to elements.
    mapping_bytes: u64,
    /// Padding written by a finish of a zone that is 10% full.
    finish_at_10_percent_pads_bytes: u64,
    /// Padding written by a finish of a zone that is 50% full.
    finish_at_50_percent_pads_bytes: u64,
}

impl Allocation {
    fn of(profile: &Profile) -> Option<Allocation> {
        let geometry = profile.geometry();
        if geometry.conventional_zone_count == geometry.zone_count {
            return None;
        }
        let tracker = ElementTracker::new(profile);
        let facts = tracker.facts();
        let pads = |percent: u64| {
            let blocks = geometry.zone_capacity_blocks.0 * percent / 100;
            tracker.padding_of(blocks * u64::from(geometry.block_size_bytes))
        };
        Some(Allocation {
            elements_per_zone: facts.elements_per_zone,
            element_bytes: facts.element_bytes,
            elements: facts.elements,
            mapping_bytes: facts.mapping_bytes,
            finish_at_10_percent_pads_bytes: pads(10),
            finish_at_50_percent_pads_bytes: pads(50),
            policy: facts.policy,
        })
    }

    fn lines(&self) -> [(&'static str, String); 2] {
        let unit = if self.policy == "fixed" { "erase block" } else { "element" };
        let of_zone = units::counted(u64::from(self.elements_per_zone), unit);
        let elements = format!(
            "{}: {of_zone} of {} a zone, {} in all, mapping table {}",
            self.policy,
            units::bytes(self.element_bytes),
            units::count(self.elements),
            units::bytes(self.mapping_bytes)
        );
        let finish = format!(
            "pads {} of a zone that is 10% full, {} of one that is 50% full",
            units::bytes(self.finish_at_10_percent_pads_bytes),
            units::bytes(self.finish_at_50_percent_pads_bytes)
        );
        [("zone allocation", elements), ("finish", finish)]
    }
}

impl Derived {
    pub(super) fn of(profile: &Profile) -> Derived {
        let (flash, channel, geometry) = (&profile.flash, &profile.channel, profile.geometry());
        let (page, unit) = (flash.read_unit.0, flash.program_unit.0);
        let transfer_ns = |bytes: u64| Duration::of_transfer(bytes, channel.bandwidth.0).0;
        let up_ns = transfer_ns(page) + mean_ns(&channel.read_overhead, page) + channel.read_command.0;
        let down_ns = transfer_ns(page) + channel.write_overhead.0;
        let sense_ns = mean_ns(&flash.read, page);
        // A die without a cache register stays busy until its page is transferred.
        let read_ns = if flash.cache_read { sense_ns.max(up_ns) } else { sense_ns + up_ns };
        let program_ns = flash.program.mean_ns() + down_ns * (unit / page);
        let dies = u64::from(profile.dies());
        let channels = u64::from(flash.channels);
        Derived {
            capacity_bytes: geometry.zone_capacity_bytes() * u64::from(geometry.zone_count),
            zones: geometry.zone_count,
            zone_capacity_bytes: geometry.zone_capacity_bytes(),
            dies: profile.dies(),
            program_bytes_per_second: rate(dies * unit, program_ns),
            sense_bytes_per_second: rate(dies * page, read_ns),
            channels_read_bytes_per_second: rate(channels * page, up_ns),
            channels_write_bytes_per_second: rate(channels * page, down_ns),
            link_read_bytes_per_second: profile.link.read_bandwidth.0,
            link_write_bytes_per_second: profile.link.write_bandwidth.0,
            allocation: Allocation::of(profile),
        }
    }

    /// Human-readable names and figures.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let zones = units::counted(u64::from(self.zones), "zone");
        let bandwidth = |rate: u64| format!("{} MiB/s", units::mib_per_second(rate as f64));
        let read = self.sense_bytes_per_second.min(self.channels_read_bytes_per_second);
        let read = read.min(self.link_read_bytes_per_second);
        let write = self.program_bytes_per_second.min(self.channels_write_bytes_per_second);
        let write = write.min(self.link_write_bytes_per_second);
        let mut lines = vec![
            (
                "capacity",
                format!("{}: {zones} of {}", units::bytes(self.capacity_bytes), units::bytes(self.zone_capacity_bytes)),
            ),
            ("dies", units::count(u64::from(self.dies))),
            (
                "writes, at most",
                format!(
                    "{} (dies {}, channels {}, link {})",
                    bandwidth(write),
                    bandwidth(self.program_bytes_per_second),
                    bandwidth(self.channels_write_bytes_per_second),
                    bandwidth(self.link_write_bytes_per_second)
                ),
            ),
            (
                "reads, at most",
                format!(
                    "{} (dies {}, channels {}, link {})",
                    bandwidth(read),
                    bandwidth(self.sense_bytes_per_second),
                    bandwidth(self.channels_read_bytes_per_second),
                    bandwidth(self.link_read_bytes_per_second)
                ),
            ),
        ];
        lines.extend(self.allocation.iter().flat_map(Allocation::lines));
        lines
    }
}

/// The mean of the distribution for this size.
fn mean_ns(distributions: &BySize, bytes: u64) -> u64 {
    let class = distributions.classes().iter().find(|class| class.up_to.is_none_or(|limit| bytes <= limit.0));
    class.map_or(0, |class| class.time.mean_ns())
}

fn rate(bytes: u64, nanoseconds: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(nanoseconds.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_profiles::builtin_text;
    use zonda_ssd::profile::AllocationKind;

    #[test]
    fn the_derived_bandwidths_are_those_that_the_profiles_state() {
        let of = |name: &str| Derived::of(&Profile::parse(builtin_text(name).unwrap()).unwrap());
        let mib = |rate: u64| rate >> 20;
        assert_eq!(mib(of("zn540").program_bytes_per_second), 1_146);
        // 41.2 MiB/s per die.
        assert_eq!(mib(of("ezns-small").program_bytes_per_second) / 128, 41);
        // 809 MB/s per channel, less 200 ns of command overhead for each page of 81 us.
        assert_eq!(of("bae-small").channels_read_bytes_per_second / 8 / 1_000_000, 807);
    }

    #[test]
    fn the_padding_of_a_finish_depends_on_the_allocation_policy() {
        let mut profile = Profile::parse(builtin_text("silent-custom").unwrap()).unwrap();
        let mut lines = Vec::new();
        for kind in [AllocationKind::Fixed, AllocationKind::Superblock, AllocationKind::Block] {
            profile.zones.allocation = kind;
            let allocation = Allocation::of(&profile).unwrap();
            lines.extend(allocation.lines().map(|(_, line)| line));
        }
        let expected = [
            "fixed: 32 erase blocks of 8.00 MiB a zone, 2,048 in all, mapping table 64 B",
            "pads 230 MiB of a zone that is 10% full, 128 MiB of one that is 50% full",
            "superblock: 2 elements of 128 MiB a zone, 128 in all, mapping table 128 B",
            "pads 102 MiB of a zone that is 10% full, 0 B of one that is 50% full",
            "block: 32 elements of 8.00 MiB a zone, 2,048 in all, mapping table 4.00 KiB",
            "pads 102 MiB of a zone that is 10% full, 0 B of one that is 50% full",
        ];
        assert_eq!(lines, expected);
    }
}
