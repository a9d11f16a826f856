//! `zonda drive show DIR` and `zonda drive check DIR`: shows and verifies an image.

use std::path::Path;

use serde::Serialize;
use zonda_config::ByteSize;
use zonda_devices::{DriveError, DriveFacts, ImageDirectory, LoadedElements, random};
use zonda_exports::snapshot::{ElementsSnapshot, LifeSnapshot};
use zonda_image::{CheckReport, Finding, ImageFile, Inspection};
use zonda_ssd::profile::Profile;
use zonda_zoned::{ReportFilter, ZoneDescriptor};

use crate::commands::connect;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::progress::Progress;
use crate::table::Table;
use crate::{remedies, units, zone_map};

/// The remedy for an image that another program writes to.
const IN_USE: &str = "stop the program that uses it, or let it serve the image with zonda serve --read-only: zonda drive show and \
                      zonda drive check can then read the image; zonda status shows the drives of a running server, and zonda volume \
                      scrub verifies all members of a served volume";

/// The remedy for a missing image, where a new one would be of no use.
pub(super) const NO_IMAGE: &str = "check the path: give the directory of an existing image";

/// What `zonda drive show DIR --json` prints.
#[derive(Serialize)]
struct Sheet {
    directory: String,
    uuid: String,
    profile: String,
    /// Whether the drive was shut down cleanly; if not, the other fields show the state after
    /// recovery.
    clean: bool,
    block_size_bytes: u32,
    metadata_bytes: u16,
    zone_size_blocks: u64,
    zone_capacity_blocks: u64,
    max_active_zones: Option<u32>,
    max_open_zones: Option<u32>,
    zones_by_state: Vec<State>,
    life: LifeSnapshot,
    /// Storage elements of zones; absent for fixed allocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    elements: Option<ElementsSnapshot>,
    /// Why the wear of the elements will be reset when the image is next opened, or cannot be read.
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
    remedies::refuse_volume(directory, "zonda volume status DIR shows it")?;
    let inspection = inspect_or(directory, refused)?;
    if json { print_json(&Sheet::of(directory, &inspection)) } else { print(&text_of(directory, &inspection)) }
}

/// Reads the state of an image. Nothing is written, and no process may be writing to the image.
pub(crate) fn inspect(directory: &Path) -> Result<Inspection, Failure> {
    inspect_or(directory, remedies::no_image)
}

/// The same for a check before an image is opened; `None` if it cannot be read, which opening it
/// reports.
pub(crate) fn peek(directory: &Path) -> Option<Inspection> {
    zonda_image::inspect(&mut ImageDirectory::open_shared(directory).ok()?).ok()
}

fn inspect_or(directory: &Path, refused: fn(&Path, DriveError) -> Failure) -> Result<Inspection, Failure> {
    let mut files = look(directory, refused)?;
    zonda_image::inspect(&mut files).map_err(|error| unusable(directory, &error))
}

fn look(directory: &Path, refused: fn(&Path, DriveError) -> Failure) -> Result<ImageDirectory, Failure> {
    let files = ImageDirectory::open_shared(directory).map_err(|error| refused(directory, error))?;
    connect::warn_if_exposed(directory);
    Ok(files)
}

/// For commands that cannot use the drive through its server.
fn refused(directory: &Path, error: DriveError) -> Failure {
    match error {
        error if error.is_in_use => Failure::input(error.message, IN_USE),
        error if error.is_missing => remedies::no_image(directory, DriveError { help: NO_IMAGE.to_owned(), ..error }),
        error => connect::failure(error),
    }
}

fn unusable(directory: &Path, error: &zonda_image::ImageError) -> Failure {
    connect::failure(zonda_devices::unusable_image(directory, error))
}

