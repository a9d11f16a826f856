//! Documentation: runs rustdoc on every library and program, with the libraries of the build.
//! `cargo doc` would check all dependencies again, which takes longer than rustdoc itself
//! (docs/decisions/0016).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::process::Ended;
use crate::suite::{Built, cargo, text_of, to_the_end};

/// Number of concurrent rustdoc processes: the number of CPUs of the smallest test machine.
const AT_A_TIME: usize = 2;

/// A library or program to document.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Subject {
    /// `zonda_raid`, `kill-rounds`.
    name: String,
    /// `lib`, `bin`, `cdylib`.
    kind: String,
    edition: String,
    version: String,
    source: PathBuf,
    /// The folder of its package.
    folder: PathBuf,
    /// Its dependencies, and the paths of their libraries.
    externs: Vec<(String, PathBuf)>,
}

/// Documents the workspace into `target/doc-of-tests`. Warnings are errors; the output of rustdoc
/// is printed. Returns whether it succeeded, and the CPU time.
pub(crate) fn check(root: &Path, built: &Built) -> (bool, Duration) {
    let subjects = match metadata(root).and_then(|metadata| subjects(&metadata, &built.libraries)) {
        Ok(subjects) => Mutex::new(subjects),
        Err(error) => {
            println!("documentation: {error}");
            return (false, Duration::ZERO);
        }
    };
    let next = || subjects.lock().expect("no thread panics while holding it").pop();
    thread::scope(|scope| {
        let worker = || {
            let (mut is_good, mut cpu) = (true, Duration::ZERO);
            while let Some(subject) = next() {
                let ended = document(root, &subject);
                is_good &= ended.is_good();
                cpu += ended.cpu;
            }
            (is_good, cpu)
        };
        let workers: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(worker)).collect();
        let results: Vec<(bool, Duration)> =
            workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect();
        (results.iter().all(|(is_good, _)| *is_good), results.iter().map(|(_, cpu)| *cpu).sum())
    })
}

fn document(root: &Path, subject: &Subject) -> Ended {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut command = Command::new("nice");
    command.args(["-n10", "rustdoc"]).args(subject.arguments()).arg("--out-dir").arg(target.join("doc-of-tests"));
    command.current_dir(root).stdin(Stdio::null());
    command.env("CARGO_MANIFEST_DIR", &subject.folder).env("CARGO_PKG_VERSION", &subject.version);
    let ended = to_the_end(&format!("documentation of {}", subject.name), command);
    if !ended.is_good() {
        println!("{}documentation of {} FAILED", ended.text, subject.name);
    }
    ended
}

