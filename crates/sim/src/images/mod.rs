//! Image scenarios: a file-backed drive on a disk that fails, fills up, corrupts data and loses
//! power.
//!
//! [`zonda_image`] stores a drive in five files, and requests file operations; here a simulated
//! disk executes them, in any order, and tracks for each page what was synced. A drive has several
//! lives: each opens the image, runs commands, and ends with a kill, a power loss, or a clean
//! shutdown. [`zonda_image::testing::Ledger`] decides which state the next life may find. After a
//! stop a copy of the files may be damaged, to check that the damage is detected.

mod damage;
mod describe;
mod disk;
mod drive;
mod lives;
mod run;
mod simulation;

pub(crate) use describe::describe;
pub(crate) use disk::Disk;
pub(crate) use drive::Drive as ImageDrive;
pub(crate) use run::ImagesRun;
pub(crate) use simulation::{FORK, ImageEvents, ImageLoad, ImagesSimulation};
pub(crate) use zonda_image::testing::SeededBug as ImageBug;
