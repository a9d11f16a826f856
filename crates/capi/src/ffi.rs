//! The functions of the header. One of the two files with unsafe code: here pointers from C become
//! references.
//!
//! Every function has the contract of the header: a pointer is NULL or valid as the header
//! specifies, a handle came from `zonda_open` and was not closed, strings are NUL-terminated.
#![allow(unsafe_code, clippy::missing_safety_doc)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use zonda_chap::Secret;
use zonda_devices::NamespaceOptions;
use zonda_nvme::Nqn;
use zonda_zoned::{Blocks, Lba, ReportFilter, ZoneDescriptor, ZoneState};

use crate::API_VERSION;
use crate::caller_memory::CallerMemory;
use crate::command::{Request, UserData};
use crate::errno::{remedy_of, text_of};
use crate::failure::{self, Failure, guarded};
use crate::handle::{Namespace, blocks_of};
use crate::layout::{
    ALL_ZONES, NO_WRITE_POINTER, Opcode, RawCommand, RawGeometry, RawOptions, RawResult, RawZone, Sharing,
};

/// `zonda_namespace`.
pub struct Handle(Mutex<Namespace>);

/// `zonda_api_version`.
#[unsafe(no_mangle)]
pub extern "C" fn zonda_api_version() -> u32 {
    API_VERSION
}

/// `zonda_error_message`.
#[unsafe(no_mangle)]
pub extern "C" fn zonda_error_message() -> *const c_char {
    failure::last_message()
}

/// `zonda_error_remedy`.
#[unsafe(no_mangle)]
pub extern "C" fn zonda_error_remedy() -> *const c_char {
    failure::last_remedy()
}

/// `zonda_status_text`.
#[unsafe(no_mangle)]
pub extern "C" fn zonda_status_text(status: u16) -> *const c_char {
    text_of(status).as_ptr()
}

/// `zonda_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonda_open(
    location: *const c_char,
    options: *const RawOptions,
    out: *mut *mut Handle,
) -> c_int {
    guarded(|| {
        if out.is_null() {
            return Err(Failure::null("out"));
        }
        // SAFETY: `out` points to a pointer, by the contract.
        unsafe { out.write(ptr::null_mut()) };
        // SAFETY: the string is valid, by the contract.
        let location = unsafe { text("location", location) }?.ok_or_else(|| Failure::null("location"))?;
        // SAFETY: NULL or options, by the contract.
        let (options, sharing) = unsafe { options.as_ref() }.map_or_else(
            || Ok((NamespaceOptions::default(), Sharing::Auto)),
            // SAFETY: its strings are valid, by the contract.
            |options| unsafe { options_of(options) },
        )?;
        let namespace = crate::open::open(location, &options, sharing)?;
        let handle = Box::into_raw(Box::new(Handle(Mutex::new(namespace))));
        // SAFETY: as above.
        unsafe { out.write(handle) };
        Ok(0)
    })
}

/// `zonda_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonda_close(handle: *mut Handle) -> c_int {
    if handle.is_null() {
        return 0;
    }
    guarded(|| {
        // SAFETY: a handle, by the contract.
        unsafe {
            enter(handle, false, |namespace| {
                namespace.check_process()?;
                namespace.check_thread()?;
                namespace.drain()?;
                Ok(0)
            })
        }?;
        // SAFETY: it came from `Box::into_raw`, and the contract ends with this call.
        let handle = unsafe { Box::from_raw(handle) };
        handle.0.into_inner().unwrap_or_else(PoisonError::into_inner).close()?;
        Ok(0)
    })
}

/// `zonda_get_geometry`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonda_get_geometry(handle: *mut Handle, out: *mut RawGeometry) -> c_int {
    guarded(|| {
        if out.is_null() {
            return Err(Failure::null("geometry"));
        }
        // SAFETY: a handle and a valid pointer, by the contract.
        unsafe {
            enter(handle, true, |namespace| {
                out.write(geometry_of(namespace));
                Ok(0)
            })
        }
    })
}

