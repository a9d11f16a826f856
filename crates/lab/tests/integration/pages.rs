//! The pages of experiments: one byte for byte, and all of them as a whole.
#![allow(clippy::disallowed_methods, reason = "golden files are read and written by this test alone")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use zonda_lab::{LabExperiment, Measurement, Outcome, PageFile, PlotPlan, site};

use super::builtin::all;

use crate::PROFILES;

const SMALL: &str = r#"title = "Reads & writes by <depth>"
paper = "ezns"
place = "Figure 99"
about = """
The first paragraph has
two lines.

The second has one, with <b>no</b> markup.
"""

[statistics]
seeds = 2

[drive]
profile = "tiny"

[run]
time = "5 ms"

[[job]]
name = "client"
operation = "randread"

[x]
title = "queue depth"
scale = "log2"
values = [1, 2, 4]
set = { "job.client.queue_depth" = "{}" }

[[series]]
name = "4 KiB"

[[series]]
name = "<16> KiB"
set = { "job.client.block_size" = "16 KiB" }

[[metric]]
name = "rate"
unit = "kIOPS"
of = "client.read.iops"

[[plot]]
title = "Rate by <depth>"
metrics = ["rate"]
note = "A note & more."

[[published]]
metric = "rate"
series = "4 KiB"
points = [[1, 10.5], [4, 41]]

[[result]]
id = "ezns-f99-met"
title = "four reads at a time"
unit = "kIOPS"
published = 41
tolerance = 0.1
of = { metric = "rate", series = "4 KiB", at = 4 }

[[result]]
id = "ezns-f99-missed"
title = "gain of <16> KiB"
unit = "ratio"
published = 3.5
tolerance = 0.1
of = { metric = "rate", series = "<16> KiB", at = 4 }
over = { metric = "rate", series = "<16> KiB", at = 1 }
miss = "Dies & channels < link."

[[contradiction]]
between = ["ezns-f99-met", "Section <2>"]
because = "Both & neither."
follows = "The first."
other_needs = "A <faster> drive."
"#;

/// The experiment above under this name, with made-up measurements: the last point was never
/// steady.
fn small(id: &str) -> (LabExperiment, Outcome) {
    let experiment = LabExperiment::parse(id, SMALL, &PROFILES).expect("it is right");
    let rates = [[10.0, 11.0], [20.0, 21.5], [40.0, 42.0], [8.0, 8.0], [14.0, 14.5], [20.0, 20.4]];
    let measurement = |(place, rates): (usize, [f64; 2])| Measurement {
        values: vec![Some(rates.to_vec())],
        warm_up_ns: 1_000_000,
        time_ns: 5_000_000,
        is_steady: place != 5,
        errors: if place == 4 { 3 } else { 0 },
        failure: None,
    };
    let measurements = rates.into_iter().enumerate().map(measurement).collect();
    (experiment, Outcome { measurements })
}

/// Every experiment that comes with zonda, with the measurements of nothing that was ever run, and
/// two of a user's own.
fn everything() -> Vec<(LabExperiment, Outcome)> {
    let made_up = |experiment: LabExperiment| {
        let measurement = |place: usize| Measurement {
            values: (0..experiment.metrics.len())
                .map(|metric| {
                    let value = 50.0 + (place * 37 % 101) as f64 + 10.0 * metric as f64;
                    (place % 11 != 3).then(|| (0..experiment.seeds).map(|seed| value + f64::from(seed)).collect())
                })
                .collect(),
            warm_up_ns: 0,
            time_ns: 1_000_000,
            is_steady: place % 7 != 5,
            errors: (place % 13 == 4).into(),
            failure: None,
        };
        let measurements = (0..experiment.points.len()).map(measurement).collect();
        (experiment, Outcome { measurements })
    };
    all().into_iter().map(made_up).chain([small("my reads #2 & <more>"), small("index")]).collect()
}

/// The pages of everything.
static ALL: LazyLock<Vec<PageFile>> = LazyLock::new(|| site(&everything()));

fn text_of<'a>(files: &'a [PageFile], path: &str) -> &'a str {
    let file = files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("there is no {path}"));
    &file.text
}

/// Holds a text against `tests/golden/NAME`, or writes it there if `ZONDA_UPDATE_GOLDEN` is set.
fn assert_golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("ZONDA_UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).expect("the golden file can be written");
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert!(text == golden, "{name} differs; ZONDA_UPDATE_GOLDEN=1 rewrites it");
}

/// Everything between `before` and the next quotation mark.
fn attributes<'a>(html: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    html.split(before).skip(1).filter_map(|rest| rest.split('"').next())
}

#[test]
fn the_page_of_a_paper_is_unchanged() {
    let files = site(&[small("ezns-small")]);
    for (path, golden) in [("ezns.html", "ezns.html"), ("ezns-small/small-1.svg", "small-1.svg")] {
        // The style of all pages and charts, and the version of the program, may change without
        // this page.
        let text = text_of(&files, path).replace(concat!("zonda ", env!("CARGO_PKG_VERSION")), "zonda VERSION");
        let (before, style) = text.split_once("<style>").expect("it has a style");
        let (_, after) = style.split_once("</style>").expect("a style ends");
        assert_golden(golden, &format!("{before}<style></style>{after}"));
    }
}

#[test]
fn the_same_measurements_give_the_same_bytes() {
    assert_eq!(*ALL, site(&everything()));
}

