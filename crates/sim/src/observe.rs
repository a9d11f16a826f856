//! Reads the whole state of a device: the extended report of all zones, and every readable block.

use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, CompletionQueue, Geometry, Instant, NamespaceId, Operation, Outcome,
    Payload, PayloadKind, ReportFilter, ZoneDescriptor, ZoneIndex, ZoneState, ZonedDevice, fingerprint,
};

use crate::outcome::FailureKind;

/// Queue depth of these reads.
const READS_IN_FLIGHT_MAX: usize = 16;

/// A zone as reported and read from a device.
#[derive(Clone, Debug)]
pub(crate) struct ObservedZone {
    pub(crate) state: ZoneState,
    /// Offset of the write pointer, in states in which it is valid.
    pub(crate) pointer: Option<u64>,
    pub(crate) zrwa: bool,
    /// The zone descriptor extension, if set.
    pub(crate) extension: Option<Box<[u8]>>,
    /// The fingerprint of each block, including those beyond the capacity; empty for an offline
    /// zone and on a device that stores no data.
    pub(crate) prints: Vec<u64>,
    /// The blocks, on a device that stores bytes.
    pub(crate) bytes: Vec<BlockBuffer>,
}

/// An error that a checker has found.
pub(crate) struct CheckError {
    pub(crate) kind: FailureKind,
    pub(crate) message: String,
    pub(crate) zone: Option<ZoneIndex>,
    /// The host concerned, where there are several.
    pub(crate) host: Option<u32>,
    /// The file concerned, in a scenario with files.
    pub(crate) file: Option<String>,
    /// The block concerned, in a scenario with a volume.
    pub(crate) block: Option<u64>,
}

impl CheckError {
    pub(crate) fn new(kind: FailureKind, zone: impl Into<Option<ZoneIndex>>, message: String) -> CheckError {
        CheckError { kind, message, zone: zone.into(), host: None, file: None, block: None }
    }

    /// The same error, of a file.
    pub(crate) fn of_file(self, file: Option<String>) -> CheckError {
        CheckError { file, ..self }
    }

    /// The same error, of a block of a volume.
    pub(crate) fn of_block(self, block: Option<u64>) -> CheckError {
        CheckError { block, ..self }
    }

    /// The same error, of the zones or commands of a host.
    pub(crate) fn of_host(self, host: usize) -> CheckError {
        CheckError { message: format!("host {host}: {}", self.message), host: Some(host as u32), ..self }
    }
}

/// Reads the state of a device; returns it, and the time at which that was complete.
pub(crate) fn observe(
    device: &mut impl ZonedDevice,
    mut now: Instant,
    keeps: PayloadKind,
) -> Result<(Vec<ObservedZone>, Instant), CheckError> {
    let geometry = device.geometry(NamespaceId::FIRST).clone();
    let report = Operation::ReportZones {
        start: geometry.zone_start(ZoneIndex(0)),
        filter: ReportFilter::All,
        extended: geometry.descriptor_extension_bytes > 0,
        partial: false,
        descriptors_max: u32::MAX,
    };
    let mut outcomes = run_all(device, &mut now, vec![report])?;
    let Some(Outcome::Report(report)) = outcomes.pop() else {
        return Err(CheckError::new(
            FailureKind::WrongAnswer,
            None,
            "Report Zones of all zones returned no report".to_owned(),
        ));
    };
    if report.zones.len() != geometry.zone_count as usize {
        let message =
            format!("Report Zones of all {} zones returned {} descriptors", geometry.zone_count, report.zones.len());
        return Err(CheckError::new(FailureKind::WrongAnswer, None, message));
    }
    let mut zones: Vec<ObservedZone> =
        report.zones.iter().map(|descriptor| ObservedZone::of(descriptor, &geometry)).collect();
    if keeps != PayloadKind::None {
        read_contents(device, &mut now, &geometry, &mut zones)?;
    }
    Ok((zones, now))
}

