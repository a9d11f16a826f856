//! The event loop over both backends, io_uring and epoll.

#[macro_use]
mod support;

mod event_loop;
mod files;
mod registered;
mod sockets;
