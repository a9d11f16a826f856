//! Asynchronous events (NVMe Base 2.0, sections 5.2 and 5.27.1.8; Zoned Namespace Command Set 1.1,
//! section 4.1.1): which events that a host enables, and the events that it gets.

use zonda_zoned::NamespaceId;

use crate::log::LogPage;

/// The notices of Asynchronous Event Configuration (0Bh), and Optional Asynchronous Events
/// Supported (OAES) of Identify Controller: the same bits in both.
pub mod notices {
    /// Bit 8: a namespace was added, removed or changed.
    pub const NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
    /// Bit 9: new firmware is being activated.
    pub const FIRMWARE_ACTIVATION: u32 = 1 << 9;
    /// Bit 11: Asymmetric Namespace Access changed.
    pub const ASYMMETRIC_ACCESS: u32 = 1 << 11;
    /// Bit 27: a zone changed on its own.
    pub const ZONE_DESCRIPTOR: u32 = 1 << 27;
    /// Bit 31: the discovery log page changed.
    pub const DISCOVERY_LOG_PAGE: u32 = 1 << 31;
}

/// Asynchronous Event Configuration (0Bh, section 5.27.1.8).
///
/// ```text
/// 07:00 critical warnings of the SMART log | 31:08 notices
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsyncEventConfiguration(pub u32);

/// The result of an Asynchronous Event Request (NVMe Base 2.0, section 5.2.1).
///
/// ```text
/// Dword 0  02:00 type | 15:08 information | 23:16 log page      Dword 1  31:00 event specific parameter
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// Asynchronous Event Type: one of [`AsyncEvent::ERROR`], [`AsyncEvent::SMART`],
    /// [`AsyncEvent::NOTICE`], ...
    pub event_type: u8,
    /// Asynchronous Event Information: the event of this type.
    pub information: u8,
    /// Log Page Identifier: reading it clears the event.
    pub log_page: u8,
    /// Event Specific Parameter: the namespace of a zone, else zero.
    pub parameter: u32,
}

impl AsyncEventConfiguration {
    /// Whether the host has enabled this notice; see [`notices`].
    #[must_use]
    pub fn wants(self, notice: u32) -> bool {
        self.0 & notice != 0
    }

    /// Whether the host has enabled any of these critical warnings of the SMART log.
    #[must_use]
    pub fn wants_warning(self, warnings: u8) -> bool {
        self.0 as u8 & warnings != 0
    }
}

impl AsyncEvent {
    /// Type 0h: error status.
    pub const ERROR: u8 = 0;
    /// Type 1h: SMART and health.
    pub const SMART: u8 = 1;
    /// Type 2h: notices.
    pub const NOTICE: u8 = 2;
    /// Type 6h: specific to an I/O command set.
    pub const COMMAND_SET: u8 = 6;
    /// Type 7h: vendor specific.
    pub const VENDOR: u8 = 7;

    /// Error information 03h: a persistent internal error; the entry is in the error log. Linux
    /// resets the controller.
    #[must_use]
    pub fn persistent_internal_error() -> AsyncEvent {
        AsyncEvent::new(AsyncEvent::ERROR, 0x03, LogPage::ErrorInformation)
    }

    /// Error information 04h: a transient internal error; the entry is in the error log.
    #[must_use]
    pub fn transient_internal_error() -> AsyncEvent {
        AsyncEvent::new(AsyncEvent::ERROR, 0x04, LogPage::ErrorInformation)
    }

    /// SMART information 00h: the namespace or the subsystem is not as reliable as it was.
    #[must_use]
    pub fn reliability_degraded() -> AsyncEvent {
        AsyncEvent::new(AsyncEvent::SMART, 0x00, LogPage::Smart)
    }

    /// SMART information 01h: the temperature is beyond a threshold.
    #[must_use]
    pub fn temperature_threshold() -> AsyncEvent {
        AsyncEvent::new(AsyncEvent::SMART, 0x01, LogPage::Smart)
    }

