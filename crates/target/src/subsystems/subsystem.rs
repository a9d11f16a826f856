//! A subsystem: its namespaces by identifier, and what its controllers report about all of them
//! together.

use zonda_nvme::Nqn;
use zonda_nvme::identify::{self, NvmController, ZnsController};
use zonda_nvme::page::PageError;
use zonda_zoned::{Geometry, Instant};

use super::NamespaceIndex;
use crate::config::{SubsystemConfig, TargetConfigError};
use crate::limits::Limits;
use crate::slots::{OwnedKey, slot_key};
use crate::statistics::NamespaceStatistics;

slot_key! {
    /// Index of a subsystem in the target's table. Never used again for another subsystem.
    SubsystemIndex
}

impl OwnedKey for SubsystemIndex {}

#[derive(Debug)]
pub(crate) struct Subsystem {
    pub(crate) nqn: Nqn,
    /// Index in the configuration; `None`: it was removed.
    pub(super) place: Option<usize>,
    /// Indexes in the target's table, by namespace identifier.
    by_id: Vec<Option<NamespaceIndex>>,
    /// What controllers report.
    pub(crate) limits: TransferLimits,
    /// The limits of the present namespaces. They are greater than those that controllers report
    /// if a namespace was removed since the first of the controllers was created.
    pub(super) present_limits: TransferLimits,
    /// Whether controllers may have reported ZASL: there is a zoned namespace, or was one since the
    /// first of the controllers was created.
    pub(super) reports_append: bool,
    /// Whether any namespace has zones.
    pub(crate) zoned: bool,
    pub(crate) volatile_write_cache: bool,
    pub(crate) capacity_bytes: u128,
    /// Counters of all namespaces that have been removed.
    pub(super) removed_statistics: NamespaceStatistics,
    /// After its removal, while it has controllers: when their connections are closed.
    pub(super) closes_at: Option<Instant>,
}

/// Transfer limits of a subsystem's controllers, as exponents of the memory page.
///
/// Hosts read them once, when they create a controller, so they do not shrink while there are
/// controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransferLimits {
    /// MDTS.
    pub(crate) transfer: u8,
    /// ZASL; 0 stands for MDTS.
    pub(crate) append: u8,
    /// WZSL; 0: none. Hosts take MDTS then.
    pub(crate) write_zeroes: u8,
}

impl Subsystem {
    /// A subsystem without namespaces, at this index of the configuration.
    pub(crate) fn new(nqn: &Nqn, place: usize, limits: &Limits) -> Subsystem {
        let transfer_limits = TransferLimits::of(&std::iter::empty(), limits).expect("no namespace is no error");
        Subsystem {
            nqn: nqn.clone(),
            place: Some(place),
            by_id: vec![None],
            limits: transfer_limits,
            present_limits: transfer_limits,
            reports_append: false,
            zoned: false,
            volatile_write_cache: false,
            capacity_bytes: 0,
            removed_statistics: NamespaceStatistics::default(),
            closes_at: None,
        }
    }

    /// The namespaces have become those of `config`: calculates what controllers report. With
    /// controllers, the limits that they have reported stay.
    pub(super) fn update(&mut self, config: &SubsystemConfig, limits: &Limits, has_controllers: bool) {
        let greatest = config.namespaces.iter().map(|namespace| namespace.id.0).max().unwrap_or(0);
        self.by_id.resize(greatest as usize + 1, None);
        let geometries = || config.namespaces.iter().map(|namespace| &namespace.geometry);
        self.zoned = geometries().any(is_zoned);
        self.volatile_write_cache = config.namespaces.iter().any(|namespace| namespace.volatile_write_cache);
        self.capacity_bytes = geometries().map(capacity_bytes).sum();
        self.present_limits = TransferLimits::of(&geometries(), limits).expect("the namespaces were checked");
        if has_controllers {
            self.limits = self.present_limits.within(self.limits, self.reports_append);
            self.reports_append |= self.zoned;
        } else {
            self.report_present_limits();
        }
    }

    /// There is no controller: the next one reports the limits of the present namespaces.
    pub(super) fn report_present_limits(&mut self) {
        self.limits = self.present_limits;
        self.reports_append = self.zoned;
    }

    /// Whether it was removed: hosts cannot name it any more.
    pub(crate) fn is_removed(&self) -> bool {
        self.place.is_none()
    }

