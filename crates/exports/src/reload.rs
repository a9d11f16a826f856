//! The difference between two plans: what a running server changes when its configuration file is
//! read again.
//!
//! Subsystems, namespaces, hosts, secrets and NBD exports come and go. Everything else is fixed when the server
//! starts, and a difference there is an error, so that the server never runs with a configuration
//! that its file does not have.

use std::path::Path;

use zonda_nvme::Nqn;
use zonda_zoned::NamespaceId;

use crate::config::{HostPlan, NamespacePlan, ServerPlan, Source, SubsystemPlan};
use crate::nbd;
use crate::start::ServeError;

const RESTART: &str = "undo the change, or restart the server";

/// What differs in the new plan.
#[derive(Debug, Default)]
pub(crate) struct Changes<'p> {
    pub(crate) removed_subsystems: Vec<&'p SubsystemPlan>,
    /// Namespaces of subsystems that remain.
    pub(crate) removed: Vec<(&'p Nqn, NamespaceId)>,
    pub(crate) added_subsystems: Vec<&'p SubsystemPlan>,
    /// Namespaces of subsystems that existed before.
    pub(crate) added: Vec<(&'p SubsystemPlan, &'p NamespacePlan)>,
    /// Namespaces that serve more zones of their image; `None`: all.
    pub(crate) resized: Vec<(&'p Nqn, NamespaceId, Option<u32>)>,
    /// Subsystems with other hosts or secrets.
    pub(crate) hosts: Vec<&'p SubsystemPlan>,
    /// For each `[[nbd]]` table, the earlier one with the same addresses.
    pub(crate) nbd: Vec<Option<usize>>,
}

impl Changes<'_> {
    /// Each change as a line of the log.
    pub(crate) fn describe(&self) -> Vec<String> {
        let subsystems = |verb: &str, all: &[&SubsystemPlan]| -> Vec<String> {
            all.iter().map(|it| format!("subsystem {} {verb}", it.nqn)).collect()
        };
        let mut lines = subsystems("removed", &self.removed_subsystems);
        lines.extend(self.removed.iter().map(|(nqn, id)| format!("subsystem {nqn}: namespace {id} removed")));
        lines.extend(subsystems("added", &self.added_subsystems));
        let added = self.added.iter().map(|(it, namespace)| {
            format!("subsystem {}: namespace {} added ({})", it.nqn, namespace.id, source_of(namespace))
        });
        lines.extend(added);
        lines.extend(self.resized.iter().map(|(nqn, id, zones)| {
            let zones = zones.map_or_else(|| "all zones".to_owned(), |zones| format!("{zones} zones"));
            format!("subsystem {nqn}: namespace {id} resized to {zones}")
        }));
        lines.extend(self.hosts.iter().map(|it| format!("subsystem {}: hosts changed", it.nqn)));
        lines
    }
}

/// Compares two plans.
///
/// # Errors
/// If something differs that a running server cannot change.
pub(crate) fn changes<'p>(old: &'p ServerPlan, new: &'p ServerPlan) -> Result<Changes<'p>, ServeError> {
    for (setting, is_same) in [
        ("listen", old.listen == new.listen),
        ("http", old.http == new.http),
        ("http_names", old.http_names == new.http_names),
        ("digests", old.digests == new.digests),
        ("dh_groups", old.auth_policy == new.auth_policy),
        ("spin", old.spin == new.spin),
        ("memory", old.memory_bytes == new.memory_bytes),
    ] {
        if !is_same {
            return Err(ServeError::new(format!("[server] {setting} cannot change while the server runs"), RESTART));
        }
    }
    let mut changes = Changes { nbd: nbd::compare(old, new)?, ..Changes::default() };
    for subsystem in &new.subsystems {
        match find(old, &subsystem.nqn) {
            None => {
                subsystem.namespaces.iter().try_for_each(|namespace| can_be_added(old, namespace))?;
                changes.added_subsystems.push(subsystem);
            }
            Some(before) => compare(old, before, subsystem, &mut changes)?,
        }
    }
    for subsystem in old.subsystems.iter().filter(|it| find(new, &it.nqn).is_none()) {
        subsystem.namespaces.iter().try_for_each(must_not_be_a_volume)?;
        changes.removed_subsystems.push(subsystem);
    }
    Ok(changes)
}