impl ObservedZone {
    pub(crate) fn of(descriptor: &ZoneDescriptor, geometry: &Geometry) -> ObservedZone {
        assert!(geometry.zone_of(descriptor.start).is_some());
        ObservedZone {
            state: descriptor.state,
            pointer: descriptor.write_pointer.map(|pointer| (pointer - descriptor.start).0),
            zrwa: descriptor.attributes.zrwa_valid,
            extension: descriptor.extension.clone().filter(|_| descriptor.attributes.extension_valid),
            prints: Vec::new(),
            bytes: Vec::new(),
        }
    }

    pub(crate) fn take(&mut self, payload: Payload, geometry: &Geometry) {
        match payload {
            Payload::None => {}
            Payload::Fingerprints(prints) => self.prints.extend(prints),
            Payload::Bytes(buffer) => {
                let (block, metadata) = (geometry.block_size_bytes as usize, usize::from(geometry.metadata_bytes));
                for at in 0..buffer.data.len() / block {
                    let one = BlockBuffer {
                        data: buffer.data.slice(at * block..(at + 1) * block),
                        metadata: buffer.metadata.slice(at * metadata..(at + 1) * metadata),
                    };
                    self.prints.push(fingerprint(&one.data, &one.metadata));
                    self.bytes.push(one);
                }
            }
        }
    }
}

fn read_contents(
    device: &mut impl ZonedDevice,
    now: &mut Instant,
    geometry: &Geometry,
    zones: &mut [ObservedZone],
) -> Result<(), CheckError> {
    let (size, most) = (geometry.zone_size_blocks.0, geometry.max_transfer_blocks.0);
    let mut pieces = Vec::new();
    let mut reads = Vec::new();
    for (zone, _) in zones.iter().enumerate().filter(|(_, seen)| seen.state != ZoneState::Offline) {
        let start = geometry.zone_start(ZoneIndex(zone as u32));
        for first in (0..size).step_by(most as usize) {
            let blocks = Blocks(most.min(size - first));
            pieces.push(zone);
            reads.push(Operation::Read { start: start + Blocks(first), blocks });
        }
    }
    for (zone, outcome) in pieces.into_iter().zip(run_all(device, now, reads)?) {
        let Outcome::Data(payload) = outcome else {
            let message = format!("a read of zone {zone} returned no data");
            return Err(CheckError::new(FailureKind::WrongAnswer, ZoneIndex(zone as u32), message));
        };
        zones[zone].take(payload, geometry);
    }
    Ok(())
}

/// Runs commands that must all succeed; returns their outcomes in the order of the commands.
fn run_all(
    device: &mut impl ZonedDevice,
    now: &mut Instant,
    operations: Vec<Operation>,
) -> Result<Vec<Outcome>, CheckError> {
    let mut outcomes = vec![Outcome::None; operations.len()];
    let mut waiting = operations.into_iter().enumerate();
    let (mut in_flight, mut is_empty) = (0, false);
    let mut completions = CompletionQueue::new();
    while in_flight > 0 || !is_empty {
        while in_flight < READS_IN_FLIGHT_MAX && !is_empty {
            let Some((place, operation)) = waiting.next() else {
                is_empty = true;
                break;
            };
            let command = Command::new(CommandId(place as u64), NamespaceId::FIRST, operation);
            device.submit(*now, command).expect("an idle device accepts a few reads");
            in_flight += 1;
        }
        if in_flight == 0 {
            break;
        }
        let Some(wakeup) = device.next_timeout() else {
            let message = format!("{in_flight} reads of an otherwise idle device never complete");
            return Err(CheckError::new(FailureKind::Starved, None, message));
        };
        *now = wakeup.max(*now);
        device.poll(*now, &mut completions);
        while let Some(completion) = completions.pop() {
            in_flight -= 1;
            if !completion.status.is_success() {
                let message =
                    format!("a read or report of the quiescent device completed with \"{}\"", completion.status);
                return Err(CheckError::new(FailureKind::WrongAnswer, None, message));
            }
            outcomes[completion.id.0 as usize] = completion.outcome;
        }
    }
    Ok(outcomes)
}
