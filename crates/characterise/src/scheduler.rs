//! [`SchedulerName`]: the I/O schedulers that are compared.

use serde::{Deserialize, Serialize};
use zonda_profiler::GroupTable;
use zonda_sched::{ConflictGroup, EznsConfig, InterferenceConfig, MqDeadlineConfig, Policy, ZoneGroups};
use zonda_zoned::ZoneIndex;

/// An I/O scheduler of a server, with its default parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerName {
    /// Commands go to the drive as they arrive.
    None,
    /// As the Linux scheduler of that name.
    MqDeadline,
    /// As the scheduler of eZNS.
    Ezns,
    /// By conflict groups of zones.
    Interference,
}

impl SchedulerName {
    /// All of them, the simplest first.
    pub const ALL: [SchedulerName; 4] =
        [SchedulerName::None, SchedulerName::MqDeadline, SchedulerName::Ezns, SchedulerName::Interference];

    /// The value of `scheduler` in `zonda.toml`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SchedulerName::None => "none",
            SchedulerName::MqDeadline => "mq-deadline",
            SchedulerName::Ezns => "ezns",
            SchedulerName::Interference => "interference",
        }
    }

    /// The scheduler as a server has it; `None` if it needs conflict groups and there are none.
    pub(crate) fn policy(self, groups: Option<&ZoneGroups>) -> Option<Policy> {
        Some(match self {
            SchedulerName::None => Policy::None,
            SchedulerName::MqDeadline => Policy::MqDeadline(MqDeadlineConfig::default()),
            SchedulerName::Ezns => Policy::Ezns(EznsConfig::default()),
            SchedulerName::Interference => Policy::Interference(InterferenceConfig::new(groups?.clone())),
        })
    }
}

impl std::fmt::Display for SchedulerName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// The groups of a table as a scheduler uses them; `None` if zones have none.
pub(crate) fn zone_groups(table: &GroupTable) -> Option<ZoneGroups> {
    let group = |zone| table.group(ZoneIndex(zone)).map(|group| ConflictGroup(group.0));
    (table.groups() > 1).then(|| ZoneGroups::new((0..table.zones.len() as u32).map(group)))
}
