//! Stacks described in files: experiments, volumes, and mistakes in the files.

mod elastic;
mod experiments;
mod graph;
mod mistakes;
mod properties;
mod volumes;

use zonda_profiles::BUILTIN;
use zonda_stack::Profiles;

/// The built-in profiles, and no files.
const PROFILES: Profiles<'static> = Profiles::without_files(BUILTIN);
