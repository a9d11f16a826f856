//! Human-readable numbers.

use std::ops::Range;
use std::str::FromStr;

pub(crate) use zonda_plot::text::{count, counted, significant};
use zonda_zoned::Duration;

/// Bytes with three significant digits: `412 B`, `4.00 KiB`, `1.05 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.5 {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", digits(value), UNITS[unit])
}

/// MiB/s, without the unit.
pub(crate) fn mib_per_second(bytes_per_second: f64) -> String {
    digits(bytes_per_second / f64::from(1 << 20))
}

/// A number with three significant digits; larger integers with thousands separators.
pub(crate) fn digits(value: f64) -> String {
    match value {
        _ if value < 9.995 => format!("{value:.2}"),
        _ if value < 99.95 => format!("{value:.1}"),
        _ => count(value.round() as u64),
    }
}

/// A share in percent.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// Nanoseconds as a time.
pub(crate) fn time(nanoseconds: u64) -> String {
    Duration(nanoseconds).to_string()
}

/// Parses an argument of the command line.
pub(crate) fn whole_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("must be a whole number from 0 to {}", u64::MAX))
}

/// Parses a number that must not be 0 into a type that excludes it.
pub(crate) fn at_least_one<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| match text.parse::<u64>() {
        Ok(0) => "must be at least 1".to_owned(),
        Ok(_) => "is too large".to_owned(),
        Err(_) => "must be a whole number of at least 1".to_owned(),
    })
}

/// Parses the number of a zone.
pub(crate) fn zone_number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("must be the number of one zone, from 0 to {}", u32::MAX))
}

/// Parses the number of a zone, or the zones from one up to another, which is not one of them.
pub(crate) fn zone_range(text: &str) -> Result<Range<u32>, String> {
    let number = |text: &str| text.parse::<u32>().ok();
    let range = match text.split_once("..") {
        None => number(text).map(|zone| zone..zone.saturating_add(1)),
        Some((first, end)) => number(first).zip(number(end)).map(|(first, end)| first..end),
    };
    match range {
        Some(range) if range.is_empty() => Err("has no zone: the second number is behind the last zone".to_owned()),
        Some(range) => Ok(range),
        None => Err("must be the number of a zone, such as 7, or several, such as 7..9 for 7 and 8".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits_in_the_largest_fitting_unit() {
        let shown: Vec<String> = [0, 1023, 1024, 4096, 1_048_000, 77 << 20, 3_974_430 << 20].map(bytes).into();
        assert_eq!(shown, ["0 B", "1023 B", "1.00 KiB", "4.00 KiB", "1,023 KiB", "77.0 MiB", "3.79 TiB"]);
    }

    #[test]
    fn zones_are_one_number_or_two_of_which_the_second_is_not_one_of_them() {
        assert_eq!((zone_range("7"), zone_range("7..9")), (Ok(7..8), Ok(7..9)));
        for wrong in ["", "7..", "..9", "7-9", "9..7", "7..7", "-1", "4294967295", "7..8..9"] {
            assert!(zone_range(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((counted(1, "zone"), counted(0, "zone")), ("1 zone".to_owned(), "0 zones".to_owned()));
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        assert_eq!([0.0, 1.234, 12.34, 99.96, 1153.4].map(digits), ["0.00", "1.23", "12.3", "100", "1,153"]);
    }
}
