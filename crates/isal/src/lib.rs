//! Erasure codes computed by ISA-L, Intel's storage library, with the vector instructions that the processor has.
//!
//! [`Isal`] is an [`Engine`](zonda_erasure::Engine): the same bytes as [`Portable`](zonda_erasure::Portable), more than twice as fast where a stripe has two
//! or more parity chunks. XOR alone is left to `Portable`, which is the faster one of the two there.
//!
//! # The library
//! ISA-L (Debian: `libisal2`) is looked for when the first [`Isal`] is made, by `dlopen`, not by the linker: so the same program runs
//! with and without it, nothing but the library itself has to be installed, and no build depends on what the machine happens to
//! have. Without it, or where it lacks a function, [`Isal::new`] is `None`, and callers take `Portable`.
//!
//! # Unsafe code
//! It lives in one file, `library.rs`. The rest of the crate refuses it.
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