/// `zonda_report_zones`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonda_report_zones(
    handle: *mut Handle,
    lba: u64,
    state: u8,
    out: *mut RawZone,
    max: u32,
) -> c_int {
    guarded(|| {
        if out.is_null() && max > 0 {
            return Err(Failure::null("zones"));
        }
        let filter = match state {
            0 => ReportFilter::All,
            code => ZoneState::SEQUENTIAL
                .into_iter()
                .find(|state| state.code() == code)
                .map(ReportFilter::State)
                .ok_or_else(|| {
                    Failure::invalid(format!("invalid zone state {code:#x}"), "use ZONDA_STATE_..., or 0 for all")
                })?,
        };
        let max = max.min(c_int::MAX as u32);
        let mut next = out;
        let give = |zone: &ZoneDescriptor| {
            // SAFETY: the array has `max` zones, by the contract, and no more than that are
            // written.
            unsafe {
                next.write(zone_of(zone));
                next = next.add(1);
            }
        };
        // SAFETY: a handle, by the contract.
        unsafe {
            enter(handle, true, |namespace| match max {
                0 => Ok(0),
                _ => namespace.report(Lba(lba), filter, max, give).map(|count| count as c_int),
            })
        }
    })
}

/// `zonda_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonda_read(handle: *mut Handle, lba: u64, data: *mut c_void, bytes: usize) -> c_int {
    // SAFETY: the caller's contract is this function's.
    unsafe { transfer(handle, Opcode::Read, lba, data, bytes) }
}

/// `zonda_write`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonda_write(handle: *mut Handle, lba: u64, data: *const c_void, bytes: usize) -> c_int {
    // SAFETY: the caller's contract is this function's; a write does not change the data.
    unsafe { transfer(handle, Opcode::Write, lba, data.cast_mut(), bytes) }
}

/// `zonda_append`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonda_append(
    handle: *mut Handle,
    zone: u64,
    data: *const c_void,
    bytes: usize,
    lba: *mut u64,
) -> c_int {
    guarded(|| {
        // SAFETY: a handle, data and a valid pointer or NULL, by the contract.
        unsafe {
            enter(handle, true, |namespace| {
                let blocks = blocks_of(bytes, namespace.geometry())?;
                let data = memory(data.cast_mut(), bytes);
                let request = Request { lba: Lba(zone), blocks, data, ..Request::new(Opcode::Append) };
                let result = namespace.execute_checked(request)?;
                if !lba.is_null() {
                    lba.write(result.lba);
                }
                Ok(0)
            })
        }
    })
}

/// `zonda_flush`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonda_flush(handle: *mut Handle) -> c_int {
    // SAFETY: the caller's contract is this function's.
    unsafe { simple(handle, Request::new(Opcode::Flush)) }
}

/// `zonda_deallocate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonda_deallocate(handle: *mut Handle, lba: u64, blocks: u64) -> c_int {
    // SAFETY: the caller's contract is this function's.
    unsafe { simple(handle, Request { lba: Lba(lba), blocks: Blocks(blocks), ..Request::new(Opcode::Deallocate) }) }
}

/// `zonda_manage_zone`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonda_manage_zone(handle: *mut Handle, opcode: u32, zone: u64) -> c_int {
    // SAFETY: the caller's contract is this function's.
    guarded(|| unsafe { manage(handle, opcode, zone, 0) })
}

/// `zonda_manage_all_zones`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonda_manage_all_zones(handle: *mut Handle, opcode: u32) -> c_int {
    // SAFETY: the caller's contract is this function's.
    guarded(|| unsafe { manage(handle, opcode, 0, ALL_ZONES) })
}

