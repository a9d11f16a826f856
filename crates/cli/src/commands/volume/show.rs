//! The state of a volume as text.

use std::path::Path;

use zonda_devices::{LostRange, MemberSummary, VolumeReport, VolumeState, shown_place};

use crate::output::Screen;
use crate::table::Table;
use crate::units;

/// The state, space, repairs and members of the volume in `directory`.
pub(crate) fn text(report: &VolumeReport, directory: &Path, screen: Screen) -> String {
    let state = match report.state {
        VolumeState::Healthy => screen.styled("32", "healthy"),
        VolumeState::Degraded => screen.styled("1;33", "degraded"),
        VolumeState::Rebuilding => screen.styled("33", "rebuilding"),
        VolumeState::TakenOver => screen.styled("1;31", "taken over"),
        VolumeState::Lost => screen.styled("1;31", "lost"),
        VolumeState::Suspended => screen.styled("1;31", "suspended"),
        VolumeState::DataLost => screen.styled("1;31", "data lost"),
        VolumeState::Incomplete => screen.styled("1;31", "incomplete"),
    };
    let can_lose = match (report.state, report.can_lose) {
        (VolumeState::TakenOver, _) => "another server has taken over its members: see the log".to_owned(),
        (VolumeState::Lost, _) => "more members have failed than its redundancy tolerates".to_owned(),
        (VolumeState::Suspended, _) => suspended(report, directory),
        (VolumeState::Incomplete, _) => {
            report.refusal.clone().unwrap_or_else(|| "too few members are present to assemble it".to_owned())
        }
        (_, 0) => "can lose no more members".to_owned(),
        (_, members) => format!("can lose {}", units::counted(u64::from(members), "more member")),
    };
    let mut text = format!("{}  {}, {state}, {can_lose}\n", screen.bold(&report.name), report.scheme);
    if report.lost_blocks > 0 {
        let (when, list) = if report.mounted {
            ("", "zonda volume status --lost while the volume is served, or with zonda volume check while it is not")
        } else {
            (
                " when it was last assembled",
                "zonda volume check, or with zonda volume status --lost while the volume is served",
            )
        };
        let warning = format!(
            "{} lost{when}: reads of them fail until they are written or trimmed. List them with {list}",
            units::counted(report.lost_blocks, "block")
        );
        text += &(screen.styled("1;31", screen.paragraph(&warning, 2).trim_end()) + "\n");
    }
    if !report.mounted {
        return text + &unassembled(report, directory, screen);
    }
    let share = report.live_bytes as f64 / report.volume_bytes.max(1) as f64;
    text += &format!(
        "  space      {} of {} in use ({}), {} of {} free\n",
        units::bytes(report.live_bytes),
        units::bytes(report.volume_bytes),
        units::percent(share),
        units::count(u64::from(report.free_segments)),
        units::counted(u64::from(report.free_segments + report.segments), "segment"),
    );
    if report.room_bytes < report.volume_bytes && report.state != VolumeState::Lost {
        let warning = format!(
            "end of life: {} of {} can be used, because too many zones are read only or offline. When these are full, writes fail \
             with \"zone is full\"; replace the members with the most unusable zones",
            units::bytes(report.room_bytes),
            units::bytes(report.volume_bytes),
        );
        text += &(screen.styled("1;33", screen.paragraph(&warning, 2).trim_end()) + "\n");
    }
    if report.unreadable_segments > 0 && report.state != VolumeState::Lost {
        let warning = format!(
            "{} cannot be reclaimed: they contain blocks that are unreadable while a member is missing. When no segment is free, \
             writes and trims fail with no space; re-add the member, or write or trim these blocks",
            units::counted(u64::from(report.unreadable_segments), "segment"),
        );
        text += &(screen.styled("1;33", screen.paragraph(&warning, 2).trim_end()) + "\n");
    }
    if report.host_write_bytes > 0 {
        let over_hosts = |bytes: u64| bytes as f64 / report.host_write_bytes as f64;
        text += &format!(
            "  written    {} by hosts; write amplification: garbage collection {:.2}",
            units::bytes(report.host_write_bytes),
            1.0 + over_hosts(report.relocated_bytes),
        );
        // Until the members have completed the writes, the ratio means nothing.
        if report.member_write_bytes >= report.host_write_bytes {
            text += &format!(", including parity and metadata {:.2}", over_hosts(report.member_write_bytes));
        }
        text += "\n";
    }
    let repairs = [
        (
            report.reconstructed_blocks,
            if report.reconstructed_blocks == 1 {
                "reconstructed from its stripe"
            } else {
                "reconstructed from their stripes"
            },
        ),
        (report.repaired_blocks, "repaired"),
        (report.unreadable_blocks, "unreadable while a member is missing"),
    ];
    let repairs: Vec<String> = repairs
        .iter()
        .filter(|(blocks, _)| *blocks > 0)
        .map(|(blocks, what)| format!("{} {what}", units::counted(*blocks, "block")))
        .collect();
    if !repairs.is_empty() {
        text += &format!("  repairs    {}\n", repairs.join(", "));
    }
    text += &format!("  memory     {} for the block map and other tables\n", units::bytes(report.table_bytes));
    for (name, part) in [("rebuild", report.rebuild), ("scrub", report.scrub)] {
        if let Some(part) = part {
            let share = f64::from(part.done) / f64::from(part.all.max(1));
            text += &format!("  {name:<10} {} of {} segments ({})\n", part.done, part.all, units::percent(share));
        }
    }
    if let Some(members) = lacking_space(report, directory) {
        let warning = format!(
            "file system full: {members}. Writes fail, and a rebuild or a scrub waits, until space is freed there"
        );
        text += &(screen.styled("1;33", screen.paragraph(&warning, 2).trim_end()) + "\n");
    }
    if let Some(scrub) = report.last_scrub {
        text += &format!(
            "  last scrub {} read, {} damaged, {} repaired, {} lost",
            units::counted(scrub.blocks, "block"),
            units::count(scrub.repaired + scrub.unreadable + scrub.lost),
            units::count(scrub.repaired),
            units::count(scrub.lost),
        );
        if scrub.known_lost > 0 {
            text += &format!(" ({} known before)", units::counted(scrub.known_lost, "lost block"));
        }
        if scrub.unreadable > 0 {
            text += &format!(", {} unreadable while a member is missing", units::count(scrub.unreadable));
        }
        text += "\n";
    }
    let mut table = Table::new(&[">member", "location", "state", ">errors", ">free zones", ">unusable zones"]);
    for member in &report.members {
        table.row(&[
            member.member.to_string(),
            shown_place(directory, &member.at),
            state_of(member),
            units::count(member.errors),
            units::count(u64::from(member.free_zones)),
            units::count(u64::from(member.retired_zones)),
        ]);
    }
    for spare in &report.spares {
        let state = state_of_spare(report, spare);
        let location = shown_place(directory, spare);
        table.row(&["-".to_owned(), location, state.to_owned(), String::new(), String::new(), String::new()]);
    }
    text + "\n" + &table.render(screen, 2)
}

