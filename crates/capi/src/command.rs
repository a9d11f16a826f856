//! Conversion of the caller's commands to operations of a device, and of completions to results.

use bytes::Bytes;
use zonda_zoned::limits::COMMAND_BLOCKS_MAX;
use zonda_zoned::{
    BlockBuffer, Blocks, Completion, Geometry, Lba, LbaRange, Operation, Outcome, Payload, Status, ZoneAction,
    ZoneTarget,
};

use crate::caller_memory::{CallerMemory, Released};
use crate::errno::errno_of;
use crate::failure::Failure;
use crate::layout::{ALL_ZONES, ALLOCATE_ZRWA, Opcode, RawResult};

/// A request of the caller, with its memory.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) opcode: Opcode,
    pub(crate) flags: u32,
    pub(crate) lba: Lba,
    pub(crate) blocks: Blocks,
    pub(crate) data: Option<CallerMemory>,
    pub(crate) metadata: Option<CallerMemory>,
    pub(crate) user_data: UserData,
}

/// The caller's `user_data`, opaque to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserData(pub(crate) *mut std::ffi::c_void);

/// State of a command until it has completed.
#[derive(Debug)]
pub(crate) struct Pending {
    user_data: UserData,
    data_bytes: u64,
    /// The destination of a read's data and metadata.
    data: Option<CallerMemory>,
    metadata: Option<CallerMemory>,
    /// Memory lent to the device.
    borrowed: [Option<Released>; 2],
}

impl Request {
    /// A request without data.
    pub(crate) fn new(opcode: Opcode) -> Request {
        Request {
            opcode,
            flags: 0,
            lba: Lba(0),
            blocks: Blocks::ZERO,
            data: None,
            metadata: None,
            user_data: UserData(std::ptr::null_mut()),
        }
    }

    /// The operation, and the state to keep until its completion.
    ///
    /// # Errors
    /// When the request is malformed. LBA ranges and zone states are checked by the device.
    pub(crate) fn into_operation(self, geometry: &Geometry) -> Result<(Operation, Pending), Failure> {
        let Request { opcode, flags, lba, blocks, data, metadata, user_data } = self;
        let mut pending = Pending { user_data, data_bytes: 0, data: None, metadata: None, borrowed: [None, None] };
        let allowed = match opcode {
            Opcode::ZoneOpen => ALL_ZONES | ALLOCATE_ZRWA,
            Opcode::ZoneClose | Opcode::ZoneFinish | Opcode::ZoneReset | Opcode::ZoneOffline => ALL_ZONES,
            _ => 0,
        };
        if flags & !allowed != 0 {
            return Err(Failure::invalid(
                format!("flags {flags:#x} are not valid for {}", opcode.name()),
                "use only the flags that zonda.h lists for this opcode",
            ));
        }
        let target = if flags & ALL_ZONES != 0 { ZoneTarget::All } else { ZoneTarget::Zone(lba) };
        let manage = |action| Operation::ManageZones { action, target };
        let operation = match opcode {
            Opcode::Read | Opcode::Write | Opcode::Append => {
                let most =
                    if opcode == Opcode::Append { geometry.max_append_blocks } else { geometry.max_transfer_blocks };
                if blocks == Blocks::ZERO || blocks > most {
                    return Err(Failure::invalid(
                        format!("invalid length of {}: {}", opcode.name(), count_of(blocks)),
                        format!("use 1 to {most} blocks"),
                    ));
                }
                let data =
                    fitting("data", data, blocks, geometry.block_size_bytes)?.ok_or_else(|| Failure::null("data"))?;
                let metadata = fitting("metadata", metadata, blocks, u32::from(geometry.metadata_bytes))?;
                pending.data_bytes = data.length() as u64;
                if opcode == Opcode::Read {
                    pending.data = Some(data);
                    pending.metadata = metadata;
                    Operation::Read { start: lba, blocks }
                } else {
                    let payload = pending.lend(data, metadata, blocks, geometry);
                    match opcode {
                        Opcode::Write => Operation::Write { start: lba, blocks, payload },
                        _ => Operation::Append { zone_start: lba, blocks, payload },
                    }
                }
            }
            Opcode::WriteZeroes => {
                if blocks == Blocks::ZERO || blocks.0 > COMMAND_BLOCKS_MAX {
                    return Err(Failure::invalid(
                        format!("invalid length of {}: {}", opcode.name(), count_of(blocks)),
                        format!("use 1 to {COMMAND_BLOCKS_MAX} blocks"),
                    ));
                }
                Operation::WriteZeroes { start: lba, blocks }
            }
            Opcode::Deallocate => {
                let ranges = Box::new([LbaRange { start: lba, blocks }]);
                // NVM Command Set 1.0, 3.2.3: the length of a range has 32 bits.
                if blocks == Blocks::ZERO || blocks.0 > u64::from(u32::MAX) {
                    return Err(Failure::invalid(
                        format!("invalid length of {}: {}", opcode.name(), count_of(blocks)),
                        "use 1 to 4294967295 blocks",
                    ));
                }
                Operation::Deallocate { ranges }
            }
            Opcode::Flush => Operation::Flush,
            Opcode::ZoneOpen => manage(ZoneAction::Open { zrwa: flags & ALLOCATE_ZRWA != 0 }),
            Opcode::ZoneClose => manage(ZoneAction::Close),
            Opcode::ZoneFinish => manage(ZoneAction::Finish),
            Opcode::ZoneReset => manage(ZoneAction::Reset),
            Opcode::ZoneOffline => manage(ZoneAction::Offline),
            Opcode::ZoneFlushZrwa => manage(ZoneAction::FlushZrwa),
        };
        Ok((operation, pending))
    }
}

