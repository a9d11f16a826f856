//! What the project does to itself: checks, tests, long campaigns.

mod changed;
mod documentation;
mod edges;
mod ledger;
mod levels;
mod long_tests;
mod names;
mod process;
mod rooms;
mod soak;
mod suite;
mod test;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask check             levels, sizes and names
       cargo xtask levels            no crate depends on one of its own level or above, but where the table says so
       cargo xtask rooms             pure crates are pure, front pages fit a screen, files have a size one can read
       cargo xtask names             tests that documents name exist
       cargo xtask edges             a table: how much of the workspace an edit of each crate rebuilds
       cargo xtask changed [BASE]    format, lints, and the tests of the packages that differ from BASE (HEAD)
       cargo xtask documentation     builds everything, and fails where documentation has a link that leads nowhere
       cargo xtask test              everything that must hold before a change is shared, and a table of what ran
       cargo xtask soak HOURS        everything long, with fresh seeds, and one report (out/soak/report.md)";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["check"] => findings("check", &[levels::check(root), rooms::check(root), names::check(root)].concat()),
        ["levels"] => findings("levels", &levels::check(root)),
        ["rooms"] => findings("rooms", &rooms::check(root)),
        ["names"] => findings("names", &names::check(root)),
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

fn findings(which: &str, findings: &[String]) -> ExitCode {
    if findings.is_empty() {
        println!("{which}: fine");
        return ExitCode::SUCCESS;
    }
    findings.iter().for_each(|finding| eprintln!("{finding}"));
    ExitCode::FAILURE
}
