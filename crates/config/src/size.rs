//! Sizes in bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::ConfigError;
use crate::quantity::Kind;

/// A number of bytes, written `"4 KiB"`, `"1.5 GiB"` or `"2 TB"`; a number without a unit is bytes.
///
/// `KiB`, `MiB`, `GiB` and `TiB` are powers of 1024; `kB`, `MB`, `GB` and `TB` are powers of 1000
/// (IEC 80000-13). It is printed in whole units, in the shortest notation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

pub(crate) const SIZE: Kind = Kind {
    name: "a size",
    smallest: "bytes",
    notation: "write a number and one of B, KiB, MiB, GiB, TiB (powers of 1024), kB, MB, GB, TB (powers of 1000), \
               like \"4 KiB\"",
    units: &[
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ],
};

impl ByteSize {
    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<ByteSize, ConfigError> {
        let trimmed = text.trim();
        match trimmed.parse() {
            Ok(bytes) if trimmed.bytes().all(|byte| byte.is_ascii_digit()) => Ok(ByteSize(bytes)),
            _ => SIZE.read(text).map(ByteSize),
        }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&SIZE.write(self.0))
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ByteSize, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = ByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size like \"4 KiB\", or a whole number of bytes")
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
                let bytes = u64::try_from(bytes);
                bytes.map(ByteSize).map_err(|_| ConfigError::new("a size cannot be negative").into_serde())
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(bytes))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(ConfigError::into_serde)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_in_powers_of_1024_and_of_1000() {
        for (text, bytes) in [
            ("512 B", 512),
            ("4 KiB", 4_096),
            ("4KiB", 4_096),
            ("1.5 GiB", 1_610_612_736),
            ("2 TB", 2_000_000_000_000),
            ("128 kB", 128_000),
            ("4096", 4_096),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn an_ambiguous_unit_is_refused_with_suggestions() {
        let error = "128k".parse::<ByteSize>().unwrap_err();
        assert_eq!(error.message, "\"128k\" is not a size");
        let help = error.help.unwrap();
        assert!(help.starts_with("did you mean \"128 KiB\" or \"128 kB\"? write a number"), "{help}");
    }

    #[test]
    fn part_of_a_byte_is_refused() {
        assert_eq!(
            "0.3 KiB".parse::<ByteSize>().unwrap_err().to_string(),
            "\"0.3 KiB\" is not a whole number of bytes: the nearest below is 307"
        );
    }

    #[test]
    fn a_size_prints_in_its_shortest_exact_notation() {
        let printed: Vec<String> =
            [0, 512, 4_096, 128_000, 1_610_612_736, 77 << 20].map(|bytes| ByteSize(bytes).to_string()).into();
        assert_eq!(printed, ["0 B", "512 B", "4 KiB", "125 KiB", "1536 MiB", "77 MiB"]);
    }

    proptest! {
        #[test]
        fn a_printed_size_can_be_parsed(bytes: u64, zeros in 0u32..40) {
            let size = ByteSize(bytes >> zeros << zeros);
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }
    }
}
