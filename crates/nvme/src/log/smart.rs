//! SMART / Health Information, 02h (NVMe Base 2.0, section 5.16.1.3).

use zerocopy::little_endian::{U16, U32, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::page::Page;

/// The health of a controller or a namespace.
///
/// ```text
///   0 critical warning | 1 temperature | 3 spare | 4 spare threshold | 5 used | 6 endurance group warning
///  32 data units read | 48 data units written | 64 reads | 80 writes | 96 busy | 112 power cycles | 128 power on hours
/// 144 unsafe shutdowns | 160 media errors | 176 error log entries | 192 warm | 196 critical | 200 sensors 1 .. 8
/// 216 TMT1 transitions | 220 TMT2 transitions | 224 TMT1 time | 228 TMT2 time | 232 reserved
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SmartLog {
    /// Critical Warning; see [`warning`].
    pub critical_warning: u8,
    /// Composite Temperature, kelvins.
    pub temperature_kelvin: U16,
    /// Available Spare, percent.
    pub available_spare_percent: u8,
    /// Available Spare Threshold, percent.
    pub spare_threshold_percent: u8,
    /// Percentage Used: of the life expected, up to 255.
    pub used_percent: u8,
    /// Endurance Group Critical Warning Summary.
    pub endurance_group_warning: u8,
    _reserved_7: [u8; 25],
    /// Data Units Read, in 512,000 bytes, rounded up.
    pub data_units_read: U128,
    /// Data Units Written, in 512,000 bytes, rounded up.
    pub data_units_written: U128,
    /// Host Read Commands, of SMART.
    pub host_reads: U128,
    /// Host Write Commands.
    pub host_writes: U128,
    /// Controller Busy Time, minutes.
    pub busy_minutes: U128,
    /// Power Cycles.
    pub power_cycles: U128,
    /// Power On Hours.
    pub power_on_hours: U128,
    /// Unsafe Shutdowns.
    pub unsafe_shutdowns: U128,
    /// Media and Data Integrity Errors.
    pub media_errors: U128,
    /// Number of Error Information Log Entries over the life of the controller.
    pub error_log_entries: U128,
    /// Warning Composite Temperature Time, minutes.
    pub warning_temperature_minutes: U32,
    /// Critical Composite Temperature Time, minutes.
    pub critical_temperature_minutes: U32,
    /// Temperature Sensors 1 to 8, kelvins; zero is none.
    pub sensors_kelvin: [U16; 8],
    /// Thermal Management Temperature 1 and 2 Transition Counts.
    pub thermal_transitions: [U32; 2],
    /// Total Time For Thermal Management Temperature 1 and 2, seconds.
    pub thermal_seconds: [U32; 2],
    _reserved_232: [u8; 280],
}

const _: () = assert!(size_of::<SmartLog>() == 512);

/// Bits of the Critical Warning, which also enable their events (feature 0Bh).
pub mod warning {
    /// Bit 0: the spare is below its threshold.
    pub const SPARE_LOW: u8 = 1 << 0;
    /// Bit 1: the temperature is over or under a threshold.
    pub const TEMPERATURE: u8 = 1 << 1;
    /// Bit 2: reliability is degraded by media or internal errors.
    pub const DEGRADED: u8 = 1 << 2;
    /// Bit 3: all media are read only.
    pub const READ_ONLY: u8 = 1 << 3;
    /// Bit 4: the backup of volatile memory failed.
    pub const BACKUP_FAILED: u8 = 1 << 4;
}

/// The health of a drive; the page has it in the specification's units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Bits of [`warning`].
    pub warnings: u8,
    /// Composite temperature, kelvins.
    pub temperature_kelvin: u16,
    /// Spare capacity left, percent.
    pub spare_percent: u8,
    /// Spare capacity below which [`warning::SPARE_LOW`] is set, percent.
    pub spare_threshold_percent: u8,
    /// Of the life expected, percent, up to 255.
    pub used_percent: u8,
    /// Bytes that hosts read.
    pub read_bytes: u128,
    /// Bytes that hosts wrote.
    pub written_bytes: u128,
    /// Commands that read.
    pub read_commands: u128,
    /// Commands that wrote.
    pub write_commands: u128,
    /// Starts.
    pub power_cycles: u128,
    /// Hours since the first start that the drive was on.
    pub power_on_hours: u128,
    /// Starts after an end without warning.
    pub unsafe_shutdowns: u128,
    /// Number of unrecovered media errors.
    pub media_errors: u128,
    /// Error log entries over the life of the controller.
    pub error_log_entries: u128,
}

