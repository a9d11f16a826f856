//! Properties of a namespace, by Identify and a zone report. All of it blocks.

use std::fs;
use std::path::{Path, PathBuf};

use zonda_nvme::identify::{
    CommandSet, Controller, IdentifyRequest, NamespaceIdentity, NvmNamespace, Structure, ZnsController, ZnsNamespace,
    ZonedPages, geometry_from, parse_descriptors,
};
use zonda_nvme::io::{NamespaceFormat, encode};
use zonda_nvme::page::{Page, PageError};
use zonda_nvme::{AdminOpcode, SubmissionEntry};
use zonda_ring::{File, NvmeTarget};
use zonda_zoned::limits::DESCRIPTOR_EXTENSION_UNIT_BYTES;
use zonda_zoned::{Blocks, Geometry, Lba, NamespaceId, ZoneDescriptor};

use super::{FoundZone, Identified, command_of, report_format, report_of, succeeded};
use crate::DriveError;

/// Bytes of an Identify structure.
const IDENTIFY_BYTES: usize = 4096;
/// Bytes of one report, which every controller transfers.
const REPORT_BYTES: usize = 64 << 10;
/// Bytes of a transfer if the limits of the block layer are not known: those of passthrough are lower
/// than those of reads and writes.
const TRANSFER_BYTES_DEFAULT: u64 = 128 << 10;

/// The block device of the namespace with this character device, if there is one.
pub(super) fn block_device_of(path: &Path) -> Option<PathBuf> {
    let name = block_name(&fs::canonicalize(path).ok()?.file_name()?.to_string_lossy())?;
    let device = Path::new("/dev").join(name);
    device.exists().then_some(device)
}

/// `nvme0n1` of `ng0n1`.
fn block_name(name: &str) -> Option<String> {
    name.strip_prefix("ng").map(|rest| format!("nvme{rest}"))
}

/// The most bytes that one command transfers, by the block layer, which maps them.
fn transfer_bytes_max(path: &Path) -> u64 {
    let limits = || {
        let name = block_device_of(path)?.file_name()?.to_string_lossy().into_owned();
        let number = |attribute: &str| -> Option<u64> {
            fs::read_to_string(format!("/sys/block/{name}/queue/{attribute}")).ok()?.trim().parse().ok()
        };
        Some((number("max_hw_sectors_kb")? << 10).min(number("max_segments")?.max(1) * 4096))
    };
    limits().unwrap_or(TRANSFER_BYTES_DEFAULT)
}

/// Identifies the namespace whose character device is open.
pub(super) fn identify(path: &Path, file: &File) -> Result<Identified, DriveError> {
    let shown = path.display();
    let namespace = NamespaceId(file.nvme_namespace().map_err(|_| {
        DriveError::new(
            format!("{shown} is neither a block device nor the character device of an NVMe namespace"),
            "give the device file of a zoned drive, such as /dev/nvme0n1, /dev/sdb or /dev/ng0n1",
        )
    })?);
    let failed = |what: &str, why: String| {
        DriveError::new(
            format!("cannot use {shown}: {what}: {why}"),
            "check the drive with nvme id-ns and nvme zns id-ns",
        )
    };
    let page = |structure, command_set| {
        let result = receive_page(file, namespace, structure, command_set);
        result.map_err(|why| failed(&format!("Identify {:02x}h", structure as u8), why))
    };
    let unsupported = |why: String| failed("its format is not supported", why);
    let of_page = |error: PageError| failed("an Identify structure is not valid", error.to_string());
    let controller = page(Structure::Controller, CommandSet::Nvm)?;
    let controller = Controller::parse(&controller).map_err(of_page)?;
    let (identity, command_set) = match page(Structure::NamespaceDescriptors, CommandSet::Nvm) {
        Ok(bytes) => parse_descriptors(&bytes).map_err(of_page)?,
        Err(_) => (NamespaceIdentity::default(), None),
    };
    if command_set != Some(CommandSet::Zoned as u8) {
        return Err(DriveError::new(
            format!("{shown} is not a zoned namespace"),
            "give a namespace of the Zoned Namespace command set: nvme list-ns --csi=2 lists them",
        ));
    }
    let nvm = page(Structure::Namespace, CommandSet::Nvm)?;
    let nvm = NvmNamespace::parse(&nvm).map_err(of_page)?;
    let zns = page(Structure::CommandSetNamespace, CommandSet::Zoned)?;
    let zns = ZnsNamespace::parse(&zns).map_err(of_page)?;
    let zns_controller = page(Structure::CommandSetController, CommandSet::Zoned)?;
    let zns_controller = ZnsController::parse(&zns_controller).map_err(of_page)?;
    let extension_bytes =
        u32::from(zns.format_extensions[nvm.format_index()].descriptor_extension_64b) * DESCRIPTOR_EXTENSION_UNIT_BYTES;
    let zones = report_all(file, namespace, nvm.size_blocks.get(), extension_bytes)
        .map_err(|why| failed("Report Zones", why))?;
    let pages = ZonedPages { namespace: &zns, controller: &zns_controller, zones: &zones };
    let geometry = geometry_from(&controller, &as_over_fabrics(nvm.clone()).map_err(unsupported)?, Some(pages));
    let geometry = geometry.map_err(of_page)?;
    Ok(Identified {
        namespace,
        geometry: with_limits(geometry, transfer_bytes_max(path)),
        zones: zones.iter().map(FoundZone::of).collect(),
        identity: (identity != NamespaceIdentity::default()).then_some(identity),
        deallocates: nvm.deallocated_blocks_read_zeros()
            && controller.optional_commands.get() & DATASET_MANAGEMENT != 0,
    })
}

