//! A parameter of a profile to be fitted: its bounds and its notation.

use std::ops::Range;

use toml::Value;
use zonda_config::{ByteSize, ConfigError, Rate, Spanned, TimeSpan, did_you_mean};
use zonda_plot::text::significant;

use super::limits::{RANGE_FACTOR, SIZE_GRAIN_BYTES};
use super::place::Leaf;
use super::spec::ParameterSpec;

/// Sizes that can be fitted; all others determine the layout of the drive.
const FREE_SIZES: &str = "write_buffer.";
/// The table of sources, which has no numbers.
const SOURCES: &str = "sources.";
/// Rates from here on are rounded to whole KiB/s or kB/s.
const WHOLE_RATE_MIN: f64 = (1 << 20) as f64;
/// Relative difference below which a value counts as unchanged, because of rounding.
const SAME: f64 = 1e-9;
/// Maximum number of keys named in a remedy.
const KEYS_NAMED_MAX: usize = 8;

/// The dimension of a value, stored in the smallest unit: nanoseconds, bytes, bytes per second,
/// ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    Time,
    Size,
    Rate,
    Share,
}

/// A parameter to be fitted, starting at the value of the profile.
#[derive(Clone, Debug)]
pub(super) struct Parameter {
    /// Dotted, down into lists.
    pub(super) key: String,
    pub(super) quantity: Quantity,
    pub(super) start: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// The value in the profile's text.
    pub(super) place: Range<usize>,
    /// As the profile writes it.
    start_text: String,
    /// The unit that the profile writes it in, and what one of it is; empty for shares.
    unit: (String, f64),
}

impl Parameter {
    /// # Errors
    /// A missing key, a value that cannot be fitted, or invalid bounds.
    pub(super) fn new(spec: &ParameterSpec, text: &str, leaves: &[Leaf]) -> Result<Parameter, ConfigError> {
        let key = spec.key.get_ref();
        let found = leaves.iter().find(|leaf| leaf.key == *key && is_number(leaf));
        let leaf = found.ok_or_else(|| no_number(&spec.key, leaves))?;
        let refuse =
            |what: &str, help: &str| Err(ConfigError::at(&spec.key, format!("\"{key}\" is {what}")).help(help));
        let Some((quantity, start)) = quantity(leaf) else {
            let what =
                if leaf.is_text { format!("a word, \"{}\"", leaf.text) } else { format!("a count, {}", leaf.text) };
            return refuse(&what, "only times, rates, shares, and the sizes of the write buffer can be fitted");
        };
        if quantity == Quantity::Size && !key.starts_with(FREE_SIZES) {
            return refuse(
                "part of the layout of the drive",
                "only times, rates, shares, and the sizes of the write buffer can be fitted; write a profile for each layout",
            );
        }
        if start <= 0.0 {
            return refuse("zero, which cannot be scaled", "write an estimate above zero into the profile first");
        }
        let unit = unit_of(quantity, &leaf.text);
        let start_text = text[leaf.value.clone()].to_owned();
        let (low, high) = (start / RANGE_FACTOR, start * RANGE_FACTOR);
        let high = if quantity == Quantity::Share { high.min(1.0) } else { high };
        let place = leaf.value.clone();
        let mut parameter = Parameter { key: key.clone(), quantity, start, low, high, place, start_text, unit };
        if let Some(low) = &spec.low {
            parameter.low = parameter.bound(low)?;
        }
        if let Some(high) = &spec.high {
            parameter.high = parameter.bound(high)?;
        }
        parameter.check_bounds(spec)?;
        Ok(parameter)
    }

    fn bound(&self, value: &Spanned<Value>) -> Result<f64, ConfigError> {
        let number = match (value.get_ref(), self.quantity) {
            (Value::Float(number), Quantity::Share) => Some(*number),
            (Value::Integer(number), Quantity::Share) => Some(*number as f64),
            (Value::String(text), quantity) => read(text).filter(|(of, _)| *of == quantity).map(|(_, number)| number),
            _ => None,
        };
        let is_possible = |number: &f64| *number > 0.0 && (self.quantity != Quantity::Share || *number <= 1.0);
        number.filter(is_possible).ok_or_else(|| {
            let (what, example) = match self.quantity {
                Quantity::Time => ("a time above zero", "\"20 us\""),
                Quantity::Size => ("a size above zero", "\"1 MiB\""),
                Quantity::Rate => ("a rate", "\"400 MiB/s\""),
                Quantity::Share => ("a share above 0 and at most 1", "0.25"),
            };
            let error = ConfigError::at(value, format!("invalid bound for \"{}\"", self.key));
            error.help(format!("write {what}, like {example}; the value in the profile is {}", self.start_text))
        })
    }

