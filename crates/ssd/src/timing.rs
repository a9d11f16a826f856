//! The numbers of a profile, prepared for the hot path.

use zonda_zoned::Duration;

use crate::layout::Layout;
use crate::pending::{Cause, Kind, Place, ReadChain, Work};
use crate::profile::{CapScope, OpcodeSpec, PageTypeSpec, Profile};
use crate::service_time::{ServiceTime, ServiceTimes};
use crate::station::Bus;

/// Sizes, rates and distributions, all in bytes and nanoseconds.
#[derive(Debug)]
pub(crate) struct Timing {
    pub(crate) block_bytes: u64,
    pub(crate) read_unit_bytes: u64,
    pub(crate) program_unit_bytes: u64,
    pub(crate) zone_capacity_bytes: u64,
    pub(crate) layout: Layout,
    pub(crate) channels: u32,
    pub(crate) cache_read: bool,
    pub(crate) early_completion: bool,
    pub(crate) suspend_slice: Duration,
    suspend_latency: Duration,
    erase_suspend_latency: Duration,
    /// Zero: no limit.
    pub(crate) suspends_max: u32,
    pub(crate) resume_latency: Duration,
    pub(crate) transfers_padding: bool,
    pub(crate) cap_scope: CapScope,
    pub(crate) sense: ServiceTimes,
    /// Empty: all pages take the same times.
    page_types: Vec<PageType>,
    pub(crate) program: ServiceTime,
    pub(crate) erase: ServiceTime,
    pub(crate) channel: Bus,
    /// Zero: commands to dies do not wait for the channel.
    pub(crate) channel_read_command: Duration,
    pub(crate) channel_read_overhead: ServiceTimes,
    pub(crate) channel_write_overhead: Duration,
    pub(crate) link_out: Bus,
    pub(crate) link_in: Bus,
    pub(crate) link_read_overhead: Duration,
    pub(crate) link_write_overhead: Duration,
    pub(crate) read: Opcode,
    pub(crate) write: Opcode,
    pub(crate) append: Opcode,
    pub(crate) manage: Opcode,
    pub(crate) finish: Opcode,
    pub(crate) reset: Reset,
    pub(crate) zone_open_extra: Duration,
    /// Cores of each firmware server.
    pub(crate) servers: Vec<u32>,
}

/// What a page of one type takes longer.
#[derive(Clone, Copy, Debug, Default)]
struct PageType {
    read_extra: Duration,
    program_extra: Duration,
}

/// Costs of one kind of command.
#[derive(Debug)]
pub(crate) struct Opcode {
    pub(crate) server: usize,
    pub(crate) serial: ServiceTimes,
    pub(crate) parallel: ServiceTimes,
    /// The serial time is zero by definition, so that an idle server can be bypassed.
    pub(crate) is_parallel_only: bool,
}

/// Costs of a reset.
#[derive(Debug)]
pub(crate) struct Reset {
    pub(crate) server: usize,
    pub(crate) serial: ServiceTime,
    pub(crate) serial_whole_zone: Duration,
    pub(crate) serial_partly_written: Duration,
    pub(crate) parallel: ServiceTime,
    pub(crate) piece: Duration,
    /// Zero: a reset holds no program back.
    pub(crate) exclusive_whole_zone: Duration,
    pub(crate) mapping_bytes_per_block: u64,
}

