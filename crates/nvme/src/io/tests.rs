//! Operations survive encoding and decoding, and invalid commands are refused.

use bytes::Bytes;
use zonda_zoned::reference::{CommandSource, ReferenceDevice};
use zonda_zoned::{Blocks, Geometry, Lba, LbaRange, NamespaceId, Operation, Payload, PayloadKind, Prng, ZoneAction};

use super::*;
use crate::{IoOpcode, SubmissionEntry};

const TRANSFER_BYTES: u32 = 1 << 20;

fn format() -> NamespaceFormat {
    NamespaceFormat::of(&Geometry::tiny(), TRANSFER_BYTES)
}

/// The bytes that travel with an operation.
fn data_of(operation: &Operation, format: &NamespaceFormat) -> Bytes {
    match operation {
        Operation::Write { payload: Payload::Bytes(buffer), .. }
        | Operation::Append { payload: Payload::Bytes(buffer), .. }
            if buffer.metadata.len() * 512 == buffer.data.len() * 8 =>
        {
            interleave(buffer, format)
        }
        Operation::Deallocate { ranges } => encode_ranges(ranges).into(),
        Operation::ManageZones { action: ZoneAction::SetDescriptorExtension { extension, .. }, .. } => {
            Bytes::copy_from_slice(extension)
        }
        _ => Bytes::new(),
    }
}

#[test]
fn every_encodable_operation_decodes_to_itself() {
    let geometry = Geometry::tiny();
    let format = format();
    let mut device = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
    let mut source = CommandSource::new(&geometry, PayloadKind::Bytes, Prng::new(11));
    let mut compared = 0;
    for _ in 0..20_000 {
        let command = source.next(&device);
        let _ = device.execute(&command);
        let Ok(encoded) = encode(&command.operation, command.namespace, &format) else { continue };
        let Ok(request) = decode(&encoded.entry, &format) else { continue };
        assert_eq!(request.transfer(&format), encoded.transfer, "{:?}", command.operation);
        let data = data_of(&command.operation, &format);
        let Transfer::FromHost(bytes) = encoded.transfer else {
            assert_eq!(request.into_operation(data, &format), Ok(Some(command.operation)));
            compared += 1;
            continue;
        };
        // A payload of another size than that of the command, or none, cannot be encoded.
        if data.len() != bytes as usize {
            continue;
        }
        if let Ok(Some(operation)) = request.into_operation(data, &format)
            && !matches!(operation, Operation::Deallocate { .. })
        {
            assert_eq!(operation, command.operation);
            compared += 1;
        }
    }
    assert!(compared > 5_000, "{compared} operations compared");
}

#[test]
fn more_blocks_than_one_command_may_move_are_an_invalid_field() {
    let format = format();
    let mut entry = SubmissionEntry::new(IoOpcode::Read.code(), 1);
    entry.cdw12 = 7.into();
    assert!(decode(&entry, &format).is_ok());
    entry.cdw12 = 8.into();
    assert_eq!(decode(&entry, &format), Err(StatusCode::INVALID_FIELD));
    entry.opcode = IoOpcode::ZoneAppend.code();
    entry.cdw12 = 4.into();
    assert_eq!(decode(&entry, &format), Err(StatusCode::INVALID_FIELD));
}

#[test]
fn a_namespace_without_zones_supports_no_zone_commands() {
    let format = NamespaceFormat { zoned: false, ..format() };
    for opcode in [IoOpcode::ZoneAppend, IoOpcode::ZoneManagementSend, IoOpcode::ZoneManagementReceive] {
        let entry = SubmissionEntry::new(opcode.code(), 1);
        assert_eq!(decode(&entry, &format), Err(StatusCode::INVALID_OPCODE));
    }
}

#[test]
fn a_report_into_less_than_its_header_or_more_than_a_transfer_is_refused() {
    let format = format();
    let mut entry = SubmissionEntry::new(IoOpcode::ZoneManagementReceive.code(), 1);
    for (dwords, fits) in [(15, false), (16, true), (TRANSFER_BYTES / 4, true), (TRANSFER_BYTES / 4 + 1, false)] {
        entry.cdw12 = (dwords - 1u32).into();
        assert_eq!(decode(&entry, &format).is_ok(), fits, "{dwords} dwords");
    }
    entry.cdw12 = u32::MAX.into();
    assert_eq!(decode(&entry, &format), Err(StatusCode::INVALID_FIELD));
}

#[test]
fn unknown_actions_and_filters_and_directives_are_invalid_fields() {
    let format = format();
    let mut send = SubmissionEntry::new(IoOpcode::ZoneManagementSend.code(), 1);
    send.cdw13 = 0x06.into();
    assert_eq!(decode(&send, &format), Err(StatusCode::INVALID_FIELD));
    let mut receive = SubmissionEntry::new(IoOpcode::ZoneManagementReceive.code(), 1);
    receive.cdw12 = 1023.into();
    receive.cdw13 = 0x0800.into();
    assert_eq!(decode(&receive, &format), Err(StatusCode::INVALID_FIELD));
    let mut write = SubmissionEntry::new(IoOpcode::Write.code(), 1);
    write.cdw12 = (1 << 20).into();
    assert_eq!(decode(&write, &format), Err(StatusCode::INVALID_FIELD));
}

#[test]
fn the_linux_discard_of_one_range_in_a_page_is_one_range() {
    let format = format();
    let mut entry = SubmissionEntry::new(IoOpcode::DatasetManagement.code(), 1);
    entry.cdw11 = 4.into();
    let request = decode(&entry, &format).unwrap();
    assert!(request.takes_longer_data());
    let range = LbaRange { start: Lba(3), blocks: Blocks(5) };
    let mut page = encode_ranges(&[range]);
    page.resize(4096, 0);
    assert_eq!(
        request.into_operation(page.into(), &format),
        Ok(Some(Operation::Deallocate { ranges: [range].into() }))
    );
    let short = request.into_operation(Bytes::from_static(&[0; 15]), &format);
    assert_eq!(short, Err(StatusCode::DATA_SGL_LENGTH_INVALID));
}

#[test]
fn a_hint_without_deallocation_is_no_operation() {
    let format = format();
    let entry = SubmissionEntry::new(IoOpcode::DatasetManagement.code(), 1);
    let request = decode(&entry, &format).unwrap();
    assert_eq!(request.into_operation(vec![0; 16].into(), &format), Ok(None));
}

#[test]
fn metadata_is_transferred_after_each_block() {
    let format = format();
    let bytes: Bytes = (0..2 * 520u32).map(|i| i as u8).collect::<Vec<u8>>().into();
    let buffer = split_interleaved(bytes.clone(), &format);
    assert_eq!((buffer.data.len(), buffer.metadata.len()), (1024, 16));
    assert_eq!(buffer.metadata[..8], bytes[512..520]);
    assert_eq!(interleave(&buffer, &format), bytes);
}

#[test]
fn operations_without_a_command_have_a_reason() {
    let format = format();
    let error = |operation| encode(&operation, NamespaceId::FIRST, &format).unwrap_err();
    assert_eq!(error(Operation::ReadChangedZones), EncodeError::NotAnIoCommand);
    assert_eq!(error(Operation::Read { start: Lba(0), blocks: Blocks(0) }), EncodeError::Count);
    assert_eq!(error(Operation::WriteZeroes { start: Lba(0), blocks: Blocks(65_537) }), EncodeError::Count);
    assert_eq!(error(Operation::Deallocate { ranges: [].into() }), EncodeError::Count);
}
