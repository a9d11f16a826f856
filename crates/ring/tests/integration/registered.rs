//! Registered buffers, on io_uring.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::rc::Rc;

use crate::support::{next, once};
use zonda_ring::limits::{REGISTERED_BYTES_MIN, REGISTERED_SLOT_BYTES};
use zonda_ring::{
    Backend, BytesMut, Client, Done, File, FileOptions, Operation, Outcome, RegisteredBuffer, Ring, RingOptions, Socket,
};
use zonda_zoned::Duration;

const LARGEST: usize = REGISTERED_SLOT_BYTES[REGISTERED_SLOT_BYTES.len() - 1];

/// A ring with registered buffers; `None` where io_uring is refused, or lockable memory is short.
fn ring() -> Option<Ring> {
    let options = RingOptions { registered_bytes: REGISTERED_BYTES_MIN, ..RingOptions::on(Backend::IoUring) };
    let ring = Ring::new(options).ok().filter(|ring| ring.client().registered_buffer(1).is_some());
    if ring.is_none() {
        eprintln!("not run: there are no registered buffers here");
    }
    ring
}

/// A new file in which each block of 4096 bytes has its number in all bytes.
fn file(blocks: usize) -> (tempfile::TempDir, Rc<File>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let content: Vec<u8> = (0..blocks * 4096).map(|at| (at / 4096) as u8).collect();
    std::fs::write(&path, content).unwrap();
    let file = open(&path);
    (directory, file)
}

/// Bypasses the page cache if the file system can.
fn open(path: &Path) -> Rc<File> {
    let options = FileOptions::read_write();
    Rc::new(File::open(path, FileOptions { direct: true, ..options }).or_else(|_| File::open(path, options)).unwrap())
}

fn read(file: &Rc<File>, block: u64, buffer: RegisteredBuffer) -> Operation {
    Operation::ReadRegistered { file: Rc::clone(file), offset: block * 4096, buffer }
}

fn buffer_of(done: Done) -> RegisteredBuffer {
    match done.result {
        Ok(Outcome::ReadRegistered(buffer)) => buffer,
        other => panic!("a read ends well: {other:?}"),
    }
}

/// All buffers of a size that are free.
fn take_all(client: &Client, bytes: usize) -> Vec<RegisteredBuffer> {
    std::iter::from_fn(|| client.registered_buffer(bytes)).collect()
}

#[test]
fn reads_of_each_size_have_the_bytes_of_the_file() {
    let Some(ring) = ring() else { return };
    assert_eq!(ring.registered_bytes(), REGISTERED_BYTES_MIN);
    let (_directory, file) = file(64);
    let client = ring.client();
    for bytes in REGISTERED_SLOT_BYTES.into_iter().chain([8192, 68 << 10]) {
        let buffer = client.registered_buffer(bytes).unwrap();
        assert_eq!(buffer.as_ref(), b"");
        let done = once(&ring, read(&file, 3, buffer));
        assert_eq!(done.bytes, bytes as u64);
        let data = buffer_of(done).freeze();
        assert_eq!(data.len(), bytes);
        assert!(data.as_ptr().addr().is_multiple_of(4096));
        assert!(data.iter().enumerate().all(|(at, &byte)| byte == 3 + (at / 4096) as u8), "{bytes} bytes");
    }
}

#[test]
fn a_read_into_a_registered_buffer_is_short_only_at_the_end_of_the_file() {
    let Some(ring) = ring() else { return };
    let (_directory, file) = file(5);
    let client = ring.client();
    // Bytes of an earlier use.
    drop(buffer_of(once(&ring, read(&file, 0, client.registered_buffer(16 << 10).unwrap()))));
    let buffer = buffer_of(once(&ring, read(&file, 4, client.registered_buffer(16 << 10).unwrap())));
    assert_eq!(buffer.as_ref(), [4; 4096]);
    let buffer = buffer_of(once(&ring, read(&file, 5, client.registered_buffer(4096).unwrap())));
    assert_eq!(buffer.as_ref(), b"");
    let full = buffer_of(once(&ring, read(&file, 1, client.registered_buffer(4096).unwrap())));
    let again = buffer_of(once(&ring, read(&file, 2, full)));
    assert_eq!(again.as_ref(), [1; 4096], "a buffer without spare capacity reads nothing");
}

