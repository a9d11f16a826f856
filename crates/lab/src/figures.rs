//! Figures of a run other than those of its jobs: of the drive, a store, a volume and the host.

use std::ops::Range;

use zonda_stack::{ElasticSample, ElasticSummary, ExperimentResult, VolumeSummary};
use zonda_workload::lsm::StoreResult;

/// The dimension of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dimension {
    Time,
    Rate,
    Operations,
    Bytes,
    Number,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DriveFigure {
    Dlwa,
    HostWriteBytes,
    PaddingBytes,
    MappingBytes,
    Erases,
    ErasesMin,
    ErasesMax,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreFigure {
    Operations,
    Elapsed,
    Drained,
    Throughput,
    SpaceAmplification,
    WriteAmplification,
    TreeWriteAmplification,
    HostWriteBytes,
    HostReadBytes,
    Finishes,
    Resets,
    Stopped,
}

pub(crate) const STORE_FIGURES: [(&str, StoreFigure); 12] = [
    ("operations", StoreFigure::Operations),
    ("elapsed", StoreFigure::Elapsed),
    ("drained", StoreFigure::Drained),
    ("throughput", StoreFigure::Throughput),
    ("space_amplification", StoreFigure::SpaceAmplification),
    ("write_amplification", StoreFigure::WriteAmplification),
    ("tree_write_amplification", StoreFigure::TreeWriteAmplification),
    ("host_write_bytes", StoreFigure::HostWriteBytes),
    ("host_read_bytes", StoreFigure::HostReadBytes),
    ("zone_finishes", StoreFigure::Finishes),
    ("zone_resets", StoreFigure::Resets),
    ("stopped", StoreFigure::Stopped),
];

/// Algorithms timed on the machine that runs the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostFigure {
    Allocation,
    StripeQuery,
    GroupQuery,
}

pub(crate) const HOST_FIGURES: [(&str, HostFigure); 3] = [
    ("allocation", HostFigure::Allocation),
    ("stripe_query", HostFigure::StripeQuery),
    ("group_query", HostFigure::GroupQuery),
];

/// Figures of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VolumeFigure {
    WriteAmplification,
    MemberBlocks,
    PaddingBlocks,
    ReconstructedBlocks,
    CollectedSegments,
    MapBytes,
    StripeTableBytes,
    StripeTableMaxBytes,
    RebuildTime,
}

/// A figure of a namespace of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElasticFigure {
    Essentials,
    SparesOwn,
    SparesLent,
    SparesLeased,
    SparesUsed,
    VzoneMemoryMaxBytes,
}

pub(crate) const ELASTIC_FIGURES: [(&str, ElasticFigure); 6] = [
    ("essentials", ElasticFigure::Essentials),
    ("spares_own", ElasticFigure::SparesOwn),
    ("spares_lent", ElasticFigure::SparesLent),
    ("spares_leased", ElasticFigure::SparesLeased),
    ("spares_used", ElasticFigure::SparesUsed),
    ("vzone_memory_max_bytes", ElasticFigure::VzoneMemoryMaxBytes),
];

pub(crate) const VOLUME_FIGURES: [(&str, VolumeFigure); 9] = [
    ("write_amplification", VolumeFigure::WriteAmplification),
    ("member_blocks", VolumeFigure::MemberBlocks),
    ("padding_blocks", VolumeFigure::PaddingBlocks),
    ("reconstructed_blocks", VolumeFigure::ReconstructedBlocks),
    ("collected_segments", VolumeFigure::CollectedSegments),
    ("map_bytes", VolumeFigure::MapBytes),
    ("stripe_table_bytes", VolumeFigure::StripeTableBytes),
    ("stripe_table_max_bytes", VolumeFigure::StripeTableMaxBytes),
    ("rebuild_time", VolumeFigure::RebuildTime),
];

pub(crate) const DRIVE_FIGURES: [(&str, DriveFigure); 7] = [
    ("dlwa", DriveFigure::Dlwa),
    ("host_write_bytes", DriveFigure::HostWriteBytes),
    ("padding_bytes", DriveFigure::PaddingBytes),
    ("mapping_bytes", DriveFigure::MappingBytes),
    ("erases", DriveFigure::Erases),
    ("erases_min", DriveFigure::ErasesMin),
    ("erases_max", DriveFigure::ErasesMax),
];

impl DriveFigure {
    pub(crate) fn dimension(self) -> Dimension {
        match self {
            DriveFigure::HostWriteBytes | DriveFigure::PaddingBytes | DriveFigure::MappingBytes => Dimension::Bytes,
            _ => Dimension::Number,
        }
    }

