//! The visible state of a drive: its zones, and the contents of every block.

use bytes::Bytes;
use zonda_zoned::reference::{ReferenceDevice, ZoneImage};
use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{
    BlockBuffer, Blocks, Completion, Geometry, Lba, Operation, Outcome, Payload, PayloadKind, ReportFilter, Status,
    ZoneIndex, ZoneState,
};

/// Data and metadata of a block, or the status of a read of it.
pub type Contents = Result<(Bytes, Bytes), Status>;

/// Zones and blocks of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Every zone, the conventional ones first.
    pub zones: Vec<ZoneImage>,
    /// Every writable block.
    pub blocks: Vec<(Lba, Contents)>,
}

impl Observed {
    /// Observes a drive with these zones; `run` runs a command to completion.
    ///
    /// # Panics
    /// If the drive does not report its zones.
    pub fn of(table: &ZoneTable, mut run: impl FnMut(Operation) -> Completion) -> Observed {
        let geometry = table.geometry().clone();
        let report = Operation::ReportZones {
            start: Lba(0),
            filter: ReportFilter::All,
            extended: geometry.descriptor_extension_bytes > 0,
            partial: true,
            descriptors_max: u32::MAX,
        };
        let Outcome::Report(report) = run(report).outcome else { panic!("a drive reports its zones") };
        let mut observed = Observed { zones: Vec::new(), blocks: Vec::new() };
        for (zone, descriptor) in (0..).map(ZoneIndex).zip(&report.zones) {
            let view = table.zone(zone);
            observed.zones.push(ZoneImage {
                state: view.state,
                write_pointer_blocks: view.write_pointer_blocks,
                zrwa: view.attributes.zrwa_valid,
                extension: descriptor.extension.clone().filter(|_| descriptor.attributes.extension_valid),
            });
            let capacity = geometry.zone_capacity_blocks.0;
            for at in (0..capacity).step_by(geometry.max_transfer_blocks.0 as usize) {
                let blocks = geometry.max_transfer_blocks.0.min(capacity - at);
                observed.read(&geometry, descriptor.start + Blocks(at), blocks, &mut run);
            }
        }
        observed
    }

    /// Reads blocks with one command; if that fails, one by one, to find the failed ones.
    fn read(&mut self, geometry: &Geometry, start: Lba, blocks: u64, run: &mut impl FnMut(Operation) -> Completion) {
        let completion = run(Operation::Read { start, blocks: Blocks(blocks) });
        match completion.outcome {
            Outcome::Data(Payload::Bytes(buffer)) => {
                let nth = |i: u64| (start + Blocks(i), Ok(block(geometry, &buffer, i as usize)));
                self.blocks.extend((0..blocks).map(nth));
            }
            _ if blocks > 1 => (0..blocks).for_each(|i| self.read(geometry, start + Blocks(i), 1, run)),
            _ => self.blocks.push((start, Err(completion.status))),
        }
    }

    /// An oracle in the observed state.
    #[must_use]
    pub fn oracle(&self, geometry: &Geometry) -> ReferenceDevice {
        let mut oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
        for (zone, image) in (0..).map(ZoneIndex).zip(&self.zones) {
            if zone.0 >= geometry.conventional_zone_count {
                let mut image = image.clone();
                if image.state == ZoneState::Offline {
                    image.write_pointer_blocks = Blocks(0);
                }
                oracle.set_zone(zone, image);
            }
        }
        for (lba, contents) in &self.blocks {
            if let Ok((data, metadata)) = contents
                && data.iter().chain(metadata).any(|&byte| byte != 0)
            {
                oracle.set_block_bytes(*lba, data, metadata);
            }
        }
        oracle
    }
}

/// Data and metadata of a block.
fn block(geometry: &Geometry, buffer: &BlockBuffer, i: usize) -> (Bytes, Bytes) {
    let (data, metadata) = (geometry.block_size_bytes as usize, usize::from(geometry.metadata_bytes));
    (buffer.data.slice(i * data..(i + 1) * data), buffer.metadata.slice(i * metadata..(i + 1) * metadata))
}
