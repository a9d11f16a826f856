//! One run: a volume and copies of its directory, what happens to them, and what has to hold at the end.

use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;

use tempfile::TempDir;
use zonda_config::ByteSize;
use zonda_raid::{Level, Scheme};
use zonda_ring::Ring;
use zonda_zoned::{Duration, Prng};

use super::super::ledger::BLOCK_BYTES;
use super::history::History;
use super::plan::Plan;
use super::seen::Seen;
use super::world::{HOST_BLOCKS, Program, Stage, World, is_about_missing, is_insufficient};
use super::{ACTIONS, act};
use crate::volume::{NewVolume, VOLUME_FILE, VolumeDrive, VolumeOpenOptions};
use crate::{DriveError, Location, shelf};

/// Blocks of the volume: more than hosts use.
const VOLUME_BLOCKS: u64 = 96;
/// Zones of a drive.
const DRIVE_ZONES: u32 = 32;
/// So long what was cut off and taken over comes to rest.
const REST: Duration = Duration::from_secs(40);

const _: () = assert!(HOST_BLOCKS < VOLUME_BLOCKS);

pub(super) struct Run {
    stage: Stage,
    _above: TempDir,
}

impl Drop for Run {
    fn drop(&mut self) {
        // Before the shelf.
        self.stage.world.borrow_mut().programs.clear();
    }
}

impl Run {
    pub(super) fn new(seed: u64, never_aborts: bool) -> Run {
        shelf::begin();
        let mut prng = Prng::new(seed).fork("owners");
        let above = TempDir::new().expect("there is room");
        let schemes = [
            Scheme { level: Level::Raid0, data: 1, parity: 0 },
            Scheme { level: Level::Raid1, data: 1, parity: 1 },
            Scheme { level: Level::Raid1, data: 1, parity: 2 },
            Scheme::raid5(2),
            Scheme::raid5(3),
            Scheme { level: Level::Raid6, data: 2, parity: 2 },
        ];
        let scheme = *prng.pick(&schemes).expect("there are some");
        let spares = prng.below(2) as usize;
        let drives: Vec<PathBuf> =
            (0..scheme.members() + spares).map(|at| above.path().join(format!("d{at}"))).collect();
        for drive in &drives {
            shelf::add(drive, &shelf::geometry(DRIVE_ZONES));
            shelf::set_remote(drive);
        }
        let location = |path: &PathBuf| Location::Image(path.clone());
        let new = NewVolume {
            size: Some(ByteSize(VOLUME_BLOCKS * BLOCK_BYTES as u64)),
            spares: drives[scheme.members()..].iter().map(location).collect(),
            ..NewVolume::over(drives[..scheme.members()].iter().map(location).collect(), scheme)
        };
        let ring = Ring::simulated().expect("there is an event loop");
        let directories: Vec<PathBuf> =
            ["a", "b", "c"][..2 + prng.below(2) as usize].iter().map(|name| above.path().join(name)).collect();
        let volume = VolumeDrive::create(&directories[0], &new, &ring).expect("they suit");
        for copy in &directories[1..] {
            fs::create_dir(copy).expect("there is room");
            fs::copy(directories[0].join(VOLUME_FILE), copy.join(VOLUME_FILE)).expect("there is room");
        }
        shelf::add_wire(prng.fork("wire"), never_aborts);
        let mut programs: Vec<Program> = directories.into_iter().map(Program::new).collect();
        drop(volume);
        programs[0].note_place();
        let weights = act::swarm(&mut prng);
        let plan = Plan::draw(
            Prng::new(seed).fork("plan of owners"),
            ACTIONS,
            programs.len(),
            scheme.members(),
            usize::from(scheme.data),
            drives.len(),
        );
        let world = World {
            prng,
            weights,
            plan,
            now: ring.now(),
            next_action_at: ring.now(),
            actions_left: 0,
            programs,
            drives,
            failing: Vec::new(),
            history: History::new(HOST_BLOCKS),
            last_value: 0,
            last_command: 0,
            has_halves: scheme.members() <= 2 * usize::from(scheme.parity),
            last_members: Vec::new(),
            last_owner: None,
            served: Vec::new(),
            seen: Seen::default(),
            trace: vec![format!("{scheme}, {spares} spares")],
            failure: None,
            depth: 0,
            is_syncing: false,
        };
        let stage = Stage { world: Rc::new(RefCell::new(world)), ring: Rc::new(ring) };
        let (world, ring) = (Rc::downgrade(&stage.world), Rc::downgrade(&stage.ring));
        stage.ring.set_meanwhile(move |until| match (world.upgrade(), ring.upgrade()) {
            (Some(world), Some(ring)) => Stage { world, ring }.pass(until),
            _ => until,
        });
        Run { stage, _above: above }
    }

