//! Images and volumes on real files.

mod elements;
mod images;
mod read_only;
mod volumes;
