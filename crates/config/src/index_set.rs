//! Lists of indices, such as the zones a job works on.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::ConfigError;

/// Maximum number of indices in a list: ten times the zones of the largest zoned drives.
pub const INDEX_SET_MAX: usize = 1 << 20;

/// Distinct indices in the order in which they were written: `"0..16"` (without 16), `"0..16 step
/// 4"`, `"3"`, or a list of these like `[0, 4, 7]` or `["0..4", "8..12"]`. Never empty, and at most
/// [`INDEX_SET_MAX`] long.
///
/// `Display` writes a range where possible.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexSet(Vec<u32>);

const NOTATION: &str = "write a range like \"0..16\" (16 is excluded) or \"0..16 step 4\", one number like \"3\", or a list \
                        like [0, 4, 7] or [\"0..4\", \"8..12\"]";

impl IndexSet {
    /// The indices from `start` to `end`, exclusive, in steps of `step`.
    ///
    /// # Errors
    /// If the range is empty, or has more than [`INDEX_SET_MAX`] indices.
    pub fn range(start: u32, end: u32, step: u32) -> Result<IndexSet, ConfigError> {
        if step == 0 {
            return Err(ConfigError::new("the step must not be 0").help("write a step of 1 or more"));
        }
        if start >= end {
            let message = format!("the range {start}..{end} is empty");
            let help = match start.checked_add(1) {
                Some(next) => format!("the end is exclusive: for {start} alone write \"{start}..{next}\""),
                None => NOTATION.to_owned(),
            };
            return Err(ConfigError::new(message).help(help));
        }
        let count = (end - start).div_ceil(step) as usize;
        if count > INDEX_SET_MAX {
            return Err(ConfigError::new(format!("the range {start}..{end} has {count} numbers"))
                .help(format!("at most {INDEX_SET_MAX} are allowed")));
        }
        Ok(IndexSet((start..end).step_by(step as usize).collect()))
    }

    /// These indices in this order.
    ///
    /// # Errors
    /// If the list is empty, has duplicates, or has more than [`INDEX_SET_MAX`] indices.
    pub fn list(indices: Vec<u32>) -> Result<IndexSet, ConfigError> {
        if indices.is_empty() {
            return Err(ConfigError::new("the list is empty").help(NOTATION));
        }
        if indices.len() > INDEX_SET_MAX {
            return Err(ConfigError::new(format!("the list has {} numbers", indices.len()))
                .help(format!("at most {INDEX_SET_MAX} are allowed")));
        }
        let mut sorted = indices.clone();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                let message = format!("{} is listed more than once", pair[0]);
                Err(ConfigError::new(message).help("list each number once"))
            }
            None => Ok(IndexSet(indices)),
        }
    }

    fn as_range(&self) -> Option<(u32, u32, u32)> {
        let (first, last) = (*self.0.first()?, *self.0.last()?);
        let step = self.0.get(1).map_or(Some(1), |second| second.checked_sub(first).filter(|&step| step > 0))?;
        let even = self.0.windows(2).all(|pair| pair[0].checked_add(step) == Some(pair[1]));
        if even { last.checked_add(1).map(|end| (first, end, step)) } else { None }
    }
}

impl Deref for IndexSet {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.0
    }
}

impl FromStr for IndexSet {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<IndexSet, ConfigError> {
        let refuse = || ConfigError::new(format!("\"{text}\" is not a number, a range or a list")).help(NOTATION);
        let index = |number: &str| number.trim().parse::<u32>().map_err(|_| refuse());
        if let Some(list) = text.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let mut indices = Vec::new();
            for part in list.split(',') {
                indices.extend(part.parse::<IndexSet>()?.0);
                if indices.len() > INDEX_SET_MAX {
                    break;
                }
            }
            return IndexSet::list(indices);
        }
        let (range, step) = match text.split_once("step") {
            Some((range, step)) => (range, index(step)?),
            None => (text, 1),
        };
        match range.split_once("..") {
            Some((start, end)) => match end.trim().strip_prefix('=') {
                None => IndexSet::range(index(start)?, index(end)?, step),
                Some(last) => {
                    let (start, last) = (index(start)?, index(last)?);
                    Err(refuse().help(format!("write \"{start}..{}\": the end is exclusive", u64::from(last) + 1)))
                }
            },
            None if range.len() == text.len() => Ok(IndexSet(vec![index(range)?])),
            None => Err(refuse()),
        }
    }
}

