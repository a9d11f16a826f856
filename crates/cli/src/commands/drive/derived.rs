//! What follows from a profile's numbers: sizes, and the bandwidth that each part could carry.

use serde::Serialize;
use zonda_ssd::allocation::ElementBook;
use zonda_ssd::profile::Profile;
use zonda_ssd::service_time::BySize;
use zonda_zoned::Duration;

use crate::units;

/// Figures that stand nowhere in a profile. Bandwidths are of one part alone, all of it busy with large requests, in
/// bytes a second; the smallest is the most the drive can reach.
#[derive(Debug, Serialize)]
pub(super) struct Derived {
    /// What the host can write.
    capacity_bytes: u64,
    /// Zones of the drive.
    zones: u32,
    /// Of a zone, what can be written.
    zone_capacity_bytes: u64,
    /// Dies of the drive.
    dies: u32,
    /// Dies programming: each takes in a unit, then programs it.
    program_bytes_per_second: u64,
    /// Dies sensing whole pages.
    sense_bytes_per_second: u64,
    /// Channels carrying whole pages from the dies.
    channels_read_bytes_per_second: u64,
    /// Channels carrying pages to the dies.
    channels_write_bytes_per_second: u64,
    /// The link to the host.
    link_read_bytes_per_second: u64,
    /// The link from the host.
    link_write_bytes_per_second: u64,
    /// What zones are built of; absent where all of them are conventional.
    allocation: Option<Allocation>,
}

/// How zones are allocated, and what that costs.
#[derive(Debug, Serialize)]
struct Allocation {
    policy: String,
    /// Storage elements of a zone; of `fixed`, erase units.
    elements_per_zone: u32,
    /// Flash of one element.
    element_bytes: u64,
    /// Elements of the drive.
    elements: u64,
    /// What the drive needs to remember which elements are whose.
    mapping_bytes: u64,
    /// What FINISH pads of a zone that is written to a tenth.
    finish_at_10_percent_pads_bytes: u64,
    /// What FINISH pads of a zone that is written to a half.
    finish_at_50_percent_pads_bytes: u64,
}

impl Allocation {
    fn of(profile: &Profile) -> Option<Allocation> {
        let geometry = profile.geometry();
        if geometry.conventional_zone_count == geometry.zone_count {
            return None;
        }
        let book = ElementBook::new(profile);
        let facts = book.facts();
        let pads = |percent: u64| {
            let blocks = geometry.zone_capacity_blocks.0 * percent / 100;
            book.padding_of(blocks * u64::from(geometry.block_size_bytes))
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
        let unit = if self.policy == "fixed" { "erase unit" } else { "element" };
        let of_zone = units::counted(u64::from(self.elements_per_zone), unit);
        let elements = format!(
            "{}: {of_zone} of {} a zone, {} in all, {} of mapping",
            self.policy,
            units::bytes(self.element_bytes),
            units::count(self.elements),
            units::bytes(self.mapping_bytes)
        );
        let finish = format!(
            "pads {} of a zone written to 10%, {} of one written to 50%",
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
        // A die without a cache register is held until its page has left it.
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

    /// Names and figures for people.
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

/// The mean of the law for this size.
fn mean_ns(laws: &BySize, bytes: u64) -> u64 {
    let class = laws.classes().iter().find(|class| class.up_to.is_none_or(|limit| bytes <= limit.0));
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
        // 41.2 MiB/s a die.
        assert_eq!(mib(of("ezns-small").program_bytes_per_second) / 128, 41);
        // 809 MB/s a channel, less 200 ns of command for each page of 81 us.
        assert_eq!(of("bae-small").channels_read_bytes_per_second / 8 / 1_000_000, 807);
    }

    #[test]
    fn a_finish_pads_what_the_elements_leave_to_pad() {
        let mut profile = Profile::parse(builtin_text("silent-custom").unwrap()).unwrap();
        let mut lines = Vec::new();
        for kind in [AllocationKind::Fixed, AllocationKind::Superblock, AllocationKind::Block] {
            profile.zones.allocation = kind;
            let allocation = Allocation::of(&profile).unwrap();
            lines.extend(allocation.lines().map(|(_, line)| line));
        }
        let expected = [
            "fixed: 32 erase units of 8.00 MiB a zone, 2,048 in all, 64 B of mapping",
            "pads 230 MiB of a zone written to 10%, 128 MiB of one written to 50%",
            "superblock: 2 elements of 128 MiB a zone, 128 in all, 128 B of mapping",
            "pads 102 MiB of a zone written to 10%, 0 B of one written to 50%",
            "block: 32 elements of 8.00 MiB a zone, 2,048 in all, 4.00 KiB of mapping",
            "pads 102 MiB of a zone written to 10%, 0 B of one written to 50%",
        ];
        assert_eq!(lines, expected);
    }
}
