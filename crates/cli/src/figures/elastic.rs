//! Results of a pool as text.

use zonda_stack::{ElasticNamespace, ElasticSummary, GroupCount};

use crate::output::Screen;
use crate::table::Table;
use crate::units;

/// Heights of a bar, from the lowest to the highest value of all namespaces.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Maximum number of bars of a line.
const BARS_MAX: usize = 60;
/// Columns beside the bars: the indent, the name and the numbers.
const BESIDE_BARS: usize = 34;
/// Maximum number of characters of a name beside bars.
const NAME_MAX: usize = 12;

/// The shares of the namespaces at the end, and their active zones over time.
pub(super) fn pool(pool: &ElasticSummary, screen: Screen) -> String {
    let line = format!(
        "{} of {} each; {} and {} among the active zones of the drive; stripe groups of at most {}",
        units::counted(pool.namespaces.iter().map(|namespace| u64::from(namespace.zones)).sum(), "v-zone"),
        units::counted(pool.zones_per_vzone.into(), "physical zone"),
        units::counted(pool.essential_zones.into(), "essential"),
        units::counted(pool.spare_zones.into(), "spare"),
        units::counted(pool.width_max.into(), "zone"),
    );
    let mut text = format!("\n{}\n{}", screen.bold("The pool"), screen.paragraph(&line, 2));
    let mut table = Table::new(&[
        "namespace",
        ">weight",
        ">essentials",
        ">spares",
        ">lent",
        ">leased",
        ">in use",
        "stripe groups (number x width)",
    ]);
    for namespace in &pool.namespaces {
        table.row(&row(namespace));
    }
    text += &table.render(screen, 2);
    text + &over_time(pool, screen)
}

fn row(namespace: &ElasticNamespace) -> [String; 8] {
    [
        namespace.name.clone(),
        units::count(namespace.weight.into()),
        units::count(namespace.essentials.into()),
        units::count(namespace.spares_own.into()),
        units::count(namespace.spares_lent.into()),
        units::count(namespace.spares_leased.into()),
        units::count(namespace.spares_used.into()),
        groups(&namespace.groups),
    ]
}

/// How many stripe groups there are of each width, the widest first.
pub(crate) fn groups(groups: &[GroupCount]) -> String {
    let parts = groups.iter().rev().map(|of| format!("{} x {}", units::count(of.groups.into()), of.width));
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

/// A line of bars for each namespace: the active zones that it may use.
fn over_time(pool: &ElasticSummary, screen: Screen) -> String {
    let (Some(first), Some(last)) = (pool.series.first(), pool.series.last()) else { return String::new() };
    let available = || pool.series.iter().flat_map(|sample| &sample.namespaces).map(|zones| zones.available);
    let (least, most) = (available().min().unwrap_or(0), available().max().unwrap_or(0));
    let bars = usize::from(screen.width).saturating_sub(BESIDE_BARS).clamp(1, BARS_MAX).min(pool.series.len());
    let mut text = format!(
        "\n  Active zones available to each namespace, from {} to {}\n",
        units::time(first.at_ns),
        units::time(last.at_ns)
    );
    for (place, namespace) in pool.namespaces.iter().enumerate() {
        // Each bar is the last sample of its part of the time.
        let of_bar = |bar: usize| &pool.series[(bar + 1) * pool.series.len() / bars - 1].namespaces[place];
        let line: String = (0..bars).map(|bar| bar_of(of_bar(bar).available, least, most)).collect();
        let own = || pool.series.iter().map(|sample| sample.namespaces[place].available);
        let (low, high) = (own().min().unwrap_or(0), own().max().unwrap_or(0));
        let name: String = namespace.name.chars().take(NAME_MAX).collect();
        text += &format!("  {name:<NAME_MAX$} {line} {low} to {high}\n");
    }
    text
}

fn bar_of(value: u32, least: u32, most: u32) -> char {
    let steps = BARS.len() as u64 - 1;
    let height = u64::from(value - least) * steps / u64::from((most - least).max(1));
    BARS[height as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_stack::{ActiveZones, ElasticSample};

    fn namespace(name: &str, lent: u32, leased: u32) -> ElasticNamespace {
        ElasticNamespace {
            name: name.to_owned(),
            zones: 40,
            max_active_zones: 16,
            weight: 1,
            essentials: 32,
            spares_own: 30,
            spares_lent: lent,
            spares_leased: leased,
            spares_used: 5,
            width_min: 2,
            vzone_memory_max_bytes: 320,
            groups: vec![GroupCount { width: 2, groups: 7 }, GroupCount { width: 8, groups: 1200 }],
        }
    }

    fn sample(at_ns: u64, available: [u32; 2]) -> ElasticSample {
        let namespaces =
            available.map(|available| ActiveZones { available, spares_lent: 0, spares_leased: 0, spares_used: 0 });
        ElasticSample { at_ns, namespaces: namespaces.to_vec() }
    }

    fn summary() -> ElasticSummary {
        ElasticSummary {
            zones_per_vzone: 16,
            essential_zones: 64,
            spare_zones: 60,
            width_max: 16,
            namespaces: vec![namespace("db", 28, 0), namespace("a-very-long-name", 0, 28)],
            series: vec![sample(1_000_000_000, [62, 62]), sample(2_000_000_000, [34, 90])],
        }
    }

    #[test]
    fn the_shares_of_each_namespace_and_its_groups_are_shown() {
        let text = pool(&summary(), Screen { width: 100, colour: false });
        let words: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in ["db 1 32 30 28 0 5 1,200 x 8, 7 x 2", "a-very-long-name 1 32 30 0 28 5 1,200 x 8, 7 x 2"] {
            assert!(words.iter().any(|of| of == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn active_zones_over_time_are_bars_between_the_least_and_the_most_of_all() {
        let text = pool(&summary(), Screen { width: 80, colour: false });
        for line in ["  db           ▄▁ 34 to 62\n", "  a-very-long- ▄█ 62 to 90\n"] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(text.contains("from 1.00 s to 2.00 s"), "{text}");
    }

    #[test]
    fn lines_fit_the_screen() {
        let mut long = summary();
        long.series = (1..=400).map(|at| sample(at * 1_000_000, [34 + at as u32 % 20, 62])).collect();
        for width in [80, 100] {
            let text = pool(&long, Screen { width, colour: false });
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)), "{width}\n{text}");
        }
    }
}
