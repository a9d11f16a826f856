//! Status codes of a drive, as errno and text for a C program.

use std::ffi::CStr;

use rustix::io::Errno;
use zonda_zoned::Status;

/// The errno that Linux uses for a status: `nvme_error_status` of its NVMe driver, and the table of
/// `blk_status_to_errno` of its block layer; both limits on zones as in the kernel's
/// `Documentation/block` and `max_open_zones`, `max_active_zones` of its queue attributes. `None`:
/// success.
pub(crate) fn errno_of(status: Status) -> Option<Errno> {
    Some(match status {
        Status::Success => return None,
        Status::TooManyOpenZones => Errno::TOOMANYREFS,
        Status::TooManyActiveZones => Errno::OVERFLOW,
        Status::InvalidField | Status::InvalidNamespace => Errno::OPNOTSUPP,
        Status::LbaOutOfRange | Status::NamespaceNotReady => Errno::REMOTEIO,
        Status::CapacityExceeded => Errno::NOSPC,
        Status::ReservationConflict => Errno::BADE,
        Status::WriteFault | Status::UnrecoveredReadError => Errno::NODATA,
        _ => Errno::IO,
    })
}

/// The name of a status.
pub(crate) fn text_of(status: u16) -> &'static CStr {
    // A test compares these with `Display` of `Status`.
    match status {
        0x000 => c"success",
        0x002 => c"invalid field in command",
        0x004 => c"data transfer error",
        0x005 => c"aborted by power loss",
        0x006 => c"internal error",
        0x007 => c"abort requested",
        0x00b => c"invalid namespace",
        0x020 => c"namespace is write protected",
        0x080 => c"LBA out of range",
        0x081 => c"capacity exceeded",
        0x082 => c"namespace not ready",
        0x083 => c"reservation conflict",
        0x1b6 => c"invalid zone operation",
        0x1b7 => c"ZRWA resources unavailable",
        0x1b8 => c"zone boundary error",
        0x1b9 => c"zone is full",
        0x1ba => c"zone is read only",
        0x1bb => c"zone is offline",
        0x1bc => c"zone invalid write",
        0x1bd => c"too many active zones",
        0x1be => c"too many open zones",
        0x1bf => c"invalid zone state transition",
        0x280 => c"write fault",
        0x281 => c"unrecovered read error",
        crate::layout::STATUS_NONE => c"the command did not reach a drive",
        _ => c"unknown status",
    }
}

/// The remedy for a status; empty if there is none.
pub(crate) fn remedy_of(status: u16) -> &'static str {
    match status {
        0x002 => "address a zone by its first block, and check the limits in the geometry",
        0x005 | 0x007 | 0x082 => "check that the server is running, and open the namespace again",
        0x020 => "open a namespace that is not served read-only",
        0x083 => "another host holds a reservation, as the server of a volume does on its members: stop that server",
        0x080 => "use LBAs within the namespace",
        0x081 => "free space on the file system of the image, then write again",
        0x1b8 => "end the transfer at the zone's capacity",
        0x1b9 => "reset the zone, or write to another",
        0x1bb => "use another zone: this one and its data are lost",
        0x1ba => "copy the data of the zone, and write to another",
        0x1bc => "write at the zone's write pointer, and from one handle at a time",
        0x1bd => "finish or reset an active zone first",
        0x1be => "close, finish or reset an open zone first",
        0x1bf => "check the state of the zone with zonda_report_zones",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_an_errno_and_its_own_text() {
        for status in Status::ERRORS {
            assert!(errno_of(status).is_some(), "{status}");
            assert_eq!(text_of(status as u16).to_str().unwrap(), status.to_string());
        }
        assert_eq!((errno_of(Status::Success), text_of(0)), (None, c"success"));
    }
}
