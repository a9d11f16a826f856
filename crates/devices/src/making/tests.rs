use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use tempfile::{TempDir, tempdir};
use zonda_image::ImageSpec;
use zonda_zoned::Geometry;

use super::*;
use crate::create_image_of;

fn begin(path: &Path) -> Making {
    Making::begin(path).unwrap_or_else(|error| panic!("{error}"))
}

/// Puts an empty file in the place of each that an image has.
fn fill(path: &Path) {
    image_files().for_each(|file| fs::write(path.join(file), "").expect("there is room"));
}

/// A creation that was killed once its files were there.
fn stopped(path: &Path) {
    let making = begin(path);
    fill(path);
    // The lock goes with the process, and nothing else does.
    drop(making);
}

fn names(path: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(path).expect("it is a directory");
    entries.map(|entry| entry.expect("it can be read").file_name().into_string().expect("it is UTF-8")).collect()
}

fn refusal(path: &Path) -> String {
    Making::begin(path).expect_err("it is refused").message
}

fn scratch() -> (TempDir, PathBuf) {
    let above = tempdir().expect("there is room");
    let path = above.path().join("image");
    (above, path)
}

#[test]
fn an_image_is_there_for_nobody_until_it_is_complete() {
    let (_above, path) = scratch();
    let making = begin(&path);
    fill(&path);
    for error in [ImageDirectory::lock(&path), ImageDirectory::look(&path), ImageDirectory::look_alone(&path)] {
        let error = error.expect_err("it is not complete");
        assert!(error.is_in_use && error.message.contains("being made by another program"), "{error}");
    }
    making.finish().expect("it can be synced");
    assert!(!names(&path).contains(MARK), "nothing is left of its making");
    ImageDirectory::lock(&path).expect("it is complete");
}

#[test]
fn a_creation_that_was_stopped_is_told_and_made_good_by_the_next() {
    let (_above, path) = scratch();
    stopped(&path);
    let error = ImageDirectory::lock(&path).expect_err("it is not complete");
    assert!(!error.is_in_use && error.message.contains("its creation was stopped"), "{error}");
    assert!(is_vacant(&path));
    let making = begin(&path);
    assert_eq!(names(&path), BTreeSet::from([MARK.to_owned()]), "what the first has left is removed");
    fill(&path);
    making.finish().expect("it can be synced");
    assert!(refusal(&path).contains("holds an image already") && !is_vacant(&path));
}

