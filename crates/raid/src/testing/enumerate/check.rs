//! Mounts what is left of a volume, reads it, and compares it with what was promised.

use super::media::Media;
use super::testbed::{BlockRead, Mounted, Point, Stop, Testbed};
use super::{Fault, Op, Setup};
use crate::testing::{Model, Promise, Violation};

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which one.
    pub what: What,
    /// At which mount.
    pub stage: Stage,
    /// Whether the volume tolerates what is missing and damaged.
    pub is_tolerated: bool,
    /// For a person.
    pub message: String,
}

/// One mount of a case after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// None yet.
    Before,
    /// The first one.
    First,
    /// The same again; what is written then is there at the next one.
    Again,
    /// What was written at the one before must be there.
    Written,
    /// Who was absent is back.
    Back,
    /// What could not be read can be read.
    Readable,
}

/// How a promise was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// The operations themselves did not end as they must.
    History,
    /// A mount is refused that must succeed.
    Refused,
    /// A read fails that must succeed.
    ReadError,
    /// A read returns zeros where something was acknowledged, and not trimmed.
    Zeros,
    /// A read returns an older version than was acknowledged, or what was trimmed.
    Older,
    /// A read returns another version than it did at an earlier mount.
    Changed,
    /// A read failed, and succeeds at the next mount, though nothing is there that was missing.
    ErrorForgotten,
    /// A read succeeded, and fails at the next mount.
    ValueLost,
    /// The volume does not quiesce, or a request does not end.
    Hangs,
    /// The volume panicked.
    Panics,
}

/// A volume that is down, and what it must return.
#[derive(Debug)]
pub(super) struct Remains {
    pub(super) setup: Setup,
    pub(super) media: Vec<Media>,
    pub(super) model: Model,
    /// Members that were not active, as bits.
    pub(super) inactive: u32,
}

/// One case on its way.
struct Check {
    setup: Setup,
    media: Vec<Media>,
    model: Model,
    mounts: u32,
    stage: Stage,
    is_tolerated: bool,
    /// What the mount before has brought.
    before: Option<Vec<BlockRead>>,
}

impl Remains {
    pub(super) fn of(point: &Point, media: Vec<Media>) -> Remains {
        let mut model = point.model.clone();
        model.crash();
        Remains { setup: point.setup, media, model, inactive: point.inactive }
    }

    /// Mounts it with these faults. Returns how often it was mounted.
    pub(super) fn check(&self, faults: &[Fault]) -> Result<u32, Failure> {
        let mut check = Check {
            setup: self.setup,
            media: self.media.clone(),
            model: self.model.clone(),
            mounts: 0,
            stage: Stage::Before,
            is_tolerated: true,
            before: None,
        };
        let damaged = faults.iter().filter(|fault| matches!(fault, Fault::Block { .. } | Fault::Zone { .. }));
        let damaged = self.inactive | damaged.fold(0, |bits, fault| bits | fault.members());
        for fault in faults {
            match *fault {
                Fault::Block { member, lba, damage } => check.media[member].damage(lba, damage),
                Fault::Zone { member, zone } => check.media[member].offline(zone),
                Fault::Absent(_) | Fault::Swapped(..) => {}
            }
        }
        let absences = faults.iter().find_map(|fault| match *fault {
            Fault::Absent(members) => Some((members, 0)),
            Fault::Swapped(first, second) => Some((first, second)),
            Fault::Block { .. } | Fault::Zone { .. } => None,
        });
        let (first, second) = absences.unwrap_or((0, 0));
        let mut is_mounted = check.mount(Stage::First, damaged | first, first, absences.is_some())?;
        let is_unreadable = |fault: &Fault| matches!(fault, Fault::Block { damage: super::Damage::Unreadable, .. });
        let may_be_readable = faults.iter().any(is_unreadable);
        if is_mounted {
            // What is written now must be there at the mount after that.
            let writes = absences.is_none() && !may_be_readable && check.is_tolerated;
            check.mount(Stage::Again, damaged | first, first, writes)?;
            if writes {
                check.mount(Stage::Written, damaged, 0, false)?;
            }
        }
        if absences.is_some() {
            // Who was absent while others were written to is as good as failed.
            let stale = if is_mounted { first } else { 0 };
            check.forget_errors();
            is_mounted |= check.mount(Stage::Back, damaged | stale | second, second, false)?;
        }
        if may_be_readable {
            check.media.iter_mut().for_each(Media::heal);
            check.forget_errors();
            // What was refused has changed nothing.
            check.mount(
                Stage::Readable,
                if is_mounted { damaged | first | second } else { self.inactive },
                0,
                false,
            )?;
        }
        Ok(check.mounts)
    }
}

