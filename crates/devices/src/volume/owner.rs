//! [`Owner`]: the host that reserves the members of a volume on their servers.
//!
//! Two programs never write to one volume. Images are locked. An owner acquires an Exclusive Access
//! reservation of a namespace of a server before it reads it, over each connection: that fails
//! while another host holds one, and commands of that host fail once it is preempted. The
//! reservation key consists of the volume and the epoch of the owner, which increases with each
//! owner:
//!
//! ```text
//! key              63:32 of the volume's UUID: its first four bytes | 31:00 owner epoch
//! host identifier  0 place: identifies the lock and the machine | 8 random, for this program alone
//! ```
//!
//! A program that finds a reservation with the same place preempts it at once: it holds the lock,
//! so the other program has exited. A copy of the directory has another lock, and so another place:
//! its programs preempt no reservation except in a takeover by an operator.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use crc_fast::{CrcAlgorithm, Digest};
use serde::{Deserialize, Serialize};
use zonda_initiator::{Claim, Claimed, Holder, Preempts};
use zonda_nvme::HostId;
use zonda_nvme::reservation::ReservationKey;

use crate::{DriveError, random};

/// Files that identify the machine: the first existing one is used.
const MACHINE_FILES: [&str; 2] = ["/etc/machine-id", "/proc/sys/kernel/random/boot_id"];

/// The last owner in `volume.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LastOwner {
    /// The host identifier under which it has reserved members: a UUID.
    pub(crate) host: String,
    /// The owner epoch: counts owners.
    pub(crate) epoch: u32,
}

/// The program that owns a volume, or is about to.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    array: [u8; 16],
    host: HostId,
    epoch: u32,
    preempts: Preempts,
}

impl Owner {
    /// The next owner of a volume; `lock` is its lock file.
    pub(crate) fn new(array: [u8; 16], last: Option<&LastOwner>, lock: &Path) -> Result<Owner, DriveError> {
        let place = place_of(&array, lock);
        let mut host = [0; 16];
        host[..8].copy_from_slice(&place);
        host[8..].copy_from_slice(&random::bytes::<8>()?);
        let epoch = last.map_or(0, |last| last.epoch).wrapping_add(1).max(1);
        Ok(Owner { array, host: HostId(host), epoch, preempts: Preempts::HostsLike(place) })
    }