impl Page for SmartLog {
    const NAME: &'static str = "SMART / Health Information Log";
}

impl SmartLog {
    /// The page of this health.
    #[must_use]
    pub fn of(health: &Health) -> SmartLog {
        let mut page = SmartLog::empty();
        page.critical_warning = health.warnings;
        page.temperature_kelvin = health.temperature_kelvin.into();
        page.available_spare_percent = health.spare_percent;
        page.spare_threshold_percent = health.spare_threshold_percent;
        page.used_percent = health.used_percent;
        page.data_units_read = data_units(health.read_bytes).into();
        page.data_units_written = data_units(health.written_bytes).into();
        page.host_reads = health.read_commands.into();
        page.host_writes = health.write_commands.into();
        page.power_cycles = health.power_cycles.into();
        page.power_on_hours = health.power_on_hours.into();
        page.unsafe_shutdowns = health.unsafe_shutdowns.into();
        page.media_errors = health.media_errors.into();
        page.error_log_entries = health.error_log_entries.into();
        page
    }
}

/// Bytes in data units: thousands of 512 bytes, rounded up.
#[must_use]
pub fn data_units(bytes: u128) -> u128 {
    bytes.div_ceil(512_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::assert_layout;

    #[test]
    fn every_field_has_the_offset_of_the_specification() {
        assert_layout!(SmartLog {
            critical_warning: 0..=0,
            temperature_kelvin: 1..=2,
            available_spare_percent: 3..=3,
            spare_threshold_percent: 4..=4,
            used_percent: 5..=5,
            endurance_group_warning: 6..=6,
            data_units_read: 32..=47,
            data_units_written: 48..=63,
            host_reads: 64..=79,
            host_writes: 80..=95,
            busy_minutes: 96..=111,
            power_cycles: 112..=127,
            power_on_hours: 128..=143,
            unsafe_shutdowns: 144..=159,
            media_errors: 160..=175,
            error_log_entries: 176..=191,
            warning_temperature_minutes: 192..=195,
            critical_temperature_minutes: 196..=199,
            sensors_kelvin: 200..=215,
            thermal_transitions: 216..=223,
            thermal_seconds: 224..=231,
        });
    }

    #[test]
    fn a_data_unit_is_a_thousand_sectors_rounded_up() {
        assert_eq!((data_units(0), data_units(1), data_units(512_000), data_units(512_001)), (0, 1, 1, 2));
    }

    #[test]
    fn health_is_reported_in_the_units_of_the_page() {
        let health =
            Health { written_bytes: 1 << 30, media_errors: 2, warnings: warning::DEGRADED, ..Health::default() };
        let page = SmartLog::parse(SmartLog::of(&health).bytes()).unwrap();
        assert_eq!(page.data_units_written.get(), 2098);
        assert_eq!((page.media_errors.get(), page.critical_warning), (2, 0b100));
    }
    #[test]
    fn every_figure_of_health_is_in_its_own_field() {
        let health = Health {
            warnings: 1,
            temperature_kelvin: 2,
            spare_percent: 3,
            spare_threshold_percent: 4,
            used_percent: 5,
            read_bytes: 6 * 512_000,
            written_bytes: 7 * 512_000,
            read_commands: 8,
            write_commands: 9,
            power_cycles: 10,
            power_on_hours: 11,
            unsafe_shutdowns: 12,
            media_errors: 13,
            error_log_entries: 14,
        };
        let page = SmartLog::of(&health);
        assert_eq!(page.bytes()[..7], [1, 2, 0, 3, 4, 5, 0]);
        let figures: Vec<u8> = page.bytes()[32..192].chunks(16).map(|figure| figure[0]).collect();
        assert_eq!(figures, [6, 7, 8, 9, 0, 10, 11, 12, 13, 14]);
    }
}
