//! A configuration for the server that follows from the figures.

use std::fmt::Write;

use crate::{Report, SchedulerName, choice, rules};

/// Where the server finds the drive, for [`zonda_toml`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The directory of an image, as in `image = "..."`.
    Image(String),
    /// A profile, as in `memory = { profile = "..." }`.
    Profile(String),
    /// A device file of this machine, as in `device = "..."`.
    Device(String),
    /// Another server, which cannot be served again.
    Remote(String),
}

/// What a `zonda.toml` may refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The drive.
    pub source: Source,
    /// Whether the table of conflict groups is in [`GROUPS_FILE`] beside the configuration: the
    /// scheduler `interference` needs it.
    pub has_groups: bool,
}

/// The file with the conflict groups, beside `zonda.toml`.
pub const GROUPS_FILE: &str = "groups.json";

/// The contents of a `zonda.toml`, each setting with its reason.
#[must_use]
pub fn zonda_toml(report: &Report, served: &Served) -> String {
    let source = &served.source;
    let mut text = format!("# {}: settings that follow from its measurements.\n", report.conditions.target);
    for line in report.conditions.caveat().map(wrapped).unwrap_or_default() {
        let _ = writeln!(text, "# {line}");
    }
    for guideline in &report.guidelines {
        for line in wrapped(&format!("{}: {}", guideline.rule, guideline.text)) {
            let _ = writeln!(text, "# {line}");
        }
    }
    let (scheduler, why) = scheduler(report, served.has_groups);
    let why = wrapped(&why);
    // With `prefix` before each line, below [[subsystem.namespace]].
    let setting = |prefix: &str| {
        let mut lines: Vec<String> = why.iter().map(|line| format!("{prefix}# {line}\n")).collect();
        lines.push(format!("{prefix}scheduler = \"{scheduler}\"\n"));
        if scheduler == SchedulerName::Interference {
            lines.push(format!("{prefix}groups = \"{GROUPS_FILE}\"\n"));
        }
        lines.concat()
    };
    let (conventional, zones) = (report.limits.conventional_zones, report.drive.zone_count);
    if conventional > 0 && conventional < zones {
        let _ = write!(
            text,
            "\n# {conventional} of the {zones} zones are conventional. NVMe has no namespace with both kinds of zones:\n# \
             zonda serve, volumes and pools use the {} sequential ones, numbered from 0.\n",
            zones - conventional
        );
    }
    let drive = match source {
        Source::Image(path) => format!("  image = {}\n", quoted(path)),
        Source::Profile(name) => format!("  memory = {{ profile = {} }}\n  timing = \"profile\"\n", quoted(name)),
        Source::Device(path) => format!("  device = {}\n", quoted(path)),
        Source::Remote(url) => {
            let copied = match scheduler {
                SchedulerName::Interference => format!(", and copy {GROUPS_FILE} beside it"),
                _ => String::new(),
            };
            let _ = write!(
                text,
                "\n# {url} is a namespace of another server.\n# In the zonda.toml of that server, below its \
                 [[subsystem.namespace]]{copied}:\n#\n{}",
                setting("#   ")
            );
            return text;
        }
    };
    let _ = write!(
        text,
        "\n[server]\nlisten = [\"127.0.0.1:4420\"]\n# The status page, which zonda top and zonda status read.\nhttp = \"127.0.0.1:9420\"\n\n[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:{}\"\n\n  \
         [[subsystem.namespace]]\n{drive}{}",
        name_of(source),
        setting("  ")
    );
    text
}

/// The scheduler, and why.
fn scheduler(report: &Report, has_groups: bool) -> (SchedulerName, String) {
    let is_possible = |scheduler| has_groups || scheduler != SchedulerName::Interference;
    if let (Some(chosen), Some(why)) = (choice::choice(report, is_possible), choice::guideline(report, is_possible)) {
        return (chosen.scheduler, format!("{why} (rule scheduler)"));
    }
    let disturbed = report.guidelines.iter().find(|guideline| {
        guideline.rule == "interference-tail" && guideline.text.starts_with("Reads that must be fast")
    });
    match (disturbed, &report.groups) {
        (Some(_), _) => (
            SchedulerName::MqDeadline,
            "Reads go first: other operations delay them (rule interference-tail). What this costs writes was not measured."
                .to_owned(),
        ),
        (None, Some(groups)) if groups.groups > 1 => (
            SchedulerName::Ezns,
            "Zones share hardware in groups: windows and tokens of each zone limit what waits (rule conflict-groups)."
                .to_owned(),
        ),
        _ if rules::over_depth(report, crate::Part::Reads, crate::Kind::Read).is_empty() => {
            (SchedulerName::None, "Too little was measured to recommend a scheduler.".to_owned())
        }
        _ if report.findings.iter().all(|finding| finding.beside.is_none() || finding.figures.is_none()) => (
            SchedulerName::None,
            "How operations delay each other was not measured: commands go to the drive as they arrive.".to_owned(),
        ),
        _ => (
            SchedulerName::None,
            "No operation delays reads by much: commands go to the drive as they arrive.".to_owned(),
        ),
    }
}