    /// From now on preempts reservations of this holder; without one only those of programs with
    /// this lock.
    pub(crate) fn take_from(&mut self, holder: Option<&Holder>) {
        let mut place = self.place();
        if let Some(holder) = holder {
            place.copy_from_slice(&holder.host.0[..8]);
        }
        self.preempts = Preempts::HostsLike(place);
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(crate) fn host(&self) -> HostId {
        self.host
    }

    /// Identifies its lock and its machine.
    pub(crate) fn place(&self) -> [u8; 8] {
        let mut place = [0; 8];
        place.copy_from_slice(&self.host.0[..8]);
        place
    }

    /// The place as written in `volume.toml`.
    pub(super) fn place_text(&self) -> String {
        format!("{:016x}", u64::from_be_bytes(self.place()))
    }

    /// Whether a program with this lock held the reservation of a drive before this one.
    pub(crate) fn had(&self, claimed: &Claimed) -> bool {
        claimed.preempted.is_some_and(|holder| holder.host.0.starts_with(&self.place()))
    }

    pub(crate) fn claim(&self) -> Claim {
        Claim { key: key_of(&self.array, self.epoch), preempts: self.preempts }
    }

    /// A reservation was acquired: the epoch is that of the newest key.
    pub(crate) fn granted(&mut self, claimed: &Claimed) {
        // The epoch of another volume does not order the owners of this one.
        let upper = (claimed.key.0 >> 32) as u32;
        assert_eq!(upper, upper_half(&self.array), "a drive is reserved with the key of another volume");
        self.epoch = self.epoch.max(claimed.key.0 as u32);
    }

    pub(crate) fn record(&self) -> LastOwner {
        LastOwner { host: random::uuid_text(&self.host.0), epoch: self.epoch }
    }

    /// Describes a host that holds the reservation of a member.
    pub(super) fn shown(&self, holder: &Holder) -> String {
        describe_holder("volume", &self.array, holder)
    }
}

/// Describes a host that holds the reservation of a drive, for the volume or pool (`kind`) with this
/// UUID.
pub(crate) fn describe_holder(kind: &str, uuid: &[u8; 16], holder: &Holder) -> String {
    let epoch = holder.key.0 as u32;
    if holder.key == key_of(uuid, epoch) {
        format!("another server of this {kind}, owner epoch {epoch} (host {})", random::uuid_text(&holder.host.0))
    } else {
        holder.to_string()
    }
}

/// The upper half of the keys of the owners of a volume.
pub(crate) fn upper_half(array: &[u8; 16]) -> u32 {
    let [a, b, c, d, ..] = *array;
    u32::from_be_bytes([a, b, c, d])
}

fn key_of(array: &[u8; 16], epoch: u32) -> ReservationKey {
    ReservationKey(u64::from(upper_half(array)) << 32 | u64::from(epoch))
}

/// Identifies a lock file on a machine. A copy of the file has another inode and birth time, so it
/// differs.
pub(crate) fn place_of(array: &[u8; 16], lock: &Path) -> [u8; 8] {
    let mut digest = digest_of_machine(array);
    if let Ok(metadata) = fs::metadata(lock) {
        digest.update(&metadata.ino().to_le_bytes());
        let created = metadata.created().ok().and_then(|created| created.duration_since(UNIX_EPOCH).ok());
        digest.update(&created.map_or(0, |created| created.as_nanos()).to_le_bytes());
    }
    digest.finalize().to_be_bytes()
}

/// Identifies a path on a machine, for a program that has no lock yet.
pub(crate) fn place_of_path(path: &Path) -> [u8; 8] {
    let mut digest = digest_of_machine(b"path");
    digest.update(std::path::absolute(path).as_deref().unwrap_or(path).as_os_str().as_encoded_bytes());
    digest.finalize().to_be_bytes()
}

fn digest_of_machine(of: &[u8]) -> Digest {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(of);
    let machine = MACHINE_FILES.iter().find_map(|file| fs::read(file).ok().filter(|text| !text.is_empty()));
    digest.update(&machine.unwrap_or_default());
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRAY: [u8; 16] = [0xab, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    fn lock(directory: &Path, name: &str) -> std::path::PathBuf {
        let path = directory.join(name);
        fs::write(&path, "").expect("there is space");
        path
    }

    #[test]
    fn each_owner_has_a_greater_key_and_a_host_identifier_with_its_place() {
        let directory = tempfile::TempDir::new().expect("there is space");
        let lock = lock(directory.path(), "lock");
        let first = Owner::new(ARRAY, None, &lock).expect("there are random bytes");
        assert_eq!(first.claim().key, ReservationKey(0xab01_0203_0000_0001));
        let second = Owner::new(ARRAY, Some(&first.record()), &lock).expect("there are random bytes");
        assert_eq!(second.claim().key, ReservationKey(0xab01_0203_0000_0002));
        assert_ne!(first.host(), second.host(), "each program is a host of its own");
        assert_eq!(first.host().0[..8], second.host().0[..8]);
        let Preempts::HostsLike(place) = second.claim().preempts else { panic!("{:?}", second.claim()) };
        assert!(first.host().0.starts_with(&place), "an owner preempts an exited one with the same place");
    }

    #[test]
    fn a_copy_of_the_lock_is_another_place_and_so_is_another_volume() {
        let directory = tempfile::TempDir::new().expect("there is space");
        let original = lock(directory.path(), "lock");
        let copy = lock(directory.path(), "copy");
        let mut other = ARRAY;
        other[15] = 0;
        let places = [place_of(&ARRAY, &original), place_of(&ARRAY, &copy), place_of(&other, &original)];
        assert!(places[0] != places[1] && places[0] != places[2] && places[1] != places[2], "{places:02x?}");
        assert_eq!(places[0], place_of(&ARRAY, &original));
    }

    #[test]
    fn the_holder_of_a_reservation_is_described() {
        let holder = |key| Holder { host: HostId([1; 16]), key: ReservationKey(key) };
        assert_eq!(
            describe_holder("volume", &ARRAY, &holder(0xab01_0203_0000_0009)),
            "another server of this volume, owner epoch 9 (host 01010101-0101-0101-0101-010101010101)"
        );
        assert_eq!(
            describe_holder("pool", &ARRAY, &holder(5)),
            "host 01010101-0101-0101-0101-010101010101 with key 0000000000000005h"
        );
    }
}
