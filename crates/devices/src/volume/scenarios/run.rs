//! One run: two volumes on one shelf, and what is known of them.

use std::path::PathBuf;

use tempfile::TempDir;
use zonda_config::ByteSize;
use zonda_raid::{Level, Scheme};
use zonda_ring::Ring;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, CompletionQueue, Duration, Lba, NamespaceId, Operation,
    Outcome, Payload, Prng, ZonedDevice,
};

use super::ledger::{BLOCK_BYTES, Ledger};
use crate::probe::Probe;
use crate::volume::{NewVolume, VOLUME_FILE, VolumeDrive};
use crate::{Access, NamespaceOptions};
use crate::{Drive, Location, shelf};

/// Blocks of each volume.
const VOLUME_BLOCKS: u64 = 192;
/// Drives on the shelf.
pub(super) const DRIVES: usize = 10;
/// Polls after which a volume that has not ended what it was given is said to hang.
const POLLS_MAX: u32 = 200_000;

pub(super) struct Run {
    pub(super) seed: u64,
    pub(super) prng: Prng,
    pub(super) ring: Ring,
    above: TempDir,
    pub(super) volumes: Vec<Tested>,
    /// Drives whose files are away, by number.
    pub(super) away: Vec<usize>,
    /// Drives that fail their commands.
    pub(super) failing: Vec<usize>,
    pub(super) trace: Vec<String>,
}

/// A volume, and what is known of it.
pub(super) struct Tested {
    pub(super) name: &'static str,
    pub(super) drive: Option<VolumeDrive>,
    pub(super) ledger: Ledger,
    pub(super) tolerates: usize,
    /// The drive in the place of each member, and its state, when that was last known.
    pub(super) members: Vec<(usize, String)>,
    /// Members may have changed since.
    pub(super) is_certain: bool,
    pub(super) is_full: bool,
    /// It was mounted without a member that may have recorded a change alone, when a crash came in between: both may count each other as
    /// failed from then on, although no host saw anything of that change.
    pub(super) may_part: bool,
    /// That has happened: an operator would have to choose a side.
    pub(super) has_parted: bool,
    /// What `volume.toml` was when it was kept, and the newest one while an older one stands in its place.
    pub(super) older: Vec<String>,
    pub(super) newest: Option<String>,
}

impl Run {
    pub(super) fn new(seed: u64) -> Run {
        shelf::begin();
        let mut prng = Prng::new(seed);
        // Files of volumes are synced often: that takes no time in memory.
        let memory = PathBuf::from("/dev/shm");
        let above = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.expect("there is room");
        let geometry = shelf::geometry(32);
        let mut run = Run {
            seed,
            ring: Ring::simulated().expect("there is an event loop"),
            above,
            volumes: Vec::new(),
            away: Vec::new(),
            failing: Vec::new(),
            trace: Vec::new(),
            prng: prng.fork("operations"),
        };
        (0..DRIVES).for_each(|drive| shelf::add(&run.path_of(drive), &geometry));
        let schemes = [
            Scheme::raid5(2),
            Scheme { level: Level::Raid1, data: 1, parity: 1 },
            Scheme { level: Level::Raid6, data: 2, parity: 2 },
            Scheme { level: Level::Raid1, data: 1, parity: 2 },
        ];
        let mut first = 0;
        for name in ["one", "two"] {
            let scheme = *prng.pick(&schemes).expect("there are some");
            run.create(name, scheme, first);
            first += scheme.members();
        }
        run
    }

    fn create(&mut self, name: &'static str, scheme: Scheme, first: usize) {
        let members: Vec<usize> = (first..first + scheme.members()).collect();
        let new = NewVolume {
            size: Some(ByteSize(VOLUME_BLOCKS * BLOCK_BYTES as u64)),
            ..NewVolume::over(members.iter().map(|drive| Location::Image(self.path_of(*drive))).collect(), scheme)
        };
        let drive =
            VolumeDrive::create(&self.directory(name), &new, &self.ring).unwrap_or_else(|error| panic!("{error}"));
        self.volumes.push(Tested {
            name,
            drive: Some(drive),
            ledger: Ledger::new(VOLUME_BLOCKS),
            tolerates: usize::from(scheme.parity),
            members: members.into_iter().map(|drive| (drive, "active".to_owned())).collect(),
            is_certain: true,
            is_full: false,
            may_part: false,
            has_parted: false,
            older: Vec::new(),
            newest: None,
        });
    }

    /// Everything that a seed does, and what has to hold at the end.
    pub(super) fn execute(&mut self, operations: u32) -> Result<(), String> {
        let result = (0..operations).try_for_each(|_| self.operate()).and_then(|()| self.end());
        // Before the shelf.
        self.volumes.clear();
        result.map_err(|what| {
            let trace = self.trace[self.trace.len().saturating_sub(40)..].join("\n  ");
            format!("seed {}: {what}\nthe last operations:\n  {trace}", self.seed)
        })
    }

    pub(super) fn directory(&self, name: &str) -> PathBuf {
        self.above.path().join(name)
    }

