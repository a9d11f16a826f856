//! A decimal number and a unit, in integer arithmetic.

use crate::{ConfigError, did_you_mean};

/// Maximum number of digits, including decimals. 25 digits times the largest unit stay below 2^127.
const DIGITS_MAX: usize = 25;

/// A unit, and its size in the smallest unit.
pub(crate) type Unit = (&'static str, u64);

/// A kind of quantity: its name and notation for messages, and its units.
pub(crate) struct Kind {
    /// The name with its article: `a size`.
    pub(crate) name: &'static str,
    /// The smallest unit in plural: `bytes`.
    pub(crate) smallest: &'static str,
    /// The notation, with examples.
    pub(crate) notation: &'static str,
    /// All units.
    pub(crate) units: &'static [Unit],
}

impl Kind {
    /// Reads `"1.5 KiB"` into whole smallest units.
    pub(crate) fn read(&self, text: &str) -> Result<u64, ConfigError> {
        let trimmed = text.trim();
        let refuse = || ConfigError::new(format!("\"{text}\" is not {}", self.name));
        let digits_end =
            trimmed.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits_end);
        let unit = unit.trim_start();
        let (digits, decimals) = decimal(number).ok_or_else(|| refuse().help(self.notation))?;
        let Some(&(_, factor)) = self.units.iter().find(|(name, _)| *name == unit) else {
            return Err(refuse().help(self.help_for_unit(number, unit)));
        };
        if digits.len() > DIGITS_MAX || decimals > DIGITS_MAX {
            return Err(refuse().help(format!("at most {DIGITS_MAX} digits are allowed")));
        }
        let scaled =
            digits.bytes().fold(0u128, |value, digit| value * 10 + u128::from(digit - b'0')) * u128::from(factor);
        let divisor = 10u128.pow(decimals as u32);
        if !scaled.is_multiple_of(divisor) {
            return Err(ConfigError::new(format!("\"{text}\" is not a whole number of {}", self.smallest))
                .help(format!("the nearest below is {}", scaled / divisor)));
        }
        u64::try_from(scaled / divisor).map_err(|_| refuse().help(format!("the maximum is 2^64 - 1 {}", self.smallest)))
    }

    /// Writes `value` exactly, in the unit that needs the fewest digits; of equally short ones in
    /// the first unit.
    pub(crate) fn write(&self, value: u64) -> String {
        let exact = self.units.iter().filter(|(_, factor)| value.is_multiple_of(*factor));
        let notations = exact.map(|(name, factor)| format!("{} {name}", value / factor));
        let shortest = notations.min_by_key(|notation| notation.bytes().filter(u8::is_ascii_digit).count());
        shortest.expect("the smallest unit is a unit")
    }

    fn help_for_unit(&self, number: &str, unit: &str) -> String {
        let letters = unit.to_ascii_lowercase();
        let meant: Vec<&str> = match letters.as_str() {
            "" => return format!("the unit is missing: {}", self.notation),
            _ => {
                let alike = |(name, _): &&Unit| name.to_ascii_lowercase().starts_with(&letters);
                self.units.iter().filter(alike).map(|(name, _)| *name).collect()
            }
        };
        let names: Vec<&str> = self.units.iter().map(|(name, _)| *name).collect();
        match (meant.as_slice(), did_you_mean(unit, &names)) {
            ([], None) => format!("unknown unit \"{unit}\": {}", self.notation),
            ([], Some(nearest)) => format!("did you mean \"{number} {nearest}\"? {}", self.notation),
            (meant, _) => {
                let meant: Vec<String> = meant.iter().map(|name| format!("\"{number} {name}\"")).collect();
                format!("did you mean {}? {}", meant.join(" or "), self.notation)
            }
        }
    }
}

/// The digits of a decimal number without insignificant zeros, and how many of them are decimals.
fn decimal(number: &str) -> Option<(String, usize)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    Some((format!("{whole}{fraction}").trim_start_matches('0').to_owned(), fraction.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Kind = Kind {
        name: "a length",
        smallest: "millimetres",
        notation: "write \"3 mm\"",
        units: &[("m", 1_000), ("cm", 10), ("mm", 1)],
    };

    #[test]
    fn numbers_with_units_are_read_exactly() {
        for (text, expected) in
            [("1.5 m", 1_500), ("0.1cm", 1), ("007 mm", 7), (" 2 m ", 2_000), ("0 m", 0), ("1.500 m", 1_500)]
        {
            assert_eq!(LENGTH.read(text), Ok(expected), "{text}");
        }
        assert_eq!(LENGTH.read("18446744073709551.615 m"), Ok(u64::MAX));
    }

    #[test]
    fn an_invalid_quantity_is_refused_with_a_remedy() {
        for (text, help) in [
            ("", "write \"3 mm\""),
            ("-1 mm", "write \"3 mm\""),
            ("1. m", "write \"3 mm\""),
            ("1.2.3 m", "write \"3 mm\""),
            ("12", "the unit is missing: write \"3 mm\""),
            ("1 M", "did you mean \"1 m\" or \"1 mm\"? write \"3 mm\""),
            ("1 parsec", "unknown unit \"parsec\": write \"3 mm\""),
            ("18446744073709551.616 m", "the maximum is 2^64 - 1 millimetres"),
            ("99999999999999999999999999 mm", "at most 25 digits are allowed"),
            ("0.00000000000000000000000001 mm", "at most 25 digits are allowed"),
        ] {
            let error = LENGTH.read(text).unwrap_err();
            assert_eq!(error.message, format!("\"{text}\" is not a length"));
            assert_eq!(error.help.as_deref(), Some(help), "{text}");
        }
        let error = LENGTH.read("1.23 cm").unwrap_err();
        assert_eq!(error.to_string(), "\"1.23 cm\" is not a whole number of millimetres: the nearest below is 12");
    }

    #[test]
    fn the_shortest_exact_notation_is_written() {
        let written: Vec<String> = [0, 7, 10, 1_500, 2_000].map(|value| LENGTH.write(value)).into();
        assert_eq!(written, ["0 m", "7 mm", "1 cm", "150 cm", "2 m"]);
    }
}
