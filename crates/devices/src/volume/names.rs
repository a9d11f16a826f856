//! [`Names`]: errors of a volume with the locations of its members, and with remedies.

use std::io::ErrorKind;

use zonda_raid::{MemberIndex, VolumeError};

use super::directory::{Place, VOLUME_FILE, VolumeDirectory};
use crate::DriveError;

/// The locations of members, for errors that have only their numbers.
pub(super) struct Names<'a>(pub(super) &'a [Place]);

impl Names<'_> {
    /// Describes a member: its number and location.
    pub(super) fn shown(&self, member: MemberIndex) -> String {
        let place = self.0.get(usize::from(member.0));
        place.map_or_else(|| format!("member {}", member.0), |place| place.as_member(member.0))
    }

    pub(super) fn describe(&self, error: &VolumeError) -> DriveError {
        let at = |member: &MemberIndex| match self.0.get(usize::from(member.0)) {
            Some(place) => place.shown(),
            None => format!("member {}", member.0),
        };
        match error {
            VolumeError::Foreign { member, volume } => DriveError::new(
                format!("{} belongs to another volume, which is named \"{volume}\"", at(member)),
                "check the locations in volume.toml; if the drives have moved, zonda volume import NEW --members with the \
                 other drives of this volume creates a new directory for it",
            ),
            VolumeError::NoVolume { member } => DriveError::new(
                format!("{}: no valid superblock of a volume found", at(member)),
                "check the locations in volume.toml; if the drives have moved, zonda volume import NEW --members with the \
                 drives of this volume creates a new directory for it",
            ),
            VolumeError::Version { member, .. } | VolumeError::Member { member, .. } => {
                DriveError::new(format!("{}: {error}", at(member)), "check volume.toml; see docs/guide/volumes.md")
            }
            VolumeError::TooManyMissing { tolerates, missing, rebuilding } => {
                let they = |members: &[MemberIndex], what: &str| {
                    let names: Vec<String> = members.iter().map(at).collect();
                    let verb = if names.len() == 1 { "is" } else { "are" };
                    (!names.is_empty()).then(|| format!("{} {verb} {what}", names.join(", ")))
                };
                let causes = [they(missing, "missing or out of date"), they(rebuilding, "not rebuilt yet")];
                let causes: Vec<String> = causes.into_iter().flatten().collect();
                DriveError::new(
                    format!("cannot assemble the volume: {}, and it can lose at most {tolerates}", causes.join(", ")),
                    "restore a missing member, whose data is needed; if a member is out of date because its drive was \
                     restored from a copy, and there is no newer copy, run zonda serve DIR --accept-older",
                )
            }
            VolumeError::UnidentifiedLosses { member, segment, blocks } => {
                let count = if *blocks == 1 { "1 block".to_owned() } else { format!("{blocks} blocks") };
                DriveError::new(
                    format!(
                        "the last writes of up to {count} are lost, and it is not known which: segment {segment} is \
                         damaged on {}",
                        at(member)
                    ),
                    format!(
                        "restore the missing drives; if none is missing, zonda serve DIR --accept-losses assembles it \
                         without up to {count}: any block of the volume may then have older data, so check the file \
                         system and compare with a backup"
                    ),
                )
            }
            VolumeError::OlderThanKnown { found, known } => DriveError::new(
                format!(
                    "the drives are out of date: they have epoch {found}, and the volume has reached epoch {known}"
                ),
                format!(
                    "restore the drives that were active since; zonda serve DIR --accept-older continues with epoch \
                     {found}, without later writes"
                ),
            ),
            VolumeError::SplitBrain { newest, other, newest_epoch, other_epoch } => {
                let side = |members: &[MemberIndex]| members.iter().map(at).collect::<Vec<String>>().join(", ");
                DriveError::new(
                    format!(
                        "split brain: {} (epoch {newest_epoch}) and {} (epoch {other_epoch}) were written \
                         independently",
                        side(newest),
                        side(other)
                    ),
                    "zonda serve DIR --keep-side MEMBER keeps the side of that member; the members of the other \
                     side are treated as failed, and writes to them alone are lost",
                )
            }
            VolumeError::TakenOver => DriveError::new(error.to_string(), "stop the other server"),
            VolumeError::Config(remedy) => {
                DriveError::new("the configuration of the volume is invalid", remedy.clone())
            }
        }
    }
}

/// The error for a `volume.toml` that cannot be written.
pub(super) fn cannot_save(directory: &VolumeDirectory, error: &std::io::Error) -> DriveError {
    let path = directory.path().join(VOLUME_FILE);
    if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
        let place = directory.path().display();
        return DriveError::new(
            format!("cannot write {}: the file system of {place} is full, or a quota is exhausted", path.display()),
            format!("free space on the file system of {place}, and try again"),
        );
    }
    DriveError::new(
        format!("cannot write {}: {error}", path.display()),
        "check the permissions of the directory and the state of its file system, and try again",
    )
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_file_that_a_full_file_system_cannot_hold_names_that_file_system() {
        let above = tempfile::tempdir().expect("there is space");
        let path = above.path().join("vol");
        let directory = VolumeDirectory::make(&path, &[7; 16]).expect("it is new");
        let full = cannot_save(&directory, &io::ErrorKind::StorageFull.into());
        let shown = path.display();
        assert!(full.message.contains(&format!("the file system of {shown} is full")), "{full}");
        assert_eq!(full.help, format!("free space on the file system of {shown}, and try again"));
        let refused = cannot_save(&directory, &io::ErrorKind::PermissionDenied.into());
        assert!(refused.message.ends_with("permission denied") && refused.help.contains("permissions"), "{refused}");
    }
}
