//! Features (NVMe Base 2.0, sections 5.15 and 5.27; NVM Command Set 1.0, section 4.1.3): codes, and
//! the dwords they are set and read with; and the asynchronous events that one of them configures.

mod events;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::Duration;

pub use events::{AsyncEvent, AsyncEventConfiguration, notices};

use crate::page::Page;

/// Feature Identifiers (NVMe Base 2.0, section 5.27.1) that zonda's controller supports, or refuses
/// by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Feature {
    /// 01h.
    Arbitration = 0x01,
    /// 02h.
    PowerManagement = 0x02,
    /// 04h.
    TemperatureThreshold = 0x04,
    /// 05h.
    ErrorRecovery = 0x05,
    /// 06h.
    VolatileWriteCache = 0x06,
    /// 07h.
    NumberOfQueues = 0x07,
    /// 0Ah.
    WriteAtomicity = 0x0a,
    /// 0Bh.
    AsyncEventConfiguration = 0x0b,
    /// 0Fh.
    KeepAliveTimer = 0x0f,
    /// 16h.
    HostBehavior = 0x16,
    /// 19h.
    CommandSetProfile = 0x19,
    /// 81h.
    HostIdentifier = 0x81,
    /// 82h.
    ReservationNotificationMask = 0x82,
    /// 83h.
    ReservationPersistence = 0x83,
}

/// Select (SEL) of Get Features (NVMe Base 2.0, section 5.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Select {
    /// 0h.
    Current = 0,
    /// 1h.
    Default = 1,
    /// 2h.
    Saved = 2,
    /// 3h: bit 0 saveable, bit 1 for each namespace, bit 2 changeable.
    Supported = 3,
}

/// Command dword 10 of Get Features and Set Features.
///
/// ```text
/// 07:00 feature (FID) | 10:08 select (SEL), get | 31 save (SV), set
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureRequest {
    /// Feature Identifier (FID); see [`Feature`].
    pub feature: u8,
    /// Select (SEL), of Get Features; see [`Select`].
    pub select: u8,
    /// Save (SV), of Set Features.
    pub save: bool,
}

/// Arbitration (01h, section 5.27.1.1).
///
/// ```text
/// 02:00 burst (AB), 2^n, 7 no limit | 15:08 low (LPW) | 23:16 medium (MPW) | 31:24 high priority weight (HPW)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arbitration {
    /// Arbitration Burst (AB): 2^n commands at a time, 7 no limit.
    pub burst: u8,
    /// Low Priority Weight (LPW), zero-based.
    pub low_weight: u8,
    /// Medium Priority Weight (MPW), zero-based.
    pub medium_weight: u8,
    /// High Priority Weight (HPW), zero-based.
    pub high_weight: u8,
}

/// Power Management (02h, section 5.27.1.2).
///
/// ```text
/// 04:00 power state (PS) | 07:05 workload hint (WH)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PowerManagement {
    /// Power State (PS).
    pub power_state: u8,
    /// Workload Hint (WH).
    pub workload_hint: u8,
}

/// Temperature Threshold (04h, section 5.27.1.3).
///
/// ```text
/// 15:00 threshold (TMPTH), kelvins | 19:16 sensor (TMPSEL) | 21:20 kind (THSEL): 0 over, 1 under
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemperatureThreshold {
    /// Temperature Threshold (TMPTH), kelvins.
    pub threshold_kelvin: u16,
    /// Threshold Temperature Select (TMPSEL): 0 composite, 1 to 8 a sensor, 15 all.
    pub sensor: u8,
    /// Threshold Type Select (THSEL): 0 over, 1 under.
    pub kind: u8,
}

/// Error Recovery (05h, NVM Command Set 1.0, section 4.1.3).
///
/// ```text
/// 15:00 time limited error recovery (TLER), 100 ms | 16 error for deallocated blocks (DULBE)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorRecovery {
    /// Time Limited Error Recovery (TLER), in 100 ms; zero is no limit.
    pub time_limit_100ms: u16,
    /// Deallocated or Unwritten Logical Block Error Enable (DULBE).
    pub deallocated_block_error: bool,
}

/// Number of Queues (07h, section 5.27.1.5): the dword and the result have the same layout.
///
/// ```text
/// 15:00 submission queues (NSQR, NSQA), zero-based | 31:16 completion queues (NCQR, NCQA), zero-based
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueCounts {
    /// I/O submission queues requested or allocated, at least 1.
    pub submission: u32,
    /// I/O completion queues requested or allocated, at least 1.
    pub completion: u32,
}

