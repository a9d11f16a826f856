//! [`Load`]: what is run, alone or beside another.

use serde::{Deserialize, Serialize};

/// An operation of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Read at random addresses.
    Read,
    /// Write at the write pointer.
    Write,
    /// Zone Append.
    Append,
    /// Reset of zones.
    Reset,
    /// Finish of zones.
    Finish,
    /// Explicit open of zones.
    Open,
    /// Close of zones.
    Close,
}

impl Kind {
    /// The operations of the interference matrix.
    pub const MATRIX: [Kind; 5] = [Kind::Read, Kind::Write, Kind::Append, Kind::Reset, Kind::Finish];

    /// The name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Append => "append",
            Kind::Reset => "reset",
            Kind::Finish => "finish",
            Kind::Open => "open",
            Kind::Close => "close",
        }
    }

    /// The name of several of them.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Kind::Read => "reads",
            Kind::Write => "writes",
            Kind::Append => "appends",
            Kind::Reset => "resets",
            Kind::Finish => "finishes",
            Kind::Open => "opens",
            Kind::Close => "closes",
        }
    }

    /// Whether the operation manages zones and transfers no data.
    #[must_use]
    pub fn is_management(self) -> bool {
        matches!(self, Kind::Reset | Kind::Finish | Kind::Open | Kind::Close)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// One stream of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// What is done.
    pub kind: Kind,
    /// Bytes of each request; 0 of commands that manage zones.
    pub size_bytes: u64,
    /// Outstanding requests, of all zones together.
    pub queue_depth: u32,
    /// Zones that are used at once.
    pub zones: u32,
    /// Data in each zone before the command, in percent; only of commands that manage zones. 0 is
    /// an empty zone (for a finish a zone with one block), 100 a full one (for a finish all but one
    /// block).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill_percent: Option<u32>,
    /// The rate to which the load is limited, in percent of its throughput alone and without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_percent: Option<u32>,
}

impl Load {
    /// Reads, writes or appends.
    #[must_use]
    pub fn of_data(kind: Kind, size_bytes: u64, queue_depth: u32, zones: u32) -> Load {
        Load { kind, size_bytes, queue_depth, zones, fill_percent: None, rate_percent: None }
    }

    /// Commands that manage zones, one after the other.
    #[must_use]
    pub fn of_management(kind: Kind, fill_percent: u32) -> Load {
        Load { kind, size_bytes: 0, queue_depth: 1, zones: 1, fill_percent: Some(fill_percent), rate_percent: None }
    }

    /// The load without its limit on the rate.
    #[must_use]
    pub fn unlimited(self) -> Load {
        Load { rate_percent: None, ..self }
    }

    /// The operation with the limit: `writes at 25% of their rate`.
    #[must_use]
    pub fn plural(&self) -> String {
        let plural = self.kind.plural();
        self.rate_percent.map_or_else(|| plural.to_owned(), |percent| format!("{plural} at {percent}% of their rate"))
    }

    /// The load in words: `8 KiB writes, 3 outstanding, 3 zones`.
    #[must_use]
    pub fn words(&self) -> String {
        use zonda_plot::text::{counted, round_bytes};
        if let Some(percent) = self.fill_percent {
            return format!("{} of {}", self.kind, fill_words(self.kind, percent));
        }
        let plural = self.kind.plural();
        let size = round_bytes(self.size_bytes);
        let zones = counted(u64::from(self.zones), "zone");
        let rate = self.rate_percent.map_or_else(String::new, |percent| format!(", at {percent}% of their rate alone"));
        format!("{plural} of {size}, {} outstanding, {zones}{rate}", self.queue_depth)
    }

    /// A short name within its kind: `8 KiB, depth 16`.
    #[must_use]
    pub fn short(&self) -> String {
        use zonda_plot::text::{counted, round_bytes};
        match (self.kind, self.fill_percent) {
            (kind, Some(percent)) => format!("of {}", fill_words(kind, percent)),
            (Kind::Write, None) => {
                format!("{}, {}", round_bytes(self.size_bytes), counted(self.zones.into(), "writer"))
            }
            (_, None) => format!("{}, depth {}", round_bytes(self.size_bytes), self.queue_depth),
        }
    }
}

/// How full a zone is before a command.
#[must_use]
pub(crate) fn fill_words(kind: Kind, percent: u32) -> String {
    match (percent, kind) {
        (0, Kind::Finish | Kind::Close) => "a zone with one block".to_owned(),
        (0, _) => "an empty zone".to_owned(),
        (100, Kind::Finish) => "a nearly full zone".to_owned(),
        (100, _) => "a full zone".to_owned(),
        _ => format!("a zone {percent}% full"),
    }
}
