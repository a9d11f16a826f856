//! The entries of a trace: thread, operation and file.

use std::fmt;
use std::sync::Arc;

use zonda_config::{ByteSize, TimeSpan};
use zonda_files::Lifetime;
use zonda_zoned::Duration;

/// The name of a file: 1 to 255 bytes without white space.
pub type FileName = Arc<str>;

/// A thread of the traced program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadIndex(pub u32);

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// The thread.
    pub thread: ThreadIndex,
    /// Its operation.
    pub operation: FileOperation,
}

/// An operation of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOperation {
    /// Creates an empty file and opens it for appending.
    Create {
        /// A name that is not in use.
        file: FileName,
        /// The expected lifetime of its data.
        lifetime: Lifetime,
    },
    /// Appends to an open file; ends when the data are in the store's buffer.
    Append {
        /// The file.
        file: FileName,
        /// At least one.
        bytes: u64,
    },
    /// Makes everything appended so far durable.
    Sync {
        /// An open file.
        file: FileName,
    },
    /// Makes everything durable, and closes the file for appends.
    Close {
        /// An open file.
        file: FileName,
    },
    /// Reads; stops at the end of the file.
    Read {
        /// Open or closed.
        file: FileName,
        /// The offset.
        offset_bytes: u64,
        /// At least one.
        bytes: u64,
    },
    /// Renames a file. An existing file of the new name is deleted.
    Rename {
        /// The old name.
        file: FileName,
        /// The new one.
        to: FileName,
    },
    /// Deletes a file.
    Delete {
        /// Open or closed.
        file: FileName,
    },
    /// Pauses the thread.
    Think {
        /// The pause, the same on every drive.
        time: Duration,
    },
}

/// The kinds of operations, in the order of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperationKind {
    /// [`FileOperation::Create`].
    Create,
    /// [`FileOperation::Append`].
    Append,
    /// [`FileOperation::Sync`].
    Sync,
    /// [`FileOperation::Close`].
    Close,
    /// [`FileOperation::Read`].
    Read,
    /// [`FileOperation::Rename`].
    Rename,
    /// [`FileOperation::Delete`].
    Delete,
    /// [`FileOperation::Think`].
    Think,
}

impl OperationKind {
    /// All of them.
    pub const ALL: [OperationKind; 8] = [
        OperationKind::Create,
        OperationKind::Append,
        OperationKind::Sync,
        OperationKind::Close,
        OperationKind::Read,
        OperationKind::Rename,
        OperationKind::Delete,
        OperationKind::Think,
    ];

    /// Its name in a trace.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            OperationKind::Create => "create",
            OperationKind::Append => "append",
            OperationKind::Sync => "sync",
            OperationKind::Close => "close",
            OperationKind::Read => "read",
            OperationKind::Rename => "rename",
            OperationKind::Delete => "delete",
            OperationKind::Think => "think",
        }
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FileOperation {
    /// The kind of the operation.
    #[must_use]
    pub const fn kind(&self) -> OperationKind {
        match self {
            FileOperation::Create { .. } => OperationKind::Create,
            FileOperation::Append { .. } => OperationKind::Append,
            FileOperation::Sync { .. } => OperationKind::Sync,
            FileOperation::Close { .. } => OperationKind::Close,
            FileOperation::Read { .. } => OperationKind::Read,
            FileOperation::Rename { .. } => OperationKind::Rename,
            FileOperation::Delete { .. } => OperationKind::Delete,
            FileOperation::Think { .. } => OperationKind::Think,
        }
    }

    /// Its file, and for a rename the new name too.
    #[must_use]
    pub fn files(&self) -> [Option<&FileName>; 2] {
        match self {
            FileOperation::Create { file, .. }
            | FileOperation::Append { file, .. }
            | FileOperation::Sync { file }
            | FileOperation::Close { file }
            | FileOperation::Read { file, .. }
            | FileOperation::Delete { file } => [Some(file), None],
            FileOperation::Rename { file, to } => [Some(file), Some(to)],
            FileOperation::Think { .. } => [None, None],
        }
    }

    /// Bytes that it appends or reads.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        match self {
            FileOperation::Append { bytes, .. } | FileOperation::Read { bytes, .. } => *bytes,
            _ => 0,
        }
    }
}

impl fmt::Display for TraceEntry {
    /// A line of the text form, without the line break.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.thread.0, self.operation.kind())?;
        for file in self.operation.files().into_iter().flatten() {
            write!(f, " {file}")?;
        }
        match &self.operation {
            FileOperation::Create { lifetime, .. } => match lifetime_word(*lifetime) {
                "" => Ok(()),
                word => write!(f, " {word}"),
            },
            FileOperation::Append { bytes, .. } => write!(f, " {}", in_one_word(ByteSize(*bytes))),
            FileOperation::Read { offset_bytes, bytes, .. } => {
                write!(f, " {} {}", in_one_word(ByteSize(*offset_bytes)), in_one_word(ByteSize(*bytes)))
            }
            FileOperation::Think { time } => write!(f, " {}", in_one_word(TimeSpan(time.0))),
            _ => Ok(()),
        }
    }
}

/// Names of lifetimes in a trace; none for [`Lifetime::NotSet`].
pub(super) const LIFETIMES: [(&str, Lifetime); 5] = [
    ("none", Lifetime::None),
    ("short", Lifetime::Short),
    ("medium", Lifetime::Medium),
    ("long", Lifetime::Long),
    ("extreme", Lifetime::Extreme),
];

fn lifetime_word(lifetime: Lifetime) -> &'static str {
    LIFETIMES.iter().find(|(_, known)| *known == lifetime).map_or("", |(word, _)| *word)
}

/// A quantity without the space before its unit: spaces separate the words of a line.
fn in_one_word(quantity: impl fmt::Display) -> String {
    quantity.to_string().replace(' ', "")
}
