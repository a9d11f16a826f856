//! The parts of scenarios that `zonda sim --without` leaves out, in words.

use zonda_sim::Part;

/// Columns of the names in the help text.
const NAME_WIDTH: usize = 20;

/// The parts with their descriptions, for the help text.
pub(super) fn in_help() -> String {
    let lines = Part::ALL.map(|(name, part)| format!("\n  {name:<NAME_WIDTH$}{}", in_words(part)));
    format!("Parts for --without:{}", lines.concat())
}

/// What a part does in the scenarios in which it occurs.
fn in_words(part: Part) -> &'static str {
    match part {
        Part::Faults => "commands of drives that fail or are lost (media errors, timeouts)",
        Part::Delays => "completions that are delayed",
        Part::Trace => "the layer that records a trace of the commands",
        Part::Slice => "the layer that exposes some zones of the drive only; else the whole drive",
        Part::PowerLoss => "power losses of drives",
        Part::Degradation => "zones that become Read Only or Offline",
        Part::Pauses => "pauses of a host between its commands",
        Part::Zrwa => "Zone Random Write Areas",
        Part::Conventional => "conventional zones",
        Part::Bytes => "drives that store the written bytes; else they store hashes of them",
        Part::Mix => "random shares of reads, writes and other operations; else equal shares",
        Part::Cuts => "connections that are reset",
        Part::Blackholes => "connections that carry no data, or little, for a while",
        Part::Deaths => "kills and restarts of hosts, and of stores, volumes, images and pools",
        Part::Stalls => "hosts that do not read from their connections for a while",
        Part::Crashes => "kills and restarts of NVMe/TCP servers",
        Part::RogueClients => "unauthenticated clients that send garbage, or nothing",
        Part::Digests => "header and data digests of NVMe/TCP",
        Part::Authentication => "DH-HMAC-CHAP authentication",
        Part::Reservations => "hosts that share a namespace by NVMe reservations",
        Part::Migration => "migration of live data by garbage collection of a file store",
        Part::Flushes => "Flush commands of file stores and of hosts of a volume or pool",
        Part::Trims => "trims (Deallocate) by hosts of a volume",
        Part::Rot => "silent corruption and unreadable blocks of members, and of files of an image",
        Part::MemberLosses => "members of a volume that are removed or fail",
        Part::Absences => "members that are missing at one assembly of a volume and present at the next",
        Part::Rebuilds => "failed members that are replaced and rebuilt",
        Part::Scrubs => "scrubs of a volume",
        Part::SlowMembers => "members that are slower than others",
        Part::Caches => "volatile write caches of members, and of a drive",
        Part::BeyondTolerance => "more missing or damaged members than the redundancy tolerates",
        Part::SplitBrain => "sets of members of a volume that are written to independently",
        Part::OldCopies => "members, and files of an image, that are replaced by an earlier copy",
        Part::LongPauses => "suspensions of the process of a volume, and of members that it needs",
        Part::SharedFailures => "failures of all members at once, such as of a network",
        Part::ScrubLosses => "members that are lost after a scrub",
        Part::RebuildFailures => "failures during a rebuild",
        Part::ResetFaults => "zone resets and zone reports that fail",
        Part::IgnoredFlushes => "Flush commands that succeed without effect",
        Part::MisdirectedWrites => "writes to a wrong block, and torn writes, that report success",
        Part::CutOpenings => "interrupted openings of images, and mounts of pools",
        Part::FullDisk => "a full file system under an image",
        Part::Truncation => "truncated files of an image",
        Part::Scheduler => "schedulers between a pool and its drive, and ezns inside conflict groups",
        Part::NamespaceChanges => "namespaces of a pool that are created, resized and deleted",
        Part::Images => "images in files below a pool; else the drive model",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_own_line_that_fits_a_screen() {
        let help = in_help();
        assert_eq!(help.lines().count(), 1 + Part::ALL.len());
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
        assert!(Part::ALL.iter().all(|(name, _)| name.len() < NAME_WIDTH));
    }
}