    fn check_bounds(&self, spec: &ParameterSpec) -> Result<(), ConfigError> {
        if self.low >= self.high {
            let place = spec.high.as_ref().or(spec.low.as_ref());
            let error = ConfigError::new(format!("the range of \"{}\" is empty", self.key));
            let error = error.within(place.map_or_else(|| spec.key.span(), Spanned::span));
            return Err(error.help("make low smaller than high"));
        }
        let outside = [(&spec.low, self.start < self.low), (&spec.high, self.start > self.high)];
        for (bound, is_outside) in outside {
            if let (Some(bound), true) = (bound, is_outside) {
                let message = format!("the value in the profile, {}, is not between low and high", self.start_text);
                return Err(ConfigError::at(bound, message).help("widen the range, or change the value in the profile"));
            }
        }
        Ok(())
    }

    /// The nearest value with a short notation.
    pub(super) fn rounded(&self, number: f64) -> f64 {
        let number = number.clamp(self.low, self.high);
        if (number / self.start - 1.0).abs() < SAME {
            return self.start;
        }
        let grain = self.grain(number);
        match self.quantity {
            Quantity::Share => format!("{number:.4e}").parse().expect("a formatted number can be parsed"),
            _ => ((number / grain).round() * grain).max(grain),
        }
    }

    /// The smallest difference between two values with a short notation.
    pub(super) fn grain(&self, number: f64) -> f64 {
        match self.quantity {
            Quantity::Time => 1.0,
            Quantity::Size => SIZE_GRAIN_BYTES as f64,
            Quantity::Rate if number < WHOLE_RATE_MIN => 1.0,
            Quantity::Rate if self.unit.0.contains('i') => 1024.0,
            Quantity::Rate => 1000.0,
            Quantity::Share => number * 1e-4,
        }
    }

    /// The notation of a rounded value in a profile.
    pub(super) fn written(&self, number: f64) -> String {
        if number == self.start {
            return self.start_text.clone();
        }
        match self.quantity {
            Quantity::Time => format!("\"{}\"", self.time(number as u64)),
            Quantity::Size => format!("\"{}\"", ByteSize(number as u64)),
            Quantity::Rate => format!("\"{}/s\"", ByteSize(number as u64)),
            Quantity::Share => Value::Float(number).to_string(),
        }
    }

    /// In the unit of the profile, with the digits that it takes.
    fn time(&self, ns: u64) -> String {
        let decimals = match self.unit.0.as_str() {
            "us" => 3,
            "ms" => 6,
            "s" => 9,
            _ => return TimeSpan(ns).to_string(),
        };
        let scale = 10u64.pow(decimals);
        let fraction = format!("{:0width$}", ns % scale, width = decimals as usize);
        let text = format!("{}.{fraction}", ns / scale);
        format!("{} {}", text.trim_end_matches('0').trim_end_matches('.'), self.unit.0)
    }

    /// Human-readable: four digits, in the unit of the profile.
    pub(super) fn shown(&self, number: f64) -> String {
        let (unit, scale) = &self.unit;
        format!("{} {unit}", significant(number / scale)).trim_end().to_owned()
    }
}

/// Whether it looks like a number; it is validated later.
fn is_number(leaf: &Leaf) -> bool {
    leaf.key.contains('.') && !leaf.key.starts_with(SOURCES)
}

/// Whether the value can be fitted.
fn can_be_fitted(leaf: &Leaf) -> bool {
    is_number(leaf)
        && quantity(leaf).is_some_and(|(quantity, start)| {
            start > 0.0 && (quantity != Quantity::Size || leaf.key.starts_with(FREE_SIZES))
        })
}