/// Host Behavior Support (16h, section 5.27.1.18): 512 bytes from the host.
///
/// ```text
/// 0 advanced command retry (ACRE) | 1 extended telemetry (ETDAS) | 2 LBA format extensions (LBAFEE) | 3 reserved
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct HostBehavior {
    /// Advanced Command Retry Enable (ACRE): 1 where the host honours retry delays.
    pub advanced_command_retry: u8,
    /// Extended Telemetry Data Area 4 Supported (ETDAS).
    pub extended_telemetry: u8,
    /// LBA Format Extension Enable (LBAFEE).
    pub lba_format_extension: u8,
    _reserved_3: [u8; 509],
}

const _: () = assert!(size_of::<HostBehavior>() == 512);

impl Page for HostBehavior {
    const NAME: &'static str = "Host Behavior Support";
}

impl FeatureRequest {
    /// Reads command dword 10.
    #[must_use]
    pub fn decode(dword10: u32) -> FeatureRequest {
        FeatureRequest { feature: dword10 as u8, select: (dword10 >> 8 & 0b111) as u8, save: dword10 >> 31 == 1 }
    }

    /// Command dword 10.
    #[must_use]
    pub fn encode(&self) -> u32 {
        u32::from(self.feature) | u32::from(self.select & 0b111) << 8 | u32::from(self.save) << 31
    }
}

impl Arbitration {
    /// Reads the dword.
    #[must_use]
    pub fn decode(dword: u32) -> Arbitration {
        let [burst, low_weight, medium_weight, high_weight] = dword.to_le_bytes();
        Arbitration { burst: burst & 0b111, low_weight, medium_weight, high_weight }
    }

    /// The dword.
    #[must_use]
    pub fn encode(&self) -> u32 {
        u32::from_le_bytes([self.burst & 0b111, self.low_weight, self.medium_weight, self.high_weight])
    }
}

impl PowerManagement {
    /// Reads the dword.
    #[must_use]
    pub fn decode(dword: u32) -> PowerManagement {
        PowerManagement { power_state: (dword & 0x1f) as u8, workload_hint: (dword >> 5 & 0b111) as u8 }
    }

    /// The dword.
    #[must_use]
    pub fn encode(&self) -> u32 {
        u32::from(self.power_state & 0x1f) | u32::from(self.workload_hint & 0b111) << 5
    }
}

impl TemperatureThreshold {
    /// Reads the dword.
    #[must_use]
    pub fn decode(dword: u32) -> TemperatureThreshold {
        TemperatureThreshold {
            threshold_kelvin: dword as u16,
            sensor: (dword >> 16 & 0xf) as u8,
            kind: (dword >> 20 & 0b11) as u8,
        }
    }

    /// The dword.
    #[must_use]
    pub fn encode(&self) -> u32 {
        u32::from(self.threshold_kelvin) | u32::from(self.sensor & 0xf) << 16 | u32::from(self.kind & 0b11) << 20
    }
}

impl ErrorRecovery {
    /// Reads the dword.
    #[must_use]
    pub fn decode(dword: u32) -> ErrorRecovery {
        ErrorRecovery { time_limit_100ms: dword as u16, deallocated_block_error: dword >> 16 & 1 == 1 }
    }

    /// The dword.
    #[must_use]
    pub fn encode(&self) -> u32 {
        u32::from(self.time_limit_100ms) | u32::from(self.deallocated_block_error) << 16
    }
}

impl QueueCounts {
    /// Reads the dword. 65,536 queues of a kind (FFFFh) are not allowed: the controller answers
    /// Invalid Field.
    #[must_use]
    pub fn decode(dword: u32) -> QueueCounts {
        QueueCounts { submission: (dword & 0xffff) + 1, completion: (dword >> 16) + 1 }
    }

    /// The dword.
    ///
    /// # Panics
    /// For a count that is not from 1 to 65,536.
    #[must_use]
    pub fn encode(&self) -> u32 {
        let range = 1..=65_536;
        assert!(
            range.contains(&self.submission) && range.contains(&self.completion),
            "queue counts out of range: {self:?}"
        );
        (self.submission - 1) | (self.completion - 1) << 16
    }

    /// Whether the host requests an invalid number of queues (FFFFh).
    #[must_use]
    pub fn is_too_many(&self) -> bool {
        self.submission == 65_536 || self.completion == 65_536
    }
}

/// The single bit of Volatile Write Cache (06h: WCE), Write Atomicity Normal (0Ah: DN), and the
/// like.
#[must_use]
pub fn flag(dword: u32) -> bool {
    dword & 1 == 1
}

/// Keep Alive Timer (0Fh, section 5.27.1.12): the timeout (KATO) in milliseconds; `None` for zero,
/// which is off.
#[must_use]
pub fn keep_alive_timeout(dword: u32) -> Option<Duration> {
    (dword != 0).then(|| Duration::from_millis(dword.into()))
}

/// I/O Command Set Profile (19h, section 5.27.1.21): the place of the chosen combination in the
/// command set vector.
#[must_use]
pub fn command_set_combination(dword: u32) -> usize {
    (dword & 0x1ff) as usize
}

