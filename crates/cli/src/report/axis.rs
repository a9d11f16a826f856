//! Axes of the charts: linear and logarithmic, with ticks at round numbers.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// One axis of a chart.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    /// What it shows, with the unit.
    pub(super) title: String,
    range: Range<f64>,
    is_logarithmic: bool,
    /// Where there is a label.
    ticks: Vec<(f64, String)>,
    /// Where there is a thin line beside.
    minor: Vec<f64>,
}

impl Axis {
    /// From zero to a round number at or above `max`, with at most `ticks_max` ticks; to 1 if `max` is zero.
    pub(super) fn linear(title: impl Into<String>, max: f64, ticks_max: u32) -> Axis {
        let max = if max > 0.0 && max.is_finite() { max } else { 1.0 };
        let step = round_step(max / f64::from(ticks_max));
        let steps = (max / step - 1e-9).ceil() as u32;
        Axis::with_step(title.into(), f64::from(steps) * step, step)
    }

    /// From zero to exactly `max`, with ticks at round numbers.
    pub(super) fn exact(title: impl Into<String>, max: f64, ticks_max: u32) -> Axis {
        let max = if max > 0.0 && max.is_finite() { max } else { 1.0 };
        Axis::with_step(title.into(), max, round_step(max / f64::from(ticks_max)))
    }

    fn with_step(title: String, end: f64, step: f64) -> Axis {
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let ticks = (0..=(end / step + 1e-9).floor() as u32).map(|index| {
            let value = f64::from(index) * step;
            let label =
                if decimals == 0 { super::text::count(value.round() as u64) } else { format!("{value:.decimals$}") };
            (value, label)
        });
        Axis { title, range: 0.0..end, is_logarithmic: false, ticks: ticks.collect(), minor: Vec::new() }
    }

    /// Logarithmic over the nanoseconds `least..=most`, both at least 1, and at least over a factor of four. Bounds are
    /// 1, 2 or 5 times a power of ten.
    pub(super) fn latency(title: impl Into<String>, least: f64, most: f64) -> Axis {
        let least = least.max(1.0);
        let (mut low, mut high) = (round_down(least), round_up(most.max(least)));
        while high / low < 3.999 {
            low = round_down(low * 0.99).max(1.0);
            high = round_up(high * 1.01);
        }
        let decades = (high / low).log10();
        let labelled: &[f64] = if decades > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = 10f64.powf(low.log10().floor());
        let every: Vec<(f64, f64)> = (0..=(high / first).log10().ceil() as i32)
            .flat_map(|decade| {
                (1..10).map(move |digit| (f64::from(digit), f64::from(digit) * first * 10f64.powi(decade)))
            })
            .filter(|(_, value)| *value >= low * 0.999 && *value <= high * 1.001)
            .collect();
        let is_tick = |digit: f64| labelled.contains(&digit);
        let ticks = every.iter().filter(|(digit, _)| is_tick(*digit)).map(|(_, value)| (*value, label_of(*value)));
        let minor = every.iter().filter(|(digit, _)| !is_tick(*digit) && decades < 5.0).map(|(_, value)| *value);
        Axis {
            title: title.into(),
            range: low..high,
            is_logarithmic: true,
            ticks: ticks.collect(),
            minor: minor.collect(),
        }
    }

    /// One place for each name: 0, 1, 2, ...
    pub(super) fn names(title: impl Into<String>, names: &[&str]) -> Axis {
        let ticks = names.iter().enumerate().map(|(index, name)| (index as f64, (*name).to_owned())).collect();
        let range = -0.35..names.len() as f64 - 0.65;
        Axis { title: title.into(), range, is_logarithmic: false, ticks, minor: Vec::new() }
    }

    /// The last value of the axis.
    pub(super) fn end(&self) -> f64 {
        self.range.end
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let value = value.clamp(self.range.start, self.range.end);
        let share = if self.is_logarithmic {
            (value / self.range.start).ln() / (self.range.end / self.range.start).ln()
        } else {
            (value - self.range.start) / (self.range.end - self.range.start)
        };
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return self.minor.clone();
        }
        self.ticks.iter().map(|(value, _)| *value).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(tick, _)| tick == value);
        tick.map_or_else(String::new, |(_, label)| label.clone())
    }
}

/// A round step at or above `least`: 1, 2 or 5 times a power of ten.
fn round_step(least: f64) -> f64 {
    round_up(least)
}

fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|round| *round >= value * 0.999_999)
        .unwrap_or(value)
}

fn round_down(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [10.0, 5.0, 2.0, 1.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|round| *round <= value * 1.000_001)
        .unwrap_or(value)
}

/// A round latency without the digits that say nothing: `200 us`.
fn label_of(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        ..999.0 => (nanoseconds, "ns"),
        ..999_000.0 => (nanoseconds / 1e3, "us"),
        ..999_000_000.0 => (nanoseconds / 1e6, "ms"),
        _ => (nanoseconds / 1e9, "s"),
    };
    format!("{} {unit}", super::text::count(value.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn a_linear_axis_ends_at_a_round_number_and_an_exact_one_does_not() {
        assert_eq!(labels(&Axis::linear("", 1153.0, 5)), ["0", "500", "1,000", "1,500"]);
        assert_eq!(labels(&Axis::linear("", 0.33, 5)), ["0.0", "0.1", "0.2", "0.3", "0.4"]);
        assert_eq!(labels(&Axis::linear("", 500.0, 5)), ["0", "100", "200", "300", "400", "500"]);
        let exact = Axis::exact("", 0.33, 5);
        assert_eq!((labels(&exact), exact.end()), (vec!["0.0", "0.1", "0.2", "0.3"], 0.33));
    }

    #[test]
    fn an_axis_of_nothing_goes_to_one() {
        for max in [0.0, f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(Axis::linear("", max, 5).end(), 1.0);
            assert_eq!(Axis::exact("", max, 5).end(), 1.0);
        }
    }

    #[test]
    fn a_latency_axis_has_round_bounds_and_units() {
        assert_eq!(labels(&Axis::latency("", 73_000.0, 101_000.0)), ["50 us", "100 us", "200 us",]);
        let wide = Axis::latency("", 9_300.0, 15_300_000.0);
        assert_eq!(wide.range(), 5_000.0..20_000_000.0);
        assert_eq!(labels(&wide), ["10 us", "100 us", "1 ms", "10 ms"]);
        assert_eq!(labels(&Axis::latency("", 0.0, 0.0)), ["1 ns", "2 ns", "5 ns"]);
    }

    #[test]
    fn values_lie_on_the_axis() {
        let axis = Axis::latency("", 1_000.0, 100_000.0);
        assert_eq!(
            [1_000.0, 10_000.0, 100_000.0, 1e9, 0.0].map(|value| axis.map(&value, (100, 300))),
            [100, 200, 300, 300, 100]
        );
    }
}
