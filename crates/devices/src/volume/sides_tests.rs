//! Every way in which a mirror of three members splits, and a side is chosen while others are
//! missing.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use zonda_raid::{Level, Scheme};
use zonda_ring::Ring;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, CompletionQueue, Duration, Lba, NamespaceId, Operation, Payload,
    ZonedDevice,
};

use super::{NewVolume, VOLUME_FILE, VolumeDrive, VolumeOpenOptions};
use crate::{Drive, DriveError, Location, mock};

const MEMBERS: usize = 3;

pub(super) struct Bench {
    above: TempDir,
    pub(super) ring: Ring,
}

impl Bench {
    pub(super) fn new() -> Bench {
        mock::begin();
        let bench = Bench {
            above: TempDir::new_in("/dev/shm").expect("there is space"),
            ring: Ring::simulated().expect("there is an event loop"),
        };
        let geometry = mock::geometry(24);
        (0..MEMBERS).for_each(|at| mock::add(&bench.drive(at), &geometry));
        let new = NewVolume::over(
            (0..MEMBERS).map(|at| Location::Image(bench.drive(at))).collect(),
            Scheme { level: Level::Raid1, data: 1, parity: 2 },
        );
        let volume = VolumeDrive::create(&bench.vol(), &new, &bench.ring).expect("the members are suitable");
        bench.write_and_close(volume);
        bench
    }

    pub(super) fn drive(&self, at: usize) -> PathBuf {
        self.above.path().join(format!("d{at}"))
    }

    pub(super) fn vol(&self) -> PathBuf {
        self.above.path().join("vol")
    }

    /// Only these drives, as bits, are present.
    fn keep(&self, present: usize) {
        (0..MEMBERS).for_each(|at| mock::set_away(&self.drive(at), present >> at & 1 == 0));
    }

    pub(super) fn wait(&self, volume: &mut VolumeDrive, time: Duration) {
        let until = self.ring.now() + time;
        let mut completions = CompletionQueue::new();
        loop {
            let now = self.ring.now();
            volume.poll(now, &mut completions);
            let next = volume.next_timeout();
            if now >= until && next.is_none_or(|next| next > now) {
                return;
            }
            self.ring.run_once(Some(next.map_or(until, |next| next.min(until)).max(now))).expect("the loop works");
        }
    }

    pub(super) fn write(&self, volume: &mut VolumeDrive) {
        let payload =
            Payload::Bytes(Box::new(BlockBuffer { data: vec![1; 8 * 512].into(), metadata: Vec::new().into() }));
        let operation = Operation::Write { start: Lba(0), blocks: Blocks(8), payload };
        let command = Command::new(CommandId(1), NamespaceId::FIRST, operation);
        volume.submit(self.ring.now(), command).expect("there is a queue slot");
        self.wait(volume, Duration::from_secs(30));
    }

    pub(super) fn write_and_close(&self, mut volume: VolumeDrive) {
        self.write(&mut volume);
        volume.close(self.ring.now());
        self.wait(&mut volume, Duration::from_secs(2));
        assert!(volume.is_closed());
    }
}

impl Bench {
    fn open(&self, side: Option<usize>) -> Result<VolumeDrive, DriveError> {
        let accepts_side = side.map(|member| member.to_string());
        VolumeDrive::open_with(
            &self.vol(),
            &VolumeOpenOptions { accepts_side, ..VolumeOpenOptions::default() },
            &self.ring,
        )
    }
}

fn is_split(opened: &Result<VolumeDrive, DriveError>) -> bool {
    opened.as_ref().is_err_and(|error| error.message.contains("split brain"))
}

/// Writes to one side, then independently to another one; chooses a side, and mounts with all
/// combinations of members.
fn choose(first: usize, second: usize, chosen: usize, at_choice: usize) -> bool {
    let bench = Bench::new();
    let before = fs::read(bench.vol().join(VOLUME_FILE)).expect("it exists");
    for present in [first, second] {
        fs::write(bench.vol().join(VOLUME_FILE), &before).expect("there is space");
        bench.keep(present);
        bench.open(None).into_iter().for_each(|volume| bench.write_and_close(volume));
    }
    bench.keep(at_choice);
    if !is_split(&bench.open(None)) {
        return false;
    }
    let Ok(volume) = bench.open(Some(chosen)) else { return false };
    bench.write_and_close(volume);
    for present in [0b110, 0b101, 0b011, ALL, ALL] {
        bench.keep(present);
        let opened = bench.open(None);
        assert!(
            !is_split(&opened),
            "members {first:03b} split from {second:03b}; the side of {chosen} was chosen with {at_choice:03b}, and \
             refused with {present:03b}"
        );
        opened.into_iter().for_each(|volume| bench.write_and_close(volume));
    }
    true
}

const ALL: usize = (1 << MEMBERS) - 1;

#[test]
fn a_side_stays_chosen_whichever_members_come_back_later() {
    let mut choices = 0;
    for (first, second) in (1..ALL).flat_map(|first| (1..=ALL).map(move |second| (first, second))) {
        for chosen in 0..MEMBERS {
            for at_choice in (1..=ALL).filter(|present| present >> chosen & 1 == 1) {
                choices += u32::from(choose(first, second, chosen, at_choice));
            }
        }
    }
    assert!(choices > 50, "{choices} sides were chosen");
}