    pub(super) fn path_of(&self, drive: usize) -> PathBuf {
        self.above.path().join(format!("d{drive}"))
    }

    pub(super) fn tell(&mut self, line: impl Into<String>) {
        self.trace.push(line.into());
    }

    /// The volumes' work goes on for a while.
    pub(super) fn pump(&mut self, time: Duration) -> Result<(), String> {
        let until = self.ring.now() + time;
        let mut completions = CompletionQueue::new();
        for _ in 0..POLLS_MAX {
            let mut next = until;
            for volume in self.volumes.iter_mut().filter_map(|volume| volume.drive.as_mut()) {
                volume.poll(self.ring.now(), &mut completions);
                next = volume.next_wakeup().map_or(next, |at| at.min(next));
            }
            if shelf::is_dead() {
                self.bury();
                return Ok(());
            }
            if self.ring.now() >= until && next >= until {
                return Ok(());
            }
            self.ring.turn(Some(next)).map_err(|error| error.to_string())?;
        }
        Err("the volumes do not come to rest".to_owned())
    }

    /// The program has crashed: what it had open is free, and nobody knows how far it came.
    pub(super) fn bury(&mut self) {
        for volume in &mut self.volumes {
            if volume.drive.take().is_some() {
                volume.is_certain = false;
            }
        }
        shelf::revive();
        self.tell("crashed");
    }

    /// Gives a volume commands of a host, and waits for their ends. None ends in a program that has crashed.
    pub(super) fn ask(&mut self, at: usize, operations: Vec<Operation>) -> Result<Vec<Completion>, String> {
        let mut ended = Vec::new();
        let count = operations.len();
        let now = self.ring.now();
        let Some(volume) = self.volumes[at].drive.as_mut() else { return Ok(ended) };
        for (id, operation) in operations.into_iter().enumerate() {
            let command = Command { id: CommandId(id as u64), namespace: NamespaceId::FIRST, operation };
            volume.submit(now, command).map_err(|_| "the volume takes no command".to_owned())?;
        }
        for _ in 0..POLLS_MAX {
            let mut completions = CompletionQueue::new();
            let Some(volume) = self.volumes[at].drive.as_mut() else { return Ok(ended) };
            volume.poll(self.ring.now(), &mut completions);
            if shelf::is_dead() {
                self.bury();
                return Ok(ended);
            }
            ended.extend(std::iter::from_fn(|| completions.pop()));
            if ended.len() == count {
                return Ok(ended);
            }
            if self.volumes[at].is_full && self.ring.now() > now + Duration::from_secs(30) {
                self.set_full(at, false);
            }
            // I/O is suspended for a member that is needed until it answers.
            if !self.failing.is_empty() && self.ring.now() > now + Duration::from_secs(60) {
                self.repair();
            }
            let volume = self.volumes[at].drive.as_ref().expect("it is open");
            self.ring.turn(volume.next_wakeup()).map_err(|error| format!("commands do not end: {error}"))?;
        }
        Err(format!("{} of {count} commands do not end", count - ended.len()))
    }

    pub(super) fn set_full(&mut self, at: usize, is_full: bool) {
        let name = self.volumes[at].name;
        self.volumes[at].is_full = is_full;
        shelf::set_full(&self.directory(name), is_full);
        self.tell(format!("{name}: volume.toml can{} be written", if is_full { "not" } else { "" }));
    }

    /// Some writes at once, of blocks that are not the same; flushed or not.
    pub(super) fn write(&mut self, at: usize) -> Result<(), String> {
        let (mut writes, mut operations) = (Vec::new(), Vec::new());
        let slots = VOLUME_BLOCKS / 24;
        let first = self.prng.below(slots);
        for slot in 0..=self.prng.below(5) {
            let blocks = 1 + self.prng.below(20);
            let start = (first + slot) % slots * 24 + self.prng.below(4);
            let (version, data) = self.volumes[at].ledger.write(start, blocks);
            let buffer = BlockBuffer { data: data.into(), metadata: Vec::new().into() };
            operations.push(Operation::Write {
                start: Lba(start),
                blocks: Blocks(blocks),
                payload: Payload::Bytes(Box::new(buffer)),
            });
            writes.push((start, blocks, version));
        }
        self.tell(format!("{}: write {writes:?}", self.volumes[at].name));
        for completion in self.ask(at, operations)? {
            let (start, blocks, version) = writes[completion.id.0 as usize];
            if !completion.status.is_success() {
                return Err(format!("a write of {start}+{blocks} ends with {}", completion.status));
            }
            self.volumes[at].ledger.acknowledge(start, blocks, version);
            self.file_must_know_the_epoch(at)?;
        }
        Ok(())
    }

