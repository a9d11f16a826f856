//! The built-in experiments: a file each under `crates/lab/experiments/`.

use zonda_stack::Profiles;

use crate::LabExperiment;

macro_rules! experiments {
    ($($id:literal => $path:literal,)*) => {
        &[$(($id, include_str!(concat!("../experiments/", $path, ".toml"))),)*]
    };
}

/// Id and text of each, paper by paper.
const BUILTIN: &[(&str, &str)] = experiments! {
    "ezns-table-2" => "ezns/table-2",
    "ezns-section-3-4" => "ezns/section-3-4",
    "ezns-figure-7" => "ezns/figure-7",
    "ezns-figure-8" => "ezns/figure-8",
    "ezns-figure-9" => "ezns/figure-9",
    "ezns-figure-11" => "ezns/figure-11",
    "ezns-figure-12" => "ezns/figure-12",
    "ezns-figure-13" => "ezns/figure-13",
    "ezns-figure-14-reads" => "ezns/figure-14-reads",
    "ezns-figure-14-writes" => "ezns/figure-14-writes",
    "ezns-figure-15" => "ezns/figure-15",
    "ezns-table-3" => "ezns/table-3",
    "ezns-figure-17" => "ezns/figure-17",
    "ezns-figure-18" => "ezns/figure-18",
    "ezns-figure-19" => "ezns/figure-19",
    "ezns-figure-20" => "ezns/figure-20",
    "ezns-figure-21" => "ezns/figure-21",
    "ezns-figure-26" => "ezns/figure-26",
    "ezns-figure-27" => "ezns/figure-27",
    "ezns-figure-29a" => "ezns/figure-29a",
    "ezns-figure-29b" => "ezns/figure-29b",
    "ezns-figure-29c" => "ezns/figure-29c",
    "ezns-figure-30" => "ezns/figure-30",
    "ezns-figure-32" => "ezns/figure-32",
    "ezns-figure-34" => "ezns/figure-34",
    "ezns-figure-40" => "ezns/figure-40",
    "ezns-section-5-4" => "ezns/section-5-4",
    "study-figure-3" => "study/figure-3",
    "study-figure-4a" => "study/figure-4a",
    "study-figure-4b" => "study/figure-4b",
    "study-figure-5a" => "study/figure-5a",
    "study-figure-5b" => "study/figure-5b",
    "study-figure-6a" => "study/figure-6a",
    "study-figure-6b" => "study/figure-6b",
    "confzns-read-finish" => "confzns/read-finish",
    "confzns-read-reset" => "confzns/read-reset",
    "confzns-write-finish" => "confzns/write-finish",
    "confzns-write-reset" => "confzns/write-reset",
    "confzns-append-finish" => "confzns/append-finish",
    "confzns-append-reset" => "confzns/append-reset",
    "zapraid-figure-1a" => "zapraid/figure-1a",
    "zapraid-figure-1b" => "zapraid/figure-1b",
    "zapraid-figure-4" => "zapraid/figure-4",
    "zapraid-figure-5" => "zapraid/figure-5",
    "zapraid-figure-6" => "zapraid/figure-6",
    "zapraid-section-3-2" => "zapraid/section-3-2",
    "silent-figure-4b" => "silent/figure-4b",
    "silent-figure-7a" => "silent/figure-7a",
    "silent-figure-7b" => "silent/figure-7b",
    "silent-figure-7c" => "silent/figure-7c",
    "silent-figure-7d" => "silent/figure-7d",
    "silent-figure-8" => "silent/figure-8",
    "silent-figure-9" => "silent/figure-9",
    "silent-table-3" => "silent/table-3",
    "silent-table-4" => "silent/table-4",
    "bae-figure-1b" => "bae/figure-1b",
    "bae-figure-2" => "bae/figure-2",
    "bae-figure-3" => "bae/figure-3",
    "bae-figure-4" => "bae/figure-4",
    "bae-figure-7a" => "bae/figure-7a",
    "bae-figure-7b" => "bae/figure-7b",
    "bae-figure-8a" => "bae/figure-8a",
    "bae-figure-8b" => "bae/figure-8b",
    "volumes-levels" => "volumes/levels",
    "volumes-groups" => "volumes/groups",
    "volumes-sizes" => "volumes/sizes",
    "volumes-ageing" => "volumes/ageing",
    "volumes-collection" => "volumes/collection",
    "volumes-latency" => "volumes/latency",
    "conventional-amplification" => "conventional/amplification",
    "pools-interference-small" => "pools/interference-small",
    "pools-interference-zn540" => "pools/interference-zn540",
};

/// The IDs of the built-in experiments, paper by paper.
pub fn builtin_ids() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(id, _)| *id)
}

/// The text of a built-in experiment.
#[must_use]
pub fn builtin_text(id: &str) -> Option<&'static str> {
    BUILTIN.iter().find(|(known, _)| *known == id).map(|(_, text)| *text)
}

/// A built-in experiment, with the drives of these profiles.
///
/// # Panics
/// If its file is invalid, which a test excludes.
#[must_use]
pub fn builtin(id: &str, profiles: &Profiles<'_>) -> Option<LabExperiment> {
    let parsed = LabExperiment::parse(id, builtin_text(id)?, profiles);
    Some(parsed.unwrap_or_else(|error| panic!("the built-in experiment {id} is wrong: {error:?}")))
}