/// The maximum rates of rebuild and scrub.
pub(super) fn rates(report: &VolumeReport, screen: Screen) -> String {
    let shown = |rate: Option<zonda_config::Rate>, default: &str| {
        rate.map_or_else(|| default.to_owned(), |rate| rate.to_string())
    };
    format!(
        "{}\n  rebuild    {}\n  scrub      {}\n",
        screen.bold(&report.name),
        shown(report.rates.rebuild, "unlimited (default)"),
        shown(report.rates.scrub, "64 MiB/s (default)")
    )
}

/// The state of a member, and why it has failed.
fn state_of(member: &MemberSummary) -> String {
    match &member.failed {
        Some(reason) => format!("{} ({reason})", member.state),
        None => member.state.clone(),
    }
}

fn state_of_spare(report: &VolumeReport, spare: &String) -> &'static str {
    if report.reserved_spares.contains(spare) {
        "spare, reserved by another host"
    } else if report.unreachable_spares.contains(spare) {
        "spare, unreachable"
    } else {
        "spare"
    }
}

/// The members for which I/O is suspended, and why.
fn suspended(report: &VolumeReport, directory: &Path) -> String {
    let members = report.members.iter().filter_map(|member| {
        let reason = member.suspended.as_ref()?;
        Some(format!("member {} ({}), which {reason}", member.member, shown_place(directory, &member.at)))
    });
    let members: Vec<String> = members.collect();
    if members.is_empty() {
        return "I/O waits until volume.toml can be written".to_owned();
    }
    format!("I/O waits for {}", members.join(", and for "))
}

