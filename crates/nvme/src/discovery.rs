//! The discovery log page, 70h (NVMe over Fabrics 1.1, section 5.3; NVMe Base 2.0, section
//! 5.16.1.23): where the subsystems are.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::page::{Page, PageError, ascii_field, field_text, name_field};

/// The header before the entries.
///
/// ```text
/// 0 generation (GENCTR) | 8 number of records (NUMREC) | 16 record format (RECFMT) | 18 reserved | 1024 entries
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// Generation Counter (GENCTR): changes with every change of the page.
    pub generation: U64,
    /// Number of Records (NUMREC).
    pub records: U64,
    /// Record Format (RECFMT); zero is the only format.
    pub format: U16,
    _reserved_18: [u8; 1006],
}

/// One address of one subsystem.
///
/// ```text
///  0 TRTYPE | 1 ADRFAM | 2 SUBTYPE | 3 TREQ | 4 PORTID | 6 CNTLID | 8 ASQSZ | 10 EFLAGS | 32 TRSVCID, 32 bytes
/// 256 SUBNQN, 256 bytes | 512 TRADDR, 256 bytes | 768 TSAS, 256 bytes
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// Transport Type (TRTYPE): 3 is TCP.
    pub transport: u8,
    /// Address Family (ADRFAM); see [`AddressFamily`].
    pub address_family: u8,
    /// Subsystem Type (SUBTYPE); see [`SubsystemKind`].
    pub kind: u8,
    /// Transport Requirements (TREQ): bits 1:0 secure channel, bit 2 flow control may be off.
    pub requirements: u8,
    /// Port ID (PORTID).
    pub port: U16,
    /// Controller ID (CNTLID): FFFFh for the dynamic controller model, FFFEh for the static one.
    pub controller_id: U16,
    /// Admin Max SQ Size (ASQSZ), at least 32.
    pub admin_queue_entries_max: U16,
    /// Entry Flags (EFLAGS).
    pub flags: U16,
    _reserved_12: [u8; 20],
    /// Transport Service Identifier (TRSVCID), ASCII: the TCP port; see
    /// [`DiscoveryEntry::service`].
    pub service_bytes: [u8; 32],
    _reserved_64: [u8; 192],
    /// NVM Subsystem Qualified Name (SUBNQN); see [`DiscoveryEntry::subsystem_nqn`].
    pub subsystem_nqn_bytes: [u8; 256],
    /// Transport Address (TRADDR), ASCII; see [`DiscoveryEntry::address`].
    pub address_bytes: [u8; 256],
    /// Transport Specific Address Subtype (TSAS); of TCP the first byte is the security type
    /// (SECTYPE): 0 none, 1 TLS 1.2, 2 TLS 1.3.
    pub transport_specific: [u8; 256],
}

const _: () = assert!(size_of::<DiscoveryHeader>() == 1024);
const _: () = assert!(size_of::<DiscoveryEntry>() == 1024);

/// Address Family (ADRFAM) of a TCP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AddressFamily {
    /// 1h.
    Ipv4 = 1,
    /// 2h.
    Ipv6 = 2,
}

/// Subsystem Type (SUBTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SubsystemKind {
    /// 1h: another discovery service, with subsystems of its own.
    Referral = 1,
    /// 2h: a subsystem with namespaces.
    Nvm = 2,
    /// 3h: the discovery service that answers.
    CurrentDiscovery = 3,
}

/// The TCP address of a subsystem.
#[derive(Clone, Copy, Debug)]
pub struct TcpAddress<'a> {
    /// Which kind of address.
    pub family: AddressFamily,
    /// The address without port and brackets, at most 256 characters.
    pub address: &'a str,
    /// The TCP port in decimal.
    pub service: &'a str,
}

impl Page for DiscoveryHeader {
    const NAME: &'static str = "Discovery Log Page Header";
}

impl Page for DiscoveryEntry {
    const NAME: &'static str = "Discovery Log Page Entry";
}

impl DiscoveryEntry {
    /// A subsystem over TCP: dynamic controllers, no secure channel. Submission queues have flow
    /// control, unless the caller adds [`FLOW_CONTROL_OPTIONAL`] to the requirements.
    ///
    /// # Errors
    /// [`PageError::Text`] for a text that does not fit its field.
    pub fn tcp(
        kind: SubsystemKind,
        port: u16,
        subsystem_nqn: &str,
        at: &TcpAddress<'_>,
        admin_queue_entries_max: u16,
    ) -> Result<DiscoveryEntry, PageError> {
        let mut entry = DiscoveryEntry::empty();
        entry.transport = TRANSPORT_TCP;
        entry.address_family = at.family as u8;
        entry.kind = kind as u8;
        entry.requirements = NO_SECURE_CHANNEL;
        entry.port = port.into();
        entry.controller_id = DYNAMIC_CONTROLLER.into();
        entry.admin_queue_entries_max = admin_queue_entries_max.into();
        entry.service_bytes = ascii_field(Self::NAME, "TRSVCID", at.service)?;
        entry.subsystem_nqn_bytes = name_field(Self::NAME, "SUBNQN", subsystem_nqn)?;
        entry.address_bytes = ascii_field(Self::NAME, "TRADDR", at.address)?;
        Ok(entry)
    }

    /// Whether the entry is of TCP.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        self.transport == TRANSPORT_TCP
    }

    /// Transport Service Identifier (TRSVCID) without its padding: for TCP the port.
    #[must_use]
    pub fn service(&self) -> String {
        field_text(&self.service_bytes)
    }

    /// Transport Address (TRADDR) without its padding.
    #[must_use]
    pub fn address(&self) -> String {
        field_text(&self.address_bytes)
    }

    /// The NQN of the subsystem (SUBNQN), unchecked.
    #[must_use]
    pub fn subsystem_nqn(&self) -> String {
        field_text(&self.subsystem_nqn_bytes)
    }
}

