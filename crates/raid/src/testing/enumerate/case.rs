//! A test case, and its name.

use std::fmt;
use std::str::FromStr;

use super::{Cut, Fault, Op, Setup};

/// A volume, its history, the power failure, and the faults at the mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The volume.
    pub setup: Setup,
    /// The operations before the power failure.
    pub history: Vec<Op>,
    /// The power failure, and what survives it.
    pub cut: Cut,
    /// The faults when it is mounted.
    pub faults: Vec<Fault>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let history: Vec<String> = self.history.iter().map(Op::to_string).collect();
        write!(f, "{}/{}/{}", self.setup, history.join(" "), self.cut)?;
        self.faults.iter().try_for_each(|fault| write!(f, "/{fault}"))
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Case, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let [setup @ .., _, _] = parts.get(..6).ok_or(format!("\"{text}\" has fewer than six parts"))? else {
            return Err(format!("\"{text}\" has fewer than six parts"));
        };
        let history = parts[4].split(' ').filter(|word| !word.is_empty()).map(str::parse);
        Ok(Case {
            setup: setup.join("/").parse()?,
            history: history.collect::<Result<Vec<Op>, String>>()?,
            cut: parts[5].parse()?,
            faults: parts[6..].iter().map(|fault| fault.parse()).collect::<Result<Vec<Fault>, String>>()?,
        })
    }
}