#[test]
fn writes_from_registered_buffers_are_read_back() {
    let Some(ring) = ring() else { return };
    let (directory, file) = file(40);
    let client = ring.client();
    let content: Vec<u8> = (0..LARGEST).map(|at| (at % 251) as u8).collect();
    let mut buffer = client.registered_buffer(LARGEST).unwrap();
    buffer.extend_from_slice(&content[..5000]);
    buffer.extend_from_slice(&content[5000..]);
    let done = once(&ring, Operation::WriteRegistered { file: Rc::clone(&file), offset: 8192, buffer });
    assert!(matches!(done.result, Ok(Outcome::Written)) && done.bytes == LARGEST as u64, "{done:?}");
    let found = std::fs::read(directory.path().join("file")).unwrap();
    assert_eq!((found.len(), &found[8191], &found[8192..8192 + LARGEST]), (40 * 4096, &1, &content[..]));
    let empty = client.registered_buffer(4096).unwrap();
    let done = once(&ring, Operation::WriteRegistered { file, offset: 0, buffer: empty });
    assert!(matches!(done.result, Ok(Outcome::Written)) && done.bytes == 0);
}

#[test]
fn data_outlives_its_ring_and_is_dropped_on_another_thread() {
    let Some(ring) = ring() else { return };
    let (_directory, file) = file(32);
    let buffer = buffer_of(once(&ring, read(&file, 0, ring.client().registered_buffer(LARGEST).unwrap())));
    let mut kept = buffer.freeze();
    let client = ring.client();
    drop(ring);
    assert!(client.registered_buffer(4096).is_none(), "the ring does not exist any more");
    let rest = kept.split_off(4096);
    std::thread::spawn(move || assert!(rest.iter().enumerate().all(|(at, &byte)| byte == 1 + (at / 4096) as u8)))
        .join()
        .unwrap();
    assert_eq!(kept, [0; 4096][..]);
}

#[test]
fn an_exhausted_size_has_buffers_again_once_data_is_dropped() {
    let Some(ring) = ring() else { return };
    let (_directory, file) = file(32);
    let client = ring.client();
    let count = take_all(&client, LARGEST).len();
    assert_eq!(count, REGISTERED_BYTES_MIN / REGISTERED_SLOT_BYTES.len() / LARGEST);
    let buffers = take_all(&client, LARGEST);
    assert_eq!(buffers.len(), count, "those before were dropped");
    for (token, buffer) in (0..).zip(buffers) {
        client.submit(token, read(&file, token, buffer));
    }
    assert!(client.registered_buffer(LARGEST).is_none(), "requests have all of them");
    let mut data: Vec<_> = (0..count).map(|_| next(&ring, &client)).collect();
    data.sort_by_key(|done| done.token);
    let mut data: Vec<_> = data.into_iter().map(|done| buffer_of(done).freeze()).collect();
    assert!(client.registered_buffer(LARGEST).is_none(), "their data has all of them");
    assert!(client.registered_buffer(4096).is_some(), "of another size, there are");
    let last = data.pop().unwrap();
    std::thread::spawn(move || drop(last)).join().unwrap();
    assert_eq!(take_all(&client, LARGEST).len(), 1);
    for (block, bytes) in data.iter().enumerate() {
        assert!(bytes[..4096].iter().all(|&byte| byte == block as u8), "block {block} is what it was");
    }
}

/// A file whose reads wait: the master side of a terminal without a slave.
fn endless() -> Option<Rc<File>> {
    File::open(Path::new("/dev/ptmx"), FileOptions::read_write()).ok().map(Rc::new)
}

#[test]
fn the_buffer_of_a_cancelled_request_is_free_once_the_kernel_has_ended_it() {
    let (Some(ring), Some(file)) = (ring(), endless()) else { return };
    let client = ring.client();
    let count = take_all(&client, LARGEST).len();
    for _ in 0..20 {
        let other = ring.client();
        other.submit(1, read(&file, 0, other.registered_buffer(LARGEST).unwrap()));
        ring.run_once(Some(ring.now() + Duration::from_micros(100))).unwrap();
        assert_eq!(other.outstanding(), 1, "it waits");
        drop(other);
        assert_eq!(take_all(&client, LARGEST).len(), count - 1, "the kernel may still write into it");
        let until = ring.now() + Duration::from_secs(20);
        while take_all(&client, LARGEST).len() < count {
            assert!(ring.now() < until, "the buffer is never free");
            ring.run_once(Some(ring.now() + Duration::from_micros(1000))).unwrap();
        }
    }
}