/// A TOML string.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string has no invalid part")
}

/// Letters and digits of the last part of the path or profile, for an NQN.
fn name_of(source: &Source) -> String {
    let (Source::Image(text) | Source::Profile(text) | Source::Device(text) | Source::Remote(text)) = source;
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
    use crate::report::tests::{figures, report};
    use crate::{Finding, Kind, Load, Part};

    fn served(source: Source) -> Served {
        Served { source, has_groups: true }
    }

    #[test]
    fn the_scheduler_that_was_chosen_has_its_table_of_groups_if_that_exists() {
        let load = |kind| Load::of_data(kind, 16_384, 4, 4);
        let of = |(scheduler, p99_ns): (SchedulerName, u64)| {
            [Kind::Read, Kind::Write].map(|kind| {
                let figures = figures(1000.0, 16_384, 1, p99_ns);
                Finding::new(Part::Schedulers, load(kind), None, Ok(figures)).behind(Some(scheduler))
            })
        };
        let tails = [
            (SchedulerName::None, 9000),
            (SchedulerName::MqDeadline, 4000),
            (SchedulerName::Ezns, 3000),
            (SchedulerName::Interference, 2000),
        ];
        let report = report(tails.into_iter().flat_map(of).collect());
        let text = zonda_toml(&report, &served(Source::Device("/dev/nvme0n1".to_owned())));
        let end = "  [[subsystem.namespace]]\n  device = \"/dev/nvme0n1\"\n  # Use the I/O scheduler interference: beside 4 \
                   writers the p99 of reads is 2.00 us, not 9.00 us as\n  #   without a scheduler. It costs nothing that \
                   was measured: neither throughput of reads and\n  #   writes nor p99 of writes. (rule scheduler)\n  scheduler = \
                   \"interference\"\n  groups = \"groups.json\"\n";
        assert!(text.ends_with(end), "{text}");
        let source = Source::Device("/dev/nvme0n1".to_owned());
        let text = zonda_toml(&report, &Served { source, has_groups: false });
        assert!(text.ends_with("  scheduler = \"ezns\"\n"), "{text}");
    }

    #[test]
    fn a_drive_with_both_kinds_of_zones_is_served_without_its_conventional_ones() {
        let mut report = report(Vec::new());
        report.limits.conventional_zones = 3;
        let text = zonda_toml(&report, &served(Source::Device("/dev/sda".to_owned())));
        assert!(text.contains("# 3 of the 8 zones are conventional."), "{text}");
        assert!(
            text.contains("# zonda serve, volumes and pools use the 5 sequential ones, numbered from 0."),
            "{text}"
        );
        assert!(text.contains("\n  device = \"/dev/sda\"\n"), "{text}");
        report.limits.conventional_zones = report.drive.zone_count;
        let text = zonda_toml(&report, &served(Source::Device("/dev/sda".to_owned())));
        assert!(!text.contains("zones are conventional"), "{text}");
    }

    #[test]
    fn the_namespace_has_the_drive_and_a_scheduler_with_its_reason() {
        let text = zonda_toml(&report(Vec::new()), &served(Source::Image("/srv/My \"drive\"".to_owned())));
        let expected = "[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:my--drive\"\n\n  [[subsystem.namespace]]\n  \
                        image = \"/srv/My \\\"drive\\\"\"\n  # Too little was measured to recommend a scheduler.\n  \
                        scheduler = \"none\"\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn a_namespace_of_another_server_is_configured_there() {
        let text = zonda_toml(&report(Vec::new()), &served(Source::Remote("nvme-tcp://h/n".to_owned())));
        assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')), "{text}");
        assert!(text.contains("#   scheduler = \"none\""), "{text}");
    }
}
