//! Applies a new plan to a running server.
//!
//! Everything that can fail comes first: the plans are compared, the drives of new namespaces are
//! opened, the target checks what is added, and NBD exports are built. An error undoes what was added, and the server
//! continues as before. Then namespaces are removed; each drive is closed after its last command.

use std::collections::BTreeMap;

use zonda_nvme::Nqn;
use zonda_ring::Ring;
use zonda_target::{DeviceKey, Target, TargetConfigError};
use zonda_zoned::{Instant, NamespaceId};

use crate::build::{self, OpenedNamespace};
use crate::config::{ServerPlan, SubsystemPlan};
use crate::drives::Drives;
use crate::nbd::{Candidate, Nbd, NbdChange};
use crate::reload::{Changes, changes, find};
use crate::report::{NamespaceLayout, SubsystemLayout};
use crate::start::ServeError;

/// The parts of a server that a new plan changes.
pub(crate) struct Applier<'s> {
    pub(crate) ring: &'s Ring,
    pub(crate) target: &'s mut Target,
    pub(crate) drives: &'s mut Drives,
    pub(crate) layout: &'s mut Vec<SubsystemLayout>,
    /// Namespaces that could be exported over NBD.
    pub(crate) candidates: &'s mut Vec<Candidate>,
    pub(crate) nbd: Option<&'s mut Nbd>,
}

/// What was added so far.
#[derive(Default)]
struct Added {
    /// Open drives that the target does not serve yet.
    drives: Vec<DeviceKey>,
    namespaces: Vec<(Nqn, NamespaceId)>,
    subsystems: Vec<Nqn>,
    hosts: Vec<Nqn>,
}

