//! Status codes of completions.

use std::fmt;

use zonda_zoned::Status;

/// Status code type and status code as one number, `0xTCC` (NVMe Base 2.0, Figures 94 to 99):
/// `0x1b9` is type 1, code B9h.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusCode(pub u16);

/// Defines the codes, their names for a person, and the list of all of them.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        impl StatusCode {
            $($(#[$doc])* pub const $name: StatusCode = StatusCode($code);)*

            /// Every code that has a name here, in the order of the numbers within each table.
            pub const ALL: &'static [StatusCode] = &[$(StatusCode::$name),*];

            /// The meaning of the code, or `None` for an unknown one.
            #[must_use]
            pub fn meaning(self) -> Option<&'static str> {
                #[allow(unreachable_patterns)] // Some codes mean different things for different commands.
                match self.0 {
                    $($code => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// 0/00h.
    SUCCESS = 0x000, "success";
    /// 0/01h.
    INVALID_OPCODE = 0x001, "invalid command opcode";
    /// 0/02h.
    INVALID_FIELD = 0x002, "invalid field in command";
    /// 0/03h.
    COMMAND_ID_CONFLICT = 0x003, "command identifier conflict";
    /// 0/04h.
    DATA_TRANSFER_ERROR = 0x004, "data transfer error";
    /// 0/05h.
    ABORTED_POWER_LOSS = 0x005, "aborted by power loss";
    /// 0/06h.
    INTERNAL_ERROR = 0x006, "internal error";
    /// 0/07h.
    ABORT_REQUESTED = 0x007, "abort requested";
    /// 0/08h.
    ABORTED_QUEUE_DELETED = 0x008, "aborted by deletion of its queue";
    /// 0/0Bh.
    INVALID_NAMESPACE = 0x00b, "invalid namespace or format";
    /// 0/0Ch.
    COMMAND_SEQUENCE_ERROR = 0x00c, "command sequence error";
    /// 0/0Dh.
    INVALID_SGL_SEGMENT_DESCRIPTOR = 0x00d, "invalid SGL segment descriptor";
    /// 0/0Fh.
    DATA_SGL_LENGTH_INVALID = 0x00f, "data SGL length invalid";
    /// 0/11h.
    SGL_DESCRIPTOR_TYPE_INVALID = 0x011, "SGL descriptor type invalid";
    /// 0/15h.
    OPERATION_DENIED = 0x015, "operation denied";
    /// 0/16h.
    SGL_OFFSET_INVALID = 0x016, "SGL offset invalid";
    /// 0/18h.
    HOST_ID_INCONSISTENT_FORMAT = 0x018, "host identifier inconsistent format";
    /// 0/19h.
    KEEP_ALIVE_EXPIRED = 0x019, "keep alive timer expired";
    /// 0/1Ah.
    KEEP_ALIVE_TIMEOUT_INVALID = 0x01a, "keep alive timeout invalid";
    /// 0/20h.
    NAMESPACE_WRITE_PROTECTED = 0x020, "namespace is write protected";
    /// 0/21h.
    COMMAND_INTERRUPTED = 0x021, "command interrupted";
    /// 0/22h.
    TRANSIENT_TRANSPORT_ERROR = 0x022, "transient transport error";
    /// 0/80h.
    LBA_OUT_OF_RANGE = 0x080, "LBA out of range";
    /// 0/81h.
    CAPACITY_EXCEEDED = 0x081, "capacity exceeded";
    /// 0/82h.
    NAMESPACE_NOT_READY = 0x082, "namespace not ready";
    /// 0/83h.
    RESERVATION_CONFLICT = 0x083, "reservation conflict";
    /// 1/00h.
    COMPLETION_QUEUE_INVALID = 0x100, "completion queue invalid";
    /// 1/01h.
    INVALID_QUEUE_IDENTIFIER = 0x101, "invalid queue identifier";
    /// 1/02h.
    INVALID_QUEUE_SIZE = 0x102, "invalid queue size";
    /// 1/03h.
    ABORT_LIMIT_EXCEEDED = 0x103, "abort command limit exceeded";
    /// 1/05h.
    ASYNC_EVENT_LIMIT_EXCEEDED = 0x105, "asynchronous event request limit exceeded";
    /// 1/09h.
    INVALID_LOG_PAGE = 0x109, "invalid log page";
    /// 1/0Ah.
    INVALID_FORMAT = 0x10a, "invalid format";
    /// 1/0Dh.
    FEATURE_NOT_SAVEABLE = 0x10d, "feature identifier not saveable";
    /// 1/0Eh.
    FEATURE_NOT_CHANGEABLE = 0x10e, "feature not changeable";
    /// 1/0Fh.
    FEATURE_NOT_NAMESPACE_SPECIFIC = 0x10f, "feature not namespace specific";
    /// 1/29h.
    IO_COMMAND_SET_NOT_SUPPORTED = 0x129, "I/O command set not supported";
    /// 1/2Ah.
    IO_COMMAND_SET_NOT_ENABLED = 0x12a, "I/O command set not enabled";
    /// 1/2Bh.
    IO_COMMAND_SET_COMBINATION_REJECTED = 0x12b, "I/O command set combination rejected";
    /// 1/2Ch.
    INVALID_IO_COMMAND_SET = 0x12c, "invalid I/O command set";
    /// 1/80h of a Connect: incompatible format.
    CONNECT_INCOMPATIBLE_FORMAT = 0x180, "connect incompatible format, or conflicting attributes";
    /// 1/80h of an I/O command: conflicting attributes.
    CONFLICTING_ATTRIBUTES = 0x180, "connect incompatible format, or conflicting attributes";
    /// 1/81h of a Connect: controller busy.
    CONNECT_CONTROLLER_BUSY = 0x181, "connect controller busy, or invalid protection information";
    /// 1/82h of a Connect.
    CONNECT_INVALID_PARAMETERS = 0x182, "connect invalid parameters, or attempted write to read only range";
    /// 1/83h of a Connect.
    CONNECT_RESTART_DISCOVERY = 0x183, "connect restart discovery, or command size limit exceeded";
    /// 1/84h of a Connect.
    CONNECT_INVALID_HOST = 0x184, "connect invalid host";
    /// 1/85h.
    INVALID_QUEUE_TYPE = 0x185, "invalid queue type";
    /// 1/90h.
    DISCOVER_RESTART = 0x190, "discover restart";
    /// 1/91h.
    AUTHENTICATION_REQUIRED = 0x191, "authentication required";
    /// 1/B6h.
    INVALID_ZONE_OPERATION = 0x1b6, "invalid zone operation";
    /// 1/B7h.
    ZRWA_RESOURCES_UNAVAILABLE = 0x1b7, "ZRWA resources unavailable";
    /// 1/B8h.
    ZONE_BOUNDARY_ERROR = 0x1b8, "zone boundary error";
    /// 1/B9h.
    ZONE_IS_FULL = 0x1b9, "zone is full";
    /// 1/BAh.
    ZONE_IS_READ_ONLY = 0x1ba, "zone is read only";
    /// 1/BBh.
    ZONE_IS_OFFLINE = 0x1bb, "zone is offline";
    /// 1/BCh.
    ZONE_INVALID_WRITE = 0x1bc, "zone invalid write";
    /// 1/BDh.
    TOO_MANY_ACTIVE_ZONES = 0x1bd, "too many active zones";
    /// 1/BEh.
    TOO_MANY_OPEN_ZONES = 0x1be, "too many open zones";
    /// 1/BFh.
    INVALID_ZONE_STATE_TRANSITION = 0x1bf, "invalid zone state transition";
    /// 2/80h.
    WRITE_FAULT = 0x280, "write fault";
    /// 2/81h.
    UNRECOVERED_READ_ERROR = 0x281, "unrecovered read error";
    /// 2/85h.
    COMPARE_FAILURE = 0x285, "compare failure";
    /// 2/86h.
    ACCESS_DENIED = 0x286, "access denied";
    /// 3/00h.
    INTERNAL_PATH_ERROR = 0x300, "internal path error";
    /// 3/70h.
    HOST_PATHING_ERROR = 0x370, "host pathing error";
    /// 3/71h.
    ABORTED_BY_HOST = 0x371, "command aborted by host";
}

impl StatusCode {
    /// Whether the command succeeded.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == StatusCode::SUCCESS
    }

    /// Whether a repetition of the same command can have another end (the Do Not Retry bit is the
    /// opposite).
    ///
    /// Do Not Retry is set for errors of the command itself. Errors because of the state of the
    /// drive, its medium, the transport or the host's other commands may not recur at a retry.
    #[must_use]
    pub fn may_retry(self) -> bool {
        matches!(
            self,
            StatusCode::SUCCESS
                | StatusCode::DATA_TRANSFER_ERROR
                | StatusCode::ABORTED_POWER_LOSS
                | StatusCode::INTERNAL_ERROR
                | StatusCode::ABORT_REQUESTED
                | StatusCode::ABORTED_QUEUE_DELETED
                | StatusCode::COMMAND_INTERRUPTED
                | StatusCode::TRANSIENT_TRANSPORT_ERROR
                | StatusCode::NAMESPACE_NOT_READY
                | StatusCode::ABORT_LIMIT_EXCEEDED
                | StatusCode::CONNECT_CONTROLLER_BUSY
                | StatusCode::DISCOVER_RESTART
        ) || self.0 >> 8 == 3
    }

    /// Bits 15:0 of the status word of a completion: code in 8:1, type in 11:9, Do Not Retry in 15
    /// unless [`StatusCode::may_retry`]. Bit 0, the phase tag elsewhere, is zero over Fabrics.
    #[must_use]
    pub fn status_field(self) -> u16 {
        self.status_field_with(!self.may_retry())
    }

    /// [`StatusCode::status_field`] with the given Do Not Retry bit.
    #[must_use]
    pub fn status_field_with(self, do_not_retry: bool) -> u16 {
        (self.0 & 0x7ff) << 1 | u16::from(do_not_retry) << 15
    }

    /// The code in a status word; retry delay, More and Do Not Retry are dropped.
    #[must_use]
    pub fn from_status_field(field: u16) -> StatusCode {
        StatusCode(field >> 1 & 0x7ff)
    }

    /// The status a device of zonda would have answered; a code that has no counterpart is an
    /// internal error.
    #[must_use]
    pub fn to_device_status(self) -> Status {
        if self.is_success() {
            return Status::Success;
        }
        Status::ERRORS.into_iter().find(|&status| status as u16 == self.0).unwrap_or(Status::InternalError)
    }
}

impl From<Status> for StatusCode {
    fn from(status: Status) -> StatusCode {
        StatusCode(status as u16)
    }
}

impl fmt::Display for StatusCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning() {
            Some(text) => f.pad(text),
            None => write!(f, "status {}/{:02X}h", self.0 >> 8, self.0 & 0xff),
        }
    }
}

