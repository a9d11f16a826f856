//! The run told for a person.

use std::collections::VecDeque;
use std::fmt::Write;

use zonda_layers::OperationKind;
use zonda_ssd::profile::Profile;
use zonda_zoned::{
    Blocks, CommandId, Duration, Geometry, Instant, Lba, Operation, PayloadKind, Status, ZoneIndex, ZoneTarget,
};

use crate::options::WorldKind;
use crate::outcome::Outcome;
use crate::survey::Trouble;
use crate::world::{Layer, World};

/// Commands that are remembered for the end of a story.
const COMMANDS_KEPT: usize = 2_048;
/// Of those, how many are told.
pub(crate) const TAIL_MAX: usize = 12;
/// Events that are told of a long run: so many from its start, ...
const LINES_FIRST: usize = 12;
/// ... and so many from its end.
const LINES_LAST: usize = 24;

/// A command, as it is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// Which of several hosts has submitted it.
    pub(crate) host: Option<u32>,
    pub(crate) id: CommandId,
    pub(crate) kind: OperationKind,
    /// The first zone it names, and how far into it; `None` for all zones and for none.
    pub(crate) place: Option<(ZoneIndex, u64)>,
    /// The last zone it names.
    pub(crate) last_zone: ZoneIndex,
    pub(crate) all_zones: bool,
    pub(crate) blocks: Blocks,
    pub(crate) taken_at: Instant,
    pub(crate) end: End,
}

/// What has become of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    UnderWay,
    Completed(Instant, Status),
    /// The power went.
    Lost,
}

/// Remembers the last commands, and what else is worth telling if somebody listens.
#[derive(Debug, Default)]
pub(crate) struct Teller {
    listens: bool,
    pub(crate) lines: Vec<String>,
    commands: VecDeque<Told>,
    /// In a world with files.
    requests: VecDeque<Asked>,
    /// In a world with a volume, which writes down itself what happens in it: the block that is looked at closely.
    watched_block: Option<u64>,
    told_tail: Vec<String>,
}

/// A request of a client, as it is told.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// `None` where there is nothing to wait for.
    pub(crate) id: Option<u64>,
    /// The file that it is about.
    pub(crate) name: String,
    /// The name that it is to have.
    pub(crate) new_name: Option<String>,
    pub(crate) what: String,
    pub(crate) at: Instant,
    /// How it ended.
    pub(crate) end: Option<String>,
}

impl Told {
    pub(crate) fn new(id: CommandId, operation: &Operation, geometry: &Geometry, now: Instant) -> Told {
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
        Told {
            host: None,
            id,
            kind: OperationKind::of(operation),
            place,
            last_zone: last_zone.or(place.map(|(zone, _)| zone)).unwrap_or(ZoneIndex(0)),
            all_zones: matches!(operation, Operation::ManageZones { target: ZoneTarget::All, .. }),
            blocks: operation.blocks(),
            taken_at: now,
            end: End::UnderWay,
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
            End::UnderWay => "under way".to_owned(),
            End::Completed(at, status) => format!("{status} after {}", at.since(self.taken_at)),
            End::Lost => "lost with the power".to_owned(),
        };
        let host = self.host.map_or_else(String::new, |host| format!("host {host}: "));
        format!("{} {host}{}: {end}", self.taken_at, self.name())
    }
}

impl Asked {
    fn line(&self) -> String {
        let end = match (&self.end, self.id) {
            (Some(end), _) => format!(": {end}"),
            (None, Some(_)) => ": under way".to_owned(),
            (None, None) => String::new(),
        };
        format!("{} {}{end}", self.at, self.what)
    }
}

impl Teller {
    pub(crate) fn listening() -> Teller {
        Teller { listens: true, ..Teller::default() }
    }

    /// The same, and what becomes of this block of a volume is told.
    pub(crate) fn watching(block: Option<u64>) -> Teller {
        Teller { watched_block: block, ..Teller::listening() }
    }

    pub(crate) fn listens(&self) -> bool {
        self.listens
    }

    pub(crate) fn watched_block(&self) -> Option<u64> {
        self.watched_block
    }

    /// The last that happened, where the world knows it.
    pub(crate) fn tail_is(&mut self, tail: Vec<String>) {
        self.told_tail = tail;
    }

    /// Tells a line, if somebody listens.
    pub(crate) fn tell(&mut self, now: Instant, line: impl FnOnce() -> String) {
        if self.listens {
            self.lines.push(format!("{now}  {}", line()));
        }
    }

