//! The stored form of a [`GroupTable`]: JSON with a version, a checksum, the drive and the time.

use serde::{Deserialize, Serialize};
use zonda_zoned::{Duration, Geometry, Status};

use crate::{Effort, Evidence, GroupId, GroupTable, UnknownReason, Verdict, ZoneEntry};

/// The value of `format` in each file.
const FORMAT: &str = "zonda-groups";
/// The version that this program writes and reads.
const VERSION: u32 = 1;

/// What the serial number of a [`DriveIdentity`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SerialKind {
    /// An identifier of the drive itself: a serial number, or the UUID of an image or namespace.
    #[default]
    Identifier,
    /// The profile of a simulated drive: `model:` and its name.
    Profile,
    /// Where the drive was when it was measured, as it reports no identifier: the path of a device
    /// file, or the URL of a namespace.
    Location,
}

impl SerialKind {
    fn is_default(&self) -> bool {
        *self == SerialKind::default()
    }

    /// As it is in the file.
    fn name(self) -> &'static str {
        match self {
            SerialKind::Identifier => "identifier",
            SerialKind::Profile => "profile",
            SerialKind::Location => "location",
        }
    }
}

/// The drive that a table belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveIdentity {
    /// What identifies the drive.
    pub serial: String,
    /// What `serial` is. Absent in the file for an identifier.
    #[serde(default, skip_serializing_if = "SerialKind::is_default")]
    pub serial_kind: SerialKind,
    /// Bytes in a logical block.
    pub block_size_bytes: u32,
    /// Blocks from one zone's start to the next.
    pub zone_size_blocks: u64,
    /// Writable blocks of a zone.
    pub zone_capacity_blocks: u64,
    /// Zones in the namespace.
    pub zone_count: u32,
}

impl DriveIdentity {
    /// A drive with an identifier of its own.
    #[must_use]
    pub fn new(serial: impl Into<String>, geometry: &Geometry) -> DriveIdentity {
        DriveIdentity {
            serial: serial.into(),
            serial_kind: SerialKind::Identifier,
            block_size_bytes: geometry.block_size_bytes,
            zone_size_blocks: geometry.zone_size_blocks.0,
            zone_capacity_blocks: geometry.zone_capacity_blocks.0,
            zone_count: geometry.zone_count,
        }
    }

    /// A simulated drive of the profile with this name.
    #[must_use]
    pub fn of_profile(name: &str, geometry: &Geometry) -> DriveIdentity {
        let serial_kind = SerialKind::Profile;
        DriveIdentity { serial_kind, ..DriveIdentity::new(format!("model:{name}"), geometry) }
    }

    /// A drive that reports no identifier, at this path or URL.
    #[must_use]
    pub fn at_location(location: impl Into<String>, geometry: &Geometry) -> DriveIdentity {
        DriveIdentity { serial_kind: SerialKind::Location, ..DriveIdentity::new(location, geometry) }
    }
}

/// A table with the drive that was measured, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTable {
    /// The drive.
    pub drive: DriveIdentity,
    /// When the measurement ended, in seconds since 1970.
    pub made_at_unix_s: u64,
    /// The table.
    pub table: GroupTable,
}

/// A file that is not a table of groups, or not one of this drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableError {
    /// The text is not JSON of this form; with the reason.
    Malformed(String),
    /// A version that this program does not know.
    Version(u32),
    /// The contents do not have the checksum of the file.
    Checksum,
    /// The table belongs to a drive that differs in this property.
    OtherDrive {
        /// The property.
        property: &'static str,
        /// Its value in the table.
        stored: String,
        /// Its value of the drive.
        actual: String,
    },
}

impl std::fmt::Display for TableError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TableError::Malformed(reason) => write!(f, "not a table of conflict groups: {reason}"),
            TableError::Version(version) => {
                write!(f, "version {version} of a table of conflict groups; this program reads version {VERSION}")
            }
            TableError::Checksum => f.write_str("the table of conflict groups is damaged: its checksum is wrong"),
            TableError::OtherDrive { property, stored, actual } => {
                write!(f, "the table belongs to another drive: its {property} is {stored}, that of the drive {actual}")
            }
        }
    }
}

