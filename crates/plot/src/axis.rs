//! Axes of the charts: linear, logarithmic and of names, with ticks at round numbers.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::round::{decimals_of, latency_label, round_down, round_up, value_label};

/// Factor by which a base-2 axis extends beyond its first and last tick.
const BEYOND_POWERS_OF_TWO: f64 = 1.15;
/// Decades from which on a logarithmic axis has labels at powers of ten alone.
const DECADES_WITH_POWERS_ONLY: f64 = 2.5;
/// Decades from which on a logarithmic axis has no thin lines.
const DECADES_WITHOUT_MINOR: f64 = 5.0;

/// One axis of a chart.
///
/// A value outside of an axis is drawn at its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it shows, with the unit: `bandwidth (MiB/s)`. Plain text.
    pub title: String,
    range: Range<f64>,
    scale: Scale,
    /// Positions of labels. A tick without a label has an empty one.
    ticks: Vec<(f64, String)>,
    /// Positions of additional thin lines.
    minor: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Linear,
    Logarithmic,
    Names,
}

impl Axis {
    /// From zero to a round number at or above `max`, with at most `ticks_max` steps; to 1 if `max`
    /// is not above zero.
    #[must_use]
    pub fn linear(title: impl Into<String>, max: f64, ticks_max: u32) -> Axis {
        let max = positive_or_one(max);
        let step = round_up(max / f64::from(ticks_max));
        let steps = (max / step - 1e-9).ceil();
        Axis::with_step(title.into(), 0.0..steps * step, step)
    }

    /// From zero to exactly `max`, with ticks at round numbers.
    #[must_use]
    pub fn exact(title: impl Into<String>, max: f64, ticks_max: u32) -> Axis {
        Axis::between(title, 0.0, positive_or_one(max), ticks_max)
    }

    /// From exactly `from` to exactly `to`, with ticks at round numbers; `from` to `from` + 1 if
    /// `to` is not above it.
    #[must_use]
    pub fn between(title: impl Into<String>, from: f64, to: f64, ticks_max: u32) -> Axis {
        let from = if from.is_finite() { from } else { 0.0 };
        let to = if to.is_finite() && to > from { to } else { from + 1.0 };
        Axis::with_step(title.into(), from..to, round_up((to - from) / f64::from(ticks_max)))
    }

    fn with_step(title: String, range: Range<f64>, step: f64) -> Axis {
        let decimals = decimals_of(step);
        let (first, last) = ((range.start / step - 1e-9).ceil() as i64, (range.end / step + 1e-9).floor() as i64);
        let ticks = (first..=last).map(|index| {
            let value = index as f64 * step;
            (value, value_label(value, decimals))
        });
        Axis { title, ticks: ticks.collect(), range, scale: Scale::Linear, minor: Vec::new() }
    }

    /// Logarithmic over the nanoseconds `least..=most`, both at least 1, and at least over a factor
    /// of four. Bounds are 1, 2 or 5 times a power of ten.
    #[must_use]
    pub fn latency(title: impl Into<String>, least_ns: f64, most_ns: f64) -> Axis {
        Axis::log10_from(title.into(), 1.0, least_ns.max(1.0), most_ns, latency_label)
    }

    /// Logarithmic over `least..=most`, at least over a factor of four, with a label at each power
    /// of ten, and at 2 and 5 times one if there is space. Bounds are 1, 2 or 5 times a power of
    /// ten. What is not above zero has no place on such an axis: `least` is `most` then, and `most`
    /// is 1.
    #[must_use]
    pub fn log10(title: impl Into<String>, least: f64, most: f64, label: impl Fn(f64) -> String) -> Axis {
        let (least, most) = positive(least, most);
        Axis::log10_from(title.into(), 0.0, least, most, label)
    }

