//! Commands to an open image, and the execution of its file operations.

use zonda_image::{FileCommand, FileError, Files, Image, MemoryFiles};
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Instant, Lba, NamespaceId, Operation, Outcome, Payload,
    Status,
};

use super::bases::Base;
use super::watched::Watched;
use crate::feed::Feed;
use crate::operations::operation;

const COMMANDS_MAX: usize = 40;
/// File operations of one round; many times what so few commands need.
const OPERATIONS_MAX: u32 = 20_000;

/// Executes commands of the input, in rounds of several at a time. With a base, also reads every
/// block and checks it against its history.
pub(super) fn run(image: &mut Image, files: &mut MemoryFiles, feed: &mut Feed<'_>, base: Option<&Base>) {
    if let Some(base) = base {
        read_everything(image, files, base);
    }
    let mut id = 0;
    let mut outstanding = 0;
    for _ in 0..COMMANDS_MAX {
        if feed.is_empty() {
            break;
        }
        let how = feed.u8();
        let operation = operation(feed, &image.geometry().clone());
        id += 1;
        let command = Command::new(CommandId(id), NamespaceId::FIRST, operation);
        if image.submit(Instant::ZERO, command).is_ok() {
            outstanding += 1;
        }
        if how & 3 != 0 {
            outstanding -= run_until_idle(image, files, how & 4 != 0, how & 0xf0 == 0xf0).len();
            assert_eq!(outstanding, 0, "every command completes");
        }
    }
    outstanding -= run_until_idle(image, files, false, false).len();
    assert_eq!(outstanding, 0, "every command completes");
}

/// Executes one command.
pub(super) fn one(image: &mut Image, files: &mut MemoryFiles, command: Command) -> Completion {
    image.submit(Instant::ZERO, command).expect("an idle drive accepts a command");
    run_until_idle(image, files, false, false).pop().expect("the command completes")
}

pub(super) fn close(image: &mut Image, files: &mut MemoryFiles) {
    image.shutdown();
    run_until_idle(image, files, false, false);
    assert_eq!(image.shutdown_result(), Some(&Ok(())), "the image closes without an error");
}

/// Executes all file operations, the oldest first or the newest first; with `fail`, every fifth
/// operation fails.
fn run_until_idle(image: &mut Image, files: &mut MemoryFiles, newest_first: bool, fail: bool) -> Vec<Completion> {
    let mut out: Vec<FileCommand> = Vec::new();
    let mut ended = CompletionQueue::new();
    let mut count = 0;
    loop {
        while let Some(command) = image.poll_effect() {
            out.push(command);
        }
        if out.is_empty() {
            break;
        }
        let FileCommand { id, operation } =
            if newest_first { out.pop().expect("there is an operation") } else { out.remove(0) };
        count += 1;
        assert!(count < OPERATIONS_MAX, "commands complete within a bounded number of file operations");
        check_range(files, &operation);
        let fails = fail && count % 5 == 0;
        let result = if fails { Err(FileError::StorageFull) } else { files.carry_out(operation) };
        image.on_completion(id, result);
        image.poll(&mut ended);
    }
    image.poll(&mut ended);
    image.check_invariants();
    std::iter::from_fn(|| ended.pop()).collect()
}

/// Checks that no operation of an open drive reaches past the end of a file.
fn check_range(files: &mut MemoryFiles, operation: &zonda_image::FileOperation) {
    use zonda_image::FileOperation::{Allocate, PunchHole, Read, Sync, Write};
    let (offset, length) = match operation {
        Read { offset, length, .. } => (*offset, *length as u64),
        Write { offset, pieces, .. } => (*offset, pieces.iter().map(|piece| piece.len() as u64).sum()),
        PunchHole { offset, length, .. } | Allocate { offset, length, .. } => (*offset, *length),
        Sync { .. } => return,
    };
    let file = operation.file();
    let whole = Watched::new(files).length(file).expect("the files of an open drive exist");
    assert!(
        offset.checked_add(length).is_some_and(|end| end <= whole),
        "{file}: {length} bytes at {offset} of {whole}"
    );
}

fn read_everything(image: &mut Image, files: &mut MemoryFiles, base: &Base) {
    let namespace = NamespaceId::FIRST;
    for lba in base.written.lbas() {
        let operation = Operation::Read { start: Lba(lba), blocks: Blocks(1) };
        let completion = one(image, files, Command::new(CommandId(lba), namespace, operation));
        if completion.status != Status::Success {
            continue;
        }
        let Outcome::Data(Payload::Bytes(found)) = &completion.outcome else { continue };
        base.written.check(lba, &found.data);
    }
}
