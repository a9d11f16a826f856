//! [`Report`]: what is stored of a characterisation, as JSON with a version and a checksum.

use serde::{Deserialize, Serialize};
use zonda_profiler::{DriveIdentity, Verdict};
use zonda_zoned::{Duration, Geometry};

use crate::rules::Guideline;
use crate::{Characterisation, Finding, Groups, Kind, Load, Part, PartSummary};

/// The value of `format` in each file.
const FORMAT: &str = "zonda-report";
/// The version that this program writes.
const VERSION: u32 = 3;
/// The oldest version that it reads. Version 1 has no schedulers and no limited rates, version 2 does
/// not say whether the figures are those of a page cache.
const OLDEST_VERSION: u32 = 1;

/// How the drive was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// The drive as the user has named it.
    pub target: String,
    /// Whether time was that of a simulation.
    pub is_virtual: bool,
    /// Whether zones were written and reset.
    pub is_destructive: bool,
    /// The time that was allowed.
    pub budget_ns: u64,
    /// The seed.
    pub seed: u64,
    /// When the measurement ended, in seconds since 1970; absent in virtual time, in which the same
    /// seed gives the same report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_at_unix_s: Option<u64>,
    /// Whether the drive is an image in files, whose reads and writes go through the page cache of the
    /// host: the figures are not those of a drive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_page_cached: bool,
}

impl Conditions {
    /// What the figures are of, if not of a drive.
    #[must_use]
    pub fn caveat(&self) -> Option<&'static str> {
        self.is_page_cached.then_some(
            "An image in files, through the page cache of this host: the figures are those of its memory and file system, \
             not of a drive, and so are the guidelines.",
        )
    }
}

/// What the drive reports of itself, beside its zones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveLimits {
    /// Maximum Active Resources; absent: no limit.
    pub max_active_zones: Option<u32>,
    /// Maximum Open Resources; absent: no limit.
    pub max_open_zones: Option<u32>,
    /// Bytes of one read or write (MDTS).
    pub max_transfer_bytes: u64,
    /// Bytes of one append (ZASL).
    pub max_append_bytes: u64,
    /// Bytes of metadata with each block.
    pub metadata_bytes: u16,
    /// Conventional zones at the start.
    pub conventional_zones: u32,
    /// Zones with a Zone Random Write Area at a time; absent: not supported.
    pub zrwa_zones: Option<u32>,
}

impl DriveLimits {
    /// Of a geometry.
    #[must_use]
    pub fn of(geometry: &Geometry) -> DriveLimits {
        let bytes = |blocks: zonda_zoned::Blocks| blocks.bytes(geometry.block_size_bytes);
        DriveLimits {
            max_active_zones: geometry.max_active_zones,
            max_open_zones: geometry.max_open_zones,
            max_transfer_bytes: bytes(geometry.max_transfer_blocks),
            max_append_bytes: bytes(geometry.max_append_blocks),
            metadata_bytes: geometry.metadata_bytes,
            conventional_zones: geometry.conventional_zone_count,
            zrwa_zones: geometry.zrwa.map(|zrwa| zrwa.resources),
        }
    }
}

/// The conflict groups in short; the table is in a file of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSummary {
    /// The verdict: `groups`, `one-group`, `no-interference` or `not-measured`.
    pub verdict: String,
    /// The number of groups.
    pub groups: u32,
    /// Zones with a group.
    pub known_zones: u32,
    /// The group of each zone, as far as it is known.
    pub group_of_zone: Vec<Option<u32>>,
    /// Bytes of the reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    /// How much slower a zone is beside its own reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdown: Option<f64>,
}

impl GroupSummary {
    fn of(groups: &Groups) -> GroupSummary {
        let table = &groups.table;
        let verdict = match table.verdict {
            Verdict::Groups { .. } => "groups",
            Verdict::OneGroup => "one-group",
            Verdict::NoInterference => "no-interference",
            Verdict::NotMeasured => "not-measured",
        };
        let of_zone = (0..table.zones.len() as u32).map(|zone| table.group(zonda_zoned::ZoneIndex(zone)));
        let group_of_zone: Vec<Option<u32>> = of_zone.map(|group| group.map(|group| group.0)).collect();
        GroupSummary {
            verdict: verdict.to_owned(),
            groups: table.groups(),
            known_zones: group_of_zone.iter().flatten().count() as u32,
            group_of_zone: if table.groups() > 0 { group_of_zone } else { Vec::new() },
            read_bytes: groups.calibration.map(|(bytes, _)| bytes),
            slowdown: groups.calibration.map(|(_, slowdown)| slowdown),
        }
    }