impl std::error::Error for TableError {}

/// The file. Zones are in columns, because there are tens of thousands.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    version: u32,
    /// CRC-32C of this structure with an empty checksum, in hexadecimal digits.
    checksum: String,
    drive: DriveIdentity,
    made_at_unix_s: u64,
    verdict: String,
    groups: u32,
    probes: u64,
    commands: u64,
    elapsed_ns: u64,
    /// Of each zone; absent if it is unknown.
    group: Vec<Option<u32>>,
    /// One letter for each zone: `m` measured, `i` inferred, `t` threshold, `u` unknown.
    evidence: String,
    /// Of each zone; absent if it was not estimated.
    confidence: Vec<Option<f64>>,
    /// Why zones are unknown.
    unknown: Vec<UnknownZones>,
}

/// Consecutive zones that are unknown for one reason.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UnknownZones {
    first: u32,
    last: u32,
    reason: String,
}

impl StoredTable {
    /// The table as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let table = &self.table;
        let (verdict, groups) = match table.verdict {
            Verdict::Groups { groups } => ("groups", groups),
            Verdict::OneGroup => ("one-group", 0),
            Verdict::NoInterference => ("no-interference", 0),
            Verdict::NotMeasured => ("not-measured", 0),
        };
        let mut file = File {
            format: FORMAT.to_owned(),
            version: VERSION,
            checksum: String::new(),
            drive: self.drive.clone(),
            made_at_unix_s: self.made_at_unix_s,
            verdict: verdict.to_owned(),
            groups,
            probes: table.effort.probes,
            commands: table.effort.commands,
            elapsed_ns: table.effort.elapsed.0,
            group: Vec::new(),
            evidence: String::new(),
            confidence: Vec::new(),
            unknown: Vec::new(),
        };
        for (zone, entry) in (0..).zip(&table.zones) {
            let (group, letter, confidence) = match entry {
                ZoneEntry::Known { group, evidence } => {
                    let letter = match evidence {
                        Evidence::Measured { .. } => 'm',
                        Evidence::Inferred { .. } => 'i',
                        Evidence::Threshold => 't',
                    };
                    (Some(group.0), letter, evidence.confidence())
                }
                ZoneEntry::Unknown(reason) => {
                    let reason = reason_name(*reason);
                    match file.unknown.last_mut() {
                        Some(run) if run.last + 1 == zone && run.reason == reason => run.last = zone,
                        _ => file.unknown.push(UnknownZones { first: zone, last: zone, reason }),
                    }
                    (None, 'u', None)
                }
            };
            file.group.push(group);
            file.evidence.push(letter);
            file.confidence.push(confidence);
        }
        file.checksum = checksum(&file);
        serde_json::to_string(&file).expect("the structure has no maps and no infinite numbers") + "\n"
    }

    /// Reads a table.
    ///
    /// # Errors
    /// The text is malformed, damaged, of another version, or contradicts itself.
    pub fn parse(text: &str) -> Result<StoredTable, TableError> {
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let malformed = |error: serde_json::Error| TableError::Malformed(error.to_string());
        let head: Head = serde_json::from_str(text).map_err(malformed)?;
        if head.format != FORMAT {
            return Err(TableError::Malformed(format!("its format is \"{}\", not \"{FORMAT}\"", head.format)));
        }
        if head.version != VERSION {
            return Err(TableError::Version(head.version));
        }
        let mut file: File = serde_json::from_str(text).map_err(malformed)?;
        let stored = std::mem::take(&mut file.checksum);
        if stored != checksum(&file) {
            return Err(TableError::Checksum);
        }
        let zones = zones_of(&file)?;
        let verdict = match file.verdict.as_str() {
            "groups" if file.groups > 1 => Verdict::Groups { groups: file.groups },
            "one-group" => Verdict::OneGroup,
            "no-interference" => Verdict::NoInterference,
            "not-measured" => Verdict::NotMeasured,
            other => return Err(inconsistent(&format!("the verdict \"{other}\" of {} groups", file.groups))),
        };
        let effort = Effort { probes: file.probes, commands: file.commands, elapsed: Duration(file.elapsed_ns) };
        let table = GroupTable { verdict, zones, effort };
        Ok(StoredTable { drive: file.drive, made_at_unix_s: file.made_at_unix_s, table })
    }

    /// Checks that the table belongs to a drive.
    ///
    /// # Errors
    /// The first property that differs.
    pub fn check_drive(&self, drive: &DriveIdentity) -> Result<(), TableError> {
        let (stored, actual) = (&self.drive, drive);
        let properties = [
            ("serial number", stored.serial.clone(), actual.serial.clone()),
            ("kind of serial number", stored.serial_kind.name().to_owned(), actual.serial_kind.name().to_owned()),
            ("block size", stored.block_size_bytes.to_string(), actual.block_size_bytes.to_string()),
            ("zone size", stored.zone_size_blocks.to_string(), actual.zone_size_blocks.to_string()),
            ("zone capacity", stored.zone_capacity_blocks.to_string(), actual.zone_capacity_blocks.to_string()),
            ("number of zones", stored.zone_count.to_string(), actual.zone_count.to_string()),
        ];
        match properties.into_iter().find(|(_, stored, actual)| stored != actual) {
            Some((property, stored, actual)) => Err(TableError::OtherDrive { property, stored, actual }),
            None => Ok(()),
        }
    }
}

