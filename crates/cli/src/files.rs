//! Reading and writing files, with errors that state a remedy.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use zonda_devices::{TextError, TextSource};
use zonda_profiles::BUILTIN;
use zonda_ssd::description::Profiles;

use crate::errors::Failure;
use crate::remedies;

/// Bytes of the largest job file or profile.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// Reads the text of a file, or of the standard input for `-`. `examples` is where there are files
/// of this kind, for the error.
pub(crate) fn read_text(path: &str, examples: &str) -> Result<String, Failure> {
    read_up_to(path, TEXT_BYTES_MAX).map_err(|error| {
        let help = match &error {
            TextError::Missing => format!("check the path; {examples}"),
            TextError::Directory => match remedies::drive_at(Path::new(path)) {
                Some(drive) => format!("it is {drive}: zonda serve {path} serves it; name a file here"),
                None => "name a file in this directory".to_owned(),
            },
            TextError::NotPermitted => "make the file readable, or copy it".to_owned(),
            _ => format!("name a text file of at most {} MiB; {examples}", TEXT_BYTES_MAX >> 20),
        };
        Failure::input(format!("cannot read {}: {error}", shown(path)), help)
    })
}

/// Reads the text of a file or pipe, or of the standard input for `-`, of at most `bytes_max` bytes.
pub(crate) fn read_up_to(path: &str, bytes_max: u64) -> Result<String, TextError> {
    match path {
        "-" => zonda_devices::text_of(io::stdin().lock(), bytes_max),
        path => zonda_devices::read_text(Path::new(path), bytes_max, TextSource::FileOrPipe),
    }
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

/// Reads the text of a file.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    zonda_devices::read_text(path, TEXT_BYTES_MAX, TextSource::File).map_err(|error| error.to_string())
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

/// Removes a file of older results, if it exists.
pub(crate) fn remove(directory: &Path, name: &str) -> Result<(), Failure> {
    let path = directory.join(name);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Failure::input(
            format!("cannot remove {}: {error}", path.display()),
            "check write permission of the directory",
        )),
        _ => Ok(()),
    }
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
