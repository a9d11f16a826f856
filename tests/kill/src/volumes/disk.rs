//! The directories of a volume and its members.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::level::Level;
use super::remote::Remote;
use crate::loss::RunError;
use crate::server::Launcher;
use crate::space::Space;

/// The directory of the volume.
pub(super) const VOLUME: &str = "vol";
const SPACE: &str = "tmpfs";
/// More than the size of a member.
const SPACE_MIB: u32 = 160;
const ZONES: &str = "24";

/// The directories of the members of a volume.
#[derive(Debug)]
pub(super) struct Disk {
    root: PathBuf,
    /// Images of the members in order, relative to the root; the URL of a remote one.
    members: Vec<String>,
    away: BTreeSet<usize>,
    made: u32,
    /// The file system of the first member.
    space: Option<Space>,
    /// Why it has none.
    skipped: Option<String>,
    /// The last member, if it is exported by a server.
    remote: Option<Remote>,
}

impl Disk {
    /// Creates the members and the volume, replacing existing ones. With a seed the last of several
    /// members is remote.
    ///
    /// # Errors
    /// When that fails.
    pub(super) fn create(launcher: &Launcher, level: Level, remote: Option<u64>) -> Result<Disk, RunError> {
        let root = launcher.directory.clone();
        let (space, skipped) = match Space::mount(&root.join(SPACE), SPACE_MIB) {
            Ok(space) => (Some(space), None),
            Err(error) => (None, Some(format!("cannot mount a tmpfs: {error}"))),
        };
        let remote = remote.filter(|_| level.members() > 1);
        let remote = remote.map(|seed| Remote::create(launcher, seed)).transpose()?;
        let mut disk = Disk { root, members: Vec::new(), away: BTreeSet::new(), made: 0, space, skipped, remote };
        for member in 0..level.members() {
            let image = match (&disk.space, &disk.remote) {
                (Some(_), _) if member == 0 => create(launcher, format!("{SPACE}/first"))?,
                (_, Some(remote)) if member + 1 == level.members() => remote.url(),
                _ => disk.create_image(launcher)?,
            };
            disk.members.push(image);
        }
        let members = disk.members.join(",");
        let create = ["volume", "create", VOLUME, "--members", &members, "--level", level.name()];
        launcher.run(&[&create[..], &["--scrub-rate", "2GiB/s"]].concat())?;
        Ok(disk)
    }

    /// Creates an image that belongs to no volume.
    ///
    /// # Errors
    /// When that fails.
    pub(super) fn create_image(&mut self, launcher: &Launcher) -> Result<String, RunError> {
        self.made += 1;
        create(launcher, format!("m{}", self.made))
    }

    /// The index of the remote member, while it is a member.
    pub(super) fn remote(&self) -> Option<usize> {
        let url = self.remote.as_ref()?.url();
        self.members.iter().position(|name| *name == url)
    }

    /// The remote member, to inject a fault.
    pub(super) fn remote_mut(&mut self) -> Option<&mut Remote> {
        self.remote()?;
        self.remote.as_mut()
    }

    /// Changes the files of a member while no program uses them.
    ///
    /// # Errors
    /// When the server of a remote one cannot be killed or started.
    pub(super) fn with_files<T>(&mut self, member: usize, change: impl FnOnce(&Path) -> T) -> Result<T, RunError> {
        if self.remote() != Some(member) {
            let name = &self.members[member];
            return Ok(change(&self.root.join(if self.away.contains(&member) { away(name) } else { name.clone() })));
        }
        let is_away = self.away.contains(&member);
        let remote = self.remote.as_mut().expect("it is a member");
        remote.stop()?;
        let changed = change(&remote.path());
        if !is_away {
            remote.start_if_possible()?;
        }
        Ok(changed)
    }

    /// Moves a member's directory away, or stops its server; returns whether it was in place.
    ///
    /// # Errors
    /// When it cannot be moved.
    pub(super) fn move_away(&mut self, member: usize) -> Result<bool, RunError> {
        if self.away.contains(&member) {
            return Ok(false);
        }
        if self.remote() == Some(member) {
            self.remote.as_mut().map_or(Ok(()), Remote::stop)?;
        } else {
            let name = &self.members[member];
            rename(&self.root.join(name), &self.root.join(away(name)))?;
        }
        self.away.insert(member);
        Ok(true)
    }