    /// The verdict in words.
    #[must_use]
    pub fn words(&self) -> String {
        match self.verdict.as_str() {
            "groups" => Verdict::Groups { groups: self.groups }.to_string(),
            "one-group" => Verdict::OneGroup.to_string(),
            "no-interference" => Verdict::NoInterference.to_string(),
            _ => Verdict::NotMeasured.to_string(),
        }
    }
}

/// A characterisation with its drive, and what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    format: String,
    version: u32,
    /// CRC-32C of this structure with an empty checksum, in hexadecimal digits.
    checksum: String,
    /// The drive.
    pub drive: DriveIdentity,
    /// Its limits.
    pub limits: DriveLimits,
    /// How it was measured.
    pub conditions: Conditions,
    /// The time that it took.
    pub elapsed_ns: u64,
    /// Whether the user has ended it before.
    pub is_interrupted: bool,
    /// The parts.
    pub parts: Vec<PartSummary>,
    /// The conflict groups, if they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupSummary>,
    /// What follows from the figures.
    pub guidelines: Vec<Guideline>,
    /// All loads.
    pub findings: Vec<Finding>,
}

/// A file that is not a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportError {
    /// The text is not JSON of this form; with the reason.
    Malformed(String),
    /// A version that this program does not know.
    Version(u32),
    /// The contents do not have the checksum of the file.
    Checksum,
}

impl std::fmt::Display for ReportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReportError::Malformed(reason) => write!(f, "not a report of zonda probe: {reason}"),
            ReportError::Version(version) => {
                write!(f, "version {version} of a report; this program reads versions {OLDEST_VERSION} to {VERSION}")
            }
            ReportError::Checksum => f.write_str("the report is damaged: its checksum is wrong"),
        }
    }
}

impl std::error::Error for ReportError {}

impl Report {
    /// The report of a characterisation.
    #[must_use]
    pub fn new(
        drive: DriveIdentity,
        limits: DriveLimits,
        conditions: Conditions,
        measured: Characterisation,
    ) -> Report {
        let mut report = Report {
            format: FORMAT.to_owned(),
            version: VERSION,
            checksum: String::new(),
            drive,
            limits,
            conditions,
            elapsed_ns: measured.elapsed.0,
            is_interrupted: measured.is_interrupted,
            parts: measured.parts,
            groups: measured.groups.as_ref().map(GroupSummary::of),
            guidelines: Vec::new(),
            findings: measured.findings,
        };
        report.guidelines = crate::rules::guidelines(&report);
        report
    }

