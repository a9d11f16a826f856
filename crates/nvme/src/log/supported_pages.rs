//! Supported Log Pages, 00h (NVMe Base 2.0, section 5.16.1.1).

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::LogPage;
use crate::page::Page;

/// The supported log pages.
///
/// ```text
/// 0 page 00h | 4 page 01h | ... | 1020 page FFh; each: 0 supported (LSUPP) | 1 index offset (IOS) | 31:16 specific
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SupportedLogPages {
    /// LID Supported and Effects, one for each identifier.
    pub pages: [U32; 256],
}

const _: () = assert!(size_of::<SupportedLogPages>() == 1024);

impl Page for SupportedLogPages {
    const NAME: &'static str = "Supported Log Pages";
}

impl SupportedLogPages {
    /// The page of a controller that supports `pages`, none of them with an index offset.
    #[must_use]
    pub fn of(pages: &[LogPage]) -> SupportedLogPages {
        let mut page = SupportedLogPages::empty();
        for &supported in pages {
            page.pages[usize::from(supported as u8)] = 1.into();
        }
        page
    }

    /// Whether the controller has a page.
    #[must_use]
    pub fn has(&self, page: u8) -> bool {
        self.pages[usize::from(page)].get() & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_has_its_dword() {
        let page = SupportedLogPages::of(&[LogPage::SupportedPages, LogPage::Smart, LogPage::ChangedZones]);
        let set: Vec<usize> =
            page.bytes().iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(at, _)| at).collect();
        assert_eq!(set, [0, 8, 0xbf * 4]);
        assert!(page.has(0xbf) && !page.has(0x05));
        assert!(SupportedLogPages::parse(&page.bytes()[..1023]).is_err());
    }
}
