//! The storage elements of a file-backed drive, over restarts.
//!
//! A profile whose zones are built of elements (`[zones] allocation` other than `fixed`) has an
//! [`ElementBook`](zonda_ssd::allocation::ElementBook): which element is whose, and how worn each is. It follows the zones
//! of the image, and is kept in a file beside the image's own, `elements.zonda`.
//!
//! | file | what |
//! |---|---|
//! | `format.rs` | the bytes of the file |
//! | `found.rs` | what the file of an image says, and what is done where it says nothing |
//! | `keeper.rs` | the book of an open drive, saved as it goes |
//!
//! What is absent: contents. Without the file a drive has all its data; what is lost is how worn its flash would be.

mod format;
mod found;
mod keeper;

pub use found::FoundElements;
pub(crate) use found::create_elements;
pub(crate) use keeper::ElementKeeper;

/// The file's name in the directory of an image.
pub const ELEMENTS_FILE: &str = "elements.zonda";
