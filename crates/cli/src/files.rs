//! Reading and writing files, with errors that state a remedy.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use zonda_profiles::BUILTIN;
use zonda_ssd::description::Profiles;

use crate::errors::Failure;
use crate::remedies;

/// Bytes of the largest job file or profile.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// Reads the text of a file, or of the standard input for `-`. `examples` is where there are files
/// of this kind, for the error.
pub(crate) fn read_text(path: &str, examples: &str) -> Result<String, Failure> {
    let text = if path == "-" { text_of(io::stdin().lock()) } else { read(Path::new(path)) };
    text.map_err(|reason| {
        let help = match reason.as_str() {
            NO_FILE => format!("check the path; {examples}"),
            A_DIRECTORY => match remedies::drive_at(Path::new(path)) {
                Some(drive) => format!("it is {drive}: zonda serve {path} serves it; name a file here"),
                None => "name a file in this directory".to_owned(),
            },
            NO_PERMISSION => "make the file readable, or copy it".to_owned(),
            _ => format!("name a text file of at most {} MiB; {examples}", TEXT_BYTES_MAX >> 20),
        };
        Failure::input(format!("cannot read {}: {reason}", shown(path)), help)
    })
}

/// Where there are job files and configuration files.
pub(crate) const EXAMPLES: &str = "examples are in the directory examples/ of zonda's sources";

/// A path as messages show it.
pub(crate) fn shown(path: &str) -> &str {
    if path == "-" { "<stdin>" } else { path }
}

/// The built-in profiles only, no files.
pub(crate) const BUILTIN_PROFILES: Profiles<'static> = Profiles::without_files(BUILTIN);

/// Profiles named on the command line: built-in ones, and files relative to the current directory.
pub(crate) const PROFILES: Profiles<'static> = Profiles::new(BUILTIN, &|path| read(Path::new(path)));

/// Reads files that `of_file` names: paths are relative to its directory.
pub(crate) fn reader_beside(of_file: &str) -> impl Fn(&str) -> Result<String, String> {
    let base = directory_of(of_file);
    move |path| read(&base.join(path))
}

/// The same for secrets and private keys.
pub(crate) fn key_reader_beside(of_file: &str) -> impl Fn(&str) -> Result<String, String> {
    let base = directory_of(of_file);
    move |path| zonda_devices::read_key(&base.join(path))
}

fn directory_of(file: &str) -> PathBuf {
    match file {
        "-" => PathBuf::new(),
        path => Path::new(path).parent().unwrap_or(Path::new("")).to_owned(),
    }
}

const NO_FILE: &str = "no such file";
const A_DIRECTORY: &str = "is a directory";
const NO_PERMISSION: &str = "permission denied";

/// Reads the text of a file.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let reason = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => NO_FILE.to_owned(),
        io::ErrorKind::PermissionDenied => NO_PERMISSION.to_owned(),
        io::ErrorKind::IsADirectory => A_DIRECTORY.to_owned(),
        _ => error.to_string(),
    };
    let file = File::open(path).map_err(reason)?;
    if file.metadata().map_err(reason)?.is_dir() {
        return Err(A_DIRECTORY.to_owned());
    }
    text_of(file)
}

fn text_of(reader: impl Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    reader.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return Err(format!("file is larger than {} MiB", TEXT_BYTES_MAX >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..valid].iter().filter(|&&byte| byte == b'\n').count();
        format!("not valid UTF-8 at byte {valid} (line {line})")
    })
}

/// Creates a directory for results if it does not exist.
pub(crate) fn make_directory(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| {
        Failure::input(
            format!("cannot create directory {}: {error}", path.display()),
            "choose a writable directory with --out",
        )
    })
}

/// Writes a file of results.
pub(crate) fn write(directory: &Path, name: &str, contents: &str) -> Result<(), Failure> {
    let path = directory.join(name);
    fs::write(&path, contents).map_err(|error| {
        Failure::input(
            format!("cannot write {}: {error}", path.display()),
            "check free space and write permission of the directory",
        )
    })
}
