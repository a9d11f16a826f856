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
                "{} by hosts; {} to members, including {}",
                bytes(volume.host_blocks),
                bytes(volume.member_blocks),
                additions(volume, block_bytes)
            ),
        ),
        (
            "garbage collection",
            format!(
                "{} moved, {} reclaimed; write amplification of garbage collection alone {:.2}",
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

/// What is written to members beside the data of hosts; the parts add up.
pub(crate) fn additions(volume: &VolumeSummary, block_bytes: u64) -> String {
    let bytes = |blocks: u64| units::bytes(blocks * block_bytes);
    let moved = volume.relocated_blocks;
    let rest = volume.member_blocks.saturating_sub(volume.host_blocks + volume.padding_blocks + moved);
    let rebuild = if volume.rebuild_ns.is_some() { ", metadata and the rebuild" } else { " and metadata" };
    let moved = if moved > 0 { format!("{} moved by garbage collection, ", bytes(moved)) } else { String::new() };
    format!("{} of padding, {moved}{} of parity{rebuild}", bytes(volume.padding_blocks), bytes(rest))
}
