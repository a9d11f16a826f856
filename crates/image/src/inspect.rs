//! Inspects an image without changing it.

use zonda_zoned::zones::ZoneTable;

use crate::examine::{build_table, examine};
use crate::load::load;
use crate::open::note_found;
use crate::{Counters, Files, ImageError, ImageSpec};

/// Geometry, zones and counters of an image.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The contents of its superblock.
    pub spec: ImageSpec,
    /// Whether the drive was shut down cleanly. If not, the other fields are what opening it would
    /// recover.
    pub clean: bool,
    /// All zones.
    pub zones: ZoneTable,
    /// How many times each zone was erased.
    pub wear: Vec<u32>,
    /// Counters since the drive was created.
    pub counters: Counters,
}

/// Reports geometry, zones and counters of an image, and changes nothing. The caller holds the
/// image's lock, since a running drive changes the files under a reader.
///
/// # Errors
/// As for [`open`](crate::open).
pub fn inspect(files: &mut dyn Files) -> Result<Inspection, ImageError> {
    let mut loaded = load(files)?;
    let examined = examine(files, &loaded)?;
    let (zones, _) = build_table(&mut loaded, &examined.zones);
    note_found(&mut loaded, &examined);
    let wear = loaded.ledger.entries.iter().map(|entry| entry.wear).collect();
    Ok(Inspection { spec: loaded.spec, clean: loaded.clean, zones, wear, counters: loaded.ledger.counters })
}
