use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use tempfile::{TempDir, tempdir};
use zonda_image::ImageSpec;
use zonda_zoned::Geometry;

use super::*;
use crate::create_image_of;

fn begin(path: &Path) -> Creation {
    Creation::begin(path).unwrap_or_else(|error| panic!("{error}"))
}

/// Creates each file of an image, empty.
fn fill(path: &Path) {
    image_files().for_each(|file| fs::write(path.join(file), "").expect("there is space"));
}

/// A creation that was killed once its files existed.
fn interrupted(path: &Path) {
    let creation = begin(path);
    fill(path);
    // The lock is released with the process, and the files remain.
    drop(creation);
}

fn names(path: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(path).expect("it is a directory");
    entries.map(|entry| entry.expect("it can be read").file_name().into_string().expect("it is UTF-8")).collect()
}

fn refusal(path: &Path) -> String {
    Creation::begin(path).expect_err("it is refused").message
}

fn scratch() -> (TempDir, PathBuf) {
    let above = tempdir().expect("there is space");
    let path = above.path().join("image");
    (above, path)
}

#[test]
fn an_image_cannot_be_opened_until_it_is_complete() {
    let (_above, path) = scratch();
    let creation = begin(&path);
    fill(&path);
    for error in
        [ImageDirectory::lock(&path), ImageDirectory::open_read_only(&path), ImageDirectory::open_shared(&path)]
    {
        let error = error.expect_err("it is not complete");
        assert!(error.is_in_use && error.message.contains("being created by another program"), "{error}");
    }
    creation.finish().expect("it can be synced");
    assert!(!names(&path).contains(MARK), "the marker is removed");
    ImageDirectory::lock(&path).expect("it is complete");
}

#[test]
fn an_interrupted_creation_is_reported_and_redone_by_the_next() {
    let (_above, path) = scratch();
    interrupted(&path);
    let error = ImageDirectory::lock(&path).expect_err("it is not complete");
    assert!(!error.is_in_use && error.message.contains("its creation was interrupted"), "{error}");
    assert!(is_vacant(&path));
    let creation = begin(&path);
    assert_eq!(names(&path), BTreeSet::from([MARK.to_owned()]), "the files of the first one are removed");
    fill(&path);
    creation.finish().expect("it can be synced");
    assert!(refusal(&path).contains("holds an image already") && !is_vacant(&path));
}

