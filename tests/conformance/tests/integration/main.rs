//! The conformance tests over every device, in virtual and in real time.

mod elastic;
mod real_time;
mod support;
mod virtual_time;
