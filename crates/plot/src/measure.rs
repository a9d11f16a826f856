//! Conservative estimates of the size of text, because the fonts of readers are unknown.

/// Mean width of a character of a sans-serif font, as a share of the font size.
const CHARACTER_WIDTH: f64 = 0.55;

/// Width of a line of text, in the unit of `font_size`.
pub(crate) fn width_of(text: &str, font_size: f64) -> f64 {
    text.chars().count() as f64 * CHARACTER_WIDTH * font_size
}

/// `text` in lines that are at most `width` wide, broken at spaces; a longer word has a line of its
/// own.
pub(crate) fn wrap(text: &str, width: f64, font_size: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width_of(line, font_size) + width_of(word, font_size) + font_size / 2.0 <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_spaces() {
        assert_eq!(wrap("zone append of a page", 70.0, 10.0), ["zone append", "of a page"]);
        assert_eq!(wrap("implicitly opened", 30.0, 10.0), ["implicitly", "opened"]);
        assert_eq!(wrap("  ", 30.0, 10.0), [""; 0]);
    }
}
