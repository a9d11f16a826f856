//! Looking at everything after a restart.

use zonda_zoned::{Blocks, Lba, Operation, Outcome, ReportFilter, ZoneIndex};

use crate::host::{connect, read_all};
use crate::loss::{Loss, Trouble};
use crate::oracle::{FoundZone, PlainHistory, ZoneHistory};
use crate::stamp::Stamper;

/// Blocks of one read: 1 MiB.
const READ_BLOCKS: u64 = 256;
/// Losses that are told of one namespace.
const LOSSES_MAX: usize = 10;

/// Holds every zone against its history, which goes on from what was found.
///
/// # Errors
/// What was lost, or what stood in the way.
pub(crate) fn zones(url: &str, stamper: &Stamper, histories: &mut [ZoneHistory]) -> Result<(), Trouble> {
    let mut connection = connect(url)?;
    let geometry = connection.geometry().clone();
    let report = Operation::ReportZones {
        start: Lba(0),
        filter: ReportFilter::All,
        extended: false,
        partial: true,
        descriptors_max: geometry.zone_count,
    };
    let completion = connection.execute(report).map_err(|error| Trouble::Stuck(error.to_string()))?;
    let Outcome::Report(report) = completion.outcome else {
        return Err(Trouble::lost(Loss::new("report zones", "a report", completion.status)));
    };
    if report.zones.len() != histories.len() {
        return Err(Trouble::lost(Loss::new("report zones", histories.len(), report.zones.len())));
    }
    let capacity = geometry.zone_capacity_blocks.0;
    let mut losses = Vec::new();
    for ((index, history), descriptor) in (0..).zip(histories).zip(&report.zones) {
        let start = geometry.zone_start(ZoneIndex(index));
        let contents = read_all(&mut connection, stamper, &ranges(start, capacity))?.concat();
        let pointer = descriptor.write_pointer.map(|pointer| (pointer - start).0);
        let found = FoundZone { state: descriptor.state, pointer, contents };
        if let Err(mismatch) = history.settle(&found) {
            let block = mismatch
                .block
                .map_or(String::new(), |block| format!(", block {block} (LBA {})", start + Blocks(block)));
            losses.push(Loss::new(format!("zoned namespace, zone {index}{block}"), mismatch.expected, mismatch.found));
        }
    }
    losses.truncate(LOSSES_MAX);
    close(connection);
    if losses.is_empty() { Ok(()) } else { Err(Trouble::Lost(losses)) }
}

/// Holds every block of a conventional namespace against its history, which goes on from what was found.
///
/// # Errors
/// What was lost, or what stood in the way.
pub(crate) fn plain(url: &str, stamper: &Stamper, history: &mut PlainHistory) -> Result<(), Trouble> {
    let mut connection = connect(url)?;
    let contents = read_all(&mut connection, stamper, &ranges(Lba(0), history.blocks()))?.concat();
    let mismatches = (0..).zip(&contents).filter_map(|(block, &found)| history.check(block, found).err());
    let to_loss = |mismatch: crate::oracle::Mismatch| {
        let block = mismatch.block.map_or(String::new(), |block| format!(", block {block}"));
        Loss::new(format!("conventional namespace{block}"), mismatch.expected, mismatch.found)
    };
    let losses: Vec<Loss> = mismatches.map(to_loss).take(LOSSES_MAX).collect();
    close(connection);
    if losses.is_empty() {
        history.settle(contents);
        Ok(())
    } else {
        Err(Trouble::Lost(losses))
    }
}

fn ranges(start: Lba, blocks: u64) -> Vec<(Lba, u64)> {
    let firsts = (0..blocks).step_by(READ_BLOCKS as usize);
    firsts.map(|first| (start + Blocks(first), READ_BLOCKS.min(blocks - first))).collect()
}

/// What was read has been read, however the connection ends.
fn close(connection: zonda_devices::Connection) {
    let _ = connection.close();
}
