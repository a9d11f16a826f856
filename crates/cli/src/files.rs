//! Files, read and written with errors that say what to do.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use zonda_profiles::BUILTIN;
use zonda_ssd::description::Profiles;

use crate::errors::Failure;

/// Bytes of the largest job file or profile.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// The text of a file; of the standard input for `-`.
pub(crate) fn read_text(path: &str) -> Result<String, Failure> {
    let text = if path == "-" { text_of(io::stdin().lock()) } else { read(Path::new(path)) };
    text.map_err(|reason| {
        let help = match reason.as_str() {
            NO_FILE => "see whether the name is right; examples are under examples/ of zonda's sources",
            A_DIRECTORY => "write the name of a file in it",
            NO_PERMISSION => "make the file readable, or copy it",
            _ => "write the name of a TOML file",
        };
        Failure::input(format!("{} cannot be read: {reason}", shown(path)), help)
    })
}

/// A path as it is shown.
pub(crate) fn shown(path: &str) -> &str {
    if path == "-" { "<stdin>" } else { path }
}

/// The built-in profiles, and no files.
pub(crate) const BUILTIN_PROFILES: Profiles<'static> = Profiles::without_files(BUILTIN);

/// Profiles that a command line names: the built-in ones, and files whose paths start at the current directory.
pub(crate) const PROFILES: Profiles<'static> = Profiles::new(BUILTIN, &|path| read(Path::new(path)));

/// Reads what a file names: paths start at the directory of that file.
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

const NO_FILE: &str = "there is no such file";
const A_DIRECTORY: &str = "it is a directory";
const NO_PERMISSION: &str = "permission denied";

/// The text of a file, or in a few words why not.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let in_words = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => NO_FILE.to_owned(),
        io::ErrorKind::PermissionDenied => NO_PERMISSION.to_owned(),
        io::ErrorKind::IsADirectory => A_DIRECTORY.to_owned(),
        _ => error.to_string(),
    };
    let file = File::open(path).map_err(in_words)?;
    if file.metadata().map_err(in_words)?.is_dir() {
        return Err(A_DIRECTORY.to_owned());
    }
    text_of(file)
}

fn text_of(reader: impl Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    reader.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return Err(format!("it is larger than {} MiB", TEXT_BYTES_MAX >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..valid].iter().filter(|&&byte| byte == b'\n').count();
        format!("it is not UTF-8 text, from byte {valid} (line {line}) on")
    })
}

/// A directory for results, made if it is not there.
pub(crate) fn make_directory(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| {
        Failure::input(
            format!("the directory {} cannot be made: {error}", path.display()),
            "write the name of a directory in which you may write, after --out",
        )
    })
}

/// Writes a file of results.
pub(crate) fn write(directory: &Path, name: &str, contents: &str) -> Result<(), Failure> {
    let path = directory.join(name);
    fs::write(&path, contents).map_err(|error| {
        Failure::input(
            format!("{} cannot be written: {error}", path.display()),
            "see whether there is room, and whether you may write there",
        )
    })
}
