//! Texts of one line that users write: names, locations, secrets, and values with a unit. A parsed
//! value survives formatting, and errors have messages.
//!
//! ```text
//! 0 kind   1.. text
//! ```

use std::fmt::Display;
use std::str::FromStr;

use zonda_chap::Secret;
use zonda_config::{ByteSize, ConfigError, IndexSet, Rate, TimeSpan, did_you_mean_help};
use zonda_devices::{Location, NvmeTcpUrl};
use zonda_nvme::Nqn;

use crate::Seed;
use crate::feed::Feed;

pub(crate) fn run(input: &[u8]) {
    let mut feed = Feed::new(input);
    let kind = feed.below(9);
    let bytes = feed.rest();
    let mut field = [0; 256];
    let length = bytes.len().min(field.len());
    field[..length].copy_from_slice(&bytes[..length]);
    if let Ok(name) = Nqn::from_field(&field) {
        assert_eq!(Nqn::from_field(&name.to_field()), Ok(name));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match kind {
        0 => check_name(text),
        1 => check_secret(text),
        2 => check_value::<ByteSize>(text),
        3 => check_value::<TimeSpan>(text),
        4 => check_value::<Rate>(text),
        5 => check_value::<IndexSet>(text),
        6 => check_location(text),
        _ => {
            let _ = did_you_mean_help(text, &["capacity", "zone_size", "überlauf", ""]);
        }
    }
}

fn check_name(text: &str) {
    if let Ok(name) = Nqn::new(text) {
        assert_eq!(name.as_str(), text);
        assert_eq!(name.to_string().parse(), Ok(name));
    }
}

fn check_secret(text: &str) {
    match Secret::parse(text) {
        Ok(secret) => {
            assert_eq!(secret.to_string(), text, "a secret has exactly one text form");
            assert!(!format!("{secret:?}").contains(text), "debug output contains no secret");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check_value<T: FromStr<Err = ConfigError> + Display + PartialEq + std::fmt::Debug>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => assert_eq!(value.to_string().parse::<T>().as_ref(), Ok(&value), "{text:?}"),
        Err(error) => assert!(!error.message.is_empty()),
    }
}

fn check_location(text: &str) {
    match text.parse::<Location>() {
        Ok(Location::NvmeTcp(url)) => {
            assert!(url.port != 0 && !url.host.is_empty() && url.namespace.0 != 0);
            let bracketed = text.contains(&format!("://[{}]", url.host));
            assert!(bracketed || !url.host.contains([':', '[', ']']), "{text:?} is parsed as the host {:?}", url.host);
            assert_eq!(url.to_string().parse::<NvmeTcpUrl>().as_ref(), Ok(&url), "{text:?}");
        }
        Ok(Location::Image(path) | Location::Device(path)) => {
            assert_eq!(path.to_str(), Some(text).filter(|text| !text.is_empty()))
        }
        Err(error) => assert!(!error.message.is_empty() && error.help.is_some()),
    }
}

pub(crate) fn seeds() -> Vec<Seed> {
    let secret = Secret::new(None, &[7; 32]).expect("a valid length").to_string();
    let texts: [(u8, &[&str]); 8] = [
        (0, &[Nqn::DISCOVERY, "nqn.2014-08.org.nvmexpress:uuid:befdec4c-2234-11b2-a85c-ca77c773af36", "iqn.x"]),
        (1, &[&secret, "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", "DHHC-1:03:AA==:"]),
        (2, &["4 KiB", "1.5 MiB", "4096", "3 TB", "0.1 B", "18446744073709551615"]),
        (3, &["10 s", "500 us", "1.5 ms", "2 min", "1 h"]),
        (4, &["100 MiB/s", "5000 /s", "1.5 GB/s"]),
        (5, &["0..4", "0..100:7", "1,2,5", "3", "0..4294967295"]),
        (
            6,
            &["nvme-tcp://[::1]:4420/nqn.2026-01.io.zonda:a?namespace=2", "nvme-tcp://a/nqn.x", "drives/a", "http://a"],
        ),
        (7, &["capacty", "zone-size"]),
    ];
    let mut seeds = Vec::new();
    for (kind, texts) in texts {
        for (index, text) in texts.iter().enumerate() {
            seeds.push((format!("kind-{kind}-{index}"), [&[kind], text.as_bytes()].concat()));
        }
    }
    seeds
}
