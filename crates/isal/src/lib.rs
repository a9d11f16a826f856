//! Erasure codes computed by ISA-L, Intel's storage library, with the vector instructions of the
//! CPU.
//!
//! [`Isal`] is an [`Engine`](zonda_erasure::Engine): the same results as
//! [`Portable`](zonda_erasure::Portable), more than twice as fast for stripes with two or more
//! parity chunks. XOR alone is left to `Portable`, which is faster at that.
//!
//! # The library
//! ISA-L (Debian: `libisal2`) is loaded by `dlopen` when the first [`Isal`] is created, not by the
//! linker: so the same program runs with and without it, only the library itself has to be
//! installed, and builds do not depend on the packages of the machine. If it is missing, or lacks a
//! function, [`Isal::new`] is `None`, and callers use `Portable`.
//!
//! # Unsafe code
//! It is confined to one file, `library.rs`. The rest of the crate forbids it.
//!
//! ```
//! use zonda_erasure::{Code, Engine, Portable};
//! use zonda_isal::Isal;
//!
//! let engine: Box<dyn Engine> = match Isal::new() {
//!     Some(isal) => Box::new(isal),
//!     None => Box::new(Portable),
//! };
//! let code = Code::new(2, 2)?;
//! let mut parity = [[0; 4]; 2];
//! code.encode(&*engine, &[b"when", b"rome"], &mut parity.each_mut().map(|chunk| &mut chunk[..]));
//! assert_eq!(parity[0], [b'w' ^ b'r', b'h' ^ b'o', b'e' ^ b'm', b'n' ^ b'e']);
//! # Ok::<(), zonda_erasure::CodeError>(())
//! ```
#![deny(unsafe_code)]

mod isal;
mod library;

pub use isal::Isal;
