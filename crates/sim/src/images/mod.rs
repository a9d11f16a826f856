//! Images: a file-backed drive on a disk that fails, fills up, rots and loses power.
//!
//! [`zonda_image`] keeps a drive in five files, and says itself what is to be read, written and synced; here a simulated disk does
//! it, in any order, and remembers page by page what was synced. A drive has several lives: each opens the image, takes commands, and
//! ends with a kill, a loss of power, or in order. [`zonda_image::testing::Ledger`] says what the next life may find. After a stop a
//! copy of the files may be damaged, to see that damage is found.

mod damage;
mod describe;
mod disk;
mod drive;
mod lives;
mod run;
mod world;

pub(crate) use describe::describe;
pub(crate) use run::ImagesRun;
pub(crate) use world::{FORK, ImageEvents, ImageLoad, ImagesWorld};
pub(crate) use zonda_image::SeededBug as ImageBug;
