//! Reads and writes the text form of traces. `docs/guide/file-traces.md` is the reference.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use zonda_config::{ByteSize, ConfigError, TimeSpan, did_you_mean_help};
use zonda_files::Lifetime;
use zonda_files::limits::NAME_BYTES_MAX;
use zonda_zoned::Duration;

use super::check::{FileTable, Misuse};
use super::entry::{FileName, FileOperation, LIFETIMES, OperationKind, ThreadIndex, TraceEntry};
use super::limits::{LINE_BYTES_MAX, OPERATION_BYTES_MAX, THINK_MAX_NS, THREADS_MAX};

/// The first word of a trace, and the version of the format.
const HEADER: (&str, &str) = ("zonda-file-trace", "1");

/// A parsed and valid trace.
///
/// It keeps the text and no entries: [`Trace::entries`] parses them again, one by one, as often as
/// needed.
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a> {
    text: &'a str,
    facts: TraceFacts,
}

/// Statistics of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceFacts {
    /// Lines with an operation.
    pub entries: u64,
    /// Threads with operations.
    pub threads: u32,
    /// Files created.
    pub creates: u64,
    /// Bytes appended.
    pub append_bytes: u64,
    /// Bytes requested by reads.
    pub read_bytes: u64,
    /// The maximum number of bytes in files at one time, if the trace is executed line by line.
    pub live_bytes_max: u64,
}

/// The entries of a [`Trace`], parsed on demand.
#[derive(Debug)]
pub struct Entries<'a>(Reader<'a>);

impl<'a> Trace<'a> {
    /// Reads a trace to its end.
    ///
    /// # Errors
    /// The first invalid line, and the remedy.
    pub fn parse(text: &'a str) -> Result<Trace<'a>, ConfigError> {
        let mut reader = Reader::new(text)?;
        let mut facts = TraceFacts::default();
        let mut is_used = vec![false; THREADS_MAX as usize];
        while let Some(entry) = reader.next_entry()? {
            facts.entries += 1;
            is_used[entry.thread.0 as usize] = true;
            match &entry.operation {
                FileOperation::Create { .. } => facts.creates += 1,
                FileOperation::Append { bytes, .. } => facts.append_bytes += bytes,
                FileOperation::Read { bytes, .. } => facts.read_bytes += bytes,
                _ => {}
            }
        }
        if facts.entries == 0 {
            let help = "write a line for each operation, like \"0 create log short\"";
            return Err(ConfigError::new("the trace has no operations").help(help));
        }
        facts.threads = is_used.iter().filter(|is_used| **is_used).count() as u32;
        facts.live_bytes_max = reader.files.bytes_max();
        Ok(Trace { text, facts })
    }

    /// Statistics of the trace.
    #[must_use]
    pub fn facts(&self) -> TraceFacts {
        self.facts
    }

    /// Its entries in their order.
    ///
    /// # Panics
    /// Never: the text was read before.
    #[must_use]
    pub fn entries(&self) -> Entries<'a> {
        Entries(Reader::new(self.text).expect("the header was read before"))
    }
}

impl Iterator for Entries<'_> {
    type Item = TraceEntry;

    fn next(&mut self) -> Option<TraceEntry> {
        self.0.next_entry().expect("every line was read before")
    }
}

/// Writes a trace as a text that [`Trace::parse`] reads.
///
/// # Errors
/// Those of `out`.
pub fn write_trace(out: &mut impl fmt::Write, entries: impl IntoIterator<Item = TraceEntry>) -> fmt::Result {
    writeln!(out, "{} {}", HEADER.0, HEADER.1)?;
    entries.into_iter().try_for_each(|entry| writeln!(out, "{entry}"))
}

