//! Words that zonda does not use, because the field has others: what CONTRIBUTING.md calls its
//! language, kept by a check.

use std::path::Path;

use crate::layout::files;

/// What is not written, and what is written instead. Underscores, line breaks and capitals inside
/// names separate words too.
const WORDS: &[(&str, &str)] = &[
    ("under way", "in flight, outstanding or in progress"),
    ("underway", "in flight, outstanding or in progress"),
    ("given up", "failed, stopped or timed out"),
    ("give up", "fail, stop or time out"),
    ("gives up", "fails, stops or times out"),
    ("gave up", "failed, stopped or timed out"),
    ("giving up", "failing, stopping"),
    ("mend", "repair"),
    ("mends", "repairs"),
    ("mended", "repaired"),
    ("mending", "repairing"),
    ("anew", "again, or re- (rewritten, restarted)"),
    ("win back", "reclaim"),
    ("wins back", "reclaims"),
    ("won back", "reclaimed"),
    ("give back", "release, free or return"),
    ("gives back", "releases, frees or returns"),
    ("given back", "released, freed or returned"),
    ("gave back", "released, freed or returned"),
    ("is at rest", "is quiescent"),
    ("are at rest", "are quiescent"),
    ("come to rest", "quiesce"),
    ("comes to rest", "quiesces"),
    ("settle", "quiesce, complete or resolve"),
    ("settles", "quiesces, completes or resolves"),
    ("settled", "complete or resolved"),
    ("settling", "quiescing"),
    ("stir", "wake, or make progress"),
    ("stirs", "wakes, or makes progress"),
    ("world", "scenario, simulation or testbed"),
    ("worlds", "scenarios, simulations or testbeds"),
    ("blow", "injected fault"),
    ("blows", "injected faults"),
    ("planted", "seeded"),
    ("by lot", "at random"),
    ("spoken for", "reserved"),
    ("kept back", "reserved"),
    ("held against", "checked against"),
    ("held beside", "compared with"),
    ("somebody", "a user, a client"),
    ("anybody", "any user, any host"),
    ("nobody", "no host, no client"),
    ("stranger", "an unauthenticated client"),
    ("strangers", "unauthenticated clients"),
    ("hears", "receives, is notified or listens"),
    ("be heard", "be received"),
    ("lets go", "releases"),
    ("patience", "timeout"),
    ("worn out", "out of space, or at its end of life"),
    ("seat", "member device"),
    ("seats", "member devices"),
    ("what came of", "the result of"),
    ("to be had", "available"),
    ("costs the processor", "takes CPU time"),
    ("is gone", "is missing, removed or disconnected"),
    ("are gone", "are missing, removed or disconnected"),
    ("who has it", "owner, holder or user"),
    ("is told of", "is notified of"),
    ("house", "architecture"),
];

/// Folders and files that people read.
const READ: &[&str] = &[
    "crates",
    "tests",
    "bench",
    "xtask",
    "docs",
    "examples",
    "plugins",
    "scripts",
    "contrib",
    "README.md",
    "ARCHITECTURE.md",
    "Makefile",
];
const KINDS: &[&str] = &["rs", "md", "txt", "toml", "sh", "py", "c", "h", "ini", "fio", ""];

/// Lines that may have a word: the word, what the line has in it, and the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("world", "fork(\"world\")", "the label of a random stream, on which seeds depend"),
    ("world", "\"world\"", "a former key and flag, still accepted"),
    ("world", "`world`", "a former key and flag, still accepted"),
    ("world", "--world", "a former key and flag, still accepted"),
    ("world", "world of volumes", "an array ID in stored images"),
    ("world", "world-writable", "a term of POSIX"),
    ("blows", "fork(\"blows\")", "the label of a random stream, on which seeds depend"),
    ("blows", "rename = \"blows", "a key of stored scenarios"),
    ("planted", "fork(\"planted\")", "the label of a random stream, on which seeds depend"),
    ("strangers", "\"strangers\"", "a part of stored scenarios"),
    ("anew", "alias = \"anew\"", "a former flag, still accepted"),
];

/// It has the words, and their tests.
const THIS_FILE: &str = "xtask/src/language.rs";

pub(crate) fn check(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    for file in READ.iter().flat_map(|name| files(&root.join(name), KINDS)) {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        if shown == THIS_FILE {
            continue;
        }
        for (line, word, instead) in found_in(&text) {
            let content = text.lines().nth(line - 1).unwrap_or_default();
            if !EXCEPTIONS.iter().any(|(of, part, _)| *of == word && content.contains(part)) {
                findings.push(format!("language: {shown}:{line}: \"{word}\": write {instead}"));
            }
        }
    }
    findings
}

/// The line, the word and what to write instead, of each place in a text.
fn found_in(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let words = words_of(text);
    let mut found = Vec::new();
    for (phrase, instead) in WORDS {
        let parts: Vec<&str> = phrase.split(' ').collect();
        for at in words.windows(parts.len()) {
            let is_joined = at[1..].iter().all(|word| word.is_joined);
            if is_joined && at.iter().zip(&parts).all(|(word, part)| word.lower == *part) {
                found.push((at[0].line, *phrase, *instead));
            }
        }
    }
    found.sort_unstable();
    found
}

struct Word {
    /// From 1.
    line: usize,
    lower: String,
    /// Between it and the word before it are only spaces, line breaks, underscores, and marks of
    /// comments.
    is_joined: bool,
}

/// The words of a text. `UnderWay` and `under_way` are two words each.
fn words_of(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let (mut line, mut lower, mut start) = (1, String::new(), 1);
    let (mut is_joined, mut was_lower) = (true, false);
    for letter in text.chars().chain(['\n']) {
        let ends = !letter.is_alphanumeric() || (letter.is_uppercase() && was_lower);
        if ends && !lower.is_empty() {
            words.push(Word { line: start, lower: std::mem::take(&mut lower), is_joined });
            is_joined = true;
        }
        if letter.is_alphanumeric() {
            if lower.is_empty() {
                start = line;
            }
            lower.extend(letter.to_lowercase());
        } else {
            is_joined &= letter.is_whitespace() || "_/!*#-".contains(letter);
        }
        line += usize::from(letter == '\n');
        was_lower = letter.is_lowercase();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_in_prose_in_names_and_across_lines() {
        let text = "fn is_under_way() -> UnderWay\n// it is under\n// way, and by the way is not\n";
        let lines: Vec<usize> = found_in(text).iter().map(|(line, ..)| *line).collect();
        assert_eq!(lines, [1, 1, 2]);
    }

    #[test]
    fn parts_of_words_are_not_found() {
        assert_eq!(found_in("recommended amendments, seated, unsettled, PATIENCES"), []);
    }

    #[test]
    fn words_that_code_separates_are_not_one_phrase() {
        assert_eq!(found_in("let at_all = is.at(rest); meets(&held, against)"), []);
    }

    #[test]
    fn a_finding_names_the_file_the_line_and_the_word_to_write() {
        let root = std::env::temp_dir().join(format!("zonda-xtask-language-{}", std::process::id()));
        std::fs::create_dir_all(root.join("docs/target")).expect("a directory");
        std::fs::write(root.join("docs/a.md"), "one\ntwo is mended\n").expect("a file");
        std::fs::write(root.join("docs/target/b.md"), "mended").expect("a file");
        std::fs::write(root.join("docs/target/CACHEDIR.TAG"), "").expect("a file");
        let findings = check(&root);
        std::fs::remove_dir_all(&root).expect("the directory is removed");
        assert_eq!(findings, ["language: docs/a.md:2: \"mended\": write repaired"]);
    }
}