impl Pending {
    /// The payload of a write, which borrows the caller's memory.
    fn lend(
        &mut self,
        data: CallerMemory,
        metadata: Option<CallerMemory>,
        blocks: Blocks,
        geometry: &Geometry,
    ) -> Payload {
        let (data, released) = data.lend();
        self.borrowed[0] = Some(released);
        let metadata = match metadata {
            Some(metadata) => {
                let (metadata, released) = metadata.lend();
                self.borrowed[1] = Some(released);
                metadata
            }
            None => Bytes::from(vec![0; blocks.0 as usize * usize::from(geometry.metadata_bytes)]),
        };
        Payload::Bytes(Box::new(BlockBuffer { data, metadata }))
    }

    /// Whether the device has released the caller's memory.
    pub(crate) fn is_released(&self) -> bool {
        self.borrowed.iter().flatten().all(Released::is_true)
    }

    /// Converts a completion to the caller's result.
    pub(crate) fn end(&mut self, completion: Completion) -> RawResult {
        let mut status = completion.status;
        let mut lba = 0;
        match completion.outcome {
            Outcome::Appended(start) => lba = start.0,
            Outcome::Data(payload) if status.is_success() && !self.deliver(&payload) => {
                status = Status::DataTransferError;
            }
            _ => {}
        }
        let error = errno_of(status).map_or(0, |errno| errno.raw_os_error());
        let bytes = if error == 0 { self.data_bytes } else { 0 };
        RawResult { user_data: self.user_data.0, bytes, lba, error, status: status as u16, reserved: 0 }
    }

    /// Fills the caller's memory; returns whether the device returned the requested amount.
    fn deliver(&mut self, payload: &Payload) -> bool {
        let (data, metadata) = match payload {
            Payload::None => (&[][..], &[][..]),
            Payload::Fingerprints(_) => return false,
            Payload::Bytes(buffer) => {
                if buffer.data.len() as u64 != self.data_bytes {
                    return false;
                }
                (&buffer.data[..], &buffer.metadata[..])
            }
        };
        if let Some(memory) = &mut self.data {
            memory.fill(data);
        }
        match &mut self.metadata {
            Some(memory) if metadata.len() > memory.length() => return false,
            Some(memory) => memory.fill(metadata),
            None => {}
        }
        true
    }
}

/// "1 block", "2 blocks".
fn count_of(blocks: Blocks) -> String {
    format!("{blocks} block{}", if blocks == Blocks(1) { "" } else { "s" })
}

/// Checks the size of memory for `blocks` blocks; `None` when the caller passed none.
fn fitting(
    what: &str,
    memory: Option<CallerMemory>,
    blocks: Blocks,
    each_bytes: u32,
) -> Result<Option<CallerMemory>, Failure> {
    let wanted = blocks.bytes(each_bytes);
    match &memory {
        Some(memory) if memory.length() as u64 != wanted => Err(Failure::invalid(
            format!("{what} has {} bytes for {}", memory.length(), count_of(blocks)),
            format!("pass exactly {wanted} bytes"),
        )),
        _ => Ok(memory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(request: Request) -> String {
        request.into_operation(&Geometry::tiny()).map(|(operation, _)| operation).unwrap_err().message
    }

    #[test]
    fn a_malformed_request_is_refused_before_it_reaches_a_drive() {
        assert_eq!(refusal(Request::new(Opcode::Read)), "invalid length of Read: 0 blocks");
        assert_eq!(
            refusal(Request { blocks: Blocks(5), ..Request::new(Opcode::Append) }),
            "invalid length of Zone Append: 5 blocks"
        );
        let no_data = Request { blocks: Blocks(1), ..Request::new(Opcode::Write) };
        assert_eq!(refusal(no_data), "data is NULL");
        let flags = Request { flags: ALLOCATE_ZRWA, ..Request::new(Opcode::ZoneReset) };
        assert_eq!(refusal(flags), "flags 0x2 are not valid for Reset Zone");
        assert_eq!(refusal(Request::new(Opcode::Deallocate)), "invalid length of Deallocate: 0 blocks");
    }

    #[test]
    fn zone_management_addresses_one_zone_or_all() {
        let operation = |flags| {
            let request = Request { flags, lba: Lba(16), ..Request::new(Opcode::ZoneReset) };
            request.into_operation(&Geometry::tiny()).unwrap().0
        };
        let reset = |target| Operation::ManageZones { action: ZoneAction::Reset, target };
        assert_eq!(operation(0), reset(ZoneTarget::Zone(Lba(16))));
        assert_eq!(operation(ALL_ZONES), reset(ZoneTarget::All));
    }

    #[test]
    fn every_opcode_has_its_number() {
        for opcode in Opcode::ALL {
            assert_eq!(Opcode::from_number(opcode as u32), Some(opcode));
        }
        assert_eq!(Opcode::from_number(0), None);
    }
}
