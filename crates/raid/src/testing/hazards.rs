//! Hazards beyond crashes and tolerated damage, as a seed chooses them.
//!
//! Incidents are sequences of events that random faults hardly ever produce: too many members
//! absent and back again, members used independently of each other, a loss after a scrub. Each
//! takes place between two crashes, and ends with a volume whose contents are known.

use zonda_zoned::Prng;

use super::Faults;

/// Maximum fault rate of a victim, per 1000 commands.
const FAULTS_MAX_PER_MILLE: u64 = 30;

/// One sequence of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Incident {
    /// More members are absent from a mount, or lost during it, than the volume tolerates; then
    /// they return.
    TooManyAbsent,
    /// More members than that have temporarily unreadable blocks.
    UnreadableBlocks,
    /// More members than that are permanently damaged.
    Damage,
    /// Members are used independently of each other, one side after the other.
    SplitBrain,
    /// Members revert to an older copy.
    OldCopies,
    /// A member that the volume needs pauses for longer than the timeout.
    NeededMemberPauses,
    /// All members run out of space, fail or pause at once.
    SharedFailure,
    /// Damage, a scrub that completes, and then the loss of as many members as the volume
    /// tolerates.
    LossAfterScrub,
    /// The same with members that are absent from a mount, and a crash before the scrub.
    AbsenceAfterScrub,
    /// Members fail, are damaged or absent during their rebuild, and so do others.
    FailedRebuild,
    /// The same, and members that are being rebuilt are damaged.
    DamagedRebuild,
}

/// Hazards beyond crashes and tolerated damage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hazards {
    /// Incidents, each with the round of load after which it takes place; rounds are separated by
    /// crashes.
    pub incidents: Vec<(u64, Incident)>,
    /// Resets of zones and zone reports of victims fail.
    pub fails_resets: bool,
    /// Flushes of victims succeed without effect.
    pub ignores_flushes: bool,
    /// Writes of victims go to other places, or are incomplete, and are reported as successful.
    pub misdirects_writes: bool,
    /// Per 1000 steps, how often the program is paused.
    pub pauses_per_mille: u64,
    /// The volume's caller stores the newest epoch, and passes it to mounts.
    pub keeps_epochs: bool,
}

impl Incident {
    /// Every incident, with its name.
    pub const ALL: [(&'static str, Incident); 11] = [
        ("too many members absent", Incident::TooManyAbsent),
        ("unreadable blocks beyond tolerance", Incident::UnreadableBlocks),
        ("damage beyond tolerance", Incident::Damage),
        ("split brain", Incident::SplitBrain),
        ("old copies of members", Incident::OldCopies),
        ("a needed member pauses", Incident::NeededMemberPauses),
        ("a failure of all members", Incident::SharedFailure),
        ("losses after a scrub", Incident::LossAfterScrub),
        ("absences after a scrub", Incident::AbsenceAfterScrub),
        ("failures during a rebuild", Incident::FailedRebuild),
        ("damage during a rebuild", Incident::DamagedRebuild),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Incident::ALL.iter().find(|(_, incident)| *incident == self).map_or("", |(name, _)| *name)
    }
}

impl Hazards {
    /// Chooses the hazards of a run with this many crashes.
    #[must_use]
    pub fn generate(root: &Prng, crashes: u64) -> Hazards {
        let mut prng = root.fork("incidents");
        let count = match prng.below(20) {
            0..10 => 0,
            10..18 => 1,
            _ => 2,
        };
        let mut one = || (prng.below(crashes + 1), prng.pick(&Incident::ALL).expect("there are incidents").1);
        let mut incidents: Vec<(u64, Incident)> = (0..count).map(|_| one()).collect();
        incidents.sort_unstable();
        incidents.dedup();
        Hazards {
            incidents,
            fails_resets: root.fork("failed resets").chance(1, 6),
            ignores_flushes: root.fork("ignored flushes").chance(1, 6),
            misdirects_writes: root.fork("misdirected writes").chance(1, 6),
            pauses_per_mille: if root.fork("program pauses").chance(1, 6) { 2 } else { 0 },
            keeps_epochs: root.fork("kept epochs").chance(3, 4),
        }
    }

    /// Whether victims are damaged by their own faults.
    #[must_use]
    pub fn damages_victims(&self) -> bool {
        self.ignores_flushes || self.misdirects_writes
    }

    /// Adds the hazards to the faults of a victim.
    pub(super) fn add_to(&self, prng: &mut Prng, faults: &mut Faults) {
        let mut rate = |is_wanted: bool, most: u64| if is_wanted { 1 + prng.below(most) } else { 0 };
        faults.resets = rate(self.fails_resets, FAULTS_MAX_PER_MILLE);
        faults.reports = rate(self.fails_resets, FAULTS_MAX_PER_MILLE);
        faults.ignored_flushes = rate(self.ignores_flushes, 1000);
        faults.misdirected = rate(self.misdirects_writes, FAULTS_MAX_PER_MILLE);
    }
}