/// A zone in the columns: group and letter, confidence and reason.
type Row<'a> = ((&'a Option<u32>, u8), (&'a Option<f64>, Option<UnknownReason>));

fn zones_of(file: &File) -> Result<Vec<ZoneEntry>, TableError> {
    let count = file.drive.zone_count as usize;
    if file.group.len() != count || file.evidence.len() != count || file.confidence.len() != count {
        return Err(inconsistent("columns of different lengths"));
    }
    let mut reasons = vec![None; count];
    for run in &file.unknown {
        let reason = reason_of(&run.reason).ok_or_else(|| inconsistent(&format!("the reason \"{}\"", run.reason)))?;
        let zones = reasons.get_mut(run.first as usize..=run.last as usize);
        zones.ok_or_else(|| inconsistent("zones that do not exist"))?.fill(Some(reason));
    }
    let columns = file.group.iter().zip(file.evidence.bytes()).zip(file.confidence.iter().zip(reasons));
    let entry = |((group, letter), (confidence, reason)): Row<'_>| {
        let is_share = |share: &&f64| (0.0..=1.0).contains(*share);
        let confidence = confidence.as_ref().filter(is_share).copied();
        let evidence = match (letter, confidence) {
            (b'm', Some(confidence)) => Evidence::Measured { confidence },
            (b'i', Some(confidence)) => Evidence::Inferred { confidence },
            (b't', None) => Evidence::Threshold,
            (b'u', None) => return reason.filter(|_| group.is_none()).map(ZoneEntry::Unknown),
            _ => return None,
        };
        let groups = file.groups.max(1);
        let group = GroupId((*group).filter(|group| *group < groups)?);
        reason.is_none().then_some(ZoneEntry::Known { group, evidence })
    };
    let entries: Option<Vec<ZoneEntry>> = columns.map(entry).collect();
    entries.ok_or_else(|| inconsistent("a zone whose columns contradict each other"))
}

fn inconsistent(what: &str) -> TableError {
    TableError::Malformed(format!("it has {what}"))
}

fn checksum(file: &File) -> String {
    let text = serde_json::to_string(file).expect("the structure has no maps and no infinite numbers");
    format!("{:08x}", crc_fast::crc32_iscsi(text.as_bytes()))
}

