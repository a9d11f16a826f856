//! Runs one input without a fuzzer:
//! `cargo run --release -p zonda-fuzz-bodies --example replay TARGET FILE`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, file] = &arguments[..] else {
        eprintln!("usage: replay TARGET FILE");
        return ExitCode::from(2);
    };
    match std::fs::read(file) {
        Ok(input) => {
            zonda_fuzz_bodies::run(target, &input);
            println!("{target}: {file} passed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{file}: {error}");
            ExitCode::from(2)
        }
    }
}