    /// SMART information 02h: the spare capacity is below its threshold.
    #[must_use]
    pub fn spare_below_threshold() -> AsyncEvent {
        AsyncEvent::new(AsyncEvent::SMART, 0x02, LogPage::Smart)
    }

    /// Notice 00h: a namespace was added, removed or changed; the list is in log page 04h.
    #[must_use]
    pub fn namespace_attribute_changed() -> AsyncEvent {
        AsyncEvent::new(AsyncEvent::NOTICE, 0x00, LogPage::ChangedNamespaces)
    }

    /// Notice EFh: zones of a namespace changed on their own; the list is in log page BFh.
    #[must_use]
    pub fn zone_descriptor_changed(namespace: NamespaceId) -> AsyncEvent {
        AsyncEvent { parameter: namespace.0, ..AsyncEvent::new(AsyncEvent::NOTICE, 0xef, LogPage::ChangedZones) }
    }

    /// Notice F0h: the discovery log page changed.
    #[must_use]
    pub fn discovery_log_changed() -> AsyncEvent {
        AsyncEvent::new(AsyncEvent::NOTICE, 0xf0, LogPage::Discovery)
    }

    /// Reads the two dwords of a completion's result.
    #[must_use]
    pub fn decode(result: u64) -> AsyncEvent {
        AsyncEvent {
            event_type: (result & 0b111) as u8,
            information: (result >> 8) as u8,
            log_page: (result >> 16) as u8,
            parameter: (result >> 32) as u32,
        }
    }

    /// The two dwords of a completion's result.
    #[must_use]
    pub fn encode(&self) -> u64 {
        u64::from(self.event_type & 0b111)
            | u64::from(self.information) << 8
            | u64::from(self.log_page) << 16
            | u64::from(self.parameter) << 32
    }

    /// I/O command set information 00h: a reservation notification is in log page 80h.
    #[must_use]
    pub fn reservation_notification() -> AsyncEvent {
        AsyncEvent::new(AsyncEvent::COMMAND_SET, 0x00, LogPage::ReservationNotification)
    }

    fn new(event_type: u8, information: u8, log_page: LogPage) -> AsyncEvent {
        AsyncEvent { event_type, information, log_page: log_page as u8, parameter: 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn notices_and_warnings_are_enabled_by_bit() {
        let configuration = AsyncEventConfiguration(notices::ZONE_DESCRIPTOR | 0x04);
        assert!(configuration.wants(notices::ZONE_DESCRIPTOR) && !configuration.wants(notices::NAMESPACE_ATTRIBUTE));
        assert!(configuration.wants_warning(0x06) && !configuration.wants_warning(0x02));
    }

    #[test]
    fn events_name_their_log_page() {
        assert_eq!(AsyncEvent::namespace_attribute_changed().encode(), 0x0004_0002);
        assert_eq!(AsyncEvent::zone_descriptor_changed(NamespaceId(5)).encode(), 0x5_00bf_ef02);
        assert_eq!(AsyncEvent::discovery_log_changed().encode(), 0x0070_f002);
        assert_eq!(AsyncEvent::persistent_internal_error().encode(), 0x0001_0300);
        assert_eq!(AsyncEvent::transient_internal_error().encode(), 0x0001_0400);
        assert_eq!(AsyncEvent::reliability_degraded().encode(), 0x0002_0001);
        assert_eq!(AsyncEvent::temperature_threshold().encode(), 0x0002_0101);
        assert_eq!(AsyncEvent::spare_below_threshold().encode(), 0x0002_0201);
        assert_eq!(AsyncEvent::reservation_notification().encode(), 0x0080_0006);
    }

    proptest! {
        #[test]
        fn an_event_survives_its_result(result in any::<u64>()) {
            prop_assert_eq!(AsyncEvent::decode(result).encode(), result & 0xffff_ffff_00ff_ff07);
        }
    }
}
