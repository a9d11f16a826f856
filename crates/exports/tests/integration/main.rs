//! Servers on real sockets: hostile hosts of NVMe/TCP, and NBD clients.

mod hostile;
mod nbd;
mod resizes;

use zonda_profiles::BUILTIN;
use zonda_ssd::description::Profiles;

/// The built-in profiles, and no files.
const PROFILES: Profiles<'static> = Profiles::without_files(BUILTIN);
