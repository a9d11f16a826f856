//! The commands, one module each.

pub(crate) mod advise;
pub(crate) mod bench;
pub(crate) mod connect;
pub(crate) mod control_client;
pub(crate) mod control_path;
pub(crate) mod demo;
pub(crate) mod drive;
pub(crate) mod lab;
pub(crate) mod pool;
pub(crate) mod probe;
pub(crate) mod reload;
pub(crate) mod secret;
pub(crate) mod serve;
#[cfg(feature = "simulation")]
pub(crate) mod sim;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod volume;
pub(crate) mod zone;
