//! Tests of connections, from the side of callers and clients.

mod closing;
mod golden;
mod handshake;
mod pressure;
mod random;
mod reads;
mod refusals;
mod requests;
mod testbed;
mod tls;
