//! Opcodes of the commands that zonda supports.

/// An unknown opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownOpcode(pub u8);

/// Defines an enum of opcodes with `TryFrom<u8>` and names for traces.
macro_rules! opcodes {
    ($(#[$doc:meta])* $name:ident { $($(#[$item:meta])* $variant:ident = $code:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$item])* $variant = $code,)*
        }

        impl $name {
            /// Every opcode, in the order of the codes.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The code on the wire.
            #[must_use]
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// A short name for traces and tables.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }
        }

        impl TryFrom<u8> for $name {
            type Error = UnknownOpcode;
            fn try_from(code: u8) -> Result<$name, UnknownOpcode> {
                match code {
                    $($code => Ok($name::$variant),)*
                    _ => Err(UnknownOpcode(code)),
                }
            }
        }
    };
}

opcodes! {
    /// Admin commands (NVMe Base 2.0, Figure 138).
    AdminOpcode {
        /// Get Log Page.
        GetLogPage = 0x02, "get log page";
        /// Identify.
        Identify = 0x06, "identify";
        /// Abort.
        Abort = 0x08, "abort";
        /// Set Features.
        SetFeatures = 0x09, "set features";
        /// Get Features.
        GetFeatures = 0x0a, "get features";
        /// Asynchronous Event Request.
        AsyncEventRequest = 0x0c, "asynchronous event request";
        /// Keep Alive.
        KeepAlive = 0x18, "keep alive";
        /// A Fabrics command: see [`FabricsType`].
        Fabrics = 0x7f, "fabrics";
    }
}

opcodes! {
    /// I/O commands (NVM Command Set 1.0, Figure 20; Zoned Namespace Command Set 1.1, Figure 20).
    IoOpcode {
        /// Flush.
        Flush = 0x00, "flush";
        /// Write.
        Write = 0x01, "write";
        /// Read.
        Read = 0x02, "read";
        /// Compare.
        Compare = 0x05, "compare";
        /// Write Zeroes.
        WriteZeroes = 0x08, "write zeroes";
        /// Dataset Management.
        DatasetManagement = 0x09, "dataset management";
        /// Reservation Register.
        ReservationRegister = 0x0d, "reservation register";
        /// Reservation Report.
        ReservationReport = 0x0e, "reservation report";
        /// Reservation Acquire.
        ReservationAcquire = 0x11, "reservation acquire";
        /// Reservation Release.
        ReservationRelease = 0x15, "reservation release";
        /// Zone Management Send.
        ZoneManagementSend = 0x79, "zone management send";
        /// Zone Management Receive.
        ZoneManagementReceive = 0x7a, "zone management receive";
        /// Zone Append.
        ZoneAppend = 0x7d, "zone append";
        /// A Fabrics command: see [`FabricsType`].
        Fabrics = 0x7f, "fabrics";
    }
}

opcodes! {
    /// Fabrics command types, byte 4 of a command with opcode 7Fh (NVMe Base 2.0, section 6, Figure
    /// 375).
    FabricsType {
        /// Property Set.
        PropertySet = 0x00, "property set";
        /// Connect.
        Connect = 0x01, "connect";
        /// Property Get.
        PropertyGet = 0x04, "property get";
        /// Authentication Send.
        AuthenticationSend = 0x05, "authentication send";
        /// Authentication Receive.
        AuthenticationReceive = 0x06, "authentication receive";
        /// Disconnect.
        Disconnect = 0x08, "disconnect";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_survives_its_code() {
        for &opcode in AdminOpcode::ALL {
            assert_eq!(AdminOpcode::try_from(opcode.code()), Ok(opcode));
        }
        for &opcode in IoOpcode::ALL {
            assert_eq!(IoOpcode::try_from(opcode.code()), Ok(opcode));
        }
        for &kind in FabricsType::ALL {
            assert_eq!(FabricsType::try_from(kind.code()), Ok(kind));
        }
        assert_eq!(IoOpcode::try_from(0x19), Err(UnknownOpcode(0x19)));
    }
}
