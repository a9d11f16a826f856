//! The SSD model: a validated simulation of a drive in virtual time.
//!
//! A command takes effect on zones and contents when it is submitted
//! ([`zonda_zoned::ZonedDevice::submit`]); then it passes through queues: firmware cores, write
//! buffer, link, dies and channels. Every resource has its own queue, and every service time is
//! sampled from a distribution. `docs/internals/ssd-model.md` follows a command through the files.
//!
//! ```text
//!              firmware cores        write buffer        channels      dies
//!  submit ──► command.rs ──┬─► write.rs, buffer.rs ──► link in ──► work.rs, die.rs   program, erase
//!                          ├─► read.rs ◄── link out ◄──────────────┘                 sense
//!                          ├─► finish.rs   pads at the program rate
//!                          └─► (reset)     mapping work in pieces; erases come later, lazily
//! ```
//!
//! A drive is data: [`profile::Profile`], a TOML file with a source for each number.
//! [`description`] finds a profile by its name, and changes its numbers. [`Ssd::power_loss`]
//! returns the [`Media`]; [`Ssd::power_on`] makes a drive of them.
//!
//! This crate has no clocks, threads, files or built-in profiles, and no policy on the order of
//! commands: that is the task of a scheduler.
//!
//! ```
//! use zonda_profiles::builtin_text;
//! use zonda_ssd::{Ssd, profile::Profile};
//! use zonda_zoned::{Blocks, Command, CommandId, CompletionQueue, Instant, Lba, NamespaceId, Operation, Payload};
//! use zonda_zoned::{PayloadKind, Prng, ZonedDevice};
//!
//! let profile = Profile::parse(builtin_text("tiny").expect("a built-in profile")).expect("it is valid");
//! let mut drive = Ssd::new(&profile, PayloadKind::None, &Prng::new(1));
//! let write = Operation::Write { start: Lba(0), blocks: Blocks(4), payload: Payload::None };
//! let command = Command::new(CommandId(1), NamespaceId::FIRST, write);
//! drive.submit(Instant::ZERO, command).expect("an idle drive takes a command");
//!
//! let mut completions = CompletionQueue::new();
//! let mut now = Instant::ZERO;
//! while completions.is_empty() {
//!     now = drive.next_timeout().expect("a command is in flight");
//!     drive.poll(now, &mut completions);
//! }
//! assert!(completions.pop().expect("it has completed").status.is_success());
//! assert!((10_000..20_000).contains(&now.0), "cached: no program to wait for, {now}");
//! ```
#![forbid(unsafe_code)]

mod ahead;
pub mod allocation;
mod buffer;
mod bug;
mod command;
mod conventional;
mod conventional_io;
mod conventional_map;
mod counters;
pub mod description;
mod die;
mod elements;
mod events;
mod finish;
mod firmware;
mod layout;
pub mod limits;
mod map;
mod media;
mod pending;
mod power;
pub mod profile;
mod read;
mod reset;
pub mod service_time;
mod share;
mod ssd;
mod station;
mod store;
mod timing;
mod work;
mod write;
mod zone_map;
mod zone_run;

#[cfg(feature = "testing")]
pub use bug::SeededBug;
pub use counters::{Counters, Utilisation, Wear};
pub use media::Media;
pub use ssd::Ssd;