    /// The report as JSON, on one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut report = self.clone();
        report.checksum = report.checksum();
        let text = serde_json::to_string(&report);
        text.expect("the structure has no maps and no infinite numbers") + "\n"
    }

    /// Reads a report.
    ///
    /// # Errors
    /// The text is malformed, damaged or of another version.
    pub fn parse(text: &str) -> Result<Report, ReportError> {
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let malformed = |error: serde_json::Error| ReportError::Malformed(error.to_string());
        let head: Head = serde_json::from_str(text).map_err(malformed)?;
        if head.format != FORMAT {
            return Err(ReportError::Malformed(format!("its format is \"{}\", not \"{FORMAT}\"", head.format)));
        }
        if !(OLDEST_VERSION..=VERSION).contains(&head.version) {
            return Err(ReportError::Version(head.version));
        }
        let mut report: Report = serde_json::from_str(text).map_err(malformed)?;
        let stored = std::mem::take(&mut report.checksum);
        if stored != report.checksum() {
            return Err(ReportError::Checksum);
        }
        Ok(report)
    }

    fn checksum(&self) -> String {
        let plain = Report { checksum: String::new(), ..self.clone() };
        let text = serde_json::to_string(&plain).expect("the structure has no maps and no infinite numbers");
        format!("{:08x}", crc_fast::crc32_iscsi(text.as_bytes()))
    }

    /// Findings of a part.
    pub fn of_part(&self, part: Part) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.part == part)
    }

    /// A load that ran alone and without a limit in the interference matrix.
    #[must_use]
    pub fn alone(&self, load: &Load) -> Option<&Finding> {
        self.of_part(Part::Interference).find(|finding| finding.load == load.unlimited() && finding.beside.is_none())
    }

    /// Throughput and p99 of a load beside another, relative to the load alone.
    #[must_use]
    pub fn relative(&self, finding: &Finding) -> Option<(f64, f64)> {
        let alone = self.alone(&finding.load)?.figures?;
        let beside = finding.figures?;
        let throughput = beside.per_second / alone.per_second;
        Some((throughput, beside.p99_ns as f64 / alone.p99_ns.max(1) as f64))
    }

    /// The loads that stand for the operations of the matrix, in their order.
    #[must_use]
    pub fn matrix_loads(&self) -> Vec<Load> {
        let pairs = || self.of_part(Part::Interference).filter(|finding| finding.beside.is_some());
        let of = |kind: Kind| {
            // The load that ran beside all operations.
            let mut loads: Vec<(usize, Load)> = Vec::new();
            for finding in pairs().filter(|finding| finding.load.kind == kind && finding.load.rate_percent.is_none()) {
                match loads.iter_mut().find(|(_, load)| *load == finding.load) {
                    Some((count, _)) => *count += 1,
                    None => loads.push((1, finding.load)),
                }
            }
            loads.into_iter().max_by_key(|(count, load)| (*count, std::cmp::Reverse(*load))).map(|(_, load)| load)
        };
        Kind::MATRIX.into_iter().filter_map(of).collect()
    }

    /// The cell of the matrix: a load beside another.
    #[must_use]
    pub fn pair(&self, load: &Load, beside: &Load) -> Option<&Finding> {
        self.of_part(Part::Interference).find(|finding| finding.load == *load && finding.beside == Some(*beside))
    }

    /// The time that it took.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration(self.elapsed_ns)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Figures, Missing};

    pub(crate) fn figures(per_second: f64, size_bytes: u64, p50_ns: u64, p99_ns: u64) -> Figures {
        Figures {
            operations: per_second as u64,
            per_second,
            bytes_per_second: per_second * size_bytes as f64,
            mean_ns: p50_ns,
            p50_ns,
            p99_ns,
            max_ns: p99_ns,
            uncertainty: 0.01,
        }
    }

    pub(crate) fn report(findings: Vec<Finding>) -> Report {
        let geometry = Geometry::tiny();
        let conditions = Conditions {
            target: "model:tiny".to_owned(),
            is_virtual: true,
            is_destructive: true,
            budget_ns: 1,
            seed: 1,
            made_at_unix_s: None,
            is_page_cached: false,
        };
        let measured =
            Characterisation { findings, groups: None, parts: Vec::new(), elapsed: Duration(1), is_interrupted: false };
        Report::new(DriveIdentity::new("S", &geometry), DriveLimits::of(&geometry), conditions, measured)
    }

    #[test]
    fn a_report_is_read_as_it_was_written_and_damage_is_detected() {
        let load = Load::of_data(Kind::Read, 4096, 1, 1);
        let reset = Load::of_management(Kind::Reset, 50);
        let report = report(vec![
            Finding::new(Part::Reads, load, None, Ok(figures(10_000.5, 4096, 7, 9))),
            Finding::new(Part::Interference, load, Some(reset), Err(Missing::Failed("x".to_owned()))),
        ]);
        let text = report.to_json();
        assert_eq!(Report::parse(&text), Ok(report));
        assert_eq!(Report::parse(&text.replace("10000.5", "20000.5")), Err(ReportError::Checksum));
        assert_eq!(Report::parse(&text.replace("\"version\":3", "\"version\":9")), Err(ReportError::Version(9)));
        let other = Report::parse("{\"format\":\"zonda-groups\",\"version\":1}").expect_err("another file");
        assert!(other.to_string().contains("zonda-groups"), "{other}");
    }

    #[test]
    fn a_report_of_the_first_version_is_read() {
        let text = include_str!("../measured/version-1.json");
        assert!(text.contains("\"version\":1,"), "it stays as that version has written it");
        let report = Report::parse(text).expect("its checksum is right");
        assert!(report.findings.iter().all(|finding| finding.scheduler.is_none()));
        assert!(report.findings.len() > 50, "{}", report.findings.len());
        assert_eq!(Report::parse(&report.to_json()), Ok(report), "it is written again as it was read");
    }

    #[test]
    fn a_stored_report_with_absurd_numbers_is_shown_without_a_panic() {
        let load = Load { fill_percent: Some(u32::MAX), ..Load::of_data(Kind::Finish, u64::MAX, u32::MAX, u32::MAX) };
        let read = Load::of_data(Kind::Read, u64::MAX, u32::MAX, 0);
        let absurd = figures(1e300, 1, u64::MAX, u64::MAX);
        let of = |part, load, beside| Finding::new(part, load, beside, Ok(absurd));
        let mut report = report(vec![
            of(Part::Zones, load, None),
            of(Part::Reads, read, None),
            of(Part::Reads, Load { queue_depth: 1, ..read }, None),
            of(Part::Interference, read, None),
            of(Part::Interference, read, Some(load)),
        ]);
        report.drive.zone_capacity_blocks = u64::MAX;
        report.drive.zone_count = u32::MAX;
        let stored = Report::parse(&report.to_json()).expect("its checksum is right");
        let served = crate::Served { source: crate::Source::Profile(String::new()), has_groups: true };
        let page = crate::html(&stored, &served, Some(&stored));
        assert!(page.contains("Interference"));
        assert!(!crate::fit_measurements(&stored).0.is_empty());
        assert!(stored.changes(&report).changes.is_empty());
    }
}
