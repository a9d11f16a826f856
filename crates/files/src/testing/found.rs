//! What files promise after a crash: of what was asked for, a beginning of the changes of names, and of each file at least
//! what was durable.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::model::{Change, Model, ModelFile, Promise, Violation, same_bytes};
use crate::FileId;

/// A file as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// Its number since the mount.
    pub id: FileId,
    /// All of it.
    pub content: Vec<u8>,
    /// Bytes of it that could not be read, because a zone of the drive is gone; in `content` they are anything.
    pub unread: Vec<Range<usize>>,
}

/// A state in which names may be.
struct Names {
    files: BTreeMap<String, usize>,
    /// Files that must be there, because a durable rename says so.
    certain: BTreeSet<usize>,
}

impl Model {
    /// After a crash and a mount: what is there must be what may be there. The model goes on with it, and forgets the
    /// requests that had not ended.
    ///
    /// # Errors
    /// Something durable is lost, or something is there that was never asked for, or a change has happened by half.
    pub fn found(&mut self, found: BTreeMap<String, FoundFile>) -> Result<(), Violation> {
        let mut reasons = Vec::new();
        // For each name the files that it may be.
        let mut candidates: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for count in self.durable_changes..=self.changes.len() {
            let names = self.names_after(count);
            match self.explains(&names, &found) {
                Ok(()) => {
                    for name in found.keys() {
                        candidates.entry(name).or_default().push(names.files[name]);
                    }
                }
                Err(reason) => reasons.push(reason),
            }
        }
        if reasons.len() > self.changes.len() - self.durable_changes {
            return Err(no_explanation(reasons));
        }
        let files: Vec<ModelFile> = found
            .iter()
            .map(|(name, found)| {
                let mut content = found.content.clone();
                let candidates: Vec<&ModelFile> =
                    candidates[name.as_str()].iter().map(|file| &self.files[*file]).collect();
                for range in &found.unread {
                    content[range.clone()].copy_from_slice(&candidates[0].content[range.clone()]);
                }
                ModelFile {
                    is_durable: true,
                    // Of two files of one name, each empty, nobody knows which it is.
                    may_be_closed: candidates.iter().any(|file| file.may_be_closed),
                    is_closed: candidates.iter().all(|file| file.is_closed),
                    ..ModelFile::new(found.id, content)
                }
            })
            .collect();
        self.files = files;
        self.names = found.into_keys().zip(0..).collect();
        self.base = self.names.clone();
        self.changes.clear();
        self.durable_changes = 0;
        self.pending.clear();
        Ok(())
    }

    /// At rest, without a crash: each file must have exactly what was acknowledged.
    ///
    /// # Errors
    /// It does not.
    pub fn check_found(&self, found: &BTreeMap<String, FoundFile>) -> Result<(), Violation> {
        if !found.keys().eq(self.names.keys()) {
            let (found, known): (Vec<_>, Vec<_>) = (found.keys().collect(), self.names.keys().collect());
            let message = format!("the store has files {found:?}, and {known:?} are there");
            return Err(Violation { promise: Promise::Answers, file: None, message });
        }
        for (name, found) in found {
            let file = &self.files[self.names[name]];
            let expected = &file.content[..file.acknowledged];
            if found.content.len() != expected.len() || !found.agrees_with(expected) {
                let (there, asked, same) = (found.content.len(), expected.len(), same_bytes(&found.content, expected));
                let message = format!("{name} has {there} bytes, {same} of them right; {asked} were acknowledged");
                return Err(Violation::new(Promise::Contents, name, message));
            }
        }
        Ok(())
    }

    /// Names after the first `count` changes since the mount.
    fn names_after(&self, count: usize) -> Names {
        let mut names = Names { files: self.base.clone(), certain: BTreeSet::new() };
        for change in &self.changes[..count] {
            match change {
                Change::Create { file, name } => names.files.insert(name.clone(), *file),
                Change::Delete { name } => names.files.remove(name),
                Change::Rename { file, from, to } => {
                    names.certain.insert(*file);
                    names.files.remove(from);
                    names.files.insert(to.clone(), *file)
                }
            };
        }
        names
    }

    fn explains(&self, names: &Names, found: &BTreeMap<String, FoundFile>) -> Result<(), Violation> {
        for (name, found) in found {
            let Some(file) = names.files.get(name).map(|file| &self.files[*file]) else {
                return Err(Violation::new(Promise::Answers, name, format!("{name} is there, and should not be")));
            };
            let (there, durable, asked) = (found.content.len(), file.durable, file.content.len());
            let is_right = there <= asked && found.agrees_with(&file.content[..there]);
            if there < durable || !is_right {
                let same = same_bytes(&found.content, &file.content);
                let message = format!(
                    "{name} has {there} bytes, {same} of them right; {durable} were durable, {asked} asked for"
                );
                let promise = if is_right { Promise::Durability } else { Promise::Contents };
                return Err(Violation::new(promise, name, message));
            }
        }
        for (name, file) in &names.files {
            if (self.files[*file].is_durable || names.certain.contains(file)) && !found.contains_key(name) {
                return Err(Violation::new(Promise::Durability, name, format!("{name} is lost")));
            }
        }
        Ok(())
    }
}

impl FoundFile {
    /// Whether what could be read is the same; the lengths are.
    fn agrees_with(&self, expected: &[u8]) -> bool {
        let mut from = 0;
        for range in &self.unread {
            if self.content[from..range.start] != expected[from..range.start] {
                return false;
            }
            from = range.end;
        }
        self.content[from..] == expected[from..]
    }
}

/// The changes that are durable say most of what is wrong.
fn no_explanation(mut reasons: Vec<Violation>) -> Violation {
    let last = reasons.last().map(|reason| reason.message.clone()).unwrap_or_default();
    let count = reasons.len();
    let first = reasons.swap_remove(0);
    if count == 1 {
        return first;
    }
    let message = format!(
        "none of the {count} states in which names may be explains what is there: after the changes that were durable, {}; \
         after all, {last}",
        first.message
    );
    Violation { message, ..first }
}
