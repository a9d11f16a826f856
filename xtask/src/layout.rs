//! Checks of crates and files: purity of pure crates, and maximum lengths of files.

use std::path::{Path, PathBuf};

/// Crates of levels 0 to 2.
const PURE: &[&str] = &[
    "zoned",
    "config",
    "profiles",
    "ssd",
    "layers",
    "files",
    "nbd",
    "raid",
    "erasure",
    "workload",
    "nvme",
    "chap",
    "target",
    "initiator",
    "image",
    "plot",
    "stack",
    "sim",
    "lab",
    "advise",
    "characterise",
    "profiler",
];
/// Maximum number of lines of a `lib.rs`.
const FRONT_PAGE_LINES_MAX: usize = 100;
/// Maximum number of lines of any other file.
const FILE_LINES_MAX: usize = 600;

pub(crate) fn check(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    for name in PURE {
        check_purity(root, name, &mut findings);
    }
    for folder in ["crates", "tests", "bench", "xtask"] {
        for file in rust_files(&root.join(folder)) {
            check_size(root, &file, &mut findings);
        }
    }
    findings
}

/// A pure crate forbids unsafe code, and has the lints against clocks, threads, files and random
/// hashing.
fn check_purity(root: &Path, name: &str, findings: &mut Vec<String>) {
    let folder = root.join("crates").join(name);
    let front = std::fs::read_to_string(folder.join("src/lib.rs")).unwrap_or_default();
    if !front.contains("#![forbid(unsafe_code)]") {
        findings.push(format!("layout: crates/{name}/src/lib.rs lacks #![forbid(unsafe_code)]"));
    }
    let lints = std::fs::read_to_string(folder.join("clippy.toml")).unwrap_or_default();
    for forbidden in
        ["std::time::Instant", "std::collections::HashMap", "std::thread::spawn", "std::fs::File", "std::env::var"]
    {
        if !lints.contains(forbidden) {
            findings.push(format!("layout: crates/{name}/clippy.toml does not forbid {forbidden}"));
        }
    }
}

fn check_size(root: &Path, file: &Path, findings: &mut Vec<String>) {
    let lines = std::fs::read_to_string(file).unwrap_or_default().lines().count();
    let is_front = file.file_name().is_some_and(|name| name == "lib.rs");
    let most = if is_front { FRONT_PAGE_LINES_MAX } else { FILE_LINES_MAX };
    if lines > most {
        let shown = file.strip_prefix(root).unwrap_or(file).display();
        findings.push(format!("layout: {shown} has {lines} lines, more than {most}: split the file"));
    }
}

/// The Rust files below a folder, sorted.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    files(folder, &["rs"])
}

/// The files of these kinds below a path, sorted; the path itself, if it is a file. A file without
/// an extension has the kind "".
pub(crate) fn files(path: &Path, kinds: &[&str]) -> Vec<PathBuf> {
    if path.is_file() {
        let kind = path.extension().unwrap_or_default();
        return if kinds.iter().any(|it| kind == *it) { vec![path.to_owned()] } else { Vec::new() };
    }
    // Cargo marks the directories that it builds in. Their names are no sign: the NVMe/TCP target
    // is a crate.
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    if path.join("CACHEDIR.TAG").exists() {
        return Vec::new();
    }
    let mut found: Vec<PathBuf> = entries.flatten().flat_map(|entry| files(&entry.path(), kinds)).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crate_that_is_called_target_is_checked_too() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace");
        assert!(rust_files(&root.join("crates")).contains(&root.join("crates/target/src/lib.rs")));
    }
}
