//! Rates: bytes or operations per second.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::ConfigError;
use crate::size::SIZE;

/// A rate, written `"200 MiB/s"` or `"5000 IOPS"`; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rate {
    /// Bytes per second.
    BytesPerSecond(u64),
    /// Operations per second.
    OperationsPerSecond(u64),
}

const NOTATION: &str = "write a size and /s, like \"200 MiB/s\", or a whole number of operations, like \"5000 IOPS\"";

impl FromStr for Rate {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Rate, ConfigError> {
        let refuse = || ConfigError::new(format!("\"{text}\" is not a rate")).help(NOTATION);
        let trimmed = text.trim();
        let rate = if let Some(size) = trimmed.strip_suffix("/s") {
            let bytes = SIZE.read(size.trim_end());
            Rate::BytesPerSecond(bytes.map_err(|error| ConfigError { message: refuse().message, ..error })?)
        } else {
            let number = trimmed.strip_suffix("IOPS").ok_or_else(refuse)?;
            Rate::OperationsPerSecond(number.trim_end().parse().map_err(|_| refuse())?)
        };
        match rate {
            Rate::BytesPerSecond(0) | Rate::OperationsPerSecond(0) => {
                Err(ConfigError::new("a rate must not be zero").help("write a rate above zero, or omit it"))
            }
            rate => Ok(rate),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self {
            Rate::BytesPerSecond(bytes) => format!("{}/s", SIZE.write(*bytes)),
            Rate::OperationsPerSecond(operations) => format!("{operations} IOPS"),
        })
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rate, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Rate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rate like \"200 MiB/s\" or \"5000 IOPS\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Rate, E> {
                text.parse().map_err(ConfigError::into_serde)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_bytes_and_of_operations_are_read_and_printed() {
        for (text, rate) in [
            ("200 MiB/s", Rate::BytesPerSecond(200 << 20)),
            ("1.5 GB/s", Rate::BytesPerSecond(1_500_000_000)),
            ("5000 IOPS", Rate::OperationsPerSecond(5_000)),
        ] {
            assert_eq!(text.parse(), Ok(rate), "{text}");
            assert_eq!(rate.to_string().parse(), Ok(rate), "{text}");
        }
        assert_eq!(Rate::BytesPerSecond(200 << 20).to_string(), "200 MiB/s");
    }

    #[test]
    fn an_invalid_rate_is_refused_with_a_remedy() {
        for text in ["200 MiB", "5000", "1.5 IOPS", "fast"] {
            let error = text.parse::<Rate>().unwrap_err();
            assert_eq!(error.message, format!("\"{text}\" is not a rate"));
            assert_eq!(error.help.as_deref(), Some(NOTATION));
        }
        let error = "5 mib/s".parse::<Rate>().unwrap_err();
        assert_eq!(error.message, "\"5 mib/s\" is not a rate");
        assert!(error.help.unwrap().starts_with("did you mean \"5 MiB\"?"));
        assert_eq!("0 B/s".parse::<Rate>().unwrap_err().message, "a rate must not be zero");
    }
}
