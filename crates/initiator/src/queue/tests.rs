//! A queue against a scripted controller.

use proptest::prelude::*;
use zonda_nvme::tcp::{FatalStatus, InitializeResponse, Pdu, flags};
use zonda_nvme::{CompletionEntry, DataPlace};
use zonda_zoned::{CommandId, Key};

use super::*;

const NOW: Instant = Instant(1);

/// Writes a PDU about the command with an identifier.
type Write = fn(&mut PduWriter, u16);

/// The owner of a command with this number.
fn flight(number: u32) -> Owner {
    Owner::Flight(Key::of_command(CommandId(number.into())).expect("numbers of tests are small"))
}

/// Both ends of one connection.
struct Pair {
    queue: Queue,
    controller: PduReader,
    writer: PduWriter,
}

/// An open queue of four commands; H2CData of at most 4 KiB, capsules of at most 1 KiB.
fn pair(digests: Digests, in_order: bool) -> Pair {
    let mut queue = Queue::new(QueueOptions { depth: 4, digests, data_bytes_max: 1 << 20, in_order });
    queue.on_connect(1024);
    let mut pair =
        Pair { queue, controller: PduReader::new(Side::Controller, ReaderLimits::default()), writer: PduWriter::new() };
    assert!(matches!(pair.sent()[..], [Pdu::InitializeRequest(_)]));
    assert!(!pair.queue.has_free_slot());
    pair.writer.initialize_response(&InitializeResponse::new(0, digests, 4096));
    assert!(matches!(pair.deliver().unwrap()[..], [QueueEvent::Negotiated]));
    pair.controller.set_digests(digests);
    pair.writer.set_options(digests, 0);
    pair
}

impl Pair {
    /// What the queue has sent.
    fn sent(&mut self) -> Vec<Pdu> {
        self.queue.take_output().into_iter().for_each(|piece| self.controller.push(piece));
        std::iter::from_fn(|| self.controller.next().unwrap()).collect()
    }

    /// Delivers the controller's output to the queue.
    fn deliver(&mut self) -> Result<Vec<QueueEvent>, Failure> {
        let mut events = Vec::new();
        self.queue.receive(self.writer.take().concat().into(), &mut events).map(|()| events)
    }

    fn broken(&mut self) -> FatalStatus {
        match self.deliver() {
            Err(Failure::Pdu(error)) => {
                assert_eq!(error.header.len(), 24, "the faulty header is reported");
                error.status
            }
            other => panic!("{other:?}"),
        }
    }

    /// Sends a command; returns its identifier.
    fn command(&mut self, number: u32, data: CommandData) -> u16 {
        self.queue.submit(NOW, flight(number), SubmissionEntry::new(2, 1), data);
        match self.sent().pop() {
            Some(Pdu::Command { entry, .. }) => entry.command_id.get(),
            other => panic!("{other:?}"),
        }
    }

    fn respond(&mut self, id: u16, status: StatusCode) {
        self.writer.response(&CompletionEntry::new(id, 0, status, 5));
    }
}

fn bytes(length: usize) -> Bytes {
    (0..length).map(|i| (i / 7) as u8).collect::<Vec<u8>>().into()
}

fn from_host(length: usize) -> CommandData {
    CommandData::FromHost(HostData::Bytes(bytes(length)))
}

fn one(events: Vec<QueueEvent>) -> Ended {
    match <[QueueEvent; 1]>::try_from(events) {
        Ok([QueueEvent::Ended(ended)]) => ended,
        other => panic!("{other:?}"),
    }
}

