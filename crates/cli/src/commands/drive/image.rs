//! `zonda drive show DIR` and `zonda drive check DIR`: what an image holds, and whether it is well.

use std::path::Path;

use serde::Serialize;
use zonda_config::ByteSize;
use zonda_devices::{DriveFacts, FoundElements, ImageDirectory, random};
use zonda_exports::snapshot::{ElementsSnapshot, LifeSnapshot};
use zonda_image::{CheckReport, Finding, ImageFile, Inspection};
use zonda_ssd::profile::Profile;
use zonda_zoned::{ReportFilter, ZoneDescriptor};

use crate::commands::connect;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::progress::Progress;
use crate::table::Table;
use crate::{units, zone_map};

/// What `zonda drive show DIR --json` prints.
#[derive(Serialize)]
struct Sheet {
    directory: String,
    uuid: String,
    profile: String,
    /// Whether the drive was shut down in order; if not, what follows is what recovery will find.
    clean: bool,
    block_size_bytes: u32,
    metadata_bytes: u16,
    zone_size_blocks: u64,
    zone_capacity_blocks: u64,
    max_active_zones: Option<u32>,
    max_open_zones: Option<u32>,
    zones_by_state: Vec<State>,
    life: LifeSnapshot,
    /// What zones are built of; absent where they are fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    elements: Option<ElementsSnapshot>,
    /// Why the elements will begin anew when the image is next opened, or cannot be followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    elements_trouble: Option<String>,
    zones: Vec<Zone>,
}

#[derive(Serialize)]
struct State {
    state: String,
    zones: u32,
}

#[derive(Serialize)]
struct Zone {
    zone: u32,
    state: String,
    written_blocks: u64,
    erases: u32,
}

pub(super) fn show(directory: &Path, json: bool) -> Result<(), Failure> {
    let inspection = inspect(directory)?;
    if json { print_json(&Sheet::of(directory, &inspection)) } else { print(&text_of(directory, &inspection)) }
}

/// What an image is and holds. Nothing is written, and nobody may be writing to it.
pub(crate) fn inspect(directory: &Path) -> Result<Inspection, Failure> {
    let mut files = look(directory)?;
    zonda_image::inspect(&mut files).map_err(|error| unusable(directory, &error))
}

fn look(directory: &Path) -> Result<ImageDirectory, Failure> {
    let files = ImageDirectory::look_alone(directory).map_err(connect::failure)?;
    connect::warn_if_exposed(directory);
    Ok(files)
}

fn unusable(directory: &Path, error: &zonda_image::ImageError) -> Failure {
    connect::failure(zonda_devices::unusable_image(directory, error))
}

impl Sheet {
    fn of(directory: &Path, inspection: &Inspection) -> Sheet {
        let geometry = &inspection.spec.geometry;
        let facts = DriveFacts::of_zones(&inspection.zones);
        let mut life = zonda_devices::life_of(&inspection.counters, geometry, inspection.wear.iter().copied());
        let found = FoundElements::look(directory, &inspection.spec, &inspection.zones);
        let (elements, elements_trouble) = match found {
            Ok(None) => (None, None),
            Ok(Some(FoundElements { book, anew, .. })) => {
                life = life.with_elements(&book);
                (Some(ElementsSnapshot::of(&book.facts(), Some(&life))), anew)
            }
            Err(why) => (None, Some(why)),
        };
        let zones = (0..).zip(&inspection.wear).map(|(zone, erases)| {
            let view = inspection.zones.zone(zonda_zoned::ZoneIndex(zone));
            Zone { zone, state: view.state.to_string(), written_blocks: view.written_blocks.0, erases: *erases }
        });
        Sheet {
            directory: directory.display().to_string(),
            uuid: random::uuid_text(&inspection.spec.uuid),
            profile: profile_name(&inspection.spec.profile),
            clean: inspection.clean,
            block_size_bytes: geometry.block_size_bytes,
            metadata_bytes: geometry.metadata_bytes,
            zone_size_blocks: geometry.zone_size_blocks.0,
            zone_capacity_blocks: geometry.zone_capacity_blocks.0,
            max_active_zones: geometry.max_active_zones,
            max_open_zones: geometry.max_open_zones,
            zones_by_state: facts
                .zones_by_state
                .iter()
                .map(|(state, zones)| State { state: state.to_string(), zones: *zones })
                .collect(),
            life: LifeSnapshot::of(&life),
            elements,
            elements_trouble,
            zones: zones.collect(),
        }
    }
}