#[test]
fn a_request_in_flight_ends_with_its_ring() {
    let (Some(ring), Some(file)) = (ring(), endless()) else { return };
    let client = ring.client();
    client.submit(1, read(&file, 0, client.registered_buffer(4096).unwrap()));
    ring.run_once(Some(ring.now() + Duration::from_micros(100))).unwrap();
    drop(ring);
    assert_eq!(client.next().unwrap().result.unwrap_err().raw_os_error(), Some(125), "cancelled");
}

#[test]
fn a_request_to_a_ring_that_was_dropped_ends() {
    let Some(ring) = ring() else { return };
    let (_directory, file) = file(1);
    let client = ring.client();
    let buffer = client.registered_buffer(4096).unwrap();
    drop(ring);
    client.submit(1, read(&file, 0, buffer));
    assert_eq!(client.next().unwrap().result.unwrap_err().raw_os_error(), Some(125), "cancelled");
}

#[test]
fn a_failed_read_frees_its_buffer() {
    let Some(ring) = ring() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let options = FileOptions { create: true, write: true, ..FileOptions::default() };
    let file = Rc::new(File::open(&path, options).unwrap());
    let client = ring.client();
    let count = take_all(&client, LARGEST).len();
    let error = once(&ring, read(&file, 0, client.registered_buffer(LARGEST).unwrap())).result.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(9), "the file is not open for reading");
    assert_eq!(take_all(&client, LARGEST).len(), count);
}

#[test]
#[should_panic(expected = "a registered buffer is used on the ring that it is of")]
fn a_buffer_of_another_ring_is_refused() {
    let (Some(one), Some(other)) = (ring(), ring()) else {
        panic!("a registered buffer is used on the ring that it is of")
    };
    let (_directory, file) = file(1);
    let buffer = one.client().registered_buffer(4096).unwrap();
    other.client().submit(1, read(&file, 0, buffer));
}

#[test]
fn without_memory_for_them_or_on_epoll_there_are_none() {
    let fewer = RingOptions { registered_bytes: REGISTERED_BYTES_MIN - 1, ..RingOptions::default() };
    for options in [fewer, RingOptions::on(Backend::Epoll)] {
        let ring = Ring::new(options).unwrap();
        assert!(ring.client().registered_buffer(4096).is_none());
        assert_eq!(ring.registered_bytes(), 0);
    }
    let many = RingOptions { registered_bytes: 2 * zonda_ring::limits::REGISTERED_BYTES_MAX, ..RingOptions::default() };
    assert_eq!(Ring::new(many).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    let Some(ring) = ring() else { return };
    assert!(ring.client().registered_buffer(LARGEST + 1).is_none() && ring.client().registered_buffer(0).is_none());
    let default = Ring::new(RingOptions::default()).unwrap();
    assert_eq!(default.registered_bytes(), 0, "they are registered when the first is used");
}

#[test]
fn data_of_a_read_is_sent_to_a_socket() {
    let Some(ring) = ring() else { return };
    let (_directory, file) = file(32);
    let data = buffer_of(once(&ring, read(&file, 0, ring.client().registered_buffer(LARGEST).unwrap()))).freeze();
    let (left, right) = Socket::pair().unwrap();
    let (left, right) = (Rc::new(left), Rc::new(right));
    let client = ring.client();
    let count = take_all(&client, LARGEST).len();
    client.submit(0, Operation::Send { socket: left, pieces: vec![data] });
    let mut received = Vec::new();
    while received.len() < LARGEST {
        client.submit(1, Operation::Receive { socket: Rc::clone(&right), buffer: BytesMut::with_capacity(8192) });
        loop {
            match next(&ring, &client).result.unwrap() {
                Outcome::Received(buffer) => break received.extend_from_slice(&buffer),
                outcome => assert!(matches!(outcome, Outcome::Sent), "{outcome:?}"),
            }
        }
    }
    while client.outstanding() > 0 {
        let _ = next(&ring, &client);
    }
    assert!(received.iter().enumerate().all(|(at, &byte)| byte == (at / 4096) as u8));
    assert_eq!(take_all(&client, LARGEST).len(), count + 1, "the buffer is free once its data is sent");
}
