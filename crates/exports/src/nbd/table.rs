//! From the plan and the open drives to exports.

use std::collections::BTreeSet;
use std::path::Path;

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

/// What clients had better keep to at least: smaller writes cost most drives as much.
const PREFERRED_BLOCK_BYTES_MIN: u32 = 4096;
const MAKE_A_VOLUME: &str = "NBD knows no zones: make a volume of zoned drives (zonda volume create) and export that";

/// A namespace of the server that is open.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) nqn: Nqn,
    pub(crate) namespace: NamespaceId,
    pub(crate) device: DeviceKey,
    pub(crate) geometry: Geometry,
    /// The directory of the drive, or a word.
    pub(crate) source: String,
    pub(crate) volatile_write_cache: bool,
    /// Whatever its exports say.
    pub(crate) read_only: bool,
}

/// One `[[nbd]]`.
pub(crate) struct Table {
    pub(crate) server: Server,
    pub(crate) tls: Option<NbdTls>,
    /// By the index of the export.
    pub(crate) exports: Vec<TableExport>,
}

/// What is behind an export.
pub(crate) struct TableExport {
    pub(crate) nqn: String,
    pub(crate) namespace: NamespaceId,
    pub(crate) device: DeviceKey,
    pub(crate) shape: Shape,
    pub(crate) counters: Counters,
}

impl Candidate {
    fn is_conventional(&self) -> bool {
        self.geometry.conventional_zone_count == self.geometry.zone_count
    }

    /// What it is called when nobody says: its directory.
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
                .expect("exports were checked against the namespaces");
            let export = export(plan, candidate)?;
            if !names.insert(export.name.clone()) {
                return Err(ServeError::new(
                    format!("two exports have the name \"{}\"", export.name),
                    "give each a name of its own: [[nbd.export]] with nqn, namespace and name",
                ));
            }
            exports.push(export);
            behind.push(TableExport {
                nqn: candidate.nqn.to_string(),
                namespace: candidate.namespace,
                device: candidate.device,
                shape: Shape::new(&candidate.geometry, candidate.volatile_write_cache),
                counters: Counters::default(),
            });
        }
        let limits = Limits { requests: REQUESTS_PER_CONNECTION, data_bytes: DATA_BYTES_PER_CONNECTION };
        let tls = plan.tls.as_ref().map_or(TlsPolicy::Off, NbdTls::policy);
        let config = ServerConfig { limits, tls, ..ServerConfig::new(exports) };
        let server = Server::new(config).map_err(|error| {
            ServeError::new(format!("{}: {}", error.subject, error.remedy), "see docs/guide/nbd.md")
        })?;
        Ok(Table { server, tls: plan.tls.clone(), exports: behind })
    }

    pub(crate) fn export(&self, index: ExportIndex) -> (&Export, &TableExport) {
        (self.server.export(index), &self.exports[usize::from(index.0)])
    }
}

/// Every namespace that can be exported.
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
        // A flush is one of the drive, whoever wrote.
        multi_conn: true,
        ..Export::new(&name, size_bytes)
    })
}
