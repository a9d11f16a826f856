//! The C interface: `include/zonda.h`, which documents every function, and what stands behind it.
//!
//! A handle holds a [`zonda_devices::Connection`] in one of two ways ([`layout::RawOptions::sharing`]):
//!
//! - *Its own*: connection and ring live in the handle, in the thread that opened it. No thread, no channel. What servers get
//!   unless told otherwise, because a server takes any number of connections.
//! - *Shared*: an owner thread has connection and ring; handles speak to it over channels. What images get, because an image
//!   can be opened once, and a program with several threads (fio with several jobs) wants it in each. The price is two hops
//!   between threads for a command, and one thread's share of a processor for all of them; data cross no channel but by
//!   reference, and are copied in the thread of the handle.
//!
//! # Buffers
//! A write lends the caller's memory to the device as [`bytes::Bytes`]; the result is held back until the last reference
//! has gone. A read is copied from the device's buffer into the caller's.
//!
//! # What is absent
//! No callbacks, no file descriptor to poll, no formatting of images, and no promise about handles after `fork`: they are
//! refused there.
//!
//! # Unsafe code
//! It lives in two files: `ffi.rs` (pointers from C become references, for the length of a call) and `lent.rs` (memory of
//! the caller that is used until a command has ended). The rest of the crate refuses it. No panic leaves a function of
//! `ffi.rs`: it becomes an error, and the handle refuses all but closing.
//!
//! From Rust, use `zonda-devices`; this is for others.
//!
//! ```
//! use std::ffi::CStr;
//! use zonda_capi::ffi;
//!
//! let mut namespace = std::ptr::null_mut();
//! let result = unsafe { ffi::zonda_open(c"no/such/image".as_ptr(), std::ptr::null(), &mut namespace) };
//! assert_eq!(result, -2, "ENOENT");
//! let message = unsafe { CStr::from_ptr(ffi::zonda_error_message()) };
//! assert!(message.to_string_lossy().contains("no/such/image"));
//! ```
#![deny(unsafe_code)]

mod command;
mod errno;
mod failure;
pub mod ffi;
mod handle;
pub mod layout;
mod lent;
mod link;
mod open;
mod own;
mod owner;
mod registry;
mod shared;

/// The version of the interface: `ZONDA_API_VERSION` of the header.
pub const API_VERSION: u32 = 1;
