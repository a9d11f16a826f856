//! The reader against the writer, with every split of a stream, and with random bytes.

use bytes::Bytes;
use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::{CompletionEntry, StatusCode, SubmissionEntry};

const LIMITS: ReaderLimits = ReaderLimits { capsule_data_bytes: 8192, data_bytes: 20_000 };

/// A PDU that the other side sends after ICReq and ICResp.
#[derive(Clone, Debug)]
enum Sent {
    Command(u16, Bytes),
    Response(u16),
    Data { id: u16, offset: u32, data: Bytes, last: bool },
    R2t(u16, u32, u32),
    Termination(Vec<u8>),
}

fn data(range: std::ops::Range<usize>) -> impl Strategy<Value = Bytes> {
    (range, any::<u8>()).prop_map(|(length, seed)| {
        Bytes::from((0..length).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect::<Vec<u8>>())
    })
}

fn sent(to: Side) -> BoxedStrategy<Sent> {
    let payload = (any::<u16>(), any::<u32>(), data(1..20_000), any::<bool>())
        .prop_map(|(id, offset, data, last)| Sent::Data { id, offset, data, last });
    match to {
        Side::Controller => prop_oneof![
            (any::<u16>(), data(0..8193)).prop_map(|(id, data)| Sent::Command(id, data)),
            any::<u16>().prop_map(|id| Sent::Command(id, Bytes::new())),
            payload,
            proptest::collection::vec(any::<u8>(), 0..128).prop_map(Sent::Termination),
        ]
        .boxed(),
        Side::Host => prop_oneof![
            any::<u16>().prop_map(Sent::Response),
            payload,
            (any::<u16>(), any::<u32>(), any::<u32>()).prop_map(|(id, offset, length)| Sent::R2t(id, offset, length)),
            proptest::collection::vec(any::<u8>(), 0..128).prop_map(Sent::Termination),
        ]
        .boxed(),
    }
}

fn write(to: Side, digests: Digests, alignment: u8, all: &[Sent]) -> Vec<u8> {
    let mut writer = PduWriter::new();
    writer.set_options(digests, alignment);
    for one in all {
        match one {
            Sent::Command(id, data) => {
                let entry = SubmissionEntry { command_id: (*id).into(), ..SubmissionEntry::new(1, 1) };
                writer.command(&entry, data);
            }
            Sent::Response(id) => {
                writer.response(&CompletionEntry::new(*id, 1, StatusCode::ZONE_IS_FULL, 77));
            }
            Sent::Data { id, offset, data, last } => match to {
                Side::Controller => writer.host_data(*id, 3, *offset, std::slice::from_ref(data), *last),
                Side::Host => {
                    let (first, second) = (data.slice(..data.len() / 2), data.slice(data.len() / 2..));
                    writer.controller_data(*id, *offset, &[first, second], *last, *last);
                }
            },
            Sent::R2t(id, offset, length) => writer.ready_to_transfer(*id, 9, *offset, *length),
            Sent::Termination(header) => {
                let error = PduError::new(FatalStatus::SequenceError, 5, header);
                match to {
                    Side::Controller => writer.host_termination(&error),
                    Side::Host => writer.controller_termination(&error),
                }
            }
        }
    }
    let waiting = writer.queued_bytes();
    let stream = writer.take().concat();
    assert_eq!(stream.len(), waiting);
    stream
}

fn assert_same(sent: &Sent, got: &Pdu, digests: Digests) {
    let expected = if digests.data { DigestCheck::Good } else { DigestCheck::Absent };
    match (sent, got) {
        (Sent::Command(id, data), Pdu::Command { entry, data: found, data_digest }) => {
            assert_eq!((entry.command_id.get(), found), (*id, data));
            assert_eq!(*data_digest, if data.is_empty() { DigestCheck::Absent } else { expected });
        }
        (Sent::Response(id), Pdu::Response(entry)) => {
            assert_eq!((entry.command_id.get(), entry.result.get()), (*id, 77));
        }
        (
            Sent::Data { id, offset, data, last },
            Pdu::HostData { header, data: found, data_digest }
            | Pdu::ControllerData { header, data: found, data_digest },
        ) => {
            assert_eq!((header.command_id.get(), header.offset.get(), header.is_last()), (*id, *offset, *last));
            assert_eq!((found, *data_digest), (data, expected));
        }
        (Sent::R2t(id, offset, length), Pdu::ReadyToTransfer(r2t)) => {
            assert_eq!((r2t.command_id.get(), r2t.offset.get(), r2t.length.get()), (*id, *offset, *length));
        }
        (Sent::Termination(header), Pdu::HostTermination(found) | Pdu::ControllerTermination(found)) => {
            assert_eq!((found.status, found.information, &found.header[..]), (2, 5, &header[..]));
        }
        (sent, got) => panic!("{sent:?} was read as {got:?}"),
    }
}

