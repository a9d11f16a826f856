//! The conflict groups of a drive, from the file that `zonda probe` has written.

use std::path::Path;

use zonda_devices::{Drive, Location, TextSource, device_location, random, read_text, uuid_of_identity};
use zonda_profiler::limits::TABLE_BYTES_MAX;
use zonda_profiler::{DriveIdentity, SerialKind, StoredTable};
use zonda_sched::{ConflictGroup, ZoneGroups};
use zonda_ssd::profile::Profile;
use zonda_zoned::{Geometry, NamespaceId, ZoneIndex};

use crate::events;
use crate::start::ServeError;

/// By what a table can name a drive.
pub(crate) struct DriveNames<'g> {
    /// The zones that are used. A table is of the whole drive, which has `unused_zones` conventional
    /// zones before them.
    pub(crate) shown: &'g Geometry,
    pub(crate) unused_zones: u32,
    /// The UUID of the namespace, which is that of the drive if it has one.
    pub(crate) identifier: String,
    /// The profile that the drive was created with.
    pub(crate) profile: Option<String>,
    /// The path of a device file whose drive reports no identifier.
    pub(crate) location: Option<String>,
}

/// The name of a profile; `None` if this version cannot read it.
pub(crate) fn profile_name(profile: &str) -> Option<String> {
    Profile::parse(profile).ok().map(|profile| profile.name)
}

