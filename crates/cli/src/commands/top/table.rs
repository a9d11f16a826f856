//! The table of namespaces.

use super::canvas::{BOLD, Canvas, DIM, PLAIN, SELECTED, short_bytes, short_count, short_time};
use super::frame::Row;
use super::rates::Rates;

/// Terminals with so many columns have a column for each figure; narrower ones merge some.
const WIDE: u16 = 136;
/// What stands for a figure that does not exist.
const NONE: &str = "-";

/// The name has at least this width, so that rows that come and go rarely move the columns.
const NAME_WIDTH_MIN: usize = 16;

/// A column of the table; numbers are at its right.
struct Column {
    title: &'static str,
    width: u16,
    of: Of,
    text: fn(&Row, usize) -> String,
}

/// The rows that have a figure. A column that no row has is not shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    All,
    /// Namespaces with active zones: a volume has none.
    Zoned,
    /// Namespaces of pools.
    Pool,
    /// Namespaces with the scheduler `ezns`, also while it grants nothing.
    Grants,
}

impl Of {
    fn has(self, row: &Row) -> bool {
        match self {
            Of::All => true,
            Of::Zoned => row.volume.is_none(),
            Of::Pool => row.share.is_some(),
            Of::Grants => row.grants.is_some() || row.scheduler.as_deref() == Some("ezns"),
        }
    }
}

const NARROW_COLUMNS: [Column; 10] = [
    Column { title: "B/s", width: 5, of: Of::All, text: |row, _| rate(row, |rates| short_bytes(rates.bytes_per_s())) },
    Column { title: "IOPS", width: 5, of: Of::All, text: |row, _| rate(row, |rates| short_count(rates.iops)) },
    P50,
    P99_9,
    ACTIVE,
    Column { title: "groups", width: 8, of: Of::Pool, text: groups },
    ESSENTIALS,
    Column { title: "spares", width: 10, of: Of::Pool, text: spares },
    READS,
    TOKENS,
];

const WIDE_COLUMNS: [Column; 16] = [
    Column {
        title: "read B/s",
        width: 8,
        of: Of::All,
        text: |row, _| rate(row, |rates| short_bytes(rates.read_bytes_per_s)),
    },
    Column {
        title: "write B/s",
        width: 9,
        of: Of::All,
        text: |row, _| rate(row, |rates| short_bytes(rates.write_bytes_per_s)),
    },
    Column {
        title: "read IOPS",
        width: 9,
        of: Of::All,
        text: |row, _| rate(row, |rates| short_count(rates.read_iops)),
    },
    Column {
        title: "write IOPS",
        width: 10,
        of: Of::All,
        text: |row, _| rate(row, |rates| short_count(rates.write_iops)),
    },
    P50,
    P99_9,
    Column { title: "queue", width: 5, of: Of::All, text: |row, _| short_count(row.outstanding as f64) },
    ACTIVE,
    Column { title: "groups", width: 14, of: Of::Pool, text: groups },
    ESSENTIALS,
    Column { title: "own", width: 4, of: Of::Pool, text: |row, _| of_pool(row, |share| share.spares_own.to_string()) },
    Column {
        title: "lent",
        width: 4,
        of: Of::Pool,
        text: |row, _| of_pool(row, |share| share.spares_lent.to_string()),
    },
    Column {
        title: "leased",
        width: 6,
        of: Of::Pool,
        text: |row, _| of_pool(row, |share| share.spares_leased.to_string()),
    },
    Column {
        title: "used",
        width: 4,
        of: Of::Pool,
        text: |row, _| of_pool(row, |share| share.spares_used.to_string()),
    },
    READS,
    TOKENS,
];

const P50: Column = Column { title: "p50", width: 5, of: Of::All, text: |row, _| latency(row, |rates| rates.p50_ns) };
const P99_9: Column =
    Column { title: "p99.9", width: 5, of: Of::All, text: |row, _| latency(row, |rates| rates.p99_9_ns) };
const ACTIVE: Column = Column { title: "active", width: 7, of: Of::Zoned, text: active };
const ESSENTIALS: Column =
    Column { title: "ess", width: 4, of: Of::Pool, text: |row, _| of_pool(row, |share| share.essentials.to_string()) };
const READS: Column = Column { title: "reads", width: 6, of: Of::Grants, text: reads };
const TOKENS: Column = Column { title: "tokens", width: 6, of: Of::Grants, text: tokens };

