//! The built-in experiments, their format, what they measure and their pages.

mod builtin;
mod format;
mod measure;
mod pages;
mod spread;

use zonda_profiles::BUILTIN;
use zonda_stack::Profiles;

/// The built-in profiles, and no files.
const PROFILES: Profiles<'static> = Profiles::without_files(BUILTIN);