/// The members whose file system is full, if there are any.
pub(super) fn lacking_space(report: &VolumeReport, directory: &Path) -> Option<String> {
    let members = report.members.iter().filter(|member| member.lacks_space);
    let members: Vec<String> =
        members.map(|member| format!("member {} ({})", member.member, shown_place(directory, &member.at))).collect();
    (!members.is_empty()).then(|| members.join(", "))
}

/// A table of lost blocks.
pub(super) fn lost(ranges: &[LostRange], screen: Screen) -> String {
    if ranges.is_empty() {
        return "no lost blocks\n".to_owned();
    }
    // No thousands separators: the numbers are input of programs such as dd.
    let mut table = Table::new(&[">LBA", ">blocks", ">byte offset"]);
    for range in ranges {
        table.row(&[range.lba.to_string(), range.blocks.to_string(), range.offset_bytes.to_string()]);
    }
    table.render(screen, 2)
}

/// The state of a volume that is not assembled, from its superblocks.
fn unassembled(report: &VolumeReport, directory: &Path, screen: Screen) -> String {
    let epoch = report.epoch.map_or_else(|| "-".to_owned(), units::count);
    let text = format!("  not assembled, {} for hosts, epoch {epoch}\n", units::bytes(report.volume_bytes));
    let mut table = Table::new(&[">member", "location", "state", ">epoch"]);
    for member in &report.members {
        let epoch = member.epoch.map_or_else(|| "-".to_owned(), units::count);
        let location = shown_place(directory, &member.at);
        table.row(&[member.member.to_string(), location, state_of(member), epoch]);
    }
    for spare in &report.spares {
        let (location, state) = (shown_place(directory, spare), state_of_spare(report, spare));
        table.row(&["-".to_owned(), location, state.to_owned(), "-".to_owned()]);
    }
    text + "\n" + &table.render(screen, 2)
}

/// The JSON of a volume that is not assembled: without figures that are known only when it is
/// assembled.
pub(super) fn known(report: &VolumeReport) -> serde_json::Value {
    let mut value = serde_json::to_value(report).unwrap_or_default();
    let keep = |object: &mut serde_json::Value, keys: &[&str]| {
        if let Some(object) = object.as_object_mut() {
            object.retain(|key, _| keys.contains(&key.as_str()));
        }
    };
    keep(
        &mut value,
        &[
            "mounted",
            "name",
            "array",
            "scheme",
            "state",
            "refusal",
            "can_lose",
            "epoch",
            "volume_bytes",
            "lost_blocks",
            "members",
            "spares",
            "unreachable_spares",
            "reserved_spares",
            "rates",
        ],
    );
    for member in value["members"].as_array_mut().into_iter().flatten() {
        keep(member, &["member", "at", "state", "epoch", "failed"]);
    }
    value
}

#[cfg(test)]
mod tests {
    use zonda_devices::ScrubSummary;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn report() -> VolumeReport {
        VolumeReport {
            mounted: true,
            name: "vol".to_owned(),
            scheme: "RAID 0 (2)".to_owned(),
            volume_bytes: 100 * GIB,
            room_bytes: 100 * GIB,
            live_bytes: 25 * GIB,
            segments: 30,
            free_segments: 70,
            members: vec![MemberSummary {
                at: "drives/a".to_owned(),
                state: "active".to_owned(),
                ..MemberSummary::default()
            }],
            ..VolumeReport::default()
        }
    }