impl fmt::Debug for StatusCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:02X}h ({})", self.0 >> 8, self.0 & 0xff, self.meaning().unwrap_or("unnamed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_status_survives_its_field() {
        for status in Status::ERRORS.into_iter().chain([Status::Success]) {
            let field = StatusCode::from(status).status_field();
            assert_eq!(StatusCode::from_status_field(field).to_device_status(), status);
        }
        assert_eq!(
            StatusCode::NAMESPACE_WRITE_PROTECTED.to_device_status(),
            Status::NamespaceWriteProtected,
            "a host is told why its write fails"
        );
        assert_eq!(StatusCode::CONNECT_INVALID_HOST.to_device_status(), Status::InternalError);
    }

    #[test]
    fn only_transient_errors_can_be_retried() {
        assert_eq!(StatusCode::SUCCESS.status_field(), 0);
        assert_eq!(StatusCode::TRANSIENT_TRANSPORT_ERROR.status_field(), 0x0044);
        assert_eq!(StatusCode::INVALID_FIELD.status_field(), 0x8004);
        assert_eq!(StatusCode::UNRECOVERED_READ_ERROR.status_field(), 0x8502);
    }

    #[test]
    fn every_named_code_has_a_meaning() {
        for code in StatusCode::ALL {
            assert!(code.meaning().is_some(), "{code:?}");
        }
        assert_eq!(StatusCode(0x3ff).to_string(), "status 3/FFh");
    }
}
