//! Reads every file through the store: after a mount, and when quiescent.

use std::collections::{BTreeMap, VecDeque};

use zonda_files::testing::RecoveredFile;
use zonda_files::{FileError, FileId, FileStore, Outcome, RequestId};

use crate::observe::CheckError;
use crate::outcome::FailureKind;

/// Ids of verification requests start here; those of clients are smaller.
const FIRST_ID: u64 = 1 << 40;
/// Queue depth of a verification.
const READS_IN_FLIGHT_MAX: usize = 8;

/// A verification in progress.
#[derive(Debug)]
pub(super) struct VerifyPass {
    found: BTreeMap<String, RecoveredFile>,
    waiting: VecDeque<Piece>,
    in_flight: BTreeMap<RequestId, Piece>,
    next_id: u64,
    block_bytes: u32,
}

/// A part of a file that is read with one request.
#[derive(Clone, Debug)]
struct Piece {
    name: String,
    file: FileId,
    offset: u64,
    bytes: u32,
}

pub(super) fn is_verify_id(id: RequestId) -> bool {
    id.0 >= FIRST_ID
}

impl VerifyPass {
    pub(super) fn new(store: &FileStore, block_bytes: u32) -> VerifyPass {
        let mut found = BTreeMap::new();
        let mut waiting = VecDeque::new();
        for (name, id) in store.names() {
            let bytes = store.len_bytes(id).expect("a file with a name has a length");
            found.insert(name.to_owned(), RecoveredFile { id, content: vec![0; bytes as usize], unread: Vec::new() });
            waiting.push_back(Piece { name: name.to_owned(), file: id, offset: 0, bytes: bytes as u32 });
        }
        VerifyPass { found, waiting, in_flight: BTreeMap::new(), next_id: FIRST_ID, block_bytes }
    }

    /// Submits further reads; returns whether there were any.
    pub(super) fn submit(&mut self, store: &mut FileStore) -> bool {
        let mut has_submitted = false;
        while self.in_flight.len() < READS_IN_FLIGHT_MAX
            && let Some(piece) = self.waiting.pop_front()
        {
            let id = RequestId(self.next_id);
            self.next_id += 1;
            store.read(id, piece.file, piece.offset, piece.bytes);
            self.in_flight.insert(id, piece);
            has_submitted = true;
        }
        has_submitted
    }

    /// Takes the result of a read, which may fail if a zone of the drive is offline.
    pub(super) fn take(
        &mut self,
        id: RequestId,
        result: Result<Outcome, FileError>,
        may_fail: bool,
    ) -> Result<(), CheckError> {
        let Some(piece) = self.in_flight.remove(&id) else {
            let message = format!("verification read {} completed twice", id.0);
            return Err(CheckError::new(FailureKind::StrayCompletion, None, message));
        };
        let file = self.found.get_mut(&piece.name).expect("every piece is of a found file");
        let (from, to) = (piece.offset as usize, piece.offset as usize + piece.bytes as usize);
        match result {
            Ok(Outcome::Data(data)) if data.len() == piece.bytes as usize => {
                file.content[from..to].copy_from_slice(&data);
            }
            Err(FileError::Media { .. }) if may_fail && piece.bytes > self.block_bytes => self.split(&piece),
            Err(FileError::Media { .. }) if may_fail => file.unread.push(from..to),
            result => {
                let result = result.map_or_else(|error| error.to_string(), |_| "a wrong length".to_owned());
                let message =
                    format!("a read of {} bytes of {} at {from} ended with: {result}", piece.bytes, piece.name);
                return Err(CheckError::new(FailureKind::WrongAnswer, None, message).of_file(Some(piece.name)));
            }
        }
        Ok(())
    }

    /// Splits a piece that cannot be read as a whole into blocks.
    fn split(&mut self, piece: &Piece) {
        let end = piece.offset + u64::from(piece.bytes);
        let mut offset = piece.offset;
        while offset < end {
            let bytes = u64::from(self.block_bytes).min(end - offset) as u32;
            self.waiting.push_back(Piece { offset, bytes, ..piece.clone() });
            offset += u64::from(bytes);
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_empty()
    }

    /// All files, once done.
    pub(super) fn into_found(mut self) -> BTreeMap<String, RecoveredFile> {
        for file in self.found.values_mut() {
            file.unread.sort_by_key(|range| range.start);
        }
        self.found
    }
}
