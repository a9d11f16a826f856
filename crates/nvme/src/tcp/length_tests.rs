//! Lengths and offsets of PDUs: each is accepted at its limit and refused one step beyond it.

use bytes::Bytes;
use zerocopy::IntoBytes;

use super::*;
use crate::SubmissionEntry;

const LIMITS: ReaderLimits = ReaderLimits { capsule_data_bytes: 512, data_bytes: 1024 };

const ALL_DIGESTS: [Digests; 4] =
    [Digests::NONE, Digests { header: true, data: false }, Digests { header: false, data: true }, Digests::BOTH];

/// Byte offsets of header fields, as FEI reports them.
const DATA_OFFSET: usize = 3;
const PDU_LENGTH: usize = 4;
const DATA_LENGTH: usize = 16;

/// A PDU that carries data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataPduKind {
    Capsule,
    HostData,
    ControllerData,
}

impl DataPduKind {
    const ALL: [DataPduKind; 3] = [DataPduKind::Capsule, DataPduKind::HostData, DataPduKind::ControllerData];

    fn reader_side(self) -> Side {
        if self == DataPduKind::ControllerData { Side::Host } else { Side::Controller }
    }

    fn header_bytes(self) -> usize {
        if self == DataPduKind::Capsule { 72 } else { 24 }
    }

    fn data_bytes_max(self) -> u32 {
        if self == DataPduKind::Capsule { LIMITS.capsule_data_bytes } else { LIMITS.data_bytes }
    }

    /// The encoded PDU, with so many bytes of data.
    fn pdu(self, digests: Digests, alignment: u8, data_bytes: u32) -> Vec<u8> {
        let data = Bytes::from(vec![0xa5; data_bytes as usize]);
        let mut writer = PduWriter::new();
        writer.set_options(digests, alignment);
        match self {
            DataPduKind::Capsule => writer.command(&SubmissionEntry::new(1, 1), &data),
            DataPduKind::HostData => writer.host_data(1, 2, 0, &[data], true),
            DataPduKind::ControllerData => writer.controller_data(1, 0, &[data], true, false),
        }
        writer.take().concat()
    }

    /// Recomputes the header digest after a change to the header.
    fn reseal(self, digests: Digests, pdu: &mut [u8]) {
        if digests.header {
            let (header, rest) = pdu.split_at_mut(self.header_bytes());
            rest[..4].copy_from_slice(&crc32c(header).to_le_bytes());
        }
    }

    /// The result of a reader, which must not depend on the chunks: the length of the data.
    fn read(self, digests: Digests, pdu: &[u8]) -> Result<Option<usize>, PduError> {
        let results = [pdu.len(), 24, 1].map(|chunk_bytes| {
            let mut reader = PduReader::new(self.reader_side(), LIMITS);
            reader.set_digests(digests);
            for chunk in pdu.chunks(chunk_bytes) {
                reader.push(Bytes::copy_from_slice(chunk));
                match reader.next()? {
                    Some(
                        Pdu::Command { data, data_digest, .. }
                        | Pdu::HostData { data, data_digest, .. }
                        | Pdu::ControllerData { data, data_digest, .. },
                    ) => {
                        let expected = if digests.data { DigestCheck::Good } else { DigestCheck::Absent };
                        assert!(data.is_empty() || data_digest == expected, "{data_digest:?}");
                        return Ok(Some(data.len()));
                    }
                    Some(other) => panic!("{other:?}"),
                    None => {}
                }
            }
            Ok(None)
        });
        let outcome = |result: &Result<_, PduError>| result.clone().map_err(|error| (error.status, error.information));
        assert!(results.iter().all(|result| outcome(result) == outcome(&results[0])), "{results:?}");
        results[0].clone()
    }

