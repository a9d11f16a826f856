//! NBD clients as processes.

use std::io::Write;
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Whether the tools are installed; prints which one is not.
pub(crate) fn have(tools: &[&str]) -> bool {
    static LOOKED: OnceLock<()> = OnceLock::new();
    LOOKED.get_or_init(|| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/nbd-tools");
        // Tests whose tools it cannot install are skipped one by one.
        let _ = Command::new(script).output();
    });
    for tool in tools {
        if Command::new(tool).arg("--version").output().is_err() {
            // Not eprintln: the test runner captures that of tests that pass.
            let _ = std::io::stderr().write_all(format!("skipped: {tool} is not installed\n").as_bytes());
            return false;
        }
    }
    true
}

/// Runs a tool to completion.
fn ran(tool: &str, arguments: &[&str]) -> Output {
    Command::new(tool).args(arguments).output().unwrap_or_else(|error| panic!("{tool}: {error}"))
}

/// Runs a tool, which has to succeed; returns its output.
pub(crate) fn run(tool: &str, arguments: &[&str]) -> String {
    let output = ran(tool, arguments);
    let (words, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{tool} {}: {}\n{words}{errors}", arguments.join(" "), output.status);
    words.into_owned()
}

/// Runs a tool, which has to fail.
pub(crate) fn refused(tool: &str, arguments: &[&str]) {
    let output = ran(tool, arguments);
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{tool} {} succeeded, but must fail\n{words}", arguments.join(" "));
}
