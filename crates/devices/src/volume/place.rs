//! [`Place`]: where a device of a volume is, as `volume.toml` says it.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Credentials, Location};

/// In the place of a member of which it is not known where it is.
pub(super) const MISSING: &str = "missing";

/// Where a device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place {
    /// The directory of an image, or a URL.
    pub(super) at: String,
    /// Of a member: how it last was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<LastState>,
    /// Of a member that has failed: why it comes back by command only; absent where it comes back by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<WhyFailed>,
    /// The name under which to connect to its server; absent: one that is made of the volume's UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) host_nqn: Option<String>,
    /// Where the secret is that proves who connects. Paths are seen from the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) secret_file: Option<PathBuf>,
    /// Where the secret is that its server must prove to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) controller_secret_file: Option<PathBuf>,
}

/// Why a member that has failed comes back by command only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum WhyFailed {
    /// An operator has failed it.
    Command,
    /// It failed and came back, or stopped answering for a while, again and again.
    Flapping,
}

/// How a member last was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LastState {
    Active,
    Rebuilding,
    Failed,
    /// The device was accepted and may be wiped; no superblock names it yet.
    Joining,
}

impl Place {
    pub(super) fn new(at: String) -> Place {
        Place { at, state: None, failed: None, host_nqn: None, secret_file: None, controller_secret_file: None }
    }

    /// Whether the volume needs nothing of what a device in this place holds, as far as the file knows.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.state, Some(LastState::Failed | LastState::Joining))
    }

    /// With these credentials, for a volume in `directory`. An image needs none.
    pub(super) fn with_credentials(self, directory: &Path, credentials: &Credentials) -> Place {
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

    pub(super) fn credentials(&self, directory: &Path) -> Credentials {
        let seen = |path: &Option<PathBuf>| path.as_deref().map(|path| plain(&directory.join(path)));
        Credentials {
            host_nqn: self.host_nqn.clone(),
            secret_file: seen(&self.secret_file),
            controller_secret_file: seen(&self.controller_secret_file),
        }
    }

    /// The place of a member of which it is not known where it is.
    pub(super) fn missing() -> Place {
        Place::new(MISSING.to_owned())
    }
}

/// How a location is written in the file of a volume in this directory.
pub(super) fn place_in(directory: &Path, location: &Location) -> Place {
    match location {
        Location::Image(path) => Place::new(path_in(directory, path).display().to_string()),
        Location::NvmeTcp(_) => Place::new(location.to_string()),
    }
}

/// How a path is written in the file of a volume in this directory.
fn path_in(directory: &Path, path: &Path) -> PathBuf {
    let absolute = |path: &Path| plain(&std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    let (whole, own) = (absolute(path), absolute(directory));
    let beside = own.parent().and_then(|above| whole.strip_prefix(above).ok());
    beside.map_or(whole.clone(), |rest| Path::new("..").join(rest))
}

/// A path without `a/..` and `.` in it.
pub(super) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        let is_name = matches!(plain.components().next_back(), Some(Component::Normal(_)));
        match part {
            Component::CurDir => {}
            Component::ParentDir if is_name => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}
