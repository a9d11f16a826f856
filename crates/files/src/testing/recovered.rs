//! The guarantees of files after a crash: a prefix of the requested name changes, and of each file
//! at least its durable data.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::model::{Change, Model, ModelFile, Promise, Violation, same_bytes};
use crate::FileId;

/// A file found after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredFile {
    /// Its number since the mount.
    pub id: FileId,
    /// Its contents.
    pub content: Vec<u8>,
    /// Bytes that could not be read, because a zone of the drive is offline; in `content` they are
    /// arbitrary.
    pub unread: Vec<Range<usize>>,
}

/// An allowed state of the names.
struct Names {
    files: BTreeMap<String, usize>,
    /// Files that must exist, because of a durable rename.
    certain: BTreeSet<usize>,
}

impl Model {
    /// After a crash and a mount: checks that the files found are allowed. The model continues with
    /// them, and drops the outstanding requests.
    ///
    /// # Errors
    /// Durable data are lost, data exist that were never requested, or a change was applied in
    /// part.
    pub fn recover(&mut self, found: BTreeMap<String, RecoveredFile>) -> Result<(), Violation> {
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
                    // Two empty files of one name cannot be distinguished.
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

    /// While the store is idle, without a crash: each file must have exactly the acknowledged data.
    ///
    /// # Errors
    /// It does not.
    pub fn check_contents(&self, found: &BTreeMap<String, RecoveredFile>) -> Result<(), Violation> {
        if !found.keys().eq(self.names.keys()) {
            let (found, known): (Vec<_>, Vec<_>) = (found.keys().collect(), self.names.keys().collect());
            let message = format!("the store has files {found:?}, expected {known:?}");
            return Err(Violation { promise: Promise::Answers, file: None, message });
        }
        for (name, found) in found {
            let file = &self.files[self.names[name]];
            let expected = &file.content[..file.acknowledged];
            if found.content.len() != expected.len() || !found.agrees_with(expected) {
                let (there, asked, same) = (found.content.len(), expected.len(), same_bytes(&found.content, expected));
                let message = format!("{name} has {there} bytes, {same} of them correct; {asked} were acknowledged");
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

    fn explains(&self, names: &Names, found: &BTreeMap<String, RecoveredFile>) -> Result<(), Violation> {
        for (name, found) in found {
            let Some(file) = names.files.get(name).map(|file| &self.files[*file]) else {
                return Err(Violation::new(Promise::Answers, name, format!("{name} exists, but should not")));
            };
            let (there, durable, asked) = (found.content.len(), file.durable, file.content.len());
            let is_right = there <= asked && found.agrees_with(&file.content[..there]);
            if there < durable || !is_right {
                let same = same_bytes(&found.content, &file.content);
                let message = format!(
                    "{name} has {there} bytes, {same} of them correct; {durable} were durable, {asked} requested"
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

impl RecoveredFile {
    /// Whether all readable bytes match; the lengths do.
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

/// The violation to report: that for the durable changes is the most specific.
fn no_explanation(mut reasons: Vec<Violation>) -> Violation {
    let last = reasons.last().map(|reason| reason.message.clone()).unwrap_or_default();
    let count = reasons.len();
    let first = reasons.swap_remove(0);
    if count == 1 {
        return first;
    }
    let message = format!(
        "none of the {count} allowed states of the names matches the files found: after the durable changes, {}; \
         after all changes, {last}",
        first.message
    );
    Violation { message, ..first }
}
