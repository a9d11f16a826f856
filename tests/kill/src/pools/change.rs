//! Namespaces that an operator creates, resizes and deletes while the pool is under load, and which
//! of them a restart must find.

use std::collections::BTreeMap;
use std::process::Child;
use std::time::{Duration, Instant};

use zonda_devices::PoolNamespaceReport;
use zonda_zoned::Prng;

use super::site::{self, Kind};
use crate::loss::{Loss, RunError};
use crate::server::Launcher;

/// How long an operator waits until the server has the request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A change of the namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Create { name: String },
    Resize { name: String, zones: u32 },
    Delete { name: String },
}

/// Zones of each namespace of the pool, by name.
pub(super) type Sizes = BTreeMap<String, u32>;

/// A change that was sent to the server, and is not answered yet.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) change: Change,
    child: Option<Child>,
    /// The length of the log before.
    log_bytes: u64,
}

impl Change {
    /// The name of its kind.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Change::Create { .. } => "creation",
            Change::Resize { .. } => "resize",
            Change::Delete { .. } => "deletion",
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Change::Create { name, .. } | Change::Resize { name, .. } | Change::Delete { name } => name,
        }
    }

    /// The line of the server's log about it.
    fn logged(&self) -> String {
        let verb = match self {
            Change::Create { .. } => "create",
            Change::Resize { .. } => "resize",
            Change::Delete { .. } => "delete",
        };
        format!("request: {verb} namespace \"{}\"", self.name())
    }

    fn arguments(&self) -> Vec<String> {
        match self {
            Change::Create { name } => Kind::Guest.creation(name),
            Change::Resize { name, zones } => site::resize(name, *zones),
            Change::Delete { name } => site::delete(name),
        }
    }

    /// What it makes of the namespaces.
    pub(super) fn apply(&self, sizes: &mut Sizes) {
        match self {
            Change::Create { name } => sizes.insert(name.clone(), Kind::Guest.zones()),
            Change::Resize { name, zones } => sizes.insert(name.clone(), *zones),
            Change::Delete { name } => sizes.remove(name),
        };
    }

    /// A random change. `guests` are the names of the namespaces that may be created and deleted.
    pub(super) fn random(prng: &mut Prng, sizes: &Sizes, guests: &[&str]) -> Change {
        const GROWTH_MAX: u32 = 2;
        let name = (*prng.pick(guests).expect("there are guests")).to_owned();
        match prng.below(3) {
            0 => {
                let names: Vec<&String> = sizes.keys().collect();
                let name = (*prng.pick(&names).expect("tenants always exist")).clone();
                let kind = if guests.contains(&&*name) { Kind::Guest } else { Kind::Tenant };
                let all = kind.zones()..=kind.zones() + GROWTH_MAX;
                let other: Vec<u32> = all.filter(|zones| sizes[&name] != *zones).collect();
                let zones = *prng.pick(&other).expect("there is more than one size");
                Change::Resize { name, zones }
            }
            _ if sizes.contains_key(&name) => Change::Delete { name },
            _ => Change::Create { name },
        }
    }

    /// Sends it to the server, and returns once the server has it.
    ///
    /// # Errors
    /// When `zonda` cannot be started, or does not send it.
    pub(super) fn begin(self, launcher: &Launcher) -> Result<Pending, RunError> {
        let log_bytes = launcher.log_bytes();
        let mut child = launcher.begin(&self.arguments())?;
        let deadline = Instant::now() + TIMEOUT;
        while !launcher.log_since(log_bytes).contains(&self.logged()) && Instant::now() < deadline {
            if child.try_wait().is_ok_and(|ended| ended.is_some()) {
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(Pending { change: self, child: Some(child), log_bytes })
    }
}

impl Pending {
    /// Whether the server has the request and has not answered it.
    pub(super) fn is_in_flight(&mut self, launcher: &Launcher) -> bool {
        let is_running = self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        is_running && launcher.log_since(self.log_bytes).contains(&self.change.logged())
    }

    /// Waits for the answer; returns whether it is a success, and all that was printed.
    ///
    /// # Errors
    /// When that fails.
    pub(super) fn end(mut self) -> Result<(bool, String), RunError> {
        let child = self.child.take().expect("it ends once");
        let output = child.wait_with_output();
        let output = output.map_err(|error| RunError::Failed(format!("cannot wait for zonda: {error}")))?;
        let text = [&output.stdout[..], &output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have exited.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Compares the namespaces that a pool has after a crash with those that it must have: the change
/// without an answer has happened, or it has not.
///
/// # Errors
/// The difference.
pub(super) fn reconcile(
    sizes: &Sizes,
    unanswered: Option<&Change>,
    found: &[PoolNamespaceReport],
) -> Result<Sizes, RunError> {
    let found: Sizes = found.iter().map(|report| (report.name.clone(), report.zones)).collect();
    let mut changed = sizes.clone();
    if let Some(change) = unanswered {
        change.apply(&mut changed);
    }
    if found == *sizes || found == changed {
        return Ok(found);
    }
    let mut expected = words(sizes);
    if let Some(change) = unanswered {
        expected += &format!(", or with the {} of {}: {}", change.kind(), change.name(), words(&changed));
    }
    Err(RunError::lost(Loss::new("namespaces of the pool", expected, words(&found))))
}

fn words(sizes: &Sizes) -> String {
    let each: Vec<String> = sizes.iter().map(|(name, zones)| format!("{name} ({zones} zones)")).collect();
    if each.is_empty() { "none".to_owned() } else { each.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(all: &[(&str, u32)]) -> Sizes {
        all.iter().map(|(name, zones)| ((*name).to_owned(), *zones)).collect()
    }

    fn reports(all: &[(&str, u32)]) -> Vec<PoolNamespaceReport> {
        let report = |(name, zones): &(&str, u32)| PoolNamespaceReport {
            name: (*name).to_owned(),
            zones: *zones,
            ..PoolNamespaceReport::default()
        };
        all.iter().map(report).collect()
    }

    fn difference(expected: &[(&str, u32)], unanswered: Option<&Change>, found: &[(&str, u32)]) -> Option<Loss> {
        match reconcile(&sizes(expected), unanswered, &reports(found)) {
            Ok(kept) => {
                assert_eq!(kept, sizes(found));
                None
            }
            Err(RunError::Lost(losses)) => losses.into_iter().next(),
            Err(failed) => panic!("{failed}"),
        }
    }

    #[test]
    fn a_change_without_an_answer_may_have_happened_and_no_other() {
        let create = Change::Create { name: "c".to_owned() };
        assert_eq!(difference(&[("a", 8)], Some(&create), &[("a", 8)]), None);
        assert_eq!(difference(&[("a", 8)], Some(&create), &[("a", 8), ("c", 2)]), None);
        let loss =
            difference(&[("a", 8)], Some(&create), &[("a", 8), ("c", 3)]).expect("a size that no command asked for");
        assert_eq!(loss.expected, "a (8 zones), or with the creation of c: a (8 zones), c (2 zones)");
        let resize = Change::Resize { name: "a".to_owned(), zones: 9 };
        assert_eq!(difference(&[("a", 8)], Some(&resize), &[("a", 9)]), None);
        assert!(difference(&[("a", 8)], Some(&resize), &[("a", 10)]).is_some());
        let delete = Change::Delete { name: "a".to_owned() };
        assert_eq!(difference(&[("a", 8), ("b", 8)], Some(&delete), &[("b", 8)]), None);
        assert!(difference(&[("a", 8), ("b", 8)], Some(&delete), &[("a", 8)]).is_some());
    }

    #[test]
    fn a_deleted_namespace_that_returns_and_a_created_one_that_is_missing_are_detected() {
        let loss = difference(&[("a", 8)], None, &[("a", 8), ("c", 2)]).expect("c was deleted");
        assert_eq!((&*loss.expected, &*loss.found), ("a (8 zones)", "a (8 zones), c (2 zones)"));
        let loss = difference(&[("a", 8), ("c", 2)], None, &[("a", 8)]).expect("c was created");
        assert_eq!(loss.found, "a (8 zones)");
    }
}
