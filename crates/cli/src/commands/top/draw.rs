//! [`draw`]: the whole picture of a [`View`], without a terminal and without a clock.

use std::path::Path;

use ratatui::buffer::Buffer;
use ratatui::style::Color;
use zonda_devices::{VolumeReport, VolumeState, shown_place};

use super::canvas::{BOLD, Canvas, DIM, PLAIN, clock, in_colour, short_count};
use super::frame::{Frame, Row, ShareOfPool};
use super::map::{self, Owners};
use super::view::{Connection, Map, View};
use super::{groups, help, table};
use crate::units;

/// A smaller terminal shows only that it is too small.
const SIZE_MIN: (u16, u16) = (80, 12);

/// Draws a view on the whole buffer.
pub(super) fn draw(view: &View, buffer: &mut Buffer) {
    let mut canvas = Canvas { buffer, has_colours: view.has_colours };
    let (width, height) = (canvas.width(), canvas.height());
    if width < SIZE_MIN.0 || height < SIZE_MIN.1 {
        let text = format!("{width}x{height} is too small: zonda top needs {}x{}", SIZE_MIN.0, SIZE_MIN.1);
        canvas.put_wrapped(0, &text, PLAIN);
        return;
    }
    let footer = if view.is_interactive { 1 } else { 0 };
    header(&mut canvas, view);
    if view.is_help {
        help::draw(&mut canvas, 2, height - 2 - footer);
    } else if let Some(frame) = &view.frame {
        body(&mut canvas, view, frame, height - footer);
    }
    if view.is_interactive {
        keys(&mut canvas, view, height - 1);
    }
}

/// The server, and a problem with it.
fn header(canvas: &mut Canvas<'_>, view: &View) {
    let mut column = canvas.put(0, 0, "zonda top  ", BOLD);
    column = canvas.put(column, 0, &view.server, BOLD);
    if let Some(Frame { server, .. }) = &view.frame {
        let parts = [
            format!("  zonda {}, up {}", server.version, clock(server.uptime_ns)),
            format!(", {}", units::counted(server.connections, "connection")),
            format!(", memory {}", units::bytes(server.memory_used_bytes)),
            format!(" of {}", units::bytes(server.memory_budget_bytes)),
        ];
        canvas.put_fitting(column, 0, &parts, PLAIN);
    }
    let alarm = in_colour(Color::Red).patch(BOLD);
    match (&view.connection, view.restarted_s) {
        (Connection::Connecting, _) => canvas.put(0, 1, "connecting", PLAIN),
        (Connection::Lost { reason, seconds }, _) => {
            let since = if *seconds > 0 { format!(" for {seconds} s") } else { String::new() };
            let next = canvas.put(0, 1, &format!("connection lost{since}: {reason}"), alarm);
            let stale = if view.frame.is_some() { "; figures from before" } else { "" };
            canvas.put_fitting(next, 1, &[stale.to_owned()], alarm);
            next
        }
        (Connection::Connected, Some(_)) => canvas.put(0, 1, "the server was restarted", alarm),
        (Connection::Connected, None) => 0,
    };
}

fn keys(canvas: &mut Canvas<'_>, view: &View, line: u16) {
    let map = if view.map == Map::Drive { "drive" } else { "namespace" };
    let sort = format!("sort: {}", view.sort.name());
    let map = format!("zones: {map}");
    let mut column = 0;
    for (key, text) in [("q", "quit"), ("↑↓ tab", "select"), ("s", sort.as_str()), ("d", map.as_str()), ("?", "help")]
    {
        column = canvas.put(column, line, key, BOLD);
        column = canvas.put(column, line, &format!(" {text}   "), DIM);
    }
}

/// The table, the selected namespace, and its zones.
fn body(canvas: &mut Canvas<'_>, view: &View, frame: &Frame, end: u16) {
    let (rows, selected) = view.rows();
    let is_old = matches!(view.connection, Connection::Lost { .. });
    let table_lines = (end - 2) / 2;
    let mut line = table::draw(canvas, 2, table_lines, &rows, selected, is_old) + 1;
    let Some(row) = rows.get(selected) else {
        canvas.put(2, 3, "the server has no namespaces", PLAIN);
        return;
    };
    for text in details(row) {
        line = canvas.put_wrapped(line, &text, PLAIN);
    }
    if let Some(all) = &row.conflict_groups {
        line = groups::draw(canvas, line, all);
    }
    for problem in frame.pool_of(row).into_iter().flat_map(|pool| pool.report.problems()) {
        line = canvas.put_wrapped(line, problem, in_colour(Color::Red).patch(BOLD));
    }
    line += 1;
    let left = end.saturating_sub(line);
    match (&row.volume, frame.pool_of(row), view.map) {
        (Some(volume), _, _) => members(canvas, line, left, row, volume),
        (None, Some(pool), Map::Drive) => {
            let id = row.share.as_ref().map_or(0, |share| share.id);
            let title = format!(
                "zones of {}, the drive of the pool {}",
                shown_place(Path::new(&pool.path), &pool.report.drive),
                pool.path
            );
            zones(canvas, line, left, &title, pool.zone_map.as_ref(), Owners::Pool(pool, id));
        }
        _ => zones(canvas, line, left, &format!("zones of {}", row.source), row.maps.first(), Owners::None),
    }
}

