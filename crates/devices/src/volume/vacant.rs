//! Refuses drives that a volume must not write to: those that are not empty, or given twice.

use super::member_device::MemberDevice;
use crate::DriveError;
use crate::probe::{Probed, describe};

/// Refuses a device that is not empty; the error names the volume of which it is a member.
pub(crate) fn must_be_free(shown: &str, probed: &Probed) -> Result<(), DriveError> {
    match &probed.identity {
        Some(identity) => Err(DriveError::new(
            format!("{shown} is not empty: it is {}", describe(identity)),
            "name another drive; if the directory of that volume is lost, recreate it with zonda volume import; if \
             that volume is no longer needed, --force wipes the drive",
        )),
        None if probed.pool.is_some() => Err(DriveError::new(
            format!("{shown} is not empty: it is {}", probed.user().expect("a pool uses it")),
            "name another drive; if that pool is no longer needed, --force wipes the drive",
        )),
        None if probed.remains.is_some() => {
            let user = probed.user().expect("there are remains of it");
            Err(DriveError::new(
                format!("{shown} is not empty: it is {user}"),
                format!("name another drive; if that {} is no longer needed, --force wipes the drive", user.kind()),
            ))
        }
        None if !probed.is_empty => Err(DriveError::new(
            format!("{shown} is not empty"),
            "name another drive, or use --force if its data is not needed: the drive is then wiped",
        )),
        None => Ok(()),
    }
}

/// Refuses a device that is not empty as a new drive of this volume.
pub(super) fn must_be_free_for(array: [u8; 16], text: &str, probed: &Probed) -> Result<(), DriveError> {
    if probed.membership().is_some_and(|own| own.array == array) {
        return Err(DriveError::new(
            format!("{text} is not empty: it is a failed or former member of this volume"),
            "name another drive; --force wipes this one",
        ));
    }
    must_be_free(text, probed)
}

/// Refuses one drive as two members: it would count twice as redundancy.
pub(super) fn must_be_different_drives<'a>(
    named: impl Iterator<Item = (String, &'a MemberDevice)>,
) -> Result<(), DriveError> {
    let named: Vec<(String, &MemberDevice)> = named.collect();
    for (i, (name, device)) in named.iter().enumerate() {
        if let Some((earlier, _)) = named[..i].iter().find(|(_, earlier)| device.is_same_drive(earlier)) {
            return Err(DriveError::new(
                format!("{earlier} and {name} are the same drive: both have the same identifier"),
                "name each drive once; if one of the images is a copy of the other, create a new image instead: zonda drive \
                 create",
            ));
        }
    }
    Ok(())
}
