//! What follows from a profile's numbers: sizes, and the bandwidth that each part could carry.

use serde::Serialize;
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
        vec![
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
        ]
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
    use zonda_ssd::profile::builtin_text;

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
}