    pub(crate) fn taken(&mut self, told: Told) {
        if self.commands.len() == COMMANDS_KEPT {
            self.commands.pop_front();
        }
        self.commands.push_back(told);
    }

    pub(crate) fn ended(&mut self, id: CommandId, end: End) {
        let Some(first) = self.commands.front() else { return };
        // Ids count up by one, but for those of hosts whose commands were refused for a while.
        let place = id.0.checked_sub(first.id.0).map(|place| place as usize);
        let is_there = |place: &usize| self.commands.get(*place).is_some_and(|told| told.id == id);
        let place = place.filter(is_there).or_else(|| self.commands.iter().rposition(|told| told.id == id));
        if let Some(place) = place {
            self.commands[place].end = end;
        }
    }

    /// A client has asked for something.
    pub(crate) fn asked(&mut self, asked: Asked) {
        if self.requests.len() == COMMANDS_KEPT {
            self.requests.pop_front();
        }
        self.requests.push_back(asked);
    }

    /// A request has ended.
    pub(crate) fn answered(&mut self, id: u64, now: Instant, result: Result<(), String>) {
        if let Some(asked) = self.requests.iter_mut().rev().find(|asked| asked.id == Some(id)) {
            let how = result.map_or_else(|error| error, |()| "done".to_owned());
            asked.end = Some(format!("{how} after {}", now.since(asked.at)));
        }
    }

    /// The store is gone, and with it what it was asked for.
    pub(crate) fn requests_lost(&mut self) {
        for asked in self.requests.iter_mut().filter(|asked| asked.id.is_some() && asked.end.is_none()) {
            asked.end = Some("lost with the store".to_owned());
        }
    }

    /// The last that happened to what is in trouble.
    pub(crate) fn tail(&self, trouble: &Trouble) -> Vec<String> {
        if !self.told_tail.is_empty() {
            self.told_tail.clone()
        } else if self.requests.is_empty() {
            self.tail_of_commands(trouble.zone, trouble.host)
        } else {
            self.tail_of_requests(trouble.file.as_deref())
        }
    }

    /// The last requests that named a file, also by names that it had before; or the last of all.
    fn tail_of_requests(&self, file: Option<&str>) -> Vec<String> {
        let mut names: Vec<&str> = file.into_iter().collect();
        let mut tail = Vec::new();
        for asked in self.requests.iter().rev() {
            if file.is_none() || names.contains(&asked.name.as_str()) {
                tail.push(asked.line());
            } else if asked.new_name.as_ref().is_some_and(|name| names.contains(&name.as_str())) {
                names.push(&asked.name);
                tail.push(asked.line());
            }
            if tail.len() == TAIL_MAX {
                break;
            }
        }
        tail.reverse();
        tail
    }

    /// The last commands that touched a zone, or the last of all; of one host, where there are several.
    fn tail_of_commands(&self, zone: Option<ZoneIndex>, host: Option<u32>) -> Vec<String> {
        let of_host = self.commands.iter().rev().filter(|told| host.is_none() || told.host == host);
        let concerned = of_host.filter(|told| zone.is_none_or(|zone| told.touches(zone)));
        let mut tail: Vec<String> = concerned.take(TAIL_MAX).map(Told::line).collect();
        tail.reverse();
        tail
    }
}

