//! What is done to a volume beside crashes and damage that it tolerates, as a seed decides it.
//!
//! Incidents are sequences of events that chance alone hardly ever brings about: too many members absent and back again, members
//! that are used without each other, a loss after a scrub. Each takes place between two crashes, and ends with a volume of which
//! it is known what it must return.

use zonda_zoned::Prng;

use super::Faults;

/// Of 1000 commands, at most, how many a hazard of a victim makes fail.
const FAULTS_MAX_PER_MILLE: u64 = 30;

/// One sequence of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Incident {
    /// More members are absent from a mount, or lost during it, than the volume can do without; then they are back.
    TooManyAbsent,
    /// More members than that have blocks that cannot be read for a while.
    UnreadableBlocks,
    /// More members than that are damaged for good.
    Damage,
    /// Members are used without each other in turn.
    SplitBrain,
    /// Members come back as they were a while ago.
    OldCopies,
    /// A member that the volume cannot do without pauses for longer than the timeout.
    NeededMemberPauses,
    /// All members have no space, fail or pause at once.
    SharedFailure,
    /// Damage, a scrub that ends, and then the loss of as many members as the volume tolerates.
    LossAfterScrub,
    /// The same with members that are absent from a mount, and a crash before the scrub.
    AbsenceAfterScrub,
    /// Members fail, are damaged or absent while they are rebuilt, and so do others.
    FailedRebuild,
    /// The same, and members that are being rebuilt are damaged.
    DamagedRebuild,
}

/// What happens beside crashes and damage within tolerance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hazards {
    /// Incidents, each with the round of load after which it takes place; rounds are separated by crashes.
    pub incidents: Vec<(u64, Incident)>,
    /// Resets of zones and reports on zones fail on victims.
    pub fails_resets: bool,
    /// Flushes of victims end, and do nothing.
    pub ignores_flushes: bool,
    /// Writes of victims go to other places, or end before all of it is written, and are reported as written.
    pub misdirects_writes: bool,
    /// Of 1000 steps, before how many the program does not run for a while.
    pub pauses_per_mille: u64,
    /// The volume's caller keeps the newest epoch, and hands it in at mounts.
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
    /// Draws what happens in a run with so many crashes.
    #[must_use]
    pub fn draw(root: &Prng, crashes: u64) -> Hazards {
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

    /// Whether victims are damaged by what they do themselves.
    #[must_use]
    pub fn damages_victims(&self) -> bool {
        self.ignores_flushes || self.misdirects_writes
    }

    /// What a victim does wrong beside its other faults.
    pub(super) fn add_to(&self, prng: &mut Prng, faults: &mut Faults) {
        let mut rate = |is_wanted: bool, most: u64| if is_wanted { 1 + prng.below(most) } else { 0 };
        faults.resets = rate(self.fails_resets, FAULTS_MAX_PER_MILLE);
        faults.reports = rate(self.fails_resets, FAULTS_MAX_PER_MILLE);
        faults.ignored_flushes = rate(self.ignores_flushes, 1000);
        faults.misdirected = rate(self.misdirects_writes, FAULTS_MAX_PER_MILLE);
    }
}
