//! The event trace of a run: the scenario, the events, the result, and the last commands before a
//! failure.

use std::collections::VecDeque;
use std::fmt::Write;

use zonda_layers::{FaultEffect, OperationKind};
use zonda_ssd::profile::Profile;
use zonda_stack::Layer;
use zonda_zoned::{
    Blocks, CommandId, Duration, Geometry, Instant, Lba, Operation, PayloadKind, Status, ZoneIndex, ZoneTarget,
};

use crate::observe::CheckError;
use crate::options::ScenarioKind;
use crate::outcome::Outcome;
use crate::simulation::Simulation;

/// Commands and requests that are recorded for the tail of a trace, at most.
const RECORDS_MAX: usize = 2_048;
/// Of these, how many are printed.
pub(crate) const TAIL_MAX: usize = 12;
/// Lines of a long trace that are printed from its start.
const LINES_FIRST: usize = 12;
/// Lines of a long trace that are printed from its end.
const LINES_LAST: usize = 24;

/// A command, as recorded for the trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandRecord {
    /// The host that submitted it, where there are several.
    pub(crate) host: Option<u32>,
    pub(crate) id: CommandId,
    pub(crate) kind: OperationKind,
    /// The first zone that it addresses, and the offset in it; `None` for all zones and for none.
    pub(crate) place: Option<(ZoneIndex, u64)>,
    /// The last zone that it addresses.
    pub(crate) last_zone: ZoneIndex,
    pub(crate) all_zones: bool,
    pub(crate) blocks: Blocks,
    pub(crate) submitted_at: Instant,
    pub(crate) end: End,
}

/// The state of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    InFlight,
    Completed(Instant, Status),
    /// Lost with the power, or with its connection.
    Lost,
}

/// Records the last commands and requests; if enabled, every event too.
#[derive(Debug, Default)]
pub(crate) struct EventTrace {
    is_enabled: bool,
    pub(crate) lines: Vec<String>,
    commands: VecDeque<CommandRecord>,
    /// In a scenario with files.
    requests: VecDeque<RequestRecord>,
    /// In a scenario with a volume, which keeps a journal of its own: the block whose events are
    /// recorded in detail.
    watched_block: Option<u64>,
    external_tail: Vec<String>,
}

/// A request of a client, as recorded for the trace.
#[derive(Clone, Debug)]
pub(crate) struct RequestRecord {
    /// `None` for a request that completes at once.
    pub(crate) id: Option<u64>,
    /// The file that it addresses.
    pub(crate) name: String,
    /// The new name, of a rename.
    pub(crate) new_name: Option<String>,
    pub(crate) text: String,
    pub(crate) at: Instant,
    /// The result, once it has ended.
    pub(crate) end: Option<String>,
}

impl CommandRecord {
    pub(crate) fn new(id: CommandId, operation: &Operation, geometry: &Geometry, now: Instant) -> CommandRecord {
        let start = match operation {
            Operation::Read { start, .. }
            | Operation::Write { start, .. }
            | Operation::WriteZeroes { start, .. }
            | Operation::Append { zone_start: start, .. }
            | Operation::ReportZones { start, .. }
            | Operation::ManageZones { target: ZoneTarget::Zone(start), .. } => Some(*start),
            Operation::Deallocate { ranges } => ranges.iter().map(|range| range.start).min(),
            _ => None,
        };
        let place = start.and_then(|start| {
            let zone = geometry.zone_of(start)?;
            Some((zone, (start - geometry.zone_start(zone)).0))
        });
        let ends: Vec<(Lba, Blocks)> = match operation {
            Operation::Deallocate { ranges } => ranges.iter().map(|range| (range.start, range.blocks)).collect(),
            _ => start.map(|start| (start, operation.blocks())).into_iter().collect(),
        };
        let last_zone = |(start, blocks): &(Lba, Blocks)| {
            geometry.zone_of(Lba(start.0.checked_add(blocks.0.max(1))?.saturating_sub(1)))
        };
        let last_zone = ends.iter().filter_map(last_zone).max();
        CommandRecord {
            host: None,
            id,
            kind: OperationKind::of(operation),
            place,
            last_zone: last_zone.or(place.map(|(zone, _)| zone)).unwrap_or(ZoneIndex(0)),
            all_zones: matches!(operation, Operation::ManageZones { target: ZoneTarget::All, .. }),
            blocks: operation.blocks(),
            submitted_at: now,
            end: End::InFlight,
        }
    }

