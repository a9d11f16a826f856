//! Stacks described in files: experiments, volumes, and mistakes in the files.

mod experiments;
mod graph;
mod mistakes;
mod volumes;
