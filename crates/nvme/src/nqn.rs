//! Names of hosts and subsystems.

use std::fmt;

/// Bytes of an NQN field on the wire: the name, and zeros to the end (NVMe Base 2.0, section 4.5).
pub const NQN_FIELD_BYTES: usize = 256;

/// Bytes of the longest name (NVMe Base 2.0, section 4.5).
pub const NQN_BYTES_MAX: usize = 223;

/// NVMe Qualified Name: 1 to 223 bytes of UTF-8, starting with `nqn.` (NVMe Base 2.0, section 4.5).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nqn(Box<str>);

/// Host identifier: 128 bits; all zeros is none (NVMe Base 2.0, section 5.27.1.25).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub [u8; 16]);

/// Why a name is not a valid NQN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NqnError {
    /// No bytes.
    Empty,
    /// More than 223 bytes.
    TooLong,
    /// Does not start with `nqn.`.
    Prefix,
    /// Not UTF-8, or with control characters.
    Characters,
    /// A wire field without a terminating zero, or with other bytes after it.
    Padding,
    /// No year, month and domain after `nqn.`.
    Form,
    /// No UUID after `nqn.2014-08.org.nvmexpress:uuid:`.
    Uuid,
}

/// What stands before a UUID (NVMe Base 2.0, section 4.5).
const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

impl Nqn {
    /// The name under which every discovery service answers (NVMe Base 2.0, section 4.5).
    pub const DISCOVERY: &'static str = "nqn.2014-08.org.nvmexpress.discovery";

    /// Checks a name.
    ///
    /// # Errors
    /// The reason.
    pub fn new(name: &str) -> Result<Nqn, NqnError> {
        if name.is_empty() {
            return Err(NqnError::Empty);
        }
        if name.len() > NQN_BYTES_MAX {
            return Err(NqnError::TooLong);
        }
        if !name.starts_with("nqn.") {
            return Err(NqnError::Prefix);
        }
        if name.chars().any(char::is_control) {
            return Err(NqnError::Characters);
        }
        Ok(Nqn(name.into()))
    }

    /// Checks a name that a user gives, also its form: `nqn.yyyy-mm.reverse.domain`, and after a colon
    /// what the owner of the domain chooses, or `nqn.2014-08.org.nvmexpress:uuid:` and a UUID (NVMe
    /// Base 2.0, section 4.5). Hosts and servers may send names of other forms: those are read with
    /// [`Nqn::new`].
    ///
    /// # Errors
    /// The reason.
    pub fn well_formed(name: &str) -> Result<Nqn, NqnError> {
        let nqn = Nqn::new(name)?;
        if let Some(uuid) = name.strip_prefix(UUID_PREFIX) {
            return if is_uuid(uuid) { Ok(nqn) } else { Err(NqnError::Uuid) };
        }
        let (naming, chosen) =
            name["nqn.".len()..].split_once(':').map_or((&name[4..], None), |(naming, own)| (naming, Some(own)));
        let (date, domain) = naming.split_once('.').ok_or(NqnError::Form)?;
        let has_form = is_month(date) && is_domain(domain) && chosen != Some("");
        if has_form { Ok(nqn) } else { Err(NqnError::Form) }
    }

    /// The name of the discovery service.
    #[must_use]
    pub fn discovery() -> Nqn {
        Nqn(Nqn::DISCOVERY.into())
    }