    #[test]
    fn a_volume_at_end_of_life_shows_its_usable_size() {
        let screen = Screen { width: 100, colour: false };
        assert!(!text(&report(), Path::new("vol"), screen).contains("end of life"));
        let mut worn = report();
        worn.room_bytes = 40 * GIB;
        worn.members[0].retired_zones = 62;
        let text = text(&worn, Path::new("vol"), screen);
        let expected = concat!(
            "vol  RAID 0 (2), healthy, can lose no more members\n",
            "  space      25.0 GiB of 100 GiB in use (25.0%), 70 of 100 segments free\n",
            "  end of life: 40.0 GiB of 100 GiB can be used, because too many zones are read only or offline.\n",
            "  When these are full, writes fail with \"zone is full\"; replace the members with the most unusable\n",
            "  zones\n",
            "  memory     0 B for the block map and other tables\n",
        );
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn a_volume_that_cannot_reclaim_segments_shows_the_reason_and_the_remedy() {
        let screen = Screen { width: 100, colour: false };
        assert!(!text(&report(), Path::new("vol"), screen).contains("reclaimed"));
        let mut half = report();
        half.unreadable_segments = 12;
        let text = text(&half, Path::new("vol"), screen);
        let expected = concat!(
            "  12 segments cannot be reclaimed: they contain blocks that are unreadable while a member is\n",
            "  missing. When no segment is free, writes and trims fail with no space; re-add the member, or write\n",
            "  or trim these blocks\n",
        );
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn members_whose_file_system_is_full_are_named_with_what_waits_for_them() {
        let screen = Screen { width: 100, colour: false };
        assert!(!text(&report(), Path::new("vol"), screen).contains("full"));
        let mut full = report();
        (full.members[0].at, full.members[0].lacks_space) = ("../drives/a".to_owned(), true);
        full.scrub = Some(zonda_devices::Progress { done: 1, all: 4 });
        let shown = text(&full, Path::new("vol"), screen);
        let expected = concat!(
            "  scrub      1 of 4 segments (25.0%)\n",
            "  file system full: member 0 (drives/a). Writes fail, and a rebuild or a scrub waits, until space is\n",
            "  freed there\n",
        );
        assert!(shown.contains(expected), "{shown}");
        full.state = VolumeState::Suspended;
        full.members[0].suspended = Some("has no space left on its file system".to_owned());
        let shown = text(&full, Path::new("vol"), screen);
        let expected = "suspended, I/O waits for member 0 (drives/a), which has no space left on its file system\n";
        assert!(shown.contains(expected), "{shown}");
    }

    #[test]
    fn a_scrub_shows_how_many_lost_blocks_were_known_before() {
        let screen = Screen { width: 100, colour: false };
        let mut scrubbed = report();
        let scrub = ScrubSummary { blocks: 900, repaired: 5, ..ScrubSummary::default() };
        for (known_lost, expected) in
            [(0, "5 repaired, 0 lost\n"), (22, "5 repaired, 0 lost (22 lost blocks known before)\n")]
        {
            scrubbed.last_scrub = Some(ScrubSummary { known_lost, ..scrub });
            let text = text(&scrubbed, Path::new("vol"), screen);
            assert!(text.contains(&format!("  last scrub 900 blocks read, 5 damaged, {expected}")), "{text}");
        }
    }

    #[test]
    fn lost_blocks_are_shown_first_and_listed_as_dd_uses_them() {
        let screen = Screen { width: 100, colour: false };
        let mut damaged = report();
        (damaged.state, damaged.lost_blocks) = (VolumeState::DataLost, 1234);
        let shown = text(&damaged, Path::new("vol"), screen);
        let expected = concat!(
            "vol  RAID 0 (2), data lost, can lose no more members\n",
            "  1,234 blocks lost: reads of them fail until they are written or trimmed. List them with zonda\n",
            "  volume status --lost while the volume is served, or with zonda volume check while it is not\n",
        );
        assert!(shown.starts_with(expected), "{shown}");
        let range = |lba, blocks| LostRange { lba, blocks, offset_bytes: lba * 4096 };
        let listed = lost(&[range(5, 2), range(12_345_678, 1)], screen);
        let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["LBA", "blocks", "byte", "offset"], "{listed}");
        assert_eq!(lines[lines.len() - 2..], [vec!["5", "2", "20480"], vec!["12345678", "1", "50567897088"]]);
    }

    #[test]
    fn a_failed_member_is_shown_with_the_reason() {
        let screen = Screen { width: 100, colour: false };
        let mut flaps = report();
        flaps.members[0].state = "failed".to_owned();
        flaps.members[0].failed = Some("flapping".to_owned());
        assert!(text(&flaps, Path::new("vol"), screen).contains("failed (flapping)"));
        flaps.mounted = false;
        assert!(text(&flaps, Path::new("vol"), screen).contains("failed (flapping)"));
    }

    #[test]
    fn suspended_io_is_shown_with_the_member_and_the_reason() {
        let screen = Screen { width: 100, colour: false };
        let mut waits = report();
        waits.state = VolumeState::Suspended;
        waits.members[0].suspended = Some("does not respond".to_owned());
        let text = text(&waits, Path::new("vol"), screen);
        let expected = "vol  RAID 0 (2), suspended, I/O waits for member 0 (vol/drives/a), which does not respond\n";
        assert!(text.starts_with(expected), "{text}");
    }
}
