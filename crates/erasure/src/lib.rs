//! Erasure codes over GF(2^8): m chunks of parity for k chunks of data, so that any m chunks may be
//! lost.
//!
//! A [`Code`] is a matrix; it defines parity ([`Code::encode`]) and the recovery of lost chunks
//! ([`Code::recover`]). The bytes are computed by an [`Engine`]: [`Portable`] is here, in safe
//! Rust; other engines may use a library, and give the same results.
//!
//! The field is GF(2)\[x\] / (x^8 + x^4 + x^3 + x^2 + 1), 0x11D. The matrix is Cauchy's, 1 / ((k +
//! j) xor i) for parity j and data i, with columns scaled so that the first parity is the XOR of
//! the data, then rows so that the first column is ones. Every square part of a Cauchy matrix can
//! be inverted, and scaling does not change that, so any k of the k + m chunks determine the others
//! (Bloemer et al., An XOR-Based Erasure-Resilient Coding Scheme, 1995). `Code::mirror` is the one
//! other code: a copy of each chunk.
//!
//! What is absent: locations of chunks, tracking of lost ones, and checksums. A chunk is present or
//! not; a corrupt one corrupts the result.
//!
//! ```
//! use zonda_erasure::{Code, Portable};
//!
//! let code = Code::new(3, 2)?;
//! let data: [&[u8]; 3] = [b"when", b"in  ", b"rome"];
//! let mut parity = [[0; 4]; 2];
//! code.encode(&Portable, &data, &mut parity.each_mut().map(|chunk| &mut chunk[..]));
//!
//! // Chunks 0 and 1 are lost: 2 is data, 3 and 4 are parity.
//! let recovery = code.recover(0b11100, &[0]).expect("two may be lost");
//! assert_eq!(recovery.sources, [2, 3, 4]);
//! let mut lost = [0; 4];
//! recovery.apply(&Portable, &[data[2], &parity[0], &parity[1]], &mut [&mut lost[..]]);
//! assert_eq!(&lost, b"when");
//! # Ok::<(), zonda_erasure::CodeError>(())
//! ```
#![forbid(unsafe_code)]

mod code;
mod engine;
mod field;
#[cfg(test)]
mod oracle;
mod portable;
mod recover;

pub use code::{Code, CodeError};
pub use engine::{Engine, assert_shape};
pub use portable::Portable;
pub use recover::Recovery;

/// Named bounds.
pub mod limits {
    /// Chunks of a stripe, data and parity: a set of them is a `u32`.
    pub const CHUNKS_MAX: usize = 32;
}
