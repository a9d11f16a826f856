//! What follows when an operator fails a member.

use std::path::Path;

use zonda_devices::{VolumeReport, shown_place};

use crate::units;

/// What replaces the member that has failed between two reports, in words.
pub(super) fn next(before: &VolumeReport, after: &VolumeReport, directory: &Path, is_served: bool) -> String {
    let shown = directory.display();
    let members = before.members.iter().zip(&after.members);
    let changed = members.into_iter().find(|(old, new)| old.at != new.at || old.state != new.state);
    let Some((old, new)) = changed else { return String::new() };
    let member = format!("member {} ({})", old.member, shown_place(directory, &old.at));
    let progress = if is_served {
        format!("zonda volume status {shown} shows the progress of the rebuild")
    } else {
        format!("the rebuild runs while the volume is served: zonda serve {shown}")
    };
    let usable = after.spares.iter().find(|spare| !after.unreachable_spares.contains(spare));
    match (old.at != new.at, usable) {
        (true, _) => format!("the spare {} replaces {member}; {progress}\n", shown_place(directory, &new.at)),
        (false, Some(spare)) => {
            format!("the spare {} will replace {member}; {progress}\n", shown_place(directory, spare))
        }
        (false, None) => format!(
            "no spare replaces {member}, and the volume can lose {}: add one with zonda volume spare add {shown} DRIVE, or zonda \
             member replace {shown} {} --with DRIVE\n",
            units::counted(u64::from(after.can_lose), "more member"),
            old.member
        ),
    }
}

#[cfg(test)]
mod tests {
    use zonda_devices::MemberSummary;

    use super::*;

    fn report(at: &str, state: &str, spares: &[&str]) -> VolumeReport {
        VolumeReport {
            members: vec![MemberSummary {
                member: 0,
                at: at.to_owned(),
                state: state.to_owned(),
                ..MemberSummary::default()
            }],
            spares: spares.iter().map(|spare| (*spare).to_owned()).collect(),
            can_lose: 1,
            ..VolumeReport::default()
        }
    }

    #[test]
    fn a_failed_member_is_reported_with_what_replaces_it() {
        let before = report("../drives/a", "active", &["../drives/s"]);
        let of = |after: &VolumeReport, is_served| next(&before, after, Path::new("vol"), is_served);
        let replaced = report("../drives/s", "joining", &[]);
        let expected = "the spare drives/s replaces member 0 (drives/a); zonda volume status vol shows the progress of the \
                        rebuild\n";
        assert_eq!(of(&replaced, true), expected);
        assert!(of(&replaced, false).ends_with("the rebuild runs while the volume is served: zonda serve vol\n"));
        let waits = report("../drives/a", "failed", &["../drives/s"]);
        assert!(of(&waits, true).starts_with("the spare drives/s will replace member 0 (drives/a); "));
        let alone = report("../drives/a", "failed", &[]);
        let expected = "no spare replaces member 0 (drives/a), and the volume can lose 1 more member: add one with zonda volume \
                        spare add vol DRIVE, or zonda member replace vol 0 --with DRIVE\n";
        assert_eq!(of(&alone, true), expected);
        let away = VolumeReport { unreachable_spares: vec!["../drives/s".to_owned()], ..waits };
        assert_eq!(of(&away, true), expected, "a spare that cannot be reached replaces no member");
        assert_eq!(of(&before.clone(), true), "");
    }
}
