//! Files, over both backends.
#![allow(missing_docs, clippy::unwrap_used)]

use std::io::ErrorKind;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{FileType, Mode, OFlags};

use crate::support::{error_of, next, once};
use zonda_ring::{Bytes, BytesMut, File, FileOptions, Operation, Outcome, Ring};

/// A new file in a new directory.
fn scratch() -> (tempfile::TempDir, Rc<File>) {
    let directory = tempfile::tempdir().unwrap();
    let file = File::open(&directory.path().join("file"), FileOptions::create_new()).unwrap();
    (directory, Rc::new(file))
}

fn write(file: &Rc<File>, offset: u64, pieces: Vec<Bytes>) -> Operation {
    Operation::Write { file: Rc::clone(file), offset, pieces }
}

fn read(ring: &Ring, file: &Rc<File>, offset: u64, count: usize) -> BytesMut {
    let buffer = BytesMut::with_capacity(count);
    let done = once(ring, Operation::Read { file: Rc::clone(file), offset, buffer });
    match done.result {
        Ok(Outcome::Read(buffer)) => buffer,
        other => panic!("a read ends well: {other:?}"),
    }
}

on_both_backends! {
    fn what_was_written_is_read_back(ring: &Ring) {
        let (_directory, file) = scratch();
        let done = once(ring, write(&file, 4096, vec![Bytes::from_static(b"one "), Bytes::from_static(b"two")]));
        assert!(matches!(done.result, Ok(Outcome::Written)) && done.bytes == 7);
        assert_eq!(&read(ring, &file, 4096, 7)[..], b"one two");
        assert_eq!(&read(ring, &file, 4094, 4)[..], b"\0\0on");
        assert_eq!(file.length().unwrap(), 4103);
    }

    fn a_read_is_short_only_at_the_end_of_the_file(ring: &Ring) {
        let (_directory, file) = scratch();
        file.write_at(&[7; 10_000], 0).unwrap();
        assert_eq!(read(ring, &file, 0, 10_000).len(), 10_000);
        assert_eq!(read(ring, &file, 9_000, 4_096).len(), 1_000);
        assert_eq!(read(ring, &file, 10_000, 4_096).len(), 0);
        assert_eq!(read(ring, &file, 0, 0).len(), 0);
    }

    fn thousands_of_pieces_are_written_whole_and_in_order(ring: &Ring) {
        let (_directory, file) = scratch();
        let pieces: Vec<Bytes> = (0..5_000_u32).map(|at| Bytes::copy_from_slice(&at.to_le_bytes())).collect();
        let whole = pieces.concat();
        assert_eq!(once(ring, write(&file, 3, pieces)).bytes, 20_000);
        assert!(read(ring, &file, 3, 20_000)[..] == whole[..], "the bytes are the same");
    }

    fn writes_at_different_places_may_be_outstanding_together(ring: &Ring) {
        let (_directory, file) = scratch();
        let client = ring.client();
        for block in 0..500_u64 {
            client.submit(block, write(&file, block * 512, vec![Bytes::from(vec![block as u8; 512])]));
        }
        while client.outstanding() > 0 {
            assert_eq!(next(ring, &client).bytes, 512);
        }
        let content = read(ring, &file, 0, 500 * 512);
        assert!(content.chunks(512).enumerate().all(|(block, bytes)| bytes.iter().all(|&byte| byte == block as u8)));
    }

    fn an_empty_write_ends_at_once(ring: &Ring) {
        let (_directory, file) = scratch();
        assert!(matches!(once(ring, write(&file, 0, Vec::new())).result, Ok(Outcome::Written)));
        assert_eq!(file.length().unwrap(), 0);
    }

    fn a_sync_ends_well_with_and_without_metadata(ring: &Ring) {
        let (directory, file) = scratch();
        once(ring, write(&file, 0, vec![Bytes::from_static(b"durable")])).result.unwrap();
        for data_only in [false, true] {
            let done = once(ring, Operation::Sync { file: Rc::clone(&file), data_only });
            assert!(matches!(done.result, Ok(Outcome::Synced)));
        }
        file.sync().unwrap();
        File::sync_directory(directory.path()).unwrap();
    }

    fn a_punched_hole_reads_as_zeros_and_the_length_stays(ring: &Ring) {
        let (_directory, file) = scratch();
        file.write_at(&[7; 100_000], 0).unwrap();
        for (offset, length) in [(10, 50_000), (90_000, 1 << 40), (5, 0)] {
            let done = once(ring, Operation::PunchHole { file: Rc::clone(&file), offset, length });
            assert!(matches!(done.result, Ok(Outcome::Punched)), "{done:?}");
        }
        let content = read(ring, &file, 0, 200_000);
        assert_eq!(content.len(), 100_000);
        let expected = |at: usize| if (10..50_010).contains(&at) || at >= 90_000 { 0 } else { 7 };
        assert!(content.iter().enumerate().all(|(at, &byte)| byte == expected(at)));
    }

    fn space_is_allocated_without_a_change_and_holes_are_found(ring: &Ring) {
        let (_directory, file) = scratch();
        file.set_length(1 << 20).unwrap();
        file.write_at(&[7; 10], 500_000).unwrap();
        assert_eq!(file.next_data(500_005).unwrap(), Some(500_005));
        let found = file.next_data(0).unwrap().expect("the file has data");
        assert!(found <= 500_000, "{found}");
        let allocate = Operation::Allocate { file: Rc::clone(&file), offset: 1 << 19, length: 1 << 20 };
        let done = once(ring, allocate);
        assert!(matches!(done.result, Ok(Outcome::Allocated)), "{done:?}");
        assert_eq!(file.length().unwrap(), 1 << 20);
        let content = read(ring, &file, 0, 1 << 20);
        assert!(content.iter().enumerate().all(|(at, &byte)| byte == if (500_000..500_010).contains(&at) { 7 } else { 0 }));
        assert_eq!(file.next_data(1 << 20).unwrap(), None);
    }

    fn a_length_is_set_both_ways(ring: &Ring) {
        let (_directory, file) = scratch();
        for length in [1 << 30, 100, 4096] {
            let done = once(ring, Operation::SetLength { file: Rc::clone(&file), length });
            assert!(matches!(done.result, Ok(Outcome::LengthSet)));
            assert_eq!(file.length().unwrap(), length);
        }
    }

    fn a_read_only_file_refuses_writes_holes_and_truncation(ring: &Ring) {
        let (directory, made) = scratch();
        made.write_at(b"text", 0).unwrap();
        let file = Rc::new(File::open(&directory.path().join("file"), FileOptions::read_only()).unwrap());
        let refused = error_of(ring, write(&file, 0, vec![Bytes::from_static(b"no")]));
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::BADF.raw_os_error()));
        let punch = Operation::PunchHole { file: Rc::clone(&file), offset: 0, length: 4 };
        assert_eq!(error_of(ring, punch).raw_os_error(), Some(rustix::io::Errno::BADF.raw_os_error()));
        let cut = Operation::SetLength { file: Rc::clone(&file), length: 0 };
        assert_eq!(error_of(ring, cut).kind(), ErrorKind::InvalidInput);
        assert_eq!(&read(ring, &file, 0, 9)[..], b"text");
    }

    fn a_full_disk_is_storage_full(ring: &Ring) {
        let options = FileOptions { write: true, ..FileOptions::default() };
        let file = Rc::new(File::open(Path::new("/dev/full"), options).unwrap());
        assert_eq!(error_of(ring, write(&file, 0, vec![Bytes::from_static(b"x")])).kind(), ErrorKind::StorageFull);
        assert_eq!(file.write_at(b"x", 0).unwrap_err().kind(), ErrorKind::StorageFull);
    }

    fn a_write_that_fails_reports_the_bytes_written(ring: &Ring) {
        let (_directory, file) = scratch();
        // The largest offset that a file can have ends every file system.
        let offset = i64::MAX as u64 - 3;
        let done = once(ring, write(&file, offset, vec![Bytes::from_static(b"beyond")]));
        assert!(done.result.is_err() && done.bytes == 0, "{done:?}");
        let Some(tiny) = crate::support::tiny_disk() else { return };
        let file = Rc::new(File::open(&tiny.path().join("file"), FileOptions::create_new()).unwrap());
        let pieces = (0..4).map(|_| Bytes::from(vec![1; 40_000])).collect();
        let done = once(ring, write(&file, 0, pieces));
        assert_eq!(done.result.unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(done.bytes, file.length().unwrap());
        assert_eq!(done.bytes, 64 << 10);
    }

    fn an_operation_keeps_its_file_open(ring: &Ring) {
        let (directory, file) = scratch();
        let client = ring.client();
        client.submit(1, write(&file, 0, vec![Bytes::from_static(b"late")]));
        drop(file);
        next(ring, &client).result.unwrap();
        assert_eq!(std::fs::read(directory.path().join("file")).unwrap(), b"late");
    }
}

