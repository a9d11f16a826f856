//! The PDU reader of both sides: a stream gives the same PDUs whole and in pieces, and a PDU that
//! is read and written again is equivalent.
//!
//! ```text
//! 0 options   1 how the stream is split   2.. stream
//! options: 0 header digests, 1 data digests, 2 ICReq and ICResp are complete, 3 digests are corrected, 4..6 limits
//! ```

use bytes::Bytes;
use zonda_nvme::fabrics::{ConnectCommand, ConnectData};
use zonda_nvme::tcp::{
    Digests, FatalStatus, InitializeRequest, InitializeResponse, Pdu, PduError, PduReader, PduWriter, ReaderLimits,
    Side, crc32c,
};
use zonda_nvme::{CompletionEntry, HostId, IoOpcode, Nqn, SglDescriptor, StatusCode, SubmissionEntry};
use zonda_zoned::Prng;

use crate::Seed;
use crate::feed::Feed;

const INITIALIZED: u8 = 4;
const REPAIRED: u8 = 8;
/// The first PDU type that has digests, CapsuleCmd.
const TYPE_WITH_DIGESTS: u8 = 4;
/// Bytes before the data of a PDU, whose offset is one byte, and those of a data digest.
const HEAD_AND_TAIL_BYTES: usize = 256 + 4;

/// How a stream is read.
#[derive(Clone, Copy)]
struct Setting {
    side: Side,
    digests: Digests,
    limits: ReaderLimits,
    initialized: bool,
}

/// The result of a stream: PDUs, and the error, if any.
type Outcome = (Vec<Pdu>, Option<PduError>);

pub(crate) fn run_controller(input: &[u8]) {
    run(Side::Controller, input);
}

pub(crate) fn run_host(input: &[u8]) {
    run(Side::Host, input);
}

fn run(side: Side, input: &[u8]) {
    let mut feed = Feed::new(input);
    let (options, split) = (feed.u8(), feed.u8());
    let digests = Digests::from_code(options & 3);
    let (capsule_data_bytes, data_bytes) =
        [(8192, 1 << 20), (0, 4096), (64, 16), (1 << 16, 4)][usize::from(options >> 4 & 3)];
    let limits = ReaderLimits { capsule_data_bytes, data_bytes };
    let setting = Setting { side, digests, limits, initialized: options & INITIALIZED != 0 };
    let mut stream = feed.rest().to_vec();
    if options & REPAIRED != 0 {
        repair(&mut stream, digests);
    }
    let stream = Bytes::from(stream);

    let (pdus, error) = read(setting, std::iter::once(stream.clone()));
    let (pieces, other_error) = read(setting, split_up(&stream, split));
    assert_eq!(pdus, pieces, "the same PDUs, however the stream is split");
    // The copy of the header is as long as its received part.
    let fault = |error: &PduError| (error.status, error.information);
    assert_eq!(
        error.as_ref().map(fault),
        other_error.as_ref().map(fault),
        "the same fault, however the stream is split"
    );
    for pdu in &pdus {
        check_rewritten(setting, pdu);
    }
    if let Some(error) = error {
        check_termination(setting, &error);
    }
}

/// Reads the whole stream, and checks invariants.
fn read(setting: Setting, chunks: impl Iterator<Item = Bytes>) -> Outcome {
    let mut reader = PduReader::new(setting.side, setting.limits);
    if setting.initialized {
        reader.set_digests(setting.digests);
    }
    let data_bytes_max = setting.limits.capsule_data_bytes.max(setting.limits.data_bytes).max(128) as usize;
    let mut pdus = Vec::new();
    for chunk in chunks {
        let length = chunk.len();
        reader.push(chunk);
        loop {
            match reader.next() {
                Ok(Some(pdu)) => {
                    if matches!(pdu, Pdu::InitializeRequest(_) | Pdu::InitializeResponse(_)) {
                        reader.set_digests(setting.digests);
                    }
                    pdus.push(pdu);
                }
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(reader.next(), Err(error.clone()), "an error is final");
                    assert_eq!(reader.buffered_bytes(), 0, "nothing is buffered after an error");
                    return (pdus, Some(error));
                }
            }
        }
        let buffered = reader.buffered_bytes();
        assert!(buffered <= data_bytes_max + HEAD_AND_TAIL_BYTES + length, "{buffered} bytes are buffered");
    }
    (pdus, None)
}

