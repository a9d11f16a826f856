//! Round numbers for the ticks of an axis.

use crate::text::count;

/// The least of 1, 2, 5 and 10 times a power of ten that is at or above `value`, which is above
/// zero.
pub(crate) fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|round| *round >= value * 0.999_999)
        .unwrap_or(value)
}

/// The greatest of 1, 2, 5 and 10 times a power of ten that is at or below `value`, which is above
/// zero.
pub(crate) fn round_down(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [10.0, 5.0, 2.0, 1.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|round| *round <= value * 1.000_001)
        .unwrap_or(value)
}

/// Most decimals of a label: more digits are those of a value that is zero for a reader.
const DECIMALS_MAX: usize = 12;

/// Decimals that a multiple of `step` needs, up to a limit.
pub(crate) fn decimals_of(step: f64) -> usize {
    ((-step.log10().floor()).max(0.0) as usize).min(DECIMALS_MAX)
}

/// `1,500`, `-0.25`.
pub(crate) fn value_label(value: f64, decimals: usize) -> String {
    if decimals > 0 {
        return format!("{value:.decimals$}");
    }
    let sign = if value.round() < 0.0 { "-" } else { "" };
    format!("{sign}{}", count(value.abs().round() as u64))
}

/// A round latency without insignificant digits: `200 us`.
pub(crate) fn latency_label(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        ..999.0 => (nanoseconds, "ns"),
        ..999_000.0 => (nanoseconds / 1e3, "us"),
        ..999_000_000.0 => (nanoseconds / 1e6, "ms"),
        _ => (nanoseconds / 1e9, "s"),
    };
    format!("{} {unit}", count(value.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_numbers_are_one_two_or_five_times_a_power_of_ten() {
        assert_eq!([0.3, 1.0, 1.1, 7.0, 230.0].map(round_up), [0.5, 1.0, 2.0, 10.0, 500.0]);
        assert_eq!([0.3, 1.0, 4.9, 9.0, 230.0].map(round_down), [0.2, 1.0, 2.0, 5.0, 200.0]);
    }

    #[test]
    fn a_label_has_the_digits_of_its_step() {
        assert_eq!([value_label(-1500.0, 0), value_label(-0.0, 0), value_label(0.25, 2)], ["-1,500", "0", "0.25"]);
        assert_eq!([0.25, 1.0, 1e-320, 0.0, f64::INFINITY].map(decimals_of), [1, 0, 12, 12, 0]);
        assert_eq!(value_label(1e-320, decimals_of(1e-320)), "0.000000000000");
        assert_eq!([200.0, 5e3, 2e6, 1e9].map(latency_label), ["200 ns", "5 us", "2 ms", "1 s"]);
    }
}
