//! File store scenarios: clients of a file store, on a drive with layers over it.
//!
//! A run is a loop that randomly selects the next event: a client submits a request, the store
//! submits a command to the drive, a completion is delivered to the store. Between any two events
//! power may be lost or the process killed; then the store is mounted, every file is read, and
//! [`zonda_files::testing::Model`] decides whether the contents are allowed.

mod clients;
mod describe;
mod lives;
mod machine;
mod run;
mod simulation;
mod verify;

pub(crate) use describe::describe;
pub(crate) use run::FilesRun;
pub(crate) use simulation::{ClientLoad, FORK, FilesSimulation, UUID};