fn split_up(stream: &Bytes, how: u8) -> impl Iterator<Item = Bytes> {
    let mut prng = Prng::new(how.into());
    let longest = [1, 3, 24, 200][usize::from(how & 3)];
    let mut rest = stream.clone();
    std::iter::from_fn(move || {
        let length = rest.len().min(1 + prng.below(longest) as usize);
        (!rest.is_empty()).then(|| rest.split_to(length))
    })
}

/// Corrects the digests of every PDU, as far as the PDUs can be delimited.
fn repair(stream: &mut [u8], digests: Digests) {
    let mut rest = stream;
    while let [pdu_type, _, header, offset, a, b, c, d, ..] = *rest {
        let (header, offset) = (usize::from(header), usize::from(offset));
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length < 8 || length > rest.len() {
            return;
        }
        let (pdu, behind) = rest.split_at_mut(length);
        if pdu_type >= TYPE_WITH_DIGESTS {
            if digests.data && length >= offset + 4 && offset > 0 {
                let digest = crc32c(&pdu[offset..length - 4]);
                pdu[length - 4..].copy_from_slice(&digest.to_le_bytes());
            }
            if digests.header && length >= header + 4 {
                let digest = crc32c(&pdu[..header]);
                pdu[header..header + 4].copy_from_slice(&digest.to_le_bytes());
            }
        }
        rest = behind;
    }
}

/// The part of a PDU that must survive writing: everything except padding and flags of this
/// connection.
fn meaning(pdu: &Pdu) -> String {
    match pdu {
        Pdu::Command { entry, data, .. } => format!("command {entry:?} {data:?}"),
        Pdu::HostData { header, data, .. } | Pdu::ControllerData { header, data, .. } => format!(
            "data {:?} {:?} {:?} {:?} {} {} {data:?}",
            header.common.pdu_type,
            header.command_id,
            header.offset,
            header.length,
            header.is_last(),
            matches!(pdu, Pdu::ControllerData { .. }) && header.is_success() && header.is_last(),
        ),
        Pdu::Response(entry) => format!("response {entry:?}"),
        Pdu::ReadyToTransfer(r2t) => {
            format!("R2T {:?} {:?} {:?} {:?}", r2t.command_id, r2t.tag, r2t.offset, r2t.length)
        }
        other => format!("{other:?}"),
    }
}

fn check_rewritten(setting: Setting, pdu: &Pdu) {
    let mut writer = PduWriter::new();
    let is_first = matches!(pdu, Pdu::InitializeRequest(_) | Pdu::InitializeResponse(_));
    if !is_first {
        writer.set_options(setting.digests, 3);
    }
    match pdu {
        Pdu::InitializeRequest(request) => writer.initialize_request(request),
        Pdu::InitializeResponse(response) => writer.initialize_response(response),
        Pdu::Command { entry, data, .. } => writer.command(entry, data),
        Pdu::Response(entry) => writer.response(entry),
        Pdu::HostData { header, data, .. } => {
            let (command, tag, offset) = (header.command_id.get(), header.tag.get(), header.offset.get());
            writer.host_data(command, tag, offset, std::slice::from_ref(data), header.is_last());
        }
        Pdu::ControllerData { header, data, .. } => {
            let success = header.is_last() && header.is_success();
            let (command, offset) = (header.command_id.get(), header.offset.get());
            writer.controller_data(command, offset, std::slice::from_ref(data), header.is_last(), success);
        }
        Pdu::ReadyToTransfer(r2t) => {
            writer.ready_to_transfer(r2t.command_id.get(), r2t.tag.get(), r2t.offset.get(), r2t.length.get());
        }
        Pdu::HostTermination(_) | Pdu::ControllerTermination(_) => return,
    }
    let setting = Setting { initialized: !is_first, ..setting };
    let (pdus, error) = read(setting, writer.take().into_iter());
    assert_eq!((pdus.len(), &error), (1, &None), "a written PDU can be read");
    assert_eq!(meaning(&pdus[0]), meaning(pdu), "a PDU survives writing");
}

