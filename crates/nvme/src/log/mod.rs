//! Log pages (NVMe Base 2.0, section 5.16; Zoned Namespace Command Set 1.1, section 4.1.4), and the
//! fields of the Get Log Page command that reads them.

mod changed_namespaces;
mod changed_zones;
mod effects;
mod error;
mod firmware_slot;
mod request;
mod reservation;
mod smart;
mod supported_pages;

pub use changed_namespaces::ChangedNamespaceList;
pub use changed_zones::ChangedZonePage;
pub use effects::{CommandEffects, effect};
pub use error::ErrorEntry;
pub use firmware_slot::FirmwareSlots;
pub use request::{GetLogPage, LogPage};
pub use reservation::{ReservationNotice, ReservationNotification};
pub use smart::{Health, SmartLog, data_units, warning};
pub use supported_pages::SupportedLogPages;