    /// FES and FEI with which a PDU is refused.
    fn refusal(self, digests: Digests, pdu: &[u8]) -> (FatalStatus, usize) {
        match self.read(digests, pdu) {
            Err(error) => (error.status, error.information as usize),
            Ok(data) => panic!("{self:?} with {digests:?} is accepted, with {data:?} bytes of data"),
        }
    }
}

#[test]
fn the_data_length_of_a_data_pdu_is_that_of_the_data_it_carries() {
    const CARRIED: u32 = 1000;
    for kind in [DataPduKind::HostData, DataPduKind::ControllerData] {
        for digests in ALL_DIGESTS {
            for alignment in [0, 7, DATA_ALIGNMENT_MAX] {
                let with_length = |length: u32| {
                    let mut pdu = kind.pdu(digests, alignment, CARRIED);
                    pdu[DATA_LENGTH..DATA_LENGTH + 4].copy_from_slice(&length.to_le_bytes());
                    kind.reseal(digests, &mut pdu);
                    pdu
                };
                let pdu = with_length(CARRIED);
                assert_eq!(kind.read(digests, &pdu), Ok(Some(CARRIED as usize)));
                let (offset, whole) = (u32::from(pdu[DATA_OFFSET]), pdu.len() as u32);
                let wrong = [0, 1, CARRIED / 2, CARRIED - 4, CARRIED - 1, CARRIED + 1, CARRIED + 4, whole, u32::MAX];
                let nearly = [CARRIED | 1 << 16, CARRIED | 1 << 31, offset + CARRIED, LIMITS.data_bytes];
                for length in wrong.into_iter().chain(nearly) {
                    let refusal = kind.refusal(digests, &with_length(length));
                    assert_eq!(
                        refusal,
                        (FatalStatus::InvalidHeaderField, DATA_LENGTH),
                        "DATAL {length} where {CARRIED} bytes are carried, {kind:?}, {digests:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_data_of_a_pdu_are_the_bytes_between_its_data_offset_and_its_data_digest() {
    for kind in DataPduKind::ALL {
        for digests in ALL_DIGESTS {
            for alignment in 0..=DATA_ALIGNMENT_MAX {
                for data_bytes in [1, 2, 3, 4, 511, 512] {
                    let mut stream = kind.pdu(digests, alignment, data_bytes);
                    assert_eq!(stream.len() % 4, data_bytes as usize % 4, "the data begin at a multiple of four bytes");
                    let end = stream.len();
                    // A byte after the PDU belongs to the next one, and the reader waits for the
                    // last byte.
                    stream.push(0xff);
                    assert_eq!(kind.read(digests, &stream[..end - 1]), Ok(None));
                    assert_eq!(kind.read(digests, &stream), Ok(Some(data_bytes as usize)));
                }
            }
        }
    }
}

#[test]
fn the_longest_data_are_accepted_and_one_byte_more_is_refused() {
    for kind in DataPduKind::ALL {
        for digests in ALL_DIGESTS {
            let most = kind.data_bytes_max();
            assert_eq!(kind.read(digests, &kind.pdu(digests, 0, most)), Ok(Some(most as usize)));
            let expected = match kind {
                DataPduKind::Capsule => (FatalStatus::InvalidHeaderField, PDU_LENGTH),
                _ => (FatalStatus::DataLimitExceeded, 0),
            };
            assert_eq!(kind.refusal(digests, &kind.pdu(digests, 0, most + 1)), expected, "{kind:?}");
        }
    }
}

#[test]
fn data_begins_after_the_header_and_its_digest_at_a_multiple_of_four_bytes() {
    for kind in DataPduKind::ALL {
        for digests in ALL_DIGESTS {
            let least = kind.header_bytes() + if digests.header { 4 } else { 0 };
            for (offset, is_valid) in
                [(0, false), (least - 4, false), (least - 1, false), (least, true), (least + 1, false)]
            {
                // Data at the least offset: only PDO changes, so that PLEN leaves data in each
                // case.
                let mut pdu = kind.pdu(digests, 0, 64);
                assert_eq!(usize::from(pdu[DATA_OFFSET]), least);
                pdu[DATA_OFFSET] = offset as u8;
                kind.reseal(digests, &mut pdu);
                if is_valid {
                    assert_eq!(kind.read(digests, &pdu), Ok(Some(64)));
                } else {
                    let refusal = kind.refusal(digests, &pdu);
                    assert_eq!(refusal, (FatalStatus::InvalidHeaderField, DATA_OFFSET), "{kind:?}, PDO {offset}");
                }
            }
        }
    }
}

#[test]
fn a_pdu_length_that_leaves_no_byte_of_data_is_refused() {
    for kind in DataPduKind::ALL {
        for digests in ALL_DIGESTS {
            let before_data = kind.header_bytes() + if digests.header { 4 } else { 0 };
            let behind_data = if digests.data { 4 } else { 0 };
            // Padding up to the data, so that there are lengths between the header's end and the
            // data's start.
            let offset = usize::from(kind.pdu(digests, DATA_ALIGNMENT_MAX, 1)[DATA_OFFSET]);
            for length in [0, 8, before_data - 1, before_data, before_data + 1, offset, offset + behind_data] {
                let mut pdu = kind.pdu(digests, DATA_ALIGNMENT_MAX, 64);
                pdu[PDU_LENGTH..PDU_LENGTH + 4].copy_from_slice(&(length as u32).to_le_bytes());
                kind.reseal(digests, &mut pdu);
                if kind == DataPduKind::Capsule && length == before_data {
                    assert_eq!(kind.read(digests, &pdu[..length]), Ok(Some(0)), "a capsule without data");
                    continue;
                }
                let refusal = kind.refusal(digests, &pdu);
                assert_eq!(refusal, (FatalStatus::InvalidHeaderField, PDU_LENGTH), "{kind:?}, PLEN {length}");
            }
        }
    }
}

#[test]
fn a_pdu_without_data_is_as_long_as_its_header() {
    for (to, pdu_type) in [(Side::Host, PduType::Response), (Side::Host, PduType::ReadyToTransfer)] {
        let header_bytes = pdu_type.header_length();
        for longer in [1, 4, 64] {
            let common = CommonHeader {
                pdu_type: pdu_type as u8,
                flags: 0,
                header_length: header_bytes,
                data_offset: header_bytes,
                pdu_length: (u32::from(header_bytes) + longer).into(),
            };
            let mut reader = PduReader::new(to, LIMITS);
            reader.set_digests(Digests::NONE);
            reader.push(Bytes::copy_from_slice(common.as_bytes()));
            let error = reader.next().expect_err("there are bytes after the header");
            let refusal = (error.status, error.information as usize);
            assert_eq!(refusal, (FatalStatus::InvalidHeaderField, PDU_LENGTH), "{pdu_type:?}, {longer} bytes more");
        }
    }
}

#[test]
fn a_termination_has_at_most_128_bytes_of_the_faulty_header() {
    let mut pdu = vec![PduType::HostTermination as u8, 0, 24, 0];
    pdu.resize(24 + TERMINATION_DATA_BYTES_MAX + 1, 7);
    for (length, is_valid) in [(23, false), (24, true), (24 + 128, true), (24 + 129, false)] {
        pdu[PDU_LENGTH..PDU_LENGTH + 4].copy_from_slice(&u32::to_le_bytes(length));
        let mut reader = PduReader::new(Side::Controller, LIMITS);
        reader.push(Bytes::copy_from_slice(&pdu));
        match reader.next() {
            Ok(Some(Pdu::HostTermination(termination))) if is_valid => {
                assert_eq!(termination.header.len() as u32, length - 24);
            }
            Err(error) if !is_valid => {
                let refusal = (error.status, error.information as usize);
                assert_eq!(refusal, (FatalStatus::InvalidHeaderField, PDU_LENGTH));
            }
            other => panic!("PLEN {length}: {other:?}"),
        }
    }
}