/// All PDUs of a stream, pushed in the pieces that `cuts` define.
fn read_cut(to: Side, digests: Digests, stream: &[u8], cuts: &[usize]) -> (Vec<Pdu>, Result<(), PduError>) {
    let mut reader = PduReader::new(to, LIMITS);
    reader.set_digests(digests);
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).chain([0, stream.len()]).collect();
    cuts.sort_unstable();
    let mut pdus = Vec::new();
    for pair in cuts.windows(2) {
        reader.push(Bytes::copy_from_slice(&stream[pair[0]..pair[1]]));
        loop {
            match reader.next() {
                Ok(Some(pdu)) => pdus.push(pdu),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(reader.next(), Err(error.clone()), "an error is final");
                    return (pdus, Err(error));
                }
            }
        }
        let limit = 256 + LIMITS.data_bytes.max(LIMITS.capsule_data_bytes) as usize + 4;
        assert!(reader.buffered_bytes() <= limit, "{} bytes buffered", reader.buffered_bytes());
    }
    (pdus, Ok(()))
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Controller), Just(Side::Host)]
}

fn digests() -> impl Strategy<Value = Digests> {
    (0..4u8).prop_map(Digests::from_code)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_split_of_a_stream_gives_the_same_pdus(
        (to, all) in side().prop_flat_map(|to| (Just(to), proptest::collection::vec(sent(to), 1..8))),
        digests in digests(),
        alignment in 0..=DATA_ALIGNMENT_MAX,
        cuts in proptest::collection::vec(any::<usize>(), 0..40),
    ) {
        let stream = write(to, digests, alignment, &all);
        let (pdus, end) = read_cut(to, digests, &stream, &cuts);
        prop_assert_eq!(end, Ok(()));
        prop_assert_eq!(pdus.len(), all.len());
        for (sent, got) in all.iter().zip(&pdus) {
            assert_same(sent, got, digests);
        }
    }

    #[test]
    fn random_bytes_cause_neither_a_panic_nor_unlimited_buffering(
        to in side(),
        digests in digests(),
        garbage in proptest::collection::vec(any::<u8>(), 0..2000),
        cuts in proptest::collection::vec(any::<usize>(), 0..20),
    ) {
        let _ = read_cut(to, digests, &garbage, &cuts);
    }

    #[test]
    fn a_changed_byte_causes_neither_a_panic_nor_unlimited_buffering(
        (to, all) in side().prop_flat_map(|to| (Just(to), proptest::collection::vec(sent(to), 1..4))),
        digests in digests(),
        place in any::<usize>(),
        value in any::<u8>(),
        cuts in proptest::collection::vec(any::<usize>(), 0..20),
    ) {
        let mut stream = write(to, digests, 0, &all);
        let place = place % stream.len();
        stream[place] = value;
        let _ = read_cut(to, digests, &stream, &cuts);
    }
}

fn reader(digests: Digests) -> PduReader {
    let mut reader = PduReader::new(Side::Controller, LIMITS);
    reader.set_digests(digests);
    reader
}

fn first_error(reader: &mut PduReader, bytes: &[u8]) -> PduError {
    reader.push(Bytes::copy_from_slice(bytes));
    loop {
        match reader.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("no error"),
            Err(error) => return error,
        }
    }
}

