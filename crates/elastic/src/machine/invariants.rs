//! What holds between any two calls.

use super::Pool;
use crate::zones::ZoneUse;

impl Pool {
    /// Checks that the parts of the pool agree.
    ///
    /// # Panics
    /// If they do not.
    pub fn check_invariants(&self) {
        self.balloon.check_invariants();
        self.zones.check_invariants();
        let mut owners = vec![None; self.drive.zone_count as usize];
        let (mut active, mut draining) = (0, 0);
        for (id, namespace) in self.namespaces.iter() {
            for (index, vzone) in namespace.vzones.iter().enumerate() {
                vzone.check_invariants();
                let index = index as u32;
                for zone in vzone.groups.iter().flat_map(|group| group.zones()) {
                    let before = owners[*zone as usize].replace((*id, index));
                    assert_eq!(before, None, "zone {zone} is in one group");
                    let expected = ZoneUse::Group { namespace: *id, vzone: index };
                    assert_eq!(self.zones.zone_use(*zone), expected, "the owner of zone {zone}");
                }
                for held in &vzone.grants {
                    active += held.grant.width;
                    draining += if held.is_draining { held.grant.width } else { 0 };
                }
                let is_lost = vzone.has_failed || vzone.is_offline || vzone.is_damaged;
                let stands = namespace.table.readable_blocks(zonda_zoned::ZoneIndex(index)).0;
                // A namespace that is deleted resets its v-zones one by one, and has no host.
                let is_quiet = vzone.is_idle() && !is_lost && !namespace.is_leaving;
                assert!(
                    !is_quiet || stands == vzone.written,
                    "v-zone {index}: {stands} blocks for the host, {vzone:?}"
                );
            }
        }
        let ending = self.endings.iter().map(|(_, ending)| ending.zones.len() as u32).sum::<u32>();
        let leaving = self.leaving_widths.values().sum::<u32>();
        let leaving = leaving + self.leaving_copies + self.active_to_reset;
        assert_eq!(draining + ending + leaving, self.zones.draining(), "groups drain from their last block on");
        active += ending + leaving + self.reclaim.as_ref().map_or(0, super::reclaim::Reclaim::width);
        assert_eq!(active, self.zones.active_in_groups(), "each active zone is of a group that can be written");
        let is_over = self.hosts.is_empty() && self.ops.is_empty();
        assert!(!is_over || self.direct_reads == 0, "a read is at the drive");
    }
}
