//! Refusals of a start that are documented (docs/guide/volumes.md, docs/internals/volumes.md).

/// The kind and the text of each.
const DOCUMENTED: [(&str, &str); 9] = [
    ("too few active members", "missing or out of date"),
    ("too few active members", "not rebuilt yet"),
    ("unidentified losses", "are lost, and it is not known which"),
    ("older than the newest epoch", "the drives are out of date"),
    ("split brain", "split brain"),
    ("no volume", "no valid superblock of a volume found"),
    ("no member can be read", "cannot read any member of the volume"),
    ("no member can be read", "cannot open any member of the volume"),
    ("older than the newest epoch", "the members that are present are out of date"),
];

/// The kind of a documented refusal, or `None`.
pub(super) fn kind(said: &str) -> Option<&'static str> {
    DOCUMENTED.iter().find(|(_, text)| said.contains(text)).map(|(kind, _)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_documented_refusals_are_known() {
        let said = "error: cannot mount the volume: ../b, ../c are missing or out of date, and it can lose at most 1";
        assert_eq!(kind(said), Some("too few active members"));
        assert_eq!(kind("error: ../a: member 0: read fault"), None);
    }
}
