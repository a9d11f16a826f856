//! A C program and a C++ program use the header and the library.

use std::path::{Path, PathBuf};
use std::process::Command;

use zonda_capi::layout::{RawCommand, RawGeometry, RawOptions, RawResult, RawZone};
use zonda_config::ByteSize;
use zonda_profiles::BUILTIN;
use zonda_ssd::description::Profiles;

/// An image of few, small zones.
fn image(path: &Path) {
    let read_file = |path: &str| std::fs::read_to_string(path).map_err(|error| error.to_string());
    let profiles = Profiles::new(BUILTIN, &read_file);
    let spec = zonda_devices::sized("zn540", Some(16), Some(ByteSize(3 << 20)), &profiles).expect("a valid size");
    let drive = spec.plan(&profiles).map_err(|error| error.error.message.clone()).expect("a valid size");
    zonda_devices::create_image(path, &drive).expect("an image in an empty directory");
}

/// The directory in which cargo built the library for this test.
fn library_directory() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let mut folders = test.ancestors().skip(1).take(2);
    let found = folders.find(|folder| folder.join("libzonda_capi.so").exists());
    found.expect("the library is built before its tests").to_owned()
}

/// The program that uses every function, and that of docs/guide/embed.md, relative to the directory
/// of the crate.
const PROGRAM: &str = "tests/program.c";
const EXAMPLE: &str = "../../examples/embed/embed.c";

/// Compiles a program, and runs it on a new image; `None` if the compiler is not installed.
fn run(compiler: &str, flags: &[&str], source: &str) -> Option<String> {
    if Command::new(compiler).arg("--version").output().is_err() {
        eprintln!("{compiler} is not installed: not tested");
        return None;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("program");
    let library = library_directory();
    let compiled = Command::new(compiler)
        .args(flags)
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(here.join("include"))
        .arg(here.join(source))
        .args(["-x", "none", "-o"])
        .arg(&program)
        .arg("-L")
        .arg(&library)
        .args(["-lzonda_capi", "-pthread"])
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .output()
        .expect("a compiler runs");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let drive = directory.path().join("drive");
    image(&drive);
    let ran = Command::new(&program).arg(&drive).output().expect("the compiled program runs");
    let error = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{:?}: {error}", ran.status);
    Some(String::from_utf8(ran.stdout).expect("its output is UTF-8"))
}

#[test]
fn a_c_program_uses_every_function_of_the_header() {
    let Some(printed) = run("cc", &["-std=c99", "-D_POSIX_C_SOURCE=200809L"], PROGRAM) else { return };
    let sizes = [
        size_of::<RawOptions>(),
        size_of::<RawGeometry>(),
        size_of::<RawZone>(),
        size_of::<RawCommand>(),
        size_of::<RawResult>(),
    ];
    assert_eq!(printed, format!("{}\nfine\n", sizes.map(|size| size.to_string()).join(" ")));
}

#[test]
fn a_cpp_program_does_the_same() {
    let Some(printed) = run("c++", &["-std=c++11", "-x", "c++"], PROGRAM) else { return };
    assert!(printed.ends_with("\nfine\n"), "{printed}");
}

#[test]
fn the_example_of_the_guide_appends_a_block_and_reads_it_back() {
    for (compiler, flags) in [("cc", &["-std=c99"][..]), ("c++", &["-std=c++11", "-x", "c++"])] {
        let Some(printed) = run(compiler, flags, EXAMPLE) else { return };
        assert_eq!(printed, "LBA 0: appended and read back\n", "{compiler}");
    }
}

#[test]
fn the_guide_contains_the_example_verbatim() {
    let read = |path: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path);
    assert!(read("../../docs/guide/embed.md").contains(&read(EXAMPLE)));
}
