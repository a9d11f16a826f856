//! Builds the exports from the plan and the open drives.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use zonda_nbd::limits::REQUEST_BYTES_MAX;
use zonda_nbd::{Export, ExportIndex, Limits, Server, ServerConfig, TlsPolicy};
use zonda_nvme::Nqn;
use zonda_target::DeviceKey;
use zonda_zoned::{Geometry, NamespaceId};

use super::counters::Counters;
use super::limits::{DATA_BYTES_PER_CONNECTION, REQUESTS_PER_CONNECTION};
use super::tls::NbdTls;
use super::work::Shape;
use crate::config::{NbdExportPlan, NbdPlan};
use crate::start::ServeError;

/// The preferred block size, at least: smaller writes cost most drives as much.
const PREFERRED_BLOCK_BYTES_MIN: u32 = 4096;
const MAKE_A_VOLUME: &str =
    "NBD does not support zones: create a volume of zoned drives (zonda volume create) and export that";

/// An open namespace of the server.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) nqn: Nqn,
    pub(crate) namespace: NamespaceId,
    pub(crate) device: DeviceKey,
    pub(crate) geometry: Geometry,
    /// The directory of the drive, or `memory`.
    pub(crate) source: String,
    pub(crate) volatile_write_cache: bool,
    /// Whether it is read-only regardless of its exports.
    pub(crate) read_only: bool,
}

/// The exports of one `[[nbd]]`. A connection keeps those that it started with: after a change
/// there is another table for new connections.
pub(crate) struct Table {
    pub(crate) server: Server,
    pub(crate) tls: Option<NbdTls>,
    /// By the index of the export.
    pub(crate) exports: Vec<Rc<TableExport>>,
}

/// The namespace of an export.
pub(crate) struct TableExport {
    name: String,
    read_only: bool,
    pub(crate) nqn: String,
    pub(crate) namespace: NamespaceId,
    pub(crate) device: DeviceKey,
    pub(crate) shape: Shape,
    pub(crate) counters: RefCell<Counters>,
    /// No client may use it any more.
    pub(crate) is_removed: Cell<bool>,
}

impl TableExport {
    /// Whether clients of this export may continue with the other one.
    fn is_same(&self, other: &TableExport) -> bool {
        (&self.name, self.read_only, self.device) == (&other.name, other.read_only, other.device)
    }

    fn remove(&self) -> String {
        self.is_removed.set(true);
        self.name.clone()
    }
}

impl Candidate {
    fn is_conventional(&self) -> bool {
        self.geometry.conventional_zone_count == self.geometry.zone_count
    }

    /// Its default name: that of its directory.
    fn default_name(&self) -> String {
        let name = Path::new(&self.source).file_name().map(|name| name.to_string_lossy().into_owned());
        name.unwrap_or_else(|| "drive".to_owned())
    }
}

