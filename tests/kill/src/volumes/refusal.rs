//! Refusals of a start that are documented (docs/guide/volumes.md, docs/internals/volumes.md).

/// What each of them says.
const DOCUMENTED: [(&str, &str); 9] = [
    ("too few active members", "missing or out of date"),
    ("too few active members", "not rebuilt yet"),
    ("unidentified losses", "blocks written last are lost, and it is not known which"),
    ("older than the newest epoch", "the drives are out of date"),
    ("split brain", "split brain"),
    ("no volume", "holds no volume"),
    ("no member can be read", "no member of the volume can be read"),
    ("no member can be read", "none of the members is there"),
    ("older than the newest epoch", "the members that are present are out of date"),
];

/// Which documented refusal this is, if it is one.
pub(super) fn kind(said: &str) -> Option<&'static str> {
    DOCUMENTED.iter().find(|(_, text)| said.contains(text)).map(|(kind, _)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_documented_refusals_are_known() {
        let said = "error: ../b, ../c are missing or out of date, and the volume can do without 1";
        assert_eq!(kind(said), Some("too few active members"));
        assert_eq!(kind("error: ../a: member 0: read fault"), None);
    }
}
