//! The media of a file-backed zoned drive: what its files hold, how they are kept, and what is left of them after a crash.
//!
//! [`create`] makes the files of a drive. [`open`] reads them, mends what a crash left, and returns an [`Image`]: a machine
//! that takes commands ([`zonda_zoned::Command`]) and hands out file operations ([`FileCommand`]), to be carried out in any
//! order. [`inspect`] and [`check`] look without changing anything, and [`repair`] copies what can be read of a damaged one.
//!
//! What the format promises, and why it holds, is in `docs/internals/image-format.md`: nothing acknowledged is lost when the
//! program is killed, nothing flushed when the power goes, damage is found, and an error of a write is that write's alone.
//!
//! What is absent: files, clocks and locks. Whoever opens an image holds a lock on it and lends it [`Files`].
//!
//! ```
//! use zonda_image::{FileCommand, FileOperation, ImageSpec, MemoryFiles, create, open};
//! use zonda_zoned::{Blocks, Command, CommandId, CompletionQueue, Geometry, Instant, Lba, NamespaceId, Operation, Payload};
//!
//! let mut files = MemoryFiles::new();
//! create(&ImageSpec::new(Geometry::tiny(), String::new(), [7; 16]), &mut files)?;
//! let (mut image, report) = open(&mut files)?;
//! assert!(report.clean);
//!
//! let write = Operation::Write { start: Lba(0), blocks: Blocks(4), payload: Payload::None };
//! let command = Command { id: CommandId(1), namespace: NamespaceId::FIRST, operation: write };
//! image.submit(Instant::ZERO, command).expect("an idle drive takes a command");
//! while let Some(FileCommand { ticket, operation }) = image.poll_effect() {
//!     let result = files.carry_out(operation);
//!     image.on_file_done(ticket, result);
//! }
//! let mut completions = CompletionQueue::new();
//! image.poll(&mut completions);
//! assert!(completions.pop().expect("the write has ended").status.is_success());
//!
//! drop(image); // as if the program were killed
//! let (image, report) = open(&mut files)?;
//! assert_eq!((report.clean, report.found_blocks), (false, 4));
//! assert_eq!(image.counters().host_written_blocks, 4);
//! # Ok::<(), zonda_image::ImageError>(())
//! ```
#![forbid(unsafe_code)]

mod bugs;
mod check;
mod create;
mod disposition;
mod error;
mod examine;
mod files;
mod format;
mod inspect;
mod intended;
mod load;
mod logged;
mod machine;
mod media;
mod memory;
mod open;
mod ranges;
mod rebuild;
mod repair;
mod spec;
pub mod testing;
#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use bugs::SeededBug;
pub use check::{CheckProgress, CheckReport, Finding, check};
pub use create::create;
pub use error::ImageError;
pub use files::{FileCommand, FileError, FileOperation, Files, ImageFile, Ticket};
pub use format::VERSION;
pub use format::entry::Counters;
pub use inspect::{Inspection, inspect};
pub use machine::Image;
pub use memory::MemoryFiles;
#[doc(hidden)]
pub use open::open_with_bug;
pub use open::{RecoveryReport, open};
pub use repair::{RepairReport, RepairedZone, ZoneDoubt, repair};
pub use spec::ImageSpec;

pub mod limits;
