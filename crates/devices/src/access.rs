//! [`Access`]: where a namespace is, and how to connect to its server; and the files that hold secrets.

mod text_file;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zonda_chap::Secret;
use zonda_initiator::Preempts;
use zonda_nvme::{Nqn, NqnError};

pub use text_file::{TextError, TextSource, read_text, text_of};

use crate::{DriveError, Location, NamespaceOptions};

/// Permission bits of group and others.
pub(crate) const OF_OTHERS: u32 = 0o077;
/// Bytes of the largest key file: keys and certificates have some kilobytes.
const KEY_BYTES_MAX: u64 = 1 << 20;

/// The host NQN with which to connect to a server, and the files with the secrets for in-band
/// authentication. The secrets themselves are in none of zonda's files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Credentials {
    /// The host NQN; absent: one is derived or generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_nqn: Option<String>,
    /// A file with the secret that authenticates the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// A file with the secret that authenticates the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_secret_file: Option<PathBuf>,
}

/// A namespace to be opened.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) location: Location,
    /// How to connect, for a namespace of a server.
    pub(crate) options: NamespaceOptions,
}

impl Access {
    /// Makes the claim preempt any reservation holder.
    pub(crate) fn preempt_everybody(&mut self) {
        self.options.claim.iter_mut().for_each(|claim| claim.preempts = Preempts::AnyHost);
    }
}

impl Credentials {
    /// Whether no credentials are given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Credentials::default()
    }

    /// Checks the form of a host NQN that a user gives. One that is stored may have another.
    ///
    /// # Errors
    /// The NQN has no date and domain, or no UUID, where these must be.
    pub fn check_host_nqn(&self) -> Result<(), DriveError> {
        self.host_nqn.as_deref().map_or(Ok(()), |name| valid(name, Nqn::well_formed(name)).map(drop))
    }

    /// The connection options with the secrets read from the files.
    ///
    /// # Errors
    /// When the NQN is invalid, or a file cannot be read, holds no secret, or is accessible to
    /// group or others.
    pub fn options(&self) -> Result<NamespaceOptions, DriveError> {
        let host_nqn = self.host_nqn.as_deref().map(|name| valid(name, Nqn::new(name)));
        Ok(NamespaceOptions {
            host_nqn: host_nqn.transpose()?,
            secret: self.secret_file.as_deref().map(read_secret).transpose()?,
            controller_secret: self.controller_secret_file.as_deref().map(read_secret).transpose()?,
            ..NamespaceOptions::default()
        })
    }
}

fn valid(name: &str, checked: Result<Nqn, NqnError>) -> Result<Nqn, DriveError> {
    checked.map_err(|reason| {
        DriveError::new(
            format!("\"{name}\" is not a valid NQN: {reason}"),
            "write it like \"nqn.2014-08.org.nvmexpress:uuid:UUID\"; /etc/nvme/hostnqn has this machine's",
        )
    })
}

/// Reads the secret in a file.
///
/// # Errors
/// When the file cannot be read, holds no secret, or is accessible to group or others.
pub fn read_secret(path: &Path) -> Result<Secret, DriveError> {
    let shown = path.display();
    let text = read_key(path).map_err(|reason| {
        DriveError::new(
            format!("cannot read {shown}: {reason}"),
            "name a file that holds one line, DHHC-1:..., and that only its owner can read",
        )
    })?;
    Secret::parse(text.trim())
        .map_err(|reason| DriveError::new(format!("{shown} holds no secret: {reason}"), "generate one: zonda secret"))
}

/// Reads a file that holds a secret or a private key.
///
/// # Errors
/// The reason, when the file cannot be read, is too long, or is accessible to group or others.
pub fn read_key(path: &Path) -> Result<String, String> {
    let metadata = fs::metadata(path).map_err(|error| TextError::from(error).to_string())?;
    if metadata.is_file() && metadata.mode() & OF_OTHERS != 0 {
        let mode = metadata.mode() & 0o7777;
        return Err(format!("accessible to group or others (mode {mode:04o}): chmod 600 {}", path.display()));
    }
    read_text(path, KEY_BYTES_MAX, TextSource::FileOrPipe).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_that_others_can_read_is_refused_and_never_printed() {
        let directory = tempfile::TempDir::new().expect("there is space");
        let path = directory.path().join("key");
        let secret = Secret::generate(None, [7; 64]);
        fs::write(&path, format!("{}\n", secret)).expect("there is space");
        let credentials = Credentials { secret_file: Some(path.clone()), ..Credentials::default() };
        for (mode, is_accepted) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the file is ours");
            assert_eq!(credentials.options().is_ok(), is_accepted, "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the file is ours");
        let options = credentials.options().expect("it is private");
        assert!(options.secret == Some(secret), "it is the one in the file");
        assert!(!format!("{options:?}").contains("DHHC-1"), "secrets are not printed");
    }

    #[test]
    fn each_error_in_credentials_has_its_own_message() {
        let directory = tempfile::TempDir::new().expect("there is space");
        let missing = Some(directory.path().join("none"));
        for (credentials, words) in [
            (Credentials { host_nqn: Some("me".to_owned()), ..Credentials::default() }, "not a valid NQN"),
            (Credentials { secret_file: missing.clone(), ..Credentials::default() }, "no such file"),
            (Credentials { controller_secret_file: missing, ..Credentials::default() }, "no such file"),
            (
                Credentials { secret_file: Some(directory.path().to_owned()), ..Credentials::default() },
                "is a directory",
            ),
        ] {
            let error = credentials.options().expect_err(words);
            assert!(error.message.contains(words), "{error}");
        }
    }
}
