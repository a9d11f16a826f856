//! Members with a full queue and nothing in flight.

use zonda_layers::Memory;
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Instant, Lba, NamespaceId, Namespaces, Operation, Payload, QueueFull,
    Status, ZonedDevice,
};

use super::basics::{config, geometry};
use crate::{Event, FailReason, MemberIndex, Scheme, Volume, VolumeDevice};

/// Memory that refuses commands, `times` of them.
struct Refusing {
    inner: Memory,
    times: u64,
}

impl ZonedDevice for Refusing {
    fn namespaces(&self) -> &Namespaces {
        self.inner.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.times > 0 {
            self.times -= 1;
            return Err(QueueFull(command));
        }
        self.inner.submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.inner.poll(now, completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.inner.next_timeout()
    }
}

/// A volume of which member 1 will refuse `times` commands, and a write to it. Runs until nothing
/// waits.
fn write_while_refused(times: u64) -> (VolumeDevice<Refusing>, Vec<Status>) {
    let scheme = Scheme::raid5(2);
    let ids: Vec<[u8; 16]> = (0..3).map(|at| [at + 1; 16]).collect();
    let volume =
        Volume::create(config(scheme), vec![geometry(64); 3], [9; 16], &ids, false).expect("a valid configuration");
    let device = || Some(Refusing { inner: Memory::new(geometry(64), u64::MAX), times: 0 });
    let mut volume = VolumeDevice::new(volume, (0..3).map(|_| device()).collect());
    volume.process(Instant::ZERO);
    assert_eq!(volume.volume_mut().poll_event(), Some(Event::Ready));
    volume.member_mut(MemberIndex(1)).expect("it is present").times = times;
    let write = Operation::Write { start: Lba(0), blocks: Blocks(2), payload: Payload::None };
    let command = Command::new(CommandId(1), NamespaceId::FIRST, write);
    volume.submit(Instant::ZERO, command).expect("an idle volume accepts it");
    let (mut ended, mut completions) = (Vec::new(), CompletionQueue::new());
    while let Some(now) = volume.next_timeout() {
        volume.poll(now, &mut completions);
        while let Some(completion) = completions.pop() {
            ended.push(completion.status);
        }
    }
    (volume, ended)
}

#[test]
fn a_member_with_a_full_queue_and_nothing_in_flight_is_retried() {
    let (mut volume, ended) = write_while_refused(5);
    assert_eq!(ended, [Status::Success]);
    assert_eq!(volume.volume_mut().poll_event(), None, "no member is failed for that");
}

#[test]
fn a_member_whose_queue_stays_full_fails_like_one_that_times_out() {
    let (mut volume, ended) = write_while_refused(u64::MAX);
    assert_eq!(ended, [Status::Success]);
    let timed_out = Event::MemberFailed { member: MemberIndex(1), reason: FailReason::Timeout };
    assert_eq!(volume.volume_mut().poll_event(), Some(timed_out));
}
