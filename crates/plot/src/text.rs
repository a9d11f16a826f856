//! Text of a page: escaping, and readable formats of numbers.

use zonda_zoned::Duration;

/// Shown if there is no value.
pub const NOTHING: &str = "–";

/// `text` escaped for HTML and SVG, in an element or in a quoted attribute. Control characters,
/// which HTML does not allow, become U+FFFD; line ends and tabs stay.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\r' | '\t' => escaped.push(character),
            control if control.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A span of time, as everywhere in zonda: `93.1 us`.
#[must_use]
pub fn duration(nanoseconds: u64) -> String {
    Duration(nanoseconds).to_string()
}

/// A whole number, in groups of three: `12,345`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Three significant digits, and whole numbers from 100 on: `9.99`, `93.1`, `2,730`. What is no
/// number is [`NOTHING`].
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() || value < 0.0 {
        return NOTHING.to_owned();
    }
    match value {
        0.0 => "0".to_owned(),
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => count(value.round() as u64),
    }
}

/// A number in four significant digits, without insignificant ones: `0.543`, `64.2`, `2278`.
#[must_use]
pub fn significant(value: f64) -> String {
    let rounded: f64 = format!("{value:.3e}").parse().expect("what was written as a number can be read");
    rounded.to_string()
}

/// A size in binary units: `4.00 KiB`, `1,077 MiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = UNITS.iter().find(|(_, unit_bytes)| bytes >= *unit_bytes);
    unit.map_or_else(|| format!("{bytes} B"), |(unit, size)| format!("{} {unit}", number(bytes as f64 / *size as f64)))
}

/// A size that is usually round: `4 KiB`, `1,077 MiB`.
#[must_use]
pub fn round_bytes(size: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = UNITS.iter().find(|(_, unit_bytes)| size >= *unit_bytes && size.is_multiple_of(*unit_bytes));
    unit.map_or_else(|| bytes(size), |(unit, unit_bytes)| format!("{} {unit}", count(size / unit_bytes)))
}

/// A bandwidth in MiB/s, without the unit.
#[must_use]
pub fn mebibytes(bytes_per_second: f64) -> String {
    number(bytes_per_second / f64::from(1 << 20))
}

/// A rate with a prefix from 10,000 on: `9,876`, `454 k`, `1.20 M`.
#[must_use]
pub fn rate(per_second: f64) -> String {
    match per_second {
        999_500.0.. => format!("{} M", number(per_second / 1e6)),
        10_000.0.. => format!("{} k", number(per_second / 1e3)),
        _ => number(per_second),
    }
}

/// A share of one, in percent: `12.5%`. A share above zero never prints as zero.
#[must_use]
pub fn percent(share: f64) -> String {
    match share {
        _ if !share.is_finite() => NOTHING.to_owned(),
        0.0 => "0%".to_owned(),
        ..0.000_05 => "<0.01%".to_owned(),
        _ => format!("{}%", number(share * 100.0)),
    }
}

/// `a`, `a and b`, `a, b and c`.
#[must_use]
pub fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [word] => word.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `1 zone`, `2 zones`: the word in the number that goes with `how_many`.
#[must_use]
pub fn counted(how_many: u64, word: &str) -> String {
    format!("{} {word}{}", count(how_many), if how_many == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_html_markup_is_escaped() {
        assert_eq!(escape("<b a='1' c=\"2\">&amp;"), "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;amp;");
        assert_eq!(escape("a\0b\u{1b}\n\tc"), "a\u{fffd}b\u{fffd}\n\tc");
    }

    #[test]
    fn four_digits_are_significant_and_zeros_at_the_end_are_not() {
        let shown = [0.543_04, 64.18, 2.0, 2_278.4, 12_346.0, 0.0].map(significant);
        assert_eq!(shown, ["0.543", "64.18", "2", "2278", "12350", "0"]);
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        let printed: Vec<String> = [0.0, 0.004, 9.994, 9.995, 99.94, 99.95, 2730.4, 1e7].map(number).into();
        assert_eq!(printed, ["0", "0.00", "9.99", "10.0", "99.9", "100", "2,730", "10,000,000"]);
        assert_eq!([f64::NAN, f64::INFINITY, -1.0].map(number), [NOTHING; 3]);
    }

    #[test]
    fn sizes_rates_and_shares_have_units() {
        assert_eq!([0, 1023, 4096, 3 << 29, 1 << 44].map(bytes), ["0 B", "1023 B", "4.00 KiB", "1.50 GiB", "16.0 TiB"]);
        assert_eq!([4096, 1077 << 20, 1 << 31, 700].map(round_bytes), ["4 KiB", "1,077 MiB", "2 GiB", "700 B"]);
        assert_eq!([0.0, 9_876.0, 454_123.0, 1_200_000.0].map(rate), ["0", "9,876", "454 k", "1.20 M"]);
        assert_eq!([0.0, 0.000_01, 0.125, 1.0].map(percent), ["0%", "<0.01%", "12.5%", "100%"]);
    }

    #[test]
    fn a_list_reads_as_a_sentence() {
        let words = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(
            [list(&words[..0]), list(&words[..1]), list(&words[..2]), list(&words)],
            ["", "a", "a and b", "a, b and c"]
        );
        assert_eq!([counted(1, "zone"), counted(3690, "zone")], ["1 zone", "3,690 zones"]);
    }
}