    /// "command 17 write of 4 blocks to zone 3 at 8".
    pub(crate) fn name(&self) -> String {
        let mut text = format!("command {} {}", self.id, self.kind);
        if self.blocks > Blocks::ZERO {
            text += &format!(" of {} block{}", self.blocks, if self.blocks == Blocks(1) { "" } else { "s" });
        }
        match self.place {
            Some((zone, 0)) => text += &format!(", zone {zone}"),
            Some((zone, offset)) => text += &format!(", zone {zone} at {offset}"),
            None if self.all_zones => text += ", all zones",
            None => {}
        }
        text
    }

    fn touches(&self, zone: ZoneIndex) -> bool {
        self.all_zones || self.place.is_some_and(|(first, _)| (first..=self.last_zone).contains(&zone))
    }

    fn line(&self) -> String {
        let end = match self.end {
            End::InFlight => "in flight".to_owned(),
            End::Completed(at, status) => format!("{status} after {}", at.since(self.submitted_at)),
            End::Lost => "lost".to_owned(),
        };
        let host = self.host.map_or_else(String::new, |host| format!("host {host}: "));
        format!("{} {host}{}: {end}", self.submitted_at, self.name())
    }
}

impl RequestRecord {
    fn line(&self) -> String {
        let end = match (&self.end, self.id) {
            (Some(end), _) => format!(": {end}"),
            (None, Some(_)) => ": in flight".to_owned(),
            (None, None) => String::new(),
        };
        format!("{} {}{end}", self.at, self.text)
    }
}

impl EventTrace {
    pub(crate) fn enabled() -> EventTrace {
        EventTrace { is_enabled: true, ..EventTrace::default() }
    }

