//! The files of an image, damaged in any way: inspection changes nothing, opening fails or gives a
//! drive that works and can be reopened, and no read returns data that was never written to the
//! block.
//!
//! ```text
//! 0 mode: 0 five arbitrary files, 1 an image with changes, 2 the same with correct checksums   1 which image
//! 2.. the files, or the number of changes and the changes; then commands
//! ```

mod bases;
mod commands;
mod damage;
mod watched;

use zonda_image::{ImageFile, MemoryFiles, check, inspect, open};

use crate::Seed;
use crate::feed::Feed;
use bases::{BASES, Base, base};
use damage::{arbitrary_files, damage, fit_checksums};
use watched::Watched;

pub(crate) fn run(input: &[u8]) {
    let mut feed = Feed::new(input);
    let (how, which) = (feed.below(3), feed.below(BASES));
    let base = base(which);
    let mut files = match how {
        0 => arbitrary_files(&mut feed),
        _ => {
            let mut files = base.files.clone();
            damage(&mut files, &mut feed);
            files
        }
    };
    if how == 2 {
        fit_checksums(&mut files, &base.geometry);
    }

    let usable = look(&mut files);
    let opened = open(&mut Watched::new(&mut files));
    assert_eq!(opened.is_ok(), usable, "an image can be opened if and only if it can be inspected: {:?}", opened.err());
    let Ok((mut image, _)) = opened else { return };
    image.check_invariants();
    commands::run(&mut image, &mut files, &mut feed, trusted(base, how));
    drop(image);
    let (mut image, report) =
        open(&mut Watched::new(&mut files)).expect("an image that was opened can be opened again");
    image.check_invariants();
    commands::close(&mut image, &mut files);
    drop(image);
    let (_, second) = open(&mut Watched::new(&mut files)).expect("a closed image can be opened");
    assert!(second.clean, "shut down cleanly after {report:?}");
}

/// The base, if the contents of its blocks determine what may be read from the image.
fn trusted(base: &Base, how: usize) -> Option<&Base> {
    (how == 1 && base.has_complete_history).then_some(base)
}

/// Inspects and checks the files; returns whether they are usable.
fn look(files: &mut MemoryFiles) -> bool {
    let before = files.clone();
    let inspected = inspect(&mut Watched::new(files).read_only());
    let mut zones = 0;
    let checked = check(&mut Watched::new(files).read_only(), &mut |progress| zones = progress.zones);
    assert!(*files == before, "inspection changes nothing");
    assert_eq!(
        inspected.is_ok(),
        checked.is_ok(),
        "inspect and check agree: {:?} {:?}",
        inspected.err(),
        checked.err()
    );
    if let (Ok(inspection), Ok(report)) = (&inspected, &checked) {
        inspection.zones.check_invariants();
        assert_eq!(inspection.clean, report.clean);
        assert_eq!(zones, inspection.spec.geometry.zone_count, "every zone was checked");
    }
    if let Err(error) = &inspected {
        assert!(!error.to_string().is_empty());
    }
    inspected.is_ok()
}

pub(crate) fn seeds() -> Vec<Seed> {
    let mut seeds = vec![("nothing".to_owned(), vec![0, 0])];
    let some_commands: Vec<u8> = (0..60u8).map(|byte| byte.wrapping_mul(37)).collect();
    for which in 0..BASES as u8 {
        seeds.push((format!("untouched-{which}"), [&[1, which, 0], &some_commands[..]].concat()));
        // Images that were shut down cleanly have empty journals.
        let how: u8 = match which {
            0 | 2 | 4 => continue,
            1 | 3 => 2,
            _ => 1,
        };
        for (file, offset) in damage::places(&base(usize::from(which)).geometry) {
            let place = ImageFile::ALL.iter().position(|&known| known == file).expect("one of five") as u8;
            let [a, b, c, _] = offset.to_le_bytes();
            let change = [how, which, 1, place, a, b, c, 0, 0x41];
            let name = format!("{}-{offset}-{which}-{how}", file.name().trim_end_matches(".zonda"));
            seeds.push((name, [&change, &some_commands[..20]].concat()));
        }
    }
    let files = ImageFile::ALL.map(|file| {
        let bytes = base(0).files.clone().bytes_mut(file).clone();
        let part = bytes[..bytes.len().min(200)].to_vec();
        [&(part.len() as u16).to_le_bytes()[..], &part].concat()
    });
    seeds.push(("beginnings".to_owned(), [vec![0, 0], files.concat()].concat()));
    seeds
}