    /// Whether this is the discovery service's well-known name.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        &*self.0 == Nqn::DISCOVERY
    }

    /// Reads a name from its field on the wire.
    ///
    /// # Errors
    /// The reason.
    pub fn from_field(field: &[u8; NQN_FIELD_BYTES]) -> Result<Nqn, NqnError> {
        let length = field.iter().position(|&byte| byte == 0).ok_or(NqnError::Padding)?;
        let name = std::str::from_utf8(&field[..length]).map_err(|_| NqnError::Characters)?;
        Nqn::new(name)
    }

    /// The field on the wire.
    #[must_use]
    pub fn to_field(&self) -> [u8; NQN_FIELD_BYTES] {
        let mut field = [0; NQN_FIELD_BYTES];
        field[..self.0.len()].copy_from_slice(self.0.as_bytes());
        field
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `2014-08`.
fn is_month(text: &str) -> bool {
    let Some((year, month)) = text.split_once('-') else { return false };
    let is_number = |part: &str, digits: usize| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
    is_number(year, 4) && is_number(month, 2) && (1..=12).contains(&month.parse().unwrap_or(0))
}

/// `org.nvmexpress`; a domain of one part is that of a test.
fn is_domain(text: &str) -> bool {
    let is_part =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    text.split('.').all(is_part)
}

/// Hexadecimal digits with hyphens: 8, 4, 4, 4 and 12.
fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    lengths == [8, 4, 4, 4, 12] && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl HostId {
    /// Whether the host gave no identifier.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl std::str::FromStr for Nqn {
    type Err = NqnError;
    fn from_str(name: &str) -> Result<Nqn, NqnError> {
        Nqn::new(name)
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for HostId {
    /// The form of a UUID.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostId({self})")
    }
}

impl fmt::Display for NqnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            NqnError::Empty => "an NQN must not be empty",
            NqnError::TooLong => "an NQN must have at most 223 bytes",
            NqnError::Prefix => "an NQN must start with \"nqn.\", such as nqn.2024-01.org.example:drive",
            NqnError::Characters => "an NQN must be UTF-8 without control characters",
            NqnError::Form => {
                "an NQN is nqn.yyyy-mm., a domain with its parts reversed, and a name after a colon, such as \
                 nqn.2024-01.org.example:drive"
            }
            NqnError::Uuid => {
                "\"nqn.2014-08.org.nvmexpress:uuid:\" must be followed by a UUID of 36 characters, such as \
                 00010203-0405-0607-0809-0a0b0c0d0e0f"
            }
            NqnError::Padding => "an NQN must end with a zero byte within its 256-byte field",
        })
    }
}

impl std::error::Error for NqnError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_nqn_survives_its_field() {
        let name = Nqn::new("nqn.2024-01.org.example:drive").unwrap();
        assert_eq!(Nqn::from_field(&name.to_field()), Ok(name));
        assert!(Nqn::from_field(&Nqn::discovery().to_field()).unwrap().is_discovery());
    }

    #[test]
    fn each_invalid_nqn_has_its_error() {
        assert_eq!(Nqn::new(""), Err(NqnError::Empty));
        assert_eq!(Nqn::new(&format!("nqn.{}", "x".repeat(220))), Err(NqnError::TooLong));
        assert_eq!(Nqn::new("iqn.2024"), Err(NqnError::Prefix));
        assert_eq!(Nqn::new("nqn.\n"), Err(NqnError::Characters));
        assert_eq!(Nqn::from_field(&[b'n'; 256]), Err(NqnError::Padding));
        assert_eq!(Nqn::from_field(&[0xff; 256]), Err(NqnError::Padding));
    }

    #[test]
    fn a_name_that_a_user_gives_has_a_date_and_a_domain_or_a_uuid() {
        for name in [
            "nqn.2014-08.org.nvmexpress:uuid:00010203-0405-0607-0809-0A0b0c0d0e0f",
            "nqn.2014-08.org.nvmexpress:NVMf:uuid:x",
            "nqn.2026-01.io.zonda:größe:a",
            "nqn.2016-06.io.spdk:cnode1",
            "nqn.2024-01.org.example",
            Nqn::DISCOVERY,
        ] {
            assert_eq!(Nqn::well_formed(name).map(|nqn| nqn.to_string()), Ok(name.to_owned()));
        }
        for name in ["nqn.a", "nqn.2024.org:a", "nqn.2024-13.org:a", "nqn.2024-1.org:a", "nqn.2024-01.:a"] {
            assert_eq!(Nqn::well_formed(name), Err(NqnError::Form), "{name}");
            assert!(Nqn::new(name).is_ok(), "a host may send {name}");
        }
        for name in ["nqn.2024-01.org..example:a", "nqn.2024-01.org.example:", "nqn.2024-01", "nqn.2024-01.a b"] {
            assert_eq!(Nqn::well_formed(name), Err(NqnError::Form), "{name}");
        }
        for uuid in ["...", "", "00010203", "00010203-0405-0607-0809-0a0b0c0d0e0g"] {
            let name = format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}");
            assert_eq!(Nqn::well_formed(&name), Err(NqnError::Uuid), "{name}");
            assert!(Nqn::new(&name).is_ok(), "a host may send {name}");
        }
        assert_eq!(Nqn::well_formed("uuid:a"), Err(NqnError::Prefix));
    }

    #[test]
    fn a_host_identifier_prints_as_a_uuid() {
        let id = HostId(std::array::from_fn(|i| i as u8));
        assert_eq!(id.to_string(), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
