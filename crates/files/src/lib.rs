//! Lifetime-aware files on zones: storage for a database on a zoned drive without a file system.
//!
//! A file is a list of extents in zones. Data of files with similar expected lifetimes are written
//! to one zone, so that zones empty by themselves and can be reset; a metadata log in the first
//! zones makes names and extents durable. The crate does for any caller what ZenFS does for RocksDB
//! (Bjørling et al., "ZNS: Avoiding the Block Interface Tax for Flash-based SSDs", USENIX ATC
//! 2021), as a state machine: [`FileStore`] accepts requests and completions, and returns commands
//! and events. [`FileStoreDevice`] runs it on any [`ZonedDevice`](zonda_zoned::ZonedDevice).
//!
//! What is absent: directories, overwriting, checksums of data, and any clock. Placement, the
//! format of the log and the argument why no durable data are lost are in
//! `docs/internals/file-store.md`.
//!
//! ```
//! use bytes::Bytes;
//! use zonda_files::{Event, FileData, FileStore, FileStoreDevice, FilesConfig, Lifetime, Outcome, RequestId};
//! use zonda_profiles::builtin_text;
//! use zonda_ssd::{Ssd, profile::Profile};
//! use zonda_zoned::{Instant, PayloadKind, Prng};
//!
//! let profile = Profile::parse(builtin_text("tiny").expect("a built-in profile")).expect("which is valid");
//! let drive = Ssd::new(&profile, PayloadKind::Bytes, &Prng::new(1));
//! let store = FileStore::format(&profile.geometry(), FilesConfig::default(), [7; 16])?;
//! let mut files = FileStoreDevice::new(store, drive);
//! let mut now = Instant::ZERO;
//! let mut next_event = |files: &mut FileStoreDevice<Ssd>| {
//!     loop {
//!         files.run_once(now);
//!         match files.poll_event() {
//!             Some(event) => return event,
//!             None => now = files.next_timeout().expect("a request is in progress"),
//!         }
//!     }
//! };
//! assert_eq!(next_event(&mut files), Event::Ready);
//!
//! let file = files.store_mut().create("000004.log", Lifetime::Short)?;
//! files.store_mut().append(RequestId(1), file, FileData::Bytes(Bytes::from_static(b"hello, zones")));
//! files.store_mut().close(RequestId(2), file);
//! files.store_mut().read(RequestId(3), file, 7, 100);
//! for _ in 0..3 {
//!     let Event::Done { request, result } = next_event(&mut files) else { panic!("the store was ready") };
//!     match request {
//!         RequestId(3) => assert_eq!(result?, Outcome::Data(Bytes::from_static(b"zones"))),
//!         _ => assert_eq!(result?, Outcome::None),
//!     }
//! }
//! # Ok::<(), zonda_files::FileError>(())
//! ```
#![forbid(unsafe_code)]

mod bug;
mod catalog;
mod config;
mod error;
mod event;
mod extents;
mod file_store_device;
mod format;
pub mod limits;
mod machine;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod usage;

#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub use bug::SeededBug;
pub use config::{FilesConfig, Lifetime, Migration};
pub use error::FileError;
pub use event::{Event, FileData, FileId, Outcome, RequestId};
pub use file_store_device::FileStoreDevice;
pub use format::VERSION;
pub use machine::FileStore;
pub use usage::Usage;