#[test]
fn every_link_leads_to_an_existing_file_and_anchor() {
    let files = &*ALL;
    let encoded = |path: &str| {
        path.replace(' ', "%20").replace('#', "%23").replace('&', "%26").replace('<', "%3C").replace('>', "%3E")
    };
    let texts: BTreeMap<String, &str> = files.iter().map(|file| (encoded(&file.path), file.text.as_str())).collect();
    assert_eq!(texts.len(), files.len(), "two files have one path");
    for file in files.iter().filter(|file| file.path.ends_with(".html")) {
        let mut links = 0;
        for link in attributes(&file.text, "href=\"") {
            links += 1;
            if link.starts_with("https://") {
                continue;
            }
            let (path, place) = link.split_once('#').map_or((link, None), |(path, place)| (path, Some(place)));
            let path = if path.is_empty() { encoded(&file.path) } else { path.to_owned() };
            let text = texts.get(&path).unwrap_or_else(|| panic!("{}: {link} leads nowhere", file.path));
            if let Some(place) = place {
                assert!(text.contains(&format!("id=\"{place}\"")), "{}: {link} has no such place", file.path);
            }
        }
        assert!(links > 3, "{} has no links", file.path);
    }
}

#[test]
fn ids_are_unique_and_pages_load_nothing_from_other_servers() {
    for file in ALL.iter().filter(|file| file.path.ends_with(".html")) {
        let mut seen = BTreeSet::new();
        for id in attributes(&file.text, " id=\"") {
            assert!(seen.insert(id), "{}: two places are called {id}", file.path);
        }
        for word in ["<script", "src=", "@import", "url(http"] {
            assert!(!file.text.contains(word), "{} has {word}", file.path);
        }
    }
}

#[test]
fn every_plot_has_a_description_and_a_unit() {
    let without_unit = ["", "ratio", "times"];
    let mut plots = 0;
    for (experiment, _) in everything() {
        let folder = format!("{}/", experiment.id);
        let svgs: Vec<&PageFile> =
            ALL.iter().filter(|file| file.path.starts_with(&folder) && file.path.ends_with(".svg")).collect();
        let unit = |plot: &PlotPlan| experiment.metrics[plot.metrics[0]].unit.as_str();
        let metrics: Vec<(&str, &str)> =
            experiment.plots.iter().map(|plot| (plot.title.as_str(), unit(plot))).collect();
        assert_eq!(svgs.len(), metrics.len(), "{}", experiment.id);
        for (svg, (title, unit)) in svgs.iter().zip(metrics) {
            let escaped = title.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            assert!(svg.text.contains(&format!(">{escaped}</title>")), "{}", svg.path);
            let description = svg.text.split("<desc ").nth(1).and_then(|rest| rest.split("</desc>").next());
            assert!(description.is_some_and(|text| text.contains("(model): ")), "{}: {description:?}", svg.path);
            let has_unit = without_unit.contains(&unit)
                || svg.text.contains(&format!("({unit})"))
                || svg.text.contains(&format!("({unit}), log scale"));
            assert!(has_unit, "{} has no axis in {unit}", svg.path);
            if let Some(x) = experiment.x.as_ref().filter(|x| !x.unit.is_empty()) {
                assert!(svg.text.contains(&format!("{} ({})", x.title, x.unit)), "{} has no unit of x", svg.path);
            }
            plots += 1;
        }
    }
    assert!(plots > 40, "{plots} plots");
}

#[test]
fn texts_of_users_are_escaped() {
    let files = site(&[small("ezns-small"), small("own & <own>")]);
    for file in files.iter().filter(|file| file.path.ends_with(".html") || file.path.ends_with(".svg")) {
        for markup in ["<depth>", "<16>", "<2>", "<faster>", "<own>", "<b>no</b>", " & "] {
            assert!(!file.text.contains(markup), "{} has {markup}", file.path);
        }
    }
}

#[test]
fn results_are_marked_as_met_or_missed_and_misses_have_a_reason() {
    let files = site(&[small("ezns-small")]);
    for path in ["index.html", "ezns.html"] {
        let page = text_of(&files, path);
        assert!(page.contains(">met</b>") && page.contains(">missed</b>"), "{path}");
        assert!(page.contains("Dies &amp; channels &lt; link."), "{path} lacks the reason");
    }
}

#[test]
fn points_without_a_steady_state_or_with_errors_are_named() {
    let files = site(&[small("ezns-small")]);
    let page = text_of(&files, "ezns.html");
    assert!(page.contains("<b>Not steady.</b>") && page.contains("&lt;16&gt; KiB, queue depth 4"));
    assert!(page.contains("<b>Commands failed.</b> 3 commands in the runs of: &lt;16&gt; KiB, queue depth 2"));
}

#[test]
fn a_modified_copy_under_another_name_does_not_count_for_its_paper() {
    let files = site(&[small("mine")]);
    assert!(text_of(&files, "mine.html").contains("<h1>Your experiment</h1>"));
    assert!(!files.iter().any(|file| file.path == "ezns.html"));
    let index = text_of(&files, "index.html");
    assert!(index.contains("<b>0 of 0</b>") && index.contains("Your experiments"));
}

#[test]
fn an_experiment_named_like_a_page_does_not_replace_it() {
    let files = site(&[small("index"), small("ezns")]);
    assert!(text_of(&files, "index-own.html").contains("Your experiment"));
    assert!(text_of(&files, "ezns-own.html").contains("Your experiment"));
    assert!(text_of(&files, "index.html").contains("reproduced on the model"));
}