/// Checks that the peer can read the TermReq of an error, with the same contents.
fn check_termination(setting: Setting, error: &PduError) {
    let mut writer = PduWriter::new();
    let side = match setting.side {
        Side::Controller => {
            writer.controller_termination(error);
            Side::Host
        }
        Side::Host => {
            writer.host_termination(error);
            Side::Controller
        }
    };
    let (pdus, fault) = read(Setting { side, ..setting }, writer.take().into_iter());
    let [Pdu::HostTermination(found) | Pdu::ControllerTermination(found)] = &pdus[..] else {
        panic!("expected a TermReq, not {pdus:?} and {fault:?}")
    };
    assert_eq!(FatalStatus::from_code(found.status), Some(error.status));
    assert_eq!((found.information, &found.header[..]), (error.information, &error.header[..]));
}

pub(crate) fn seeds_controller() -> Vec<Seed> {
    seeds(|writer| {
        let host = Nqn::new("nqn.2014-08.org.nvmexpress:uuid:1").expect("valid NQN");
        let data = ConnectData::new(HostId([7; 16]), 0xffff, &Nqn::discovery(), &host);
        writer.command(&ConnectCommand::new(0, 32, 4, 5000).into(), &Bytes::copy_from_slice(data.bytes()));
        let mut write = SubmissionEntry::new(IoOpcode::Write.code(), 1);
        write.data_pointer = SglDescriptor::in_capsule(0, 512);
        writer.command(&write, &vec![0x5a; 512].into());
        writer.command(&SubmissionEntry::new(IoOpcode::Read.code(), 1), &Bytes::new());
        writer.host_data(3, 1, 0, &[vec![1; 100].into()], false);
        writer.host_data(3, 1, 100, &[vec![2; 412].into()], true);
        let error = PduError::new(FatalStatus::SequenceError, 0, &[5; 24]);
        writer.host_termination(&error);
    })
}

pub(crate) fn seeds_host() -> Vec<Seed> {
    seeds(|writer| {
        writer.response(&CompletionEntry::new(1, 2, StatusCode::INVALID_FIELD, 77));
        writer.controller_data(4, 0, &[vec![1; 512].into()], false, false);
        writer.controller_data(4, 512, &[vec![2; 64].into()], true, true);
        writer.ready_to_transfer(5, 9, 0, 4096);
        let error = PduError::new(FatalStatus::HeaderDigestError, 0xdead_beef, &[4; 72]);
        writer.controller_termination(&error);
    })
}

/// A stream with every kind of PDU of a side, with each choice of digests, with and without ICReq
/// and ICResp before it.
fn seeds(write: impl Fn(&mut PduWriter)) -> Vec<Seed> {
    let mut seeds = Vec::new();
    for code in 0..4u8 {
        let digests = Digests::from_code(code);
        for (alignment, options) in [(0, INITIALIZED), (31, INITIALIZED | REPAIRED)] {
            let mut writer = PduWriter::new();
            writer.set_options(digests, alignment);
            write(&mut writer);
            let input = [vec![code | options, 17 + code], writer.take().concat()].concat();
            seeds.push((format!("digests-{code}-alignment-{alignment}"), input));
        }
    }
    let mut writer = PduWriter::new();
    writer.initialize_request(&InitializeRequest::new(0, Digests::BOTH, 16));
    seeds.push(("ic-request".to_owned(), [vec![0, 3], writer.take().concat()].concat()));
    writer.initialize_response(&InitializeResponse::new(0, Digests::BOTH, 1 << 17));
    write(&mut writer);
    seeds.push(("ic-response".to_owned(), [vec![0, 1], writer.take().concat()].concat()));
    writer.initialize_request(&InitializeRequest::new(0, Digests::NONE, 1));
    write(&mut writer);
    seeds.push(("ic-request-and-more".to_owned(), [vec![0x10, 2], writer.take().concat()].concat()));
    seeds
}
