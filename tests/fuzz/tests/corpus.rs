//! Runs every stored input as a test, without a fuzzer: the corpus, and the findings.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use zonda_fuzz_bodies::{BODIES, Body};

/// Limits of files and bytes of the corpus of one target, which is in the repository.
const FILES_MAX: usize = 200;
const BYTES_MAX: u64 = 300 << 10;

fn folder(of: &str, body: &Body) -> PathBuf {
    fuzz().join(of).join(body.name)
}

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The files of a folder by name; none if the folder does not exist.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).map(|entries| entries.flatten().collect()).unwrap_or_else(|_| Vec::new());
    let mut files: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    files.sort();
    files
}

/// Runs everything in `corpus` and `findings`; before a panic continues, the name of the input is
/// printed.
fn replay(name: &str) {
    let body = BODIES.iter().find(|body| body.name == name).expect("a known fuzz target");
    let corpus = files(&folder("corpus", body));
    assert!(!corpus.is_empty(), "fuzz/corpus/{name} is empty: run make_the_seeds");
    for file in corpus.into_iter().chain(files(&folder("findings", body))) {
        let input = fs::read(&file).expect("a file that was just listed");
        if let Err(panic) = std::panic::catch_unwind(|| (body.run)(&input)) {
            eprintln!("the input is {}", file.display());
            std::panic::resume_unwind(panic);
        }
    }
}

/// One test for each target, so that they run in parallel and a failure names its target.
macro_rules! replays {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                replay(stringify!($name));
            }
        )*

        #[test]
        fn every_target_is_replayed() {
            let replayed = BTreeSet::from([$(stringify!($name)),*]);
            assert_eq!(replayed, BODIES.iter().map(|body| body.name).collect());
        }
    };
}

replays!(
    chap,
    commands,
    config_job,
    config_server,
    image,
    initiator,
    names,
    nbd,
    pages,
    pdu_controller,
    pdu_host,
    pool,
    target,
    volume,
);

#[test]
fn the_list_of_the_script_has_every_target_with_its_longest_input() {
    let text = fs::read_to_string(fuzz().join("targets")).expect("fuzz/targets");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let listed: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(' ')).collect();
    let bodies: Vec<(&str, String)> = BODIES.iter().map(|body| (body.name, body.input_bytes_max.to_string())).collect();
    assert_eq!(listed, bodies.iter().map(|(name, most)| (*name, most.as_str())).collect::<Vec<_>>());
}

#[test]
fn the_corpus_is_small() {
    for body in BODIES {
        let corpus = files(&folder("corpus", body));
        let bytes: u64 = corpus.iter().map(|file| fs::metadata(file).expect("a file just listed").len()).sum();
        assert!(corpus.len() <= FILES_MAX, "{}: {} files, but the limit is {FILES_MAX}", body.name, corpus.len());
        assert!(bytes <= BYTES_MAX, "{}: {bytes} bytes, but the limit is {BYTES_MAX}", body.name);
    }
}

#[test]
fn seeds_run_and_have_unique_names() {
    for body in BODIES {
        let seeds = (body.seeds)();
        let names: BTreeSet<&String> = seeds.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), seeds.len(), "{}: two seeds with the same name", body.name);
        for (name, input) in &seeds {
            assert!(input.len() <= body.input_bytes_max, "{} {name}: {} bytes", body.name, input.len());
            eprintln!("{} {name}", body.name);
            (body.run)(input);
        }
    }
}

/// Not a test: writes the seeds of all targets into their corpora, in place of the seeds there.
#[test]
#[ignore = "writes into fuzz/corpus"]
fn make_the_seeds() {
    for body in BODIES {
        let folder = folder("corpus", body);
        fs::create_dir_all(&folder).expect("the corpus folder can be created");
        for old in files(&folder) {
            if old.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seed-")) {
                fs::remove_file(old).expect("an old seed");
            }
        }
        for (name, input) in (body.seeds)() {
            fs::write(folder.join(format!("seed-{name}")), input).expect("a seed");
        }
    }
}
