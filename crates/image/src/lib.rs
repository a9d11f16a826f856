//! The media of a file-backed zoned drive: its file formats, how they are updated, and how they are
//! recovered after a crash.
//!
//! [`create`] creates the files of a drive. [`open`] reads them, recovers from a crash, and returns
//! an [`Image`]: a state machine that accepts commands ([`zonda_zoned::Command`]) and issues file
//! operations ([`FileCommand`]), to be carried out in any order. [`inspect`] and [`check`] change
//! nothing, and [`repair`] copies the readable blocks of a damaged image.
//!
//! `docs/internals/image-format.md` lists the guarantees of the format and explains why they hold:
//! no acknowledged write is lost when the program is killed, no flushed write when the power fails,
//! damage is detected, and a write error fails only that write and those behind it in its zone.
//!
//! What is absent: files, clocks and locks. The caller that opens an image holds its lock and
//! provides [`Files`].
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
//! let command = Command::new(CommandId(1), NamespaceId::FIRST, write);
//! image.submit(Instant::ZERO, command).expect("an idle drive accepts a command");
//! while let Some(FileCommand { id, operation }) = image.poll_effect() {
//!     let result = files.carry_out(operation);
//!     image.on_completion(id, result);
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
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use check::{CheckProgress, CheckReport, Finding, check};
pub use create::create;
pub use error::ImageError;
pub use files::{FileCommand, FileCommandId, FileError, FileOperation, Files, ImageFile};
pub use format::VERSION;
pub use format::entry::Counters;
pub use inspect::{Inspection, inspect};
pub use machine::Image;
pub use memory::MemoryFiles;
pub use open::{RecoveryReport, open};
pub use repair::{RepairReport, RepairedZone, ZoneDoubt, repair};
pub use spec::ImageSpec;

pub mod limits;