    fn log10_from(title: String, floor: f64, least: f64, most: f64, label: impl Fn(f64) -> String) -> Axis {
        let (mut low, mut high) = (round_down(least), round_up(most.max(least)));
        while high / low < 3.999 {
            low = round_down(low * 0.99).max(floor);
            high = round_up(high * 1.01);
        }
        let decades = (high / low).log10();
        let labelled: &[f64] = if decades > DECADES_WITH_POWERS_ONLY { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = 10f64.powf(low.log10().floor());
        let every: Vec<(f64, f64)> = (0..=(high / first).log10().ceil() as i32)
            .flat_map(|decade| {
                (1..10).map(move |digit| (f64::from(digit), f64::from(digit) * first * 10f64.powi(decade)))
            })
            .filter(|(_, value)| *value >= low * 0.999 && *value <= high * 1.001)
            .collect();
        let is_tick = |digit: f64| labelled.contains(&digit);
        let ticks = every.iter().filter(|(digit, _)| is_tick(*digit)).map(|(_, value)| (*value, label(*value)));
        let minor = every.iter().filter(|(digit, _)| !is_tick(*digit) && decades < DECADES_WITHOUT_MINOR);
        Axis {
            title,
            range: low..high,
            scale: Scale::Logarithmic,
            ticks: ticks.collect(),
            minor: minor.map(|(_, value)| *value).collect(),
        }
    }

    /// Logarithmic over the powers of two around `least..=most`, with a tick at each; it extends
    /// slightly at both ends, so that no marker lies on the border. What is not above zero is as
    /// with [`Axis::log10`].
    #[must_use]
    pub fn log2(title: impl Into<String>, least: f64, most: f64, label: impl Fn(f64) -> String) -> Axis {
        let (least, most) = positive(least, most);
        let first = (least.log2() + 1e-9).floor() as i32;
        let last = ((most.log2() - 1e-9).ceil() as i32).max(first);
        let ticks: Vec<(f64, String)> =
            (first..=last).map(|power| 2f64.powi(power)).map(|value| (value, label(value))).collect();
        let range = 2f64.powi(first) / BEYOND_POWERS_OF_TWO..2f64.powi(last) * BEYOND_POWERS_OF_TWO;
        Axis { title: title.into(), range, scale: Scale::Logarithmic, ticks, minor: Vec::new() }
    }

    /// One place for each name: 0, 1, 2, ...
    #[must_use]
    pub fn names(title: impl Into<String>, names: impl IntoIterator<Item = impl Into<String>>) -> Axis {
        let ticks: Vec<(f64, String)> =
            names.into_iter().enumerate().map(|(index, name)| (index as f64, name.into())).collect();
        let range = -0.35..(ticks.len().max(1)) as f64 - 0.65;
        Axis { title: title.into(), range, scale: Scale::Names, ticks, minor: Vec::new() }
    }

    /// The same axis with labels at these values instead, and no thin lines. Values outside of the
    /// axis are left out.
    #[must_use]
    pub fn with_ticks(mut self, ticks: impl IntoIterator<Item = (f64, impl Into<String>)>) -> Axis {
        let all = ticks.into_iter().map(|(value, label)| (value, label.into()));
        self.ticks = all.filter(|(value, _)| (self.range.start..=self.range.end).contains(value)).collect();
        self.minor.clear();
        self
    }

    /// The first value of the axis.
    #[must_use]
    pub fn start(&self) -> f64 {
        self.range.start
    }

    /// The last value of the axis.
    #[must_use]
    pub fn end(&self) -> f64 {
        self.range.end
    }

    /// The ticks with their labels.
    #[must_use]
    pub fn ticks(&self) -> &[(f64, String)] {
        &self.ticks
    }

    pub(crate) fn has_names(&self) -> bool {
        self.scale == Scale::Names
    }

    /// An axis of names with space for a group of bars around each.
    pub(crate) fn with_space_for_bars(mut self) -> Axis {
        if self.has_names() {
            self.range = -0.5..self.ticks.len().max(1) as f64 - 0.5;
        }
        self
    }

    pub(crate) fn without_labels(mut self) -> Axis {
        self.ticks.iter_mut().for_each(|(_, label)| label.clear());
        self
    }

    /// Labels along an axis that is `width` long; only every second, third... is kept, until none
    /// overlaps the next.
    pub(crate) fn with_labels_apart(mut self, width: f64, width_of: impl Fn(&str) -> f64) -> Axis {
        let places: Vec<(f64, f64)> =
            self.ticks.iter().map(|(value, label)| (self.share_of(*value) * width, width_of(label) / 2.0)).collect();
        let fits = |every: &usize| {
            let kept: Vec<&(f64, f64)> = places.iter().step_by(*every).collect();
            kept.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0 - pair[1].1)
        };
        let every = (1..places.len()).find(fits).unwrap_or(places.len().max(1));
        for (index, (_, label)) in self.ticks.iter_mut().enumerate() {
            if index % every != 0 {
                label.clear();
            }
        }
        self
    }

