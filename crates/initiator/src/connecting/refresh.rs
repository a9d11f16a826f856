//! Identifies the namespace again while commands are in flight: the controller has reported that
//! namespaces have changed.
//!
//! The zones are not reported again: new ones have the capacity of the others.

use zonda_nvme::identify::{CommandSet, NamespaceIdentity, NvmNamespace, Structure, ZnsNamespace, parse_descriptors};
use zonda_nvme::log::{ChangedNamespaceList, GetLogPage, LogPage};
use zonda_nvme::page::Page;
use zonda_zoned::{Blocks, Geometry, Instant, NamespaceId};

use super::identification::{identify, namespace_exists};
use super::{Progress, send};
use crate::error::Reason;
use crate::io::get_log_page;
use crate::queue::{CommandData, Ended, Queue};

/// Log pages of the controller have this namespace identifier.
const CONTROLLER: u32 = u32::MAX;

/// The commands from the event to the new geometry, one at a time.
#[derive(Debug)]
pub(crate) struct Refresh {
    step: RefreshStep,
    id: NamespaceId,
    identity: NamespaceIdentity,
    is_zoned: bool,
    /// The geometry so far; the new one at the end.
    geometry: Geometry,
    size_blocks: u64,
    format_index: usize,
    /// Another change was reported after the list of changes was read.
    is_outdated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefreshStep {
    ReadChanges,
    IdentifyDescriptors,
    IdentifyNamespace,
    IdentifyZonedNamespace,
}

impl Refresh {
    /// Begins with the list of changed namespaces, which lets the controller report the next
    /// change.
    pub(crate) fn start(
        now: Instant,
        queue: &mut Queue,
        id: NamespaceId,
        identity: NamespaceIdentity,
        is_zoned: bool,
        geometry: Geometry,
    ) -> Refresh {
        read_changes(now, queue);
        Refresh {
            step: RefreshStep::ReadChanges,
            id,
            identity,
            is_zoned,
            geometry,
            size_blocks: 0,
            format_index: 0,
            is_outdated: false,
        }
    }

    /// Another change was reported.
    pub(crate) fn repeat(&mut self) {
        self.is_outdated = true;
    }

    /// # Errors
    /// If the namespace does not exist any more, or differs in more than its size.
    pub(crate) fn ended(&mut self, now: Instant, queue: &mut Queue, ended: &Ended) -> Result<Progress, Reason> {
        let id = self.id.0;
        match self.step {
            RefreshStep::ReadChanges => {
                // A controller without the list leaves open which namespaces have changed.
                if ended.status.is_success() && !ended.is_damaged {
                    let changed = ChangedNamespaceList::parse(&ended.data)?.changed();
                    if changed.is_some_and(|changed| !changed.contains(&self.id)) {
                        return Ok(self.finish(now, queue));
                    }
                }
                identify(now, queue, Structure::NamespaceDescriptors, CommandSet::Nvm, id);
                self.step = RefreshStep::IdentifyDescriptors;
            }
            RefreshStep::IdentifyDescriptors => {
                namespace_exists(ended)?;
                let (identity, command_set) = parse_descriptors(&ended.data)?;
                let is_zoned = command_set == Some(CommandSet::Zoned as u8);
                if identity != self.identity || is_zoned != self.is_zoned {
                    return Err(Reason::NamespaceChanged);
                }
                identify(now, queue, Structure::Namespace, CommandSet::Nvm, id);
                self.step = RefreshStep::IdentifyNamespace;
            }
            RefreshStep::IdentifyNamespace => {
                namespace_exists(ended)?;
                self.check_namespace(&NvmNamespace::parse(&ended.data)?)?;
                if !self.is_zoned {
                    // A namespace without zones is a single one here.
                    self.geometry.zone_size_blocks = Blocks(self.size_blocks);
                    self.geometry.zone_capacity_blocks = Blocks(self.size_blocks);
                    return Ok(self.finish(now, queue));
                }
                identify(now, queue, Structure::CommandSetNamespace, CommandSet::Zoned, id);
                self.step = RefreshStep::IdentifyZonedNamespace;
            }
            RefreshStep::IdentifyZonedNamespace => {
                namespace_exists(ended)?;
                self.take_zones(&ZnsNamespace::parse(&ended.data)?)?;
                return Ok(self.finish(now, queue));
            }
        }
        Ok(Progress::More)
    }

    /// The geometry, once it is done.
    pub(crate) fn into_geometry(self) -> Geometry {
        self.geometry
    }

    fn check_namespace(&mut self, namespace: &NvmNamespace) -> Result<(), Reason> {
        self.size_blocks = namespace.size_blocks.get();
        self.format_index = namespace.format_index();
        if self.size_blocks == 0 {
            return Err(Reason::NoSuchNamespace);
        }
        let is_same = namespace.block_size_bytes()? == self.geometry.block_size_bytes
            && namespace.format_in_use().metadata_bytes.get() == self.geometry.metadata_bytes;
        if is_same { Ok(()) } else { Err(Reason::NamespaceChanged) }
    }

    fn take_zones(&mut self, namespace: &ZnsNamespace) -> Result<(), Reason> {
        let zone_size = self.geometry.zone_size_blocks.0;
        let is_same = namespace.format_extensions[self.format_index].zone_size_blocks.get() == zone_size;
        let zone_count = u32::try_from(self.size_blocks / zone_size).ok().filter(|_| is_same);
        self.geometry.zone_count = zone_count.ok_or(Reason::NamespaceChanged)?;
        self.geometry.validate().map_err(|_| Reason::NamespaceChanged)
    }

    /// Ends, unless another change was reported meanwhile.
    fn finish(&mut self, now: Instant, queue: &mut Queue) -> Progress {
        if !std::mem::take(&mut self.is_outdated) {
            return Progress::Done;
        }
        read_changes(now, queue);
        self.step = RefreshStep::ReadChanges;
        Progress::More
    }
}

fn read_changes(now: Instant, queue: &mut Queue) {
    let bytes = size_of::<ChangedNamespaceList>() as u32;
    let entry = get_log_page(CONTROLLER, &GetLogPage::of(LogPage::ChangedNamespaces, bytes.into()));
    send(queue, now, entry, CommandData::ToHost(bytes));
}
