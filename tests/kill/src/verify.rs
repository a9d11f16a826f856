//! Verification after a restart.

use zonda_zoned::{Blocks, Lba, Operation, Outcome, ReportFilter, ZoneIndex};

use crate::host::{Channel, connect, open, read_all, read_what_can_be};
use crate::loss::{Loss, RunError};
use crate::oracle::{Floor, FoundZone, PlainHistory, ZoneHistory};
use crate::stamp::{Contents, Stamper};

/// Blocks of one read: 1 MiB.
const READ_BLOCKS: u64 = 256;
/// The maximum of losses reported per namespace.
const LOSSES_MAX: usize = 10;

/// Checks every zone against its history, which continues from the state found.
///
/// # Errors
/// The losses, or why verification failed.
pub(crate) fn zones(url: &str, stamper: &Stamper, histories: &mut [ZoneHistory]) -> Result<(), RunError> {
    let mut connection = connect(url)?;
    let geometry = connection.geometry().clone();
    let report = Operation::ReportZones {
        start: Lba(0),
        filter: ReportFilter::All,
        extended: false,
        partial: true,
        descriptors_max: geometry.zone_count,
    };
    let completion = connection.execute(report).map_err(|error| RunError::Failed(error.to_string()))?;
    let Outcome::Report(report) = completion.outcome else {
        return Err(RunError::lost(Loss::new("report zones", "a report", completion.status)));
    };
    if report.zones.len() != histories.len() {
        return Err(RunError::lost(Loss::new("report zones", histories.len(), report.zones.len())));
    }
    let mut connection = Channel::Nvme(Box::new(connection));
    let capacity = geometry.zone_capacity_blocks.0;
    let mut losses = Vec::new();
    for ((index, history), descriptor) in (0..).zip(histories).zip(&report.zones) {
        let start = geometry.zone_start(ZoneIndex(index));
        let contents = read_all(&mut connection, stamper, &ranges(start, capacity))?.concat();
        let pointer = descriptor.write_pointer.map(|pointer| (pointer - start).0);
        let found = FoundZone { state: descriptor.state, pointer, contents };
        if let Err(mismatch) = history.resume_from(&found) {
            let block = mismatch
                .block
                .map_or(String::new(), |block| format!(", block {block} (LBA {})", start + Blocks(block)));
            losses.push(Loss::new(format!("zoned namespace, zone {index}{block}"), mismatch.expected, mismatch.found));
        }
    }
    losses.truncate(LOSSES_MAX);
    connection.close();
    if losses.is_empty() { Ok(()) } else { Err(RunError::Lost(losses)) }
}

/// Checks every block of a conventional namespace against its history, which continues from the
/// contents found.
///
/// # Errors
/// The losses, or why verification failed.
pub(crate) fn plain(url: &str, stamper: &Stamper, history: &mut PlainHistory) -> Result<(), RunError> {
    let mut connection = open(url)?;
    let contents = read_all(&mut connection, stamper, &ranges(Lba(0), history.blocks()))?.concat();
    let mismatches = (0..).zip(&contents).filter_map(|(block, &found)| history.check(block, found).err());
    let to_loss = |mismatch: crate::oracle::Mismatch| {
        let block = mismatch.block.map_or(String::new(), |block| format!(", block {block}"));
        Loss::new(format!("conventional namespace{block}"), mismatch.expected, mismatch.found)
    };
    let losses: Vec<Loss> = mismatches.map(to_loss).take(LOSSES_MAX).collect();
    connection.close();
    if losses.is_empty() {
        history.resume_from(contents);
        Ok(())
    } else {
        Err(RunError::Lost(losses))
    }
}

/// The result of verifying a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verified {
    /// Blocks whose contents were checked.
    pub(crate) blocks: u64,
    /// Blocks whose read failed with a permitted error.
    pub(crate) errors: u64,
}

/// Reads every block of a volume and compares it with its history, which continues from the
/// contents found. With `may_fail` any read may fail, otherwise only reads of blocks that were
/// unreadable before and were not written since.
///
/// # Errors
/// The losses, or why verification failed.
pub(crate) fn volume(
    url: &str,
    stamper: &Stamper,
    history: &mut PlainHistory,
    floor: Floor,
    may_fail: bool,
) -> Result<Verified, RunError> {
    let mut connection = open(url)?;
    let whole = ranges(Lba(0), history.blocks());
    let mut found: Vec<Option<Contents>> = Vec::with_capacity(history.blocks() as usize);
    for (part, &(start, blocks)) in read_what_can_be(&mut connection, stamper, &whole)?.into_iter().zip(&whole) {
        match part {
            Some(contents) => found.extend(contents.into_iter().map(Some)),
            None => {
                let single: Vec<(Lba, u64)> = (start.0..start.0 + blocks).map(|lba| (Lba(lba), 1)).collect();
                let blocks = read_what_can_be(&mut connection, stamper, &single)?;
                found.extend(blocks.into_iter().map(|block| block.map(|contents| contents[0])));
            }
        }
    }
    connection.close();
    let mut verified = Verified::default();
    let mut losses = Vec::new();
    for (block, found) in (0..).zip(&found) {
        let was_unreadable = history.unreadable().contains(&block);
        let Some(found) = *found else {
            verified.errors += 1;
            if !may_fail && !was_unreadable {
                losses.push(Loss::new(format!("volume, block {block}"), history.expected(block), "an error"));
            }
            continue;
        };
        verified.blocks += 1;
        let floor = if was_unreadable { Floor::Flushed } else { floor };
        if let Err(mismatch) = history.check_from(block, found, floor) {
            losses.push(Loss::new(format!("volume, block {block}"), mismatch.expected, mismatch.found));
        }
    }
    if !losses.is_empty() {
        let count = losses.len();
        losses.truncate(LOSSES_MAX);
        losses.push(Loss::new("volume", "no wrong block", count));
        return Err(RunError::Lost(losses));
    }
    for (block, found) in (0..).zip(found) {
        match found {
            Some(found) => history.resume_block_from(block, found),
            None => history.mark_unreadable(block),
        }
    }
    Ok(verified)
}

fn ranges(start: Lba, blocks: u64) -> Vec<(Lba, u64)> {
    let firsts = (0..blocks).step_by(READ_BLOCKS as usize);
    firsts.map(|first| (start + Blocks(first), READ_BLOCKS.min(blocks - first))).collect()
}
