//! What the tests over both backends share.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use std::rc::Rc;

use zonda_ring::{Address, Backend, BytesMut, Client, Done, Operation, Outcome, Ring, RingOptions, Socket};

/// Runs every test in it on io_uring and on epoll. Where io_uring is refused, that half prints so
/// and passes.
#[macro_export]
macro_rules! on_both_backends {
    ($(fn $name:ident($ring:ident: &Ring) $body:block)*) => {
        mod io_uring {
            $(#[test] fn $name() { $crate::support::run(zonda_ring::Backend::IoUring, super::$name); })*
        }
        mod epoll {
            $(#[test] fn $name() { $crate::support::run(zonda_ring::Backend::Epoll, super::$name); })*
        }
        $(fn $name($ring: &Ring) $body)*
    };
}

pub(crate) fn run(backend: Backend, test: fn(&Ring)) {
    match Ring::new(RingOptions { entries: 64, ..RingOptions::on(backend) }) {
        Ok(ring) => test(&ring),
        Err(error) if backend == Backend::IoUring => eprintln!("not run: io_uring is refused here: {error}"),
        Err(error) => panic!("epoll runs everywhere: {error}"),
    }
}

/// Runs the loop until the client has a completion.
pub(crate) fn next(ring: &Ring, client: &Client) -> Done {
    loop {
        if let Some(done) = client.next() {
            return done;
        }
        assert!(client.outstanding() > 0, "an operation is outstanding");
        ring.run_once(None).unwrap();
    }
}

/// Runs one operation to its end.
pub(crate) fn once(ring: &Ring, operation: Operation) -> Done {
    let client = ring.client();
    client.submit(7, operation);
    let done = next(ring, &client);
    assert_eq!((done.token, client.outstanding()), (7, 0));
    done
}

/// Runs one operation that fails.
pub(crate) fn error_of(ring: &Ring, operation: Operation) -> std::io::Error {
    once(ring, operation).result.unwrap_err()
}

pub(crate) fn loopback() -> Address {
    Address::Tcp(([127, 0, 0, 1], 0).into())
}

/// Two ends of a TCP connection over loopback.
pub(crate) fn connection(ring: &Ring) -> (Rc<Socket>, Rc<Socket>) {
    let listener = Rc::new(Socket::listen(&loopback()).unwrap());
    let client = ring.client();
    client.submit(0, Operation::Accept(Rc::clone(&listener)));
    client.submit(1, Operation::Connect { address: listener.local_address().unwrap() });
    let (mut near, mut far) = (None, None);
    while near.is_none() || far.is_none() {
        match next(ring, &client).result.unwrap() {
            Outcome::Accepted(socket) => far = Some(Rc::new(socket)),
            Outcome::Connected(socket) => near = Some(Rc::new(socket)),
            other => panic!("unexpected {other:?}"),
        }
    }
    (near.unwrap(), far.unwrap())
}

/// Receives exactly `count` bytes, at most `step` at a time.
pub(crate) fn receive(ring: &Ring, socket: &Rc<Socket>, count: usize, step: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        let buffer = BytesMut::with_capacity(step.min(count - all.len()));
        let done = once(ring, Operation::Receive { socket: Rc::clone(socket), buffer });
        let Ok(Outcome::Received(buffer)) = done.result else { panic!("a receive ends well: {done:?}") };
        assert_eq!(buffer.len() as u64, done.bytes);
        assert!(done.bytes > 0, "the stream ends after {} of {count} bytes", all.len());
        all.extend_from_slice(&buffer);
    }
    all
}

/// Creates a ring in a thread of a test, with a value passed in.
pub(crate) fn run_with<T>(backend: Backend, given: T, body: fn(&Ring, T)) {
    let ring = Ring::new(RingOptions::on(backend)).unwrap();
    body(&ring, given);
}

/// A file system of 64 KiB, where the user may mount one.
pub(crate) fn tiny_disk() -> Option<TinyDisk> {
    let directory = tempfile::tempdir().unwrap();
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(directory.path())
        .stderr(std::process::Stdio::null())
        .status();
    match mount {
        Ok(status) if status.success() => Some(TinyDisk(directory)),
        _ => {
            eprintln!("not run: no file system can be mounted here");
            None
        }
    }
}

pub(crate) struct TinyDisk(tempfile::TempDir);

impl TinyDisk {
    pub(crate) fn path(&self) -> &std::path::Path {
        self.0.path()
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        // Lazily, because the test still has a file open when this runs.
        let _ = std::process::Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}