fn metadata(root: &Path) -> Result<Value, String> {
    let output = cargo(root).args(["metadata", "--format-version", "1"]).output();
    let output = output.map_err(|error| format!("cannot start cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", text_of(&output)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

/// The libraries and programs to document, from the metadata of the workspace and the paths of
/// built libraries.
///
/// # Errors
/// If a library that is needed was not built.
fn subjects(metadata: &Value, libraries: &BTreeMap<String, PathBuf>) -> Result<Vec<Subject>, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let each = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let members: Vec<String> = each(&metadata["workspace_members"]).iter().map(text).collect();
    let mut subjects = Vec::new();
    for package in each(&metadata["packages"]) {
        let id = text(&package["id"]);
        if !members.contains(&id) {
            continue;
        }
        let nodes = each(&metadata["resolve"]["nodes"]);
        let dependencies = nodes.iter().find(|node| node["id"] == package["id"]).map(|node| each(&node["deps"]));
        let mut externs = Vec::new();
        for dependency in dependencies.unwrap_or_default() {
            let is_ordinary = each(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            match libraries.get(&text(&dependency["pkg"])) {
                Some(path) if is_ordinary => externs.push((text(&dependency["name"]), path.clone())),
                None if is_ordinary && each(&dependency["dep_kinds"]).iter().all(|kind| kind["target"].is_null()) => {
                    return Err(format!("the build has no library of {}", text(&dependency["pkg"])));
                }
                _ => {}
            }
        }
        let folder = PathBuf::from(text(&package["manifest_path"])).parent().map(Path::to_owned).unwrap_or_default();
        for target in each(&package["targets"]).iter().filter(|target| target["doc"] == true) {
            let kind = text(&target["kind"][0]);
            let own = each(&package["targets"]).into_iter().find(|target| target["kind"][0] == "lib");
            let own = own.filter(|_| kind == "bin").zip(libraries.get(&id));
            let own = own.map(|(target, path)| (text(&target["name"]), path.clone()));
            subjects.push(Subject {
                name: text(&target["name"]),
                kind,
                edition: text(&target["edition"]),
                version: text(&package["version"]),
                source: PathBuf::from(text(&target["src_path"])),
                folder: folder.clone(),
                externs: externs.iter().cloned().chain(own).collect(),
            });
        }
    }
    Ok(subjects)
}

impl Subject {
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![self.source.display().to_string()];
        let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
        add("--crate-name", self.name.replace('-', "_"));
        add("--crate-type", self.kind.clone());
        add("--edition", self.edition.clone());
        add("--deny", "warnings".to_owned());
        let mut folders: Vec<&Path> = self.externs.iter().filter_map(|(_, path)| path.parent()).collect();
        folders.sort_unstable();
        folders.dedup();
        folders.iter().for_each(|folder| add("-L", format!("dependency={}", folder.display())));
        self.externs.iter().for_each(|(name, path)| add("--extern", format!("{name}={}", path.display())));
        if self.kind == "bin" {
            // Programs have no public items.
            let private = ["--document-private-items", "--allow", "rustdoc::private_intra_doc_links"];
            arguments.extend(private.map(str::to_owned));
        }
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Value {
        serde_json::json!({
            "workspace_members": ["path+a#0.1.0"],
            "packages": [
                {"id": "path+a#0.1.0", "version": "0.1.0", "manifest_path": "/w/a/Cargo.toml", "targets": [
                    {"kind": ["lib"], "name": "zonda_a", "edition": "2024", "src_path": "/w/a/src/lib.rs", "doc": true},
                    {"kind": ["bin"], "name": "a-runs", "edition": "2024", "src_path": "/w/a/src/main.rs", "doc": true},
                    {"kind": ["test"], "name": "integration", "edition": "2024", "src_path": "/w/a/tests/it.rs", "doc": false}
                ]},
                {"id": "registry+b#1.0.0", "version": "1.0.0", "manifest_path": "/r/b/Cargo.toml", "targets": []}
            ],
            "resolve": {"nodes": [{"id": "path+a#0.1.0", "deps": [
                {"name": "b", "pkg": "registry+b#1.0.0", "dep_kinds": [{"kind": null, "target": null}]},
                {"name": "w", "pkg": "registry+w#1.0.0", "dep_kinds": [{"kind": null, "target": "cfg(windows)"}]},
                {"name": "t", "pkg": "registry+t#1.0.0", "dep_kinds": [{"kind": "dev", "target": null}]}
            ]}]}
        })
    }

    fn libraries(names: &[&str]) -> BTreeMap<String, PathBuf> {
        let of =
            |name: &&str| ((*name).to_owned(), PathBuf::from(format!("/t/deps/lib{}.rmeta", &name[..name.len() - 6])));
        names.iter().map(of).collect()
    }

    #[test]
    fn each_library_and_program_of_the_workspace_is_documented_with_its_dependencies() {
        let built = libraries(&["path+a#0.1.0", "registry+b#1.0.0"]);
        let subjects = subjects(&workspace(), &built).expect("all is built");
        let names: Vec<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
        assert_eq!(names, ["zonda_a", "a-runs"]);
        let externs = |at: usize| subjects[at].externs.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
        assert_eq!(externs(0), ["b"], "without dependencies of other systems and of tests");
        assert_eq!(externs(1), ["b", "zonda_a"], "a program may name its own library");
    }

    #[test]
    fn a_dependency_that_was_not_built_is_an_error_that_names_it() {
        let error = subjects(&workspace(), &libraries(&["path+a#0.1.0"])).expect_err("b is missing");
        assert!(error.contains("registry+b#1.0.0"), "{error}");
    }

    #[test]
    fn warnings_are_errors_and_of_programs_everything_is_documented() {
        let built = libraries(&["path+a#0.1.0", "registry+b#1.0.0"]);
        let subjects = subjects(&workspace(), &built).expect("all is built");
        let arguments = |at: usize| subjects[at].arguments().join(" ");
        let expected = "/w/a/src/main.rs --crate-name a_runs --crate-type bin --edition 2024 --deny warnings -L dependency=/t/deps \
                        --extern b=/t/deps/libregistry+b.rmeta --extern zonda_a=/t/deps/libpath+a.rmeta --document-private-items \
                        --allow rustdoc::private_intra_doc_links";
        assert_eq!(arguments(1), expected);
        assert!(!arguments(0).contains("private"), "{}", arguments(0));
    }
}