const REASONS: [(UnknownReason, &str); 9] = [
    (UnknownReason::Empty, "empty"),
    (UnknownReason::TooLittleData, "too-little-data"),
    (UnknownReason::Offline, "offline"),
    (UnknownReason::TimedOut, "timed-out"),
    (UnknownReason::Noise, "noise"),
    (UnknownReason::NotFromFlash, "not-from-flash"),
    (UnknownReason::SeveralGroups, "several-groups"),
    (UnknownReason::Contradiction, "contradiction"),
    (UnknownReason::NotMeasured, "not-measured"),
];

fn reason_name(reason: UnknownReason) -> String {
    match reason {
        UnknownReason::Failed(status) => format!("failed-{:03x}", status as u16),
        _ => {
            let entry = REASONS.iter().find(|(known, _)| *known == reason);
            entry.expect("every other reason is in the list").1.to_owned()
        }
    }
}

fn reason_of(name: &str) -> Option<UnknownReason> {
    if let Some(code) = name.strip_prefix("failed-") {
        let code = u16::from_str_radix(code, 16).ok()?;
        return Status::ERRORS.into_iter().find(|status| *status as u16 == code).map(UnknownReason::Failed);
    }
    REASONS.iter().find(|(_, known)| *known == name).map(|(reason, _)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{TABLE_BYTES_MAX, TABLE_ZONES_MAX};

    fn stored() -> StoredTable {
        let known = |group, evidence| ZoneEntry::Known { group: GroupId(group), evidence };
        let mut zones = vec![
            known(0, Evidence::Measured { confidence: 0.999_93 }),
            known(1, Evidence::Inferred { confidence: 0.97 }),
            known(1, Evidence::Threshold),
        ];
        let failed = UnknownReason::Failed(Status::UnrecoveredReadError);
        zones.extend(REASONS.iter().map(|(reason, _)| *reason).chain([failed, failed]).map(ZoneEntry::Unknown));
        let effort = Effort { probes: 7, commands: 99, elapsed: Duration(12_345) };
        let geometry = Geometry { zone_count: zones.len() as u32, ..Geometry::tiny() };
        StoredTable {
            drive: DriveIdentity::new("S1", &geometry),
            made_at_unix_s: 1_795_000_000,
            table: GroupTable { verdict: Verdict::Groups { groups: 2 }, zones, effort },
        }
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        for verdict in [Verdict::Groups { groups: 2 }, Verdict::OneGroup, Verdict::NoInterference, Verdict::NotMeasured]
        {
            let mut stored = stored();
            stored.table.verdict = verdict;
            if verdict != (Verdict::Groups { groups: 2 }) {
                stored.table.zones[1..3].fill(ZoneEntry::Unknown(UnknownReason::NotMeasured));
            }
            assert_eq!(StoredTable::parse(&stored.to_json()), Ok(stored));
        }
    }

    #[test]
    fn a_zone_takes_no_more_of_a_table_than_its_limit() {
        let bytes = |zones: Vec<ZoneEntry>| {
            let geometry = Geometry { zone_count: zones.len() as u32, ..Geometry::tiny() };
            let mut stored = stored();
            (stored.drive, stored.table.zones) = (DriveIdentity::new("S1", &geometry), zones);
            stored.to_json().len() as u64
        };
        // Every zone has an entry of its own in `unknown`, as reasons alternate.
        let reasons = [UnknownReason::TooLittleData, UnknownReason::SeveralGroups];
        let unknown = |zone: usize| ZoneEntry::Unknown(reasons[zone % 2]);
        let evidence = Evidence::Measured { confidence: 0.123_456_789_012_345_68 };
        let known = |zone: usize| ZoneEntry::Known { group: GroupId(zone as u32), evidence };
        let zones = TABLE_ZONES_MAX as usize;
        for largest in [bytes((0..zones).map(unknown).collect()), bytes((0..zones).map(known).collect())] {
            assert!(largest <= TABLE_BYTES_MAX, "{largest}");
        }
    }

    #[test]
    fn a_changed_digit_is_detected_wherever_it_is() {
        let text = stored().to_json();
        let digits = text.char_indices().filter(|(_, letter)| letter.is_ascii_digit());
        for (at, digit) in digits {
            let other = char::from(b'0' + (digit as u8 - b'0' + 1) % 10);
            let mut damaged = text.clone();
            damaged.replace_range(at..=at, &other.to_string());
            assert!(StoredTable::parse(&damaged).is_err(), "{digit} at {at}");
        }
        for end in 0..text.len() - 1 {
            assert!(StoredTable::parse(&text[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn other_versions_and_other_files_are_refused_with_the_reason() {
        let text = stored().to_json();
        let newer = text.replace("\"version\":1", "\"version\":2");
        assert_eq!(StoredTable::parse(&newer), Err(TableError::Version(2)));
        let error = StoredTable::parse("{\"format\":\"zonda-report\",\"version\":1}").expect_err("another file");
        assert!(error.to_string().contains("its format is \"zonda-report\""), "{error}");
    }

    #[test]
    fn contradictions_with_a_valid_checksum_are_refused() {
        type Spoil = fn(&mut File);
        let spoil: [(&str, Spoil); 6] = [
            ("lengths", |file| file.group.truncate(3)),
            ("verdict", |file| file.verdict = "several".to_owned()),
            ("contradict", |file| file.group[0] = Some(2)),
            ("contradict", |file| file.confidence[0] = Some(1.5)),
            ("do not exist", |file| file.unknown[0].last = 999),
            ("reason", |file| file.unknown[0].reason = "bored".to_owned()),
        ];
        for (words, spoil) in spoil {
            let mut file: File = serde_json::from_str(&stored().to_json()).unwrap();
            spoil(&mut file);
            file.checksum.clear();
            file.checksum = checksum(&file);
            let text = serde_json::to_string(&file).unwrap();
            let error = StoredTable::parse(&text).expect_err(words).to_string();
            assert!(error.contains(words), "{words}: {error}");
        }
    }

    #[test]
    fn a_table_of_another_drive_is_refused_with_the_property_that_differs() {
        let stored = stored();
        assert_eq!(stored.check_drive(&stored.drive), Ok(()));
        let other = DriveIdentity { zone_count: 9, ..stored.drive.clone() };
        let error = stored.check_drive(&other).expect_err("another drive").to_string();
        assert_eq!(error, "the table belongs to another drive: its number of zones is 14, that of the drive 9");
        let other = DriveIdentity { serial: "S2".to_owned(), ..stored.drive.clone() };
        assert!(stored.check_drive(&other).is_err_and(|error| error.to_string().contains("serial number is S1")));
    }

    #[test]
    fn a_serial_number_says_what_it_is_and_that_of_an_earlier_table_is_an_identifier() {
        let geometry = Geometry { zone_count: stored().drive.zone_count, ..Geometry::tiny() };
        let simulated = DriveIdentity::of_profile("tiny", &geometry);
        let located = DriveIdentity::at_location("/dev/nullb0", &geometry);
        for (drive, serial, kind) in [
            (&simulated, "model:tiny", Some("profile")),
            (&located, "/dev/nullb0", Some("location")),
            (&stored().drive, "S1", None),
        ] {
            let table = StoredTable { drive: drive.clone(), ..stored() };
            let json: serde_json::Value = serde_json::from_str(&table.to_json()).unwrap();
            assert_eq!((&json["drive"]["serial"], json["drive"]["serial_kind"].as_str()), (&serial.into(), kind));
            assert_eq!(StoredTable::parse(&table.to_json()), Ok(table));
        }
        let named_alike = DriveIdentity::new("/dev/nullb0", &geometry);
        let table = StoredTable { drive: named_alike, ..stored() };
        let error = table.check_drive(&located).expect_err("the drive reports no identifier").to_string();
        assert!(error.contains("kind of serial number is identifier, that of the drive location"), "{error}");
    }
}