    /// What was acknowledged in an epoch is not forgotten with the members that know it.
    fn file_must_know_the_epoch(&self, at: usize) -> Result<(), String> {
        let Some(volume) = &self.volumes[at].drive else { return Ok(()) };
        let reached = volume.on.volume().changed_epoch();
        let text = self.file_of(at);
        let epoch =
            text.lines().find_map(|line| line.strip_prefix("epoch = ")).and_then(|text| text.parse::<u64>().ok());
        if epoch < Some(reached) {
            return Err(format!(
                "a write was acknowledged after members changed in epoch {reached}, {VOLUME_FILE} has {epoch:?}"
            ));
        }
        Ok(())
    }

    pub(super) fn file_of(&self, at: usize) -> String {
        let path = self.directory(self.volumes[at].name).join(VOLUME_FILE);
        std::fs::read_to_string(path).expect("it is there")
    }

    pub(super) fn set_file(&self, at: usize, text: &str) {
        let path = self.directory(self.volumes[at].name).join(VOLUME_FILE);
        std::fs::write(path, text).expect("there is room");
    }

    /// Reads every block.
    pub(super) fn check(&mut self, at: usize) -> Result<(), String> {
        let blocks = self.volumes[at].ledger.blocks();
        for start in (0..blocks).step_by(32) {
            let read = Operation::Read { start: Lba(start), blocks: Blocks(32.min(blocks - start)) };
            for completion in self.ask(at, vec![read])? {
                let Outcome::Data(Payload::Bytes(buffer)) = completion.outcome else {
                    return Err(format!(
                        "{}: a read at {start} ends with {}",
                        self.volumes[at].name, completion.status
                    ));
                };
                for (lba, block) in (start..).zip(buffer.data.chunks(BLOCK_BYTES)) {
                    let name = self.volumes[at].name;
                    self.volumes[at].ledger.read(lba, block).map_err(|what| format!("{name}: {what}"))?;
                }
            }
        }
        Ok(())
    }

    /// What the superblocks of drives say that nothing has open: for each its volume, member, epoch, and how it has the others.
    pub(super) fn superblocks(&self) -> String {
        let one = |drive: usize| {
            let mut device = shelf::open(&Access {
                location: Location::Image(self.path_of(drive)),
                options: NamespaceOptions::default(),
            })?
            .ok()?;
            let probed =
                Probe::of_superblock(device.geometry(NamespaceId::FIRST)).run(&mut *device, &self.ring).ok()?;
            let own = probed.membership()?;
            let states: Vec<String> =
                own.members.iter().map(|of| format!("{:?}@{}", of.state, of.since_epoch)).collect();
            let epoch = (own.epoch, own.sequence);
            Some(format!("d{drive} {}.{} {epoch:?} {}", own.name, own.member, states.join(" ")))
        };
        (0..DRIVES).filter_map(one).collect::<Vec<String>>().join("; ")
    }

    /// What is known of a volume that is open.
    pub(super) fn look(&mut self, at: usize) {
        let Some(report) = self.volumes[at].drive.as_ref().map(VolumeDrive::report) else { return };
        let number = |at: &str| at.trim_start_matches("../d").parse().unwrap_or(usize::MAX);
        let members = report.members.iter().map(|member| (number(&member.at), member.state.clone()));
        self.volumes[at].members = members.collect();
        self.volumes[at].is_certain = true;
    }

    /// All is back, and nothing is wrong any more.
    fn end(&mut self) -> Result<(), String> {
        self.tell("the end");
        shelf::crash_in(None);
        for at in 0..self.volumes.len() {
            if self.volumes[at].is_full {
                self.set_full(at, false);
            }
        }
        for drive in std::mem::take(&mut self.away) {
            shelf::set_away(&self.path_of(drive), false);
        }
        for drive in std::mem::take(&mut self.failing) {
            shelf::set_failing(&self.path_of(drive), false);
        }
        self.volumes.iter_mut().for_each(|volume| volume.drive = None);
        for at in 0..self.volumes.len() {
            if let Some(newest) = self.volumes[at].newest.take() {
                self.set_file(at, &newest);
            }
            self.open(at)?;
            if self.volumes[at].has_parted {
                continue;
            }
            if self.volumes[at].drive.is_none() {
                return Err(format!("{} is not mounted at the end", self.volumes[at].name));
            }
            self.write(at)?;
            self.pump(Duration::from_secs(30))?;
            self.check(at)?;
            self.close(at)?;
        }
        Ok(())
    }

    pub(super) fn close(&mut self, at: usize) -> Result<(), String> {
        self.look(at);
        let Some(mut volume) = self.volumes[at].drive.take() else { return Ok(()) };
        let mut completions = CompletionQueue::new();
        volume.close(self.ring.now());
        for _ in 0..POLLS_MAX {
            volume.poll(self.ring.now(), &mut completions);
            if shelf::is_dead() {
                drop(volume);
                self.volumes[at].is_certain = false;
                self.bury();
                return Ok(());
            }
            if volume.is_closed() {
                return Ok(());
            }
            let next = volume.next_wakeup().unwrap_or(self.ring.now() + Duration::from_millis(1));
            self.ring.turn(Some(next)).map_err(|error| error.to_string())?;
        }
        Err(format!("{} does not close", self.volumes[at].name))
    }
}
