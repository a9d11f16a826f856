//! Third-party NBD clients with `zonda serve`: libnbd, QEMU and fio. They need no guest and no
//! privileges.
//!
//! `scripts/nbd-tools` installs them if permitted; a test whose tool is missing passes, and prints
//! that it was skipped.

mod copies;
mod encrypted;
mod holes;
mod requests;
mod tools;

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zonda_full_stack::{Server, create_drive};

/// Bytes of the drive.
const SIZE: u64 = 256 << 20;

/// A server of one conventional drive, `disk`, on a Unix socket and a port.
struct Fixture {
    directory: TempDir,
    server: Server,
}

impl Fixture {
    fn open() -> Fixture {
        Fixture::with("")
    }

    /// With additional keys in its `[[nbd]]`.
    fn with(keys: &str) -> Fixture {
        let directory = tempfile::tempdir().expect("a directory");
        create_drive(&directory.path().join("disk"), "conventional", 16, 16);
        Fixture::in_directory(directory, keys)
    }

    fn in_directory(directory: TempDir, keys: &str) -> Fixture {
        Fixture::of(directory, "image = \"disk\"", keys)
    }

    /// With the volume `vol`.
    fn of_volume(directory: TempDir) -> Fixture {
        Fixture::of(directory, "volume = \"vol\"", "")
    }

    fn of(directory: TempDir, source: &str, keys: &str) -> Fixture {
        let config = directory.path().join("zonda.toml");
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:nbd\"\n\
             [[subsystem.namespace]]\n{source}\n\
             [[nbd]]\nlisten = [\"unix:nbd.sock\", \"127.0.0.1:0\"]\n{keys}"
        );
        fs::write(&config, text).expect("a new file");
        let server = Server::start(&config, &[]);
        Fixture { directory, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The URL with this scheme in its greeting.
    fn url(&self, scheme: &str) -> String {
        let printed = self.server.printed();
        let urls = printed.lines().filter_map(|line| line.trim().strip_prefix("nbdinfo "));
        let found = urls.map(|url| url.trim_matches('\'')).find(|url| url.starts_with(&format!("{scheme}://")));
        found.unwrap_or_else(|| panic!("no {scheme} URL in\n{printed}")).to_owned()
    }

    /// Waits until the server has printed this text: its last lines may not have been read yet.
    fn wait_for_output(&self, words: &str) {
        for _ in 0..200 {
            if self.server.printed().contains(words) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("no {words:?} in\n{}", self.server.printed());
    }

    /// The URL of the Unix socket.
    fn unix_url(&self) -> String {
        self.url("nbd+unix")
    }
}

/// Fills a file with bytes that do not repeat at short distance.
fn fill(path: &Path, bytes: u64) {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let words = (0..bytes / 8).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    fs::write(path, words.collect::<Vec<u8>>()).expect("the file is written");
}
