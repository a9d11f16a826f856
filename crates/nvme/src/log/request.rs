//! The fields of a Get Log Page command (NVMe Base 2.0, section 5.16).

/// Log Page Identifier (LID) of the pages that this crate supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LogPage {
    /// 00h.
    SupportedPages = 0x00,
    /// 01h.
    ErrorInformation = 0x01,
    /// 02h.
    Smart = 0x02,
    /// 03h.
    FirmwareSlot = 0x03,
    /// 04h.
    ChangedNamespaces = 0x04,
    /// 05h.
    CommandEffects = 0x05,
    /// 70h.
    Discovery = 0x70,
    /// 80h.
    ReservationNotification = 0x80,
    /// BFh.
    ChangedZones = 0xbf,
}

/// The fields of a Get Log Page command, with raw codes.
///
/// ```text
/// Dword 10  07:00 page (LID) | 14:08 specific (LSP) | 15 retain event (RAE) | 31:16 dwords, low (NUMDL)
/// Dword 11  15:00 dwords, high (NUMDU) | 31:16 specific identifier (LSI)
/// Dword 12  offset, low (LPOL)      Dword 13  offset, high (LPOU)
/// Dword 14  06:00 UUID index | 23 the offset is an index (OT) | 31:24 command set (CSI)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GetLogPage {
    /// Log Page Identifier (LID); see [`LogPage`].
    pub page: u8,
    /// Log Specific Field (LSP).
    pub specific: u8,
    /// Retain Asynchronous Event (RAE): reading the page does not clear its event.
    pub retain_event: bool,
    /// How many bytes (NUMDL and NUMDU): a multiple of 4, from 4 to 2^34.
    pub length_bytes: u64,
    /// Log Specific Identifier (LSI).
    pub specific_id: u16,
    /// Log Page Offset (LPOL and LPOU): bytes from the start of the page, or an index; see
    /// `offset_is_index`.
    pub offset: u64,
    /// Offset Type (OT).
    pub offset_is_index: bool,
    /// UUID Index.
    pub uuid_index: u8,
    /// Command Set Identifier (CSI).
    pub command_set: u8,
}

impl GetLogPage {
    /// The request for the first `length_bytes` of a page.
    #[must_use]
    pub fn of(page: LogPage, length_bytes: u64) -> GetLogPage {
        GetLogPage { page: page as u8, length_bytes, ..GetLogPage::default() }
    }

    /// Reads the command dwords 10 to 14.
    #[must_use]
    pub fn decode(dwords: [u32; 5]) -> GetLogPage {
        let [dword10, dword11, low, high, dword14] = dwords;
        let last_dword = u64::from(dword10 >> 16) | u64::from(dword11 & 0xffff) << 16;
        GetLogPage {
            page: dword10 as u8,
            specific: (dword10 >> 8 & 0x7f) as u8,
            retain_event: dword10 >> 15 & 1 == 1,
            length_bytes: (last_dword + 1) * 4,
            specific_id: (dword11 >> 16) as u16,
            offset: u64::from(low) | u64::from(high) << 32,
            offset_is_index: dword14 >> 23 & 1 == 1,
            uuid_index: (dword14 & 0x7f) as u8,
            command_set: (dword14 >> 24) as u8,
        }
    }

    /// The command dwords 10 to 14.
    ///
    /// # Panics
    /// For a length that is not a multiple of 4, or not from 4 to 2^34.
    #[must_use]
    pub fn encode(&self) -> [u32; 5] {
        assert!(
            self.length_bytes.is_multiple_of(4),
            "the length of a log page must be a multiple of 4: {} bytes",
            self.length_bytes
        );
        assert!(
            (4..=1 << 34).contains(&self.length_bytes),
            "the length of a log page must be 4 to 2^34: {} bytes",
            self.length_bytes
        );
        let last_dword = (self.length_bytes / 4 - 1) as u32;
        [
            u32::from(self.page)
                | u32::from(self.specific & 0x7f) << 8
                | u32::from(self.retain_event) << 15
                | last_dword << 16,
            last_dword >> 16 | u32::from(self.specific_id) << 16,
            self.offset as u32,
            (self.offset >> 32) as u32,
            u32::from(self.uuid_index & 0x7f)
                | u32::from(self.offset_is_index) << 23
                | u32::from(self.command_set) << 24,
        ]
    }