/// The name in a profile's text; an image of a later version may have one that cannot be read here.
fn profile_name(text: &str) -> String {
    Profile::parse(text).map_or_else(|_| "unknown".to_owned(), |profile| profile.name)
}

fn text_of(directory: &Path, inspection: &Inspection) -> String {
    let screen = Screen::of_stdout();
    let sheet = Sheet::of(directory, inspection);
    let geometry = &inspection.spec.geometry;
    let life = &sheet.life;
    let state =
        if sheet.clean { "shut down in order" } else { "not shut down in order: it recovers when it is next opened" };
    let limit = |limit: Option<u32>| limit.map_or_else(|| "any number".to_owned(), |limit| limit.to_string());
    let mut text = format!("{}: an image as {}\n\n", screen.bold(&sheet.directory), sheet.profile);
    let worn = if sheet.elements.is_some() { "an element" } else { "a zone" };
    let mut lines = vec![
        (
            "zones",
            format!(
                "{} of {}",
                units::count(u64::from(geometry.zone_count)),
                units::bytes(geometry.zone_capacity_bytes())
            ),
        ),
        (
            "blocks",
            format!(
                "{} with {} of metadata",
                ByteSize(u64::from(sheet.block_size_bytes)),
                units::bytes(u64::from(sheet.metadata_bytes))
            ),
        ),
        ("limits", format!("{} active, {} open", limit(sheet.max_active_zones), limit(sheet.max_open_zones))),
        ("stop", state.to_owned()),
        (
            "hosts",
            format!("wrote {}, read {}", units::bytes(life.host_write_bytes), units::bytes(life.host_read_bytes)),
        ),
        ("DLWA", format!("{:.3}: the drive padded {} at finish", life.dlwa, units::bytes(life.device_write_bytes))),
        ("wear", format!("{} to {} erases {worn}", units::count(life.erases_min), units::count(life.erases_max))),
    ];
    if let Some(elements) = &sheet.elements {
        lines.push(("elements", elements_in_words(elements)));
        let mapping = format!("{} to remember which elements are whose", units::bytes(elements.mapping_bytes));
        lines.push(("mapping", mapping));
    }
    lines.extend(sheet.elements_trouble.iter().map(|why| match sheet.elements {
        Some(_) => ("", format!("they begin anew, without wear: {why}")),
        None => ("elements", why.clone()),
    }));
    lines.push(("uuid", sheet.uuid.clone()));
    for (name, value) in lines {
        text += &format!("  {name:<8} {value}\n");
    }
    let report = inspection.zones.report(zonda_zoned::Lba(0), ReportFilter::All, false, true, geometry.zone_count);
    let descriptors: Vec<ZoneDescriptor> = report.map(|report| report.zones).unwrap_or_default();
    let ranges = zone_map::of_descriptors(&descriptors, geometry);
    text + "\n" + &zone_map::draw(&ranges, geometry.zone_capacity_blocks.0, screen)
}

/// A policy, and how its elements stand, in a line.
pub(crate) fn elements_in_words(elements: &ElementsSnapshot) -> String {
    let states = elements.by_state();
    // Few drives have lost zones.
    let states = states.iter().filter(|(state, count)| *state != "retired" || *count > 0);
    let states: Vec<String> = states.map(|(state, count)| format!("{} {state}", units::count(*count))).collect();
    format!(
        "{}, {} of {} a zone: {}; {}",
        elements.policy,
        elements.per_zone,
        units::bytes(elements.element_bytes),
        states.join(", "),
        units::counted(elements.erases_total, "erase")
    )
}

