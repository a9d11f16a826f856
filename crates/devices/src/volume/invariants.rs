//! The invariants of a mounted volume and its devices.

use std::collections::BTreeSet;

use super::VolumeDrive;
use super::adopt::Role;
use super::drive::Phase;

impl VolumeDrive {
    /// Panics if the state contradicts itself. Scenarios call this after each poll.
    pub fn check_invariants(&self) {
        self.on.volume().check_invariants();
        self.devices().for_each(|device| device.check_invariants());
        for spare in &self.spares {
            // It would be lost to this volume after the next start, though it stays locked now.
            let is_listed = self.directory.file.spare.iter().any(|listed| listed.at == spare.place.at);
            assert!(is_listed, "the spare {} is not in volume.toml", spare.place.at);
        }
        self.check_returns();
        let mut opened = BTreeSet::new();
        for adoption in &self.adoptions {
            let (Role::Return(member) | Role::Reconnect(member) | Role::Ask(member)) = adoption.role else { continue };
            // Two devices would be attached in its place, one after the other.
            assert!(opened.insert(member), "the drive of member {} is opened twice at once", member.0);
        }
        if self.phase == Phase::Closing {
            assert!(self.spares.is_empty(), "a closed volume locks spares");
            let is_attached = |member| self.on.member(member).is_some();
            assert!(!self.members().any(is_attached), "a closed volume uses members");
        }
    }
}
