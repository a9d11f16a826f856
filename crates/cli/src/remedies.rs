//! Remedies that fit the command. Libraries propose remedies without knowing which command and
//! options the user gave: a remedy must not repeat what was just refused.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use zonda_devices::{DriveError, DriveUser, Location, VOLUME_FILE, is_pool, is_vacant, is_volume, user_of_image};
use zonda_image::ImageFile;

use crate::commands::connect;
use crate::errors::Failure;

/// The remedy for a drive that another host has reserved. A reservation persists if its holder is
/// killed.
pub(crate) const RESERVED: &str = "stop the program that has reserved the drive, such as zonda serve of a volume on its members; a server \
                                   that was killed leaves its reservations: start it again, or release them with \
                                   zonda volume takeover DIR --release, where DIR is the directory of the volume; if that is lost, \
                                   zonda volume import --take-over recreates it; for the drive of a pool, the command is zonda pool \
                                   takeover DIR --release";

/// A remedy without the alternatives that name one of `refused`: options or commands that the user
/// has given. `otherwise` is the remedy if no alternative remains.
pub(crate) fn without(help: &str, refused: &[&str], otherwise: &str) -> String {
    let rest: Vec<&str> = help.split("; ").filter_map(|clause| before(clause, refused)).collect();
    if rest.is_empty() { otherwise.to_owned() } else { rest.join("; ") }
}

/// The alternatives of a clause before the first that names one of `refused`.
fn before<'a>(clause: &'a str, refused: &[&str]) -> Option<&'a str> {
    let Some(at) = refused.iter().filter_map(|words| position(clause, words)).min() else { return Some(clause) };
    clause[..at].rfind(", or ").map(|end| &clause[..end])
}

/// Where a clause names an option or a command: not as a part of a longer one.
fn position(clause: &str, words: &str) -> Option<usize> {
    clause.match_indices(words).map(|(at, _)| at).find(|at| {
        let next = clause[at + words.len()..].chars().next();
        next.is_none_or(|next| !next.is_alphanumeric() && next != '-')
    })
}

/// A remedy that names the directory DIR, as a command that can be copied.
pub(crate) fn in_directory(help: &str, directory: &Path) -> String {
    let named = |word: &str| match word.strip_prefix("DIR") {
        Some(rest) if !rest.starts_with(char::is_alphanumeric) => format!("{}{rest}", directory.display()),
        _ => word.to_owned(),
    };
    help.split(' ').map(named).collect::<Vec<String>>().join(" ")
}

/// Refuses the directory of a volume where an image is expected.
pub(crate) fn refuse_volume(directory: &Path, instead: &str) -> Result<(), Failure> {
    if !is_volume(directory) {
        return Ok(());
    }
    let instead = in_directory(instead, directory);
    Err(Failure::input(format!("{} is a volume, not an image", directory.display()), instead))
}

/// Refuses a file, or an image, where the directory of a volume is expected.
pub(crate) fn refuse_image(directory: &Path, instead: &str) -> Result<(), Failure> {
    if let Some(what) = kind_of_file(directory) {
        let message = format!("{} is {what}, not the directory of a volume", directory.display());
        return Err(Failure::input(message, "give the directory of a volume, which zonda volume create creates"));
    }
    if directory.join(VOLUME_FILE).exists() || !directory.join(ImageFile::Superblock.name()).is_file() {
        return Ok(());
    }
    let instead = in_directory(instead, directory);
    Err(Failure::input(format!("{} is an image, not a volume", directory.display()), instead))
}

/// What is at a path where a directory is expected; `None` for a directory, or if nothing is there.
fn kind_of_file(path: &Path) -> Option<&'static str> {
    let kind = fs::metadata(path).ok()?.file_type();
    match () {
        () if kind.is_dir() => None,
        () if kind.is_block_device() || kind.is_char_device() => Some("a device file"),
        () if kind.is_socket() => Some("a socket"),
        () => Some("a file"),
    }
}

/// Refuses what is neither a directory nor an `nvme-tcp://` URL, where either is expected.
pub(crate) fn refuse_other_places(text: &str) -> Result<(), Failure> {
    if text.starts_with("unix:") {
        let help = "give the directory of an image, or nvme-tcp://HOST:PORT/NQN, the URL that zonda serve prints";
        return Err(Failure::input(format!("{text} is the address of an NBD server, not a zoned drive"), help));
    }
    if matches!(text.parse(), Ok(Location::Device(_))) {
        return Ok(());
    }
    let Some(what) = kind_of_file(Path::new(text)) else { return Ok(()) };
    let help = match what {
        "a device file" => "give the path of the device below /dev, such as /dev/nvme0n1",
        _ => "give the directory of an image, which zonda drive create creates, or an nvme-tcp:// URL",
    };
    Err(Failure::input(format!("{text} is {what}, not the directory of an image"), help))
}

