//! The programs of docs/guide/embed.md, which are in examples/embed: compiled here, and run on what
//! the program makes.

use std::process::Command;

use zonda_zoned::Lba;

use super::server::Server;
use super::{output_in, root, scratch};

#[allow(dead_code, unreachable_pub)]
#[path = "../../../../examples/embed/src/main.rs"]
mod namespace;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../../examples/embed/src/bin/simulate.rs"]
mod simulate;

#[test]
fn the_example_appends_to_the_first_empty_zone_of_an_image_and_of_a_server() {
    let directory = scratch("embed");
    output_in(&directory, &["drive", "create", "a", "--profile", "zn540", "--zones", "8", "--zone-capacity", "4MiB"]);
    let image = directory.join("a");
    assert_eq!(namespace::append_and_read(image.to_str().expect("the path is UTF-8")), Ok(Lba(0)));
    let server = Server::start(&directory, &["a"]);
    assert_eq!(namespace::append_and_read(server.url(0)), Ok(Lba(1024)), "the second zone of 4 MiB");
    server.stop();
    let error = namespace::append_and_read(image.join("none").to_str().expect("the path is UTF-8")).unwrap_err();
    assert!(error.contains("none"), "{error}");
}

#[test]
fn the_example_of_a_simulated_drive_prints_a_line_for_each_job() {
    let lines = simulate::results();
    let names: Vec<_> = lines.iter().map(|line| line.split_once(": ").expect("a name").0).collect();
    assert_eq!(names, ["log", "readers"], "{lines:?}");
}

#[test]
fn the_guide_shows_the_examples_as_they_are() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect(path);
    let guide = read("docs/guide/embed.md");
    for path in ["examples/embed/src/main.rs", "examples/embed/src/bin/simulate.rs", "examples/embed/Cargo.toml"] {
        let text = read(path);
        let shown = text.split_once("[dependencies]\n").map_or(&text[..], |(_, dependencies)| dependencies);
        assert!(guide.contains(shown), "{path}");
    }
}

/// It compiles everything below the examples once more, since they are a workspace of their own.
#[test]
#[ignore = "soak"]
fn soak_the_examples_are_a_project_that_compiles() {
    let directory = scratch("embed-project");
    let from = root().join("examples/embed");
    let crates = root().join("crates").canonicalize().expect("the crates exist");
    let manifest = std::fs::read_to_string(from.join("Cargo.toml")).expect("a manifest");
    let manifest = manifest.replace("../../crates", crates.to_str().expect("the path is UTF-8"));
    std::fs::create_dir_all(directory.join("src/bin")).expect("an empty directory");
    std::fs::write(directory.join("Cargo.toml"), manifest).expect("it can be written");
    // With the versions that the workspace has, nothing needs to be downloaded.
    std::fs::copy(root().join("Cargo.lock"), directory.join("Cargo.lock")).expect("it can be copied");
    for source in ["src/main.rs", "src/bin/simulate.rs"] {
        std::fs::copy(from.join(source), directory.join(source)).expect("it can be copied");
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut check = Command::new(cargo);
    check.args(["check", "--quiet", "--offline", "--target-dir"]).arg(root().join("target/embed"));
    let ran = check.current_dir(&*directory).output().expect("cargo runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