    /// An enabled trace that records what happens to this block of a volume in detail.
    pub(crate) fn watching_block(block: Option<u64>) -> EventTrace {
        EventTrace { watched_block: block, ..EventTrace::enabled() }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    pub(crate) fn watched_block(&self) -> Option<u64> {
        self.watched_block
    }

    /// Sets the tail of the trace, where the simulation keeps a journal of its own.
    pub(crate) fn set_tail(&mut self, tail: Vec<String>) {
        self.external_tail = tail;
    }

    /// Records an event, if the trace is enabled.
    pub(crate) fn log(&mut self, now: Instant, line: impl FnOnce() -> String) {
        if self.is_enabled {
            self.lines.push(format!("{now}  {}", line()));
        }
    }

    pub(crate) fn command_submitted(&mut self, record: CommandRecord) {
        if self.commands.len() == RECORDS_MAX {
            self.commands.pop_front();
        }
        self.commands.push_back(record);
    }

    pub(crate) fn command_ended(&mut self, id: CommandId, end: End) {
        let Some(first) = self.commands.front() else { return };
        // Ids count up by one, except those of hosts whose commands were refused for a while.
        let place = id.0.checked_sub(first.id.0).map(|place| place as usize);
        let is_it = |place: &usize| self.commands.get(*place).is_some_and(|record| record.id == id);
        let place = place.filter(is_it).or_else(|| self.commands.iter().rposition(|record| record.id == id));
        if let Some(place) = place {
            self.commands[place].end = end;
        }
    }

    /// A client has submitted a request.
    pub(crate) fn request_submitted(&mut self, request: RequestRecord) {
        if self.requests.len() == RECORDS_MAX {
            self.requests.pop_front();
        }
        self.requests.push_back(request);
    }

    /// A request has ended.
    pub(crate) fn request_ended(&mut self, id: u64, now: Instant, result: Result<(), String>) {
        if let Some(request) = self.requests.iter_mut().rev().find(|request| request.id == Some(id)) {
            let result = result.map_or_else(|error| error, |()| "done".to_owned());
            request.end = Some(format!("{result} after {}", now.since(request.at)));
        }
    }

    /// The store is closed: its outstanding requests are lost.
    pub(crate) fn requests_lost(&mut self) {
        for request in self.requests.iter_mut().filter(|request| request.id.is_some() && request.end.is_none()) {
            request.end = Some("lost with the store".to_owned());
        }
    }

    /// The last commands or requests that concern the object of an error.
    pub(crate) fn tail(&self, error: &CheckError) -> Vec<String> {
        if !self.external_tail.is_empty() {
            self.external_tail.clone()
        } else if self.requests.is_empty() {
            self.tail_of_commands(error.zone, error.host)
        } else {
            self.tail_of_requests(error.file.as_deref())
        }
    }

    /// The last requests that named a file, by its former names too; without a file, the last of
    /// all.
    fn tail_of_requests(&self, file: Option<&str>) -> Vec<String> {
        let mut names: Vec<&str> = file.into_iter().collect();
        let mut tail = Vec::new();
        for request in self.requests.iter().rev() {
            if file.is_none() || names.contains(&request.name.as_str()) {
                tail.push(request.line());
            } else if request.new_name.as_ref().is_some_and(|name| names.contains(&name.as_str())) {
                names.push(&request.name);
                tail.push(request.line());
            }
            if tail.len() == TAIL_MAX {
                break;
            }
        }
        tail.reverse();
        tail
    }

    /// The last commands that touched a zone, or without one the last of all; of one host, if
    /// given.
    fn tail_of_commands(&self, zone: Option<ZoneIndex>, host: Option<u32>) -> Vec<String> {
        let of_host = self.commands.iter().rev().filter(|record| host.is_none() || record.host == host);
        let concerned = of_host.filter(|record| zone.is_none_or(|zone| record.touches(zone)));
        let mut tail: Vec<String> = concerned.take(TAIL_MAX).map(CommandRecord::line).collect();
        tail.reverse();
        tail
    }
}

/// Describes the scenario in a few lines.
pub(crate) fn describe(simulation: &Simulation) -> String {
    let mut text = String::new();
    let profile = &simulation.profile;
    let whole = profile.geometry();
    let keeps = match simulation.keeps {
        PayloadKind::None => "does not store payloads",
        PayloadKind::Fingerprints => "stores only fingerprints of payloads",
        PayloadKind::Bytes => "stores payloads",
    };
    let mut line = |head: &str, tail: String| {
        writeln!(text, "  {head:<8}{tail}").expect("writing to a string cannot fail");
    };
    let mut drive = format!("{} zones of {} blocks", whole.zone_count, whole.zone_size_blocks);
    if whole.zone_capacity_blocks < whole.zone_size_blocks {
        drive += &format!(" ({} of them writable)", whole.zone_capacity_blocks);
    }
    drive += &format!(" of {} B", whole.block_size_bytes);
    if whole.conventional_zone_count > 0 {
        drive += &format!(", the first {} conventional", whole.conventional_zone_count);
    }
    line("drive", format!("{drive}; {keeps}"));
    line("limits", describe_limits(&whole));
    line("flash", describe_flash(profile));
    line("layers", describe_layers(&simulation.layers));
    line("load", describe_load(simulation));
    let every = |every: Option<u64>| every.map_or_else(|| "never".to_owned(), |every| format!("every {every} events"));
    line(
        "faults",
        format!(
            "power loss {}, zone degradation {}",
            every(simulation.power_loss_every),
            every(simulation.degradation_every)
        ),
    );
    text
}

/// Limits of active and open zones, and of ZRWA resources.
pub(crate) fn describe_limits(geometry: &Geometry) -> String {
    let limit = |limit: Option<u32>, kind: &str| match limit {
        None => format!("no limit on {kind} zones"),
        Some(1) => format!("at most 1 {kind} zone"),
        Some(limit) => format!("at most {limit} {kind} zones"),
    };
    let mut limits =
        format!("{}, {}", limit(geometry.max_active_zones, "active"), limit(geometry.max_open_zones, "open"));
    if let Some(zrwa) = &geometry.zrwa {
        limits += &format!(", at most {} with a ZRWA of {} blocks", zrwa.resources, zrwa.size_blocks);
    }
    limits
}

/// Dies, channels and write buffer.
pub(crate) fn describe_flash(profile: &Profile) -> String {
    let (flash, buffer) = (&profile.flash, &profile.write_buffer);
    format!(
        "dies {}, channels {}, dies per zone {}, program unit {}, write buffer {}, {}",
        profile.dies(),
        flash.channels,
        profile.zones.parallelism,
        flash.program_unit,
        buffer.capacity,
        if buffer.early_completion { "early completion" } else { "completion when programmed" }
    )
}

/// Layers, the lowest first.
pub(crate) fn describe_layers<'l>(layers: impl IntoIterator<Item = &'l Layer>) -> String {
    let layers: Vec<String> = layers.into_iter().map(describe_layer).collect();
    if layers.is_empty() { "none".to_owned() } else { layers.join(", then ") }
}