/// The subsystem with this name.
pub(crate) fn find<'p>(plan: &'p ServerPlan, nqn: &Nqn) -> Option<&'p SubsystemPlan> {
    plan.subsystems.iter().find(|subsystem| subsystem.nqn == *nqn)
}

fn compare<'p>(
    old: &ServerPlan,
    before: &'p SubsystemPlan,
    after: &'p SubsystemPlan,
    changes: &mut Changes<'p>,
) -> Result<(), ServeError> {
    if (&before.serial, &before.model) != (&after.serial, &after.model) {
        let what = format!("subsystem {}: serial and model cannot change while the server runs", after.nqn);
        return Err(ServeError::new(what, RESTART));
    }
    if !same_hosts(before.hosts.as_deref(), after.hosts.as_deref()) {
        changes.hosts.push(after);
    }
    for namespace in &after.namespaces {
        match before.namespaces.iter().find(|it| it.id == namespace.id) {
            Some(served) if is_same(served, namespace) && served.zones == namespace.zones => {}
            Some(served) if is_same(served, namespace) && may_grow(served.zones, namespace.zones) => {
                changes.resized.push((&after.nqn, namespace.id, namespace.zones));
            }
            Some(served) if is_other_use_of_pool(served, namespace) => {
                let what = format!(
                    "scheduler and timing of the pool of {} cannot change while it is served",
                    source_of(namespace)
                );
                return Err(ServeError::new(what, RESTART));
            }
            Some(served) => {
                let what =
                    format!("subsystem {}: namespace {} has another drive or other options", after.nqn, namespace.id);
                return Err(ServeError::new(what, remedy(old, before, served, namespace)));
            }
            None => {
                can_be_added(old, namespace)?;
                changes.added.push((after, namespace));
            }
        }
    }
    for namespace in &before.namespaces {
        if after.namespaces.iter().all(|it| it.id != namespace.id) {
            must_not_be_a_volume(namespace)?;
            changes.removed.push((&before.nqn, namespace.id));
        }
    }
    Ok(())
}

/// What to do about a namespace that has another drive or other options: NVMe has no event for that.
fn remedy(old: &ServerPlan, subsystem: &SubsystemPlan, before: &NamespacePlan, after: &NamespacePlan) -> String {
    if must_not_be_a_volume(before).is_err() || must_not_be_a_volume(after).is_err() {
        return RESTART.to_owned();
    }
    if can_be_added(old, after).is_ok() {
        return "give it another id, or restart the server".to_owned();
    }
    // Its image, which is open until it is removed.
    let is_own = before.source.is_same_place(&after.source);
    match how_to_remove(old, subsystem) {
        Some(how) if is_own => format!("{how}, reload, and add it again; or restart the server"),
        _ => RESTART.to_owned(),
    }
}

/// How to remove a namespace; `None` if a server needs it, because it has no other.
fn how_to_remove(plan: &ServerPlan, subsystem: &SubsystemPlan) -> Option<&'static str> {
    if subsystem.namespaces.len() > 1 {
        Some("remove the namespace")
    } else if plan.subsystems.len() > 1 {
        Some("remove the subsystem of the namespace")
    } else {
        None
    }
}

fn same_hosts(before: Option<&[HostPlan]>, after: Option<&[HostPlan]>) -> bool {
    let (Some(before), Some(after)) = (before, after) else { return before.is_none() && after.is_none() };
    let is_same = |(one, other): (&HostPlan, &HostPlan)| {
        one.nqn == other.nqn && one.secret == other.secret && one.controller_secret == other.controller_secret
    };
    before.len() == after.len() && before.iter().zip(after).all(is_same)
}