/// `zonda_submit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonda_submit(handle: *mut Handle, command: *const RawCommand) -> c_int {
    // SAFETY: a handle and a command with its memory, by the contract; the memory stays until the
    // result.
    guarded(|| unsafe {
        enter(handle, true, |namespace| {
            namespace.submit(request_of(command)?)?;
            Ok(0)
        })
    })
}

/// `zonda_kick`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonda_kick(handle: *mut Handle) -> c_int {
    // SAFETY: a handle, by the contract.
    guarded(|| unsafe { enter(handle, true, |namespace| namespace.kick().map(|()| 0)) })
}

/// `zonda_wait`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonda_wait(
    handle: *mut Handle,
    min: u32,
    max: u32,
    timeout_ns: i64,
    out: *mut RawResult,
) -> c_int {
    guarded(|| {
        if out.is_null() && max > 0 {
            return Err(Failure::null("results"));
        }
        let max = max.min(c_int::MAX as u32);
        // A timeout that cannot be represented is no timeout.
        let span = u64::try_from(timeout_ns).ok().map(Duration::from_nanos);
        let deadline = span.and_then(|span| Instant::now().checked_add(span));
        let mut next = out;
        let give = |result| {
            // SAFETY: the array has `max` results, by the contract, and no more than that are
            // written.
            unsafe {
                next.write(result);
                next = next.add(1);
            }
        };
        // SAFETY: a handle, by the contract.
        unsafe {
            enter(handle, true, |namespace| {
                namespace.wait(min as usize, max as usize, deadline, give).map(|count| count as c_int)
            })
        }
    })
}

/// `zonda_outstanding`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonda_outstanding(handle: *mut Handle) -> u32 {
    // SAFETY: a handle, by the contract.
    let count = guarded(|| unsafe { enter(handle, false, |namespace| Ok(namespace.outstanding() as c_int)) });
    u32::try_from(count).unwrap_or(0)
}

/// `zonda_execute`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonda_execute(handle: *mut Handle, command: *const RawCommand, out: *mut RawResult) -> c_int {
    guarded(|| {
        // SAFETY: a handle, a command with its memory, and a valid pointer or NULL, by the
        // contract; this function waits for completion.
        let result = unsafe {
            enter(handle, true, |namespace| {
                let result = namespace.execute(request_of(command)?)?;
                if !out.is_null() {
                    out.write(result);
                }
                Ok(result)
            })
        }?;
        match result.error {
            0 => Ok(0),
            error => {
                let words = text_of(result.status).to_string_lossy();
                Err(Failure::new(Errno::from_raw_os_error(error), words, remedy_of(result.status)))
            }
        }
    })
}

/// Locks a namespace and calls `body`. After a panic it releases the caller's memory, and refuses
/// all calls but closing.
///
/// # Safety
/// `handle` is NULL or a handle that is open.
unsafe fn enter<T>(
    handle: *mut Handle,
    is_use: bool,
    body: impl FnOnce(&mut Namespace) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // SAFETY: the caller's contract.
    let handle = unsafe { handle.as_ref() }.ok_or_else(|| Failure::null("ns"))?;
    let mut namespace = match handle.0.try_lock() {
        Ok(namespace) => namespace,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => {
            return Err(Failure::new(
                Errno::BUSY,
                "the handle is in use by another thread",
                "open a handle for each thread",
            ));
        }
    };
    if is_use {
        namespace.check()?;
    }
    match catch_unwind(AssertUnwindSafe(|| body(&mut namespace))) {
        Ok(result) => result,
        Err(panic) => {
            let failure = failure::of_panic(&*panic);
            namespace.fail(failure.clone());
            Err(failure)
        }
    }
}

/// # Safety
/// That of `zonda_flush`.
unsafe fn simple(handle: *mut Handle, request: Request) -> c_int {
    // SAFETY: the caller's contract.
    guarded(|| unsafe { enter(handle, true, |namespace| namespace.execute_checked(request).map(|_| 0)) })
}

