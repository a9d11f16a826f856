//! The built-in experiments, their format, what they measure and their pages.

mod builtin;
mod format;
mod measure;
mod pages;
mod spread;
