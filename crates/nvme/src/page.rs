//! Common parts of the data pages: construction, parsing, access as bytes, and errors.
//!
//! A page is a structure of a fixed size without padding, made of bytes and little-endian numbers,
//! so that it *is* its wire form. Reserved fields are private: they are zero in constructed pages,
//! and unchanged in parsed ones.

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::GeometryError;

/// A structure that is its own wire form.
pub trait Page: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Sized {
    /// Its name in the specification, for error messages.
    const NAME: &'static str;

    /// The page with every byte zero, which is where every constructor starts.
    #[must_use]
    fn empty() -> Self {
        Self::new_zeroed()
    }

    /// Reads the page from the start of `bytes`; what follows it is ignored.
    ///
    /// # Errors
    /// [`PageError::Short`] when `bytes` ends before the page does.
    fn parse(bytes: &[u8]) -> Result<Self, PageError> {
        match Self::read_from_prefix(bytes) {
            Ok((page, _)) => Ok(page),
            Err(_) => {
                Err(PageError::Short { page: Self::NAME, needed_bytes: size_of::<Self>(), found_bytes: bytes.len() })
            }
        }
    }

    /// The page as it travels.
    #[must_use]
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// A page that cannot be parsed, or cannot be constructed from the given values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageError {
    /// The bytes end before the structure does.
    Short {
        /// Which structure.
        page: &'static str,
        /// How many bytes it has.
        needed_bytes: usize,
        /// How many bytes there were.
        found_bytes: usize,
    },
    /// A field with a value that cannot be used.
    Value {
        /// Which structure.
        page: &'static str,
        /// Which field, with the specification's abbreviation.
        field: &'static str,
        /// The value that it has, or would have to have.
        value: u64,
        /// The valid values.
        remedy: &'static str,
    },
    /// A text that does not fit its field.
    Text {
        /// Which structure.
        page: &'static str,
        /// Which field, with the specification's abbreviation.
        field: &'static str,
        /// Length of the field in bytes.
        bytes_max: usize,
    },
    /// The fields are valid, but the geometry that they describe is not.
    Geometry(GeometryError),
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PageError::Short { page, needed_bytes, found_bytes } => {
                write!(f, "{page}: {found_bytes} bytes, {needed_bytes} needed")
            }
            PageError::Value { page, field, value, remedy } => write!(f, "{page}: {field} is {value}: {remedy}"),
            PageError::Text { page, field, bytes_max } => {
                write!(f, "{page}: {field} must be printable ASCII of at most {bytes_max} bytes")
            }
            PageError::Geometry(error) => write!(f, "geometry: {error}"),
        }
    }
}

impl std::error::Error for PageError {}

impl From<GeometryError> for PageError {
    fn from(error: GeometryError) -> PageError {
        PageError::Geometry(error)
    }
}

/// An ASCII string field: left-justified, padded with spaces (NVMe Base 2.0, chapter 1,
/// conventions).
pub(crate) fn ascii_field<const N: usize>(
    page: &'static str,
    field: &'static str,
    text: &str,
) -> Result<[u8; N], PageError> {
    if text.len() > N || !text.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) {
        return Err(PageError::Text { page, field, bytes_max: N });
    }
    let mut bytes = [b' '; N];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    Ok(bytes)
}

/// A name field: UTF-8, ended and filled with zeros (NVMe Base 2.0, section 4.5: NVMe Qualified
/// Names).
pub(crate) fn name_field(page: &'static str, field: &'static str, name: &str) -> Result<[u8; 256], PageError> {
    if name.is_empty() || name.len() > NQN_BYTES_MAX || name.bytes().any(|byte| byte == 0) {
        return Err(PageError::Text { page, field, bytes_max: NQN_BYTES_MAX });
    }
    let mut bytes = [0; 256];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Ok(bytes)
}

/// The text of a string or name field without its padding. Bytes that are not UTF-8 are replaced by
/// U+FFFD.
pub(crate) fn field_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim_end_matches(' ').to_owned()
}

/// Bytes of an NVMe Qualified Name without its terminator (NVMe Base 2.0, section 4.5).
const NQN_BYTES_MAX: usize = 223;

/// Fills one field after the other with ones, and checks their offsets against the specification.
#[cfg(test)]
macro_rules! assert_layout {
    ($page:ty { $($field:ident: $first:literal ..= $last:literal),+ $(,)? }) => {{
        use zerocopy::IntoBytes as _;
        $(
            let mut page = <$page as $crate::page::Page>::empty();
            page.$field.as_mut_bytes().fill(0xff);
            let bytes = page.as_bytes();
            let set: Vec<usize> = (0..bytes.len()).filter(|&byte| bytes[byte] == 0xff).collect();
            assert_eq!(set, ($first..=$last).collect::<Vec<usize>>(), "bytes of {}", stringify!($field));
        )+
    }};
}
#[cfg(test)]
pub(crate) use assert_layout;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_padded_with_spaces_and_read_without_them() {
        let field: [u8; 8] = ascii_field("page", "FR", "1.0").unwrap();
        assert_eq!(&field, b"1.0     ");
        assert_eq!(field_text(&field), "1.0");
        assert_eq!(field_text(b"\0ignored"), "");
        assert_eq!(field_text(&[b'a', 0xff]), "a\u{fffd}");
    }

    #[test]
    fn a_text_too_long_or_not_printable_is_refused() {
        for text in ["123456789", "tab\t", "\u{e9}"] {
            assert_eq!(
                ascii_field::<8>("page", "SN", text),
                Err(PageError::Text { page: "page", field: "SN", bytes_max: 8 })
            );
        }
    }

    #[test]
    fn a_name_leaves_space_for_its_terminator_and_is_not_empty() {
        let longest = "n".repeat(223);
        let field = name_field("page", "SUBNQN", &longest).unwrap();
        assert_eq!((field[222], field[223]), (b'n', 0));
        assert_eq!(field_text(&field), longest);
        for name in ["", &"n".repeat(224), "nqn.\0x"] {
            assert!(name_field("page", "SUBNQN", name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn an_error_reports_page_field_and_remedy() {
        let short = PageError::Short { page: "Identify Controller", needed_bytes: 4096, found_bytes: 3 };
        assert_eq!(short.to_string(), "Identify Controller: 3 bytes, 4096 needed");
        let value = PageError::Value { page: "LBA format", field: "LBADS", value: 3, remedy: "must be 9 to 16" };
        assert_eq!(value.to_string(), "LBA format: LBADS is 3: must be 9 to 16");
    }
}
