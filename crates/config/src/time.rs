//! Spans of time.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::ConfigError;
use crate::quantity::Kind;

/// A span of time in nanoseconds, written `"10 s"`, `"1.5 ms"` or `"500 us"`. A unit is required,
/// except with `0`.
///
/// Fractions are parsed in integer arithmetic, and must result in whole nanoseconds. It is printed
/// in whole units, in the shortest notation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(pub u64);

const TIME: Kind = Kind {
    name: "a time",
    smallest: "nanoseconds",
    notation: "write a number and one of ns, us, ms, s, min, h, like \"10 s\"",
    units: &[
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ],
};

impl TimeSpan {
    /// No time.
    pub const ZERO: TimeSpan = TimeSpan(0);

    /// The span in nanoseconds.
    #[must_use]
    pub const fn nanoseconds(self) -> u64 {
        self.0
    }
}

impl FromStr for TimeSpan {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<TimeSpan, ConfigError> {
        if text.trim() == "0" {
            return Ok(TimeSpan::ZERO);
        }
        TIME.read(text).map(TimeSpan)
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&if self.0 == 0 { "0 s".to_owned() } else { TIME.write(self.0) })
    }
}

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TimeSpan, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = TimeSpan;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time like \"10 s\" or \"500 us\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<TimeSpan, E> {
                number.to_string().parse().map_err(ConfigError::into_serde)
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<TimeSpan, E> {
                number.to_string().parse().map_err(ConfigError::into_serde)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<TimeSpan, E> {
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
    fn times_are_read_in_all_their_units() {
        for (text, nanoseconds) in [
            ("100 ns", 100),
            ("500 us", 500_000),
            ("1.5 ms", 1_500_000),
            ("10 s", 10_000_000_000),
            ("2 min", 120_000_000_000),
            ("0.5h", 1_800_000_000_000),
            ("0", 0),
            ("0.000000001 s", 1),
        ] {
            assert_eq!(text.parse(), Ok(TimeSpan(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn a_time_without_a_unit_is_refused() {
        let error = "10".parse::<TimeSpan>().unwrap_err();
        assert_eq!(
            error.help.as_deref(),
            Some("the unit is missing: write a number and one of ns, us, ms, s, min, h, like \"10 s\"")
        );
        assert!("0.1 ns".parse::<TimeSpan>().is_err());
        assert!("-1 s".parse::<TimeSpan>().is_err());
    }

    proptest! {
        #[test]
        fn a_printed_time_can_be_parsed(nanoseconds: u64, coarse in 0u32..12) {
            let unit = 10u64.pow(coarse);
            let span = TimeSpan(nanoseconds / unit * unit);
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }
    }
}