#[test]
fn of_many_concurrent_creations_one_succeeds() {
    for round in 0..20 {
        let (_above, path) = scratch();
        if round % 2 == 0 {
            interrupted(&path);
        }
        let (path, start) = (&path, &std::sync::Barrier::new(8));
        let results: Vec<_> = std::thread::scope(|scope| {
            let make = move || {
                start.wait();
                let creation = Creation::begin(path)?;
                fill(path);
                creation.finish()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let (made, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!(made.len(), 1, "{refused:?}");
        for error in refused.into_iter().filter_map(Result::err) {
            let words = ["holds an image already", "being created by another program"];
            assert!(words.iter().any(|words| error.message.contains(words)), "{error}");
        }
        ImageDirectory::lock(path).expect("it is intact");
    }
}

#[test]
fn a_complete_image_is_never_changed_despite_an_empty_marker() {
    let (_above, path) = scratch();
    fs::create_dir(&path).expect("there is space");
    fill(&path);
    let before = names(&path);
    assert!(refusal(&path).contains("holds an image already"));
    // From a creation that was interrupted before it verified that the directory is empty.
    fs::write(path.join(MARK), "").expect("there is space");
    ImageDirectory::lock(&path).expect("an empty marker is ignored");
    assert!(refusal(&path).contains("holds an image already"));
    assert_eq!(names(&path), before);
}

#[test]
fn an_open_image_is_not_removed() {
    let (_above, path) = scratch();
    fs::create_dir(&path).expect("there is space");
    fill(&path);
    let owner = ImageDirectory::lock(&path).expect("it is unlocked");
    fs::write(path.join(MARK), WORDS).expect("there is space");
    assert!(refusal(&path).contains("in use by another program"));
    assert!(names(&path).contains(ImageFile::Superblock.name()));
    drop(owner);
}

#[test]
fn an_image_that_was_used_is_not_removed_despite_a_marker() {
    let (_above, path) = scratch();
    create_image_of(&path, &ImageSpec::new(Geometry::tiny(), String::new(), [7; 16])).expect("there is space");
    let mark = || fs::write(path.join(MARK), WORDS).expect("there is space");
    mark();
    begin(&path).abandon();
    assert!(!path.exists() || names(&path).is_empty(), "it was never used as a drive");

    create_image_of(&path, &ImageSpec::new(Geometry::tiny(), String::new(), [7; 16])).expect("there is space");
    zonda_image::open(&mut ImageDirectory::lock(&path).expect("it is unlocked")).expect("it is intact");
    mark();
    let before = names(&path);
    assert!(refusal(&path).contains("an image that was used"));
    assert_eq!(names(&path), before);
    fs::remove_file(path.join(MARK)).expect("it exists");
    zonda_image::open(&mut ImageDirectory::lock(&path).expect("it is unlocked")).expect("it is as it was");
}

#[test]
fn other_files_are_not_removed_and_are_named() {
    let (_above, path) = scratch();
    fs::create_dir(&path).expect("there is space");
    fs::write(path.join(".hidden"), "dear").expect("there is space");
    assert!(refusal(&path).contains("is not empty: it holds .hidden"));
    assert_eq!(names(&path), BTreeSet::from([".hidden".to_owned()]), "no marker is created");
    fs::remove_file(path.join(".hidden")).expect("it exists");

    interrupted(&path);
    fs::write(path.join("letter.txt"), "dear").expect("there is space");
    let before = names(&path);
    assert!(refusal(&path).contains("and other files: letter.txt"));
    assert_eq!(names(&path), before);
}

#[test]
fn a_failed_creation_removes_only_what_it_has_created() {
    let (above, _) = scratch();
    let path = above.path().join("a/b/image");
    fs::create_dir(above.path().join("a")).expect("there is space");
    let creation = begin(&path);
    fill(&path);
    creation.abandon();
    assert_eq!(names(&above.path().join("a")), BTreeSet::new());

    let creation = begin(&above.path().join("a"));
    fill(&above.path().join("a"));
    creation.abandon();
    assert_eq!(names(&above.path().join("a")), BTreeSet::new(), "the existing directory remains");
}

#[test]
fn an_existing_directory_keeps_its_inode() {
    let (above, path) = scratch();
    fs::create_dir(&path).expect("there is space");
    symlink(&path, above.path().join("link")).expect("there is space");
    let before = fs::metadata(&path).expect("it is there").ino();
    let creation = begin(&above.path().join("link"));
    fill(&path);
    creation.finish().expect("it can be synced");
    assert_eq!(fs::metadata(&path).expect("it is there").ino(), before);
    ImageDirectory::lock(&path).expect("it is intact");
}

#[test]
fn all_parents_of_a_new_image_are_synced_and_errors_of_new_ones_are_reported() {
    let (above, _) = scratch();
    let path = above.path().join("a/b/c/d");
    let creation = begin(&path);
    assert_eq!(creation.made.len(), 4);
    let whole = fs::canonicalize(&path).expect("it exists");
    let mut synced = Vec::new();
    let mut note = |directory: &Path| {
        synced.push(directory.to_owned());
        Ok(())
    };
    sync_names(&path, 4, &mut note).expect("nothing fails");
    let expected: Vec<_> = whole.ancestors().take(5).map(Path::to_owned).collect();
    assert_eq!(synced[..5], expected, "each new one, and the parent of the first one");

    for (at, is_reported) in [(0, true), (3, true), (4, true), (5, false)] {
        let failing = whole.ancestors().nth(at).unwrap_or(Path::new("/")).to_owned();
        let mut sync = |directory: &Path| if directory == failing { Err(ErrorKind::Other.into()) } else { Ok(()) };
        assert_eq!(sync_names(&path, 4, &mut sync).is_err(), is_reported, "{}", failing.display());
    }
}
