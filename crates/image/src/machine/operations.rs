//! File operations in flight, and what each is for.

use std::collections::{BTreeMap, VecDeque};

use zonda_zoned::{CommandId, Key, Slab};

use crate::{FileCommand, FileCommandId, FileOperation};

use super::parts::{Part, Parts};

/// Owns the file operations from their issue to their result.
#[derive(Debug, Default)]
pub(super) struct Operations {
    in_flight: Slab<Purpose>,
    /// Those that the caller has not begun.
    issued: VecDeque<FileCommand>,
}

/// What continues when a file operation has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Data of a part.
    Data(Key<Part>),
    /// Tags of a part.
    Tags(Key<Part>),
    Journal,
    Flush,
    Checkpoint,
    /// Nothing: its result is ignored.
    Unheeded,
}

impl Operations {
    #[inline]
    pub(super) fn issue(&mut self, purpose: Purpose, operation: FileOperation) {
        let id = FileCommandId(CommandId::from(self.in_flight.insert(purpose)).0);
        self.issued.push_back(FileCommand { id, operation });
    }

    /// The next one to begin.
    pub(super) fn poll(&mut self) -> Option<FileCommand> {
        self.issued.pop_front()
    }

    /// Ends one, and returns its purpose.
    ///
    /// # Panics
    /// For an id that is not outstanding: a result would continue something that does not wait.
    #[inline]
    pub(super) fn end(&mut self, id: FileCommandId) -> Purpose {
        let ended = Key::of_command(CommandId(id.0)).and_then(|key| self.in_flight.take(key));
        ended.unwrap_or_else(|| panic!("{id:?} is not outstanding"))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    pub(super) fn check_invariants(&self, parts: &Parts) {
        assert!(self.issued.len() <= self.in_flight.len(), "an operation ends after it has begun");
        let mut of_parts: BTreeMap<Key<Part>, u32> = BTreeMap::new();
        for (_, purpose) in self.in_flight.iter() {
            if let Purpose::Data(part) | Purpose::Tags(part) = *purpose {
                *of_parts.entry(part).or_default() += 1;
            }
        }
        for (key, part) in parts.iter() {
            // A part that waited for one more would never continue.
            assert_eq!(of_parts.remove(&key).unwrap_or(0), part.out, "file operations of {key:?}");
        }
        assert!(of_parts.is_empty(), "operations of parts that have ended: {of_parts:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ImageFile;

    #[test]
    fn operations_in_flight_have_ids_of_their_own_even_for_one_purpose() {
        let mut operations = Operations::default();
        for file in [ImageFile::Data, ImageFile::Tags] {
            operations.issue(Purpose::Flush, FileOperation::Sync { file });
        }
        let ids = [(); 2].map(|()| operations.poll().expect("two were issued").id);
        assert_ne!(ids[0], ids[1]);
        assert_eq!(ids.map(|id| operations.end(id)), [Purpose::Flush; 2]);
        assert!(operations.is_idle());
    }
}
