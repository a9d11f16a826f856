//! Samples of the counters of a drive.

use serde::Serialize;
use zonda_ssd::Ssd;
use zonda_zoned::Duration;

use crate::series::Sampled;

/// The counters of a drive at one moment of a run; all count from the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DriveSample {
    /// Time since the start of the run.
    pub at_ns: u64,
    /// Bytes that the host wrote.
    pub host_write_bytes: u64,
    /// Bytes that the drive wrote in addition.
    pub device_write_bytes: u64,
    /// Of these, padding of finished zones.
    pub padding_bytes: u64,
    /// Erase units erased.
    pub erases: u64,
    /// Device-level write amplification so far.
    pub dlwa: f64,
}

impl DriveSample {
    pub(crate) fn of(at: Duration, drive: &Ssd) -> DriveSample {
        let counters = drive.counters();
        DriveSample {
            at_ns: at.0,
            host_write_bytes: counters.host_write_bytes,
            device_write_bytes: counters.device_write_bytes(),
            padding_bytes: counters.programmed_padding_bytes,
            erases: counters.erases,
            dlwa: counters.dlwa(),
        }
    }
}

impl Sampled for DriveSample {
    fn at_ns(&self) -> u64 {
        self.at_ns
    }
}
