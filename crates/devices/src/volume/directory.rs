//! The directory of a volume: where its members are, and the lock that keeps two programs from using it.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use zonda_config::Rate;
use zonda_ring::{File, FileOptions};

use crate::{DriveError, Location};

/// What says where the members are.
pub const VOLUME_FILE: &str = "volume.toml";
/// Where the program that has the volume can be spoken to: a Unix socket.
pub const CONTROL_SOCKET: &str = "control";
/// What is locked.
const LOCK_FILE: &str = "lock";
/// The version of the file.
const FORMAT: u32 = 1;
const HEADER: &str = "# A volume of zonda: where its members are. All else they say themselves.
# While no program uses the volume, paths can be changed here; they are seen from this directory.
";

/// Whether there is a volume in this directory.
#[must_use]
pub fn is_volume(path: &Path) -> bool {
    path.join(VOLUME_FILE).is_file()
}

/// `volume.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VolumeFile {
    pub(super) format: u32,
    pub(super) name: String,
    /// What tells the volume from all others: a UUID, as on the members.
    pub(super) array: String,
    /// Space kept back for garbage collection, in percent.
    pub(super) reserve_percent: u8,
    #[serde(default)]
    pub(super) rates: VolumeRates,
    pub(super) member: Vec<Place>,
    #[serde(default)]
    pub(super) spare: Vec<Place>,
}

/// How fast a volume may work for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeRates {
    /// What a rebuild writes, `"200 MiB/s"`; absent: as fast as members are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<Rate>,
    /// What a scrub reads; absent: 64 MiB/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrub: Option<Rate>,
}

/// Where a device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place {
    /// The directory of an image, or a URL.
    pub(super) at: String,
}

/// A volume's directory, locked until this is dropped.
#[derive(Debug)]
pub(super) struct VolumeDirectory {
    path: PathBuf,
    pub(super) file: VolumeFile,
    _lock: File,
}

impl VolumeDirectory {
    /// A directory for a new volume. Nothing stands in it until [`save`](VolumeDirectory::save).
    pub(super) fn make(path: &Path, array: &[u8; 16]) -> Result<VolumeDirectory, DriveError> {
        let shown = path.display();
        if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
            let what = if is_volume(path) { "holds a volume already" } else { "is not empty" };
            return Err(DriveError::new(
                format!("the directory {shown} {what}"),
                "choose another directory, or remove this one if nobody needs what is in it",
            ));
        }
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        fs::create_dir_all(path).map_err(|error| {
            DriveError::new(
                format!("the directory {shown} cannot be made: {error}"),
                "choose a directory in which you may write",
            )
        })?;
        let file = VolumeFile {
            format: FORMAT,
            name,
            array: crate::random::uuid_text(array),
            reserve_percent: zonda_raid::Tuning::default().reserve_percent,
            rates: VolumeRates::default(),
            member: Vec::new(),
            spare: Vec::new(),
        };
        Ok(VolumeDirectory { path: path.to_owned(), file, _lock: lock(path)? })
    }

    /// The volume in this directory, which nobody else uses until this is dropped.
    pub(super) fn open(path: &Path) -> Result<VolumeDirectory, DriveError> {
        let place = path.join(VOLUME_FILE);
        let shown = place.display();
        let text = fs::read_to_string(&place).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                DriveError::new(format!("there is no volume in {}", path.display()), "zonda volume create makes one")
            }
            _ => DriveError::new(format!("{shown} cannot be read: {error}"), "see who may read it"),
        })?;
        let file: VolumeFile = toml::from_str(&text).map_err(|error| {
            let what = error.message();
            DriveError::new(
                format!("{shown} is not as it should be: {what}"),
                "docs/guide/volumes.md says what belongs there",
            )
        })?;
        if file.format != FORMAT {
            return Err(DriveError::new(
                format!("{shown} has format {}, this program reads {FORMAT}", file.format),
                "use the program that wrote it",
            ));
        }
        Ok(VolumeDirectory { path: path.to_owned(), file, _lock: lock(path)? })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The array's UUID.
    pub(super) fn array(&self) -> Result<[u8; 16], DriveError> {
        uuid_of(&self.file.array).ok_or_else(|| {
            let what = format!("\"{}\" in {} is no UUID", self.file.array, self.path.join(VOLUME_FILE).display());
            DriveError::new(what, "write the one that zonda volume create gave it")
        })
    }

    /// Where a place of the file is, seen from this process.
    pub(super) fn location(&self, place: &Place) -> Result<Location, DriveError> {
        let location = place.at.parse().map_err(|error: zonda_config::ConfigError| {
            DriveError::new(error.message, error.help.unwrap_or_default())
        })?;
        Ok(match location {
            Location::Image(path) => Location::Image(plain(&self.path.join(path))),
            url => url,
        })
    }

    /// How a location is written in the file: paths beside the volume are seen from it, so that all can move together.
    pub(super) fn place(&self, location: &Location) -> Place {
        let Location::Image(path) = location else { return Place { at: location.to_string() } };
        let absolute = |path: &Path| plain(&std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        let (whole, own) = (absolute(path), absolute(&self.path));
        let beside = own.parent().and_then(|above| whole.strip_prefix(above).ok());
        let at = beside.map_or(whole.clone(), |rest| Path::new("..").join(rest));
        Place { at: at.display().to_string() }
    }

    /// Writes the file so that after a crash either the old or the new one is there.
    pub(super) fn save(&self) -> io::Result<()> {
        let text = toml::to_string(&self.file).expect("texts and numbers can be written");
        let (place, other) = (self.path.join(VOLUME_FILE), self.path.join("volume.toml.new"));
        let mut file = fs::File::create(&other)?;
        file.write_all(format!("{HEADER}{text}").as_bytes())?;
        file.sync_all()?;
        fs::rename(&other, &place)?;
        File::sync_directory(&self.path)
    }

    /// Takes a directory away again in which nothing was saved.
    pub(super) fn remove(self) {
        // What stays is an empty directory.
        let _ = fs::remove_file(self.path.join(LOCK_FILE));
        let _ = fs::remove_dir(&self.path);
    }
}