impl TryFrom<u8> for Feature {
    type Error = u8;

    /// Gives an unknown code back.
    fn try_from(code: u8) -> Result<Feature, u8> {
        Ok(match code {
            0x01 => Feature::Arbitration,
            0x02 => Feature::PowerManagement,
            0x04 => Feature::TemperatureThreshold,
            0x05 => Feature::ErrorRecovery,
            0x06 => Feature::VolatileWriteCache,
            0x07 => Feature::NumberOfQueues,
            0x0a => Feature::WriteAtomicity,
            0x0b => Feature::AsyncEventConfiguration,
            0x0f => Feature::KeepAliveTimer,
            0x16 => Feature::HostBehavior,
            0x19 => Feature::CommandSetProfile,
            0x81 => Feature::HostIdentifier,
            0x82 => Feature::ReservationNotificationMask,
            0x83 => Feature::ReservationPersistence,
            _ => return Err(code),
        })
    }
}

impl TryFrom<u8> for Select {
    type Error = u8;

    /// Gives an unknown code back.
    fn try_from(code: u8) -> Result<Select, u8> {
        Ok(match code {
            0 => Select::Current,
            1 => Select::Default,
            2 => Select::Saved,
            3 => Select::Supported,
            _ => return Err(code),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::page::assert_layout;

    #[test]
    fn features_survive_their_codes_and_unknown_codes_are_returned() {
        let known: Vec<u8> =
            (0..=u8::MAX).filter(|&code| Feature::try_from(code).is_ok_and(|f| f as u8 == code)).collect();
        assert_eq!(known, [1, 2, 4, 5, 6, 7, 0x0a, 0x0b, 0x0f, 0x16, 0x19, 0x81, 0x82, 0x83]);
        assert_eq!(Feature::try_from(0x03), Err(0x03));
        assert_eq!((Select::try_from(3), Select::try_from(4)), (Ok(Select::Supported), Err(4)));
    }

    #[test]
    fn the_bits_are_those_of_the_specification() {
        assert_eq!(FeatureRequest { feature: 0x0b, select: 2, save: true }.encode(), 0x8000_020b);
        assert_eq!(Arbitration { burst: 7, low_weight: 1, medium_weight: 2, high_weight: 3 }.encode(), 0x0302_0107);
        assert_eq!(PowerManagement { power_state: 3, workload_hint: 2 }.encode(), 0x43);
        assert_eq!(TemperatureThreshold { threshold_kelvin: 343, sensor: 1, kind: 1 }.encode(), 0x0011_0157);
        assert_eq!(ErrorRecovery { time_limit_100ms: 5, deallocated_block_error: true }.encode(), 0x0001_0005);
        assert_eq!(command_set_combination(0x601), 1);
        assert!(flag(1) && !flag(2));
    }

    #[test]
    fn queue_counts_are_zero_based() {
        assert_eq!(QueueCounts { submission: 4, completion: 2 }.encode(), 0x0001_0003);
        assert_eq!(QueueCounts::decode(0), QueueCounts { submission: 1, completion: 1 });
        assert!(QueueCounts::decode(0x0000_ffff).is_too_many());
        assert!(!QueueCounts::decode(0xfffe_fffe).is_too_many());
    }

    #[test]
    #[should_panic(expected = "queue counts out of range")]
    fn zero_queues_cannot_be_encoded() {
        let _ = QueueCounts { submission: 0, completion: 1 }.encode();
    }

    #[test]
    fn a_keep_alive_timeout_of_zero_disables_the_timer() {
        assert_eq!(keep_alive_timeout(0), None);
        assert_eq!(keep_alive_timeout(5000), Some(Duration::from_secs(5)));
    }

    #[test]
    fn host_behavior_has_the_layout_of_the_specification() {
        assert_layout!(HostBehavior {
            advanced_command_retry: 0..=0,
            extended_telemetry: 1..=1,
            lba_format_extension: 2..=2,
        });
        assert!(HostBehavior::parse(&[0; 511]).is_err());
    }

    proptest! {
        #[test]
        fn dwords_survive_decoding_and_encoding(dword in any::<u32>()) {
            prop_assert_eq!(FeatureRequest::decode(dword).encode(), dword & 0x8000_07ff);
            prop_assert_eq!(Arbitration::decode(dword).encode(), dword & 0xffff_ff07);
            prop_assert_eq!(PowerManagement::decode(dword).encode(), dword & 0xff);
            prop_assert_eq!(TemperatureThreshold::decode(dword).encode(), dword & 0x003f_ffff);
            prop_assert_eq!(ErrorRecovery::decode(dword).encode(), dword & 0x0001_ffff);
            prop_assert_eq!(QueueCounts::decode(dword).encode(), dword);
        }
    }
}