fn quantity(leaf: &Leaf) -> Option<(Quantity, f64)> {
    match (leaf.is_text, leaf.is_float) {
        (true, _) => read(&leaf.text),
        (_, true) => leaf.text.replace('_', "").parse().ok().map(|number| (Quantity::Share, number)),
        _ => None,
    }
}

fn read(text: &str) -> Option<(Quantity, f64)> {
    if let Ok(TimeSpan(ns)) = text.parse() {
        return Some((Quantity::Time, ns as f64));
    }
    if let Ok(Rate::BytesPerSecond(rate)) = text.parse() {
        return Some((Quantity::Rate, rate as f64));
    }
    text.parse().ok().map(|ByteSize(bytes)| (Quantity::Size, bytes as f64))
}

/// The unit of a text, and its size in the smallest unit.
fn unit_of(quantity: Quantity, text: &str) -> (String, f64) {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.').trim();
    let one = if unit.is_empty() { None } else { read(&format!("1 {unit}")) };
    match one.filter(|(of, _)| *of == quantity) {
        Some((_, one)) => (unit.to_owned(), one),
        None => (String::new(), 1.0),
    }
}

/// The error for a key that does not name a single value.
fn no_number(key: &Spanned<String>, leaves: &[Leaf]) -> ConfigError {
    let known: Vec<&str> = leaves.iter().filter(|leaf| can_be_fitted(leaf)).map(|leaf| leaf.key.as_str()).collect();
    let below = format!("{}.", key.get_ref());
    let parts: Vec<&str> = known.iter().copied().filter(|known| known.starts_with(&below)).collect();
    if !parts.is_empty() {
        let named = parts[..parts.len().min(KEYS_NAMED_MAX)].join(", ");
        let more = if parts.len() > KEYS_NAMED_MAX { ", ..." } else { "" };
        let error = ConfigError::at(key, format!("\"{}\" has more than one value", key.get_ref()));
        return error.help(format!("name one of its values: {named}{more}"));
    }
    let last = key.get_ref().rsplit('.').next().unwrap_or_default();
    let same_end = || known.iter().copied().find(|candidate| candidate.rsplit('.').next() == Some(last));
    let help = match did_you_mean(key.get_ref(), &known).or_else(same_end) {
        Some(nearest) => format!("did you mean \"{nearest}\"?"),
        None => "write the key of a number in the profile, like \"flash.read.0.time.base\"".to_owned(),
    };
    let error = ConfigError::at(key, format!("the profile has no number \"{}\"", key.get_ref()));
    error.help(format!("{help} An omitted number must be added to the profile first"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::place::leaves;

    const TEXT: &str = "[a]\ntime = \"45 us\"\nrate = \"600 MiB/s\"\nchance = 0.28\n[write_buffer]\ncap = \"1 MiB\"\n";

    fn parameter(key: &str) -> Parameter {
        let spec = ParameterSpec { key: zonda_config::unplaced(key.to_owned()), low: None, high: None };
        Parameter::new(&spec, TEXT, &leaves(TEXT)).unwrap()
    }

    #[test]
    fn formatted_numbers_can_be_parsed() {
        for (key, number, written, shown) in [
            ("a.time", 45_000.0, "\"45 us\"", "45 us"),
            ("a.time", 30_312.4, "\"30.312 us\"", "30.31 us"),
            ("a.time", 60_000.0, "\"60 us\"", "60 us"),
            ("a.rate", 500.0 * 1_048_576.0 + 700.0, "\"512001 KiB/s\"", "500 MiB/s"),
            ("a.chance", 0.123_456_78, "0.12346", "0.1235"),
            ("write_buffer.cap", 700_000.0, "\"684 KiB\"", "0.668 MiB"),
        ] {
            let parameter = parameter(key);
            let number = parameter.rounded(number);
            assert_eq!((parameter.written(number).as_str(), parameter.shown(number).as_str()), (written, shown));
        }
    }

    #[test]
    fn a_number_stays_within_its_range() {
        let chance = parameter("a.chance");
        assert_eq!((chance.low, chance.high), (0.07, 1.0));
        assert_eq!(parameter("a.time").rounded(1e9), 180_000.0);
    }
}