impl Check {
    /// Mounts the volume while these members are affected by anything, reads it, and lets the power fail. Says whether it was
    /// mounted.
    fn mount(&mut self, stage: Stage, affected: u32, absent: u32, writes: bool) -> Result<bool, Failure> {
        self.mounts += 1;
        self.stage = stage;
        self.is_tolerated = affected.count_ones() <= self.setup.tolerates();
        self.model.is_lost = !self.is_tolerated;
        let (mut bed, mounted) = Testbed::mount(self.setup, self.media.clone(), self.model.clone(), absent)
            .map_err(|stop| self.stopped(stop))?;
        if let Mounted::Refused(error) = mounted {
            if self.is_tolerated {
                return Err(self.failure(What::Refused, error.to_string()));
            }
            (self.media, _) = bed.into_parts();
            self.before = None;
            return Ok(false);
        }
        let blocks = bed.read_all().map_err(|stop| self.stopped(stop))?;
        self.compare(&blocks)?;
        if self.is_tolerated {
            bed.model.expect_rest().map_err(|violation| self.failure(What::Hangs, violation.message))?;
        }
        self.before = Some(blocks);
        if writes {
            self.write(&mut bed)?;
        }
        bed.power_cut();
        (self.media, self.model) = bed.into_parts();
        Ok(true)
    }

    /// Writes two blocks, and flushes.
    fn write(&mut self, bed: &mut Testbed) -> Result<(), Failure> {
        for op in [Op::WriteTwo, Op::Flush] {
            let ended = op.requests().iter().try_for_each(|request| bed.request(request));
            ended.map_err(Stop::from).and_then(|()| bed.quiesce()).map_err(|stop| self.stopped(stop))?;
        }
        let before = self.before.iter_mut().flatten();
        before
            .zip(bed.read_all().map_err(|stop| stopped(stop, self.stage, self.is_tolerated))?)
            .for_each(|(before, after)| *before = after);
        Ok(())
    }

    fn compare(&self, blocks: &[BlockRead]) -> Result<(), Failure> {
        for (lba, block) in blocks.iter().enumerate() {
            let before = self.before.as_ref().map(|before| &before[lba]);
            let what = match (before, block) {
                (_, BlockRead::Error) if self.is_tolerated => What::ReadError,
                (Some(BlockRead::Data(_)), BlockRead::Error) => What::ValueLost,
                (Some(BlockRead::Error), BlockRead::Data(_)) => What::ErrorForgotten,
                (Some(BlockRead::Data(before)), BlockRead::Data(data)) if before != data => What::Changed,
                _ => continue,
            };
            return Err(self.failure(what, format!("block {lba}")));
        }
        Ok(())
    }

    /// Somebody who was missing is back: what failed may succeed.
    fn forget_errors(&mut self) {
        // What was read once is the model's to remember.
        self.before = None;
    }

    fn failure(&self, what: What, message: String) -> Failure {
        Failure { what, stage: self.stage, is_tolerated: self.is_tolerated, message }
    }

    fn stopped(&self, stop: Stop) -> Failure {
        stopped(stop, self.stage, self.is_tolerated)
    }
}

fn stopped(stop: Stop, stage: Stage, is_tolerated: bool) -> Failure {
    let (what, message) = match stop {
        Stop::Hangs => (What::Hangs, "the volume does not quiesce".to_owned()),
        Stop::Refused(error) => (What::Refused, error.to_string()),
        Stop::Idle => (What::History, "an operation has nothing to do".to_owned()),
        Stop::Violation(violation) => (what_of(&violation), violation.message),
    };
    Failure { what, stage, is_tolerated, message }
}

fn what_of(violation: &Violation) -> What {
    match violation.promise {
        Promise::Ends => What::Hangs,
        Promise::Answers => What::ReadError,
        _ if violation.message.contains("when it was read before") => What::Changed,
        _ if violation.message.ends_with("and has zeros") => What::Zeros,
        _ => What::Older,
    }
}

pub(super) fn history_failure(stop: Stop) -> Failure {
    Failure { what: What::History, ..stopped(stop, Stage::Before, true) }
}
