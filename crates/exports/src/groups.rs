//! The conflict groups of a drive, from the file that `zonda probe` has written.

use std::path::Path;

use zonda_profiler::{DriveIdentity, StoredTable};
use zonda_sched::{ConflictGroup, ZoneGroups};
use zonda_zoned::ZoneIndex;

use crate::start::ServeError;

/// Reads a table, which must be of this drive.
pub(crate) fn read(path: &Path, drive: Option<&DriveIdentity>) -> Result<ZoneGroups, ServeError> {
    const MEASURE: &str = "measure the drive with zonda probe --groups-only DRIVE --out FILE";
    let text = std::fs::read_to_string(path).map_err(|error| {
        ServeError::new(format!("cannot read the conflict groups in {}: {error}", path.display()), MEASURE)
    })?;
    let stored = StoredTable::parse(&text);
    let stored = stored.map_err(|error| ServeError::new(format!("{}: {error}", path.display()), MEASURE))?;
    if let Some(drive) = drive {
        let serial = if is_place(&stored.drive.serial) { &stored.drive.serial } else { &drive.serial };
        let drive = DriveIdentity { serial: serial.clone(), ..drive.clone() };
        let checked = stored.check_drive(&drive);
        checked.map_err(|error| ServeError::new(format!("{}: {error}", path.display()), MEASURE))?;
    }
    let group = |zone| stored.table.group(ZoneIndex(zone)).map(|group| ConflictGroup(group.0));
    Ok(ZoneGroups::new((0..stored.drive.zone_count).map(group)))
}

/// Whether a table names the place of its drive in place of its serial number: the address of a
/// server, a device file, or a profile.
fn is_place(serial: &str) -> bool {
    serial.contains("://") || serial.starts_with("/dev/") || serial.starts_with("model:")
}
