//! `zonda drive`: lists, shows and fits profiles; creates, shows, checks and repairs images.

pub(crate) mod create;
mod derived;
mod fit;
pub(crate) mod image;
mod repair;
mod values;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde::Serialize;
use zonda_profiles::{builtin_names, builtin_text};
use zonda_ssd::profile::{Profile, SourceKind};

use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::table::Table;
use crate::{files, remedies, units};
use derived::Derived;
use values::Value;

const SHOW_EXAMPLES: &str = "Examples:
  zonda drive show zn540
  zonda drive show ./mine.toml     check and show a profile of your own
  zonda drive show drives/a        show zones, wear and counters of an image
  zonda drive show tiny --json | jq '.values[] | select(.is_fitted)'";

/// What the user can do with a drive that a server uses.
const OF_URL: &str = "zonda zone report URL shows the zones of a served drive, and zonda status its state and wear; the files of an \
                      image are read on the machine that stores them, in its directory";

#[derive(Debug, Subcommand)]
pub(crate) enum DriveCommand {
    /// List the built-in drive profiles
    #[command(after_long_help = "Example:\n  zonda drive profiles")]
    Profiles {
        /// Print one JSON object and nothing else
        #[arg(long)]
        json: bool,
    },
    /// Create an image: a persistent drive in a directory
    #[command(long_about = create::LONG_ABOUT)]
    Create(create::CreateArgs),
    /// Verify every block of an image without writing
    ///
    /// The exit code is 1 if damage was found. The image must not be in use by a server.
    #[command(after_long_help = "Example:\n  zonda drive check drives/a")]
    Check {
        /// Directory of the image
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Print one JSON object and nothing else
        #[arg(long)]
        json: bool,
        /// Do not show progress
        #[arg(long, short)]
        quiet: bool,
    },
    /// Fit parameters of a profile to measurements of a real drive
    #[command(long_about = fit::LONG_ABOUT, after_long_help = fit::EXAMPLES)]
    Fit(fit::FitArgs),
    /// Copy the readable blocks of a damaged image to a new image
    #[command(long_about = repair::LONG_ABOUT)]
    Repair(repair::RepairArgs),
    /// Show an image, or the values of a profile and their sources
    ///
    /// A profile is a TOML file with a source for each value; docs/guide/drives.md describes the
    /// keys. [drive.set] of a job file overrides values for one run.
    #[command(after_long_help = SHOW_EXAMPLES)]
    Show {
        /// Built-in profile, path of a .toml file, or directory of an image
        #[arg(value_name = "PROFILE|DIR")]
        profile: String,
        /// Print one JSON object and nothing else
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(command: &DriveCommand) -> Result<(), Failure> {
    match command {
        DriveCommand::Profiles { json } => profiles(*json),
        DriveCommand::Create(args) => create::run(args),
        DriveCommand::Check { directory, json, quiet } => {
            remedies::refuse_url(directory, OF_URL)?;
            image::check(directory, *json, *quiet)
        }
        DriveCommand::Fit(args) => fit::run(args),
        DriveCommand::Repair(args) => repair::run(args),
        DriveCommand::Show { profile, json } if Path::new(profile).is_dir() => image::show(Path::new(profile), *json),
        DriveCommand::Show { profile, json } => {
            remedies::refuse_url(Path::new(profile), OF_URL)?;
            show(profile, *json)
        }
    }
}

/// A row of the list.
#[derive(Serialize)]
struct Entry {
    name: String,
    title: String,
    capacity_bytes: u64,
    zones: u32,
    zone_capacity_bytes: u64,
    conventional_zones: u32,
    dies: u32,
    max_active_zones: Option<u32>,
}

impl Entry {
    fn of(profile: &Profile) -> Entry {
        let geometry = profile.geometry();
        Entry {
            name: profile.name.clone(),
            title: profile.title.clone(),
            capacity_bytes: geometry.zone_capacity_bytes() * u64::from(geometry.zone_count),
            zones: geometry.zone_count,
            zone_capacity_bytes: geometry.zone_capacity_bytes(),
            conventional_zones: geometry.conventional_zone_count,
            dies: profile.dies(),
            max_active_zones: geometry.max_active_zones,
        }
    }
}

fn profiles(json: bool) -> Result<(), Failure> {
    let texts = builtin_names().filter_map(builtin_text);
    let entries = texts.map(|text| Entry::of(&Profile::parse(text).expect("built-in profiles are valid")));
    let entries: Vec<Entry> = entries.collect();
    if json {
        #[derive(Serialize)]
        struct Profiles {
            profiles: Vec<Entry>,
        }
        return print_json(&Profiles { profiles: entries });
    }
    let mut table = Table::new(&["name", ">capacity", ">zones", ">zone capacity", ">dies", ">active", "title"]);
    for entry in entries {
        table.row(&[
            entry.name,
            units::bytes(entry.capacity_bytes),
            units::count(u64::from(entry.zones)),
            units::bytes(entry.zone_capacity_bytes),
            entry.dies.to_string(),
            entry.max_active_zones.map_or_else(|| "no limit".to_owned(), |zones| units::count(u64::from(zones))),
            entry.title,
        ]);
    }
    let hint = "zonda drive show NAME shows all values of a profile and their sources";
    print(&format!("{}\n{hint}\n", table.render(Screen::of_stdout(), 0)))
}

/// The values of a profile and figures derived from them.
#[derive(Serialize)]
struct Sheet {
    name: String,
    title: String,
    description: String,
    derived: Derived,
    values: Vec<Value>,
    /// Keys of the fitted values; each element of a list has its own.
    fitted_numbers: Vec<String>,
    /// Ids of the published results that values were fitted to or derived from.
    results_used: Vec<String>,
}

impl Sheet {
    fn has_derived(&self) -> bool {
        self.values.iter().any(|value| value.source_kind == SourceKind::Derived)
    }
}

fn show(name: &str, json: bool) -> Result<(), Failure> {
    let found = files::PROFILES.find(name).map_err(|error| {
        let help = error.help.unwrap_or_default();
        Failure::input(error.message, format!("{help}, or the directory of an image"))
    })?;
    let profile = found.parse().map_err(|error| Failure::in_experiment(&error, name, &found.text))?;
    let sheet = Sheet {
        name: profile.name.clone(),
        title: profile.title.clone(),
        description: profile.description.clone(),
        derived: Derived::of(&profile),
        values: values::of(&found.text, &profile.sources),
        fitted_numbers: profile.fitted_numbers(),
        results_used: profile.results_used().into_iter().map(str::to_owned).collect(),
    };
    if json { print_json(&sheet) } else { print(&text_of(&sheet, Screen::of_stdout())) }
}

fn text_of(sheet: &Sheet, screen: Screen) -> String {
    let mut text = format!("{}: {}\n", screen.bold(&sheet.name), sheet.title);
    text += &screen.paragraph(&sheet.description, 0);
    text += &format!("\n{}\n", screen.bold("Derived from the values below"));
    for (name, figure) in sheet.derived.lines() {
        text += &format!("  {name:<24} {figure}\n");
    }
    for group in sheet.values.chunk_by(|left, right| left.group() == right.group()) {
        text += &format!("\n{}\n", screen.bold(&format!("[{}]", group[0].group())));
        text += &about(group[0].group()).map_or_else(String::new, |words| screen.paragraph(words, 2));
        let mut table = Table::new(&["key", "value", "source"]);
        for value in group {
            let mark = if value.is_fitted { " *" } else { "" };
            table.row(&[&format!("{}{mark}", value.name()), &value.value, &value.source]);
        }
        text += &table.render(screen, 2);
    }
    text + "\n" + &screen.paragraph(&note_on_fitting(sheet), 0)
}

/// Explains the terms of a group of keys that are not those of NVMe or NAND flash.
fn about(group: &str) -> Option<&'static str> {
    match group {
        "firmware" => Some(
            "A server is a queue of the controller, with as many cores as its value: commands that share a server delay each \
             other.",
        ),
        "flash" => {
            Some("erase_unit is the size of an erase block, program_unit that of a program, read_unit that of a read.")
        }
        _ => None,
    }
}

/// How many values are fitted, and to which results.
fn note_on_fitting(sheet: &Sheet) -> String {
    let results = sheet.results_used.join(", ");
    let fitted = match sheet.fitted_numbers.len() {
        0 => "No value is fitted.".to_owned(),
        1 => "1 value is fitted (*): chosen so that the model meets a result, which is therefore not a prediction."
            .to_owned(),
        count => format!(
            "{count} values are fitted (*): chosen so that the model meets results, which are therefore not predictions."
        ),
    };
    let (is_fitted, is_derived) = (!sheet.fitted_numbers.is_empty(), sheet.has_derived());
    match (results.is_empty(), is_fitted, is_derived) {
        (true, _, _) => fitted,
        (false, true, true) => {
            format!("{fitted} Published results used for fitted and derived values: {results}.")
        }
        (false, true, false) => format!("{fitted} Published results used for fitting: {results}."),
        (false, false, _) => format!("{fitted} Published results used for derived values: {results}."),
    }
}
