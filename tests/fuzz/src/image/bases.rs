//! Images to be damaged, created once: of every kind of namespace, shut down cleanly and not.

use std::sync::OnceLock;

use zonda_image::{ImageSpec, MemoryFiles, create, open};
use zonda_zoned::reference::{CommandSource, ReferenceDevice};
use zonda_zoned::{Blocks, Geometry, Operation, Outcome, Payload, PayloadKind, Prng, Status, ZrwaGeometry};

use super::commands;
use crate::history::History;
use crate::shapes;

/// Number of images.
pub(super) const BASES: usize = 7;
const JOURNAL_BYTES: u64 = 24 << 10;
const COMMANDS: usize = 120;

/// An image, and the writes to it.
pub(super) struct Base {
    pub(super) files: MemoryFiles,
    pub(super) geometry: Geometry,
    /// All contents that each block ever had, by address.
    pub(super) written: History,
    /// However the image is damaged, a block reads only as contents that it ever had: no block is
    /// accepted that may have been partly overwritten.
    pub(super) has_complete_history: bool,
}

pub(super) fn base(which: usize) -> &'static Base {
    static MADE: [OnceLock<Base>; BASES] = [const { OnceLock::new() }; BASES];
    MADE[which].get_or_init(|| {
        let geometry = match which {
            0 | 1 => shapes::zoned(),
            2 | 3 => shapes::with_areas(),
            4 | 5 => shapes::conventional(),
            _ => Geometry { metadata_bytes: 8, ..shapes::conventional() },
        };
        make(small(&geometry), which as u64, which.is_multiple_of(2) && which != 6)
    })
}

/// The same with fewer blocks, so that an input runs in a millisecond.
fn small(geometry: &Geometry) -> Geometry {
    let capacity = if geometry.conventional_zone_count > 0 { 16 } else { 12 };
    let zrwa = geometry.zrwa.map(|zrwa| ZrwaGeometry { size_blocks: Blocks(8), ..zrwa });
    let (zone_size_blocks, zone_capacity_blocks) = (Blocks(16), Blocks(capacity));
    let (max_transfer_blocks, max_append_blocks) = (Blocks(8), Blocks(4));
    let small = Geometry {
        zone_size_blocks,
        zone_capacity_blocks,
        max_transfer_blocks,
        max_append_blocks,
        zrwa,
        ..geometry.clone()
    };
    assert_eq!(small.validate(), Ok(()));
    small
}

fn make(geometry: Geometry, seed: u64, closed: bool) -> Base {
    let mut files = MemoryFiles::new();
    let mut spec = ImageSpec::new(geometry.clone(), "name = \"fuzzed\"\n".to_owned(), [7; 16]);
    spec.journal_bytes = JOURNAL_BYTES;
    create(&spec, &mut files).expect("a valid specification");
    let (mut image, _) = open(&mut files).expect("a new image");
    let mut oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
    let mut source = CommandSource::new(&geometry, PayloadKind::Bytes, Prng::new(seed));
    let mut written = History::default();
    for _ in 0..COMMANDS {
        let command = source.next(&oracle);
        let expected = oracle.execute(&command);
        let found = commands::one(&mut image, &mut files, command.clone());
        assert_eq!(found.status, expected.status, "{command:?}");
        if found.status == Status::Success {
            note(&mut written, &command.operation, &found.outcome, &geometry);
        }
    }
    if closed {
        commands::close(&mut image, &mut files);
    }
    let has_complete_history = geometry.zrwa.is_none() && geometry.conventional_zone_count == 0;
    Base { files, geometry, written, has_complete_history }
}

fn note(written: &mut History, operation: &Operation, outcome: &Outcome, geometry: &Geometry) {
    let (first, payload) = match (operation, outcome) {
        (Operation::Write { start, payload, .. }, _) => (start.0, payload),
        (Operation::Append { payload, .. }, Outcome::Appended(lba)) => (lba.0, payload),
        _ => return,
    };
    let Payload::Bytes(buffer) = payload else { return };
    let block = geometry.block_size_bytes as usize;
    for (lba, start) in (first..).zip((0..buffer.data.len()).step_by(block)) {
        written.note(lba, buffer.data.slice(start..start + block));
    }
}
