//! The health of a device: the source of the SMART log page.

use zonda_nvme::log::warning;

/// The state of a device, as the caller reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceHealth {
    /// The device is less reliable than it was: its media or files fail.
    pub degraded: bool,
    /// The media have become read-only, and every write is refused. Not set for a device that is
    /// served write protected, which is not a condition of its media (NVMe Base 2.0, Figure 206,
    /// bit 3).
    pub read_only: bool,
    /// Spare capacity left, in percent.
    pub spare_percent: u8,
    /// Percentage Used: may exceed 100.
    pub used_percent: u8,
    /// Composite temperature, in kelvins.
    pub temperature_kelvin: u16,
    /// How often the device was started.
    pub power_cycles: u64,
    /// Hours it has run.
    pub power_on_hours: u64,
    /// How often it was not shut down cleanly.
    pub unsafe_shutdowns: u64,
}

impl Default for DeviceHealth {
    /// A healthy device, at 25 degrees Celsius.
    fn default() -> DeviceHealth {
        DeviceHealth {
            degraded: false,
            read_only: false,
            spare_percent: 100,
            used_percent: 0,
            temperature_kelvin: 298,
            power_cycles: 1,
            power_on_hours: 0,
            unsafe_shutdowns: 0,
        }
    }
}

impl DeviceHealth {
    /// The spare capacity below which a device warns.
    pub const SPARE_THRESHOLD_PERCENT: u8 = 10;

    /// Critical Warning (NVMe Base 2.0, Figure 206).
    #[must_use]
    pub fn warnings(&self) -> u8 {
        let mut warnings = 0;
        for (holds, bit) in [
            (self.spare_percent < DeviceHealth::SPARE_THRESHOLD_PERCENT, warning::SPARE_LOW),
            (self.degraded, warning::DEGRADED),
            (self.read_only, warning::READ_ONLY),
        ] {
            if holds {
                warnings |= bit;
            }
        }
        warnings
    }
}
