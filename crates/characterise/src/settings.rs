//! A configuration for the server that follows from the figures.

use std::fmt::Write;

use crate::{Report, rules};

/// Where the server finds the drive, for [`zonda_toml`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The directory of an image, as in `image = "..."`.
    Image(String),
    /// A profile, as in `memory = { profile = "..." }`.
    Profile(String),
    /// Another server, which cannot be served again.
    Remote(String),
}

/// The contents of a `zonda.toml`, each setting with its reason.
#[must_use]
pub fn zonda_toml(report: &Report, source: &Source) -> String {
    let mut text = format!("# {}: settings that follow from its measurements.\n", report.conditions.target);
    for guideline in &report.guidelines {
        for line in wrapped(&format!("{}: {}", guideline.rule, guideline.text)) {
            let _ = writeln!(text, "# {line}");
        }
    }
    let (scheduler, why) = scheduler(report);
    let drive = match source {
        Source::Image(path) => format!("  image = {}\n", quoted(path)),
        Source::Profile(name) => format!("  memory = {{ profile = {} }}\n  timing = \"profile\"\n", quoted(name)),
        Source::Remote(url) => {
            let _ = write!(
                text,
                "\n# {url} is a namespace of another server.\n# In the zonda.toml of that server, below its \
                 [[subsystem.namespace]]:\n#\n#   # {why}\n#   scheduler = \"{scheduler}\"\n"
            );
            return text;
        }
    };
    let _ = write!(
        text,
        "\n[server]\nlisten = [\"127.0.0.1:4420\"]\n\n[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:{}\"\n\n  \
         [[subsystem.namespace]]\n{drive}  # {why}\n  scheduler = \"{scheduler}\"\n",
        name_of(source)
    );
    text
}

/// The scheduler, and why.
fn scheduler(report: &Report) -> (&'static str, String) {
    let disturbed = report.guidelines.iter().find(|guideline| {
        guideline.rule == "interference-tail" && guideline.text.starts_with("Reads that must be fast")
    });
    match (disturbed, &report.groups) {
        (Some(_), _) => {
            ("mq-deadline", "Reads go first: other operations delay them (rule interference-tail).".to_owned())
        }
        (None, Some(groups)) if groups.groups > 1 => (
            "ezns",
            "Zones share hardware in groups: windows and tokens of each zone limit what waits (rule conflict-groups)."
                .to_owned(),
        ),
        _ if rules::over_depth(report, crate::Part::Reads, crate::Kind::Read).is_empty() => {
            ("none", "Too little was measured to recommend a scheduler.".to_owned())
        }
        _ => ("none", "No operation delays reads by much: commands go to the drive as they arrive.".to_owned()),
    }
}

/// A TOML string.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string has no invalid part")
}

/// Letters and digits of the last part of the path or profile, for an NQN.
fn name_of(source: &Source) -> String {
    let (Source::Image(text) | Source::Profile(text) | Source::Remote(text)) = source;
    let text = text.strip_suffix(".toml").unwrap_or(text);
    let last = text.trim_end_matches('/').rsplit('/').next().unwrap_or("drive");
    let name: String = last
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' })
        .collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "drive".to_owned() } else { name.to_owned() }
}

/// Lines of at most 96 characters.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a line");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > 96 {
            lines.push(format!("  {word}"));
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn the_namespace_has_the_drive_and_a_scheduler_with_its_reason() {
        let text = zonda_toml(&report(Vec::new()), &Source::Image("/srv/My \"drive\"".to_owned()));
        let expected = "[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:my--drive\"\n\n  [[subsystem.namespace]]\n  \
                        image = \"/srv/My \\\"drive\\\"\"\n  # Too little was measured to recommend a scheduler.\n  \
                        scheduler = \"none\"\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn a_namespace_of_another_server_is_configured_there() {
        let text = zonda_toml(&report(Vec::new()), &Source::Remote("nvme-tcp://h/n".to_owned()));
        assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')), "{text}");
        assert!(text.contains("#   scheduler = \"none\""), "{text}");
    }
}
