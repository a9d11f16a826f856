//! [`Place`]: the entry of a device in `volume.toml`.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Credentials, Location};

/// The location of a member whose location is not known.
pub(super) const MISSING: &str = "missing";

/// The entry of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    /// The directory of an image, or a URL.
    pub(crate) at: String,
    /// For a member: its last known state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<LastState>,
    /// For a failed member: why it is re-added by command only; absent if it is re-added
    /// automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<WhyFailed>,
    /// The host NQN with which to connect to its server; absent: one that is derived from the UUID
    /// of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) host_nqn: Option<String>,
    /// The file with the secret that authenticates the host. Paths are relative to the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) secret_file: Option<PathBuf>,
    /// The file with the secret that authenticates the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) controller_secret_file: Option<PathBuf>,
    /// The directory of the file that has this entry, as this process names it.
    #[serde(skip)]
    pub(super) base: Base,
}

/// A directory that does not distinguish entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Base(Option<PathBuf>);

impl PartialEq for Base {
    fn eq(&self, _: &Base) -> bool {
        true
    }
}

impl Eq for Base {}

/// Why a failed member is re-added by command only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WhyFailed {
    /// An operator has failed it.
    Command,
    /// It failed and came back, or stopped responding, repeatedly.
    Flapping,
}

/// The last known state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LastState {
    Active,
    Rebuilding,
    Failed,
    /// The device was accepted and may be wiped; it is in no superblock yet.
    Joining,
}

impl Place {
    pub(crate) fn new(at: String) -> Place {
        Place {
            at,
            state: None,
            failed: None,
            host_nqn: None,
            secret_file: None,
            controller_secret_file: None,
            base: Base::default(),
        }
    }

    /// This entry as that of the file in `directory`, from which its path is relative.
    pub(crate) fn in_directory(self, directory: &Path) -> Place {
        Place { base: Base(Some(directory.to_owned())), ..self }
    }

    /// The location for messages: a path is relative to the current directory, as a user can type it.
    pub(crate) fn shown(&self) -> String {
        self.base.0.as_deref().map_or_else(|| self.at.clone(), |directory| shown_place(directory, &self.at))
    }

    /// Whether the volume does not need the contents of the device, according to the file.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.state, Some(LastState::Failed | LastState::Joining))
    }

    /// Adds credentials, for a volume in `directory`. An image needs none.
    pub(crate) fn with_credentials(self, directory: &Path, credentials: &Credentials) -> Place {
        if !matches!(self.at.parse(), Ok(Location::NvmeTcp(_))) {
            return self;
        }
        let written = |path: &Option<PathBuf>| path.as_deref().map(|path| path_in(directory, path));
        Place {
            host_nqn: credentials.host_nqn.clone(),
            secret_file: written(&credentials.secret_file),
            controller_secret_file: written(&credentials.controller_secret_file),
            ..self
        }
    }

    pub(crate) fn credentials(&self, directory: &Path) -> Credentials {
        let seen = |path: &Option<PathBuf>| path.as_deref().map(|path| plain(&directory.join(path)));
        Credentials {
            host_nqn: self.host_nqn.clone(),
            secret_file: seen(&self.secret_file),
            controller_secret_file: seen(&self.controller_secret_file),
        }
    }

    /// The entry of a member whose location is not known.
    pub(super) fn missing() -> Place {
        Place::new(MISSING.to_owned())
    }
}

/// The entry for a location in the file of a volume in this directory.
pub(crate) fn place_in(directory: &Path, location: &Location) -> Place {
    let at = match location {
        Location::Image(path) => path_in(directory, path).display().to_string(),
        Location::Device(_) | Location::NvmeTcp(_) => location.to_string(),
    };
    Place::new(at).in_directory(directory)
}

/// The location `at` of a drive as a user can type it, where `at` stands in the file of the volume or
/// pool in `directory`, and `directory` is relative to the current directory.
#[must_use]
pub fn shown_place(directory: &Path, at: &str) -> String {
    match at.parse() {
        Ok(Location::Image(path)) if at != MISSING => plain(&directory.join(path)).display().to_string(),
        _ => at.to_owned(),
    }
}

/// A path as written in the file of a volume in this directory.
fn path_in(directory: &Path, path: &Path) -> PathBuf {
    let absolute = |path: &Path| plain(&std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    let (mut whole, mut own) = (absolute(path), absolute(directory));
    if let (true, Ok(real)) = (own.is_symlink(), own.canonicalize()) {
        // Its `..` is the parent of the real directory.
        own = real;
        let parent = whole.parent().and_then(|parent| parent.canonicalize().ok());
        if let (Some(parent), Some(name)) = (parent, whole.file_name()) {
            whole = parent.join(name);
        }
    }
    let beside = own.parent().and_then(|above| whole.strip_prefix(above).ok());
    beside.map_or(whole.clone(), |rest| Path::new("..").join(rest))
}

/// Removes `.` from a path, and `a/..` unless `a` is a symbolic link: `..` is then in the real
/// directory.
pub(crate) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        let is_name = matches!(plain.components().next_back(), Some(Component::Normal(_)));
        match part {
            Component::CurDir => {}
            Component::ParentDir if is_name && !plain.is_symlink() => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_real_directory_where_it_is_a_symbolic_link() {
        let above = tempfile::tempdir().expect("there is space");
        let real = above.path().canonicalize().expect("it exists");
        for name in ["vol", "a", "links"] {
            std::fs::create_dir(real.join(name)).expect("there is space");
        }
        let link = real.join("links/vol");
        std::os::unix::fs::symlink("../vol", &link).expect("there is space");
        let shown = shown_place(&link, "../a");
        assert_eq!(shown, format!("{}/../a", link.display()), "a path that the system resolves");
        assert_eq!(Path::new(&shown).canonicalize().expect("it exists"), real.join("a"));
        assert_eq!(shown_place(&real.join("links"), "../a"), real.join("a").display().to_string());
        let written = |directory: &Path, path: PathBuf| place_in(directory, &Location::Image(path)).at;
        assert_eq!(written(&link, real.join("a")), "../a");
        let beside_link = real.join("links/b");
        assert_eq!(written(&link, beside_link.clone()), "../links/b");
        assert_eq!(written(&real.join("links/other"), beside_link), "../b");
    }

    #[test]
    fn a_path_is_shown_as_a_user_can_type_it() {
        for (directory, at, shown) in [
            ("vol", "../drives/a", "drives/a"),
            ("./vol", "../drives/a", "drives/a"),
            ("vols/v", "../../drives/a", "drives/a"),
            ("vols/v", "../d", "vols/d"),
            (".", "../drives/a", "../drives/a"),
            ("../vol", "../drives/a", "../drives/a"),
            ("/srv/vol", "../drives/a", "/srv/drives/a"),
            ("vol", "/drives/a", "/drives/a"),
            ("vol", MISSING, MISSING),
            ("vol", "/dev/nvme0n1", "/dev/nvme0n1"),
            ("vol", "nvme-tcp://h:4420/nqn.2026-01.io.zonda:a", "nvme-tcp://h:4420/nqn.2026-01.io.zonda:a"),
        ] {
            assert_eq!(shown_place(Path::new(directory), at), shown, "{directory} {at}");
            assert_eq!(Place::new(at.to_owned()).in_directory(Path::new(directory)).shown(), shown);
        }
        assert_eq!(Place::new("../a".to_owned()).shown(), "../a", "without a directory, as in the file");
    }
}
