//! The state of a pool as text.

use std::path::Path;

use zonda_devices::{PoolNamespaceReport, PoolReport, shown_place};

use crate::output::Screen;
use crate::table::Table;
use crate::units;

/// The state of a pool and its namespaces.
pub(crate) fn pool(report: &PoolReport, directory: &Path, screen: Screen) -> String {
    let mut text = format!(
        "{}  on {}, {}\n",
        screen.bold(&directory.display().to_string()),
        shown_place(directory, &report.drive),
        units::counted(report.namespaces.len() as u64, "namespace"),
    );
    for problem in report.problems() {
        text += &(screen.styled("1;31", screen.paragraph(problem, 2).trim_end()) + "\n");
    }
    let zone_bytes = report.zone_capacity_bytes / u64::from(report.zones_per_vzone.max(1));
    let free = report.usable_zones.saturating_sub(report.promised_zones);
    let per_zone = units::counted(u64::from(report.zones_per_vzone), "zone");
    text += &format!("  zones      {} each, on {per_zone} of the drive\n", units::bytes(report.zone_capacity_bytes));
    text += &format!(
        "  space      {} of {} allocated to namespaces, {} free\n",
        units::bytes(report.promised_zones * zone_bytes),
        units::bytes(report.usable_zones * zone_bytes),
        units::bytes(free * zone_bytes),
    );
    text += &overhead(report, zone_bytes);
    text += &format!(
        "  active     {}, {}; stripe groups of at most {}\n",
        units::counted(u64::from(report.essential_zones), "essential zone"),
        units::counted(u64::from(report.spare_zones), "spare"),
        units::counted(u64::from(report.width_max), "zone"),
    );
    if let Some(scheduler) = &report.scheduler {
        text += &format!("  scheduler  {scheduler}\n");
    }
    text += &drive_zones(report);
    text += &reclaim(report);
    if report.namespaces.is_empty() {
        return text;
    }
    text + "\n" + &namespaces(report, screen) + &notes(report)
}

/// What namespaces cannot have of the drive, and why.
fn overhead(report: &PoolReport, zone_bytes: u64) -> String {
    let usable_bytes = report.usable_zones * zone_bytes;
    if report.drive_capacity_bytes <= usable_bytes {
        return String::new();
    }
    let drive_zone_bytes = report.drive_capacity_bytes / report.drive_zones.max(1);
    let lost = u64::from(report.zones_retired + report.zones_set_aside);
    let reserve = report.drive_zones.saturating_sub(report.log_zones + report.usable_zones + lost);
    format!(
        "  overhead   {} of the {} of the drive: {} for the log, {reserve} in reserve, {} in each of the others\n",
        units::bytes(report.drive_capacity_bytes - usable_bytes),
        units::bytes(report.drive_capacity_bytes),
        units::counted(report.log_zones, "zone"),
        units::bytes(drive_zone_bytes.saturating_sub(zone_bytes)),
    )
}

/// Zones of the drive that cannot be used, or not yet.
fn drive_zones(report: &PoolReport) -> String {
    let counted = |zones: u32| units::counted(u64::from(zones), "zone");
    let parts = [(report.zones_retired, "failed"), (report.zones_set_aside, "with other contents, or not readable")];
    let parts = parts.into_iter().filter(|(zones, _)| *zones > 0);
    let parts: Vec<String> = parts.map(|(zones, why)| format!("{zones} {why}")).collect();
    let lost = report.zones_retired + report.zones_set_aside;
    let mut text = String::new();
    if lost > 0 {
        text += &format!("  unusable   {} of the drive: {}\n", counted(lost), parts.join(", "));
    }
    if report.zones_doubtful > 0 {
        text += &format!(
            "  in doubt   {} of the drive may be active after failed commands\n",
            counted(report.zones_doubtful)
        );
    }
    text
}

/// The progress of a copy that reclaims spares, and how many there were.
fn reclaim(report: &PoolReport) -> String {
    let since = match report.reclaimed_groups {
        0 => None,
        groups => Some(format!("{} since the pool was opened", units::counted(groups, "stripe group"))),
    };
    let now = report.reclaim.as_ref().map(|copy| {
        let (copied, all) = (units::bytes(copy.copied_bytes), units::bytes(copy.bytes));
        format!("zone {} of {}, {copied} of {all} copied", copy.zone, copy.namespace)
    });
    let parts: Vec<String> = now.into_iter().chain(since).collect();
    if parts.is_empty() { String::new() } else { format!("  reclaim    {}\n", parts.join("; ")) }
}

