//! The picture of conflict groups in text: a row of zones, and the group of each.

use zonda_profiler::{GroupTable, ZoneEntry};

/// Rows of a picture.
const ROWS_MAX: usize = 16;
/// Digits of groups.
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// A row for every few zones, as wide as the screen allows; the first rows if there are more.
pub(super) fn draw(table: &GroupTable, width: usize) -> String {
    let groups = table.groups() as usize;
    let digits = if groups <= DIGITS.len() { 1 } else { 2 };
    let zones = table.zones.len();
    let margin = zones.to_string().len();
    // A power of two lets repetitions stand below each other.
    let fitting = (width.saturating_sub(margin + 2) / (digits + 1)).max(1);
    let in_row = 1 << fitting.ilog2().min(6);
    let mut text = String::new();
    for (row, entries) in table.zones.chunks(in_row).enumerate().take(ROWS_MAX) {
        text += &format!("{:>margin$} ", row * in_row);
        for entry in entries {
            text.push(' ');
            text += &cell(*entry, digits);
        }
        text.push('\n');
    }
    let rest = zones.saturating_sub(ROWS_MAX * in_row);
    if rest > 0 {
        text += &format!("{:>margin$}  and {rest} more zones: --json shows all\n", "...");
    }
    text
}

fn cell(entry: ZoneEntry, digits: usize) -> String {
    match entry {
        ZoneEntry::Known { group, .. } => {
            let base = DIGITS.len();
            let digit = |power: usize| char::from(DIGITS[group.0 as usize / base.pow(power as u32) % base]);
            (0..digits).rev().map(digit).collect()
        }
        ZoneEntry::Unknown(_) => ".".repeat(digits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_profiler::{Effort, Evidence, GroupId, UnknownReason, Verdict};

    fn table(groups: u32, zones: u32) -> GroupTable {
        let known = |zone| ZoneEntry::Known { group: GroupId(zone % groups), evidence: Evidence::Threshold };
        let mut zones: Vec<ZoneEntry> = (0..zones).map(known).collect();
        zones[2] = ZoneEntry::Unknown(UnknownReason::Empty);
        GroupTable { verdict: Verdict::Groups { groups }, zones, effort: Effort::default() }
    }

    #[test]
    fn zones_of_a_group_have_the_same_digit_and_unknown_ones_a_dot() {
        assert_eq!(draw(&table(3, 10), 12), " 0  0 1 . 0\n 4  1 2 0 1\n 8  2 0\n");
    }

    #[test]
    fn many_groups_have_two_digits_and_many_zones_are_cut() {
        let text = draw(&table(40, 400), 30);
        assert_eq!(text.lines().next(), Some("  0  00 01 .. 03 04 05 06 07"));
        assert_eq!(text.lines().nth(4), Some(" 32  0w 0x 0y 0z 10 11 12 13"));
        assert_eq!(text.lines().last(), Some("...  and 272 more zones: --json shows all"));
    }
}
