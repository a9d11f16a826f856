//! Latencies of the commands that manage zones, one at a time: reset over fill, finish over fill,
//! open and close.

use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Duration, Instant, NamespaceId, Operation, Payload, Status,
    ZoneAction, ZoneIndex, ZoneTarget,
};

use crate::characterise::Work;
use crate::finding::{Figures, Finding};
use crate::limits::{COMMAND_TIMEOUT, FINISH_FILLS, MANAGED_ZONES_MAX, RESET_FILLS};
use crate::runs::{of_preparation, of_status};
use crate::{Kind, Load, Missing, Part};

/// Zones of one fill whose commands are measured.
struct Cell {
    load: Load,
    blocks: Blocks,
}

/// Measures each command at each fill until this time.
pub(crate) fn measure(work: &mut Work<'_>, until: Instant) {
    let capacity = work.subject.geometry().zone_capacity_blocks;
    let part_of = |percent: u32| Blocks(capacity.0 * u64::from(percent) / 100);
    let mut cells: Vec<Cell> = vec![Cell { load: Load::of_management(Kind::Open, 0), blocks: Blocks::ZERO }];
    cells.extend(FINISH_FILLS.map(|percent| {
        // A zone that is empty or full need not be finished.
        let blocks = Blocks(part_of(percent).0.clamp(1, (capacity.0 - 1).max(1)));
        Cell { load: Load::of_management(Kind::Finish, percent), blocks }
    }));
    cells.extend(
        RESET_FILLS.map(|percent| Cell { load: Load::of_management(Kind::Reset, percent), blocks: part_of(percent) }),
    );
    // What needs little data comes first.
    cells.sort_by_key(|cell| cell.blocks);
    let count = cells.len();
    for (place, cell) in cells.into_iter().enumerate() {
        if !work.goes_on(Part::Zones, cell.load.words()) {
            add(work, cell.load, Err(Missing::Interrupted));
            continue;
        }
        let left = until.0.saturating_sub(work.now().0) / (count - place) as u64;
        measure_cell(work, &cell, Duration(left));
    }
}

fn add(work: &mut Work<'_>, load: Load, result: Result<Figures, Missing>) {
    work.findings.push(Finding::new(Part::Zones, load, None, result));
}

fn measure_cell(work: &mut Work<'_>, cell: &Cell, time: Duration) {
    let close = Load::of_management(Kind::Close, 0);
    match try_cell(work, cell, time) {
        Ok((mut latencies, mut closes)) => {
            let figures = |latencies: &mut Vec<u64>| Figures::of_latencies(latencies).ok_or(Missing::TooFewZones);
            add(work, cell.load, figures(&mut latencies));
            if cell.load.kind == Kind::Open {
                add(work, close, figures(&mut closes));
            }
        }
        Err(missing) => {
            add(work, cell.load, Err(missing.clone()));
            if cell.load.kind == Kind::Open {
                add(work, close, Err(missing));
            }
        }
    }
}

/// Latencies of the command, and of the closes that follow opens.
fn try_cell(work: &mut Work<'_>, cell: &Cell, time: Duration) -> Result<(Vec<u64>, Vec<u64>), Missing> {
    if time == Duration::ZERO {
        return Err(Missing::NoTime);
    }
    let geometry = work.subject.geometry().clone();
    let open = geometry.max_open_zones.unwrap_or(u32::MAX).min(work.subject.active_max());
    let most = MANAGED_ZONES_MAX.min(open) as usize;
    let zones: Vec<ZoneIndex> = work.zones.write.iter().copied().take(most).collect();
    let fills: Vec<(ZoneIndex, Blocks)> = zones.iter().map(|zone| (*zone, cell.blocks)).collect();
    let affordable = (1..=fills.len()).rev().find(|count| work.subject.preparation(&fills[..*count]) <= time);
    let count = affordable.ok_or(if zones.is_empty() { Missing::TooFewZones } else { Missing::NoTime })?;
    work.subject.prepare(&fills[..count]).map_err(|error| of_preparation(&error))?;
    let begun_at = work.now();
    let (mut latencies, mut closes) = (Vec::new(), Vec::new());
    let mut result = Ok(());
    for zone in &zones[..count] {
        let start = geometry.zone_start(*zone);
        let manage = |action| Operation::ManageZones { action, target: ZoneTarget::Zone(start) };
        let done = match cell.load.kind {
            Kind::Finish => execute(work, manage(ZoneAction::Finish)),
            Kind::Reset => execute(work, manage(ZoneAction::Reset)),
            _ => execute(work, manage(ZoneAction::Open { zrwa: false })).and_then(|latency| {
                // A zone without data would be empty after a close.
                execute(work, Operation::Write { start, blocks: Blocks(1), payload: Payload::None })?;
                closes.push(execute(work, manage(ZoneAction::Close))?.0);
                Ok(latency)
            }),
        };
        match done {
            Ok(latency) => latencies.push(latency.0),
            Err(status) => result = Err(of_status(status)),
        }
        // One value is better than none; a finish may take longer than all of the time.
        if result.is_err() || work.now().since(begun_at) > time {
            break;
        }
    }
    work.subject.forget(&zones[..count]);
    if latencies.is_empty() {
        result?;
    }
    Ok((latencies, closes))
}

/// Carries out one command, and returns its latency.
fn execute(work: &mut Work<'_>, operation: Operation) -> Result<Duration, Status> {
    let payload = work.subject.payload();
    let operation = match operation {
        Operation::Write { start, blocks, .. } => {
            Operation::Write { start, blocks, payload: zeros(work.subject.geometry(), blocks, payload) }
        }
        other => other,
    };
    let (device, clock) = work.subject.parts();
    let mut completions = CompletionQueue::new();
    let begun_at = clock.now();
    let command = Command::new(CommandId(1 << 40), NamespaceId::FIRST, operation);
    // No other command is outstanding.
    device.submit(begun_at, command).map_err(|_| Status::NamespaceNotReady)?;
    let deadline = begun_at + COMMAND_TIMEOUT;
    loop {
        clock.wait(device.next_timeout().into_iter().chain([deadline]).min());
        let now = clock.now();
        device.poll(now, &mut completions);
        while let Some(completion) = completions.pop() {
            if completion.id == CommandId(1 << 40) {
                return if completion.status.is_success() { Ok(now.since(begun_at)) } else { Err(completion.status) };
            }
        }
        if now >= deadline {
            return Err(Status::NamespaceNotReady);
        }
    }
}

fn zeros(geometry: &zonda_zoned::Geometry, blocks: Blocks, kind: zonda_zoned::PayloadKind) -> Payload {
    if kind != zonda_zoned::PayloadKind::Bytes {
        return Payload::None;
    }
    let data = vec![0; blocks.bytes(geometry.block_size_bytes) as usize].into();
    let metadata = vec![0; (blocks.0 * u64::from(geometry.metadata_bytes)) as usize].into();
    Payload::Bytes(Box::new(zonda_zoned::BlockBuffer { data, metadata }))
}
