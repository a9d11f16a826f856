//! Frames as lines of JSON.

use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use zonda_exports::snapshot::{PoolSnapshot, Snapshot};

use super::frame::{Frame, Row};
use super::next_update;
use super::source::Source;
use crate::errors::Failure;
use crate::output::print_json;

/// A frame.
#[derive(Serialize)]
struct Line<'f> {
    connected: bool,
    /// Since the server started.
    uptime_s: f64,
    /// For which rates and latencies are; 0 if the server has just been restarted.
    interval_s: f64,
    namespaces: &'f [Row],
    pools: Vec<PoolLine<'f>>,
}

/// A pool.
#[derive(Serialize)]
struct PoolLine<'f> {
    path: &'f str,
    drive: &'f str,
    is_read_only: bool,
    /// What keeps its hosts from reading or writing.
    problems: Vec<&'static str>,
    essential_zones: u32,
    spare_zones: u32,
    zones_in_groups: u32,
    promised_zones: u64,
    usable_zones: u64,
}

/// While the server does not answer.
#[derive(Serialize)]
struct LostLine<'f> {
    connected: bool,
    error: &'f str,
}

/// Prints a line for each interval until the output is closed.
pub(super) fn run(source: &Source, interval: Duration, first: Snapshot) -> Result<(), Failure> {
    let (mut before, mut last) = (Some(first), Instant::now());
    loop {
        let next = next_update(last, interval);
        thread::sleep(next.saturating_duration_since(Instant::now()));
        last = next;
        match source.fetch() {
            Ok(now) => {
                print_frame(&Frame::of(before.as_ref(), &now))?;
                before = Some(now);
            }
            Err(error) => print_json(&LostLine { connected: false, error: &error.message })?,
        }
    }
}

pub(super) fn print_frame(frame: &Frame) -> Result<(), Failure> {
    print_json(&line(frame))
}

fn line(frame: &Frame) -> Line<'_> {
    Line {
        connected: true,
        uptime_s: frame.server.uptime_ns as f64 / 1e9,
        interval_s: frame.server.interval_ns as f64 / 1e9,
        namespaces: &frame.rows,
        pools: frame.pools.iter().map(pool).collect(),
    }
}

fn pool(pool: &PoolSnapshot) -> PoolLine<'_> {
    let report = &pool.report;
    PoolLine {
        path: &pool.path,
        drive: &report.drive,
        is_read_only: report.is_read_only,
        problems: report.problems().collect(),
        essential_zones: report.essential_zones,
        spare_zones: report.spare_zones,
        zones_in_groups: report.zones_in_groups,
        promised_zones: report.promised_zones,
        usable_zones: report.usable_zones,
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn a_line_has_the_figures_of_each_namespace_and_leaves_out_what_does_not_exist() {
        let (before, now) = samples::pool();
        let frame = Frame::of(Some(&before), &now);
        let json = serde_json::to_value(line(&frame)).expect("it is JSON");
        let db = &json["namespaces"][0];
        assert_eq!((&json["connected"], &json["interval_s"]), (&true.into(), &1.0.into()));
        assert_eq!(
            (&db["iops"], &db["read_iops"], &db["write_iops"]),
            (&12_000.0.into(), &10_000.0.into(), &2_000.0.into())
        );
        assert_eq!((&db["spares_own"], &db["spares_leased"], &db["read_window"]), (&64.into(), &16.into(), &20.into()));
        assert_eq!(db["stripe_groups"][1], serde_json::json!({"width": 8, "groups": 1}));
        assert!(db["p50_ns"].as_u64() < db["p99_9_ns"].as_u64(), "{db}");
        let backup = json["namespaces"][2].as_object().expect("it is an object");
        assert!(!backup.contains_key("iops") && backup["nqn"].is_null(), "{backup:?}");
        let sum =
            |key: &str| json["namespaces"].as_array().map(|all| all.iter().filter_map(|own| own[key].as_u64()).sum());
        assert_eq!((sum("spares_own"), sum("spares_lent")), (Some(128), sum("spares_leased")));
        assert_eq!(json["pools"][0]["spare_zones"], 128);
        assert!(!backup.contains_key("conflict_groups"), "{backup:?}");
    }

    #[test]
    fn a_line_has_the_health_of_a_volume() {
        let (before, now) = samples::volume();
        let json = serde_json::to_value(line(&Frame::of(Some(&before), &now))).expect("it is JSON");
        let volume = &json["namespaces"][0]["volume"];
        assert_eq!((&volume["state"], &volume["can_lose"]), (&"rebuilding".into(), &0.into()));
        assert_eq!(volume["rebuild"], serde_json::json!({"done": 5, "all": 20}));
        let states: Vec<&str> =
            volume["members"].as_array().into_iter().flatten().filter_map(|member| member["state"].as_str()).collect();
        assert_eq!(states, ["active", "active", "rebuilding", "active"]);
        let (before, now) = samples::drive();
        let json = serde_json::to_value(line(&Frame::of(Some(&before), &now))).expect("it is JSON");
        assert!(json["namespaces"][0].get("volume").is_none(), "{json}");
    }

    #[test]
    fn a_line_has_the_outstanding_commands_of_each_conflict_group() {
        let (before, now) = samples::conflict_groups(false);
        let json = serde_json::to_value(line(&Frame::of(Some(&before), &now))).expect("it is JSON");
        let drive = &json["namespaces"][0];
        assert_eq!(drive["scheduler"], "interference");
        let groups = &drive["conflict_groups"];
        let counts = ["groups", "rejected", "restored"].map(|key| groups[key].as_u64());
        assert_eq!((counts, &groups["is_used"]), ([Some(128), Some(1), Some(0)], &false.into()));
        assert_eq!(groups["outstanding"][7], serde_json::json!({"group": 21, "waiting": 17, "in_flight": 8}));
        assert_eq!(groups["outstanding"][43], serde_json::json!({"waiting": 2, "in_flight": 5}), "unknown zones");
    }
}
