//! The state of a pool as text.

use std::path::Path;

use zonda_devices::{PoolNamespaceReport, PoolReport};

use crate::output::Screen;
use crate::table::Table;
use crate::units;

/// The state of a pool and its namespaces.
pub(super) fn pool(report: &PoolReport, directory: &Path, screen: Screen) -> String {
    let mut text = format!(
        "{}  on {}, {}\n",
        screen.bold(&directory.display().to_string()),
        report.drive,
        units::counted(report.namespaces.len() as u64, "namespace"),
    );
    if report.is_read_only {
        let warning = "read-only: both copies of the log on the drive have failed. Copy the data to another drive";
        text += &(screen.styled("1;31", screen.paragraph(warning, 2).trim_end()) + "\n");
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
    text += &format!(
        "  active     {}, {}; stripe groups of at most {}\n",
        units::counted(u64::from(report.essential_zones), "essential zone"),
        units::counted(u64::from(report.spare_zones), "spare"),
        units::counted(u64::from(report.width_max), "zone"),
    );
    let lost = report.zones_retired + report.zones_set_aside;
    if lost > 0 {
        text += &format!("  unusable   {} of the drive\n", units::counted(u64::from(lost), "zone"));
    }
    if report.namespaces.is_empty() {
        return text;
    }
    text + "\n" + &namespaces(report, screen)
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