impl Sheet {
    fn of(directory: &Path, inspection: &Inspection) -> Sheet {
        let geometry = &inspection.spec.geometry;
        let facts = DriveFacts::of_zones(&inspection.zones);
        let mut life = zonda_devices::life_of(&inspection.counters, geometry, inspection.wear.iter().copied());
        let found = LoadedElements::inspect(directory, &inspection.spec, &inspection.zones);
        let (elements, elements_trouble) = match found {
            Ok(None) => (None, None),
            Ok(Some(LoadedElements { tracker, reset_reason, .. })) => {
                life = life.with_elements(&tracker);
                (Some(ElementsSnapshot::of(&tracker.facts(), Some(&life))), reset_reason)
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

/// The name in the text of a profile; "unknown" if it is of a later, incompatible version.
fn profile_name(text: &str) -> String {
    Profile::parse(text).map_or_else(|_| "unknown".to_owned(), |profile| profile.name)
}

fn text_of(directory: &Path, inspection: &Inspection) -> String {
    let screen = Screen::of_stdout();
    let sheet = Sheet::of(directory, inspection);
    let geometry = &inspection.spec.geometry;
    let life = &sheet.life;
    let state = if sheet.clean { "clean" } else { "unclean: recovered when the image is next opened" };
    let limit = |limit: Option<u32>| limit.map_or_else(|| "any number".to_owned(), |limit| limit.to_string());
    let mut text = format!("{}: image with profile {}\n\n", screen.bold(&sheet.directory), sheet.profile);
    let unit = if sheet.elements.is_some() { "element" } else { "zone" };
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
        ("shutdown", state.to_owned()),
        (
            "hosts",
            format!("wrote {}, read {}", units::bytes(life.host_write_bytes), units::bytes(life.host_read_bytes)),
        ),
        (
            "DLWA",
            format!("{:.3}: the drive wrote {} of padding at finish", life.dlwa, units::bytes(life.device_write_bytes)),
        ),
        ("wear", format!("{} to {} erases per {unit}", units::count(life.erases_min), units::count(life.erases_max))),
    ];
    if let Some(elements) = &sheet.elements {
        lines.push(("elements", elements_in_words(elements)));
        let mapping = format!("{} for the table of elements of zones", units::bytes(elements.mapping_bytes));
        lines.push(("mapping", mapping));
    }
    lines.extend(sheet.elements_trouble.iter().map(|why| match sheet.elements {
        Some(_) => ("", format!("their wear will be reset: {why}")),
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

/// The allocation policy and the states of its elements, in a line.
pub(crate) fn elements_in_words(elements: &ElementsSnapshot) -> String {
    let states = elements.by_state();
    // Retired elements are rare.
    let states = states.iter().filter(|(state, count)| *state != "retired" || *count > 0);
    let states: Vec<String> = states.map(|(state, count)| format!("{} {state}", units::count(*count))).collect();
    format!(
        "{}, {} of {} per zone: {}; {}",
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
    is_healthy: bool,
    clean: bool,
    blocks_verified: u64,
    /// Of these, blocks with a write in flight at the last stop, in which damage cannot be
    /// detected.
    blocks_accepted: u64,
    findings: Vec<String>,
    /// Findings that are not damage, but effects of an unclean shutdown.
    notes: Vec<String>,
    /// Whether there is more damage than `findings` lists.
    more_findings: bool,
}

pub(super) fn check(directory: &Path, json: bool, quiet: bool) -> Result<(), Failure> {
    remedies::refuse_volume(directory, "zonda volume check DIR verifies it, with the images of its members")?;
    let mut files = look(directory, refused)?;
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
        format!(
            "{blocks} of these were being overwritten when the drive stopped and are accepted without verification: \
             damage in them cannot be detected"
        )
    });
    let verdict = Verdict {
        directory: directory.display().to_string(),
        is_healthy: damage.is_empty(),
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
    if verdict.is_healthy { Ok(()) } else { Err(Failure::Run) }
}

/// The note on a copy of the checkpoint that is incomplete after a kill or a power loss.
const TORN_CHECKPOINT: &str = "state.zonda: one of the two copies of the checkpoint is incomplete, because the drive stopped while it was \
     written; this is not damage: the other copy is complete, and opening the drive rewrites this one";

/// The two copies of a checkpoint are written one after the other: after an unclean shutdown, one
/// may be incomplete. After a clean shutdown, an unreadable copy is damage.
fn is_ordinary(finding: &Finding, report: &CheckReport) -> bool {
    !report.clean && matches!(finding, Finding::Copy { file: ImageFile::State })
}

fn words_of(verdict: &Verdict, report: &CheckReport) -> String {
    let stop = if report.clean { "" } else { "; the last shutdown was unclean: the state after recovery was verified" };
    let blocks = units::counted(report.blocks, "block");
    let screen = Screen::of_stdout();
    let notes: String = verdict.notes.iter().map(|note| screen.paragraph(note, 2)).collect();
    if verdict.is_healthy {
        return screen.paragraph(&format!("{}: no damage, {blocks} verified{stop}", verdict.directory), 0) + &notes;
    }
    let mut table = Table::new(&["damaged"]);
    verdict.findings.iter().for_each(|finding| table.row(&[finding]));
    let more = if verdict.more_findings { "and more\n" } else { "" };
    let table = table.render_wide(2);
    let title = screen.paragraph(&format!("{}: damaged, {blocks} checked{stop}", verdict.directory), 0);
    format!("{title}\n{table}{more}{notes}")
}
