//! Requests as data, and how they are drawn.

use std::fmt;

use bytes::Bytes;
use zonda_zoned::Prng;

use super::Model;
use crate::Lifetime;

/// What a client asks of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Make a file.
    Create {
        /// Its name.
        name: String,
        /// How long its data are expected to live.
        lifetime: Lifetime,
    },
    /// Add data at the end of a file.
    Append {
        /// Its name.
        name: String,
        /// The data, drawn at random, so that no other place has the same.
        data: Bytes,
    },
    /// Make a file durable.
    Sync {
        /// Its name.
        name: String,
    },
    /// Make a file durable, and append no more.
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
        /// How many bytes, which may be more than there are.
        bytes: u32,
    },
    /// Delete a file, which need not be there.
    Delete {
        /// Its name.
        name: String,
    },
    /// Give a file another name, and delete the file that has it.
    Rename {
        /// Its name.
        from: String,
        /// The other name.
        to: String,
    },
}

/// How requests are drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Names of files; few, so that they are used again.
    pub names: Vec<String>,
    /// How often each kind of request is drawn, in the order of [`Request`].
    pub weights: [u64; 7],
    /// A tenth of the appends are of up to so many bytes, the others of up to 3,000, some of none.
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
    /// What each of the weights is for.
    pub const KINDS: [&'static str; 7] = ["create", "append", "sync", "close", "read", "delete", "rename"];

    /// The next request: mostly of files that are there, and appends mostly to files that are open.
    ///
    /// # Panics
    /// When there are no names, or all weights are 0.
    pub fn draw(&self, model: &Model, prng: &mut Prng) -> Request {
        let mut lot = prng.below(self.weights.iter().sum());
        let mut kind = 0;
        while lot >= self.weights[kind] {
            lot -= self.weights[kind];
            kind += 1;
        }
        let any = |prng: &mut Prng| prng.pick(&self.names).expect("there are names").clone();
        let takes_data = matches!(kind, 1..=3);
        let there: Vec<&str> = model.names(takes_data && !prng.chance(1, 8)).collect();
        let name =
            if kind == 0 || prng.chance(1, 12) { None } else { prng.pick(&there).map(|name| (*name).to_owned()) };
        let name = name.unwrap_or_else(|| any(prng));
        match kind {
            0 => Request::Create { name, lifetime: Lifetime::ALL[prng.below(6) as usize] },
            1 => Request::Append { name, data: self.draw_data(prng) },
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

    fn draw_data(&self, prng: &mut Prng) -> Bytes {
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
    /// The file that it is about.
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

    /// The other name, of a rename.
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