impl Timing {
    pub(crate) fn new(profile: &Profile) -> Timing {
        let names: Vec<&String> = profile.firmware.servers.keys().collect();
        let server = |name: &str| {
            names.iter().position(|known| *known == name).expect("the profile was checked: its servers exist")
        };
        let opcode = |spec: &OpcodeSpec| Opcode {
            server: server(&spec.server),
            serial: ServiceTimes::new(&spec.serial),
            parallel: ServiceTimes::new(&spec.parallel),
            is_parallel_only: spec.serial.classes().is_empty(),
        };
        let (flash, link, firmware) = (&profile.flash, &profile.link, &profile.firmware);
        Timing {
            block_bytes: profile.geometry.block_size.0,
            read_unit_bytes: flash.read_unit.0,
            program_unit_bytes: flash.program_unit.0,
            zone_capacity_bytes: profile.geometry.zone_capacity.0,
            layout: Layout::new(profile),
            channels: flash.channels,
            cache_read: flash.cache_read,
            early_completion: profile.write_buffer.early_completion,
            suspend_slice: Duration(flash.suspend_slice.0),
            suspend_latency: Duration(flash.suspend_latency.0),
            erase_suspend_latency: Duration(flash.erase_suspend_latency.unwrap_or(flash.suspend_latency).0),
            suspends_max: flash.suspends_max,
            resume_latency: Duration(flash.resume_latency.0),
            transfers_padding: flash.transfers_padding,
            cap_scope: profile.write_buffer.cap_scope,
            sense: ServiceTimes::new(&flash.read),
            page_types: flash.page_types.iter().map(PageType::new).collect(),
            program: ServiceTime::new(&flash.program),
            erase: ServiceTime::new(&flash.erase),
            channel: Bus::new(profile.channel.bandwidth.0),
            channel_read_command: Duration(profile.channel.read_command.0),
            channel_read_overhead: ServiceTimes::new(&profile.channel.read_overhead),
            channel_write_overhead: Duration(profile.channel.write_overhead.0),
            link_out: Bus::new(link.read_bandwidth.0),
            link_in: Bus::new(link.write_bandwidth.0),
            link_read_overhead: Duration(link.read_overhead.0),
            link_write_overhead: Duration(link.write_overhead.0),
            read: opcode(&firmware.read),
            write: opcode(&firmware.write),
            append: opcode(&firmware.append),
            manage: opcode(&firmware.manage),
            finish: opcode(&firmware.finish),
            reset: Reset {
                server: server(&firmware.reset.server),
                serial: ServiceTime::new(&firmware.reset.serial),
                serial_whole_zone: Duration(firmware.reset.serial_whole_zone.0),
                serial_partly_written: Duration(firmware.reset.serial_partly_written.0),
                parallel: ServiceTime::new(&firmware.reset.parallel),
                piece: Duration(firmware.reset.piece.0),
                exclusive_whole_zone: Duration(
                    (firmware.reset.serial_whole_zone.0 as f64 * firmware.reset.exclusive_share) as u64,
                ),
                mapping_bytes_per_block: u64::from(firmware.reset.mapping_bytes_per_block),
            },
            zone_open_extra: Duration(firmware.zone_open_extra.0),
            servers: firmware.servers.values().copied().collect(),
        }
    }

    /// What the sensing of a page takes longer than that of the fastest pages.
    #[inline]
    pub(crate) fn read_extra(&self, chain: &ReadChain) -> Duration {
        self.page_type(chain.page_of_slot(&self.layout)).read_extra
    }

    /// What a program or erase takes longer than that of the fastest pages. What is spilled goes to
    /// cells of one bit.
    pub(crate) fn program_extra(&self, work: &Work) -> Duration {
        match work.place {
            // Where programs of types differ, a row is one page.
            Place::Zone { row, .. } if work.cause != Cause::Spill => self.page_type(row).program_extra,
            _ => Duration::ZERO,
        }
    }

    #[inline]
    fn page_type(&self, page_of_slot: u32) -> PageType {
        if self.page_types.is_empty() {
            return PageType::default();
        }
        self.page_types[self.layout.type_of_page(page_of_slot)]
    }

    /// From the end of a slice of this work until reads are served.
    pub(crate) fn suspend_latency(&self, cause: Cause) -> Duration {
        if cause == Cause::Erase { self.erase_suspend_latency } else { self.suspend_latency }
    }

    /// Costs of a kind of command; a reset's are its own.
    #[inline]
    pub(crate) fn opcode(&self, kind: Kind) -> &Opcode {
        match kind {
            Kind::Read => &self.read,
            Kind::Write | Kind::WriteZeroes => &self.write,
            Kind::Append => &self.append,
            Kind::Finish => &self.finish,
            Kind::Short | Kind::Reset => &self.manage,
        }
    }

    /// The firmware server that works on a kind of command.
    #[inline]
    pub(crate) fn server(&self, kind: Kind) -> usize {
        if kind == Kind::Reset { self.reset.server } else { self.opcode(kind).server }
    }
}

impl PageType {
    fn new(spec: &PageTypeSpec) -> PageType {
        PageType { read_extra: Duration(spec.read_extra.0), program_extra: Duration(spec.program_extra.0) }
    }
}