impl Table {
    pub(crate) fn build(plan: &NbdPlan, candidates: &[Candidate]) -> Result<Table, ServeError> {
        let plans = match &plan.exports {
            Some(plans) => plans.clone(),
            None => conventional(plan, candidates)?,
        };
        let (mut exports, mut behind, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
        for plan in &plans {
            let candidate = candidates
                .iter()
                .find(|candidate| (&candidate.nqn, candidate.namespace) == (&plan.nqn, plan.namespace))
                .expect("the exports were checked");
            let export = export(plan, candidate)?;
            if !names.insert(export.name.clone()) {
                return Err(ServeError::new(
                    format!("duplicate export name \"{}\"", export.name),
                    "give each export a unique name: [[nbd.export]] with nqn, namespace and name",
                ));
            }
            behind.push(Rc::new(TableExport {
                name: export.name.clone(),
                read_only: export.read_only,
                nqn: candidate.nqn.to_string(),
                namespace: candidate.namespace,
                device: candidate.device,
                shape: Shape::new(&candidate.geometry, candidate.volatile_write_cache),
                counters: RefCell::default(),
                is_removed: Cell::new(false),
            }));
            exports.push(export);
        }
        let limits = Limits { requests: REQUESTS_PER_CONNECTION, data_bytes: DATA_BYTES_PER_CONNECTION };
        let tls = plan.tls.as_ref().map_or(TlsPolicy::Off, NbdTls::policy);
        let config = ServerConfig { limits, tls, ..ServerConfig::new(exports) };
        let server = Server::new(config).map_err(|error| {
            ServeError::new(format!("{}: {}", error.subject, error.remedy), "see docs/guide/nbd.md")
        })?;
        Ok(Table { server, tls: plan.tls.clone(), exports: behind })
    }

    /// The table for new connections, after a drive has changed its size.
    pub(crate) fn resized(&self, device: DeviceKey, size_bytes: u64) -> Table {
        let mut config = self.server.config().clone();
        let exports = config.exports.iter_mut().zip(&self.exports).filter(|(_, behind)| behind.device == device);
        exports.for_each(|(export, _)| export.size_bytes = size_bytes);
        // A drive of 2^63 bytes and more cannot be exported, and keeps its former size here.
        let server = Server::new(config).unwrap_or_else(|_| self.server.clone());
        Table { server, tls: self.tls.clone(), exports: self.exports.clone() }
    }

    /// Takes over the exports of an earlier table that stay, with their clients and counters, and
    /// removes the others. Returns the names of new and of removed ones.
    pub(crate) fn succeed(&mut self, earlier: &Table) -> (Vec<String>, Vec<String>) {
        let mut added = Vec::new();
        for export in &mut self.exports {
            match earlier.exports.iter().find(|other| other.is_same(export)) {
                Some(other) => *export = Rc::clone(other),
                None => added.push(export.name.clone()),
            }
        }
        let stays = |export: &Rc<TableExport>| self.exports.iter().any(|other| Rc::ptr_eq(export, other));
        let removed = earlier.exports.iter().filter(|export| !stays(export));
        (added, removed.map(|export| export.remove()).collect())
    }

    /// Removes all exports. Returns their names.
    pub(crate) fn remove(&self) -> Vec<String> {
        self.exports.iter().map(|export| export.remove()).collect()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.exports.iter().map(|export| &export.name)
    }

    pub(crate) fn export(&self, index: ExportIndex) -> (&Export, &Rc<TableExport>) {
        (self.server.export(index), &self.exports[usize::from(index.0)])
    }
}

/// Exports of all conventional namespaces.
fn conventional(plan: &NbdPlan, candidates: &[Candidate]) -> Result<Vec<NbdExportPlan>, ServeError> {
    let plans: Vec<NbdExportPlan> = candidates
        .iter()
        .filter(|candidate| candidate.is_conventional())
        .map(|candidate| NbdExportPlan {
            name: None,
            description: String::new(),
            nqn: candidate.nqn.clone(),
            namespace: candidate.namespace,
            read_only: plan.read_only,
        })
        .collect();
    if plans.is_empty() {
        return Err(ServeError::new("nothing can be exported over NBD: all namespaces are zoned", MAKE_A_VOLUME));
    }
    Ok(plans)
}

fn export(plan: &NbdExportPlan, candidate: &Candidate) -> Result<Export, ServeError> {
    if !candidate.is_conventional() {
        let source = &candidate.source;
        return Err(ServeError::new(format!("{source} cannot be exported over NBD: it is zoned"), MAKE_A_VOLUME));
    }
    let geometry = &candidate.geometry;
    let name = plan.name.clone().unwrap_or_else(|| candidate.default_name());
    let size_bytes = geometry.namespace_blocks().bytes(geometry.block_size_bytes);
    Ok(Export {
        description: plan.description.clone(),
        minimum_block_bytes: geometry.block_size_bytes,
        takes_unaligned: true,
        preferred_block_bytes: geometry.block_size_bytes.max(PREFERRED_BLOCK_BYTES_MIN),
        maximum_block_bytes: REQUEST_BYTES_MAX,
        read_only: plan.read_only || candidate.read_only,
        // A flush applies to the drive, regardless of the connection that wrote.
        multi_conn: true,
        ..Export::new(&name, size_bytes)
    })
}