    pub(crate) fn value(self, result: &ExperimentResult) -> f64 {
        match self {
            DriveFigure::Dlwa => result.drive.dlwa,
            DriveFigure::HostWriteBytes => result.drive.counters.host_write_bytes as f64,
            DriveFigure::PaddingBytes => result.drive.counters.programmed_padding_bytes as f64,
            DriveFigure::MappingBytes => result.drive.allocation.mapping_bytes as f64,
            DriveFigure::Erases => result.drive.counters.erases as f64,
            DriveFigure::ErasesMin => f64::from(result.drive.wear.erases_min),
            DriveFigure::ErasesMax => f64::from(result.drive.wear.erases_max),
        }
    }
}

impl StoreFigure {
    pub(crate) fn dimension(self) -> Dimension {
        match self {
            StoreFigure::Elapsed | StoreFigure::Drained | StoreFigure::Stopped => Dimension::Time,
            StoreFigure::Throughput => Dimension::Operations,
            StoreFigure::HostWriteBytes | StoreFigure::HostReadBytes => Dimension::Bytes,
            _ => Dimension::Number,
        }
    }

    pub(crate) fn value(self, store: &StoreResult) -> f64 {
        match self {
            StoreFigure::Operations => store.operations as f64,
            StoreFigure::Elapsed => store.elapsed_ns as f64,
            StoreFigure::Drained => store.drained_ns as f64,
            StoreFigure::Throughput => store.throughput,
            StoreFigure::SpaceAmplification => store.space_amplification_mean,
            StoreFigure::WriteAmplification => store.write_amplification,
            StoreFigure::TreeWriteAmplification => store.tree_write_amplification,
            StoreFigure::HostWriteBytes => store.host_write_bytes as f64,
            StoreFigure::HostReadBytes => store.host_read_bytes as f64,
            StoreFigure::Finishes => store.files.zone_finishes as f64,
            StoreFigure::Resets => store.files.zone_resets as f64,
            StoreFigure::Stopped => store.counters.stopped_ns as f64,
        }
    }
}

impl HostFigure {
    pub(crate) fn dimension(self) -> Dimension {
        match self {
            HostFigure::Allocation | HostFigure::StripeQuery | HostFigure::GroupQuery => Dimension::Time,
        }
    }
}

impl VolumeFigure {
    pub(crate) fn dimension(self) -> Dimension {
        match self {
            VolumeFigure::RebuildTime => Dimension::Time,
            VolumeFigure::MapBytes | VolumeFigure::StripeTableBytes | VolumeFigure::StripeTableMaxBytes => {
                Dimension::Bytes
            }
            _ => Dimension::Number,
        }
    }

    /// `None` if there was no rebuild, or it did not complete.
    pub(crate) fn value(self, volume: &VolumeSummary) -> Option<f64> {
        Some(match self {
            VolumeFigure::WriteAmplification => volume.write_amplification,
            VolumeFigure::MemberBlocks => volume.member_blocks as f64,
            VolumeFigure::PaddingBlocks => volume.padding_blocks as f64,
            VolumeFigure::ReconstructedBlocks => volume.reconstructed_blocks as f64,
            VolumeFigure::CollectedSegments => volume.collected_segments as f64,
            VolumeFigure::MapBytes => volume.map_bytes as f64,
            VolumeFigure::StripeTableBytes => volume.stripe_table_bytes as f64,
            VolumeFigure::StripeTableMaxBytes => volume.stripe_table_max_bytes as f64,
            VolumeFigure::RebuildTime => volume.rebuild_ns? as f64,
        })
    }
}

impl ElasticFigure {
    /// Whether it is known at other times than the end of the run.
    pub(crate) fn is_sampled(self) -> bool {
        self != ElasticFigure::VzoneMemoryMaxBytes
    }

    pub(crate) fn dimension(self) -> Dimension {
        match self {
            ElasticFigure::VzoneMemoryMaxBytes => Dimension::Bytes,
            _ => Dimension::Number,
        }
    }

    /// At the end of the run, or the mean of the samples of a part of it. `None` if the pool has no
    /// such namespace, or this part has no sample.
    pub(crate) fn value(self, pool: &ElasticSummary, namespace: &str, during: Option<&Range<u64>>) -> Option<f64> {
        let place = pool.namespaces.iter().position(|candidate| candidate.name == namespace)?;
        let own = &pool.namespaces[place];
        let of = |sample: &ElasticSample| {
            let zones = sample.namespaces[place];
            let number = match self {
                ElasticFigure::Essentials => own.essentials,
                ElasticFigure::SparesOwn => own.spares_own,
                ElasticFigure::SparesLent => zones.spares_lent,
                ElasticFigure::SparesLeased => zones.spares_leased,
                ElasticFigure::SparesUsed => zones.spares_used,
                ElasticFigure::VzoneMemoryMaxBytes => own.vzone_memory_max_bytes,
            };
            f64::from(number)
        };
        let Some(during) = during else { return pool.series.last().map(of) };
        let values: Vec<f64> = pool.series.iter().filter(|sample| during.contains(&sample.at_ns)).map(of).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }
}
