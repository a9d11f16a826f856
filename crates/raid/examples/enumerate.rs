//! Explores all histories of up to this many operations on the smallest volumes, or replays one
//! case by its name:
//!
//! ```text
//! cargo run -p zonda-raid --example enumerate -- 2 raid5
//! cargo run -p zonda-raid --example enumerate -- 'raid5/oob/g1/plp/w0 flush/end/flip 2:37 data'
//! ```
//!
//! `seeded` prints which of the seeded bugs histories of this length find.
//!
//! After the number of operations come words that must occur in the names of setups, `pairs` for
//! two faults at a time, and `full` for all operations.

use zonda_raid::SeededBug;
use zonda_raid::testing::enumerate::{Case, Depth, Op, Report, Setup, explore, histories, replay};

/// Sizes of groups, in stripes.
const GROUPS: [u32; 3] = [1, 2, 4];

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(case) = words.first().filter(|word| word.contains('/')) {
        let case: Case = case.parse().unwrap_or_else(|error| panic!("{error}"));
        match replay(&case) {
            Ok(()) => println!("{case}: no violation"),
            Err(failure) => {
                println!("{case}: {failure:?}");
                std::process::exit(1);
            }
        }
        return;
    }
    let mut has = |word: &str| {
        let at = words.iter().position(|other| other == word);
        at.map(|at| words.remove(at)).is_some()
    };
    let depth = if has("pairs") { Depth::PAIRS } else { Depth::SINGLE };
    let is_full = has("full");
    let has_bugs = has("seeded");
    let length = words.first().and_then(|word| word.parse().ok()).unwrap_or(1);
    let filters = words.get(1..).unwrap_or_default();
    std::panic::set_hook(Box::new(|_| ()));
    if has_bugs {
        return seeded_bugs(length, words.get(1..).unwrap_or_default());
    }
    let mut sum = Report::default();
    for setup in Setup::all(&GROUPS) {
        let name = setup.to_string();
        if !filters.iter().all(|filter| name.split('/').any(|part| part == filter)) {
            continue;
        }
        let alphabet = Op::alphabet(setup.scheme().members(), setup.scheme().parity > 0, is_full);
        for history in (0..=length).flat_map(|length| histories(&alphabet, length)) {
            sum.add(explore(setup, &history, depth));
        }
        eprintln!("{name}: {} cases so far", sum.cases);
    }
    print!("{sum}");
}

/// Prints the first case that finds each seeded bug, or each of the selected ones.
fn seeded_bugs(length: usize, words: &[String]) {
    let is_bug = |word: &&String| SeededBug::ALL.iter().any(|(name, _)| name == *word);
    let (names, filters): (Vec<&String>, Vec<&String>) = words.iter().partition(is_bug);
    for (name, bug) in SeededBug::ALL {
        if names.is_empty() || names.iter().any(|other| *other == name) {
            println!("{name}: {}", finder_of(bug, length, &filters).unwrap_or_else(|| "not found".to_owned()));
        }
    }
}

fn finder_of(bug: SeededBug, length: usize, filters: &[&String]) -> Option<String> {
    let is_meant =
        |setup: &Setup| filters.iter().all(|filter| setup.to_string().split('/').any(|part| part == *filter));
    for length in 0..=length {
        for setup in Setup::all(&GROUPS).into_iter().filter(is_meant) {
            let alphabet = Op::alphabet(setup.scheme().members(), setup.scheme().parity > 0, true);
            for history in histories(&alphabet, length) {
                let sound: Vec<String> = explore(setup, &history, Depth::SINGLE).found.into_keys().collect();
                let seeded = explore(setup.with_bug(bug), &history, Depth::SINGLE);
                let mut found = seeded.found.into_iter();
                if let Some((kind, found)) = found.find(|(kind, _)| !sound.contains(kind)) {
                    return Some(format!("{kind}: {}", found.first));
                }
            }
        }
    }
    None
}
