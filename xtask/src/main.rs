//! Checks, tests and long campaigns of the project.

mod changed;
mod documentation;
mod edges;
mod language;
mod layout;
mod ledger;
mod levels;
mod links;
mod long_tests;
mod names;
mod process;
mod soak;
mod suite;
mod test;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask check             levels, layout, names, links and language
       cargo xtask levels            check that crates depend on lower levels only, except where the table allows it
       cargo xtask layout            check that pure crates are pure, and that files are not too long
       cargo xtask names             check that tests named in documents exist
       cargo xtask links             check that links in documents lead to existing files and headings
       cargo xtask language          check for words that CONTRIBUTING.md replaces by others
       cargo xtask edges             show how much of the workspace an edit of each crate rebuilds
       cargo xtask changed [BASE]    run format, lints, and the tests of packages that differ from BASE (HEAD)
       cargo xtask documentation     build everything and the documentation; fail on broken links
       cargo xtask test              run all checks and tests required before a push; print a table of steps
       cargo xtask soak HOURS        run all long tests with fresh seeds; write out/soak/report.md";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["check"] => findings("check", &checks(root)),
        ["levels"] => findings("levels", &levels::check(root)),
        ["layout"] => findings("layout", &layout::check(root)),
        ["names"] => findings("names", &names::check(root)),
        ["links"] => findings("links", &links::check(root)),
        ["language"] => findings("language", &language::check(root)),
        ["edges"] => match edges::table(root) {
            Ok(table) => {
                print!("{table}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("edges: cannot read the workspace: {error}");
                ExitCode::FAILURE
            }
        },
        ["changed"] => changed::run(root, None),
        ["changed", base] => changed::run(root, Some(base)),
        ["documentation"] => test::documentation_alone(root),
        ["test"] => test::run(root),
        ["soak", hours] => soak::run(root, hours),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn checks(root: &Path) -> Vec<String> {
    let checks = [levels::check, layout::check, names::check, links::check, language::check];
    checks.iter().flat_map(|check| check(root)).collect()
}

fn findings(which: &str, findings: &[String]) -> ExitCode {
    if findings.is_empty() {
        println!("{which}: passed");
        return ExitCode::SUCCESS;
    }
    findings.iter().for_each(|finding| eprintln!("{finding}"));
    ExitCode::FAILURE
}