/// Draws the title and as many rows as fit into `lines`, among them the selected one. Returns the
/// line below.
pub(super) fn draw(canvas: &mut Canvas<'_>, top: u16, lines: u16, rows: &[&Row], selected: usize, is_old: bool) -> u16 {
    let is_wide = canvas.width() >= WIDE;
    let all: &[Column] = if is_wide { &WIDE_COLUMNS } else { &NARROW_COLUMNS };
    let mut columns: Vec<&Column> = all.iter().collect();
    columns.retain(|column| rows.iter().any(|row| column.of.has(row)));
    let left = canvas.width().saturating_sub(2 + columns.iter().map(|column| column.width + 1).sum::<u16>());
    let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(NAME_WIDTH_MIN);
    let name_width = left.min(u16::try_from(longest).unwrap_or(u16::MAX));
    canvas.put(2, top, "namespace", BOLD);
    let mut right = 2 + name_width;
    for column in &columns {
        right += 1 + column.width;
        put_right(canvas, right, top, column.title, BOLD);
    }
    let shown = usize::from(lines.saturating_sub(1));
    let first = (selected + 1).saturating_sub(shown);
    let mut line = top + 1;
    for (index, row) in rows.iter().enumerate().skip(first).take(shown) {
        let style = if is_old { DIM } else { PLAIN };
        if index == selected {
            canvas.put(0, line, ">", BOLD);
        }
        canvas.put(2, line, &fitting(&row.name, usize::from(name_width)), style);
        let mut right = 2 + name_width;
        for column in &columns {
            right += 1 + column.width;
            put_right(canvas, right, line, &(column.text)(row, usize::from(column.width)), style);
        }
        if index == selected {
            canvas.style_line(line, SELECTED);
        }
        line += 1;
    }
    if rows.len() > shown {
        let hidden = rows.len() - shown;
        canvas.put(2, line, &format!("{hidden} more"), DIM);
        line += 1;
    }
    line
}

fn put_right(canvas: &mut Canvas<'_>, right: u16, line: u16, text: &str, style: ratatui::style::Style) {
    canvas.put(right.saturating_sub(text.chars().count() as u16), line, text, style);
}

/// The end of a name that is too long: names of namespaces differ there more often.
fn fitting(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let rest: String = name.chars().skip(length + 1 - width.max(1)).collect();
    format!("…{rest}")
}

fn rate(row: &Row, text: fn(&Rates) -> String) -> String {
    row.rates.as_ref().map_or_else(|| NONE.to_owned(), text)
}

fn latency(row: &Row, of: fn(&Rates) -> Option<u64>) -> String {
    row.rates.as_ref().and_then(of).map_or_else(|| NONE.to_owned(), short_time)
}

fn of_pool(row: &Row, text: fn(&super::frame::ShareOfPool) -> String) -> String {
    row.share.as_ref().map_or_else(|| NONE.to_owned(), text)
}

fn active(row: &Row, _: usize) -> String {
    match row.max_active_zones {
        Some(max) => format!("{}/{max}", row.active_zones),
        None if row.volume.is_some() => NONE.to_owned(),
        None => row.active_zones.to_string(),
    }
}

/// `2x16 1x8`: two groups of width 16, one of width 8. If that is too long, the range of widths.
fn groups(row: &Row, width: usize) -> String {
    let Some(share) = &row.share else { return NONE.to_owned() };
    let widest_first = share.stripe_groups.iter().rev();
    let all: Vec<String> = widest_first.map(|count| format!("{}x{}", count.groups, count.width)).collect();
    let all = all.join(" ");
    match &share.stripe_groups[..] {
        [] => NONE.to_owned(),
        _ if all.len() <= width => all,
        [narrow, .., wide] => format!("{}..{}", wide.width, narrow.width),
        [one] => format!("x{}", one.width),
    }
}

/// `64-0+16`: 64 of its own, of which 0 are lent, and 16 leased. If that is too long, their sum.
fn spares(row: &Row, width: usize) -> String {
    let Some(share) = &row.share else { return NONE.to_owned() };
    let all = format!("{}-{}+{}", share.spares_own, share.spares_lent, share.spares_leased);
    if all.len() <= width { all } else { share.spares().to_string() }
}

/// Reads in flight, and how many may be.
fn reads(row: &Row, width: usize) -> String {
    let Some(grants) = &row.grants else { return NONE.to_owned() };
    let all = format!("{}/{}", grants.reads_in_flight, grants.read_window);
    if all.len() <= width { all } else { short_count(f64::from(grants.read_window)) }
}

fn tokens(row: &Row, _: usize) -> String {
    row.grants.as_ref().map_or_else(|| NONE.to_owned(), |grants| short_bytes(grants.write_tokens_bytes as f64))
}

#[cfg(test)]
mod tests {
    use zonda_devices::PoolGroupCount;

    use super::super::frame::ShareOfPool;
    use super::*;

    #[test]
    fn what_is_too_long_for_its_column_is_shown_in_a_shorter_form() {
        let count = |width, groups| PoolGroupCount { width, groups };
        let share = ShareOfPool {
            spares_own: 2048,
            spares_lent: 48,
            spares_leased: 1000,
            stripe_groups: vec![count(2, 100), count(8, 20), count(16, 3)],
            ..ShareOfPool::default()
        };
        let row = Row { share: Some(share), ..Row::default() };
        assert_eq!((groups(&row, 14), groups(&row, 8)), ("16..2".to_owned(), "16..2".to_owned()));
        assert_eq!(
            (groups(&row, 15), spares(&row, 12), spares(&row, 10)),
            ("3x16 20x8 100x2".to_owned(), "2048-48+1000".to_owned(), "3000".to_owned())
        );
        assert_eq!(
            (fitting("tenant-0001", 11), fitting("tenant-0001", 6)),
            ("tenant-0001".to_owned(), "…-0001".to_owned())
        );
        assert_eq!(groups(&Row::default(), 8), "-");
    }
}