#[test]
fn a_length_of_a_gigabyte_is_an_error_as_soon_as_the_common_header_is_complete() {
    for (pdu_type, status) in
        [(PduType::Command, FatalStatus::InvalidHeaderField), (PduType::HostData, FatalStatus::DataLimitExceeded)]
    {
        let common = CommonHeader {
            pdu_type: pdu_type as u8,
            flags: 0,
            header_length: pdu_type.header_length(),
            data_offset: pdu_type.header_length(),
            pdu_length: (1 << 30).into(),
        };
        let error = first_error(&mut reader(Digests::NONE), common.as_bytes());
        assert_eq!((error.status, &error.header[..]), (status, common.as_bytes()));
    }
}

#[test]
fn a_command_before_the_exchange_and_an_exchange_after_it_are_sequence_errors() {
    let command = write(Side::Controller, Digests::NONE, 0, &[Sent::Command(1, Bytes::new())]);
    let mut fresh = PduReader::new(Side::Controller, LIMITS);
    assert_eq!(first_error(&mut fresh, &command[..8]).status, FatalStatus::SequenceError);
    let request = InitializeRequest::new(0, Digests::NONE, 1);
    assert_eq!(first_error(&mut reader(Digests::NONE), request.as_bytes()).status, FatalStatus::SequenceError);
}

#[test]
fn a_pdu_for_the_other_side_has_an_invalid_type() {
    let response = write(Side::Host, Digests::NONE, 0, &[Sent::Response(1)]);
    let error = first_error(&mut reader(Digests::NONE), &response);
    assert_eq!((error.status, error.information), (FatalStatus::InvalidHeaderField, 0));
}

#[test]
fn a_wrong_header_digest_ends_the_stream_and_names_the_digest() {
    let mut stream = write(Side::Controller, Digests::BOTH, 0, &[Sent::Command(1, Bytes::new())]);
    stream[72] ^= 1;
    let received = u32::from_le_bytes(stream[72..76].try_into().unwrap());
    let error = first_error(&mut reader(Digests::BOTH), &stream);
    assert_eq!((error.status, error.information), (FatalStatus::HeaderDigestError, received));
    assert_eq!(&error.header[..], &stream[..72]);
}

#[test]
fn a_wrong_data_digest_is_reported_with_the_command_and_the_stream_continues() {
    let all = [Sent::Command(1, Bytes::from_static(b"data")), Sent::Command(2, Bytes::from_static(b"more"))];
    let mut stream = write(Side::Controller, Digests::BOTH, 0, &all);
    stream[76] ^= 1;
    let (pdus, end) = read_cut(Side::Controller, Digests::BOTH, &stream, &[]);
    assert_eq!(end, Ok(()));
    let found: Vec<DigestCheck> = pdus
        .iter()
        .map(|pdu| match pdu {
            Pdu::Command { data_digest, .. } => *data_digest,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(found, [DigestCheck::Bad, DigestCheck::Good]);
}

#[test]
fn a_missing_digest_and_one_not_agreed_on_are_invalid_flags() {
    for (sent, read) in [(Digests::NONE, Digests::BOTH), (Digests::BOTH, Digests::NONE)] {
        let stream = write(Side::Controller, sent, 0, &[Sent::Command(1, Bytes::new())]);
        let error = first_error(&mut reader(read), &stream);
        assert_eq!((error.status, error.information), (FatalStatus::InvalidHeaderField, 1));
    }
}

#[test]
fn data_shorter_than_its_length_field_is_an_invalid_field() {
    let sent = Sent::Data { id: 1, offset: 0, data: Bytes::from_static(b"12345678"), last: true };
    let mut stream = write(Side::Controller, Digests::NONE, 0, &[sent]);
    stream[16] = 9;
    let error = first_error(&mut reader(Digests::NONE), &stream);
    assert_eq!((error.status, error.information), (FatalStatus::InvalidHeaderField, 16));
}

#[test]
fn data_within_one_chunk_is_a_slice_of_it() {
    let sent = Sent::Command(1, Bytes::from(vec![1; 4096]));
    let chunk = Bytes::from(write(Side::Controller, Digests::NONE, 0, &[sent.clone(), sent]));
    let mut reader = reader(Digests::NONE);
    reader.push(chunk.clone());
    for start in [72, 72 + 4096 + 72] {
        let Ok(Some(Pdu::Command { data, .. })) = reader.next() else { panic!("a command was sent") };
        assert_eq!(data.as_ptr(), chunk[start..].as_ptr());
    }
    assert_eq!(reader.buffered_bytes(), 0);
}
