//! Remedies that fit the command. Libraries propose remedies without knowing which command and
//! options the user gave: a remedy must not repeat what was just refused.

use std::path::Path;

use zonda_devices::{VOLUME_FILE, is_volume};
use zonda_image::ImageFile;

use crate::errors::Failure;

/// The remedy for a drive that another host has reserved. A reservation persists if its holder is
/// killed.
pub(crate) const RESERVED: &str = "stop the program that has reserved the drive, such as zonda serve of a volume on its members; a server \
                                   that was killed leaves its reservations: start it again, or release them with \
                                   zonda volume takeover DIR --release, where DIR is the directory of the volume; if that is lost, \
                                   zonda volume import --take-over recreates it";

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

/// Refuses an image where the directory of a volume is expected.
pub(crate) fn refuse_image(directory: &Path, instead: &str) -> Result<(), Failure> {
    if directory.join(VOLUME_FILE).exists() || !directory.join(ImageFile::Superblock.name()).is_file() {
        return Ok(());
    }
    let instead = in_directory(instead, directory);
    Err(Failure::input(format!("{} is an image, not a volume", directory.display()), instead))
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