/// Bit 2 of the Transport Requirements (TREQ): the host may disable submission queue flow control.
pub const FLOW_CONTROL_OPTIONAL: u8 = 1 << 2;

/// The whole page.
#[must_use]
pub fn write_log(generation: u64, entries: &[DiscoveryEntry]) -> Vec<u8> {
    let mut header = DiscoveryHeader::empty();
    header.generation = generation.into();
    header.records = (entries.len() as u64).into();
    let mut page = Vec::with_capacity(size_of::<DiscoveryHeader>() + size_of_val(entries));
    page.extend_from_slice(header.bytes());
    page.extend_from_slice(entries.as_bytes());
    page
}

/// Reads the whole page: the generation and the entries. A host reads the header first, to know how
/// long the page is, and again when the generation differs in the end.
///
/// # Errors
/// [`PageError::Short`] for fewer entries than the header announces; [`PageError::Value`] for an
/// unknown record format.
pub fn parse_log(page: &[u8]) -> Result<(u64, Vec<DiscoveryEntry>), PageError> {
    let header = DiscoveryHeader::parse(page)?;
    if header.format.get() != 0 {
        return Err(PageError::Value {
            page: DiscoveryHeader::NAME,
            field: "RECFMT",
            value: header.format.get().into(),
            remedy: "must be 0",
        });
    }
    let records = header.records.get();
    let entries = &page[size_of::<DiscoveryHeader>()..];
    if records > (entries.len() / size_of::<DiscoveryEntry>()) as u64 {
        let needed_bytes = usize::try_from(log_bytes(records)).unwrap_or(usize::MAX);
        return Err(PageError::Short { page: "Discovery Log Page", needed_bytes, found_bytes: page.len() });
    }
    let entries = entries.chunks_exact(size_of::<DiscoveryEntry>()).take(records as usize);
    Ok((header.generation.get(), entries.map(DiscoveryEntry::parse).collect::<Result<_, _>>()?))
}

/// Bytes of a page with so many records; saturated if it exceeds the integer.
#[must_use]
pub fn log_bytes(records: u64) -> u64 {
    records.saturating_add(1).saturating_mul(1024)
}

/// TRTYPE of TCP.
const TRANSPORT_TCP: u8 = 3;
/// CNTLID of the dynamic controller model.
const DYNAMIC_CONTROLLER: u16 = 0xffff;
/// TREQ bits 1:0 = 10b: no secure channel is required.
const NO_SECURE_CHANNEL: u8 = 0b10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::page::assert_layout;

    fn entry(name: &str) -> DiscoveryEntry {
        let at = TcpAddress { family: AddressFamily::Ipv6, address: "fd00::1", service: "4420" };
        DiscoveryEntry::tcp(SubsystemKind::Nvm, 1, name, &at, 32).unwrap()
    }

    #[test]
    fn every_field_has_the_offset_of_the_specification() {
        assert_layout!(DiscoveryHeader { generation: 0..=7, records: 8..=15, format: 16..=17 });
        assert_layout!(DiscoveryEntry {
            transport: 0..=0,
            address_family: 1..=1,
            kind: 2..=2,
            requirements: 3..=3,
            port: 4..=5,
            controller_id: 6..=7,
            admin_queue_entries_max: 8..=9,
            flags: 10..=11,
            service_bytes: 32..=63,
            subsystem_nqn_bytes: 256..=511,
            address_bytes: 512..=767,
            transport_specific: 768..=1023,
        });
    }

    #[test]
    fn an_entry_has_the_address_of_a_subsystem() {
        let entry = entry("nqn.2024-01.org.example:drive");
        assert_eq!(entry.bytes()[0..8], [3, 2, 2, 0b10, 1, 0, 0xff, 0xff]);
        assert_eq!((entry.address(), entry.service()), ("fd00::1".to_owned(), "4420".to_owned()));
        assert_eq!(entry.subsystem_nqn(), "nqn.2024-01.org.example:drive");
        assert!(entry.is_tcp());
        assert_eq!(entry.bytes()[32..37], *b"4420 ");
        assert_eq!(entry.bytes()[768], 0, "SECTYPE: none");
    }

    #[test]
    fn a_log_survives_encoding_and_parsing() {
        let entries = vec![entry("nqn.2024-01.org.example:a"), entry("nqn.2024-01.org.example:b")];
        let page = write_log(9, &entries);
        assert_eq!(page.len() as u64, log_bytes(2));
        assert_eq!(parse_log(&page), Ok((9, entries)));
        assert_eq!(parse_log(&write_log(1, &[])), Ok((1, vec![])));
    }

    #[test]
    fn a_log_that_ends_early_or_has_another_format_is_an_error() {
        let mut page = write_log(9, &[entry("nqn.a")]);
        assert_eq!(
            parse_log(&page[..2047]),
            Err(PageError::Short { page: "Discovery Log Page", needed_bytes: 2048, found_bytes: 2047 })
        );
        assert!(parse_log(&page[..1000]).is_err());
        page[8..16].fill(0xff);
        assert!(matches!(parse_log(&page), Err(PageError::Short { .. })), "2^64 - 1 records");
        page[16] = 1;
        assert!(matches!(parse_log(&page), Err(PageError::Value { field: "RECFMT", .. })));
    }

    #[test]
    fn a_text_that_does_not_fit_is_refused() {
        let at = TcpAddress { family: AddressFamily::Ipv4, address: "10.0.0.1", service: &"4".repeat(33) };
        assert!(DiscoveryEntry::tcp(SubsystemKind::Nvm, 1, "nqn.a", &at, 32).is_err());
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..4000)) {
            let _ = parse_log(&bytes);
        }
    }
}
