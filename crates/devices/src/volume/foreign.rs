//! Files that have the name of `volume.toml` or `pool.toml` and are others, such as a job file.

use std::path::Path;

use super::directory::text_of;

/// Whether a directory has the file of this name, and the file is that of a volume or pool. A damaged
/// file is: whoever reads it reports the damage. A table without any of `keys` is another file.
pub(crate) fn has_own(directory: &Path, name: &str, keys: &[&str]) -> bool {
    let place = directory.join(name);
    place.is_file() && !is_foreign(&place, keys)
}

/// Whether a directory has a file of this name that is not that of a volume or pool.
pub(crate) fn has_foreign(directory: &Path, name: &str, keys: &[&str]) -> bool {
    let place = directory.join(name);
    place.is_file() && is_foreign(&place, keys)
}

fn is_foreign(place: &Path, keys: &[&str]) -> bool {
    let Ok(text) = text_of(place) else { return false };
    let Ok(table) = text.parse::<toml::Table>() else { return false };
    !table.is_empty() && keys.iter().all(|key| !table.contains_key(*key))
}
