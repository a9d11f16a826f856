//! Images and volumes on real files.

mod elements;
mod images;
mod pools;
mod read_only;
mod volumes;

use zonda_profiles::BUILTIN;
use zonda_ssd::description::Profiles;

/// The built-in profiles, and no files.
const PROFILES: Profiles<'static> = Profiles::without_files(BUILTIN);
