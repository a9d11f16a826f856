//! Checks that tests named in documents exist, for example after a test was renamed.

use std::collections::BTreeSet;
use std::path::Path;

use crate::layout::{files, rust_files};

/// Minimum number of words of a test name: shorter names can be anything.
const WORDS_MIN: usize = 6;

pub(crate) fn check(root: &Path) -> Vec<String> {
    let functions: BTreeSet<String> = ["crates", "tests", "bench", "xtask"]
        .iter()
        .flat_map(|folder| rust_files(&root.join(folder)))
        .flat_map(|file| functions_of(&std::fs::read_to_string(file).unwrap_or_default()))
        .collect();
    let mut findings = Vec::new();
    for document in files(&root.join("docs"), &["md"]) {
        let text = std::fs::read_to_string(&document).unwrap_or_default();
        for name in named_in(&text).filter(|name| !functions.contains(*name)) {
            let shown = document.strip_prefix(root).unwrap_or(&document).display();
            findings.push(format!("names: {shown}: no test is named {name}"));
        }
    }
    findings
}

/// Names of functions declared in a file.
fn functions_of(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let rest = line.split_once("fn ")?.1;
        Some(rest.chars().take_while(|letter| is_of_a_name(*letter)).collect())
    };
    text.lines().filter_map(name).collect()
}

/// Words in backticks that look like names of tests.
fn named_in(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |word: &&str| word.chars().all(is_of_a_name) && word.split('_').count() >= WORDS_MIN;
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter(is_name)
}

fn is_of_a_name(letter: char) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_in_backticks_names_a_test_and_shorter_words_do_not() {
        let text = "| a | `a_test_that_is_a_sentence`, `zone_capacity_blocks` and `A_b_c_d_e_f` |";
        assert_eq!(named_in(text).collect::<Vec<_>>(), ["a_test_that_is_a_sentence"]);
    }

    #[test]
    fn functions_are_found_with_their_attributes() {
        assert_eq!(
            functions_of("    pub(crate) fn one() {\n// fn\n#[test] fn two_of_them<T>(a: T)"),
            ["one", "two_of_them"]
        );
    }

    #[test]
    fn a_document_that_names_a_missing_test_is_a_finding() {
        let root = std::env::temp_dir().join(format!("zonda-xtask-names-{}", std::process::id()));
        std::fs::create_dir_all(root.join("docs/deep")).expect("a directory");
        std::fs::create_dir_all(root.join("crates")).expect("a directory");
        std::fs::write(root.join("crates/a.rs"), "fn a_test_that_is_still_there() {}").expect("a file");
        let text = "`a_test_that_is_still_there` `a_test_that_is_not_there_any_more`";
        std::fs::write(root.join("docs/deep/a.md"), text).expect("a file");
        let findings = check(&root);
        std::fs::remove_dir_all(&root).expect("the directory is removed");
        let expected = "names: docs/deep/a.md: no test is named a_test_that_is_not_there_any_more";
        assert_eq!(findings, [expected]);
    }
}