    pub(super) fn trace(&self) -> Vec<String> {
        self.stage.world.borrow().trace.clone()
    }

    pub(super) fn seen(&self) -> Seen {
        self.stage.world.borrow().seen
    }

    /// Everything that a seed does, and what has to hold at the end.
    pub(super) fn execute(&mut self, actions: u32) -> Result<(), String> {
        self.stage.world.borrow_mut().actions_left = actions;
        while self.stage.world.borrow().actions_left > 0 {
            self.pass(Duration::from_secs(1))?;
        }
        self.end()
    }

    fn pass(&self, time: Duration) -> Result<(), String> {
        let until = self.stage.world.borrow().now + time;
        self.stage.pass(until);
        self.stage.world.borrow().failure.clone().map_or(Ok(()), Err)
    }

    /// All drives are well and can be reached; the volume is taken over, and holds what hosts were promised.
    fn end(&self) -> Result<(), String> {
        let stage = &self.stage;
        let programs = {
            let mut world = stage.world.borrow_mut();
            world.tell("the end");
            for drive in std::mem::take(&mut world.failing) {
                shelf::set_failing(&world.drives[drive], false);
            }
            for at in 0..world.programs.len() {
                world.mend(at);
                world.wake(at);
            }
            world.programs.len()
        };
        self.pass(REST)?;
        for at in 0..programs {
            stage.world.borrow_mut().stop(at);
        }
        self.pass(REST)?;
        for at in 0..programs {
            stage.world.borrow_mut().kill(at);
        }
        let mut last = stage.world.borrow_mut().prng.below(programs as u64) as usize;
        let take_over = |at, accepts_missing| {
            let taken = stage.take_over(at, accepts_missing);
            taken.map_err(|error| format!("the takeover at the end is refused: {error}"))
        };
        let is_mirror = stage.world.borrow().has_halves;
        let is_refused = |taken: &Result<(), DriveError>| taken.as_ref().is_err_and(is_insufficient);
        let mut taken = stage.take_over(last, false);
        // Its file may name other drives than the volume has by now. The one that had the volume last knows them.
        if is_refused(&taken) {
            last = stage.world.borrow().last_owner.unwrap_or(last);
            taken = stage.take_over(last, false);
        }
        // Or it names none for a member that is being rebuilt.
        if is_refused(&taken) {
            taken = stage.take_over(last, true);
        }
        taken.map_err(|error| format!("the takeover at the end is refused: {error}"))?;
        let mut mounted = stage.mount(last);
        // Its file may name other drives than the volume has by now. The one that had the volume last knows them.
        if mounted.as_ref().is_err_and(|error| error.message.contains("missing or out of date")) {
            last = stage.world.borrow().last_owner.unwrap_or(last);
            take_over(last, false)?;
            mounted = stage.mount(last);
        }
        // Its file may name no drive for a member that is being rebuilt on one that holds no superblock yet.
        if mounted.as_ref().is_err_and(is_about_missing) {
            take_over(last, true)?;
            mounted = stage.mount(last);
        }
        // A mount with half of a mirror that is cut short, and one with the other half, leave two sides, of which hosts saw one at most.
        if mounted.as_ref().is_err_and(|error| error.message.contains("split brain")) && is_mirror {
            // Where no mount has succeeded either side will do.
            let side = stage.world.borrow().last_members.first().cloned().or_else(|| Some("0".to_owned()));
            let accepted = VolumeOpenOptions { accepts_side: side, ..VolumeOpenOptions::default() };
            mounted = stage.mount_with(last, &accepted);
        }
        mounted.map_err(|error| format!("the mount at the end is refused: {error}"))?;
        self.pass(REST)?;
        for round in 0..2 {
            for start in (0..HOST_BLOCKS).step_by(4) {
                let mut world = stage.world.borrow_mut();
                let value = (round == 1).then(|| world.next_value());
                world.ask(last, start, 4, value);
            }
            let before = self.seen();
            self.pass(REST)?;
            let after = self.seen();
            let ended = (after.reads - before.reads, after.writes - before.writes);
            if ended != if round == 0 { (HOST_BLOCKS / 4, 0) } else { (0, HOST_BLOCKS / 4) } {
                return Err(format!("at the end of {HOST_BLOCKS} blocks only {ended:?} are answered"));
            }
        }
        Ok(())
    }
}
