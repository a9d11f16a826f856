//! One run: a volume and copies of its directory, random actions, and the invariants at the end.

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
use super::coverage::Coverage;
use super::history::History;
use super::plan::Plan;
use super::testbed::{HOST_BLOCKS, Program, Stage, Testbed, is_about_missing, is_insufficient};
use super::{ACTIONS, act};
use crate::volume::{NewVolume, VOLUME_FILE, VolumeDrive, VolumeOpenOptions};
use crate::{DriveError, Location, mock};

/// Blocks of the volume: more than hosts use.
const VOLUME_BLOCKS: u64 = 96;
/// Zones of a drive.
const DRIVE_ZONES: u32 = 32;
/// Time to quiesce after partitions and takeovers.
const QUIESCE_TIME: Duration = Duration::from_secs(40);

const _: () = assert!(HOST_BLOCKS < VOLUME_BLOCKS);

pub(super) struct Run {
    stage: Stage,
    _above: TempDir,
}

impl Drop for Run {
    fn drop(&mut self) {
        // Before the mock drives.
        self.stage.testbed.borrow_mut().programs.clear();
    }
}

impl Run {
    pub(super) fn new(seed: u64, never_aborts: bool) -> Run {
        mock::begin();
        let mut prng = Prng::new(seed).fork("owners");
        let above = TempDir::new().expect("there is space");
        let schemes = [
            Scheme { level: Level::Raid0, data: 1, parity: 0 },
            Scheme { level: Level::Raid1, data: 1, parity: 1 },
            Scheme { level: Level::Raid1, data: 1, parity: 2 },
            Scheme::raid5(2),
            Scheme::raid5(3),
            Scheme { level: Level::Raid6, data: 2, parity: 2 },
        ];
        let scheme = *prng.pick(&schemes).expect("the list is not empty");
        let spares = prng.below(2) as usize;
        let drives: Vec<PathBuf> =
            (0..scheme.members() + spares).map(|at| above.path().join(format!("d{at}"))).collect();
        for drive in &drives {
            mock::add(drive, &mock::geometry(DRIVE_ZONES));
            mock::set_remote(drive);
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
        let volume = VolumeDrive::create(&directories[0], &new, &ring).expect("the members are suitable");
        for copy in &directories[1..] {
            fs::create_dir(copy).expect("there is space");
            fs::copy(directories[0].join(VOLUME_FILE), copy.join(VOLUME_FILE)).expect("there is space");
        }
        mock::add_wire(prng.fork("wire"), never_aborts);
        let mut programs: Vec<Program> = directories.into_iter().map(Program::new).collect();
        drop(volume);
        programs[0].note_place();
        let weights = act::swarm(&mut prng);
        let plan = Plan::generate(
            Prng::new(seed).fork("plan of owners"),
            ACTIONS,
            programs.len(),
            scheme.members(),
            usize::from(scheme.data),
            drives.len(),
        );
        let testbed = Testbed {
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
            protected: None,
            stays_paused: None,
            has_halves: scheme.members() <= 2 * usize::from(scheme.parity),
            last_members: Vec::new(),
            last_owner: None,
            served: Vec::new(),
            coverage: Coverage::default(),
            trace: vec![format!("{scheme}, {spares} spares")],
            failure: None,
            depth: 0,
            is_syncing: false,
        };
        let stage = Stage { testbed: Rc::new(RefCell::new(testbed)), ring: Rc::new(ring) };
        let (testbed, ring) = (Rc::downgrade(&stage.testbed), Rc::downgrade(&stage.ring));
        stage.ring.set_wait_hook(move |until| match (testbed.upgrade(), ring.upgrade()) {
            (Some(testbed), Some(ring)) => Stage { testbed, ring }.pass(until),
            _ => until,
        });
        Run { stage, _above: above }
    }

    pub(super) fn trace(&self) -> Vec<String> {
        self.stage.testbed.borrow().trace.clone()
    }

    pub(super) fn coverage(&self) -> Coverage {
        self.stage.testbed.borrow().coverage
    }

    /// Executes the run, and checks the invariants at the end.
    pub(super) fn execute(&mut self, actions: u32) -> Result<(), String> {
        self.stage.testbed.borrow_mut().actions_left = actions;
        while self.stage.testbed.borrow().actions_left > 0 {
            self.pass(Duration::from_secs(1))?;
        }
        self.end()
    }

    fn pass(&self, time: Duration) -> Result<(), String> {
        let until = self.stage.testbed.borrow().now + time;
        self.stage.pass(until);
        self.stage.testbed.borrow().failure.clone().map_or(Ok(()), Err)
    }

    /// Makes all drives work and reachable, takes the volume over, and checks its contents.
    fn end(&self) -> Result<(), String> {
        let stage = &self.stage;
        let programs = {
            let mut testbed = stage.testbed.borrow_mut();
            testbed.log("the end");
            for drive in std::mem::take(&mut testbed.failing) {
                mock::set_failing(&testbed.drives[drive], false);
            }
            for at in 0..testbed.programs.len() {
                testbed.reconnect(at);
                testbed.wake(at);
            }
            testbed.programs.len()
        };
        self.pass(QUIESCE_TIME)?;
        for at in 0..programs {
            stage.testbed.borrow_mut().stop(at);
        }
        self.pass(QUIESCE_TIME)?;
        for at in 0..programs {
            stage.testbed.borrow_mut().kill(at);
        }
        let mut last = stage.testbed.borrow_mut().prng.below(programs as u64) as usize;
        let take_over = |at, accepts_missing| {
            let taken = stage.take_over(at, accepts_missing);
            taken.map_err(|error| format!("the takeover at the end is refused: {error}"))
        };
        let is_mirror = stage.testbed.borrow().has_halves;
        let is_refused = |taken: &Result<(), DriveError>| taken.as_ref().is_err_and(is_insufficient);
        let mut taken = stage.take_over(last, false);
        // Its file may list other drives than the present members. The last owner lists them.
        if is_refused(&taken) {
            last = stage.testbed.borrow().last_owner.unwrap_or(last);
            taken = stage.take_over(last, false);
        }
        // Or it lists none for a member that is being rebuilt.
        if is_refused(&taken) {
            taken = stage.take_over(last, true);
        }
        taken.map_err(|error| format!("the takeover at the end is refused: {error}"))?;
        let mut mounted = stage.mount(last);
        // Its file may list other drives than the present members. The last owner lists them.
        if mounted.as_ref().is_err_and(|error| error.message.contains("missing or out of date")) {
            last = stage.testbed.borrow().last_owner.unwrap_or(last);
            take_over(last, false)?;
            mounted = stage.mount(last);
        }
        // Its file may list no drive for a member that is being rebuilt on one without a superblock
        // yet.
        if mounted.as_ref().is_err_and(is_about_missing) {
            take_over(last, true)?;
            mounted = stage.mount(last);
        }
        // An interrupted mount with half of a mirror, and one with the other half, leave two sides,
        // of which hosts saw at most one.
        if mounted.as_ref().is_err_and(|error| error.message.contains("split brain")) && is_mirror {
            let members = stage.testbed.borrow().last_members.first().cloned();
            // If no mount has succeeded, either side is valid. A member may have failed for its own
            // side.
            let any = || (0..stage.testbed.borrow().drives.len()).map(|member| member.to_string()).collect();
            for side in members.map_or_else(any, |side| vec![side]) {
                let accepted = VolumeOpenOptions { accepts_side: Some(side), ..VolumeOpenOptions::default() };
                mounted = stage.mount_with(last, &accepted);
                if mounted.is_ok() {
                    break;
                }
            }
        }
        mounted.map_err(|error| format!("the mount at the end is refused: {error}"))?;
        self.pass(QUIESCE_TIME)?;
        for round in 0..2 {
            for start in (0..HOST_BLOCKS).step_by(4) {
                let mut testbed = stage.testbed.borrow_mut();
                let value = (round == 1).then(|| testbed.next_value());
                testbed.ask(last, start, 4, value);
            }
            let before = self.coverage();
            self.pass(QUIESCE_TIME)?;
            let after = self.coverage();
            let ended = (after.reads - before.reads, after.writes - before.writes);
            if ended != if round == 0 { (HOST_BLOCKS / 4, 0) } else { (0, HOST_BLOCKS / 4) } {
                return Err(format!(
                    "at the end only {ended:?} (reads, writes) of the commands for {HOST_BLOCKS} blocks complete"
                ));
            }
        }
        Ok(())
    }
}
