//! Checks of the project on itself: `cargo xtask check`; and what an edit rebuilds: `cargo xtask edges`.

mod edges;
mod levels;
mod rooms;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask check     all checks
       cargo xtask levels    no crate depends on one of its own level or above, but where the table says so
       cargo xtask rooms     pure crates are pure, front pages fit a screen, files have a size one can read
       cargo xtask edges     a table: how much of the workspace an edit of each crate rebuilds";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace");
    let which = std::env::args().nth(1).unwrap_or_default();
    if which == "edges" {
        return match edges::table(root) {
            Ok(table) => {
                print!("{table}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("edges: cannot read the workspace: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let findings = match which.as_str() {
        "check" => [levels::check(root), rooms::check(root)].concat(),
        "levels" => levels::check(root),
        "rooms" => rooms::check(root),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if findings.is_empty() {
        println!("{which}: fine");
        return ExitCode::SUCCESS;
    }
    findings.iter().for_each(|finding| eprintln!("{finding}"));
    ExitCode::FAILURE
}