/// What is unusual about namespaces.
fn notes(report: &PoolReport) -> String {
    let of_namespace = |own: &PoolNamespaceReport| {
        let waiting = (own.waiting_zones > 0).then(|| {
            let zones = units::counted(u64::from(own.waiting_zones), "zone");
            let wait = if own.waiting_zones == 1 { "waits" } else { "wait" };
            let left = units::counted(u64::from(report.active_left), "active zone");
            format!("{zones} {wait} for a stripe group, {left} of the drive left")
        });
        let unusual = own.zones_by_state.iter().filter(|of| matches!(of.state.as_str(), "offline" | "read only"));
        let unusual = unusual.map(|of| format!("{} {}", units::counted(u64::from(of.zones), "zone"), of.state));
        let all: Vec<String> = waiting.into_iter().chain(unusual).collect();
        (!all.is_empty()).then(|| format!("  {}: {}\n", own.name, all.join("; ")))
    };
    let lines: String = report.namespaces.iter().filter_map(of_namespace).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// A table of the namespaces.
pub(super) fn namespaces(report: &PoolReport, screen: Screen) -> String {
    if report.namespaces.is_empty() {
        return "no namespaces\n".to_owned();
    }
    let columns = ["name", ">size", ">zones", ">written", ">active", ">weight", ">essentials", ">spares"];
    let mut table = Table::new(&columns);
    for namespace in &report.namespaces {
        let PoolNamespaceReport { zones, written_bytes, size_bytes, active_zones, max_active_zones, .. } = namespace;
        table.row(&[
            namespace.name.clone(),
            units::bytes(*size_bytes),
            units::count(u64::from(*zones)),
            units::percent(*written_bytes as f64 / (*size_bytes).max(1) as f64),
            format!("{active_zones} of {max_active_zones}"),
            units::count(u64::from(namespace.weight)),
            units::count(u64::from(namespace.essentials)),
            units::count(u64::from(namespace.spares_own + namespace.spares_leased - namespace.spares_lent)),
        ]);
    }
    table.render(screen, 2)
}

#[cfg(test)]
mod tests {
    use zonda_devices::{ReclaimReport, ZonesInState};

    use super::*;

    fn shown(report: &PoolReport) -> String {
        pool(report, Path::new("pool"), Screen { width: 100, colour: false })
    }

    #[test]
    fn what_keeps_hosts_from_writing_is_named() {
        let sound = PoolReport { log_copies: 2, ..PoolReport::default() };
        let text = shown(&sound);
        for word in ["log", "no space", "again", "in doubt", "unusable", "reclaim", "scheduler"] {
            assert!(!text.contains(word), "{text}");
        }
        let text = shown(&PoolReport { log_copies: 1, ..sound.clone() });
        assert!(text.contains("one of the two copies of the log on the drive has failed"), "{text}");
        let text = shown(&PoolReport { is_read_only: true, log_copies: 0, is_reopening: true, ..sound.clone() });
        assert!(text.contains("both copies of the log") && !text.contains("one of the two"), "{text}");
        assert!(text.contains("being opened again: hosts wait"), "{text}");
        let text = shown(&PoolReport { is_read_only: true, log_copies: 0, lacks_space: true, ..sound.clone() });
        assert!(text.contains("the drive has no space") && !text.contains("Copy the data"), "{text}");
        let text = shown(&PoolReport { is_disconnected: true, is_reopening: true, ..sound.clone() });
        assert!(text.contains("the connection to the drive is lost") && !text.contains("opened again"), "{text}");
        let text = shown(&PoolReport { is_taken_over: true, ..sound.clone() });
        assert!(text.contains("taken over by another server"), "{text}");
        let text = shown(&PoolReport { zones_retired: 2, zones_set_aside: 1, zones_doubtful: 4, ..sound });
        assert!(
            text.contains("unusable   3 zones of the drive: 2 failed, 1 with other contents, or not readable\n"),
            "{text}"
        );
        assert!(text.contains("in doubt   4 zones of the drive may be active after failed commands\n"), "{text}");
    }

    #[test]
    fn the_copy_that_reclaims_spares_and_the_namespaces_that_wait_are_named() {
        let copy = ReclaimReport { namespace: "db".to_owned(), zone: 3, copied_bytes: 1 << 20, bytes: 4 << 20 };
        let in_state = |state: &str, zones| ZonesInState { state: state.to_owned(), zones };
        let own = PoolNamespaceReport {
            name: "log".to_owned(),
            waiting_zones: 1,
            zones_by_state: vec![in_state("empty", 5), in_state("offline", 1), in_state("read only", 2)],
            ..PoolNamespaceReport::default()
        };
        let quiet = PoolNamespaceReport { name: "db".to_owned(), ..PoolNamespaceReport::default() };
        let report = PoolReport {
            reclaim: Some(copy),
            reclaimed_groups: 7,
            scheduler: Some("ezns".to_owned()),
            namespaces: vec![quiet, own],
            ..PoolReport::default()
        };
        let text = shown(&report);
        let line = "reclaim    zone 3 of db, 1.00 MiB of 4.00 MiB copied; 7 stripe groups since the pool was opened\n";
        assert!(text.contains(line) && text.contains("scheduler  ezns\n"), "{text}");
        let notes = "\n  log: 1 zone waits for a stripe group, 0 active zones of the drive left; 1 zone offline; 2 zones read only\n";
        assert!(text.ends_with(notes), "{text}");
    }
}