    /// The requested part of a page, shorter where the page ends; `None` for an invalid offset,
    /// which is Invalid Field: past the end, not on a dword, or an index.
    ///
    /// Requested bytes beyond the end of the page are undefined; the caller fills them with zeros.
    #[must_use]
    pub fn window<'a>(&self, page: &'a [u8]) -> Option<&'a [u8]> {
        if self.offset_is_index || !self.offset.is_multiple_of(4) {
            return None;
        }
        let rest = page.get(usize::try_from(self.offset).ok()?..)?;
        let length = usize::try_from(self.length_bytes).map_or(rest.len(), |length| length.min(rest.len()));
        Some(&rest[..length])
    }
}

impl TryFrom<u8> for LogPage {
    type Error = u8;

    /// Gives an unknown code back.
    fn try_from(code: u8) -> Result<LogPage, u8> {
        Ok(match code {
            0x00 => LogPage::SupportedPages,
            0x01 => LogPage::ErrorInformation,
            0x02 => LogPage::Smart,
            0x03 => LogPage::FirmwareSlot,
            0x04 => LogPage::ChangedNamespaces,
            0x05 => LogPage::CommandEffects,
            0x70 => LogPage::Discovery,
            0x80 => LogPage::ReservationNotification,
            0xbf => LogPage::ChangedZones,
            _ => return Err(code),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_length_is_encoded_as_the_number_of_its_last_dword() {
        assert_eq!(GetLogPage::of(LogPage::Smart, 512).encode(), [0x007f_0002, 0, 0, 0, 0]);
        assert_eq!(GetLogPage::of(LogPage::Discovery, 4 << 16).encode(), [0xffff_0070, 0, 0, 0, 0]);
        assert_eq!(GetLogPage::of(LogPage::Discovery, (4 << 16) + 4).encode(), [0x0000_0070, 1, 0, 0, 0]);
    }

    #[test]
    fn a_window_ends_with_its_page() {
        let page: Vec<u8> = (0..16).collect();
        let window = |offset, length_bytes| {
            GetLogPage { offset, ..GetLogPage::of(LogPage::Smart, length_bytes) }.window(&page).map(<[u8]>::to_vec)
        };
        assert_eq!(window(0, 8), Some((0..8).collect()));
        assert_eq!(window(12, 1 << 34), Some((12..16).collect()));
        assert_eq!(window(16, 4), Some(vec![]));
        assert_eq!(window(20, 4), None);
        assert_eq!(window(2, 4), None);
        assert_eq!(window(u64::MAX - 3, 4), None);
        let indexed = GetLogPage { offset_is_index: true, ..GetLogPage::of(LogPage::Smart, 4) };
        assert_eq!(indexed.window(&page), None);
    }

    #[test]
    fn pages_survive_their_codes_and_unknown_codes_are_returned() {
        let known: Vec<u8> =
            (0..=u8::MAX).filter(|&code| LogPage::try_from(code).is_ok_and(|p| p as u8 == code)).collect();
        assert_eq!(known, [0, 1, 2, 3, 4, 5, 0x70, 0x80, 0xbf]);
    }

    #[test]
    #[should_panic(expected = "must be a multiple of 4")]
    fn a_length_of_half_a_dword_is_a_bug() {
        let _ = GetLogPage::of(LogPage::Smart, 6).encode();
    }

    proptest! {
        #[test]
        fn dwords_survive_decoding_and_encoding(dwords in any::<[u32; 5]>()) {
            let mut meaningful = dwords;
            meaningful[4] &= 0xff80_007f;
            prop_assert_eq!(GetLogPage::decode(dwords).encode(), meaningful);
        }
    }
}
