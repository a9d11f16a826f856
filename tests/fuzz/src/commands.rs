//! The decoders of commands: any 64 bytes decode to a request within its limits or a status, and a
//! request survives encoding.
//!
//! ```text
//! 0 format of the namespace   1..65 submission queue entry   65.. data
//! ```

use bytes::Bytes;
use zonda_nvme::fabrics::{
    AuthenticationCommand, Capabilities, Configuration, ConnectCommand, ConnectData, ConnectResult, Property,
    PropertyCommand,
};
use zonda_nvme::features::{
    Arbitration, AsyncEvent, AsyncEventConfiguration, ErrorRecovery, Feature, FeatureRequest, HostBehavior,
    PowerManagement, QueueCounts, Select, TemperatureThreshold, command_set_combination, keep_alive_timeout,
};
use zonda_nvme::identify::{CommandSet, IdentifyRequest, Structure};
use zonda_nvme::io::{self, IoRequest, NamespaceFormat, Transfer};
use zonda_nvme::log::{GetLogPage, LogPage};
use zonda_nvme::page::Page;
use zonda_nvme::tcp::{Digests, Pdu, PduReader, PduWriter, ReaderLimits, Side};
use zonda_nvme::{AdminOpcode, CompletionEntry, FabricsType, HostId, IoOpcode, Nqn, StatusCode, SubmissionEntry};
use zonda_zoned::{Blocks, Lba, LbaRange, NamespaceId, Operation, Payload, ReportFilter, ZoneAction, ZoneTarget};

use crate::feed::Feed;
use crate::{Seed, shapes};

const TRANSFER_BYTES_MAX: u32 = 1 << 16;
const ENTRY_BYTES: usize = size_of::<SubmissionEntry>();

pub(crate) fn run(input: &[u8]) {
    let mut feed = Feed::new(input);
    let geometry = &shapes::all()[feed.below(4)];
    let format = NamespaceFormat::of(geometry, TRANSFER_BYTES_MAX);
    let entry = entry_of(feed.array());
    let data = Bytes::copy_from_slice(feed.rest());

    let _ = entry.data_place();
    if let Ok(request) = io::decode(&entry, &format) {
        check_io(request, &data, &format);
    }
    check_admin(&entry, &data);
    check_fabrics(&entry, &data);
    check_values(entry.starting_lba(), entry.cdw12.get(), entry.cdw10.get() as u8);
}

/// The entry of these bytes, as read from a capsule.
fn entry_of(bytes: [u8; ENTRY_BYTES]) -> SubmissionEntry {
    let mut capsule = vec![4, 0, 72, 0, 72, 0, 0, 0];
    capsule.extend_from_slice(&bytes);
    let mut reader = PduReader::new(Side::Controller, ReaderLimits::default());
    reader.set_digests(Digests::NONE);
    reader.push(capsule.into());
    match reader.next() {
        Ok(Some(Pdu::Command { entry, .. })) => entry,
        other => panic!("a capsule without data is read as such: {other:?}"),
    }
}

fn check_io(request: IoRequest, data: &Bytes, format: &NamespaceFormat) {
    let transfer = request.transfer(format);
    // The limits do not count metadata.
    let most = TRANSFER_BYTES_MAX + TRANSFER_BYTES_MAX / format.block_size_bytes * u32::from(format.metadata_bytes);
    if let Transfer::FromHost(bytes) | Transfer::ToHost(bytes) = transfer {
        assert!(bytes > 0 && bytes <= most, "{request:?} moves {bytes} bytes");
    }
    let _ = (request.takes_longer_data(), request.force_unit_access());
    let _ = request.into_operation(data.clone(), format);
    let mut whole = data.to_vec();
    if let Transfer::FromHost(bytes) = transfer {
        whole.resize(bytes as usize, 0);
    }
    let Ok(Some(operation)) = request.into_operation(whole.into(), format) else { return };
    let encoded = io::encode(&operation, NamespaceId::FIRST, format)
        .expect("an operation of one command is encoded as one command");
    let again = io::decode(&encoded.entry, format).expect("an encoded command can be decoded");
    assert_eq!(again.transfer(format), encoded.transfer);
    let data = match &operation {
        Operation::Write { payload: Payload::Bytes(buffer), .. }
        | Operation::Append { payload: Payload::Bytes(buffer), .. } => io::interleave(buffer, format),
        Operation::Deallocate { ranges } => io::encode_ranges(ranges).into(),
        Operation::ManageZones { action: ZoneAction::SetDescriptorExtension { extension, .. }, .. } => {
            Bytes::copy_from_slice(extension)
        }
        _ => Bytes::new(),
    };
    assert_eq!(again.into_operation(data, format), Ok(Some(operation)), "an operation survives encoding");
}

