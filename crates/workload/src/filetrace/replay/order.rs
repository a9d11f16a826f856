//! The order of operations of several threads on one file.
//!
//! Each entry gets a position for its file when it is read: the number of operations, and of
//! changes, of that file before it in the trace. A read may start when those changes have ended,
//! any other operation when those operations have. So the first entry of the trace that has not
//! ended can always start, and no entry waits forever.

use std::collections::BTreeMap;

use zonda_files::FileId;

use crate::filetrace::entry::{FileName, FileOperation};

/// A name of the trace, while a file has it or an entry needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NameIndex(u32);

/// An entry's position in the order of one name.
#[derive(Clone, Copy, Debug)]
pub(super) struct OrderPosition {
    pub(super) name: NameIndex,
    /// How many of the name's operations, or of its changes only, must have ended.
    after: u64,
    is_change: bool,
}

#[derive(Clone, Debug, Default)]
struct NameState {
    name: Option<FileName>,
    file: Option<FileId>,
    operations: Progress,
    changes: Progress,
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    begun: u64,
    ended: u64,
}

/// All names that a file has or an entry needs.
#[derive(Debug, Default)]
pub(super) struct Names {
    places: BTreeMap<FileName, NameIndex>,
    states: Vec<NameState>,
    free: Vec<NameIndex>,
}

impl Names {
    /// The positions of an operation: one for each file that it names.
    pub(super) fn positions(&mut self, operation: &FileOperation) -> [Option<OrderPosition>; 2] {
        let is_change = !matches!(operation, FileOperation::Read { .. });
        operation.files().map(|file| file.map(|file| self.position(file, is_change)))
    }

    fn position(&mut self, file: &FileName, is_change: bool) -> OrderPosition {
        let name = self.place(file);
        let state = &mut self.states[name.0 as usize];
        let after = if is_change { state.operations.begun } else { state.changes.begun };
        state.operations.begun += 1;
        state.changes.begun += u64::from(is_change);
        OrderPosition { name, after, is_change }
    }

    fn place(&mut self, file: &FileName) -> NameIndex {
        if let Some(place) = self.places.get(file) {
            return *place;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.states.push(NameState::default());
            NameIndex(self.states.len() as u32 - 1)
        });
        self.states[place.0 as usize] = NameState { name: Some(file.clone()), ..NameState::default() };
        self.places.insert(file.clone(), place);
        place
    }

    /// Whether the operation at this position may start.
    pub(super) fn may_start(&self, position: &OrderPosition) -> bool {
        let state = &self.states[position.name.0 as usize];
        let progress = if position.is_change { state.operations } else { state.changes };
        progress.ended >= position.after
    }

    /// Called when its operation has ended. Drops a name that no file or entry needs any more.
    pub(super) fn end(&mut self, position: &OrderPosition) {
        let state = &mut self.states[position.name.0 as usize];
        state.operations.ended += 1;
        state.changes.ended += u64::from(position.is_change);
        if state.file.is_none() && state.operations.ended == state.operations.begun {
            let name = state.name.take().expect("a name in use exists");
            self.places.remove(&name);
            self.free.push(position.name);
        }
    }

    /// The file that has the name.
    pub(super) fn file(&self, name: NameIndex) -> Option<FileId> {
        self.states[name.0 as usize].file
    }

    /// Gives the name to a file, or to none.
    pub(super) fn set_file(&mut self, name: NameIndex, file: Option<FileId>) {
        self.states[name.0 as usize].file = file;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> FileOperation {
        FileOperation::Read { file: name.into(), offset_bytes: 0, bytes: 1 }
    }

    fn sync(name: &str) -> FileOperation {
        FileOperation::Sync { file: name.into() }
    }

    #[test]
    fn reads_wait_for_changes_and_changes_for_all_operations() {
        let mut names = Names::default();
        let mut take = |operation| names.positions(&operation)[0].expect("it names a file");
        let [first, one, two, second, third] = [sync("a"), read("a"), read("a"), sync("a"), read("a")].map(&mut take);
        let other = take(sync("b"));
        assert!(names.may_start(&first) && names.may_start(&other) && !names.may_start(&one));
        names.end(&first);
        assert!(names.may_start(&one) && names.may_start(&two) && !names.may_start(&second));
        names.end(&two);
        assert!(!names.may_start(&second), "a read is in progress");
        names.end(&one);
        assert!(names.may_start(&second) && !names.may_start(&third));
        names.end(&second);
        assert!(names.may_start(&third));
    }

    #[test]
    fn a_rename_is_a_change_of_both_names() {
        let mut names = Names::default();
        let before = names.positions(&read("b"))[0].unwrap();
        let [from, to] = names.positions(&FileOperation::Rename { file: "a".into(), to: "b".into() });
        let (from, to) = (from.unwrap(), to.unwrap());
        assert!(names.may_start(&from) && !names.may_start(&to));
        names.end(&before);
        assert!(names.may_start(&to));
    }

    #[test]
    fn the_index_of_an_unused_name_is_reused() {
        let mut names = Names::default();
        for round in 0..1000 {
            let position = names.positions(&sync(&format!("file-{round}")))[0].unwrap();
            names.set_file(position.name, Some(FileId(round)));
            let delete = names.positions(&sync(&format!("file-{round}")))[0].unwrap();
            names.end(&position);
            names.set_file(delete.name, None);
            names.end(&delete);
        }
        assert_eq!((names.states.len(), names.places.len()), (1, 0));
    }
}
