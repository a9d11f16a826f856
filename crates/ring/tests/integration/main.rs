//! The event loop over both backends, io_uring and epoll.

#[macro_use]
mod support;

mod files;
mod sockets;
mod turns;
