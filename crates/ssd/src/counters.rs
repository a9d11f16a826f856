//! Counters of a drive.

use serde::Serialize;

/// Counters since the drive was created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Bytes that reads requested.
    pub host_read_bytes: u64,
    /// Bytes of writes and appends, and of the ranges of Write Zeroes.
    pub host_write_bytes: u64,
    /// Commands completed without error.
    pub commands_completed: u64,
    /// Commands completed with an error.
    pub commands_refused: u64,
    /// Bytes sensed from flash for the host.
    pub flash_read_bytes: u64,
    /// Host bytes programmed to flash, at their final place.
    pub programmed_host_bytes: u64,
    /// Bytes programmed to fill a zone that is finished.
    pub programmed_padding_bytes: u64,
    /// Bytes programmed because a conventional zone's garbage was collected.
    pub programmed_gc_bytes: u64,
    /// Host bytes programmed twice, because the write buffer had no space to wait for their unit to
    /// fill.
    pub programmed_spill_bytes: u64,
    /// Program operations.
    pub programs: u64,
    /// Erase units erased.
    pub erases: u64,
    /// Programs and erases that were suspended for reads.
    pub suspensions: u64,
    /// Writes that had to wait for space in the write buffer.
    pub buffer_waits: u64,
    /// Zones reset.
    pub zone_resets: u64,
    /// Zones finished by the host before they were full.
    pub zone_finishes: u64,
    /// Implicitly opened zones that the controller closed to open another.
    pub zones_closed_by_controller: u64,
}

impl Counters {
    /// Bytes that the drive wrote internally.
    #[must_use]
    pub fn device_write_bytes(&self) -> u64 {
        self.programmed_padding_bytes + self.programmed_gc_bytes + self.programmed_spill_bytes
    }

    /// Device-level write amplification: (host writes + device writes) / host writes; 1 before the
    /// first write.
    #[must_use]
    pub fn dlwa(&self) -> f64 {
        if self.host_write_bytes == 0 {
            return 1.0;
        }
        (self.host_write_bytes + self.device_write_bytes()) as f64 / self.host_write_bytes as f64
    }
}

/// Utilization of the hardware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Utilisation {
    /// Time each die was sensing, programming or erasing, or held for a transfer.
    pub die_busy_ns: Vec<u64>,
    /// Time each channel was transferring.
    pub channel_busy_ns: Vec<u64>,
    /// Time the link to the host was transferring.
    pub link_out_busy_ns: u64,
    /// Time the link from the host was transferring.
    pub link_in_busy_ns: u64,
    /// Core time of each firmware server, in the order of their names.
    pub firmware_busy_ns: Vec<u64>,
}

/// Wear of the drive's erase units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Wear {
    /// Erase units of the drive.
    pub units: u64,
    /// Erases of all units together.
    pub erases: u64,
    /// Erases of the most worn unit.
    pub erases_max: u32,
    /// Erases of the least worn unit.
    pub erases_min: u32,
}

impl Wear {
    /// The combined wear of two sets of units.
    pub(crate) fn with(&self, other: &Wear) -> Wear {
        Wear {
            units: self.units + other.units,
            erases: self.erases + other.erases,
            erases_max: self.erases_max.max(other.erases_max),
            erases_min: self.erases_min.min(other.erases_min),
        }
    }
}
