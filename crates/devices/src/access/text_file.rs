//! Reads whole text files within a limit: none is read without end, and none is waited for.

use std::fs::{self, FileType};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// What may be at the path of a text file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextSource {
    /// A regular file only: nothing that a program waits for.
    File,
    /// A regular file or a pipe, as in `zonda bench <(...)`: the user waits for the other end.
    FileOrPipe,
}

/// Why a text file cannot be read.
#[derive(Debug)]
pub enum TextError {
    /// No file is at the path.
    Missing,
    /// The permissions of the file or of a directory above it do not allow it.
    NotPermitted,
    /// A directory is at the path.
    Directory,
    /// Something else that is not a regular file is at the path, such as "a character device".
    NotFile(&'static str),
    /// The file has more than this number of bytes.
    TooLong(u64),
    /// The text is not UTF-8 from this byte on.
    NotUtf8 {
        /// Offset of the first invalid byte.
        byte: usize,
        /// Its line, from 1.
        line: usize,
    },
    /// Another error of the system.
    Other(io::Error),
}

impl std::fmt::Display for TextError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TextError::Missing => f.write_str("no such file"),
            TextError::NotPermitted => f.write_str("permission denied"),
            TextError::Directory => f.write_str("is a directory"),
            TextError::NotFile(what) => write!(f, "is {what}, not a regular file"),
            TextError::TooLong(bytes_max) if bytes_max.is_multiple_of(1 << 20) => {
                write!(f, "file is larger than {} MiB", bytes_max >> 20)
            }
            TextError::TooLong(bytes_max) => write!(f, "file is larger than {bytes_max} bytes"),
            TextError::NotUtf8 { byte, line } => write!(f, "not valid UTF-8 at byte {byte} (line {line})"),
            TextError::Other(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TextError {}

impl From<io::Error> for TextError {
    fn from(error: io::Error) -> TextError {
        match error.kind() {
            io::ErrorKind::NotFound => TextError::Missing,
            io::ErrorKind::PermissionDenied => TextError::NotPermitted,
            io::ErrorKind::IsADirectory => TextError::Directory,
            _ => TextError::Other(error),
        }
    }
}

/// Reads the text at a path, of at most `bytes_max` bytes.
///
/// # Errors
/// When it cannot be read, is longer, is not UTF-8, or is not of the kind that `source` allows.
pub fn read_text(path: &Path, bytes_max: u64, source: TextSource) -> Result<String, TextError> {
    let kind = fs::metadata(path)?.file_type();
    must_be(kind, source)?;
    // What has replaced the file since is not waited for either.
    let flags = if kind.is_fifo() { OFlags::empty() } else { OFlags::NONBLOCK | OFlags::NOCTTY };
    let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    must_be(file.metadata()?.file_type(), source)?;
    text_of(file, bytes_max)
}

/// Reads the text of an open file or pipe, of at most `bytes_max` bytes.
///
/// # Errors
/// When it cannot be read, is longer, or is not UTF-8.
pub fn text_of(reader: impl Read, bytes_max: u64) -> Result<String, TextError> {
    let mut bytes = Vec::new();
    // One byte more than the limit detects a file that is too long.
    reader.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(TextError::TooLong(bytes_max));
    }
    String::from_utf8(bytes).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..byte].iter().filter(|&&byte| byte == b'\n').count();
        TextError::NotUtf8 { byte, line }
    })
}

fn must_be(kind: FileType, source: TextSource) -> Result<(), TextError> {
    let what = match () {
        () if kind.is_file() || (kind.is_fifo() && source == TextSource::FileOrPipe) => return Ok(()),
        () if kind.is_dir() => return Err(TextError::Directory),
        () if kind.is_fifo() => "a pipe",
        () if kind.is_char_device() => "a character device",
        () if kind.is_block_device() => "a block device",
        () => "a socket",
    };
    Err(TextError::NotFile(what))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    fn refusal(path: &Path, bytes_max: u64, source: TextSource) -> String {
        read_text(path, bytes_max, source).expect_err("it is refused").to_string()
    }

    #[test]
    fn a_file_is_read_up_to_its_limit_and_a_longer_one_is_refused() {
        let directory = tempfile::tempdir().expect("there is space");
        let path = directory.path().join("text");
        fs::write(&path, "12345678").expect("there is space");
        for source in [TextSource::File, TextSource::FileOrPipe] {
            assert_eq!(read_text(&path, 8, source).expect("it is short enough"), "12345678");
            assert_eq!(refusal(&path, 7, source), "file is larger than 7 bytes");
        }
        fs::write(&path, vec![b' '; (1 << 20) + 1]).expect("there is space");
        assert_eq!(refusal(&path, 1 << 20, TextSource::File), "file is larger than 1 MiB");
        fs::write(&path, b"a\n\xff\xfe").expect("there is space");
        assert_eq!(refusal(&path, 8, TextSource::File), "not valid UTF-8 at byte 2 (line 2)");
    }

    #[test]
    fn what_is_not_a_regular_file_is_refused_by_its_kind() {
        let directory = tempfile::tempdir().expect("there is space");
        let at = |name: &str| directory.path().join(name);
        let _listener = std::os::unix::net::UnixListener::bind(at("socket")).expect("there is space");
        let of = |path: &Path| refusal(path, 8, TextSource::File);
        assert_eq!(of(Path::new("/dev/zero")), "is a character device, not a regular file");
        assert_eq!(of(&at("socket")), "is a socket, not a regular file");
        assert_eq!(of(directory.path()), "is a directory");
        assert_eq!(of(&at("none")), "no such file");
    }

    #[test]
    fn a_pipe_is_read_only_where_the_user_may_name_one_and_is_not_waited_for_otherwise() {
        let directory = tempfile::tempdir().expect("there is space");
        let path = directory.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).expect("there is space");
        assert_eq!(refusal(&path, 8, TextSource::File), "is a pipe, not a regular file");
        let write = |text: &'static str| {
            let path = path.clone();
            // The reader may close its end before all is written.
            std::thread::spawn(move || drop(File::create(path).map(|mut pipe| pipe.write_all(text.as_bytes()))))
        };
        let writer = write("text");
        assert_eq!(read_text(&path, 8, TextSource::FileOrPipe).expect("it is short enough"), "text");
        writer.join().expect("it ends");
        let writer = write("123456789");
        assert_eq!(refusal(&path, 8, TextSource::FileOrPipe), "file is larger than 8 bytes");
        writer.join().expect("it ends");
    }
}
