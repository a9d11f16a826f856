//! Looking at everything a device shows: the extended report of all zones, and every block that can be read.

use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, CompletionQueue, Geometry, Instant, NamespaceId, Operation, Outcome,
    Payload, PayloadKind, ReportFilter, ZoneDescriptor, ZoneIndex, ZoneState, ZonedDevice, fingerprint,
};

use crate::outcome::FailureKind;

/// Reads of one survey under way at once.
const READS_AT_ONCE: usize = 16;

/// A zone as a device shows it.
#[derive(Clone, Debug)]
pub(crate) struct SeenZone {
    pub(crate) state: ZoneState,
    /// Offset of the write pointer, where the state has a valid one.
    pub(crate) pointer: Option<u64>,
    pub(crate) zrwa: bool,
    /// The descriptor extension, if one is set.
    pub(crate) extension: Option<Box<[u8]>>,
    /// The fingerprint of each block, beyond the capacity too; empty for an offline zone and where nothing is kept.
    pub(crate) prints: Vec<u64>,
    /// The blocks themselves, where bytes are kept.
    pub(crate) bytes: Vec<BlockBuffer>,
}

/// Something a survey met that a device must not do.
pub(crate) struct Trouble {
    pub(crate) kind: FailureKind,
    pub(crate) message: String,
    pub(crate) zone: Option<ZoneIndex>,
    /// Whose zone it is, where there are several hosts.
    pub(crate) host: Option<u32>,
    /// The file concerned, in a world of files.
    pub(crate) file: Option<String>,
    /// The block concerned, in a world with a volume.
    pub(crate) block: Option<u64>,
}

impl Trouble {
    pub(crate) fn new(kind: FailureKind, zone: impl Into<Option<ZoneIndex>>, message: String) -> Trouble {
        Trouble { kind, message, zone: zone.into(), host: None, file: None, block: None }
    }

    /// The same, of a file.
    pub(crate) fn of_file(self, file: Option<String>) -> Trouble {
        Trouble { file, ..self }
    }

    /// The same, of a block of a volume.
    pub(crate) fn of_block(self, block: Option<u64>) -> Trouble {
        Trouble { block, ..self }
    }

    /// The same, of a host's zones or commands.
    pub(crate) fn of_host(self, host: usize) -> Trouble {
        Trouble { message: format!("host {host}: {}", self.message), host: Some(host as u32), ..self }
    }
}

/// Reads everything; returns it and when it was done.
pub(crate) fn survey(
    device: &mut impl ZonedDevice,
    mut now: Instant,
    keeps: PayloadKind,
) -> Result<(Vec<SeenZone>, Instant), Trouble> {
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
        return Err(Trouble::new(FailureKind::WrongAnswer, None, "a report of all zones brought no report".to_owned()));
    };
    if report.zones.len() != geometry.zone_count as usize {
        let message = format!("a report of all {} zones lists {}", geometry.zone_count, report.zones.len());
        return Err(Trouble::new(FailureKind::WrongAnswer, None, message));
    }
    let mut zones: Vec<SeenZone> = report.zones.iter().map(|descriptor| SeenZone::of(descriptor, &geometry)).collect();
    if keeps != PayloadKind::None {
        read_contents(device, &mut now, &geometry, &mut zones)?;
    }
    Ok((zones, now))
}

impl SeenZone {
    pub(crate) fn of(descriptor: &ZoneDescriptor, geometry: &Geometry) -> SeenZone {
        debug_assert!(geometry.zone_of(descriptor.start).is_some());
        SeenZone {
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
    zones: &mut [SeenZone],
) -> Result<(), Trouble> {
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
            let message = format!("a read of zone {zone} brought no data");
            return Err(Trouble::new(FailureKind::WrongAnswer, ZoneIndex(zone as u32), message));
        };
        zones[zone].take(payload, geometry);
    }
    Ok(())
}

/// Runs commands that must all succeed, a few at a time; their outcomes are in their order.
fn run_all(
    device: &mut impl ZonedDevice,
    now: &mut Instant,
    operations: Vec<Operation>,
) -> Result<Vec<Outcome>, Trouble> {
    let mut outcomes = vec![Outcome::None; operations.len()];
    let mut waiting = operations.into_iter().enumerate();
    let (mut under_way, mut is_empty) = (0, false);
    let mut completions = CompletionQueue::new();
    while under_way > 0 || !is_empty {
        while under_way < READS_AT_ONCE && !is_empty {
            let Some((place, operation)) = waiting.next() else {
                is_empty = true;
                break;
            };
            let command = Command { id: CommandId(place as u64), namespace: NamespaceId::FIRST, operation };
            device.submit(*now, command).expect("a quiet device has room for a few reads");
            under_way += 1;
        }
        if under_way == 0 {
            break;
        }
        let Some(wakeup) = device.next_wakeup() else {
            let message = format!("{under_way} reads of a device with nothing else to do are never completed");
            return Err(Trouble::new(FailureKind::Starved, None, message));
        };
        *now = wakeup.max(*now);
        device.poll(*now, &mut completions);
        while let Some(completion) = completions.pop() {
            under_way -= 1;
            if !completion.status.is_success() {
                let message = format!("a look at the quiet device ended with \"{}\"", completion.status);
                return Err(Trouble::new(FailureKind::WrongAnswer, None, message));
            }
            outcomes[completion.id.0 as usize] = completion.outcome;
        }
    }
    Ok(outcomes)
}
