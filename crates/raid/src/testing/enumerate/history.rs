//! Operations on a volume.

use std::fmt;
use std::str::FromStr;

use crate::testing::Request;

/// Commands of a member after which a rebuild is interrupted.
pub(super) const CUT_REBUILD_COMMANDS: usize = 12;

/// One operation. Host requests complete before the next operation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Writes two blocks at 0.
    WriteTwo,
    /// Writes three blocks at 1: the first is also written by [`WriteTwo`](Op::WriteTwo).
    WriteThree,
    /// Both writes at once.
    WriteBoth,
    /// The same, and the power fails after this many commands of members; then the volume is
    /// mounted.
    WriteCut(u8),
    /// Writes every block, two per request.
    Fill,
    /// Trims two blocks at 1.
    Trim,
    /// Flushes.
    Flush,
    /// Flushes, and the first flush of the first member fails.
    FlushFailing,
    /// Fails a member.
    Fail(u8),
    /// Replaces the failed members by empty ones, and rebuilds them.
    Rebuild,
    /// The same, and the power fails during the rebuild; then the volume is mounted.
    RebuildCut,
    /// Re-adds the failed members with their contents, and catches them up.
    Readd,
    /// The same, and the power fails after this many commands of members; then the volume is
    /// mounted.
    ReaddCut(u8),
    /// Stops the volume, mounts it with all members, and re-adds those that were missing.
    Back,
    /// Scrubs.
    Scrub,
    /// Stops the volume, and mounts it again.
    Remount,
    /// Stops the volume, and mounts it without a member; the next mount includes it again.
    Away(u8),
}

impl Op {
    /// The operations on a volume with this many members: the basic ones, or all.
    #[must_use]
    pub fn alphabet(members: usize, is_redundant: bool, is_full: bool) -> Vec<Op> {
        let mut ops = vec![Op::WriteTwo, Op::WriteThree, Op::Trim, Op::Flush, Op::Remount];
        if is_redundant {
            ops.extend([Op::Fail(0), Op::Rebuild, Op::Scrub]);
        }
        if is_full {
            ops.extend([Op::WriteBoth, Op::WriteCut(3), Op::WriteCut(6), Op::Fill]);
        }
        if is_full && is_redundant {
            ops.extend([Op::Fail(members as u8 - 1), Op::Away(0), Op::RebuildCut]);
            ops.extend([Op::Readd, Op::ReaddCut(10), Op::ReaddCut(25), Op::Back]);
        }
        ops
    }

    /// The host requests of an operation, submitted together.
    pub(super) fn requests(self) -> Vec<Request> {
        match self {
            Op::WriteTwo => vec![Request::Write { start: 0, blocks: 2 }],
            Op::WriteThree => vec![Request::Write { start: 1, blocks: 3 }],
            Op::WriteBoth => [Op::WriteTwo, Op::WriteThree].into_iter().flat_map(Op::requests).collect(),
            Op::Trim => vec![Request::Trim(vec![(1, 2)])],
            Op::Flush | Op::FlushFailing => vec![Request::Flush],
            _ => Vec::new(),
        }
    }

    /// Whether a history with these two in a row covers nothing that it does not cover without one
    /// of them.
    fn is_idle_after(self, before: Option<Op>) -> bool {
        match self {
            Op::Flush | Op::Scrub | Op::Remount => before == Some(self) || before.is_none() && self != Op::Remount,
            Op::Trim => before.is_none() || before == Some(Op::Trim),
            Op::Fail(_) | Op::Away(_) => before == Some(self),
            _ => false,
        }
    }
}

/// All histories of this many operations, except those in which an operation has nothing to do.
#[must_use]
pub fn histories(alphabet: &[Op], length: usize) -> Vec<Vec<Op>> {
    let mut all: Vec<Vec<Op>> = vec![Vec::new()];
    for _ in 0..length {
        let longer = |history: &Vec<Op>| {
            let last = history.last().copied();
            let has_failed = history.iter().any(|op| matches!(op, Op::Fail(_) | Op::Away(_)));
            let needs_failure =
                |op: Op| matches!(op, Op::Rebuild | Op::RebuildCut | Op::Readd | Op::ReaddCut(_) | Op::Back);
            let ops = alphabet.iter().filter(|op| !op.is_idle_after(last) && (has_failed || !needs_failure(**op)));
            ops.map(|&op| history.iter().copied().chain([op]).collect()).collect::<Vec<Vec<Op>>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::WriteTwo => f.write_str("w0"),
            Op::WriteThree => f.write_str("w1"),
            Op::WriteBoth => f.write_str("ww"),
            Op::Fill => f.write_str("fill"),
            Op::Trim => f.write_str("trim"),
            Op::Flush => f.write_str("flush"),
            Op::FlushFailing => f.write_str("flushfail"),
            Op::Fail(member) => write!(f, "fail{member}"),
            Op::Rebuild => f.write_str("rebuild"),
            Op::RebuildCut => f.write_str("rebuildcut"),
            Op::Readd => f.write_str("readd"),
            Op::ReaddCut(commands) => write!(f, "readdcut{commands}"),
            Op::Back => f.write_str("back"),
            Op::Scrub => f.write_str("scrub"),
            Op::Remount => f.write_str("remount"),
            Op::WriteCut(commands) => write!(f, "wwcut{commands}"),
            Op::Away(member) => write!(f, "away{member}"),
        }
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(text: &str) -> Result<Op, String> {
        Ok(match text {
            "w0" => Op::WriteTwo,
            "w1" => Op::WriteThree,
            "ww" => Op::WriteBoth,
            "fill" => Op::Fill,
            "trim" => Op::Trim,
            "flush" => Op::Flush,
            "flushfail" => Op::FlushFailing,
            "rebuild" => Op::Rebuild,
            "rebuildcut" => Op::RebuildCut,
            "readd" => Op::Readd,
            "back" => Op::Back,
            "scrub" => Op::Scrub,
            "remount" => Op::Remount,
            _ => {
                let number = |prefix: &str| text.strip_prefix(prefix).and_then(|number| number.parse().ok());
                let op = number("fail").map(Op::Fail).or(number("away").map(Op::Away));
                let op = op.or(number("readdcut").map(Op::ReaddCut));
                op.or(number("wwcut").map(Op::WriteCut)).ok_or(format!("unknown operation \"{text}\""))?
            }
        })
    }
}
