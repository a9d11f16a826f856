//! Key figures of a volume on the page.

use zonda_plot::text::{bytes, counted, duration, number};
use zonda_stack::VolumeSummary;

use super::cards::card;
use crate::figures::additions;

/// Cards for the top of the page.
pub(super) fn cards(volume: &VolumeSummary, block_bytes: u64) -> Vec<String> {
    let size = bytes(volume.volume_bytes);
    let moved = format!(
        "{} moved, {} reclaimed",
        bytes(volume.relocated_blocks * block_bytes),
        counted(volume.collected_segments, "segment")
    );
    let beside = format!("by hosts {}, {}", bytes(volume.host_blocks * block_bytes), additions(volume, block_bytes));
    let map = format!("and {} of stripe table", bytes(volume.stripe_table_bytes));
    let mut cards = vec![
        card("Volume", &size, "", &format!("over {}", counted(volume.members.into(), "member"))),
        card("Written to members", &bytes(volume.member_blocks * block_bytes), "", &beside),
        card("Write amplification of garbage collection", &number(volume.write_amplification), "", &moved),
        card("Address map in memory", &bytes(volume.map_bytes), "", &map),
    ];
    if volume.reconstructed_blocks > 0 {
        let computed = bytes(volume.reconstructed_blocks * block_bytes);
        cards.push(card("Reconstructed", &computed, "", "because a member is missing"));
    }
    if let Some(rebuild_ns) = volume.rebuild_ns {
        cards.push(card("Rebuild", &duration(rebuild_ns), "", "until all members are in sync"));
    }
    cards
}
