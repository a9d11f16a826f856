//! The C interface: `include/zonda.h`, which documents every function, and its implementation.
//!
//! A handle holds a [`zonda_devices::Connection`] in one of two ways
//! ([`layout::RawOptions::sharing`]):
//!
//! - *Exclusive*: connection and ring live in the handle, in the thread that opened it. No thread,
//!   no channel. The default for servers, because a server accepts any number of connections.
//! - *Shared*: an owner thread has connection and ring; handles communicate with it over channels
//!   ([`zonda_devices::SharedConnection`]). The default for images, because an image can be opened only once, and a program with several
//!   threads (fio with several jobs) needs it in each. The cost is two thread switches per command,
//!   and one thread's CPU time for all handles; data cross channels by reference, and are copied in
//!   the thread of the handle.
//!
//! # Buffers
//! A write lends the caller's memory to the device as [`bytes::Bytes`]; the result is withheld
//! until the last reference is dropped. A read is copied from the device's buffer into the
//! caller's.
//!
//! # What is absent
//! No callbacks, no file descriptor to poll, no creation of images, no use of handles after `fork`:
//! they are refused there.
//!
//! # Unsafe code
//! It lives in two files: `ffi.rs` (pointers from C become references, for the duration of a call)
//! and `caller_memory.rs` (memory of the caller that is in use until a command has completed). The
//! rest of the crate denies it. No panic leaves a function of `ffi.rs`: it becomes an error, and
//! the handle refuses all calls but closing.
//!
//! From Rust, use `zonda-devices`; this crate is for other languages.
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

mod caller_memory;
mod command;
mod errno;
mod failure;
pub mod ffi;
mod handle;
pub mod layout;
mod link;
mod open;
mod own;
mod shared;

/// The version of the interface: `ZONDA_API_VERSION` of the header.
pub const API_VERSION: u32 = 1;
