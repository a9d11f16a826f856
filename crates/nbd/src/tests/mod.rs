//! Connections as their callers and clients see them.

mod closing;
mod golden;
mod handshake;
mod pressure;
mod random;
mod reads;
mod refusals;
mod requests;
mod tls;
mod world;
