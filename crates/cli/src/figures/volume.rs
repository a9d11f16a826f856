//! Results of a volume as text.

use zonda_stack::VolumeSummary;

use crate::output::Screen;
use crate::units;

/// Space, redundancy and write amplification.
pub(super) fn volume(volume: &VolumeSummary, block_bytes: u64, screen: Screen) -> String {
    let mut text = format!("\n{}\n", screen.bold("The volume"));
    for (name, line) in lines(volume, block_bytes) {
        let body = screen.paragraph(&line, 24);
        text += &format!("  {name:<21} {}", body.trim_start());
    }
    text
}

fn lines(volume: &VolumeSummary, block_bytes: u64) -> Vec<(&'static str, String)> {
    let bytes = |blocks: u64| units::bytes(blocks * block_bytes);
    let mut lines = vec![
        (
            "size",
            format!("{} over {}", units::bytes(volume.volume_bytes), units::counted(volume.members.into(), "member")),
        ),
        (
            "written",
            format!(
                "{} by hosts; {} to members, {} of them padding",
                bytes(volume.host_blocks),
                bytes(volume.member_blocks),
                bytes(volume.padding_blocks)
            ),
        ),
        (
            "garbage collection",
            format!(
                "{} moved, {} reclaimed; write amplification {:.2}",
                bytes(volume.relocated_blocks),
                units::counted(volume.collected_segments, "segment"),
                volume.write_amplification
            ),
        ),
        ("reconstructed", bytes(volume.reconstructed_blocks)),
        (
            "memory",
            format!(
                "{} of address map, {} of stripe table ({} if all zones were full)",
                units::bytes(volume.map_bytes),
                units::bytes(volume.stripe_table_bytes),
                units::bytes(volume.stripe_table_max_bytes)
            ),
        ),
    ];
    if let Some(rebuild_ns) = volume.rebuild_ns {
        lines.push(("rebuild", format!("completed after {}", units::time(rebuild_ns))));
    }
    lines
}