    /// Position of a value on the axis, from 0 to 1.
    fn share_of(&self, value: f64) -> f64 {
        let (start, end) = (self.range.start, self.range.end);
        let value = value.clamp(start, end);
        match self.scale {
            Scale::Logarithmic => (value / start).ln() / (end / start).ln(),
            Scale::Linear | Scale::Names => (value - start) / (end - start),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (f64::from(limit.1 - limit.0) * self.share_of(*value)).round() as i32
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

fn positive_or_one(max: f64) -> f64 {
    if max > 0.0 && max.is_finite() { max } else { 1.0 }
}

/// Both bounds above zero and in order.
fn positive(least: f64, most: f64) -> (f64, f64) {
    let most = positive_or_one(most);
    let least = if least > 0.0 && least.is_finite() { least.min(most) } else { most };
    (least, most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::round_bytes;

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
    fn an_axis_without_values_ends_at_one() {
        for max in [0.0, f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(Axis::linear("", max, 5).end(), 1.0);
            assert_eq!(Axis::exact("", max, 5).end(), 1.0);
        }
        assert_eq!(Axis::between("", 3.0, 3.0, 5).range(), 3.0..4.0);
        assert_eq!(Axis::between("", f64::NAN, f64::NAN, 5).range(), 0.0..1.0);
        assert_eq!(Axis::log10("", f64::NAN, -3.0, |_| String::new()).range(), 0.5..2.0);
        assert_eq!(labels(&Axis::log2("", 0.0, 0.0, |value| value.to_string())), ["1"]);
        assert_eq!(Axis::names("", [""; 0]).range(), -0.35..0.35);
    }

    #[test]
    fn an_axis_between_two_values_has_both_as_its_ends() {
        let axis = Axis::between("", -0.25, 1.1, 5);
        assert_eq!((labels(&axis), axis.range()), (vec!["0.0", "0.5", "1.0"], -0.25..1.1));
        assert_eq!(labels(&Axis::between("", -2_000.0, 1_000.0, 3)), ["-2,000", "-1,000", "0", "1,000"]);
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
    fn a_logarithmic_axis_has_the_given_labels() {
        let axis = Axis::log10("", 0.02, 0.9, |value| format!("{value:.2}"));
        assert_eq!(labels(&axis), ["0.02", "0.05", "0.10", "0.20", "0.50", "1.00"]);
        let sizes = Axis::log2("", 4096.0, 65_000.0, |bytes| round_bytes(bytes as u64));
        assert_eq!(labels(&sizes), ["4 KiB", "8 KiB", "16 KiB", "32 KiB", "64 KiB"]);
        assert!(sizes.start() < 4096.0 && sizes.end() > 65_536.0);
        assert_eq!(
            labels(&sizes.with_ticks([(1.0, "no place"), (4096.0, "page"), (65_536.0, "zone")])),
            ["page", "zone"]
        );
    }

    #[test]
    fn labels_that_would_touch_are_left_out_evenly() {
        let axis = Axis::log2("", 1.0, 64.0, |value| value.to_string());
        let width_of = |label: &str| label.len() as f64 * 10.0 + 10.0;
        let apart = |width: f64| labels(&axis.clone().with_labels_apart(width, width_of)).join(",");
        assert_eq!(apart(300.0), "1,2,4,8,16,32,64");
        assert_eq!(apart(140.0), "1,,4,,16,,64");
        assert_eq!(apart(10.0), "1,,,,,,");
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
