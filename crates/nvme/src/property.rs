//! Controller properties, which Fabrics commands get and set (NVMe Base 2.0, section 3.1.3).

/// Controller properties that exist over Fabrics (NVMe Base 2.0, Figure 35).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// CAP, 0h, 8 bytes.
    Capabilities,
    /// VS, 8h.
    Version,
    /// CC, 14h.
    Configuration,
    /// CSTS, 1Ch.
    Status,
    /// NSSR, 20h.
    SubsystemReset,
    /// CRTO, 68h: controller ready timeouts.
    ReadyTimeouts,
}

impl Property {
    const ALL: [Property; 6] = [
        Property::Capabilities,
        Property::Version,
        Property::Configuration,
        Property::Status,
        Property::SubsystemReset,
        Property::ReadyTimeouts,
    ];

    /// OFST.
    #[must_use]
    pub fn offset(self) -> u32 {
        match self {
            Property::Capabilities => 0x00,
            Property::Version => 0x08,
            Property::Configuration => 0x14,
            Property::Status => 0x1c,
            Property::SubsystemReset => 0x20,
            Property::ReadyTimeouts => 0x68,
        }
    }

    /// 4 or 8.
    #[must_use]
    pub fn size_bytes(self) -> u32 {
        if self == Property::Capabilities { 8 } else { 4 }
    }

    /// The property at an offset.
    #[must_use]
    pub fn at(offset: u32) -> Option<Property> {
        Property::ALL.into_iter().find(|property| property.offset() == offset)
    }
}

/// VS of NVMe Base 2.0.
pub const VERSION_2_0: u32 = 0x0002_0000;

/// Controller Capabilities, CAP (NVMe Base 2.0, Figure 36), the fields that apply over Fabrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// MQES: the most entries of an I/O queue, minus one.
    pub queue_entries_max: u16,
    /// TO: the longest time until the controller is ready, in units of 500 ms.
    pub ready_timeout_500ms: u8,
    /// CSS bit 0: the NVM command set.
    pub nvm_command_set: bool,
    /// CSS bit 6: several I/O command sets, chosen with CC.CSS 110b.
    pub all_command_sets: bool,
    /// CSS bit 7: no I/O command set: administrative and discovery controllers.
    pub no_io_command_set: bool,
    /// CRMS: bit 0 ready with media, bit 1 ready independent of media.
    pub ready_modes: u8,
}

impl Capabilities {
    /// CAP. CQR (bit 16) is always set: queues are contiguous over Fabrics. Page sizes are 4 KiB.
    #[must_use]
    pub fn value(self) -> u64 {
        u64::from(self.queue_entries_max)
            | 1 << 16
            | u64::from(self.ready_timeout_500ms) << 24
            | u64::from(self.nvm_command_set) << 37
            | u64::from(self.all_command_sets) << 43
            | u64::from(self.no_io_command_set) << 44
            | u64::from(self.ready_modes & 0b11) << 59
    }

    /// Reads CAP.
    #[must_use]
    pub fn from_value(value: u64) -> Capabilities {
        Capabilities {
            queue_entries_max: value as u16,
            ready_timeout_500ms: (value >> 24) as u8,
            nvm_command_set: value >> 37 & 1 != 0,
            all_command_sets: value >> 43 & 1 != 0,
            no_io_command_set: value >> 44 & 1 != 0,
            ready_modes: (value >> 59 & 0b11) as u8,
        }
    }
}

/// Controller Configuration, CC (NVMe Base 2.0, Figure 46).
///
/// ```text
/// 0 EN   6:4 CSS   10:7 MPS   13:11 AMS   15:14 SHN   19:16 IOSQES   23:20 IOCQES   24 CRIME
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Configuration(pub u32);

impl Configuration {
    /// CSS 000b: the NVM command set only.
    pub const CSS_NVM: u8 = 0b000;
    /// CSS 110b: all I/O command sets that the controller supports.
    pub const CSS_ALL: u8 = 0b110;
    /// CSS 111b: no I/O command set.
    pub const CSS_ADMIN_ONLY: u8 = 0b111;

    /// The value with which a host enables a controller: 64-byte and 16-byte entries, 4 KiB pages,
    /// round robin.
    #[must_use]
    pub fn enabled(command_set: u8) -> Configuration {
        Configuration(1 | u32::from(command_set & 0b111) << 4 | 6 << 16 | 4 << 20)
    }

    /// EN.
    #[must_use]
    pub fn is_enabled(self) -> bool {
        self.0 & 1 != 0
    }

    /// CSS.
    #[must_use]
    pub fn command_set(self) -> u8 {
        (self.0 >> 4 & 0b111) as u8
    }

    /// MPS: log2 of the page size, minus 12.
    #[must_use]
    pub fn page_size(self) -> u8 {
        (self.0 >> 7 & 0xf) as u8
    }

    /// AMS.
    #[must_use]
    pub fn arbitration(self) -> u8 {
        (self.0 >> 11 & 0b111) as u8
    }