/// The state of the parser.
#[derive(Debug)]
struct Reader<'a> {
    text: &'a str,
    /// Where the next line begins.
    at: usize,
    files: FileTable,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Result<Reader<'a>, ConfigError> {
        let mut reader = Reader { text, at: 0, files: FileTable::default() };
        let expected = || format!("begin the file with the line \"{} {}\"", HEADER.0, HEADER.1);
        let Some(mut words) = reader.next_line()? else {
            return Err(ConfigError::new("the trace is empty").help(expected()));
        };
        let whole = words.whole();
        match (words.next(), words.next(), words.next()) {
            (Some(name), Some(version), None) if name.text == HEADER.0 && version.text == HEADER.1 => Ok(reader),
            (Some(name), Some(version), None) if name.text == HEADER.0 => {
                let message = format!("the trace has version {}", version.text);
                Err(version.error(message).help(format!("this program supports version {}", HEADER.1)))
            }
            _ => Err(ConfigError::new("this is not the header of a file trace").within(whole).help(expected())),
        }
    }

    fn next_entry(&mut self) -> Result<Option<TraceEntry>, ConfigError> {
        let Some(words) = self.next_line()? else { return Ok(None) };
        let whole = words.whole();
        let entry = entry(words, &self.files)?;
        match self.files.apply(&entry.operation) {
            Ok(()) => Ok(Some(entry)),
            Err(Misuse { message, help }) => Err(ConfigError::new(message).within(whole).help(help)),
        }
    }

    /// The next line that is neither empty nor a comment.
    fn next_line(&mut self) -> Result<Option<Words<'a>>, ConfigError> {
        while self.at < self.text.len() {
            let rest = &self.text[self.at..];
            let length = rest.find('\n').unwrap_or(rest.len());
            let words = Words { line: &rest[..length], start: self.at, at: 0 };
            self.at += length + 1;
            if length > LINE_BYTES_MAX {
                let start = words.start;
                let error = ConfigError::new(format!("the line has {length} bytes")).within(start..start + 1);
                return Err(error.help(format!("at most {LINE_BYTES_MAX} are allowed")));
            }
            let content = words.line.trim_start();
            if !content.is_empty() && !content.starts_with('#') {
                return Ok(Some(words));
            }
        }
        Ok(None)
    }
}

/// The words of a line, with their places in the text.
struct Words<'a> {
    line: &'a str,
    start: usize,
    at: usize,
}

#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    start: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<Word<'a>> {
        let rest = &self.line[self.at..];
        let begin = rest.find(|letter: char| !letter.is_whitespace())?;
        let rest = &rest[begin..];
        let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let start = self.start + self.at + begin;
        self.at += begin + length;
        Some(Word { text: &rest[..length], start })
    }

    /// The line without the white space around it.
    fn whole(&self) -> Range<usize> {
        let begin = self.start + self.line.len() - self.line.trim_start().len();
        begin..begin + self.line.trim().len()
    }

    fn expect(&mut self, what: &str, form: &str) -> Result<Word<'a>, ConfigError> {
        let whole = self.whole();
        self.next()
            .ok_or_else(|| ConfigError::new(format!("{what} is missing")).within(whole).help(format!("write {form}")))
    }
}

impl Word<'_> {
    fn error(&self, message: impl Into<String>) -> ConfigError {
        ConfigError::new(message).within(self.start..self.start + self.text.len())
    }

    fn quantity<T: FromStr<Err = ConfigError>>(&self) -> Result<T, ConfigError> {
        self.text.parse().map_err(|error: ConfigError| error.within(self.start..self.start + self.text.len()))
    }

    /// A size between these bounds.
    fn bytes(&self, least: u64) -> Result<u64, ConfigError> {
        let ByteSize(bytes) = self.quantity()?;
        if bytes >= least && (least == 0 || bytes <= OPERATION_BYTES_MAX) {
            return Ok(bytes);
        }
        let most = ByteSize(OPERATION_BYTES_MAX);
        Err(self.error("the number of bytes is out of range").help(format!("write {least} B to {most}")))
    }
}

