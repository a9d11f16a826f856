//! The storage elements of a file-backed drive, persistent over restarts.
//!
//! A profile whose zones are built of elements (`[zones] allocation` other than `fixed`) has an
//! [`ElementTracker`](zonda_ssd::allocation::ElementTracker): the zone that owns each element, and
//! the wear of each. It follows the zones of the image, and is saved in the file `elements.zonda`
//! beside those of the image.
//!
//! | file | what |
//! |---|---|
//! | `format.rs` | the format of the file |
//! | `load.rs` | loads the file, or resets the elements where it cannot be used |
//! | `store.rs` | the elements of an open drive, saved periodically |
//!
//! What is absent: contents. A drive without the file has all its data; only the wear is lost.

mod format;
mod load;
mod store;

pub use load::LoadedElements;
pub(crate) use load::create_elements;
pub(crate) use store::ElementStore;

/// The file's name in the directory of an image.
pub const ELEMENTS_FILE: &str = "elements.zonda";