#[test]
fn of_many_that_begin_at_once_one_makes_the_image() {
    for round in 0..20 {
        let (_above, path) = scratch();
        if round % 2 == 0 {
            stopped(&path);
        }
        let (path, start) = (&path, &std::sync::Barrier::new(8));
        let results: Vec<_> = std::thread::scope(|scope| {
            let make = move || {
                start.wait();
                let making = Making::begin(path)?;
                fill(path);
                making.finish()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let (made, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!(made.len(), 1, "{refused:?}");
        for error in refused.into_iter().filter_map(Result::err) {
            let words = ["holds an image already", "being made by another program"];
            assert!(words.iter().any(|words| error.message.contains(words)), "{error}");
        }
        ImageDirectory::lock(path).expect("it is whole");
    }
}

#[test]
fn an_image_that_is_there_is_never_touched_whatever_mark_is_beside_it() {
    let (_above, path) = scratch();
    fs::create_dir(&path).expect("there is room");
    fill(&path);
    let before = names(&path);
    assert!(refusal(&path).contains("holds an image already"));
    // Of a creation that saw an empty directory, and was stopped before it saw this one.
    fs::write(path.join(MARK), "").expect("there is room");
    ImageDirectory::lock(&path).expect("the mark says nothing");
    assert!(refusal(&path).contains("holds an image already"));
    assert_eq!(names(&path), before);
}

#[test]
fn what_somebody_has_open_is_not_removed() {
    let (_above, path) = scratch();
    fs::create_dir(&path).expect("there is room");
    fill(&path);
    let owner = ImageDirectory::lock(&path).expect("it is free");
    fs::write(path.join(MARK), WORDS).expect("there is room");
    assert!(refusal(&path).contains("in use by another program"));
    assert!(names(&path).contains(ImageFile::Superblock.name()));
    drop(owner);
}

#[test]
fn an_image_that_was_used_is_not_removed_whatever_mark_is_beside_it() {
    let (_above, path) = scratch();
    create_image_of(&path, &ImageSpec::new(Geometry::tiny(), String::new(), [7; 16])).expect("there is room");
    let mark = || fs::write(path.join(MARK), WORDS).expect("there is room");
    mark();
    begin(&path).abandon();
    assert!(!path.exists() || names(&path).is_empty(), "no drive has run on it");

    create_image_of(&path, &ImageSpec::new(Geometry::tiny(), String::new(), [7; 16])).expect("there is room");
    zonda_image::open(&mut ImageDirectory::lock(&path).expect("it is free")).expect("it is well");
    mark();
    let before = names(&path);
    assert!(refusal(&path).contains("an image that was used"));
    assert_eq!(names(&path), before);
    fs::remove_file(path.join(MARK)).expect("it is there");
    zonda_image::open(&mut ImageDirectory::lock(&path).expect("it is free")).expect("it is as it was");
}

#[test]
fn files_of_others_are_left_alone_and_named() {
    let (_above, path) = scratch();
    fs::create_dir(&path).expect("there is room");
    fs::write(path.join(".hidden"), "dear").expect("there is room");
    assert!(refusal(&path).contains("is not empty: it holds .hidden"));
    assert_eq!(names(&path), BTreeSet::from([".hidden".to_owned()]), "no mark is put there");
    fs::remove_file(path.join(".hidden")).expect("it is there");

    stopped(&path);
    fs::write(path.join("letter.txt"), "dear").expect("there is room");
    let before = names(&path);
    assert!(refusal(&path).contains("what does not belong to it: letter.txt"));
    assert_eq!(names(&path), before);
}

#[test]
fn a_creation_that_fails_leaves_what_was_there_before() {
    let (above, _) = scratch();
    let path = above.path().join("a/b/image");
    fs::create_dir(above.path().join("a")).expect("there is room");
    let making = begin(&path);
    fill(&path);
    making.abandon();
    assert_eq!(names(&above.path().join("a")), BTreeSet::new());

    let making = begin(&above.path().join("a"));
    fill(&above.path().join("a"));
    making.abandon();
    assert_eq!(names(&above.path().join("a")), BTreeSet::new(), "the directory was there, and is there");
}

#[test]
fn a_directory_that_is_there_stays_the_same_one() {
    let (above, path) = scratch();
    fs::create_dir(&path).expect("there is room");
    symlink(&path, above.path().join("link")).expect("there is room");
    let before = fs::metadata(&path).expect("it is there").ino();
    let making = begin(&above.path().join("link"));
    fill(&path);
    making.finish().expect("it can be synced");
    assert_eq!(fs::metadata(&path).expect("it is there").ino(), before);
    ImageDirectory::lock(&path).expect("it is whole");
}

#[test]
fn all_directories_above_a_new_image_are_synced_and_those_that_are_new_must_be() {
    let (above, _) = scratch();
    let path = above.path().join("a/b/c/d");
    let making = begin(&path);
    assert_eq!(making.made.len(), 4);
    let whole = fs::canonicalize(&path).expect("it is there");
    let mut synced = Vec::new();
    let mut note = |directory: &Path| {
        synced.push(directory.to_owned());
        Ok(())
    };
    sync_names(&path, 4, &mut note).expect("nothing fails");
    let expected: Vec<_> = whole.ancestors().take(5).map(Path::to_owned).collect();
    assert_eq!(synced[..5], expected, "each new one, and the one in which the first of them is");

    for (at, is_told) in [(0, true), (3, true), (4, true), (5, false)] {
        let failing = whole.ancestors().nth(at).unwrap_or(Path::new("/")).to_owned();
        let mut sync = |directory: &Path| if directory == failing { Err(ErrorKind::Other.into()) } else { Ok(()) };
        assert_eq!(sync_names(&path, 4, &mut sync).is_err(), is_told, "{}", failing.display());
    }
}