fn check_admin(entry: &SubmissionEntry, data: &Bytes) {
    let _ = (AdminOpcode::try_from(entry.opcode), IoOpcode::try_from(entry.opcode));
    let identify = IdentifyRequest::decode(entry.cdw10.get(), entry.cdw11.get(), entry.cdw14.get());
    let (a, b, c) = identify.encode();
    assert_eq!(IdentifyRequest::decode(a, b, c), identify);
    let _ = (Structure::try_from(identify.structure), CommandSet::try_from(identify.command_set));

    let words = [&entry.cdw10, &entry.cdw11, &entry.cdw12, &entry.cdw13, &entry.cdw14].map(|word| word.get());
    let log = GetLogPage::decode(words);
    assert_eq!(GetLogPage::decode(log.encode()), log);
    let _ = LogPage::try_from(log.page);
    if let Some(window) = log.window(data) {
        assert!(window.len() as u64 <= log.length_bytes && window.len() as u64 + log.offset <= data.len() as u64);
    }

    let feature = FeatureRequest::decode(entry.cdw10.get());
    assert_eq!(FeatureRequest::decode(feature.encode()), feature);
    let _ = (Feature::try_from(feature.feature), Select::try_from(feature.select));
    let _ = HostBehavior::parse(data);
}

fn check_fabrics(entry: &SubmissionEntry, data: &Bytes) {
    let _ = FabricsType::try_from(entry.namespace.get() as u8);
    assert_eq!(SubmissionEntry::from(ConnectCommand::from(*entry)), *entry);
    assert_eq!(SubmissionEntry::from(PropertyCommand::from(*entry)), *entry);
    assert_eq!(SubmissionEntry::from(AuthenticationCommand::from(*entry)), *entry);
    let _ = AuthenticationCommand::from(*entry).is_nvme_authentication();
    if let Some(property) = Property::at(PropertyCommand::from(*entry).offset.get()) {
        assert_eq!(Property::at(property.offset()), Some(property));
    }
    if let Some(connect) = ConnectData::read(data) {
        for field in [&connect.subsystem_nqn, &connect.host_nqn] {
            if let Ok(name) = Nqn::from_field(field) {
                assert_eq!(Nqn::from_field(&name.to_field()), Ok(name));
            }
        }
    }
}

/// Values with bit fields.
fn check_values(long: u64, word: u32, byte: u8) {
    let _ = format!("{:?} {}", StatusCode(word as u16), StatusCode(word as u16));
    let entry = CompletionEntry::new(word as u16, byte.into(), StatusCode::from_status_field(word as u16), long);
    let status = entry.status_code();
    assert_eq!(StatusCode::from_status_field(status.status_field()), status);
    let _ = (status.to_device_status(), entry.do_not_retry());
    let _ = ConnectResult::of_success(long);
    let capabilities = Capabilities::from_value(long);
    assert_eq!(Capabilities::from_value(capabilities.value()), capabilities);
    let _ = format!("{:?}", Configuration(word));
    let event = AsyncEvent::decode(long);
    assert_eq!(AsyncEvent::decode(event.encode()), event);
    let _ = AsyncEventConfiguration(word).wants_warning(byte);
    assert_eq!(Arbitration::decode(Arbitration::decode(word).encode()), Arbitration::decode(word));
    assert_eq!(PowerManagement::decode(PowerManagement::decode(word).encode()), PowerManagement::decode(word));
    let threshold = TemperatureThreshold::decode(word);
    assert_eq!(TemperatureThreshold::decode(threshold.encode()), threshold);
    assert_eq!(ErrorRecovery::decode(ErrorRecovery::decode(word).encode()), ErrorRecovery::decode(word));
    assert_eq!(QueueCounts::decode(word).encode(), word);
    let _ = (keep_alive_timeout(word), command_set_combination(word));
}