impl fmt::Display for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.as_slice(), self.as_range()) {
            ([index], _) => write!(f, "{index}"),
            (_, Some((start, end, 1))) => write!(f, "{start}..{end}"),
            (_, Some((start, end, step))) => write!(f, "{start}..{end} step {step}"),
            (indices, None) => {
                let indices: Vec<String> = indices.iter().map(u32::to_string).collect();
                write!(f, "[{}]", indices.join(", "))
            }
        }
    }
}

impl Serialize for IndexSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for IndexSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<IndexSet, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = IndexSet;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a range like \"0..16\", a number, or a list of these")
            }

            fn visit_i64<E: de::Error>(self, index: i64) -> Result<IndexSet, E> {
                index.to_string().parse().map_err(ConfigError::into_serde)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<IndexSet, E> {
                text.parse().map_err(ConfigError::into_serde)
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<IndexSet, A::Error> {
                let mut indices = Vec::new();
                // One more than the maximum is enough to refuse the list.
                while indices.len() <= INDEX_SET_MAX
                    && let Some(IndexSet(part)) = items.next_element()?
                {
                    indices.extend(part);
                }
                IndexSet::list(indices).map_err(ConfigError::into_serde)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_steps_single_indices_and_lists_are_read() {
        for (text, indices) in [
            ("0..4", vec![0, 1, 2, 3]),
            (" 2 .. 4 ", vec![2, 3]),
            ("0..16 step 4", vec![0, 4, 8, 12]),
            ("0..13 step 4", vec![0, 4, 8, 12]),
            ("3", vec![3]),
            ("[7, 0, 4]", vec![7, 0, 4]),
            ("[8..10, 3, 0..4 step 2]", vec![8, 9, 3, 0, 2]),
        ] {
            assert_eq!(text.parse::<IndexSet>().unwrap().to_vec(), indices, "{text}");
        }
    }

    #[test]
    fn an_invalid_list_is_refused_with_a_remedy() {
        for (text, message, help) in [
            ("a..b", "\"a..b\" is not a number, a range or a list", NOTATION),
            ("3 step 2", "\"3 step 2\" is not a number, a range or a list", NOTATION),
            ("0..=15", "\"0..=15\" is not a number, a range or a list", "write \"0..16\": the end is exclusive"),
            ("5..5", "the range 5..5 is empty", "the end is exclusive: for 5 alone write \"5..6\""),
            ("0..9 step 0", "the step must not be 0", "write a step of 1 or more"),
            ("0..4000000000", "the range 0..4000000000 has 4000000000 numbers", "at most 1048576 are allowed"),
            ("[1, 0..3]", "1 is listed more than once", "list each number once"),
            ("[0..1000000, 1000000..2000000]", "the list has 2000000 numbers", "at most 1048576 are allowed"),
            ("[1, 2, 1]", "1 is listed more than once", "list each number once"),
        ] {
            let error = text.parse::<IndexSet>().unwrap_err();
            assert_eq!((error.message.as_str(), error.help.as_deref()), (message, Some(help)), "{text}");
        }
    }

    #[test]
    fn a_list_is_printed_as_a_range_where_possible() {
        for text in ["0..4", "1..14 step 4", "3", "[0, 4, 7]", "[3, 2, 1]"] {
            assert_eq!(text.parse::<IndexSet>().unwrap().to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn a_printed_range_can_be_parsed(start in 0u32..100, count in 1u32..50, step in 1u32..9) {
            let set = IndexSet::range(start, start + count, step).unwrap();
            prop_assert_eq!(set.to_string().parse::<IndexSet>().unwrap(), set);
        }

        #[test]
        fn a_printed_list_can_be_parsed(indices in proptest::collection::hash_set(any::<u32>(), 1..8)) {
            let set = IndexSet::list(indices.into_iter().collect()).unwrap();
            prop_assert_eq!(set.to_string().parse::<IndexSet>().unwrap(), set);
        }
    }
}