    /// Moves directories back.
    ///
    /// # Errors
    /// When one cannot be moved.
    pub(super) fn move_back(&mut self) -> Result<usize, RunError> {
        let moved = std::mem::take(&mut self.away);
        for &member in &moved {
            if self.remote() == Some(member) {
                self.remote.as_mut().map_or(Ok(()), Remote::start_if_possible)?;
                continue;
            }
            let name = &self.members[member];
            rename(&self.root.join(away(name)), &self.root.join(name))?;
        }
        Ok(moved.len())
    }

    /// Members whose directories are away.
    pub(super) fn away(&self) -> &BTreeSet<usize> {
        &self.away
    }

    /// Rereads the locations of the members from `volume.toml`: one may have been replaced.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn refresh(&mut self) -> Result<(), RunError> {
        let text = fs::read_to_string(self.root.join(VOLUME).join("volume.toml")).map_err(|error| failed(&error))?;
        let members: Vec<String> = members_in(&text).map(str::to_owned).collect();
        if members.len() != self.members.len() {
            return Err(RunError::Failed(format!("volume.toml has {} members", members.len())));
        }
        // A directory that was moved away returns under its old name.
        for (member, name) in members.into_iter().enumerate().filter(|(member, _)| !self.away.contains(member)) {
            self.members[member] = name;
        }
        Ok(())
    }

    /// Removes images that are not members any more.
    pub(super) fn remove_unused(&self) {
        for image in (1..=self.made).map(|number| format!("m{number}")).filter(|name| !self.members.contains(name)) {
            // It may have been removed before.
            let _ = fs::remove_dir_all(self.root.join(&image));
        }
    }

    /// No volume in this directory.
    pub(super) fn empty(root: &Path) -> Disk {
        let (members, away) = (Vec::new(), BTreeSet::new());
        Disk { root: root.to_owned(), members, away, made: 0, space: None, skipped: None, remote: None }
    }

    /// The file system of the first member, while it is a member.
    pub(super) fn space(&self) -> Option<&Space> {
        self.space.as_ref().filter(|_| self.members.iter().any(|name| name.starts_with(SPACE)))
    }

    /// Why there is no file system to fill, if so.
    pub(super) fn skipped(&self) -> Option<&str> {
        self.skipped.as_deref()
    }

    /// Copies the contents of the file system that is unmounted with this program.
    pub(super) fn keep(&self) {
        if let Some(space) = &self.space {
            space.keep();
        }
    }

    /// Removes all of it.
    ///
    /// # Errors
    /// When a directory cannot be removed.
    pub(super) fn remove(mut self) -> Result<(), RunError> {
        self.space = None;
        self.remote = None;
        for entry in fs::read_dir(&self.root).map_err(|error| failed(&error))?.flatten() {
            if entry.path().is_dir() {
                fs::remove_dir_all(entry.path()).map_err(|error| failed(&error))?;
            }
        }
        Ok(())
    }
}

/// Creates an image with this name.
///
/// # Errors
/// When the program refuses.
pub(super) fn create(launcher: &Launcher, image: String) -> Result<String, RunError> {
    let create = ["drive", "create", &image, "--profile", "zn540-zapraid", "--zones", ZONES, "--zone-capacity", "4MiB"];
    launcher.run(&create)?;
    Ok(image)
}

/// The locations of the members, from the text of `volume.toml`.
fn members_in(text: &str) -> impl Iterator<Item = &str> {
    let mut is_member = false;
    text.lines().filter_map(move |line| {
        if line.starts_with('[') {
            is_member = line == "[[member]]";
        }
        let at = line.strip_prefix("at = \"").filter(|_| is_member)?.trim_end_matches('"');
        Some(at.strip_prefix("../").unwrap_or(at))
    })
}

fn away(name: &str) -> String {
    format!("{name}.away")
}

fn rename(from: &Path, to: &Path) -> Result<(), RunError> {
    fs::rename(from, to).map_err(|error| RunError::Failed(format!("{}: {error}", from.display())))
}

fn failed(error: &std::io::Error) -> RunError {
    RunError::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_those_of_volume_toml_and_not_its_spares() {
        let text = "name = \"vol\"\n[[member]]\nat = \"../m1\"\nstate = \"active\"\n[[spare]]\nat = \"../m3\"\n[[member]]\nat = \"../tmpfs/first\"\n[[member]]\nat = \"nvme-tcp://127.0.0.1:4420/nqn.2026-01.io.zonda:last\"";
        let last = "nvme-tcp://127.0.0.1:4420/nqn.2026-01.io.zonda:last";
        assert_eq!(members_in(text).collect::<Vec<_>>(), ["m1", "tmpfs/first", last]);
    }
}