/// Metadata at the end of each block (FLBAS).
const METADATA_FOLLOWS_DATA: u8 = 1 << 4;

/// The page of a namespace whose metadata, if there are any, have a buffer of their own, as that of one
/// over Fabrics, where they are at the end of each block.
fn as_over_fabrics(mut nvm: NvmNamespace) -> Result<NvmNamespace, String> {
    let bytes = nvm.format_in_use().metadata_bytes.get();
    if bytes > 0 && nvm.metadata_follows_data() {
        return Err(format!("{bytes} bytes of metadata at the end of each block, instead of a buffer of their own"));
    }
    nvm.format |= METADATA_FOLLOWS_DATA * u8::from(bytes > 0);
    Ok(nvm)
}

/// Dataset Management in the optional commands of a controller (ONCS).
const DATASET_MANAGEMENT: u16 = 1 << 2;

/// The geometry with the limits of transfers, and without features that this driver does not use.
fn with_limits(mut geometry: Geometry, transfer_bytes: u64) -> Geometry {
    let most = Blocks((transfer_bytes / u64::from(geometry.block_size_bytes)).max(1));
    geometry.max_transfer_blocks = geometry.max_transfer_blocks.min(most);
    geometry.max_append_blocks = geometry.max_append_blocks.min(geometry.max_transfer_blocks);
    geometry.zrwa = None;
    // Reads are split at the boundaries of zones.
    geometry.read_across_zones = true;
    geometry
}

fn receive_page(
    file: &File,
    namespace: NamespaceId,
    structure: Structure,
    command_set: CommandSet,
) -> Result<Vec<u8>, String> {
    let is_of_controller = matches!(structure, Structure::Controller | Structure::CommandSetController);
    let named = if is_of_controller { 0 } else { namespace.0 };
    let mut entry = SubmissionEntry::new(AdminOpcode::Identify.code(), named);
    let (cdw10, cdw11, cdw14) = IdentifyRequest::of(structure, command_set).encode();
    (entry.cdw10, entry.cdw11, entry.cdw14) = (cdw10.into(), cdw11.into(), cdw14.into());
    let mut data = vec![0; IDENTIFY_BYTES];
    succeeded(file.nvme_receive(NvmeTarget::Admin, &command_of(&entry), &mut data)).map_err(|error| error.why)?;
    Ok(data)
}

fn report_all(
    file: &File,
    namespace: NamespaceId,
    size_blocks: u64,
    extension_bytes: u32,
) -> Result<Vec<ZoneDescriptor>, String> {
    let geometry = Geometry { descriptor_extension_bytes: extension_bytes, ..Geometry::tiny() };
    let format = NamespaceFormat::of(&geometry, REPORT_BYTES as u32);
    let report = report_format(extension_bytes);
    let header_bytes = report.report_bytes(0);
    let zones_per_report = (REPORT_BYTES - header_bytes) / (report.report_bytes(1) - header_bytes);
    let mut zones: Vec<ZoneDescriptor> = Vec::new();
    loop {
        // The size of the zones follows from the starts of the first two.
        let next = match &zones[..] {
            [] => 0,
            [only] => size_blocks.max(only.start.0),
            [.., before, last] => last.start.0 + (last.start.0 - before.start.0),
        };
        if next >= size_blocks {
            return Ok(zones);
        }
        let encoded = encode(&report_of(Lba(next), zones_per_report as u32, &report), namespace, &format);
        let entry = encoded.map_err(|error| error.to_string())?.entry;
        let mut data = vec![0; report.report_bytes(zones_per_report)];
        succeeded(file.nvme_receive(NvmeTarget::Io, &command_of(&entry), &mut data)).map_err(|error| error.why)?;
        let found = report.parse(&data).map_err(|error| error.to_string())?.zones;
        if found.first().is_none_or(|zone| zone.start.0 != next)
            || found.windows(2).any(|two| two[1].start <= two[0].start)
        {
            return Err(format!("no zone at block {next} is reported"));
        }
        zones.extend(found);
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn a_character_device_is_that_of_the_block_device_with_its_number() {
        assert_eq!(block_name("ng0n1").as_deref(), Some("nvme0n1"));
        assert_eq!(block_name("nvme0n1"), None);
        assert_eq!(block_device_of(Path::new("/dev/null")), None);
    }

    #[test]
    fn metadata_are_supported_in_a_buffer_of_their_own() {
        let with = |metadata_bytes: u16, is_extended: bool| {
            let mut page = NvmNamespace::new_zeroed();
            page.formats[0].metadata_bytes = metadata_bytes.into();
            page.format = u8::from(is_extended) << 4;
            as_over_fabrics(page).map(|page| page.metadata_follows_data())
        };
        assert_eq!((with(0, false), with(8, false)), (Ok(false), Ok(true)));
        let refusal = with(8, true).expect_err("the data would be interleaved");
        assert!(refusal.contains("8 bytes of metadata at the end of each block"), "{refusal}");
    }

    #[test]
    fn transfers_are_within_the_limits_of_the_block_layer() {
        let geometry = with_limits(Geometry { descriptor_extension_bytes: 64, ..Geometry::tiny() }, 1024);
        assert_eq!((geometry.max_transfer_blocks, geometry.max_append_blocks), (Blocks(2), Blocks(2)));
        assert_eq!((geometry.descriptor_extension_bytes, geometry.zrwa), (64, None));
    }
}
