//! A stand-in for the file store: every request completes after a fixed time, and must be valid.

use std::collections::{BTreeMap, VecDeque};

use zonda_files::{FileError, Usage};
use zonda_zoned::{Duration, Instant};

use crate::lsm::effect::{Effect, FileKind, Owner};
use crate::lsm::entry::FileNumber;
use crate::lsm::files::{Ended, Files};
use crate::lsm::meter::HostBytes;

/// Files as numbers of bytes.
pub(in crate::lsm) struct StandIn {
    pub(in crate::lsm) files: BTreeMap<FileNumber, StandInFile>,
    latency: Duration,
    now: Instant,
    /// In the order of completion.
    in_flight: VecDeque<(Instant, Ended)>,
    ended: VecDeque<Ended>,
    host: HostBytes,
    requests: u64,
    /// The request with this number fails.
    fails: Option<(u64, FileError)>,
    pub(in crate::lsm) names: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::lsm) struct StandInFile {
    pub(in crate::lsm) bytes: u64,
    pub(in crate::lsm) kind: FileKind,
    is_open: bool,
}

impl StandIn {
    pub(in crate::lsm) fn new(latency: Duration) -> StandIn {
        StandIn {
            files: BTreeMap::new(),
            latency,
            now: Instant::ZERO,
            in_flight: VecDeque::from([(Instant::ZERO, Ended::Ready)]),
            ended: VecDeque::new(),
            host: HostBytes::default(),
            requests: 0,
            fails: None,
            names: Vec::new(),
        }
    }

    pub(in crate::lsm) fn failing(self, request: u64, error: FileError) -> StandIn {
        StandIn { fails: Some((request, error)), ..self }
    }

    /// Bytes of all files.
    pub(in crate::lsm) fn usage_bytes(&self) -> u64 {
        self.files.values().map(|file| file.bytes).sum()
    }

    fn file(&mut self, file: FileNumber) -> &mut StandInFile {
        self.files.get_mut(&file).expect("only existing files are used")
    }

    fn end_later(&mut self, owner: Owner) {
        self.requests += 1;
        let result = match &self.fails {
            Some((request, error)) if *request == self.requests => Err(error.clone()),
            _ => Ok(()),
        };
        self.in_flight.push_back((self.now + self.latency, Ended::Request(owner, result)));
        let others =
            self.in_flight.iter().filter(|(_, ended)| matches!(ended, Ended::Request(other, _) if *other == owner));
        assert_eq!(others.count(), 1, "{owner:?} has one request at a time");
    }
}

impl Files for StandIn {
    fn perform(&mut self, effect: Effect) -> Result<(), FileError> {
        match effect {
            Effect::Create { file, kind, .. } => {
                let before = self.files.insert(file, StandInFile { bytes: 0, kind, is_open: true });
                assert!(before.is_none(), "numbers are unique");
                self.names.push(kind.name(file));
            }
            Effect::Append { owner, file, bytes } => {
                assert!(self.file(file).is_open && bytes > 0);
                self.file(file).bytes += bytes;
                self.host.written += bytes;
                self.end_later(owner);
            }
            Effect::Sync { owner, file } => {
                assert!(self.file(file).is_open);
                self.end_later(owner);
            }
            Effect::Close { owner, file } => {
                assert!(std::mem::replace(&mut self.file(file).is_open, false));
                self.end_later(owner);
            }
            Effect::Read { owner, file, offset_bytes, bytes } => {
                assert!(
                    bytes > 0 && offset_bytes + u64::from(bytes) <= self.file(file).bytes,
                    "no read is past the end"
                );
                self.host.read += u64::from(bytes);
                self.end_later(owner);
            }
            Effect::Delete { owner, file } => {
                let file = self.files.remove(&file).expect("only existing files are deleted");
                assert!(!file.is_open, "files are closed before they are deleted");
                self.end_later(owner);
            }
            Effect::Wake { .. } => unreachable!("the files have no timers"),
        }
        Ok(())
    }

    fn run_once(&mut self, now: Instant) {
        self.now = now;
        while self.in_flight.front().is_some_and(|(at, _)| *at <= now) {
            self.ended.extend(self.in_flight.pop_front().map(|(_, ended)| ended));
        }
    }

    fn poll(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.in_flight.front().map(|(at, _)| *at)
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn usage(&self) -> Usage {
        let live_bytes = self.usage_bytes();
        Usage { live_bytes, written_bytes: live_bytes, ..Usage::default() }
    }

    fn host_bytes(&self) -> HostBytes {
        self.host
    }
}
