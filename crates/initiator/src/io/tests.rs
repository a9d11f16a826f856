//! Operations of several commands, and operations that complete locally.

use zonda_nvme::IoOpcode;
use zonda_nvme::io::decode_ranges;
use zonda_zoned::{ZoneAttributes, ZoneDescriptor, ZoneState};

use super::*;

fn namespace() -> Namespace {
    let geometry = Geometry::tiny();
    let format = NamespaceFormat::of(&geometry, 1 << 20);
    let report = ReportShape {
        namespace: NamespaceId(3),
        format,
        zone_size_blocks: geometry.zone_size_blocks.0,
        zone_count: geometry.zone_count,
        round_bytes: 4096,
    };
    let limits = DeallocateLimits { ranges: 256, range_blocks: u64::from(u32::MAX), blocks: u64::MAX };
    Namespace { id: NamespaceId(3), format, report, write_zeroes_blocks: Some(4), deallocate: Some(limits), geometry }
}

fn well(data: &[u8]) -> Ended {
    Ended {
        owner: crate::queue::Owner::Procedure,
        status: StatusCode::SUCCESS,
        do_not_retry: false,
        result: 0,
        data: Bytes::copy_from_slice(data),
        is_damaged: false,
    }
}

/// Runs an operation with `answer` as the controller; returns its commands and its status.
fn run(namespace: &Namespace, operation: &Operation, mut answer: impl FnMut(&Wire) -> Ended) -> (Vec<Wire>, Status) {
    let (mut work, mut wire) = match namespace.begin(operation) {
        Begin::Answer(status, _) => return (vec![], status),
        Begin::Send { work, wire, .. } => (work, wire),
    };
    let mut all = Vec::new();
    loop {
        let ended = answer(&wire);
        all.push(wire);
        match namespace.ended(&mut work, ended) {
            Next::Send(next) => wire = next,
            Next::Done(status, _) => return (all, status),
        }
    }
}