fn is_same(one: &NamespacePlan, other: &NamespacePlan) -> bool {
    let is_same_source = match (&one.source, &other.source) {
        (Source::Memory(one), Source::Memory(other)) => one.profile_text() == other.profile_text(),
        (one, other) => one.is_same_place(other),
    };
    let is_same_order = (one.scheduler, &one.groups) == (other.scheduler, &other.groups);
    is_same_source && one.timing == other.timing && is_same_order && one.read_only == other.read_only
}

/// Whether both are a namespace of a pool, which is open with another scheduler or timing.
fn is_other_use_of_pool(served: &NamespacePlan, namespace: &NamespacePlan) -> bool {
    let of_pool = matches!(served.source, Source::Pool { .. }) && served.source.is_same_place(&namespace.source);
    let use_of = |of: &NamespacePlan| (of.timing, of.scheduler, of.groups.clone());
    of_pool && use_of(served) != use_of(namespace)
}

/// Whether a namespace that serves so many zones may serve so many others. One that serves all of
/// the image could only shrink.
fn may_grow(before: Option<u32>, after: Option<u32>) -> bool {
    before.is_some_and(|before| after.is_none_or(|after| after > before))
}

/// A volume has a control socket, which is opened and closed with the server.
fn must_not_be_a_volume(namespace: &NamespacePlan) -> Result<(), ServeError> {
    match &namespace.source {
        Source::Volume(path) => Err(ServeError::new(
            format!("volume {} cannot be added or removed while the server runs", path.display()),
            RESTART,
        )),
        _ => Ok(()),
    }
}

/// An image or a namespace of a pool that is served now is closed only after the reload.
fn can_be_added(old: &ServerPlan, namespace: &NamespacePlan) -> Result<(), ServeError> {
    must_not_be_a_volume(namespace)?;
    let served = old.subsystems.iter().flat_map(|it| it.namespaces.iter().map(move |namespace| (it, namespace)));
    let is_served = |other: &NamespacePlan| other.source.is_same_place(&namespace.source);
    match served.into_iter().find(|(_, other)| is_served(other)) {
        None => Ok(()),
        Some((subsystem, other)) => Err(ServeError::new(
            format!("{} is already namespace {} of subsystem {}", source_of(namespace), other.id, subsystem.nqn),
            match how_to_remove(old, subsystem) {
                Some(how) => format!("{how}, reload, and add it again; or restart the server"),
                None => RESTART.to_owned(),
            },
        )),
    }
}

/// A namespace of a pool, for the log and the status.
pub(crate) fn pool_source(path: &Path, name: &str) -> String {
    format!("{}:{name}", path.display())
}