/// The world in a few lines.
pub(crate) fn describe(world: &World) -> String {
    let mut text = String::new();
    let profile = &world.profile;
    let whole = profile.geometry();
    let keeps = match world.keeps {
        PayloadKind::None => "keeps nothing of what is written",
        PayloadKind::Fingerprints => "keeps fingerprints",
        PayloadKind::Bytes => "keeps bytes",
    };
    let mut line = |head: &str, tail: String| {
        writeln!(text, "  {head:<8}{tail}").expect("a string takes what is written to it");
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
    line("layers", describe_layers(&world.layers));
    line("load", describe_load(world));
    let every = |every: Option<u64>| every.map_or_else(|| "never".to_owned(), |every| format!("every {every} events"));
    line(
        "world",
        format!("power is lost {}, a zone degrades {}", every(world.power_loss_every), every(world.degradation_every)),
    );
    text
}

/// How many zones may hold which resource.
pub(crate) fn describe_limits(geometry: &Geometry) -> String {
    let limit = |limit: Option<u32>| limit.map_or_else(|| "any number".to_owned(), |limit| limit.to_string());
    let mut limits = format!("{} active, {} open", limit(geometry.max_active_zones), limit(geometry.max_open_zones));
    if let Some(zrwa) = &geometry.zrwa {
        limits += &format!(", {} with a ZRWA of {} blocks", zrwa.resources, zrwa.size_blocks);
    }
    limits
}

/// Dies, channels and write buffer.
pub(crate) fn describe_flash(profile: &Profile) -> String {
    let (flash, buffer) = (&profile.flash, &profile.write_buffer);
    format!(
        "{} dies on {} channels, {} to a zone; program unit {}; write buffer {}, {}",
        profile.dies(),
        flash.channels,
        profile.zones.parallelism,
        flash.program_unit,
        buffer.capacity,
        if buffer.early_completion { "writes end in it" } else { "writes end when programmed" }
    )
}

/// Layers in their order.
pub(crate) fn describe_layers<'l>(layers: impl IntoIterator<Item = &'l Layer>) -> String {
    let layers: Vec<String> = layers.into_iter().map(describe_layer).collect();
    if layers.is_empty() { "none".to_owned() } else { layers.join(", then ") }
}

fn describe_layer(layer: &Layer) -> String {
    match layer {
        Layer::Slice(slice) => {
            let last = slice.first.0 + slice.count - 1;
            format!("a slice of zones {} to {last}", slice.first)
        }
        Layer::Delay(rules) => {
            let longest = rules.iter().map(|rule| rule.fixed + rule.spread).max().unwrap_or(Duration::ZERO);
            format!("delays of up to {longest}")
        }
        Layer::Trace => "a trace".to_owned(),
        Layer::Fault(rules) => {
            let rules: Vec<String> = rules.iter().map(|rule| format!("{:?}", rule.effect)).collect();
            format!("faults ({})", rules.join("; "))
        }
    }
}

fn describe_load(world: &World) -> String {
    let load = &world.load;
    let total: u64 = load.weights.iter().sum();
    let favoured: Vec<&str> = OperationKind::ALL
        .iter()
        .filter(|kind| load.weights[**kind as usize] * 4 > total)
        .map(|kind| kind.name())
        .collect();
    let mut text = format!("{} commands, {} at a time", load.commands, load.queue_depth);
    if !favoured.is_empty() {
        text += &format!(", mostly {}", favoured.join(" and "));
    }
    if load.pause > Duration::ZERO {
        text += &format!(", with pauses of {}", load.pause);
    }
    text
}

/// The whole story.
pub(crate) fn compose(description: &str, replay: &str, outcome: &Outcome, lines: &[String]) -> String {
    let mut text = format!("Seed {}, {}.\n{description}\n", outcome.seed, outcome.mode.name());
    let left_out = lines.len().saturating_sub(LINES_FIRST + LINES_LAST);
    for (place, line) in lines.iter().enumerate() {
        if left_out > 0 && place == LINES_FIRST {
            text += &format!("... {left_out} lines of the same kind ...\n");
        }
        if left_out == 0 || !(LINES_FIRST..LINES_FIRST + left_out).contains(&place) {
            text += line;
            text.push('\n');
        }
    }
    let (commands, losses) = match outcome.world {
        WorldKind::Files | WorldKind::Volumes => ("requests", "power losses and deaths"),
        _ => ("commands", "power losses"),
    };
    let counts = format!(
        "{} {commands}, {} events, {} {losses}, {} faults in {} of its time; hash {:016x}",
        outcome.commands, outcome.events, outcome.power_losses, outcome.faults, outcome.virtual_time, outcome.hash
    );
    match &outcome.failure {
        None => text += &format!("\nGood: {counts}.\n"),
        Some(failure) => {
            text += &format!("\nFAILED: {failure}\n");
            let of = match (&failure.file, failure.block, failure.zone) {
                (Some(file), ..) => format!("File {file}"),
                (None, Some(block), _) => format!("Block {block}"),
                (None, None, Some(zone)) => format!("Zone {zone}"),
                _ if matches!(outcome.world, WorldKind::Files | WorldKind::Volumes) => "The last requests".to_owned(),
                _ => "The last commands".to_owned(),
            };
            text += &format!("\n{of}:\n");
            for line in &failure.tail {
                text += &format!("  {line}\n");
            }
            text += &format!("\nAfter {counts}.\nAgain: {replay}\n");
        }
    }
    text
}