/// The selected namespace in words: what it is, and the state of it.
fn details(row: &Row) -> [String; 2] {
    let size = units::bytes(row.size_bytes);
    let written = units::percent(row.written_bytes as f64 / row.size_bytes.max(1) as f64);
    let place = match (&row.nqn, row.namespace) {
        (Some(nqn), Some(id)) => format!("namespace {id} of {nqn}"),
        _ => format!("not served, of the pool {}", row.source),
    };
    let first = format!("{}: {place}, {size}, {written} written", row.name);
    let state = match (&row.share, &row.volume) {
        (Some(share), _) => of_share(share),
        (None, Some(volume)) => of_volume(volume),
        (None, None) => of_drive(row),
    };
    let mut second = format!("{state}; {} outstanding", units::counted(row.outstanding, "command"));
    if let Some(scheduler) = &row.scheduler {
        second += &format!("; scheduler {scheduler}");
        if let Some(grants) = row.grants {
            let streams = units::counted(u64::from(grants.streams), "stream");
            second += &format!(": {streams}, {} writes in flight", grants.writes_in_flight);
        }
    }
    if let Some(errors) = row.rates.as_ref().map(|rates| rates.errors_per_s).filter(|errors| *errors > 0.0) {
        second += &format!("; {} errors/s", short_count(errors));
    }
    [first, second]
}

fn of_share(share: &ShareOfPool) -> String {
    let ShareOfPool { weight, essentials, spares_own, spares_lent, spares_leased, spares_used, .. } = share;
    let spares = share.spares();
    format!(
        "weight {weight}, {essentials} essentials, spares {spares_own}-{spares_lent}+{spares_leased}={spares}, {spares_used} used"
    )
}

fn of_drive(row: &Row) -> String {
    let of = |now: u32, max: Option<u32>| max.map_or_else(|| now.to_string(), |max| format!("{now} of {max}"));
    let (active, open) = (of(row.active_zones, row.max_active_zones), of(row.open_zones, row.max_open_zones));
    let wear = row.dlwa.map_or_else(String::new, |dlwa| format!(", DLWA {dlwa:.2}"));
    format!("{} zones, {active} active, {open} open{wear}", row.zones)
}

fn of_volume(volume: &VolumeReport) -> String {
    let progress = |name: &str, part: Option<zonda_devices::Progress>| {
        let share = part.map(|part| f64::from(part.done) / f64::from(part.all.max(1)));
        share.map_or_else(String::new, |share| format!("{name} {}", units::percent(share)))
    };
    format!(
        "{}, {}{}{}, can lose {}, {} segments used, {} free",
        volume.scheme,
        volume.state,
        progress(if volume.state == VolumeState::Rebuilding { "" } else { ", rebuild" }, volume.rebuild),
        progress(", scrub", volume.scrub),
        units::counted(u64::from(volume.can_lose), "member"),
        volume.segments,
        volume.free_segments,
    )
}

/// A zone map below its title.
fn zones(
    canvas: &mut Canvas<'_>,
    top: u16,
    lines: u16,
    title: &str,
    map: Option<&zonda_exports::snapshot::ZoneMapSnapshot>,
    owners: Owners<'_>,
) {
    let Some(map) = map else {
        let text = format!("{title} are not known: the drive is a namespace of another server");
        canvas.put(0, top, &text, PLAIN);
        return;
    };
    let cell = match map::zones_per_cell(canvas.width(), lines.saturating_sub(1), map, owners) {
        1 => "a zone".to_owned(),
        zones => format!("{zones} zones"),
    };
    canvas.put(0, top, &format!("{title}; each cell is {cell}"), BOLD);
    map::draw(canvas, top + 1, lines.saturating_sub(1), map, owners);
}

/// The members of a volume, with the zones of those on this machine.
fn members(canvas: &mut Canvas<'_>, top: u16, lines: u16, row: &Row, volume: &VolumeReport) {
    let each = (usize::from(lines) / volume.members.len().max(1)).clamp(1, 8) as u16;
    let mut line = top;
    for member in &volume.members {
        if line + 1 > top + lines {
            return;
        }
        let lost =
            if member.errors > 0 { format!(", {}", units::counted(member.errors, "error")) } else { String::new() };
        let free = units::counted(u64::from(member.free_zones), "free zone");
        let at = shown_place(Path::new(&row.source), &member.at);
        let text = format!("member {} at {at}: {}, {free}{lost}", member.member, member.state);
        canvas.put(0, line, &text, if member.state == "active" { PLAIN } else { in_colour(Color::Red) });
        line += 1;
        if let Some(map) = row.maps.iter().find(|map| map.member == Some(member.member)) {
            line = map::cells(canvas, line, each - 1, map, Owners::None);
        }
    }
}
