//! Worlds with files: clients at a file store, on a drive with layers over it.
//!
//! A run is a loop over what can happen next, by lot: a client asks for something, the store hands a command to the drive, a
//! completion reaches the store. Between any two of these the power may go, or the program may die; then the store is
//! mounted, every file is read, and [`zonda_files::testing::Model`] decides whether what is there may be there.

mod clients;
mod describe;
mod lives;
mod look;
mod machine;
mod run;
mod world;

pub(crate) use describe::describe;
pub(crate) use run::FilesRun;
pub(crate) use world::{ClientLoad, FORK, FilesWorld, UUID};
