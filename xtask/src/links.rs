//! Links of documents lead somewhere: to a file that exists, and to a heading that stands in it.

use std::collections::BTreeSet;
use std::path::Path;

use crate::layout::files;

/// Folders and files whose links are followed.
const DOCUMENTS: &[&str] = &["docs", "examples", "plugins", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

pub(crate) fn check(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    for document in DOCUMENTS.iter().flat_map(|name| files(&root.join(name), &["md"])) {
        let text = std::fs::read_to_string(&document).unwrap_or_default();
        let shown = document.strip_prefix(root).unwrap_or(&document).display().to_string();
        for (line, link) in links_of(&text) {
            if let Some(why) = broken(&document, &text, link) {
                findings.push(format!("links: {shown}:{line}: {link}: {why}"));
            }
        }
    }
    findings
}

/// Why a link leads nowhere. Addresses of other sites are not followed.
fn broken(document: &Path, text: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let linked = match path {
        "" => document.to_owned(),
        _ => document.parent().unwrap_or(Path::new("")).join(path),
    };
    if !linked.exists() {
        return Some("no such file".to_owned());
    }
    let anchor = anchor.filter(|_| linked.extension().is_some_and(|kind| kind == "md"))?;
    let other;
    let target = if path.is_empty() {
        text
    } else {
        other = std::fs::read_to_string(&linked).unwrap_or_default();
        &other
    };
    (!anchors_of(target).contains(anchor)).then(|| "no such heading".to_owned())
}

/// Targets of links with their lines, from 1, outside of code.
fn links_of(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    for (line, content) in prose_of(text) {
        let mut rest = content;
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, next)) = after.split_once(')') else { break };
            let target = target.split_whitespace().next().unwrap_or_default();
            links.push((line, target.trim_matches(['<', '>'])));
            rest = next;
        }
    }
    links
}

/// Headings as GitHub makes anchors of them.
fn anchors_of(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, content) in prose_of(text).filter(|(_, content)| content.starts_with('#')) {
        let title = content.trim_start_matches('#').trim();
        let plain: String = title
            .to_lowercase()
            .chars()
            .filter(|letter| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter))
            .map(|letter| if letter == ' ' { '-' } else { letter })
            .collect();
        let again = (1..).map(|count| format!("{plain}-{count}")).find(|name| !anchors.contains(name));
        let name = if anchors.contains(&plain) { again.expect("counting does not end") } else { plain };
        anchors.insert(name);
    }
    anchors
}

/// Lines outside of blocks of code, with their numbers from 1.
fn prose_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(at, content)| {
        let is_fence = content.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((at + 1, content))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_outside_of_code_are_found_with_their_lines() {
        let text = "[a](b.md) and [c](d.md#e \"title\")\n```\n[no](f.md)\n```\n[g](#h)\n";
        assert_eq!(links_of(text), [(1, "b.md"), (1, "d.md#e"), (5, "#h")]);
    }

    #[test]
    fn anchors_are_lower_case_without_marks_and_counted_when_they_repeat() {
        let anchors = anchors_of("# What it *is*, `now`\n## Twice\n## Twice\n");
        assert_eq!(anchors.into_iter().collect::<Vec<_>>(), ["twice", "twice-1", "what-it-is-now"]);
    }

    #[test]
    fn a_link_to_a_missing_file_or_heading_is_a_finding() {
        let root = std::env::temp_dir().join(format!("zonda-xtask-links-{}", std::process::id()));
        std::fs::create_dir_all(root.join("docs")).expect("a directory");
        let text = "# Here\n[a](gone.md) [b](b.md) [c](b.md#there) [d](b.md#not) [e](#here) [f](https://a.b/c)\n";
        std::fs::write(root.join("docs/a.md"), text).expect("a file");
        std::fs::write(root.join("docs/b.md"), "## There\n").expect("a file");
        let findings = check(&root);
        std::fs::remove_dir_all(&root).expect("the directory is removed");
        let expected = ["links: docs/a.md:2: gone.md: no such file", "links: docs/a.md:2: b.md#not: no such heading"];
        assert_eq!(findings, expected);
    }
}
