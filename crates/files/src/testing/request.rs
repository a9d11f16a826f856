//! Requests as data, and their random generation.

use std::fmt;

use bytes::Bytes;
use zonda_zoned::Prng;

use super::Model;
use crate::Lifetime;

/// A request of a client to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Create a file.
    Create {
        /// Its name.
        name: String,
        /// The expected lifetime of its data.
        lifetime: Lifetime,
    },
    /// Append data to a file.
    Append {
        /// Its name.
        name: String,
        /// The data, random, so that they are unique.
        data: Bytes,
    },
    /// Make a file durable.
    Sync {
        /// Its name.
        name: String,
    },
    /// Make a file durable, and accept no more appends.
    Close {
        /// Its name.
        name: String,
    },
    /// Read from a file.
    Read {
        /// Its name.
        name: String,
        /// The first byte.
        offset_bytes: u64,
        /// The number of bytes, possibly beyond the end of the file.
        bytes: u32,
    },
    /// Delete a file, which need not exist.
    Delete {
        /// Its name.
        name: String,
    },
    /// Rename a file, and delete an existing file of the new name.
    Rename {
        /// Its name.
        from: String,
        /// The new name.
        to: String,
    },
}

/// The distribution of random requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Names of files; few, so that they are reused.
    pub names: Vec<String>,
    /// The weight of each kind of request, in the order of [`Request`].
    pub weights: [u64; 7],
    /// A tenth of the appends have up to this many bytes, the others up to 3,000, some 0.
    pub append_bytes_max: u64,
}

impl Default for Mix {
    fn default() -> Mix {
        Mix {
            names: ["a", "b", "c", "dir/d", "e.sst", "f", "g", "h", "i", "j"].map(str::to_owned).into(),
            weights: [5, 9, 2, 2, 2, 3, 1],
            append_bytes_max: 20_000,
        }
    }
}

impl Mix {
    /// The kinds of requests, in the order of the weights.
    pub const KINDS: [&'static str; 7] = ["create", "append", "sync", "close", "read", "delete", "rename"];

    /// A random request: mostly for existing files, and appends mostly to open files.
    ///
    /// # Panics
    /// If there are no names, or all weights are 0.
    pub fn random_request(&self, model: &Model, prng: &mut Prng) -> Request {
        let mut lot = prng.below(self.weights.iter().sum());
        let mut kind = 0;
        while lot >= self.weights[kind] {
            lot -= self.weights[kind];
            kind += 1;
        }
        let any = |prng: &mut Prng| prng.pick(&self.names).expect("there are names").clone();
        let takes_data = matches!(kind, 1..=3);
        let existing: Vec<&str> = model.names(takes_data && !prng.chance(1, 8)).collect();
        let name =
            if kind == 0 || prng.chance(1, 12) { None } else { prng.pick(&existing).map(|name| (*name).to_owned()) };
        let name = name.unwrap_or_else(|| any(prng));
        match kind {
            0 => Request::Create { name, lifetime: Lifetime::ALL[prng.below(6) as usize] },
            1 => Request::Append { name, data: self.random_data(prng) },
            2 => Request::Sync { name },
            3 => Request::Close { name },
            4 => {
                let length = model.len_bytes(&name);
                let (offset_bytes, bytes) = (prng.below(length + 10), prng.below(length + 100) as u32);
                Request::Read { name, offset_bytes, bytes }
            }
            5 => Request::Delete { name },
            _ => Request::Rename { from: name, to: any(prng) },
        }
    }

    fn random_data(&self, prng: &mut Prng) -> Bytes {
        let length = match prng.below(10) {
            0 => 0,
            1..5 => prng.below(300),
            5..9 => prng.below(3000),
            _ => prng.below(self.append_bytes_max.max(1)),
        } as usize;
        let mut data = Vec::with_capacity(length + 8);
        while data.len() < length {
            data.extend_from_slice(&prng.next_u64().to_le_bytes());
        }
        data.truncate(length);
        data.into()
    }
}

impl Request {
    /// The name of its file.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Request::Create { name, .. }
            | Request::Append { name, .. }
            | Request::Sync { name }
            | Request::Close { name }
            | Request::Read { name, .. }
            | Request::Delete { name }
            | Request::Rename { from: name, .. } => name,
        }
    }

    /// The new name of a rename.
    #[must_use]
    pub fn new_name(&self) -> Option<&str> {
        if let Request::Rename { to, .. } = self { Some(to) } else { None }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Create { name, lifetime } => write!(f, "create {name} ({lifetime:?})"),
            Request::Append { name, data } => write!(f, "append {} bytes to {name}", data.len()),
            Request::Sync { name } => write!(f, "sync {name}"),
            Request::Close { name } => write!(f, "close {name}"),
            Request::Read { name, offset_bytes, bytes } => write!(f, "read {bytes} bytes of {name} at {offset_bytes}"),
            Request::Delete { name } => write!(f, "delete {name}"),
            Request::Rename { from, to } => write!(f, "rename {from} to {to}"),
        }
    }
}