impl<'g> DriveNames<'g> {
    /// The names of the drive of a pool.
    pub(crate) fn of_pool(drive: &'g dyn Drive, location: &Location) -> DriveNames<'g> {
        let uuid = drive.identity().and_then(uuid_of_identity).map(|uuid| random::uuid_text(&uuid));
        let location = match location {
            Location::Device(path) => device_location(path),
            other => other.to_string(),
        };
        DriveNames {
            shown: drive.geometry(NamespaceId::FIRST),
            unused_zones: drive.unused_zones(),
            profile: drive.image_profile().and_then(profile_name),
            location: uuid.is_none().then(|| location.clone()),
            identifier: uuid.unwrap_or(location),
        }
    }
    /// The drive as a table with a serial number of this kind names it. A drive that lacks such a
    /// name has its own instead, so that it differs from the table.
    fn identity(&self, kind: SerialKind) -> DriveIdentity {
        let geometry = &self.whole();
        match (kind, &self.profile, &self.location) {
            (SerialKind::Profile, Some(name), _) => DriveIdentity::of_profile(name, geometry),
            (SerialKind::Location, _, Some(location)) => DriveIdentity::at_location(location, geometry),
            _ => DriveIdentity::new(&self.identifier, geometry),
        }
    }

    fn whole(&self) -> Geometry {
        match self.unused_zones {
            0 => self.shown.clone(),
            unused => Geometry {
                zone_count: self.shown.zone_count + unused,
                conventional_zone_count: unused,
                ..self.shown.clone()
            },
        }
    }
}

/// Reads a table, which must be of this drive.
pub(crate) fn read(path: &Path, drive: Option<&DriveNames<'_>>) -> Result<ZoneGroups, ServeError> {
    const MEASURE: &str = "measure the drive with zonda probe --groups-only DRIVE --out FILE";
    let text = read_text(path, TABLE_BYTES_MAX, TextSource::File).map_err(|error| {
        ServeError::new(format!("cannot read the conflict groups in {}: {error}", path.display()), MEASURE)
    })?;
    let stored = StoredTable::parse(&text);
    let stored = stored.map_err(|error| ServeError::new(format!("{}: {error}", path.display()), MEASURE))?;
    if let Some(drive) = drive {
        let checked = stored.check_drive(&drive.identity(stored.drive.serial_kind));
        checked.map_err(|error| ServeError::new(format!("{}: {error}", path.display()), MEASURE))?;
    }
    let group = |zone| stored.table.group(ZoneIndex(zone)).map(|group| ConflictGroup(group.0));
    let first = drive.map_or(0, |drive| drive.unused_zones);
    let groups = ZoneGroups::new((first..stored.drive.zone_count).map(group));
    if groups.groups() == 0 && drive.is_some() {
        events::no_groups(path, stored.table.verdict);
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use zonda_profiler::{Effort, Evidence, GroupId, GroupTable, UnknownReason, Verdict, ZoneEntry};
    use zonda_zoned::Duration;

    use super::*;

    const UUID: &str = "00112233-4455-8677-8899-aabbccddeeff";

    /// A table without a group for a drive, in a file.
    fn file(drive: DriveIdentity) -> (tempfile::TempDir, std::path::PathBuf) {
        let zones = vec![ZoneEntry::Unknown(UnknownReason::Empty); drive.zone_count as usize];
        let effort = Effort { probes: 0, commands: 0, elapsed: Duration(0) };
        let table = GroupTable { verdict: Verdict::NotMeasured, zones, effort };
        let directory = tempfile::tempdir().expect("the directory can be created");
        let path = directory.path().join("groups.json");
        let text = StoredTable { drive, made_at_unix_s: 0, table }.to_json();
        std::fs::write(&path, text).expect("the directory is writable");
        (directory, path)
    }

    #[test]
    fn a_table_of_the_whole_drive_is_used_for_its_sequential_zones() {
        let whole = Geometry { zone_count: 12, conventional_zone_count: 4, ..Geometry::tiny() };
        let shown = Geometry { zone_count: 8, conventional_zone_count: 0, ..whole.clone() };
        let zones = (0..12).map(|zone| match zone {
            0..4 => ZoneEntry::Unknown(UnknownReason::Empty),
            zone => ZoneEntry::Known { group: GroupId(zone / 6), evidence: Evidence::Measured { confidence: 1.0 } },
        });
        let effort = Effort { probes: 0, commands: 0, elapsed: Duration(0) };
        let table = GroupTable { verdict: Verdict::Groups { groups: 2 }, zones: zones.collect(), effort };
        let drive = DriveIdentity::new(UUID, &whole);
        let stored = StoredTable { drive, made_at_unix_s: 0, table };
        let directory = tempfile::tempdir().expect("the directory can be created");
        let path = directory.path().join("groups.json");
        std::fs::write(&path, stored.to_json()).expect("the directory is writable");
        let names =
            DriveNames { shown: &shown, unused_zones: 4, identifier: UUID.to_owned(), profile: None, location: None };
        let groups = read(&path, Some(&names)).expect("it is of this drive");
        let of = |zone| groups.group(zone).map(|group| group.0);
        assert_eq!((of(0), of(1), of(2), of(7), of(8)), (Some(0), Some(0), Some(1), Some(1), None));
    }

    #[test]
    fn what_is_no_table_is_not_read_without_end() {
        let directory = tempfile::tempdir().expect("the directory can be created");
        let long = directory.path().join("long.json");
        let file = std::fs::File::create(&long).expect("the directory is writable");
        file.set_len(TABLE_BYTES_MAX + 1).expect("a hole takes no space");
        for (path, why) in [
            (Path::new("/dev/zero"), "/dev/zero: is a character device, not a regular file"),
            (directory.path(), "is a directory"),
            (&long, "long.json: file is larger than"),
        ] {
            let error = read(path, None).expect_err("it is no table");
            assert!(error.message.contains(why), "{}", error.message);
            assert!(error.help.contains("zonda probe --groups-only"), "{}", error.help);
        }
    }

    fn refusal(table: DriveIdentity, drive: &DriveNames<'_>) -> Option<String> {
        let (_directory, path) = file(table);
        read(&path, Some(drive)).err().map(|error| {
            assert!(error.help.contains("zonda probe --groups-only"), "{}", error.help);
            error.message
        })
    }

    #[test]
    fn a_table_must_name_the_drive_by_its_identifier_its_profile_or_its_location() {
        let geometry = &Geometry::tiny();
        let names = |profile: Option<&str>, location: Option<&str>| DriveNames {
            shown: geometry,
            unused_zones: 0,
            identifier: UUID.to_owned(),
            profile: profile.map(str::to_owned),
            location: location.map(str::to_owned),
        };
        let (simulated, device, unnamed) =
            (names(Some("tiny"), None), names(None, None), names(None, Some("/dev/nullb0")));
        let by_uuid = || DriveIdentity::new(UUID, geometry);
        for drive in [&simulated, &device, &unnamed] {
            assert_eq!(refusal(by_uuid(), drive), None);
            let other = refusal(DriveIdentity::new("another", geometry), drive).expect("it is of another drive");
            assert!(other.contains("its serial number is another") && other.contains(UUID), "{other}");
        }
        assert_eq!(refusal(DriveIdentity::of_profile("tiny", geometry), &simulated), None);
        let other = refusal(DriveIdentity::of_profile("zn540", geometry), &simulated).expect("of another profile");
        assert!(other.contains("model:zn540, that of the drive model:tiny"), "{other}");
        assert!(refusal(DriveIdentity::of_profile("tiny", geometry), &device).is_some(), "it is not simulated");
        assert_eq!(refusal(DriveIdentity::at_location("/dev/nullb0", geometry), &unnamed), None);
        let other = refusal(DriveIdentity::at_location("/dev/nullb1", geometry), &unnamed).expect("of another device");
        assert!(other.contains("/dev/nullb1, that of the drive /dev/nullb0"), "{other}");
        // The drive at the path has been replaced by one with an identifier.
        assert!(refusal(DriveIdentity::at_location("/dev/nullb0", geometry), &device).is_some());
        // A table of an earlier version, which does not say that its serial number is a path.
        let other = refusal(DriveIdentity::new("/dev/nullb0", geometry), &unnamed);
        assert!(other.is_some(), "it is measured again");
        let larger = Geometry { zone_count: geometry.zone_count + 1, ..geometry.clone() };
        let other = refusal(DriveIdentity::of_profile("tiny", &larger), &simulated).expect("of another geometry");
        assert!(other.contains("number of zones"), "{other}");
    }
}
