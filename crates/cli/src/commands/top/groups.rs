//! The outstanding commands of conflict groups, in the scheduler `interference`.

use ratatui::style::Color;
use zonda_exports::snapshot::GroupSnapshot;

use super::canvas::{BOLD, Canvas, PLAIN, in_colour};
use super::frame::ConflictGroups;
use super::map::{HEIGHTS, LABEL_WIDTH};
use crate::units;

/// Groups that are named with their commands.
const NAMED_MAX: usize = 4;
/// A group without outstanding commands.
const IDLE: &str = "·";

/// Draws the groups with most outstanding commands in words, a cell for each group, and a problem
/// with the table; returns the line below.
pub(super) fn draw(canvas: &mut Canvas<'_>, mut line: u16, all: &ConflictGroups) -> u16 {
    if let Some(problem) = problem(all) {
        line = canvas.put_wrapped(line, &problem, in_colour(Color::Red).patch(BOLD));
    }
    line = canvas.put_wrapped(line, &words(all), PLAIN);
    if all.table.groups == 0 {
        return line;
    }
    let cells = cells(all, usize::from(canvas.width().saturating_sub(LABEL_WIDTH + 1)));
    canvas.put(LABEL_WIDTH, line, &cells, PLAIN);
    line + 1
}

/// Commands that wait for the group or were released to the drive.
fn outstanding(group: &GroupSnapshot) -> u64 {
    u64::from(group.waiting) + u64::from(group.in_flight)
}

/// `8 conflict groups, 3 with outstanding commands: group 3 19 (12 wait), group 5 4`
fn words(all: &ConflictGroups) -> String {
    let mut busy: Vec<&GroupSnapshot> = all.outstanding.iter().filter(|group| outstanding(group) > 0).collect();
    busy.sort_by_key(|group| std::cmp::Reverse(outstanding(group)));
    let known = busy.iter().filter(|group| group.group.is_some()).count() as u64;
    let mut text = units::counted(u64::from(all.table.groups), "conflict group");
    text += &format!(", {} with outstanding commands", units::count(known));
    for (place, group) in busy.iter().take(NAMED_MAX).enumerate() {
        text += if place == 0 { ": " } else { ", " };
        text += &match group.group {
            Some(number) => format!("group {number} {}", outstanding(group)),
            None => format!("unknown zones {}", outstanding(group)),
        };
        if group.waiting > 0 {
            text += &format!(" ({} wait)", group.waiting);
        }
    }
    if busy.len() > NAMED_MAX {
        text += &format!(", {} more", busy.len() - NAMED_MAX);
    }
    text
}

/// What makes the scheduler order commands without its table.
fn problem(all: &ConflictGroups) -> Option<String> {
    let table = all.table;
    if table.groups == 0 {
        let text =
            "no zone has a conflict group: the scheduler is a fair round robin; the log of the server has the reason";
        return Some(text.to_owned());
    }
    (!table.is_used).then(|| {
        format!(
            "latencies of reads contradict the conflict groups ({} since the start): commands are submitted in the order \
             of arrival; measure the drive again with zonda probe --groups-only",
            units::counted(table.rejected, "time")
        )
    })
}

/// A character for each group, or for several if there are more groups than columns: the one with
/// the most outstanding commands is shown. Full height is the most of any group.
fn cells(all: &ConflictGroups, columns: usize) -> String {
    let mut counts = vec![0_u64; all.table.groups as usize];
    for group in &all.outstanding {
        if let Some(count) = group.group.and_then(|number| counts.get_mut(number as usize)) {
            *count = outstanding(group);
        }
    }
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let merged = counts.len().div_ceil(columns.max(1)).max(1);
    let cell = |groups: &[u64]| match groups.iter().copied().max().unwrap_or(0) {
        0 => IDLE,
        count => HEIGHTS[(count * HEIGHTS.len() as u64).div_ceil(most) as usize - 1],
    };
    counts.chunks(merged).map(cell).collect()
}

#[cfg(test)]
mod tests {
    use zonda_exports::snapshot::TableSnapshot;

    use super::*;

    fn groups(count: u32, outstanding: &[(Option<u32>, u32, u32)]) -> ConflictGroups {
        let of = |(group, waiting, in_flight): &(Option<u32>, u32, u32)| GroupSnapshot {
            group: *group,
            waiting: *waiting,
            in_flight: *in_flight,
        };
        let table = TableSnapshot { groups: count, is_used: true, rejected: 0, restored: 0 };
        ConflictGroups { table, outstanding: outstanding.iter().map(of).collect() }
    }

    #[test]
    fn the_groups_with_most_outstanding_commands_are_named_first_and_the_rest_is_counted() {
        let busy = [(Some(0), 0, 4), (Some(2), 12, 7), (Some(4), 0, 1), (Some(5), 1, 1), (Some(7), 0, 3), (None, 2, 5)];
        let all = groups(8, &busy);
        assert_eq!(
            words(&all),
            "8 conflict groups, 5 with outstanding commands: group 2 19 (12 wait), unknown zones 7 (2 wait), group 0 4, \
             group 7 3, 2 more"
        );
        assert_eq!(cells(&all, 71), "▂·█·▁▁·▂");
        assert_eq!(words(&groups(1, &[])), "1 conflict group, 0 with outstanding commands");
    }

    #[test]
    fn cells_of_more_groups_than_columns_show_the_busiest_of_theirs() {
        let all = groups(10, &[(Some(3), 0, 8), (Some(4), 0, 1), (Some(9), 4, 0)]);
        assert_eq!(cells(&all, 4), "·█·▄", "three groups each");
        assert_eq!(cells(&all, 0), "█");
        assert_eq!(cells(&groups(10, &[(Some(99), 1, 1)]), 10), IDLE.repeat(10), "a group that the table lacks");
    }

    #[test]
    fn a_table_that_is_contradicted_or_empty_is_a_problem() {
        let mut all = groups(4, &[]);
        assert_eq!(problem(&all), None);
        all.table.is_used = false;
        all.table.rejected = 2;
        let text = problem(&all).expect("it is not used");
        assert!(
            text.contains("contradict the conflict groups (2 times since") && text.contains("--groups-only"),
            "{text}"
        );
        let text = problem(&groups(0, &[])).expect("no zone has a group");
        assert!(text.contains("no zone has a conflict group"), "{text}");
    }
}
