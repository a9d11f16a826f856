//! Bandwidth, written as a size with `/s`.

use std::fmt;

use serde::de::{Error, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zonda_config::ByteSize;

/// Bytes per second: `"600 MiB/s"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bandwidth(pub u64);

impl<'de> Deserialize<'de> for Bandwidth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bandwidth, D::Error> {
        let text = String::deserialize(deserializer)?;
        let size = text.strip_suffix("/s").ok_or_else(|| D::Error::custom(remedy(&text)))?;
        let size: Result<ByteSize, serde::de::value::Error> =
            ByteSize::deserialize(IntoDeserializer::<serde::de::value::Error>::into_deserializer(size.trim()));
        size.map(|size| Bandwidth(size.0)).map_err(|_| D::Error::custom(remedy(&text)))
    }
}

fn remedy(text: &str) -> String {
    format!("\"{text}\" is not a bandwidth: write a size and \"/s\", such as \"600 MiB/s\" or \"3.2 GB/s\"")
}

impl Serialize for Bandwidth {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", ByteSize(self.0))
    }
}