#[test]
fn open_fails_where_the_options_do_not_match_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    assert_eq!(File::open(&path, FileOptions::read_write()).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(File::open(&path, FileOptions::default()).unwrap_err().kind(), ErrorKind::InvalidInput);
    File::open(&path, FileOptions::create_new()).unwrap();
    assert_eq!(File::open(&path, FileOptions::create_new()).unwrap_err().kind(), ErrorKind::AlreadyExists);
    File::open(&path, FileOptions { create: true, ..FileOptions::read_write() }).unwrap();
}

#[test]
fn a_pipe_is_refused_at_once_and_a_file_is_opened_blocking() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    for options in [FileOptions::read_only(), FileOptions::read_write()] {
        let refused = File::open(&path, options).unwrap_err();
        assert_eq!(
            (refused.kind(), refused.to_string().as_str()),
            (ErrorKind::InvalidInput, "it is a pipe, not a file")
        );
    }
    let file = File::open(&directory.path().join("file"), FileOptions::create_new()).unwrap();
    assert!(!rustix::fs::fcntl_getfl(&file).unwrap().contains(OFlags::NONBLOCK));
}

#[test]
fn a_lock_is_refused_to_the_second_file_until_the_first_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let first = File::open(&path, FileOptions::create_new()).unwrap();
    let second = File::open(&path, FileOptions::read_only()).unwrap();
    assert!(first.lock().unwrap() && first.lock().unwrap());
    assert!(!second.lock().unwrap());
    drop(first);
    assert!(second.lock().unwrap());
}

#[test]
fn the_blocking_helpers_read_what_they_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let file = File::open(&directory.path().join("file"), FileOptions::create_new()).unwrap();
    file.set_length(10).unwrap();
    file.write_at(b"hello", 3).unwrap();
    let mut buffer = [9; 20];
    assert_eq!(file.read_at(&mut buffer, 2).unwrap(), 8);
    assert_eq!(&buffer[..9], b"\0hello\0\0\x09");
}