fn source_of(namespace: &NamespacePlan) -> String {
    match &namespace.source {
        Source::Image(path) | Source::Device(path) | Source::Volume(path) => path.display().to_string(),
        Source::Pool { path, name } => pool_source(path, name),
        Source::Memory(_) => "memory".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ParseContext, ServerPlan};

    fn plan(text: &str) -> ServerPlan {
        let none = |_: &str| Err("there are no files".to_owned());
        let base = std::path::Path::new("");
        let profiles = zonda_profiles::BUILTIN;
        let context = ParseContext { base, builtin_profiles: profiles, read_file: &none, read_key: &none };
        ServerPlan::parse(text, &context).expect("the file is valid")
    }

    fn subsystem(name: &str, rest: &str) -> String {
        format!("[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:{name}\"\n{rest}\n")
    }

    fn image(path: &str) -> String {
        format!("[[subsystem.namespace]]\nimage = \"{path}\"\n")
    }

    fn lines(old: &str, new: &str) -> Vec<String> {
        changes(&plan(old), &plan(new)).expect("a running server can change all of it").describe()
    }

    fn error(old: &str, new: &str) -> ServeError {
        changes(&plan(old), &plan(new)).expect_err("a running server cannot change this")
    }

    #[test]
    fn the_same_file_changes_nothing() {
        let text = subsystem("a", &(image("x") + "[[subsystem.namespace]]\nmemory = { profile = \"tiny\" }\n"));
        assert_eq!(lines(&text, &text), Vec::<String>::new());
    }

    #[test]
    fn subsystems_namespaces_and_hosts_come_and_go() {
        let host = "host = [{ nqn = \"nqn.2014-08.org.nvmexpress:host\" }]\n";
        let old = subsystem("a", &(image("x") + &image("y"))) + &subsystem("b", &image("z"));
        let new = subsystem("a", &(host.to_owned() + &image("x") + "[[subsystem.namespace]]\nid = 7\nimage = \"w\"\n"))
            + &subsystem("c", &image("v"));
        assert_eq!(
            lines(&old, &new),
            [
                "subsystem nqn.2026-01.io.zonda:b removed",
                "subsystem nqn.2026-01.io.zonda:a: namespace 2 removed",
                "subsystem nqn.2026-01.io.zonda:c added",
                "subsystem nqn.2026-01.io.zonda:a: namespace 7 added (w)",
                "subsystem nqn.2026-01.io.zonda:a: hosts changed",
            ]
        );
    }

    #[test]
    fn what_is_fixed_at_the_start_is_named() {
        let old = subsystem("a", &image("x"));
        for (table, setting) in [
            ("[server]\nlisten = \"127.0.0.1:1\"\n", "listen"),
            ("[server]\nhttp = \"127.0.0.1:1\"\n", "http"),
            ("[server]\nmemory = \"2GiB\"\n", "memory"),
            ("[server]\ndigests = \"off\"\n", "digests"),
            ("[server]\nspin = \"0 s\"\n", "spin"),
        ] {
            let error = error(&old, &(table.to_owned() + &old));
            assert_eq!(error.message, format!("[server] {setting} cannot change while the server runs"));
        }
        let model = error(&old, &subsystem("a", &("model = \"other\"\n".to_owned() + &image("x"))));
        assert!(model.message.contains("serial and model cannot change"), "{model}");
    }

    #[test]
    fn another_drive_needs_another_id_and_an_image_is_served_once() {
        let old = subsystem("a", &(image("x") + &image("y")));
        let other = error(&old, &subsystem("a", &(image("x") + &image("z"))));
        assert!(other.message.contains("namespace 2 has another drive"), "{other}");
        let read_only = error(&old, &subsystem("a", &(image("x") + &image("y") + "read_only = true\n")));
        assert!(read_only.message.contains("namespace 2 has another drive or other options"), "{read_only}");
        let moved = error(&old, &(subsystem("a", &image("x")) + &subsystem("b", &image("y"))));
        assert!(moved.message.contains("y is already namespace 2 of subsystem nqn.2026-01.io.zonda:a"), "{moved}");
    }

    #[test]
    fn an_image_of_which_a_part_is_served_can_grow() {
        let of = |zones: &str| subsystem("a", &(image("x") + zones));
        let line = |zones: &str| [format!("subsystem nqn.2026-01.io.zonda:a: namespace 1 resized to {zones}")];
        assert_eq!(lines(&of("zones = 4\n"), &of("zones = 5\n")), line("5 zones"));
        assert_eq!(lines(&of("zones = 4\n"), &of("")), line("all zones"));
        for (old, new) in [("zones = 4\n", "zones = 3\n"), ("", "zones = 4\n")] {
            let error = error(&of(old), &of(new));
            assert!(error.message.contains("namespace 1 has another drive or other options"), "{error}");
        }
    }

    #[test]
    fn the_remedy_for_other_options_of_a_namespace_works() {
        let memory = "[[subsystem.namespace]]\nmemory = { profile = \"tiny\" }\n";
        let read_only = image("x") + "read_only = true\n";
        // What is served, what was tried, the remedy, and the steps to follow it.
        let add_again = |how: &str| format!("{how}, reload, and add it again; or restart the server");
        let (alone, pair) = (subsystem("a", &image("x")), subsystem("a", &(memory.to_owned() + &image("x"))));
        let other = subsystem("b", memory);
        for (old, tried, help, steps) in [
            (alone.clone(), subsystem("a", &read_only), RESTART.to_owned(), vec![]),
            (
                pair.clone(),
                subsystem("a", &(memory.to_owned() + &read_only)),
                add_again("remove the namespace"),
                vec![subsystem("a", memory), subsystem("a", &(memory.to_owned() + &read_only))],
            ),
            (
                alone.clone() + &other,
                subsystem("a", &read_only) + &other,
                add_again("remove the subsystem of the namespace"),
                vec![other.clone(), subsystem("a", &read_only) + &other],
            ),
            (
                alone.clone(),
                subsystem("a", &image("y")),
                "give it another id, or restart the server".to_owned(),
                vec![subsystem("a", "[[subsystem.namespace]]\nid = 2\nimage = \"y\"\n")],
            ),
            // The same image under another id.
            (
                alone.clone(),
                subsystem("a", "[[subsystem.namespace]]\nid = 2\nimage = \"x\"\n"),
                RESTART.to_owned(),
                vec![],
            ),
            // Two namespaces change their drives with one another.
            (
                subsystem("a", &(image("x") + &image("y"))),
                subsystem("a", &(image("y") + &image("x"))),
                RESTART.to_owned(),
                vec![],
            ),
        ] {
            assert_eq!(error(&old, &tried).help, help, "{old} {tried}");
            let mut served = old;
            for step in steps {
                lines(&served, &step);
                served = step;
            }
        }
    }

    #[test]
    fn namespaces_of_a_pool_come_and_go_and_are_served_once() {
        let named = |name: &str| format!("[[subsystem.namespace]]\npool = \"p\"\nname = \"{name}\"\n");
        let (old, new) = (subsystem("a", &named("db")), subsystem("a", &named("db")) + &subsystem("b", &named("log")));
        assert_eq!(lines(&old, &old), Vec::<String>::new());
        assert_eq!(lines(&old, &new), ["subsystem nqn.2026-01.io.zonda:b added"]);
        assert_eq!(lines(&new, &old), ["subsystem nqn.2026-01.io.zonda:b removed"]);
        let moved = error(&new, &(subsystem("a", &named("db")) + &subsystem("c", &named("log"))));
        assert!(moved.message.contains("p:log is already namespace 1 of subsystem"), "{moved}");
        let other = error(&old, &subsystem("a", &named("log")));
        assert!(other.message.contains("namespace 1 has another drive"), "{other}");
        assert_eq!(other.help, "give it another id, or restart the server");
    }

    #[test]
    fn a_pool_that_is_served_keeps_its_scheduler_and_timing() {
        let served = subsystem("a", "[[subsystem.namespace]]\npool = \"p\"\nname = \"db\"\n");
        let settings = |keys: &str| format!("[[pool]]\npath = \"p\"\n{keys}\n");
        let ezns = settings("scheduler = \"ezns\"") + &served;
        assert_eq!(lines(&ezns, &ezns), Vec::<String>::new());
        for other in [served.clone(), settings("scheduler = \"ezns\"\ntiming = \"profile\"") + &served] {
            let error = error(&ezns, &other);
            assert_eq!(error.message, "scheduler and timing of the pool of p:db cannot change while it is served");
            assert_eq!(error.help, RESTART);
        }
        let read_only = error(&served, &(served.clone() + "read_only = true\n"));
        assert!(read_only.message.contains("namespace 1 has another drive or other options"), "{read_only}");
    }

    #[test]
    fn a_volume_is_neither_added_nor_removed() {
        let volume = "[[subsystem.namespace]]\nvolume = \"v\"\n";
        let (without, with) = (subsystem("a", &image("x")), subsystem("a", &(image("x") + volume)));
        for (old, new) in [(&without, &with), (&with, &without)] {
            assert_eq!(error(old, new).message, "volume v cannot be added or removed while the server runs");
        }
    }
}
