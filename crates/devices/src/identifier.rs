//! What identifies a drive: a UUID derived from its globally unique identifiers, or its location.

use std::path::Path;

use zonda_nvme::identify::NamespaceIdentity;
use zonda_zoned::Prng;

/// A UUID that is stable across restarts (RFC 9562, version 8: custom bits).
#[must_use]
pub fn uuid_of_name(name: &str) -> [u8; 16] {
    let mut prng = name.bytes().fold(Prng::new(0), |prng, byte| prng.fork(&char::from(byte).to_string()));
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&prng.next_u64().to_le_bytes());
    uuid[8..].copy_from_slice(&prng.next_u64().to_le_bytes());
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// The UUID of a drive with these identifiers: its own, or one derived from the others. A server
/// gives it to its namespace over the drive, so that hosts and programs on the machine of the drive
/// see the same UUID. `None` without identifiers.
#[must_use]
pub fn uuid_of_identity(identity: &NamespaceIdentity) -> Option<[u8; 16]> {
    let eui64 = identity.eui64.map(|eui64| uuid_of_name(&format!("eui64/{eui64:x?}")));
    identity.uuid.or(identity.nguid.map(|nguid| uuid_of_name(&format!("nguid/{nguid:x?}")))).or(eui64)
}

/// Whether a drive that is opened again can be the one with the identifiers `before`: it reports the
/// same. A drive that reported none can be any.
pub(crate) fn may_be_same(before: Option<&NamespaceIdentity>, found: Option<&NamespaceIdentity>) -> bool {
    before.is_none_or(|before| *before == NamespaceIdentity::default() || found == Some(before))
}

/// The path of a device file without symbolic links, which identifies a drive that reports no
/// identifiers.
#[must_use]
pub fn device_location(path: &Path) -> String {
    path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_keeps_its_uuid_and_others_get_a_stable_one_from_the_widest_identifier() {
        let all = NamespaceIdentity { uuid: Some([1; 16]), nguid: Some([2; 16]), eui64: Some([3; 8]) };
        let without_uuid = NamespaceIdentity { uuid: None, ..all };
        let eui64 = NamespaceIdentity { nguid: None, ..without_uuid };
        assert_eq!(uuid_of_identity(&all), Some([1; 16]));
        let derived = [without_uuid, eui64].map(|identity| uuid_of_identity(&identity).expect("it has an identifier"));
        assert_ne!(derived[0], derived[1]);
        assert_eq!(derived[0], uuid_of_identity(&without_uuid).expect("it has an identifier"), "stable");
        assert!(derived.iter().all(|uuid| uuid[6] >> 4 == 8 && uuid[8] >> 6 == 0b10), "version 8 of RFC 9562");
        assert_eq!(uuid_of_identity(&NamespaceIdentity::default()), None);
    }

    #[test]
    fn a_drive_is_the_same_if_it_reports_the_identifiers_that_it_had() {
        let own = NamespaceIdentity { nguid: Some([2; 16]), ..NamespaceIdentity::default() };
        let other = NamespaceIdentity { nguid: Some([3; 16]), ..own };
        assert!(may_be_same(Some(&own), Some(&own)) && !may_be_same(Some(&own), Some(&other)));
        assert!(!may_be_same(Some(&own), None), "it reports none any more");
        assert!(may_be_same(None, Some(&own)) && may_be_same(Some(&NamespaceIdentity::default()), None));
    }

    #[test]
    fn a_symbolic_link_to_a_device_has_the_location_of_the_device() {
        let directory = tempfile::tempdir().expect("the directory can be created");
        let link = directory.path().join("by-id");
        std::os::unix::fs::symlink("/dev/null", &link).expect("the link can be created");
        assert_eq!(device_location(&link), "/dev/null");
        assert_eq!(device_location(Path::new("/dev/removed")), "/dev/removed");
    }
}
