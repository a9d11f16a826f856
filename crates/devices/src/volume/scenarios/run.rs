//! One run: two volumes on shared mock drives, and their expected state.

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
use crate::{Drive, Location, mock};

/// Blocks of each volume.
const VOLUME_BLOCKS: u64 = 192;
/// Number of mock drives.
pub(super) const DRIVES: usize = 10;
/// Polls after which a volume whose commands have not completed is considered hung.
const POLLS_MAX: u32 = 200_000;

pub(super) struct Run {
    pub(super) seed: u64,
    pub(super) prng: Prng,
    pub(super) ring: Ring,
    above: TempDir,
    pub(super) volumes: Vec<Tested>,
    /// Drives whose files are moved away, by number.
    pub(super) away: Vec<usize>,
    /// Drives that fail their commands.
    pub(super) failing: Vec<usize>,
    pub(super) trace: Vec<String>,
}

/// A volume, and its expected state.
pub(super) struct Tested {
    pub(super) name: &'static str,
    pub(super) drive: Option<VolumeDrive>,
    pub(super) ledger: Ledger,
    pub(super) tolerates: usize,
    /// The drive and the state of each member, when last reported.
    pub(super) members: Vec<(usize, String)>,
    /// Whether `members` is up to date: a crash may have changed them since.
    pub(super) is_certain: bool,
    pub(super) is_full: bool,
    /// It was mounted without a member that may have recorded a change alone before a crash: both
    /// may have recorded each other as failed, although no host saw that change.
    pub(super) may_split: bool,
    /// The volume has split: an operator would have to choose a side.
    pub(super) has_split: bool,
    /// Older copies of `volume.toml`, and the newest one while it is replaced by an older one.
    pub(super) older: Vec<String>,
    pub(super) newest: Option<String>,
}

