//! Ranges of blocks that are reported together.

/// Adds a range of blocks; one that is adjacent to the last one is merged with it.
pub(super) fn add_range(ranges: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    match ranges.last_mut() {
        Some(last) if last.1 == start => last.1 = end,
        _ => ranges.push((start, end)),
    }
}

#[cfg(test)]
mod tests {
    use super::add_range;

    #[test]
    fn adjacent_ranges_are_merged() {
        let mut ranges = Vec::new();
        for (start, end) in [(5, 6), (6, 8), (8, 9), (11, 12), (3, 4)] {
            add_range(&mut ranges, start, end);
        }
        assert_eq!(ranges, [(5, 9), (11, 12), (3, 4)]);
    }
}