/// # Safety
/// That of `zonda_manage_zone`.
unsafe fn manage(handle: *mut Handle, opcode: u32, zone: u64, flags: u32) -> Result<c_int, Failure> {
    let opcode = Opcode::from_number(opcode).filter(|opcode| *opcode as u32 >= Opcode::ZoneOpen as u32);
    let opcode = opcode
        .ok_or_else(|| Failure::invalid("this opcode is not a zone management action", "use one of ZONDA_ZONE_..."))?;
    let request = Request { flags, lba: Lba(zone), ..Request::new(opcode) };
    // SAFETY: the caller's contract.
    unsafe { enter(handle, true, |namespace| namespace.execute_checked(request).map(|_| 0)) }
}

/// A read or a write of any length, split into commands.
///
/// # Safety
/// That of `zonda_read` and `zonda_write`.
unsafe fn transfer(handle: *mut Handle, opcode: Opcode, lba: u64, data: *mut c_void, bytes: usize) -> c_int {
    guarded(|| {
        if data.is_null() {
            return Err(Failure::null("data"));
        }
        // SAFETY: a handle, by the contract.
        unsafe {
            enter(handle, true, |namespace| {
                let geometry = namespace.geometry();
                let block_bytes = u64::from(geometry.block_size_bytes);
                let most = geometry.max_transfer_blocks;
                let all = blocks_of(bytes, geometry)?;
                let end = lba.checked_add(all.0);
                end.ok_or_else(|| Failure::invalid("the range ends beyond LBA 2^64", "use LBAs within the namespace"))?;
                let mut done = Blocks::ZERO;
                while done < all {
                    let blocks = (all - done).min(most);
                    // The caller's memory has all blocks, by the contract, so it has those.
                    let start = data.cast::<u8>().add((done.0 * block_bytes) as usize);
                    let data = memory(start.cast(), (blocks.0 * block_bytes) as usize);
                    let lba = Lba(lba) + done;
                    namespace.execute_checked(Request { lba, blocks, data, ..Request::new(opcode) })?;
                    done += blocks;
                }
                Ok(0)
            })
        }
    })
}

/// # Safety
/// `command` is NULL or a command whose memory stays until its result.
unsafe fn request_of(command: *const RawCommand) -> Result<Request, Failure> {
    // SAFETY: the caller's contract.
    let command = unsafe { command.as_ref() }.ok_or_else(|| Failure::null("command"))?;
    let opcode = Opcode::from_number(command.opcode)
        .ok_or_else(|| Failure::invalid(format!("unknown opcode {}", command.opcode), "use an opcode of zonda.h"))?;
    let has_data = matches!(opcode, Opcode::Read | Opcode::Write | Opcode::Append);
    // SAFETY: the caller's contract.
    let memory = |start, bytes| if has_data { unsafe { memory(start, bytes) } } else { None };
    Ok(Request {
        opcode,
        flags: command.flags,
        lba: Lba(command.lba),
        blocks: Blocks(command.blocks),
        data: memory(command.data, command.data_bytes),
        metadata: memory(command.metadata, command.metadata_bytes),
        user_data: UserData(command.user_data),
    })
}

/// # Safety
/// That of [`CallerMemory::new`], unless `start` is NULL.
unsafe fn memory(start: *mut c_void, bytes: usize) -> Option<CallerMemory> {
    // SAFETY: the caller's contract.
    NonNull::new(start.cast::<u8>()).map(|start| unsafe { CallerMemory::new(start, bytes) })
}

/// # Safety
/// `text` is NULL or a NUL-terminated string that is valid for `'a`.
unsafe fn text<'a>(what: &str, text: *const c_char) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.map(Some).map_err(|_| Failure::invalid(format!("{what} is not UTF-8"), "encode it in UTF-8"))
}

