//! [`Access`]: where a namespace is, and what to tell its server; and the files in which secrets are.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zonda_chap::Secret;
use zonda_initiator::Preempts;
use zonda_nvme::Nqn;

use crate::{DriveError, Location, NamespaceOptions};

/// Permissions of the group and of all others.
pub(crate) const OF_OTHERS: u32 = 0o077;
/// A key or a certificate has some kilobytes.
const KEY_BYTES_MAX: u64 = 1 << 20;

/// Who connects to a server, and the files that prove it. Secrets themselves are in none of zonda's files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Credentials {
    /// The host NQN; absent: one that is made of what connects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_nqn: Option<String>,
    /// A file with the secret that proves who connects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// A file with the secret that the server must prove to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_secret_file: Option<PathBuf>,
}

/// A namespace that is to be opened.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) location: Location,
    /// For a namespace of a server.
    pub(crate) options: NamespaceOptions,
}

impl Access {
    /// A claim takes the namespace from whoever has it.
    pub(crate) fn preempt_everybody(&mut self) {
        self.options.claim.iter_mut().for_each(|claim| claim.preempts = Preempts::Everybody);
    }
}

impl Credentials {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Credentials::default()
    }

    /// Options with what the files hold.
    ///
    /// # Errors
    /// When a name is none, or a file cannot be read, holds no secret, or may be opened by others than its owner.
    pub fn options(&self) -> Result<NamespaceOptions, DriveError> {
        let host_nqn = self.host_nqn.as_deref().map(|name| {
            Nqn::new(name).map_err(|reason| {
                DriveError::new(
                    format!("\"{name}\" is no NVMe Qualified Name: {reason}"),
                    "write it like \"nqn.2014-08.org.nvmexpress:uuid:...\"; /etc/nvme/hostnqn has this machine's",
                )
            })
        });
        Ok(NamespaceOptions {
            host_nqn: host_nqn.transpose()?,
            secret: self.secret_file.as_deref().map(read_secret).transpose()?,
            controller_secret: self.controller_secret_file.as_deref().map(read_secret).transpose()?,
            ..NamespaceOptions::default()
        })
    }
}

/// The secret in a file.
///
/// # Errors
/// When it cannot be read, holds no secret, or may be opened by others than its owner.
pub fn read_secret(path: &Path) -> Result<Secret, DriveError> {
    let shown = path.display();
    let text = read_key(path).map_err(|reason| {
        DriveError::new(
            format!("{shown} is not read: {reason}"),
            "name a file that holds one line, DHHC-1:..., and that only its owner may read",
        )
    })?;
    Secret::parse(text.trim())
        .map_err(|reason| DriveError::new(format!("{shown} holds no secret: {reason}"), "zonda secret makes one"))
}

/// The text of a file that holds a secret or a private key.
///
/// # Errors
/// In a few words, when it cannot be read, or others than its owner may read or change it.
pub fn read_key(path: &Path) -> Result<String, String> {
    let in_words = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    let metadata = fs::metadata(path).map_err(in_words)?;
    if metadata.is_dir() {
        return Err("it is a directory".to_owned());
    }
    if metadata.is_file() && metadata.mode() & OF_OTHERS != 0 {
        let mode = metadata.mode() & 0o7777;
        return Err(format!("others may open it (mode {mode:04o}): chmod 600 {}", path.display()));
    }
    let mut text = String::new();
    let file = File::open(path).map_err(in_words)?;
    file.take(KEY_BYTES_MAX).read_to_string(&mut text).map_err(in_words)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_that_others_may_read_is_refused_and_never_shown() {
        let directory = tempfile::TempDir::new().expect("there is room");
        let path = directory.path().join("key");
        let secret = Secret::generate(None, [7; 64]);
        fs::write(&path, format!("{}\n", secret)).expect("there is room");
        let credentials = Credentials { secret_file: Some(path.clone()), ..Credentials::default() };
        for (mode, is_taken) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            assert_eq!(credentials.options().is_ok(), is_taken, "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        let options = credentials.options().expect("it is private");
        assert!(options.secret == Some(secret), "it is the one in the file");
        assert!(!format!("{options:?}").contains("DHHC-1"), "secrets are not shown");
    }

    #[test]
    fn each_thing_that_is_wrong_with_credentials_has_its_own_words() {
        let directory = tempfile::TempDir::new().expect("there is room");
        let missing = Some(directory.path().join("none"));
        for (credentials, words) in [
            (Credentials { host_nqn: Some("me".to_owned()), ..Credentials::default() }, "no NVMe Qualified Name"),
            (Credentials { secret_file: missing.clone(), ..Credentials::default() }, "there is no such file"),
            (Credentials { controller_secret_file: missing, ..Credentials::default() }, "there is no such file"),
            (
                Credentials { secret_file: Some(directory.path().to_owned()), ..Credentials::default() },
                "it is a directory",
            ),
        ] {
            let error = credentials.options().expect_err(words);
            assert!(error.message.contains(words), "{error}");
        }
    }
}
