//! The commands, one file each.

pub(crate) mod bench;
pub(crate) mod demo;
pub(crate) mod drive;
pub(crate) mod sim;