impl Applier<'_> {
    /// Changes from the plan `old` to `new`, and returns the changes as text. Hosts wait while the
    /// drives of new namespaces are opened.
    ///
    /// # Errors
    /// The reason and the remedy; the server continues with the plan `old`.
    pub(crate) fn apply(
        &mut self,
        now: Instant,
        old: &ServerPlan,
        new: &ServerPlan,
    ) -> Result<Vec<String>, ServeError> {
        let changes = changes(old, new)?;
        let resized = self.check_resized(&changes)?;
        let mut added = Added::default();
        let added_all = self.add(now, new, &changes, &mut added);
        let nbd_change = match added_all.and_then(|()| self.prepare_nbd(new, &changes)) {
            Ok(nbd_change) => nbd_change,
            Err(error) => {
                self.undo(now, old, &added);
                return Err(error);
            }
        };
        for (device, zone_count) in resized {
            self.drives.show_zones(device, zone_count);
        }
        for (nqn, id) in &changes.removed {
            self.remove_namespace(now, nqn, *id);
        }
        for subsystem in &changes.removed_subsystems {
            self.remove_subsystem(now, &subsystem.nqn);
        }
        let mut lines = changes.describe();
        if let (Some(nbd), Some(change)) = (self.nbd.as_deref_mut(), nbd_change) {
            lines.extend(nbd.change(change));
        }
        Ok(lines)
    }

    /// The drives of namespaces that grow, and their new numbers of zones.
    fn check_resized(&mut self, changes: &Changes<'_>) -> Result<Vec<(DeviceKey, u32)>, ServeError> {
        let mut resized = Vec::new();
        for (nqn, id, zones) in &changes.resized {
            let namespaces = &self.layout_of(nqn).namespaces;
            let found = namespaces.iter().find(|namespace| namespace.id == *id);
            let device = found.expect("the layout has the namespaces of the plan").device;
            let whole = self.drives.get(device).drive().whole_geometry();
            let whole = whole.expect("a part of the image is served").zone_count;
            let zone_count = zones.unwrap_or(whole);
            if zone_count > whole {
                return Err(ServeError::new(
                    format!("subsystem {nqn}: namespace {id} cannot have {zone_count} zones: its image has {whole}"),
                    "change zones, and reload again",
                ));
            }
            resized.push((device, zone_count));
        }
        Ok(resized)
    }

    /// Checks the exports of the new plan, and listens on new addresses.
    fn prepare_nbd(&mut self, new: &ServerPlan, changes: &Changes<'_>) -> Result<Option<NbdChange>, ServeError> {
        if self.nbd.is_none() {
            return Ok(None);
        }
        for candidate in self.candidates.iter_mut() {
            candidate.geometry = self.drives.get(candidate.device).geometry().clone();
        }
        let stays = |it: &Candidate| {
            let mut namespaces = find(new, &it.nqn).into_iter().flat_map(|subsystem| &subsystem.namespaces);
            namespaces.any(|namespace| namespace.id == it.namespace)
        };
        // Those of removed namespaces are still in the list.
        let candidates: Vec<Candidate> = self.candidates.iter().filter(|it| stays(it)).cloned().collect();
        NbdChange::prepare(&new.nbd, &changes.nbd, &candidates).map(Some)
    }

    fn add(
        &mut self,
        now: Instant,
        new: &ServerPlan,
        changes: &Changes<'_>,
        added: &mut Added,
    ) -> Result<(), ServeError> {
        let mut namespaces = Vec::new();
        for (subsystem, namespace) in &changes.added {
            let opened = build::open_namespace(new, subsystem, namespace, self.ring, self.drives)?;
            added.drives.push(opened.config.device);
            namespaces.push((&subsystem.nqn, opened));
        }
        let mut subsystems = Vec::new();
        for subsystem in &changes.added_subsystems {
            let mut all = Vec::new();
            for namespace in &subsystem.namespaces {
                let opened = build::open_namespace(new, subsystem, namespace, self.ring, self.drives)?;
                added.drives.push(opened.config.device);
                all.push(opened);
            }
            subsystems.push((*subsystem, all));
        }
        for (nqn, opened) in namespaces {
            self.add_namespace(now, nqn, opened, added)?;
        }
        for (subsystem, all) in subsystems {
            self.add_subsystem(now, subsystem, all, added)?;
        }
        for subsystem in &changes.hosts {
            let allow = build::access(subsystem.hosts.as_deref());
            self.target.set_hosts(now, &subsystem.nqn, allow).map_err(refused)?;
            added.hosts.push(subsystem.nqn.clone());
        }
        Ok(())
    }

    fn add_namespace(
        &mut self,
        now: Instant,
        nqn: &Nqn,
        opened: OpenedNamespace,
        added: &mut Added,
    ) -> Result<(), ServeError> {
        let OpenedNamespace { config, options, layout, candidate, .. } = opened;
        self.target.add_namespace(now, nqn, config, options).map_err(refused)?;
        self.candidates.push(candidate);
        added.drives.retain(|drive| *drive != layout.device);
        added.namespaces.push((nqn.clone(), layout.id));
        let namespaces = &mut self.layout_of(nqn).namespaces;
        let place = namespaces.partition_point(|it| it.id < layout.id);
        namespaces.insert(place, layout);
        Ok(())
    }

    fn add_subsystem(
        &mut self,
        now: Instant,
        subsystem: &SubsystemPlan,
        opened: Vec<OpenedNamespace>,
        added: &mut Added,
    ) -> Result<(), ServeError> {
        let (mut configs, mut options, mut layouts) = (Vec::new(), BTreeMap::new(), Vec::new());
        let mut candidates = Vec::new();
        for OpenedNamespace { config, options: own, layout, candidate, .. } in opened {
            candidates.push(candidate);
            options.insert(config.id, own);
            configs.push(config);
            layouts.push(layout);
        }
        let config = build::subsystem_config(subsystem, configs);
        self.target.add_subsystem(now, config, options).map_err(refused)?;
        self.candidates.append(&mut candidates);
        added.drives.retain(|drive| layouts.iter().all(|layout| layout.device != *drive));
        added.subsystems.push(subsystem.nqn.clone());
        self.layout.push(SubsystemLayout { nqn: subsystem.nqn.to_string(), namespaces: layouts });
        Ok(())
    }

    fn undo(&mut self, now: Instant, old: &ServerPlan, added: &Added) {
        for nqn in &added.hosts {
            let hosts = &find(old, nqn).expect("the subsystem existed before").hosts;
            let restored = self.target.set_hosts(now, nqn, build::access(hosts.as_deref()));
            assert!(restored.is_ok(), "these hosts were allowed before: {restored:?}");
        }
        for (nqn, id) in &added.namespaces {
            self.remove_namespace(now, nqn, *id);
        }
        for nqn in &added.subsystems {
            self.remove_subsystem(now, nqn);
        }
        for drive in &added.drives {
            self.drives.retire(*drive);
        }
    }

    /// Removes a namespace that the target serves; its drive is closed when the target reports that
    /// it needs it no more.
    fn remove_namespace(&mut self, now: Instant, nqn: &Nqn, id: NamespaceId) {
        let removed = self.target.remove_namespace(now, nqn, id);
        assert!(removed.is_ok(), "the target serves the namespaces of the plan: {removed:?}");
        self.layout_of(nqn).namespaces.retain(|it: &NamespaceLayout| it.id != id);
        self.candidates.retain(|it| (&it.nqn, it.namespace) != (nqn, id));
    }

    fn remove_subsystem(&mut self, now: Instant, nqn: &Nqn) {
        let removed = self.target.remove_subsystem(now, nqn);
        assert!(removed.is_ok(), "the target serves the subsystems of the plan: {removed:?}");
        self.layout.retain(|it| it.nqn != nqn.as_str());
        self.candidates.retain(|it| it.nqn != *nqn);
    }

    fn layout_of(&mut self, nqn: &Nqn) -> &mut SubsystemLayout {
        let found = self.layout.iter_mut().find(|it| it.nqn == nqn.as_str());
        found.expect("the layout has the subsystems of the plan")
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is the argument of map_err")]
fn refused(error: TargetConfigError) -> ServeError {
    ServeError::new(format!("{} {}", error.subject, error.remedy), "change the configuration, and reload it again")
}