impl Run {
    pub(super) fn new(seed: u64) -> Run {
        mock::begin();
        let mut prng = Prng::new(seed);
        // Files of volumes are synced often, which is fast on tmpfs.
        let memory = PathBuf::from("/dev/shm");
        let above = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.expect("there is space");
        let geometry = mock::geometry(32);
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
        (0..DRIVES).for_each(|drive| mock::add(&run.path_of(drive), &geometry));
        let schemes = [
            Scheme::raid5(2),
            Scheme { level: Level::Raid1, data: 1, parity: 1 },
            Scheme { level: Level::Raid6, data: 2, parity: 2 },
            Scheme { level: Level::Raid1, data: 1, parity: 2 },
        ];
        let mut first = 0;
        for name in ["one", "two"] {
            let scheme = *prng.pick(&schemes).expect("the list is not empty");
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
            may_split: false,
            has_split: false,
            older: Vec::new(),
            newest: None,
        });
    }

    /// Executes the run, and checks the invariants at the end.
    pub(super) fn execute(&mut self, operations: u32) -> Result<(), String> {
        let result = (0..operations).try_for_each(|_| self.operate()).and_then(|()| self.end());
        // Before the mock drives.
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

    pub(super) fn log(&mut self, line: impl Into<String>) {
        self.trace.push(line.into());
    }

    /// Runs the volumes for a while.
    pub(super) fn pump(&mut self, time: Duration) -> Result<(), String> {
        let until = self.ring.now() + time;
        let mut completions = CompletionQueue::new();
        for _ in 0..POLLS_MAX {
            let mut next = until;
            for volume in self.volumes.iter_mut().filter_map(|volume| volume.drive.as_mut()) {
                volume.poll(self.ring.now(), &mut completions);
                volume.check_invariants();
                next = volume.next_timeout().map_or(next, |at| at.min(next));
            }
            if mock::has_crashed() {
                self.reap();
                return Ok(());
            }
            if self.ring.now() >= until && next >= until {
                return Ok(());
            }
            self.ring.run_once(Some(next)).map_err(|error| error.to_string())?;
        }
        Err("the volumes do not quiesce".to_owned())
    }

    /// The program has crashed: its drives are unlocked, and its last operation may be incomplete.
    pub(super) fn reap(&mut self) {
        for volume in &mut self.volumes {
            if volume.drive.take().is_some() {
                volume.is_certain = false;
            }
        }
        mock::restart();
        self.log("crashed");
    }

    /// Submits commands of a host to a volume, and waits for their completions. None complete in a
    /// crashed program.
    pub(super) fn ask(&mut self, at: usize, operations: Vec<Operation>) -> Result<Vec<Completion>, String> {
        let mut ended = Vec::new();
        let count = operations.len();
        let now = self.ring.now();
        let Some(volume) = self.volumes[at].drive.as_mut() else { return Ok(ended) };
        for (id, operation) in operations.into_iter().enumerate() {
            let command = Command::new(CommandId(id as u64), NamespaceId::FIRST, operation);
            volume.submit(now, command).map_err(|_| "the queue of the volume is full".to_owned())?;
        }
        for _ in 0..POLLS_MAX {
            let mut completions = CompletionQueue::new();
            let Some(volume) = self.volumes[at].drive.as_mut() else { return Ok(ended) };
            volume.poll(self.ring.now(), &mut completions);
            volume.check_invariants();
            if mock::has_crashed() {
                self.reap();
                return Ok(ended);
            }
            ended.extend(std::iter::from_fn(|| completions.pop()));
            if ended.len() == count {
                return Ok(ended);
            }
            if self.volumes[at].is_full && self.ring.now() > now + Duration::from_secs(30) {
                self.set_full(at, false);
            }
            // I/O is suspended until a needed member responds.
            if !self.failing.is_empty() && self.ring.now() > now + Duration::from_secs(60) {
                self.repair();
            }
            let volume = self.volumes[at].drive.as_ref().expect("it is open");
            self.ring.run_once(volume.next_timeout()).map_err(|error| format!("commands do not complete: {error}"))?;
        }
        Err(format!("{} of {count} commands do not complete", count - ended.len()))
    }

    pub(super) fn set_full(&mut self, at: usize, is_full: bool) {
        let name = self.volumes[at].name;
        self.volumes[at].is_full = is_full;
        mock::set_full(&self.directory(name), is_full);
        self.log(format!("{name}: volume.toml can{} be written", if is_full { "not" } else { "" }));
    }

    /// Writes disjoint ranges concurrently.
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
        self.log(format!("{}: write {writes:?}", self.volumes[at].name));
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

    /// The file must have the epoch of acknowledged writes, in case the members that have it are
    /// lost.
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
        std::fs::read_to_string(path).expect("it exists")
    }

    pub(super) fn set_file(&self, at: usize, text: &str) {
        let path = self.directory(self.volumes[at].name).join(VOLUME_FILE);
        std::fs::write(path, text).expect("there is space");
    }

    /// Reads and checks every block.
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

    /// The superblocks of drives that are not open: for each its volume, member, epoch, and the
    /// states of all members.
    pub(super) fn superblocks(&self) -> String {
        let one = |drive: usize| {
            let mut device = mock::open(&Access {
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

    /// Updates the expected state from the report of an open volume.
    pub(super) fn look(&mut self, at: usize) {
        let Some(report) = self.volumes[at].drive.as_ref().map(VolumeDrive::report) else { return };
        let number = |at: &str| at.trim_start_matches("../d").parse().unwrap_or(usize::MAX);
        let members = report.members.iter().map(|member| (number(&member.at), member.state.clone()));
        self.volumes[at].members = members.collect();
        self.volumes[at].is_certain = true;
    }

    /// Removes all faults, and checks that the volumes are intact.
    fn end(&mut self) -> Result<(), String> {
        self.log("the end");
        mock::crash_in(None);
        for at in 0..self.volumes.len() {
            if self.volumes[at].is_full {
                self.set_full(at, false);
            }
        }
        for drive in std::mem::take(&mut self.away) {
            mock::set_away(&self.path_of(drive), false);
        }
        for drive in std::mem::take(&mut self.failing) {
            mock::set_failing(&self.path_of(drive), false);
        }
        self.volumes.iter_mut().for_each(|volume| volume.drive = None);
        for at in 0..self.volumes.len() {
            if let Some(newest) = self.volumes[at].newest.take() {
                self.set_file(at, &newest);
            }
            self.open(at)?;
            if self.volumes[at].has_split {
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
            volume.check_invariants();
            if mock::has_crashed() {
                drop(volume);
                self.volumes[at].is_certain = false;
                self.reap();
                return Ok(());
            }
            if volume.is_closed() {
                return Ok(());
            }
            let next = volume.next_timeout().unwrap_or(self.ring.now() + Duration::from_millis(1));
            self.ring.run_once(Some(next)).map_err(|error| error.to_string())?;
        }
        Err(format!("{} does not close", self.volumes[at].name))
    }
}