/// What `zonda drive check --json` prints.
#[derive(Serialize)]
struct Verdict {
    directory: String,
    /// Whether nothing is damaged.
    is_well: bool,
    clean: bool,
    blocks_verified: u64,
    /// Of these, blocks that were being overwritten, and whose damage cannot be told.
    blocks_accepted: u64,
    findings: Vec<String>,
    /// What is no damage, but not as after a stop in order.
    notes: Vec<String>,
    /// More is damaged than `findings` lists.
    more_findings: bool,
}

pub(super) fn check(directory: &Path, json: bool, quiet: bool) -> Result<(), Failure> {
    let mut files = look(directory)?;
    let mut bar = Progress::new(quiet);
    let report = zonda_image::check(&mut files, &mut |progress| {
        bar.show(Some(f64::from(progress.zones) / f64::from(progress.zones_total.max(1))), || {
            format!("zone {} of {}, {}", progress.zones, progress.zones_total, units::counted(progress.blocks, "block"))
        });
    });
    bar.finish();
    let report = report.map_err(|error| unusable(directory, &error))?;
    let (notes, damage): (Vec<_>, Vec<_>) = report.findings.iter().partition(|finding| is_ordinary(finding, &report));
    let torn = notes.iter().map(|_| TORN_CHECKPOINT.to_owned());
    let accepted = (report.accepted_blocks > 0).then(|| {
        let blocks = units::counted(report.accepted_blocks, "block");
        format!("{blocks} of these were being overwritten when the drive stopped, and are accepted as they are: damage in them cannot be told")
    });
    let verdict = Verdict {
        directory: directory.display().to_string(),
        is_well: damage.is_empty(),
        clean: report.clean,
        blocks_verified: report.blocks,
        blocks_accepted: report.accepted_blocks,
        findings: damage.iter().map(ToString::to_string).collect(),
        notes: torn.chain(accepted).collect(),
        more_findings: report.more_findings,
    };
    if json {
        print_json(&verdict)?;
    } else {
        print(&words_of(&verdict, &report))?;
    }
    if verdict.is_well { Ok(()) } else { Err(Failure::Run) }
}

/// What is said of a copy of the checkpoint that cannot be read after a kill or a loss of power.
const TORN_CHECKPOINT: &str = "state.zonda: one of the two copies of the checkpoint was not written to its end when the drive stopped; that is \
     no damage: the other copy is whole, and opening the drive writes this one again";

/// Checkpoints are written one copy after the other while a drive runs: where it was stopped in the middle of that, one of them
/// is not whole. After a stop in order both are, or one is damaged.
fn is_ordinary(finding: &Finding, report: &CheckReport) -> bool {
    !report.clean && matches!(finding, Finding::Copy { file: ImageFile::State })
}

fn words_of(verdict: &Verdict, report: &CheckReport) -> String {
    let stop =
        if report.clean { "" } else { "; the last stop was not in order, and what recovery makes of it was verified" };
    let blocks = units::counted(report.blocks, "block");
    let screen = Screen::of_stdout();
    let notes: String = verdict.notes.iter().map(|note| screen.paragraph(note, 2)).collect();
    if verdict.is_well {
        return screen.paragraph(&format!("{} is well: {blocks} verified{stop}", verdict.directory), 0) + &notes;
    }
    let mut table = Table::new(&["damaged"]);
    verdict.findings.iter().for_each(|finding| table.row(&[finding]));
    let more = if verdict.more_findings { "and more\n" } else { "" };
    let table = table.render_wide(2);
    let title = screen.paragraph(&format!("{} is damaged: {blocks} verified{stop}", verdict.directory), 0);
    format!("{title}\n{table}{more}{notes}")
}
