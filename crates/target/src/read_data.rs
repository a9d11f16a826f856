//! Converts data from a device for the host: pieces that are not copied, interleaved metadata, zone
//! reports.

use bytes::Bytes;
use zonda_nvme::io::{NamespaceFormat, interleave};
use zonda_nvme::tcp::zeros;
use zonda_nvme::zns::ReportFormat;
use zonda_zoned::{Blocks, Geometry, Outcome, Payload};

/// The data of a read; `None` if the outcome is not the data of so many blocks. A payload without
/// contents is zeros.
pub(crate) fn read_pieces(outcome: Outcome, blocks: Blocks, format: &NamespaceFormat) -> Option<Vec<Bytes>> {
    match outcome {
        Outcome::Data(Payload::Bytes(buffer)) => {
            let fits = Payload::Bytes(buffer);
            if !fits.fits(blocks.0, format.block_size_bytes, format.metadata_bytes) {
                return None;
            }
            let Payload::Bytes(buffer) = fits else { return None };
            Some(vec![interleave(&buffer, format)])
        }
        Outcome::Data(Payload::None) => Some(zeros(blocks.bytes(format.block_bytes()) as usize).collect()),
        _ => None,
    }
}

/// A zone report of exactly `bytes` bytes; `None` if the outcome is not a report.
pub(crate) fn report_bytes(
    outcome: Outcome,
    bytes: u32,
    extended: bool,
    partial: bool,
    geometry: &Geometry,
) -> Option<Bytes> {
    let Outcome::Report(report) = outcome else { return None };
    let extension_bytes = extended.then_some(geometry.descriptor_extension_bytes);
    ReportFormat { extension_bytes, partial }.write(&report, bytes as usize).map(Bytes::from)
}
