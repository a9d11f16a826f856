//! A scenario with conflict groups: everything that is generated from a seed before the first event.

use serde::{Deserialize, Serialize};
use zonda_zoned::reference::random_geometry;
use zonda_zoned::{Geometry, Prng};

use crate::drive::one_of;
use crate::options::{Options, Part};

/// Label of the fork of the seed for these scenarios and their runs.
pub(crate) const FORK: &str = "groups";

/// Everything that is generated from a seed before the first event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupsSimulation {
    pub(crate) root: Prng,
    pub(crate) geometry: Geometry,
    pub(crate) drive: HiddenGroups,
    pub(crate) scheduler: Table,
    pub(crate) load: GroupsLoad,
}

/// The drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HiddenGroups {
    /// The group of each zone.
    pub(crate) of_zone: Vec<u32>,
    /// The command before which they change, and the groups then.
    pub(crate) changes_at: Option<u64>,
    pub(crate) after_change: Vec<u32>,
    /// The time of a command, and how much it varies.
    pub(crate) service_ns: u64,
    pub(crate) noise_ns: u64,
    /// Commands in flight that the drive accepts: writes, and all.
    pub(crate) writes_max: u64,
    pub(crate) all_max: u64,
}

/// The scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// The group of each zone; -1 if it is unknown.
    pub(crate) of_zone: Vec<i64>,
    pub(crate) learns: bool,
    /// Whether the order inside groups is that of eZNS.
    pub(crate) is_ezns_within: bool,
    pub(crate) in_flight_max: u64,
}

/// The host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupsLoad {
    pub(crate) commands: u64,
    pub(crate) queue_depth: u64,
    pub(crate) tenants: u64,
    pub(crate) background_percent: u64,
    /// Commands that are reads of a block; the others are random commands.
    pub(crate) reads_percent: u64,
}

impl GroupsSimulation {
    pub(crate) fn new(seed: u64, options: &Options) -> GroupsSimulation {
        let root = Prng::new(seed).fork(FORK);
        let geometry = random_geometry(&mut root.fork("geometry"));
        let drive = generate_drive(&root, options, geometry.zone_count);
        let learns = root.fork("learns").chance(1, 3);
        GroupsSimulation {
            scheduler: generate_table(&root, options, &drive, learns),
            load: generate_load(&root, options, learns),
            geometry,
            drive,
            root,
        }
    }

    /// Whether the table is right, from the beginning to the end of the run.
    pub(crate) fn is_right(&self) -> bool {
        let agrees = |(own, table): (&u32, &i64)| i64::from(*own) == *table;
        self.drive.changes_at.is_none() && self.drive.of_zone.iter().zip(&self.scheduler.of_zone).all(agrees)
    }

    /// Whether the drive refuses no command that the scheduler releases.
    pub(crate) fn is_never_full(&self) -> bool {
        self.drive.writes_max.min(self.drive.all_max) >= self.scheduler.in_flight_max
    }
}

fn generate_drive(root: &Prng, options: &Options, zones: u32) -> HiddenGroups {
    let mut prng = root.fork("drive");
    let groups = 1 + prng.below(8) as u32;
    let random = |label: &str| {
        let mut prng = root.fork(label);
        (0..zones).map(|_| prng.below(u64::from(groups)) as u32).collect::<Vec<u32>>()
    };
    let (of_zone, after_change) = (random("zones"), random("zones after the change"));
    let service_ns = one_of(&mut prng, &[100, 1_000, 70_000]);
    let has_change = prng.chance(1, 3) && options.has(Part::Degradation);
    let changes_at = has_change.then(|| 1 + prng.below(2_000));
    let is_narrow = prng.chance(1, 2) && options.has(Part::Faults);
    HiddenGroups {
        of_zone,
        changes_at,
        after_change,
        service_ns,
        noise_ns: if options.has(Part::Delays) { one_of(&mut prng, &[0, service_ns / 4, service_ns / 2]) } else { 0 },
        writes_max: if is_narrow { 1 + prng.below(6) } else { 1 << 20 },
        all_max: if is_narrow { 1 + prng.below(12) } else { 1 << 20 },
    }
}

fn generate_table(root: &Prng, options: &Options, drive: &HiddenGroups, learns: bool) -> Table {
    let mut prng = root.fork("table");
    let mut of_zone: Vec<i64> = drive.of_zone.iter().copied().map(i64::from).collect();
    match prng.below(4) {
        // Right.
        0 | 1 => {}
        // Wrong: the groups of other zones.
        2 => {
            for place in (1..of_zone.len()).rev() {
                of_zone.swap(place, prng.below(place as u64 + 1) as usize);
            }
        }
        // Incomplete.
        _ => of_zone.iter_mut().filter(|_| prng.chance(1, 3)).for_each(|group| *group = -1),
    }
    Table {
        of_zone,
        learns,
        is_ezns_within: root.fork("within").chance(1, 4) && options.has(Part::Scheduler),
        in_flight_max: 1 + prng.below(16),
    }
}

fn generate_load(root: &Prng, options: &Options, learns: bool) -> GroupsLoad {
    let mut prng = root.fork("load");
    // A scheduler that learns needs reads.
    let commands = if learns { 4_000 } else { 1 + prng.below(600) };
    let commands = commands * options.scale.max(1);
    let queue_depth = 1 + prng.below(64);
    GroupsLoad {
        commands: options.commands_max.map_or(commands, |most| commands.min(most)),
        queue_depth: options.queue_depth_max.map_or(queue_depth, |most| queue_depth.min(u64::from(most.max(1)))),
        tenants: 1 + prng.below(4),
        background_percent: one_of(&mut prng, &[0, 10, 50]),
        reads_percent: if learns { 90 } else { one_of(&mut prng, &[0, 50, 100]) },
    }
}
