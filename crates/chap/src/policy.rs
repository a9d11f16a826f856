//! The allowed hashes and groups.

use std::fmt;

use crate::group::Group;
use crate::hash::Hash;

/// The hashes and groups that one side allows, in order of preference.
///
/// The controller chooses the first of its own list that the host offers, regardless of the host's
/// order.
///
/// The default allows all. Hashes: SHA-512, SHA-384, SHA-256; their cost is the same. Groups:
/// ffdhe2048, ffdhe3072, ffdhe4096, ffdhe6144, ffdhe8192, then none. The smallest group comes first
/// because every queue of a host authenticates separately, unauthenticated clients can cause the
/// computation, and the strength of a random secret of 32 bytes does not depend on the group: the
/// exchange protects weak secrets from eavesdroppers. Use another list to prefer a larger group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    hashes: Vec<Hash>,
    groups: Vec<Group>,
}

/// Why lists are not a valid policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// The list of hashes is empty.
    NoHash,
    /// The list of groups is empty. The group without an exchange counts as one.
    NoGroup,
    /// A hash is in the list twice.
    HashTwice(Hash),
    /// A group is in the list twice.
    GroupTwice(Group),
}

impl Policy {
    /// A policy of these hashes and groups, in order of preference.
    ///
    /// # Errors
    /// [`PolicyError`] if a list is empty or has a duplicate.
    pub fn new(hashes: &[Hash], groups: &[Group]) -> Result<Policy, PolicyError> {
        if hashes.is_empty() {
            return Err(PolicyError::NoHash);
        }
        if groups.is_empty() {
            return Err(PolicyError::NoGroup);
        }
        if let Some(hash) = first_twice(hashes) {
            return Err(PolicyError::HashTwice(hash));
        }
        if let Some(group) = first_twice(groups) {
            return Err(PolicyError::GroupTwice(group));
        }
        Ok(Policy { hashes: hashes.to_vec(), groups: groups.to_vec() })
    }

    /// The default of servers: no groups above 3072 bits. One exchange of 8192 bits costs as much
    /// CPU time as 27 of 2048, and an unauthenticated client that knows the NQN of a host can
    /// request it.
    #[must_use]
    pub fn modest() -> Policy {
        let all = Policy::default();
        let groups = all.groups.into_iter().filter(|&group| group <= Group::Ffdhe3072).collect();
        Policy { hashes: all.hashes, groups }
    }

    /// The same policy without [`Group::Null`]: a Diffie-Hellman exchange is required.
    ///
    /// # Errors
    /// [`PolicyError::NoGroup`] if no other group was allowed.
    pub fn require_dh(mut self) -> Result<Policy, PolicyError> {
        self.groups.retain(|&group| group != Group::Null);
        if self.groups.is_empty() { Err(PolicyError::NoGroup) } else { Ok(self) }
    }

    /// The hashes, in order of preference.
    #[must_use]
    pub fn hashes(&self) -> &[Hash] {
        &self.hashes
    }

    /// The groups, in order of preference.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }
}

impl Default for Policy {
    fn default() -> Policy {
        let groups =
            [Group::Ffdhe2048, Group::Ffdhe3072, Group::Ffdhe4096, Group::Ffdhe6144, Group::Ffdhe8192, Group::Null];
        Policy { hashes: Hash::ALL.to_vec(), groups: groups.to_vec() }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::NoHash => f.write_str("no hash function is allowed"),
            PolicyError::NoGroup => f.write_str("no Diffie-Hellman group is allowed"),
            PolicyError::HashTwice(hash) => write!(f, "{hash} is listed twice"),
            PolicyError::GroupTwice(group) => write!(f, "group {group} is listed twice"),
        }
    }
}

impl std::error::Error for PolicyError {}

fn first_twice<T: Copy + PartialEq>(list: &[T]) -> Option<T> {
    list.iter().enumerate().find(|(index, item)| list[..*index].contains(item)).map(|(_, &item)| item)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_allows_everything_and_prefers_sha_512_with_ffdhe2048() {
        let policy = Policy::default();
        assert_eq!((policy.hashes().len(), policy.groups().len()), (Hash::ALL.len(), Group::ALL.len()));
        assert_eq!((policy.hashes()[0], policy.groups()[0]), (Hash::Sha512, Group::Ffdhe2048));
        assert_eq!(Policy::new(policy.hashes(), policy.groups()), Ok(policy));
    }

    #[test]
    fn a_modest_policy_has_no_group_above_3072_bits() {
        let policy = Policy::modest();
        assert_eq!(policy.hashes(), Policy::default().hashes());
        assert_eq!(policy.groups(), [Group::Ffdhe2048, Group::Ffdhe3072, Group::Null]);
    }

    #[test]
    fn requiring_an_exchange_removes_the_group_without_one() {
        let policy = Policy::default().require_dh().unwrap();
        assert!(!policy.groups().contains(&Group::Null) && policy.groups().len() == 5);
        let null = Policy::new(&[Hash::Sha256], &[Group::Null]).unwrap();
        assert_eq!(null.require_dh(), Err(PolicyError::NoGroup));
    }

    #[test]
    fn empty_and_repeated_lists_are_refused() {
        assert_eq!(Policy::new(&[], &[Group::Null]), Err(PolicyError::NoHash));
        assert_eq!(Policy::new(&[Hash::Sha256], &[]), Err(PolicyError::NoGroup));
        let twice = [Hash::Sha256, Hash::Sha384, Hash::Sha256];
        assert_eq!(Policy::new(&twice, &[Group::Null]), Err(PolicyError::HashTwice(Hash::Sha256)));
        let twice = [Group::Null, Group::Null];
        assert_eq!(Policy::new(&[Hash::Sha256], &twice), Err(PolicyError::GroupTwice(Group::Null)));
    }
}
