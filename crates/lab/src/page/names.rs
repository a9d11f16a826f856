//! Names of pages, anchors and files in links.

/// An `id` attribute: letters, digits and hyphens of `text`, with a hyphen for everything else.
pub(super) fn anchor(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect()
}

/// The `id` of a result on its page.
pub(super) fn result_anchor(id: &str) -> String {
    format!("result-{}", anchor(id))
}

/// A relative path in a link, percent-encoded, because names chosen by users can have any
/// character.
pub(super) fn link(path: &str) -> String {
    let mut link = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
            link.push(byte.into());
        } else {
            link += &format!("%{byte:02X}");
        }
    }
    link
}

/// The file name of a plot: the ID of the experiment without the key of the paper, and the number
/// of the plot, from 1.
pub(super) fn plot_file(id: &str, paper: Option<&str>, number: usize) -> String {
    let short = paper.and_then(|key| id.strip_prefix(key)?.strip_prefix('-')).unwrap_or(id);
    format!("{short}-{number}.svg")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_become_links_and_anchors() {
        assert_eq!(link("my reads #2/a.toml"), "my%20reads%20%232/a.toml");
        assert_eq!(anchor("my reads #2"), "my-reads--2");
        assert_eq!(result_anchor("ezns-s3.4-die"), "result-ezns-s3-4-die");
    }

    #[test]
    fn a_plot_is_named_by_its_place_in_the_paper() {
        assert_eq!(plot_file("ezns-figure-9", Some("ezns"), 1), "figure-9-1.svg");
        assert_eq!(plot_file("mine", None, 2), "mine-2.svg");
    }
}