    /// The index of a namespace in the target's table.
    #[inline]
    pub(crate) fn namespace(&self, id: u32) -> Option<NamespaceIndex> {
        self.by_id.get(id as usize).copied().flatten()
    }

    /// Sets the index of a namespace.
    pub(super) fn set_namespace(&mut self, id: u32, index: Option<NamespaceIndex>) {
        if self.by_id.len() <= id as usize {
            self.by_id.resize(id as usize + 1, None);
        }
        self.by_id[id as usize] = index;
    }

    /// The greatest namespace identifier.
    pub(crate) fn namespaces_max(&self) -> u32 {
        self.by_id.len() as u32 - 1
    }

    /// Indexes of all namespaces, in the order of their identifiers.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = NamespaceIndex> + '_ {
        self.by_id.iter().copied().flatten()
    }
}

impl TransferLimits {
    /// The limits of these namespaces and of the target.
    pub(crate) fn of<'a>(
        geometries: &(impl Iterator<Item = &'a Geometry> + Clone),
        limits: &Limits,
    ) -> Result<TransferLimits, PageError> {
        let geometries = || geometries.clone();
        let of_target = (limits.transfer_bytes / identify::MEMORY_PAGE_BYTES).ilog2() as u8;
        let transfer = match identify::Controller::max_transfer_exponent_for(geometries())? {
            0 => of_target,
            exponent => exponent.min(of_target),
        };
        Ok(TransferLimits {
            transfer,
            append: ZnsController::from_geometries(geometries())?.append_limit_exponent.min(transfer),
            write_zeroes: NvmController::from_geometries(geometries())?.write_zeroes_exponent,
        })
    }

    /// The field that is smaller than hosts have read, if any. `append_is_known`: they may have read
    /// the limit of appends.
    pub(crate) fn field_below(&self, reported: TransferLimits, append_is_known: bool) -> Option<&'static str> {
        [
            (self.transfer < reported.transfer, "maximum data transfer size (MDTS)"),
            (append_is_known && self.append() < reported.append(), "zone append size limit (ZASL)"),
            (self.write_zeroes() < reported.write_zeroes(), "write zeroes size limit (WZSL)"),
        ]
        .into_iter()
        .find_map(|(is_below, field)| is_below.then_some(field))
    }

    /// These limits, but no greater than hosts have read.
    fn within(self, reported: TransferLimits, append_is_known: bool) -> TransferLimits {
        let write_zeroes = match reported.write_zeroes {
            0 => self.write_zeroes,
            before => {
                if self.write_zeroes == 0 {
                    before
                } else {
                    self.write_zeroes.min(before)
                }
            }
        };
        TransferLimits {
            transfer: self.transfer.min(reported.transfer),
            append: if append_is_known {
                self.append().min(reported.append())
            } else {
                self.append.min(reported.transfer)
            },
            write_zeroes,
        }
    }

    fn append(self) -> u8 {
        if self.append == 0 { self.transfer } else { self.append }
    }

    fn write_zeroes(self) -> u8 {
        if self.write_zeroes == 0 { self.transfer } else { self.write_zeroes }
    }
}

impl Subsystem {
    /// Whether a subsystem with controllers can have these namespaces; the limits that hosts have
    /// read must hold for all of them.
    pub(super) fn check_limits<'a>(
        &self,
        geometries: &(impl Iterator<Item = &'a Geometry> + Clone),
        limits: &Limits,
    ) -> Result<(), TargetConfigError> {
        let next = TransferLimits::of(geometries, limits).map_err(|error| TargetConfigError {
            subject: format!("subsystem {}", self.nqn),
            remedy: error.to_string(),
        })?;
        match next.field_below(self.limits, self.reports_append) {
            None => Ok(()),
            Some(field) => Err(TargetConfigError {
                subject: format!("subsystem {}, {field}", self.nqn),
                remedy: "the namespace needs a smaller value than connected hosts have read: restart the server, or \
                         add the namespace to another subsystem"
                    .to_owned(),
            }),
        }
    }
}

/// The bytes that hosts can write to a namespace.
fn capacity_bytes(geometry: &Geometry) -> u128 {
    u128::from(geometry.zone_capacity_bytes()) * u128::from(geometry.zone_count)
}

/// Whether a geometry has sequential zones; one with conventional zones only is served as an NVM
/// command set namespace.
pub(crate) fn is_zoned(geometry: &Geometry) -> bool {
    geometry.conventional_zone_count < geometry.zone_count
}
