//! Reading every file, through the store: after a mount, and at rest.

use std::collections::{BTreeMap, VecDeque};

use zonda_files::testing::FoundFile;
use zonda_files::{FileError, FileId, FileStore, Outcome, RequestId};

use crate::outcome::FailureKind;
use crate::survey::Trouble;

/// Numbers of requests that look; those of clients are smaller.
const FIRST_ID: u64 = 1 << 40;
/// Reads of one look under way at once.
const READS_AT_ONCE: usize = 8;

/// A look under way.
#[derive(Debug)]
pub(super) struct Look {
    found: BTreeMap<String, FoundFile>,
    waiting: VecDeque<Piece>,
    under_way: BTreeMap<RequestId, Piece>,
    next_id: u64,
    block_bytes: u32,
}

/// Bytes of a file that are read with one request.
#[derive(Clone, Debug)]
struct Piece {
    name: String,
    file: FileId,
    offset: u64,
    bytes: u32,
}

pub(super) fn is_of_look(id: RequestId) -> bool {
    id.0 >= FIRST_ID
}

impl Look {
    pub(super) fn new(store: &FileStore, block_bytes: u32) -> Look {
        let mut found = BTreeMap::new();
        let mut waiting = VecDeque::new();
        for (name, id) in store.names() {
            let bytes = store.len_bytes(id).expect("a file with a name has a length");
            found.insert(name.to_owned(), FoundFile { id, content: vec![0; bytes as usize], unread: Vec::new() });
            waiting.push_back(Piece { name: name.to_owned(), file: id, offset: 0, bytes: bytes as u32 });
        }
        Look { found, waiting, under_way: BTreeMap::new(), next_id: FIRST_ID, block_bytes }
    }

    /// Asks for what comes next; says whether there was anything.
    pub(super) fn ask(&mut self, store: &mut FileStore) -> bool {
        let mut has_asked = false;
        while self.under_way.len() < READS_AT_ONCE
            && let Some(piece) = self.waiting.pop_front()
        {
            let id = RequestId(self.next_id);
            self.next_id += 1;
            store.read(id, piece.file, piece.offset, piece.bytes);
            self.under_way.insert(id, piece);
            has_asked = true;
        }
        has_asked
    }

    /// Takes the end of a read; where a zone of the drive is gone, it may fail.
    pub(super) fn take(
        &mut self,
        id: RequestId,
        result: Result<Outcome, FileError>,
        may_fail: bool,
    ) -> Result<(), Trouble> {
        let Some(piece) = self.under_way.remove(&id) else {
            let message = format!("read {} of a look at the files ended twice", id.0);
            return Err(Trouble::new(FailureKind::StrayCompletion, None, message));
        };
        let file = self.found.get_mut(&piece.name).expect("pieces are of files");
        let (from, to) = (piece.offset as usize, piece.offset as usize + piece.bytes as usize);
        match result {
            Ok(Outcome::Data(data)) if data.len() == piece.bytes as usize => {
                file.content[from..to].copy_from_slice(&data);
            }
            Err(FileError::Media { .. }) if may_fail && piece.bytes > self.block_bytes => self.split(&piece),
            Err(FileError::Media { .. }) if may_fail => file.unread.push(from..to),
            result => {
                let result = result.map(|_| "other data than were asked for");
                let message =
                    format!("a look at {} bytes of {} at {from} ended with {result:?}", piece.bytes, piece.name);
                return Err(Trouble::new(FailureKind::WrongAnswer, None, message).of_file(Some(piece.name)));
            }
        }
        Ok(())
    }

    /// A piece cannot be read as a whole: its parts are read one by one.
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
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    /// Everything, once done.
    pub(super) fn into_found(mut self) -> BTreeMap<String, FoundFile> {
        for file in self.found.values_mut() {
            file.unread.sort_by_key(|range| range.start);
        }
        self.found
    }
}
