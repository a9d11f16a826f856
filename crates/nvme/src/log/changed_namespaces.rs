//! Changed Namespace List, 04h (NVMe Base 2.0, section 5.16.1.5).

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::NamespaceId;

use crate::page::Page;

/// The namespaces that changed since the page was last read.
///
/// ```text
/// 0 identifier 0 | 4 identifier 1 | ... | 4092 identifier 1023; ascending, ended by zero; FFFFFFFFh first: too many
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ChangedNamespaceList {
    /// The identifiers.
    pub identifiers: [U32; 1024],
}

const _: () = assert!(size_of::<ChangedNamespaceList>() == 4096);

impl Page for ChangedNamespaceList {
    const NAME: &'static str = "Changed Namespace List";
}

impl ChangedNamespaceList {
    /// The page for these namespaces, in any order and however often named. More than 1024 become
    /// "too many".
    #[must_use]
    pub fn of(changed: &[NamespaceId]) -> ChangedNamespaceList {
        let mut sorted: Vec<u32> = changed.iter().map(|id| id.0).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut page = ChangedNamespaceList::empty();
        if sorted.len() > page.identifiers.len() {
            page.identifiers[0] = TOO_MANY.into();
            return page;
        }
        for (slot, id) in page.identifiers.iter_mut().zip(sorted) {
            *slot = id.into();
        }
        page
    }

    /// The namespaces that changed; `None` if there were too many to list.
    #[must_use]
    pub fn changed(&self) -> Option<Vec<NamespaceId>> {
        if self.identifiers[0].get() == TOO_MANY {
            return None;
        }
        Some(self.identifiers.iter().map(|id| NamespaceId(id.get())).take_while(|id| id.0 != 0).collect())
    }
}

/// In the first place: more namespaces changed than the page can hold.
const TOO_MANY: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_namespaces_are_listed_in_order_and_once() {
        let page = ChangedNamespaceList::of(&[9, 2, 9].map(NamespaceId));
        assert_eq!(page.bytes()[0..12], [2, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(page.changed(), Some([2, 9].map(NamespaceId).to_vec()));
        assert_eq!(ChangedNamespaceList::empty().changed(), Some(vec![]));
    }

    #[test]
    fn a_full_page_is_listed_and_one_more_is_too_many() {
        let ids: Vec<NamespaceId> = (1..=1025).map(NamespaceId).collect();
        assert_eq!(ChangedNamespaceList::of(&ids[..1024]).changed(), Some(ids[..1024].to_vec()));
        let page = ChangedNamespaceList::of(&ids);
        assert_eq!(page.changed(), None);
        assert_eq!(page.bytes()[0..8], [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    }
}