    /// SHN: 00b none, 01b normal, 10b abrupt.
    #[must_use]
    pub fn shutdown_notification(self) -> u8 {
        (self.0 >> 14 & 0b11) as u8
    }

    /// IOSQES: log2 of an I/O submission entry.
    #[must_use]
    pub fn submission_entry_size(self) -> u8 {
        (self.0 >> 16 & 0xf) as u8
    }

    /// IOCQES: log2 of an I/O completion entry.
    #[must_use]
    pub fn completion_entry_size(self) -> u8 {
        (self.0 >> 20 & 0xf) as u8
    }
}

/// Controller Status, CSTS (NVMe Base 2.0, Figure 47).
///
/// ```text
/// 0 RDY   1 CFS   3:2 SHST   4 NSSRO   5 PP   6 ST
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerStatus(pub u32);

impl ControllerStatus {
    /// RDY.
    pub const READY: u32 = 1;
    /// CFS: fatal.
    pub const FATAL: u32 = 1 << 1;
    /// SHST 01b: shutting down.
    pub const SHUTDOWN_IN_FLIGHT: u32 = 0b01 << 2;
    /// SHST 10b: shut down.
    pub const SHUTDOWN_COMPLETE: u32 = 0b10 << 2;

    /// RDY.
    #[must_use]
    pub fn is_ready(self) -> bool {
        self.0 & ControllerStatus::READY != 0
    }

    /// CFS.
    #[must_use]
    pub fn is_fatal(self) -> bool {
        self.0 & ControllerStatus::FATAL != 0
    }

    /// SHST is 10b.
    #[must_use]
    pub fn is_shut_down(self) -> bool {
        self.0 & 0b1100 == ControllerStatus::SHUTDOWN_COMPLETE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_survive_their_value() {
        let capabilities = Capabilities {
            queue_entries_max: 127,
            ready_timeout_500ms: 15,
            nvm_command_set: true,
            all_command_sets: true,
            no_io_command_set: false,
            ready_modes: 1,
        };
        assert_eq!(Capabilities::from_value(capabilities.value()), capabilities);
        assert_eq!(Configuration::enabled(Configuration::CSS_ALL).0, 0x0046_0061);
    }
    #[test]
    fn each_capability_has_the_bits_of_the_specification() {
        let none = Capabilities::from_value(0);
        assert_eq!(none.value(), 1 << 16, "only CQR");
        for (capabilities, value) in [
            (Capabilities { queue_entries_max: 0xfedc, ..none }, 0xfedc),
            (Capabilities { ready_timeout_500ms: 0xfe, ..none }, 0xfe << 24),
            (Capabilities { nvm_command_set: true, ..none }, 1 << 37),
            (Capabilities { all_command_sets: true, ..none }, 1 << 43),
            (Capabilities { no_io_command_set: true, ..none }, 1 << 44),
            (Capabilities { ready_modes: 0b01, ..none }, 1 << 59),
            (Capabilities { ready_modes: 0b10, ..none }, 1 << 60),
        ] {
            assert_eq!(capabilities.value(), value | 1 << 16, "{capabilities:?}");
            assert_eq!(Capabilities::from_value(value), capabilities);
        }
    }

    #[test]
    fn each_field_of_configuration_and_status_has_the_bits_of_the_specification() {
        let fields = |value| {
            let configuration = Configuration(value);
            [
                u8::from(configuration.is_enabled()),
                configuration.command_set(),
                configuration.page_size(),
                configuration.arbitration(),
                configuration.shutdown_notification(),
                configuration.submission_entry_size(),
                configuration.completion_entry_size(),
            ]
        };
        assert_eq!(fields(0b1010_0110_1001_0010_1110_0000), [0, 0b110, 0b0101, 0b010, 0b10, 0b0110, 0b1010]);
        assert_eq!(fields(Configuration::enabled(Configuration::CSS_NVM).0), [1, 0, 0, 0, 0, 6, 4]);
        let read = |value| {
            let status = ControllerStatus(value);
            [status.is_ready(), status.is_fatal(), status.is_shut_down()]
        };
        assert_eq!(read(0b0001), [true, false, false]);
        assert_eq!(read(0b0010), [false, true, false]);
        assert_eq!(read(0b0100), [false; 3], "a shutdown in progress");
        assert_eq!(read(0b1000), [false, false, true]);
        assert_eq!(read(0b1100), [false; 3], "reserved");
        assert_eq!((ControllerStatus::SHUTDOWN_IN_FLIGHT, ControllerStatus::SHUTDOWN_COMPLETE), (0b0100, 0b1000));
    }

    #[test]
    fn properties_have_the_offsets_of_the_specification() {
        let found = Property::ALL.map(|property| (property.offset(), property.size_bytes()));
        assert_eq!(found, [(0, 8), (8, 4), (0x14, 4), (0x1c, 4), (0x20, 4), (0x68, 4)]);
        assert!(Property::ALL.iter().all(|property| Property::at(property.offset()) == Some(*property)));
        assert_eq!(Property::at(4), None);
    }
}
