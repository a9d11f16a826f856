//! Reservation Notification, 80h (NVMe Base 2.0, section 5.16.1.24).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::NamespaceId;

use crate::page::Page;

/// A change of the registration or the reservation of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ReservationNotice {
    /// 1h: another host has removed the registration of this one.
    RegistrationPreempted = 1,
    /// 2h: the reservation was released, or acquired by another host; this one is still a
    /// registrant.
    ReservationReleased = 2,
    /// 3h: another host has cleared the reservation and all registrations.
    ReservationPreempted = 3,
}

impl ReservationNotice {
    /// The bit of Reservation Notification Mask (82h) that masks it (NVMe Base 2.0, section
    /// 5.27.1.26).
    #[must_use]
    pub fn mask(self) -> u32 {
        1 << self as u8
    }
}

/// One notification; all zeros if there is none.
///
/// ```text
/// 0 log page count | 8 type, 0 none | 9 further ones, 255 at most | 10 reserved | 12 NSID | 16 reserved
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ReservationNotification {
    /// Log Page Count: the number of the notification, from 1.
    pub count: U64,
    /// Reservation Notification Log Page Type, a [`ReservationNotice`]; zero for an empty page.
    pub kind: u8,
    /// Number of Available Log Pages: notifications after this one.
    pub available: u8,
    _reserved_10: [u8; 2],
    /// NSID.
    pub namespace: U32,
    _reserved_16: [u8; 48],
}

const _: () = assert!(size_of::<ReservationNotification>() == 64);

impl Page for ReservationNotification {
    const NAME: &'static str = "Reservation Notification";
}

impl ReservationNotification {
    /// The page of a notification with `others_waiting` others waiting.
    #[must_use]
    pub fn of(
        count: u64,
        notice: ReservationNotice,
        namespace: NamespaceId,
        others_waiting: usize,
    ) -> ReservationNotification {
        let mut page = ReservationNotification::empty();
        page.count = count.into();
        page.kind = notice as u8;
        page.available = u8::try_from(others_waiting).unwrap_or(u8::MAX);
        page.namespace = namespace.0.into();
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::assert_layout;

    #[test]
    fn every_field_has_the_offset_of_the_specification() {
        assert_layout!(ReservationNotification { count: 0..=7, kind: 8..=8, available: 9..=9, namespace: 12..=15 });
    }

    #[test]
    fn a_notification_counts_those_after_it_up_to_255() {
        let page = |others_waiting| {
            ReservationNotification::of(7, ReservationNotice::ReservationReleased, NamespaceId(3), others_waiting)
        };
        assert_eq!(page(2).bytes()[..16], [7, 0, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 3, 0, 0, 0]);
        assert_eq!(page(1000).available, 255);
    }

    #[test]
    fn each_notice_has_a_bit_of_the_mask() {
        let notices = [
            ReservationNotice::RegistrationPreempted,
            ReservationNotice::ReservationReleased,
            ReservationNotice::ReservationPreempted,
        ];
        assert_eq!(notices.map(ReservationNotice::mask), [0b0010, 0b0100, 0b1000]);
    }
}