fn describe_layer(layer: &Layer) -> String {
    match layer {
        Layer::Slice(slice) => {
            let last = slice.first.0 + slice.count - 1;
            format!("slice of zones {} to {last}", slice.first)
        }
        Layer::Delay(rules) => {
            let longest = rules.iter().map(|rule| rule.fixed + rule.spread).max().unwrap_or(Duration::ZERO);
            format!("delays of up to {longest}")
        }
        Layer::Trace { .. } => "trace".to_owned(),
        Layer::Scheduler { .. } => "scheduler".to_owned(),
        Layer::Fault(rules) => {
            let rules: Vec<String> = rules.iter().map(|rule| describe_effect(rule.effect)).collect();
            format!("faults ({})", rules.join("; "))
        }
    }
}

fn describe_effect(effect: FaultEffect) -> String {
    match effect {
        FaultEffect::Fail(status) => format!("fail with {status}"),
        FaultEffect::FailAfter(status) => format!("fail with {status} after execution"),
        FaultEffect::CorruptRead => "corrupt reads".to_owned(),
        FaultEffect::Drop => "drop".to_owned(),
        FaultEffect::DropAfter => "drop after execution".to_owned(),
    }
}

fn describe_load(simulation: &Simulation) -> String {
    let load = &simulation.load;
    let total: u64 = load.weights.iter().sum();
    let favoured: Vec<&str> = OperationKind::ALL
        .iter()
        .filter(|kind| load.weights[**kind as usize] * 4 > total)
        .map(|kind| kind.name())
        .collect();
    let mut text = format!("{} commands, queue depth {}", load.commands, load.queue_depth);
    if !favoured.is_empty() {
        text += &format!(", mostly {}", favoured.join(" and "));
    }
    if load.pause > Duration::ZERO {
        text += &format!(", mean pause {}", load.pause);
    }
    text
}

/// The whole event trace.
pub(crate) fn compose(description: &str, replay: &str, outcome: &Outcome, lines: &[String]) -> String {
    let mut text = format!("Seed {}, mode {}.\n{description}\n", outcome.seed, outcome.mode.name());
    let omitted = lines.len().saturating_sub(LINES_FIRST + LINES_LAST);
    for (place, line) in lines.iter().enumerate() {
        if omitted > 0 && place == LINES_FIRST {
            text += &format!("... {omitted} lines omitted ...\n");
        }
        if omitted == 0 || !(LINES_FIRST..LINES_FIRST + omitted).contains(&place) {
            text += line;
            text.push('\n');
        }
    }
    let (commands, losses) = match outcome.scenario {
        ScenarioKind::Files | ScenarioKind::Volumes => ("requests", "power losses and process kills"),
        _ => ("commands", "power losses"),
    };
    let counts = format!(
        "{} {commands}, {} events, {} {losses}, {} faults in {} of virtual time; hash {:016x}",
        outcome.commands, outcome.events, outcome.power_losses, outcome.faults, outcome.virtual_time, outcome.hash
    );
    match &outcome.failure {
        None => text += &format!("\nPassed: {counts}.\n"),
        Some(failure) => {
            text += &format!("\nFAILED: {failure}\n");
            let of = match (&failure.file, failure.block, failure.zone) {
                (Some(file), ..) => format!("File {file}"),
                (None, Some(block), _) => format!("Block {block}"),
                (None, None, Some(zone)) => format!("Zone {zone}"),
                _ if matches!(outcome.scenario, ScenarioKind::Files | ScenarioKind::Volumes) => {
                    "The last requests".to_owned()
                }
                _ => "The last commands".to_owned(),
            };
            text += &format!("\n{of}:\n");
            for line in &failure.tail {
                text += &format!("  {line}\n");
            }
            text += &format!("\nAfter {counts}.\nReplay with: {replay}\n");
        }
    }
    text
}