/// # Safety
/// The strings are NULL or NUL-terminated.
unsafe fn options_of(raw: &RawOptions) -> Result<(NamespaceOptions, Sharing), Failure> {
    if raw.api_version != API_VERSION {
        return Err(Failure::invalid(
            format!(
                "the program was compiled for version {} of zonda.h, the library implements version {API_VERSION}",
                raw.api_version
            ),
            "initialize with ZONDA_OPTIONS_INIT, and compile against the header of this library",
        ));
    }
    if raw.reserved != [0; 4] {
        return Err(Failure::invalid("reserved fields of the options are not 0", "initialize with ZONDA_OPTIONS_INIT"));
    }
    let sharing = match raw.sharing {
        0 => Sharing::Auto,
        1 => Sharing::Yes,
        2 => Sharing::No,
        other => return Err(Failure::invalid(format!("invalid value of sharing: {other}"), "use ZONDA_SHARE_...")),
    };
    let secret = |what: &str, place| {
        // SAFETY: the caller's contract.
        let text = unsafe { text(what, place) }?;
        let parsed = text.map(Secret::parse).transpose();
        parsed.map_err(|error| {
            Failure::invalid(
                format!("{what} is not a valid DH-HMAC-CHAP secret: {error}"),
                "generate one with zonda secret",
            )
        })
    };
    // SAFETY: the caller's contract.
    let host_nqn = unsafe { text("host_nqn", raw.host_nqn) }?.map(Nqn::new).transpose();
    let mut options = NamespaceOptions {
        host_nqn: host_nqn
            .map_err(|error| Failure::invalid(format!("host_nqn is not a valid NQN: {error}"), "nqn.2014-08.org..."))?,
        secret: secret("secret", raw.secret)?,
        controller_secret: secret("controller_secret", raw.controller_secret)?,
        digests: raw.digests != 0,
        spin: zonda_zoned::Duration::from_micros(u64::from(raw.spin_us)),
        ..NamespaceOptions::default()
    };
    if raw.io_queues != 0 {
        options.io_queues = raw.io_queues;
    }
    if raw.queue_depth != 0 {
        options.queue_depth = raw.queue_depth;
    }
    if raw.connect_timeout_ms != 0 {
        options.connect_timeout = zonda_zoned::Duration::from_millis(u64::from(raw.connect_timeout_ms));
    }
    Ok((options, sharing))
}

fn geometry_of(namespace: &Namespace) -> RawGeometry {
    let geometry = namespace.geometry();
    let zrwa = geometry.zrwa;
    RawGeometry {
        block_size_bytes: geometry.block_size_bytes,
        metadata_bytes: u32::from(geometry.metadata_bytes),
        zone_size_blocks: geometry.zone_size_blocks.0,
        zone_capacity_blocks: geometry.zone_capacity_blocks.0,
        zone_count: geometry.zone_count,
        conventional_zone_count: geometry.conventional_zone_count,
        max_active_zones: geometry.max_active_zones.unwrap_or(0),
        max_open_zones: geometry.max_open_zones.unwrap_or(0),
        max_transfer_blocks: geometry.max_transfer_blocks.0,
        max_append_blocks: geometry.max_append_blocks.0,
        zrwa_size_blocks: zrwa.map_or(0, |zrwa| zrwa.size_blocks.0),
        zrwa_flush_granularity_blocks: zrwa.map_or(0, |zrwa| zrwa.flush_granularity_blocks.0),
        zrwa_count: zrwa.map_or(0, |zrwa| zrwa.resources),
        read_across_zones: u32::from(geometry.read_across_zones),
        reserved: [0; 4],
    }
}

fn zone_of(zone: &ZoneDescriptor) -> RawZone {
    RawZone {
        start: zone.start.0,
        capacity_blocks: zone.capacity_blocks.0,
        write_pointer: zone.write_pointer.map_or(NO_WRITE_POINTER, |lba| lba.0),
        zone_type: zone.zone_type as u8,
        state: zone.state.code(),
        attributes: zone.attributes.code(),
        reserved: [0; 5],
    }
}
