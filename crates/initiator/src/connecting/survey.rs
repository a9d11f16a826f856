//! Reports the zones while connecting: no Identify structure contains the zone capacity.

use zonda_nvme::identify::{ZonedPages, geometry_from};
use zonda_nvme::io::NamespaceFormat;
use zonda_nvme::page::{Page, PageError};
use zonda_zoned::limits::DESCRIPTOR_EXTENSION_UNIT_BYTES;
use zonda_zoned::{Blocks, Geometry, Instant, Lba, ReportFilter, ZoneDescriptor};

use super::{Progress, Remote, send, succeeded};
use crate::InitiatorConfig;
use crate::error::Reason;
use crate::limits::{REPORT_ROUND_BYTES_MAX, SURVEYED_ZONES_MAX};
use crate::queue::{Ended, Queue};
use crate::reports::{ReportRequest, ReportRounds, ReportShape};

/// A zone report over the first I/O queue.
#[derive(Debug)]
pub(crate) struct Survey {
    shape: ReportShape,
    rounds: ReportRounds,
}

impl Survey {
    /// Begins the report, unless the namespace is conventional.
    pub(crate) fn start(
        now: Instant,
        queue: &mut Queue,
        remote: &Remote,
        config: &InitiatorConfig,
    ) -> Result<Option<Survey>, Reason> {
        let Some(zoned) = &remote.zoned else { return Ok(None) };
        let extension = &zoned.0.format_extensions[remote.namespace.format_index()];
        let zone_size_blocks = extension.zone_size_blocks.get();
        let zones = remote.namespace.size_blocks.get().checked_div(zone_size_blocks).unwrap_or(0);
        let zone_count =
            u32::try_from(zones).ok().filter(|&zones| zones > 0).ok_or(Reason::Page(PageError::Value {
                page: zonda_nvme::identify::ZnsNamespace::NAME,
                field: "ZSZE",
                value: zone_size_blocks,
                remedy: "must divide the namespace into 1 to 2^32 - 1 zones",
            }))?;
        let shape = ReportShape {
            namespace: config.namespace,
            format: NamespaceFormat {
                block_size_bytes: remote.namespace.block_size_bytes()?,
                metadata_bytes: 0,
                zoned: true,
                max_transfer_blocks: 0,
                max_append_blocks: 0,
                max_transfer_bytes: remote.page_bytes_max(config),
                descriptor_extension_bytes: u32::from(extension.descriptor_extension_64b)
                    * DESCRIPTOR_EXTENSION_UNIT_BYTES,
            },
            zone_size_blocks,
            zone_count: zone_count.min(SURVEYED_ZONES_MAX),
            round_bytes: remote.page_bytes_max(config).min(REPORT_ROUND_BYTES_MAX),
        };
        let request = ReportRequest {
            start: Lba(0),
            filter: ReportFilter::All,
            extended: false,
            partial: true,
            descriptors_max: u32::MAX,
        };
        let mut rounds = ReportRounds::new(request, &shape);
        let (entry, data) = rounds.command(&shape);
        send(queue, now, entry, data);
        Ok(Some(Survey { shape, rounds }))
    }

    pub(crate) fn ended(&mut self, now: Instant, queue: &mut Queue, ended: &Ended) -> Result<Progress, Reason> {
        succeeded(ended)?;
        if !self.rounds.take(&ended.data, &self.shape).map_err(|_| Reason::Damaged)? {
            let (entry, data) = self.rounds.command(&self.shape);
            send(queue, now, entry, data);
            return Ok(Progress::More);
        }
        Ok(Progress::Done)
    }

    /// The zones, once it is done.
    pub(crate) fn zones(&self) -> &[ZoneDescriptor] {
        self.rounds.zones()
    }
}

/// The geometry of the namespace, with the limits of this side.
pub(crate) fn geometry_of(
    remote: &Remote,
    zones: &[ZoneDescriptor],
    config: &InitiatorConfig,
) -> Result<Geometry, Reason> {
    let pages = remote.zoned.as_ref().map(|zoned| ZonedPages { namespace: &zoned.0, controller: &zoned.1, zones });
    let mut geometry = geometry_from(&remote.controller, &remote.namespace, pages)?;
    let own_max = Blocks(u64::from(config.transfer_bytes_max / geometry.block_size_bytes).max(1));
    geometry.max_transfer_blocks = geometry.max_transfer_blocks.min(own_max);
    geometry.max_append_blocks = geometry.max_append_blocks.min(geometry.max_transfer_blocks);
    Ok(geometry)
}