fn lock(path: &Path) -> Result<File, DriveError> {
    let shown = path.display();
    let cannot = |error: io::Error| {
        DriveError::new(format!("the volume in {shown} cannot be locked: {error}"), "see who may write there")
    };
    let file = File::open(&path.join(LOCK_FILE), FileOptions { create: true, ..FileOptions::read_write() });
    let file = file.map_err(cannot)?;
    if !file.lock().map_err(cannot)? {
        return Err(DriveError::in_use(
            format!("the volume in {shown} is in use by another program"),
            "stop that program, or reach the volume through it: zonda status shows a server's URL",
        ));
    }
    Ok(file)
}

/// A path without `a/..` and `.` in it.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        let is_name = matches!(plain.components().next_back(), Some(Component::Normal(_)));
        match part {
            Component::CurDir => {}
            Component::ParentDir if is_name => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

fn uuid_of(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    if digits.len() != 32 {
        return None;
    }
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_beside_the_volume_are_seen_from_it() {
        let above = tempfile::TempDir::new().expect("there is room");
        let path = above.path().join("vol");
        let directory = VolumeDirectory::make(&path, &[7; 16]).expect("it is new");
        let beside = Location::Image(above.path().join("drives/./a"));
        assert_eq!(directory.place(&beside).at, "../drives/a");
        assert_eq!(directory.location(&directory.place(&beside)), Ok(Location::Image(above.path().join("drives/a"))));
        let far = Location::Image("/drives/b".into());
        assert_eq!(directory.place(&far).at, "/drives/b");
        assert_eq!(directory.location(&directory.place(&far)), Ok(far));
    }

    #[test]
    fn what_was_saved_is_found_by_the_next_and_locked_for_others() {
        let above = tempfile::TempDir::new().expect("there is room");
        let path = above.path().join("vol");
        let mut directory = VolumeDirectory::make(&path, &[0xab; 16]).expect("it is new");
        directory.file.rates.rebuild = Some("200 MiB/s".parse().expect("a rate"));
        directory.file.member.push(Place { at: "../a".to_owned() });
        directory.save().expect("there is room");
        let error = VolumeDirectory::open(&path).expect_err("it is locked");
        assert!(error.is_in_use, "{error}");
        let file = directory.file.clone();
        drop(directory);
        let again = VolumeDirectory::open(&path).expect("it is free");
        assert_eq!((&again.file, again.array()), (&file, Ok([0xab; 16])));
        let error = VolumeDirectory::make(&path, &[7; 16]).expect_err("there is one");
        assert!(error.message.contains("holds a volume already"), "{error}");
    }
}