/// Refuses a URL where the directory of an image is expected.
pub(crate) fn refuse_url(path: &Path, help: &str) -> Result<(), Failure> {
    let text = path.to_string_lossy();
    if text.contains("://") || text.starts_with("nvme-tcp:") {
        return Err(Failure::input(format!("{text} is a URL, and this command needs a directory"), help));
    }
    Ok(())
}

/// The drive in this directory, in words.
pub(crate) fn drive_at(directory: &Path) -> Option<&'static str> {
    match () {
        () if is_volume(directory) => Some("the directory of a volume"),
        () if is_pool(directory) => Some("the directory of a pool"),
        () if directory.join(ImageFile::Superblock.name()).is_file() => Some("the directory of an image"),
        () => None,
    }
}

/// Refuses to create files in the directory of an image, or below it.
pub(crate) fn refuse_inside_image(path: &Path, help: &str) -> Result<(), Failure> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let is_image = |path: &&Path| path.join(ImageFile::Superblock.name()).is_file();
    let Some(image) = whole.ancestors().find(is_image) else { return Ok(()) };
    let message = format!("cannot create {}: {} is the directory of an image", path.display(), image.display());
    Err(Failure::input(message, help))
}

/// An image that cannot be opened because it is missing, or only a file of it.
pub(crate) fn no_image(directory: &Path, error: DriveError) -> Failure {
    refuse_incomplete_image(directory).err().unwrap_or_else(|| connect::failure(error))
}

/// Refuses a directory that has files of an image, but not the one with its geometry.
pub(crate) fn refuse_incomplete_image(directory: &Path) -> Result<(), Failure> {
    let superblock = ImageFile::Superblock.name();
    let others = [ImageFile::State, ImageFile::Journal, ImageFile::Data];
    let has_others = || others.iter().any(|file| directory.join(file.name()).is_file());
    // An interrupted creation has remedies of its own.
    if is_vacant(directory) || directory.join(superblock).exists() || !has_others() {
        return Ok(());
    }
    let message = format!("the file {superblock} is missing from the image in {}", directory.display());
    let help = "restore the file from a backup of the image: it holds the geometry, without which the image can neither be opened \
                nor repaired";
    Err(Failure::input(message, help))
}

/// The refusal of a drive that a volume or pool uses. `instead` is what the user can do with a
/// volume.
pub(crate) fn used_by(user: &DriveUser, drive: &str, instead: &str) -> Failure {
    let instead = match user {
        DriveUser::Volume(_) => instead,
        DriveUser::Pool(_) => "serve the pool with zonda serve, and use its namespaces",
        DriveUser::DamagedVolume(_) => {
            "restore the drive from a backup, or replace it in its volume: zonda member replace"
        }
        DriveUser::DamagedPool(_) => "restore the drive from a backup",
    };
    Failure::input(
        format!("{drive} is {user}"),
        format!("{instead}; --force overrides this if the {} is no longer needed", user.kind()),
    )
}

/// Refuses the image that a volume or pool uses without opening it for writing, which rewrites its
/// files. An image that cannot be read is refused when it is opened.
pub(crate) fn refuse_member_image(directory: &Path, instead: &str) -> Result<(), Failure> {
    let user = (!is_volume(directory)).then(|| user_of_image(directory)).flatten();
    user.map_or(Ok(()), |user| Err(used_by(&user, &directory.display().to_string(), instead)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_does_not_repeat_an_option_that_was_given() {
        let help = "restore a missing member; if it is out of date, run zonda serve DIR --accept-older";
        assert_eq!(without(help, &["--accept-older"], ""), "restore a missing member");
        assert_eq!(without(help, &["--accept-losses"], ""), help);
        let help = "name another drive, or use --force if its data is not needed: the drive is then wiped";
        assert_eq!(without(help, &["--force"], ""), "name another drive");
        let help = "name the drives, too; --force accepts drives that differ, or goes back to an older epoch";
        assert_eq!(without(help, &["--force"], ""), "name the drives, too");
    }

    #[test]
    fn a_longer_option_is_another_one() {
        assert_eq!(without("use --force-wipe", &["--force"], "none"), "use --force-wipe");
        assert_eq!(without("use --force-wipe, or --force", &["--force"], "none"), "use --force-wipe");
    }

    #[test]
    fn a_remedy_names_the_directory() {
        let help = "run zonda volume check DIR, or zonda serve DIR --accept-older; see DIRECTORY";
        let named = "run zonda volume check v/a, or zonda serve v/a --accept-older; see DIRECTORY";
        assert_eq!(in_directory(help, Path::new("v/a")), named);
    }

    #[test]
    fn another_remedy_is_given_if_none_remains() {
        assert_eq!(without("--force does so", &["--force"], "name other drives"), "name other drives");
    }
}
