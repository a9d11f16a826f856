//! Formatting of numbers and sentences. All functions return HTML.

use zonda_plot::text::{count, counted, escape};

use crate::{Basis, Estimate, SpreadSummary, Verdict};

/// A text with several lines as paragraphs, which are separated by empty lines.
pub(super) fn paragraphs(text: &str) -> String {
    let sentences = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = text.split("\n\n").map(sentences).filter(|part| !part.is_empty());
    parts.map(|part| format!("<p>{}</p>\n", escape(&part))).collect()
}

/// The same text in one line.
pub(super) fn line(text: &str) -> String {
    escape(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A title with an upper-case first letter, unless the first word is not a plain word.
pub(super) fn capitalized(text: &str) -> String {
    let first = text.split_whitespace().next().unwrap_or_default();
    if !first.chars().all(|c| c.is_alphabetic()) {
        return text.to_owned();
    }
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |letter| letter.to_uppercase().chain(letters).collect())
}

/// A published number with all digits: `2,278`, `0.667`.
pub(super) fn exact(value: f64) -> String {
    let written = value.abs().to_string();
    let (whole, rest) = written.split_once('.').map_or((written.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), count);
    let sign = if value < 0.0 { "\u{2212}" } else { "" };
    rest.map_or_else(|| format!("{sign}{whole}"), |rest| format!("{sign}{whole}.{rest}"))
}

/// A number with three significant digits: `64.3`, `2,278`, `0.667`. Integers have no decimals.
pub(super) fn rounded(value: f64) -> String {
    if value.fract() == 0.0 {
        return exact(value);
    }
    let sign = if value < 0.0 { "\u{2212}" } else { "" };
    let size = value.abs();
    let digits = if size > 0.0 { (2.0 - size.log10().floor()).clamp(0.0, 6.0) as usize } else { 0 };
    if digits == 0 { format!("{sign}{}", count(size.round() as u64)) } else { format!("{sign}{size:.digits$}") }
}

/// A number with its unit: `64 us`, `1.7×`, `18%`.
pub(super) fn with_unit(number: &str, unit: &str) -> String {
    match unit {
        "" | "fraction" => number.to_owned(),
        "ratio" | "times" => format!("{number}×"),
        "%" => format!("{number}%"),
        unit => format!("{number}\u{a0}{}", escape(unit)),
    }
}

/// Minimum and maximum over the seeds; empty if they are printed alike.
pub(super) fn spread(estimate: Estimate) -> String {
    let (low, high) = (rounded(estimate.low), rounded(estimate.high));
    if low == high { String::new() } else { format!("{low} to {high}") }
}

/// Minimum and maximum over seeds and open loads, and how many of them are within the tolerance.
pub(super) fn wide_spread(spread: &SpreadSummary) -> String {
    let range = spread_of(spread.low, spread.high);
    let loads = match spread.loads {
        0 => String::new(),
        loads => format!(", {} of {}", spread.loads_met, counted(loads as u64, "load")),
    };
    let met = format!("{} of {} met{loads}", spread.seeds_met, counted(spread.seeds as u64, "seed"));
    format!("{range}<small>{met}{}</small>", if spread.stale { "; stale" } else { "" })
}

fn spread_of(low: f64, high: f64) -> String {
    let (low, high) = (rounded(low), rounded(high));
    if low == high { low } else { format!("{low} to {high}") }
}

/// A relative error, with its sign: `+3.1%`.
pub(super) fn error(error: f64) -> String {
    let text = format!("{:.1}%", error.abs() * 100.0);
    match error {
        _ if text == "0.0%" => text,
        ..0.0 => format!("\u{2212}{text}"),
        _ => format!("+{text}"),
    }
}

/// A tolerance: `10%`, `7.5%`.
pub(super) fn tolerance(share: f64) -> String {
    format!("±{}%", (share * 1000.0).round() / 10.0)
}

/// Whether a result is met, as a word, for readers without colour.
pub(super) fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "<b class=\"met\">met</b>",
        Verdict::Fragile => "<b class=\"fragile\">fragile</b>",
        Verdict::Missed => "<b class=\"missed\">missed</b>",
    }
}

/// The marker of each basis as an SVG element, with a width of about two units.
pub(super) fn marker(basis: Basis, x: f64, y: f64, radius: f64) -> String {
    let class = match basis {
        Basis::SameFigure => "same-figure",
        basis => basis.name(),
    };
    match basis {
        Basis::Chosen => {
            let half = radius * 1.2;
            let (left, right, top, bottom) = (x - half, x + half, y - half, y + half);
            format!(
                "<path class=\"{class}\" d=\"M{x:.1} {top:.1}L{right:.1} {y:.1}L{x:.1} {bottom:.1}L{left:.1} {y:.1}Z\"/>"
            )
        }
        Basis::Predicted => format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/>"),
        Basis::Derived => {
            let half = radius * 0.86;
            format!(
                "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{side:.1}\" height=\"{side:.1}\"/>",
                x - half,
                y - half,
                side = 2.0 * half
            )
        }
        Basis::SameFigure => {
            let half = radius * 0.8;
            let (left, right, top, bottom) = (x - half, x + half, y - half, y + half);
            format!(
                "<path class=\"{class}\" d=\"M{left:.1} {top:.1}L{right:.1} {bottom:.1}M{left:.1} {bottom:.1}L{right:.1} {top:.1}\"/>"
            )
        }
        Basis::Fitted => {
            let (top, side, bottom) = (y - radius * 1.15, radius * 1.05, y + radius * 0.8);
            format!("<path class=\"{class}\" d=\"M{x:.1} {top:.1}L{:.1} {bottom:.1}H{:.1}Z\"/>", x + side, x - side)
        }
    }
}

/// The word for a basis, behind its marker.
pub(super) fn basis(basis: Basis) -> String {
    format!(
        "<span class=\"basis\"><svg class=\"dots\" viewBox=\"0 0 14 14\" width=\"14\" height=\"14\" \
         aria-hidden=\"true\">{}</svg>{}</span>",
        marker(basis, 7.0, 7.0, 4.6),
        basis.name()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_numbers_keep_their_digits_and_ours_have_three() {
        assert_eq!([2278.0, 337.6, 0.667, 1e6].map(exact), ["2,278", "337.6", "0.667", "1,000,000"]);
        assert_eq!([2278.4, 64.273, 0.66666, 0.0, 44.0].map(rounded), ["2,278", "64.3", "0.667", "0", "44"]);
    }

    #[test]
    fn errors_have_a_sign_and_tolerances_none_of_their_own() {
        assert_eq!([0.031, -0.2, 0.0001].map(error), ["+3.1%", "\u{2212}20.0%", "0.0%"]);
        assert_eq!([0.1, 0.075].map(tolerance), ["±10%", "±7.5%"]);
    }

    #[test]
    fn a_paragraph_ends_at_an_empty_line() {
        assert_eq!(paragraphs("\na\nb <c>\n\nd\n"), "<p>a b &lt;c&gt;</p>\n<p>d</p>\n");
    }

    #[test]
    fn only_plain_words_are_capitalized() {
        assert_eq!(["all writers", "p99 of one", "4 KiB"].map(capitalized), ["All writers", "p99 of one", "4 KiB"]);
    }
}
