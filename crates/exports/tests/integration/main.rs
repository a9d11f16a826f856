//! Servers on real sockets: hostile hosts of NVMe/TCP, and NBD clients.

mod hostile;
mod nbd;
mod resizes;