fn ranges(wires: &[Wire]) -> Vec<Vec<(u64, u64)>> {
    wires
        .iter()
        .map(|(_, data)| match data {
            CommandData::FromHost(HostData::Bytes(bytes)) => {
                decode_ranges(bytes).iter().map(|range| (range.start.0, range.blocks.0)).collect()
            }
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn deallocation_respects_the_limits_of_the_controller() {
    let mut namespace = namespace();
    let of = |ranges: &[(u64, u64)]| Operation::Deallocate {
        ranges: ranges.iter().map(|&(start, blocks)| LbaRange { start: Lba(start), blocks: Blocks(blocks) }).collect(),
    };
    let (wires, status) = run(&namespace, &of(&[(0, 5), (9, 1)]), |_| well(&[]));
    assert_eq!((ranges(&wires), status), (vec![vec![(0, 5), (9, 1)]], Status::Success));
    namespace.deallocate = Some(DeallocateLimits { ranges: 2, range_blocks: 4, blocks: 6 });
    let (wires, _) = run(&namespace, &of(&[(0, 5), (9, 1), (20, 6)]), |_| well(&[]));
    assert_eq!(ranges(&wires), [vec![(0, 4), (4, 1)], vec![(9, 1), (20, 4)], vec![(24, 2)]]);
    for (bad, status) in [
        (&[][..], Status::InvalidField),
        (&[(0, 1), (5, 0)], Status::InvalidField),
        (&[(127, 2)], Status::LbaOutOfRange),
    ] {
        let (wires, found) = run(&namespace, &of(bad), |_| well(&[]));
        assert_eq!((wires.len(), found), (0, status));
    }
    namespace.deallocate = None;
    assert_eq!(run(&namespace, &of(&[(0, 5)]), |_| well(&[])).1, Status::InvalidField);
}

/// A report of one zone.
fn zone(state: ZoneState, write_pointer: u64) -> Ended {
    let has_pointer = !matches!(state, ZoneState::Full | ZoneState::ReadOnly);
    let zone = ZoneDescriptor {
        zone_type: zonda_zoned::ZoneType::SequentialWriteRequired,
        state,
        attributes: ZoneAttributes::default(),
        capacity_blocks: Blocks(12),
        start: Lba(16),
        write_pointer: has_pointer.then_some(Lba(write_pointer)),
        extension: None,
    };
    let report = zonda_zoned::ZoneReport { matching_zones: 1, zones: vec![zone] };
    let format = zonda_nvme::zns::ReportFormat { extension_bytes: None, partial: true };
    well(&format.write(&report, 128).unwrap())
}

#[test]
fn long_write_zeroes_report_the_zone_and_are_split() {
    let namespace = namespace();
    let of = |start, blocks| Operation::WriteZeroes { start: Lba(start), blocks: Blocks(blocks) };
    let (wires, status) = run(&namespace, &of(18, 4), |_| well(&[]));
    assert_eq!((wires.len(), status), (1, Status::Success), "one command needs no report");
    let answer = |state, pointer| {
        move |(entry, _): &Wire| {
            if entry.opcode == IoOpcode::ZoneManagementReceive.code() { zone(state, pointer) } else { well(&[]) }
        }
    };
    let (wires, status) = run(&namespace, &of(18, 10), answer(ZoneState::ImplicitlyOpened, 18));
    assert_eq!(status, Status::Success);
    let pieces: Vec<_> = wires[1..].iter().map(|(entry, _)| (entry.starting_lba(), entry.cdw12.get() + 1)).collect();
    assert_eq!(pieces, [(18, 4), (22, 4), (26, 2)]);
    for (state, pointer, blocks, expected) in [
        (ZoneState::Full, 0, 10, Status::ZoneIsFull),
        (ZoneState::ReadOnly, 0, 10, Status::ZoneIsReadOnly),
        (ZoneState::Closed, 19, 11, Status::ZoneInvalidWrite),
        (ZoneState::Closed, 17, 11, Status::ZoneInvalidWrite),
        (ZoneState::Closed, 18, 11, Status::ZoneBoundaryError),
    ] {
        let (wires, status) = run(&namespace, &of(18, blocks), answer(state, pointer));
        assert_eq!((wires.len(), status), (1, expected));
    }
}

#[test]
fn zeros_are_written_if_the_controller_does_not_support_write_zeroes() {
    let namespace = Namespace { write_zeroes_blocks: None, ..namespace() };
    let operation = Operation::WriteZeroes { start: Lba(16), blocks: Blocks(3) };
    let (wires, status) = run(&namespace, &operation, |_| well(&[]));
    assert_eq!((wires.len(), wires[0].0.opcode, status), (1, IoOpcode::Write.code(), Status::Success));
    assert!(matches!(wires[0].1, CommandData::FromHost(HostData::Zeros(bytes)) if bytes == 3 * 520));
}

#[test]
fn an_invalid_response_is_not_a_success() {
    let namespace = namespace();
    let read = Operation::Read { start: Lba(0), blocks: Blocks(1) };
    assert_eq!(run(&namespace, &read, |_| well(&[0; 519])).1, Status::DataTransferError);
    assert_eq!(run(&namespace, &read, |_| Ended { is_damaged: true, ..well(&[0; 520]) }).1, Status::DataTransferError);
    assert_eq!(run(&namespace, &read, |_| well(&[0; 520])).1, Status::Success);
    let append = Operation::Append { zone_start: Lba(16), blocks: Blocks(2), payload: Payload::None };
    for (at, status) in [
        (16, Status::Success),
        (26, Status::Success),
        (27, Status::InternalError),
        (15, Status::InternalError),
        (u64::MAX, Status::InternalError),
    ] {
        assert_eq!(run(&namespace, &append, |_| Ended { result: at, ..well(&[]) }).1, status, "{at}");
    }
}
