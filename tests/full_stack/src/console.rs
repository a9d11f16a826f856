//! The output of a guest, and its parser.

use serde_json::Value;

/// The output of a guest's script.
///
/// Sections are between lines `BEGIN name` and `END name`, which `section` of `guest/lib.sh`
/// prints.
#[derive(Clone, Debug, Default)]
pub struct Console {
    lines: Vec<String>,
}

/// One zone of a report of any tool. Positions are in 512-byte sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The zone's first sector.
    pub start: u64,
    /// The zone capacity.
    pub capacity: u64,
    /// The write pointer, from the zone's start; `None` if it is invalid (full, read-only, offline,
    /// conventional).
    pub written: Option<u64>,
    /// blkzone's two letters: `em`, `oi` (implicitly opened), `oe`, `cl`, `fu`, `ro`, `of`, `nw`.
    pub state: String,
}

impl Console {
    /// Adds the next line.
    pub(crate) fn push(&mut self, line: String) {
        self.lines.push(line);
    }

    /// The whole output.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines.join("\n")
    }

    /// The section with this name.
    ///
    /// # Panics
    /// If the guest printed no such section.
    #[must_use]
    pub fn section(&self, name: &str) -> String {
        let position = |mark: &str| self.lines.iter().position(|line| *line == format!("{mark} {name}"));
        let (Some(begin), Some(end)) = (position("BEGIN"), position("END")) else {
            panic!("the guest printed no section {name}:\n{}", self.text());
        };
        self.lines[begin + 1..end].join("\n")
    }

    /// The section with this name, parsed as JSON.
    ///
    /// # Panics
    /// If it is not valid JSON.
    #[must_use]
    pub fn json(&self, name: &str) -> Value {
        let text = self.section(name);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("section {name} is not valid JSON: {error}\n{text}"))
    }

    /// The zones of a section that `blkzone report` printed.
    ///
    /// # Panics
    /// If a line cannot be parsed.
    #[must_use]
    pub fn zones_of_blkzone(&self, name: &str) -> Vec<Zone> {
        self.section(name).lines().map(|line| blkzone_line(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }

    /// The zones of a section that `nvme zns report-zones -o json` printed, for blocks of this many
    /// bytes.
    ///
    /// # Panics
    /// If the section is something else.
    #[must_use]
    pub fn zones_of_nvme(&self, name: &str, block_bytes: u64) -> Vec<Zone> {
        let report = self.json(name);
        let zones = report["zone_list"].as_array().unwrap_or_else(|| panic!("no zones: {report}"));
        zones.iter().map(|zone| nvme_zone(zone, block_bytes / 512).unwrap_or_else(|| panic!("{zone}"))).collect()
    }
}

/// `  start: 0x000000000, len 0x020000, cap 0x018000, wptr 0x000000 reset:0 non-seq:0, zcond: 1(em) [type: ...]`
fn blkzone_line(line: &str) -> Option<Zone> {
    let after = |word: &str| line.split_once(word).map(|(_, rest)| rest.trim_start());
    let number = |word: &str| {
        let digits = after(word)?.strip_prefix("0x")?;
        let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        u64::from_str_radix(&digits[..end], 16).ok()
    };
    let state = after("zcond:")?.split_once('(')?.1.split_once(')')?.0.to_owned();
    Some(zone(number("start:")?, number("cap")?, number("wptr")?, state))
}

fn nvme_zone(zone_json: &Value, sectors_per_block: u64) -> Option<Zone> {
    let sectors = |key: &str| Some(zone_json[key].as_u64()? * sectors_per_block);
    let state = match zone_json["state"].as_str()? {
        "EMPTY" => "em",
        "IMP_OPENED" => "oi",
        "EXP_OPENED" => "oe",
        "CLOSED" => "cl",
        "FULL" => "fu",
        "READONLY" => "ro",
        "OFFLINE" => "of",
        _ => return None,
    };
    let start = sectors("slba")?;
    // An invalid write pointer may have any value, including all ones.
    let pointer = zone_json["wp"].as_u64()?.saturating_mul(sectors_per_block);
    Some(zone(start, sectors("cap")?, pointer.saturating_sub(start), state.to_owned()))
}

fn zone(start: u64, capacity: u64, written: u64, state: String) -> Zone {
    let has_write_pointer = matches!(state.as_str(), "em" | "oi" | "oe" | "cl");
    Zone { start, capacity, written: has_write_pointer.then_some(written), state }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console(text: &str) -> Console {
        Console { lines: text.lines().map(str::to_owned).collect() }
    }

    #[test]
    fn a_section_is_the_text_between_its_markers() {
        let console = console("x\nBEGIN a\n{\n\"n\": 1}\nEND a\ny");
        assert_eq!(console.section("a"), "{\n\"n\": 1}");
        assert_eq!(console.json("a")["n"], 1);
    }

    #[test]
    #[should_panic(expected = "no section b")]
    fn a_section_that_was_not_printed_is_a_failure() {
        let _ = console("BEGIN b\ncut off").section("b");
    }

    #[test]
    fn both_reports_of_a_zone_read_the_same() {
        let console = console(
            "BEGIN blkzone
  start: 0x000020000, len 0x020000, cap 0x018000, wptr 0x000080 reset:0 non-seq:0, zcond: 2(oi) [type: 2(SEQ_WRITE_REQUIRED)]
END blkzone
BEGIN nvme
{\"nr_zones\":1,\"zone_list\":[{\"slba\":16384,\"wp\":16400,\"cap\":12288,\"state\":\"IMP_OPENED\",\"type\":\"SEQWRITE_REQ\"}]}
END nvme",
        );
        let expected = Zone { start: 0x20000, capacity: 0x18000, written: Some(128), state: "oi".to_owned() };
        assert_eq!(console.zones_of_blkzone("blkzone"), std::slice::from_ref(&expected));
        assert_eq!(console.zones_of_nvme("nvme", 4096), [expected]);
    }

    #[test]
    fn a_full_zone_has_no_write_pointer() {
        let line = "  start: 0x000000000, len 0x020000, cap 0x018000, wptr 0x018000 reset:0 non-seq:0, zcond:14(fu) [type: 2(X)]";
        assert_eq!(blkzone_line(line).expect("a line of blkzone").written, None);
    }
}
