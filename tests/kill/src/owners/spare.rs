//! Two volumes with the same spare, which another server exports: never both may use it.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use zonda_zoned::Prng;

use super::client::{Client, Task};
use super::must_stop;
use super::site::{Drives, Side, VOLUME, create_image, side};
use crate::loss::{Loss, RunError};
use crate::oracle::{Floor, PlainHistory};
use crate::server::{Launcher, Server};
use crate::stamp::Stamper;
use crate::verify;

/// Blocks that hosts write.
const BLOCKS: u64 = 1024;
const STEPS: u64 = 8;
const LOAD_MS_MAX: u64 = 200;
const REBUILD_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// A mirror of two local images, with the spare.
struct Mirror {
    side: Side,
    server: Option<Server>,
    has_failed: bool,
    stamper: Stamper,
    history: PlainHistory,
    loads: u32,
}

/// Starts, stops and kills both, and fails a member of each, in random order. Returns how many
/// blocks were verified.
///
/// # Errors
/// The losses, or why the round failed.
pub(super) fn round(
    launcher: &Launcher,
    seed: u64,
    round: u32,
    prng: &mut Prng,
    log: &mut Vec<String>,
) -> Result<u64, RunError> {
    let folder = format!("spare{round}");
    let drives = Drives::create(launcher, &format!("{folder}/drives"), &["s"])?;
    let mut mirrors = Vec::new();
    for name in ["one", "two"] {
        mirrors.push(Mirror::create(launcher, &format!("{folder}/{name}"), &drives.url("s"), seed)?);
    }
    for _ in 0..STEPS {
        let which = prng.below(2) as usize;
        let what = mirrors[which].step(prng)?;
        log.push(format!("{} {what}", ["one", "two"][which]));
    }
    for mirror in &mut mirrors {
        mirror.server.take().map_or(Ok(()), Server::kill)?;
    }
    let users = mirrors.iter().map(|mirror| mirror.uses(&drives.url("s"))).collect::<Result<Vec<bool>, RunError>>()?;
    let names = ["one", "two"].into_iter().zip(&users).filter(|(_, uses)| **uses).map(|(name, _)| name);
    let names: Vec<&str> = names.collect();
    log.push(format!("spare used by {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") }));
    if users == [true, true] {
        return Err(RunError::lost(Loss::new("a spare of two volumes", "used by one of them", "used by both")));
    }
    let mut verified = 0;
    for (mirror, uses) in mirrors.iter_mut().zip(users) {
        verified += mirror.verify(uses, prng)?;
    }
    drop(drives);
    // Its files are not needed any more.
    let _ = fs::remove_dir_all(launcher.directory.join(&folder));
    Ok(verified)
}

impl Mirror {
    fn create(launcher: &Launcher, folder: &str, spare: &str, seed: u64) -> Result<Mirror, RunError> {
        let side = side(launcher, folder)?;
        for image in ["m0", "m1"] {
            create_image(&side.launcher, image)?;
        }
        let create = ["volume", "create", VOLUME, "--members", "m0,m1", "--level", "1", "--spare", spare];
        side.launcher.run(&create)?;
        let (stamper, history) = (Stamper::new(seed, folder), PlainHistory::new(BLOCKS));
        Ok(Mirror { side, server: None, has_failed: false, stamper, history, loads: 0 })
    }

    fn step(&mut self, prng: &mut Prng) -> Result<&'static str, RunError> {
        let Some(server) = self.server.take() else {
            self.start()?;
            self.load(prng)?;
            return Ok("starts");
        };
        match prng.below(4) {
            0 => server.kill().map(|()| "is killed"),
            1 => must_stop(server).map(|()| "is stopped"),
            _ => {
                self.server = Some(server);
                if self.has_failed {
                    self.load(prng)?;
                    return Ok("has load");
                }
                self.has_failed = true;
                self.side.launcher.run(&["member", "fail", VOLUME, "0"])?;
                Ok("fails a member")
            }
        }
    }

    fn start(&mut self) -> Result<(), RunError> {
        let refused = |said| RunError::lost(Loss::new("start of a volume with a spare of two", "a server", said));
        self.server = Some(self.side.serve()?.map_err(refused)?);
        Ok(())
    }

    fn load(&mut self, prng: &mut Prng) -> Result<(), RunError> {
        self.loads += 1;
        let client = Client::start(Task {
            url: self.side.url(prng.chance(1, 2)),
            history: self.history.clone(),
            unwritten: (BLOCKS, BLOCKS),
            stamper: self.stamper.clone(),
            prng: prng.fork(&format!("host/{}", self.loads)),
            number: self.loads,
            queue_depth: 4,
        })?;
        sleep(Duration::from_millis(prng.below(LOAD_MS_MAX)));
        client.quiesce();
        self.history = client.join()?.history;
        Ok(())
    }

    /// Whether `volume.toml` names the spare as a member.
    fn uses(&self, spare: &str) -> Result<bool, RunError> {
        let file = self.side.launcher.directory.join(VOLUME).join("volume.toml");
        let text =
            fs::read_to_string(&file).map_err(|error| RunError::Failed(format!("{}: {error}", file.display())))?;
        Ok(text.split("[[").any(|part| part.starts_with("member]]") && part.contains(spare)))
    }

    /// Verifies all data; with the spare, also when it is the only member left.
    fn verify(&mut self, uses_spare: bool, prng: &mut Prng) -> Result<u64, RunError> {
        self.start()?;
        if uses_spare {
            let deadline = Instant::now() + REBUILD_TIMEOUT;
            let mut status = self.side.status()?;
            while status["state"] != "healthy" {
                if Instant::now() > deadline {
                    return Err(RunError::lost(Loss::new("rebuild of a spare", "state well within 60 s", status)));
                }
                sleep(POLL);
                status = self.side.status()?;
            }
            self.side.launcher.run(&["member", "fail", VOLUME, "1"])?;
        }
        let url = self.side.url(prng.chance(1, 2));
        let verified = verify::volume(&url, &self.stamper, &mut self.history, Floor::Acknowledged, false)?;
        self.server.take().map_or(Ok(()), must_stop)?;
        Ok(verified.blocks)
    }
}