fn entry(mut words: Words<'_>, files: &FileTable) -> Result<TraceEntry, ConfigError> {
    let thread = words.next().expect("the line has a word");
    let form = "\"THREAD OPERATION FILE ...\", like \"0 append log 8KiB\"";
    let kind = words.expect("the operation", form)?;
    let Some(known) = OperationKind::ALL.into_iter().find(|known| known.name() == kind.text) else {
        let names = OperationKind::ALL.map(OperationKind::name);
        let error = kind.error(format!("unknown operation \"{}\"", kind.text));
        return Err(error.help(did_you_mean_help(kind.text, &names)));
    };
    let form = form_of(known);
    let thread = thread_index(thread)?;
    let mut file = |what| name(words.expect(what, form)?, files);
    let operation = match known {
        OperationKind::Create => {
            let file = file("the name of the file")?;
            FileOperation::Create { file, lifetime: words.next().map_or(Ok(Lifetime::NotSet), lifetime)? }
        }
        OperationKind::Append => {
            let file = file("the name of the file")?;
            FileOperation::Append { file, bytes: words.expect("the number of bytes", form)?.bytes(1)? }
        }
        OperationKind::Sync => FileOperation::Sync { file: file("the name of the file")? },
        OperationKind::Close => FileOperation::Close { file: file("the name of the file")? },
        OperationKind::Read => {
            let file = file("the name of the file")?;
            let offset_bytes = words.expect("the offset", form)?.bytes(0)?;
            FileOperation::Read { file, offset_bytes, bytes: words.expect("the number of bytes", form)?.bytes(1)? }
        }
        OperationKind::Rename => {
            FileOperation::Rename { file: file("the name of the file")?, to: file("the new name")? }
        }
        OperationKind::Delete => FileOperation::Delete { file: file("the name of the file")? },
        OperationKind::Think => {
            let word = words.expect("the time", form)?;
            let TimeSpan(time) = word.quantity()?;
            if time > THINK_MAX_NS {
                return Err(word.error("the think time is too long").help("write at most 1 h"));
            }
            FileOperation::Think { time: Duration(time) }
        }
    };
    match words.next() {
        None => Ok(TraceEntry { thread, operation }),
        Some(word) => Err(word.error(format!("unexpected word \"{}\"", word.text)).help(format!("write {form}"))),
    }
}

/// The form of a line of this kind.
fn form_of(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Create => "\"THREAD create FILE\", and optionally a lifetime, like \"0 create log short\"",
        OperationKind::Append => "\"THREAD append FILE BYTES\", like \"0 append log 8KiB\"",
        OperationKind::Sync => "\"THREAD sync FILE\"",
        OperationKind::Close => "\"THREAD close FILE\"",
        OperationKind::Read => "\"THREAD read FILE OFFSET BYTES\", like \"0 read table 64KiB 4KiB\"",
        OperationKind::Rename => "\"THREAD rename FILE NEW-NAME\"",
        OperationKind::Delete => "\"THREAD delete FILE\"",
        OperationKind::Think => "\"THREAD think TIME\", like \"0 think 100us\"",
    }
}

fn thread_index(word: Word<'_>) -> Result<ThreadIndex, ConfigError> {
    let help = format!("a line begins with the number of its thread, 0 to {}", THREADS_MAX - 1);
    let number = Some(word.text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let thread = number.and_then(|text| text.parse().ok()).filter(|thread| *thread < THREADS_MAX);
    thread.map(ThreadIndex).ok_or_else(|| word.error(format!("\"{}\" is not a thread number", word.text)).help(help))
}

fn name(word: Word<'_>, files: &FileTable) -> Result<FileName, ConfigError> {
    if word.text.len() <= NAME_BYTES_MAX {
        return Ok(files.interned(word.text));
    }
    let error = word.error(format!("the name has {} bytes", word.text.len()));
    Err(error.help(format!("at most {NAME_BYTES_MAX} are allowed")))
}

fn lifetime(word: Word<'_>) -> Result<Lifetime, ConfigError> {
    let known = LIFETIMES.iter().find(|(name, _)| *name == word.text);
    known.map(|(_, lifetime)| *lifetime).ok_or_else(|| {
        let error = word.error(format!("unknown lifetime \"{}\"", word.text));
        error.help(did_you_mean_help(word.text, &LIFETIMES.map(|(name, _)| name)))
    })
}

#[cfg(test)]
mod tests;