pub(crate) fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add = |name: String, place: usize, entry: &SubmissionEntry, data: &[u8]| {
        let mut writer = PduWriter::new();
        writer.command(entry, &Bytes::new());
        let capsule = writer.take().concat();
        seeds.push((name, [&[place as u8], &capsule[8..], data].concat()));
    };
    for (place, geometry) in shapes::all().iter().enumerate() {
        let format = NamespaceFormat::of(geometry, TRANSFER_BYTES_MAX);
        for (index, operation) in operations(geometry.descriptor_extension_bytes).into_iter().enumerate() {
            let Ok(encoded) = io::encode(&operation, NamespaceId::FIRST, &format) else { continue };
            let data = match &operation {
                Operation::Deallocate { ranges } => io::encode_ranges(ranges),
                _ => vec![7; 64],
            };
            add(format!("{}-{index}-{place}", operation.name().replace(' ', "-")), place, &encoded.entry, &data);
        }
    }
    let connect = ConnectCommand::new(1, 32, 4, 5000);
    let data = ConnectData::new(HostId([1; 16]), 1, &Nqn::discovery(), &Nqn::discovery());
    add("connect".to_owned(), 0, &connect.into(), &data.bytes()[..700]);
    add("property-set".to_owned(), 0, &PropertyCommand::set(Property::Configuration, 0x46_0001).into(), &[]);
    add("authentication".to_owned(), 0, &AuthenticationCommand::new(FabricsType::AuthenticationSend, 80).into(), &[]);
    let mut identify = SubmissionEntry::new(AdminOpcode::Identify.code(), 1);
    identify.cdw10 = IdentifyRequest::of(Structure::CommandSetNamespace, CommandSet::Zoned).encode().0.into();
    add("identify".to_owned(), 0, &identify, &[]);
    let mut log = SubmissionEntry::new(AdminOpcode::GetLogPage.code(), 1);
    log.cdw10 = GetLogPage::of(LogPage::Smart, 512).encode()[0].into();
    add("log".to_owned(), 0, &log, &[3; 600]);
    seeds
}

fn operations(extension_bytes: u32) -> Vec<Operation> {
    let (start, blocks) = (Lba(64), Blocks(2));
    let target = ZoneTarget::Zone(start);
    let extension = vec![9; extension_bytes as usize].into_boxed_slice();
    let manage = |action| Operation::ManageZones { action, target };
    let filter = ReportFilter::All;
    vec![
        Operation::Read { start, blocks },
        Operation::Write { start, blocks, payload: Payload::None },
        Operation::Append { zone_start: start, blocks, payload: Payload::None },
        Operation::WriteZeroes { start, blocks },
        Operation::Flush,
        Operation::Deallocate { ranges: [LbaRange { start, blocks }; 3].into() },
        manage(ZoneAction::Open { zrwa: true }),
        manage(ZoneAction::SetDescriptorExtension { extension, zrwa: false }),
        Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::All },
        Operation::ReportZones { start, filter, extended: false, partial: true, descriptors_max: 8 },
        Operation::ReportZones { start, filter, extended: true, partial: false, descriptors_max: 3 },
    ]
}