/// The H2CData PDUs that were sent: identifier, offset, length, last or not.
fn pushed(pdus: &[Pdu]) -> Vec<(u16, u32, u32, bool)> {
    pdus.iter()
        .map(|pdu| match pdu {
            Pdu::HostData { header, data, .. } => {
                let offset = header.offset.get();
                assert_eq!(data, &bytes(100_000).slice(offset as usize..offset as usize + data.len()));
                (header.command_id.get(), offset, header.length.get(), header.common.flags & 4 != 0)
            }
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn data_that_fits_is_sent_in_the_capsule_and_other_data_waits_for_an_r2t() {
    let mut pair = pair(Digests::BOTH, true);
    assert!(pair.queue.submit(NOW, flight(1), SubmissionEntry::new(1, 1), from_host(1024)));
    assert!(!pair.queue.submit(NOW, flight(2), SubmissionEntry::new(1, 1), from_host(1025)));
    let sent = pair.sent();
    let [Pdu::Command { entry: first, data, .. }, Pdu::Command { entry: second, .. }] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!(first.data_place(), Ok(DataPlace::InCapsule { offset: 0, length: 1024 }));
    assert_eq!(data, &bytes(1024));
    assert_eq!(second.data_place(), Ok(DataPlace::Transport { length: 1025 }));
    assert!(pair.queue.has_unsent());
}

#[test]
fn solicited_data_is_sent_in_pdus_within_maxh2cdata() {
    let mut pair = pair(Digests::NONE, false);
    let id = pair.command(1, from_host(10_000));
    pair.writer.ready_to_transfer(id, 7, 0, 6000);
    assert!(pair.deliver().unwrap().is_empty());
    assert_eq!(pushed(&pair.sent()), [(id, 0, 4096, false), (id, 4096, 1904, true)]);
    pair.writer.ready_to_transfer(id, 8, 6000, 4000);
    assert!(matches!(pair.deliver().unwrap()[..], [QueueEvent::DataSent(owner)] if owner == flight(1)));
    assert_eq!(pushed(&pair.sent()), [(id, 6000, 4000, true)]);
    pair.respond(id, StatusCode::SUCCESS);
    assert_eq!(one(pair.deliver().unwrap()).owner, flight(1));
}

#[test]
fn data_is_sent_in_the_order_of_the_commands_whatever_the_order_of_r2ts() {
    let mut pair = pair(Digests::NONE, true);
    let ids = [pair.command(1, from_host(2000)), pair.command(2, from_host(2000)), pair.command(3, from_host(2000))];
    pair.writer.ready_to_transfer(ids[2], 0, 0, 2000);
    pair.writer.ready_to_transfer(ids[1], 0, 0, 2000);
    assert!(pair.deliver().unwrap().is_empty());
    assert!(pair.sent().is_empty());
    pair.respond(ids[0], StatusCode::ZONE_IS_FULL);
    let events = pair.deliver().unwrap();
    assert_eq!(pushed(&pair.sent()), [(ids[1], 0, 2000, true), (ids[2], 0, 2000, true)]);
    let data_sent = |event: &QueueEvent| matches!(event, QueueEvent::DataSent(_));
    assert_eq!(events.iter().filter(|event| data_sent(event)).count(), 2);
    assert!(!pair.queue.has_unsent());
}

#[test]
fn an_invalid_r2t_terminates_the_connection() {
    let r2ts: [(FatalStatus, Write); 6] = [
        (FatalStatus::InvalidHeaderField, |writer, id| writer.ready_to_transfer(id ^ 0x1000, 0, 0, 2000)),
        (FatalStatus::DataOutOfRange, |writer, id| writer.ready_to_transfer(id, 0, 0, 2001)),
        (FatalStatus::DataOutOfRange, |writer, id| writer.ready_to_transfer(id, 0, 0, 0)),
        (FatalStatus::DataOutOfRange, |writer, id| writer.ready_to_transfer(id, 0, 4, 1996)),
        (FatalStatus::DataOutOfRange, |writer, id| writer.controller_data(id, 0, &[bytes(8)], true, false)),
        (FatalStatus::SequenceError, |writer, id| {
            writer.response(&CompletionEntry::new(id, 0, StatusCode::SUCCESS, 0));
        }),
    ];
    for (status, write) in r2ts {
        let mut pair = pair(Digests::NONE, true);
        let id = pair.command(1, from_host(2000));
        write(&mut pair.writer, id);
        assert_eq!(pair.broken(), status);
    }
    // A second R2T while the first waits for the data of another command.
    let mut pair = pair(Digests::NONE, true);
    pair.command(1, from_host(2000));
    let id = pair.command(2, from_host(2000));
    pair.writer.ready_to_transfer(id, 0, 0, 1000);
    pair.writer.ready_to_transfer(id, 1, 0, 1000);
    assert_eq!(pair.broken(), FatalStatus::DataLimitExceeded);
}

#[test]
fn data_from_the_controller_must_be_in_order_fit_the_buffer_and_belong_to_a_read() {
    let send: [(FatalStatus, Write); 5] = [
        (FatalStatus::DataOutOfRange, |writer, id| writer.controller_data(id, 0, &[bytes(4097)], true, false)),
        (FatalStatus::DataOutOfRange, |writer, id| writer.controller_data(id, 4, &[bytes(8)], true, false)),
        (FatalStatus::InvalidHeaderField, |writer, id| writer.controller_data(id + 1, 0, &[bytes(8)], true, false)),
        (FatalStatus::DataOutOfRange, |writer, id| writer.ready_to_transfer(id, 0, 0, 8)),
        (FatalStatus::InvalidHeaderField, |writer, id| {
            writer.response(&CompletionEntry::new(id, 0, StatusCode::SUCCESS, 0));
            writer.response(&CompletionEntry::new(id, 0, StatusCode::SUCCESS, 0));
        }),
    ];
    for (status, send) in send {
        let mut pair = pair(Digests::NONE, true);
        let id = pair.command(1, CommandData::ToHost(4096));
        send(&mut pair.writer, id);
        assert_eq!(pair.broken(), status);
    }
}

#[test]
fn invalid_data_and_r2ts_are_refused_with_the_header_that_was_received() {
    let faulty: [(CommandData, Write); 2] = [
        (CommandData::ToHost(4096), |writer, id| writer.controller_data(id, 0x0102_0304, &[bytes(8)], true, false)),
        (from_host(2000), |writer, id| writer.ready_to_transfer(id, 0x0506, 0x0102_0304, 0x0708_090a)),
    ];
    for (wanted, write) in faulty {
        let mut pair = pair(Digests::NONE, true);
        let id = pair.command(1, wanted);
        write(&mut pair.writer, id);
        let sent = pair.writer.take().concat();
        match pair.queue.receive(sent.clone().into(), &mut Vec::new()) {
            Err(Failure::Pdu(error)) => assert_eq!(error.header[..], sent[..24]),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn data_can_replace_the_response() {
    let mut pair = pair(Digests::BOTH, true);
    let id = pair.command(1, CommandData::ToHost(100));
    pair.writer.controller_data(id, 0, &[bytes(100).slice(..40)], false, false);
    pair.writer.controller_data(id, 40, &[bytes(100).slice(40..)], true, true);
    let ended = one(pair.deliver().unwrap());
    assert_eq!((ended.status, ended.data, ended.is_damaged), (StatusCode::SUCCESS, bytes(100), false));
}

#[test]
fn data_that_replaces_the_response_must_be_the_last_of_its_command() {
    let mut pair = pair(Digests::NONE, true);
    let id = pair.command(1, CommandData::ToHost(100));
    pair.writer.controller_data(id, 0, &[bytes(100)], true, true);
    let mut stream = pair.writer.take().concat();
    stream[1] &= !flags::LAST;
    match pair.queue.receive(stream.into(), &mut Vec::new()) {
        Err(Failure::Pdu(error)) => assert_eq!(error.status, FatalStatus::InvalidHeaderField),
        other => panic!("{other:?}"),
    }
}

#[test]
fn fits_capsule_predicts_whether_data_is_sent_in_the_capsule() {
    for (length, fits) in [(1024, true), (1025, false)] {
        let mut pair = pair(Digests::NONE, true);
        let data = HostData::Bytes(bytes(length));
        assert_eq!(pair.queue.fits_capsule(&data), fits, "{length} bytes");
        let command = SubmissionEntry::new(1, 1);
        assert_eq!(pair.queue.submit(NOW, flight(1), command, CommandData::FromHost(data)), fits);
    }
}

#[test]
fn a_wrong_data_digest_fails_one_command_and_a_wrong_header_digest_ends_the_connection() {
    let mut pair = pair(Digests::BOTH, true);
    let ids = [pair.command(1, CommandData::ToHost(100)), pair.command(2, CommandData::ToHost(100))];
    pair.writer.controller_data(ids[0], 0, &[bytes(100)], true, true);
    let mut stream = pair.writer.take().concat();
    stream[60] ^= 1;
    let mut events = Vec::new();
    pair.queue.receive(stream.into(), &mut events).unwrap();
    assert!(one(events).is_damaged);
    pair.writer.controller_data(ids[1], 0, &[bytes(100)], true, true);
    let mut stream = pair.writer.take().concat();
    stream[12] ^= 1;
    let failure = pair.queue.receive(stream.into(), &mut Vec::new()).unwrap_err();
    assert!(matches!(failure, Failure::Pdu(error) if error.status == FatalStatus::HeaderDigestError));
}

#[test]
fn an_invalid_icresp_is_refused() {
    let open = |response: InitializeResponse| {
        let mut queue =
            Queue::new(QueueOptions { depth: 4, digests: Digests::NONE, data_bytes_max: 4096, in_order: true });
        queue.on_connect(1024);
        let mut writer = PduWriter::new();
        writer.initialize_response(&response);
        queue.receive(writer.take().concat().into(), &mut Vec::new()).map_err(|failure| match failure {
            Failure::Pdu(error) => (error.status, error.information),
            Failure::Terminated(_) => panic!("the controller did not terminate it"),
        })
    };
    assert_eq!(open(InitializeResponse::new(31, Digests::NONE, 4096)), Ok(()));
    assert_eq!(open(InitializeResponse::new(32, Digests::NONE, 4096)), Err((FatalStatus::InvalidHeaderField, 10)));
    assert_eq!(open(InitializeResponse::new(0, Digests::BOTH, 4096)), Err((FatalStatus::InvalidHeaderField, 11)));
    assert_eq!(open(InitializeResponse::new(0, Digests::NONE, 4095)), Err((FatalStatus::InvalidHeaderField, 12)));
    let future = InitializeResponse { format_version: 1.into(), ..InitializeResponse::new(0, Digests::NONE, 4096) };
    assert_eq!(open(future), Err((FatalStatus::UnsupportedParameter, 8)));
}

/// A PDU that a controller might send, valid or not.
#[derive(Clone, Debug)]
enum ControllerPdu {
    Response(u16, bool),
    Data(u16, u32, usize, bool),
    R2t(u16, u16, u32, u32),
}

fn controller_pdu() -> impl Strategy<Value = ControllerPdu> {
    let id = (0..6u16, 0..2u16).prop_map(|(index, generation)| index | generation << 12);
    let small = prop_oneof![Just(0u32), Just(1000), Just(2000), 0..3000u32];
    prop_oneof![
        (id.clone(), any::<bool>()).prop_map(|(id, good)| ControllerPdu::Response(id, good)),
        (id.clone(), small.clone(), 1..3000usize, any::<bool>())
            .prop_map(|(id, offset, length, success)| ControllerPdu::Data(id, offset, length, success)),
        (id, 0..3u16, small.clone(), small)
            .prop_map(|(id, tag, offset, length)| ControllerPdu::R2t(id, tag, offset, length)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_controller_makes_a_queue_panic_or_complete_a_command_twice(
        all in proptest::collection::vec(controller_pdu(), 1..40),
        in_order in any::<bool>(),
    ) {
        let mut pair = pair(Digests::NONE, in_order);
        let mut in_flight = Vec::new();
        for (number, pdu) in (0u32..).zip(all) {
            if pair.queue.has_free_slot() {
                let data = match number % 3 {
                    0 => from_host(2000),
                    1 => CommandData::ToHost(2000),
                    _ => CommandData::None,
                };
                pair.queue.submit(NOW, flight(number), SubmissionEntry::new(1, 1), data);
                in_flight.push(flight(number));
            }
            match pdu {
                ControllerPdu::Response(id, good) => {
                    pair.respond(id, if good { StatusCode::SUCCESS } else { StatusCode::INTERNAL_ERROR });
                }
                ControllerPdu::Data(id, offset, length, success) => {
                    pair.writer.controller_data(id, offset, &[bytes(length)], true, success);
                }
                ControllerPdu::R2t(id, tag, offset, length) => pair.writer.ready_to_transfer(id, tag, offset, length),
            }
            let result = pair.deliver();
            let broken = result.is_err();
            for event in result.unwrap_or_default() {
                if let QueueEvent::Ended(Ended { owner, data, .. }) = event {
                    let before = in_flight.len();
                    in_flight.retain(|other| *other != owner);
                    prop_assert_eq!(in_flight.len(), before - 1);
                    prop_assert!(data.len() <= 2000);
                }
            }
            if broken {
                break;
            }
        }
    }

    #[test]
    fn any_bytes_are_accepted_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600), open in any::<bool>()) {
        let mut pair = pair(Digests::NONE, true);
        if !open {
            pair.queue.on_connect(1024);
        }
        let _ = pair.queue.receive(bytes.into(), &mut Vec::new());
    }
}
