//! The conflict groups of a simulated drive, measured on a copy of it.

use std::convert::Infallible;
use std::sync::Arc;

use zonda_profiler::{GroupTable, Profiler, ProfilerConfig, Strategy, VirtualClock, run};
use zonda_sched::{ConflictGroup, ZoneGroups};
use zonda_ssd::Ssd;
use zonda_ssd::description::DrivePlan;
use zonda_zoned::{Blocks, Duration, NamespaceId, Prng, ZoneIndex, ZonedDevice};

use crate::drive::DriveNode;
use crate::node::Factory;

/// Zones that are measured; the groups of others follow from the order of allocation, where the drive
/// has one.
const SAMPLE_ZONES: u32 = 256;
/// The time of the measurement, in the time of the copy.
const BUDGET: Duration = Duration::from_secs(60);

/// A copy of a drive before the run: its zones are `written`, the others are full.
struct Copy {
    written: Vec<(ZoneIndex, Blocks)>,
}

impl Factory<Arc<DrivePlan>> for Copy {
    type Drive = Ssd;
    type Error = Infallible;

    fn drive(&mut self, plan: &Arc<DrivePlan>, prng: &Prng) -> Result<Ssd, Infallible> {
        let mut drive = Ssd::new(plan.profile(), plan.keeps(), prng);
        let geometry = plan.profile().geometry();
        let mut is_written = vec![false; geometry.zone_count as usize];
        for (zone, blocks) in self.written.drain(..) {
            drive.prefill(zone, blocks).expect("the limit on active zones was checked");
            is_written[zone.as_usize()] = true;
        }
        let others = geometry.conventional_zone_count..geometry.zone_count;
        for zone in others.filter(|zone| !is_written[*zone as usize]) {
            drive.prefill(ZoneIndex(zone), geometry.zone_capacity_blocks).expect("full zones are not active");
        }
        Ok(drive)
    }
}

/// Measures the groups of a device as it is before a run. The copy takes the random numbers of the
/// device, so that its zones are on the same dies; the device itself is not used.
pub(crate) fn measured_groups(device: &DriveNode, written: Vec<(ZoneIndex, Blocks)>, prng: &Prng) -> ZoneGroups {
    let Ok(mut copy) = device.build(&mut Copy { written }, prng);
    let geometry = copy.geometry(NamespaceId::FIRST).clone();
    let config = ProfilerConfig {
        namespace: NamespaceId::FIRST,
        strategy: Strategy::Search,
        budget: Some(BUDGET),
        sample_zones: Some(SAMPLE_ZONES),
        prng: prng.fork("groups"),
    };
    let mut profiler = Profiler::new(&geometry, config);
    let table = run(&mut profiler, &mut copy, &mut VirtualClock::default(), &mut |_, _| {});
    // Without a report of zones, by an injected fault, no group is known.
    table.map_or_else(|_| ZoneGroups::default(), |table| zone_groups(&table))
}

/// The groups of a table as a scheduler uses them.
fn zone_groups(table: &GroupTable) -> ZoneGroups {
    let group = |zone| table.group(ZoneIndex(zone)).map(|group| ConflictGroup(group.0));
    ZoneGroups::new((0..table.zones.len() as u32).map(group))
}
