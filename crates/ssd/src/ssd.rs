//! The drive: one owner of all its parts, driven by events.

use zonda_zoned::zones::{ZoneEffect, ZoneTable, ZoneView};
use zonda_zoned::{
    Command, Completion, CompletionQueue, Geometry, Instant, Key, Namespaces, PayloadKind, Prng, QueueFull, Slab,
    Status, ZoneIndex, ZoneState, ZonedDevice,
};

use crate::ahead::ReadAhead;
use crate::allocation::ZoneAllocator;
use crate::buffer::WriteBuffer;
use crate::bug::{Seeded, wrong_geometry};
use crate::conventional::Conventional;
use crate::counters::{Counters, Utilisation, Wear};
use crate::die::Die;
use crate::events::{Event, EventQueue};
use crate::limits::COMMANDS_MAX;
use crate::media::Media;
use crate::pending::{CommandKey, Padding, PendingCommand, ReadChain, Work};
use crate::profile::Profile;
use crate::reset::Resets;
use crate::share::ProgramShares;
use crate::station::Station;
use crate::store::PayloadStore;
use crate::timing::Timing;
use crate::zone_map::ZoneMap;
use crate::zone_run::ZoneRun;

/// A simulated SSD. See the [crate's documentation](crate) for how to use one.
pub struct Ssd {
    pub(crate) profile: Profile,
    pub(crate) timing: Timing,
    /// The namespace as the host sees it.
    pub(crate) geometry: Geometry,
    namespaces: Namespaces,
    pub(crate) now: Instant,
    pub(crate) events: EventQueue,
    pub(crate) done: CompletionQueue,

    pub(crate) zones: ZoneTable,
    pub(crate) zone_map: ZoneMap,
    pub(crate) allocator: Box<dyn ZoneAllocator>,
    pub(crate) conventional: Option<Conventional>,
    pub(crate) store: PayloadStore,

    pub(crate) commands: Slab<PendingCommand>,
    pub(crate) chains: Slab<ReadChain>,
    pub(crate) works: Slab<Work>,
    pub(crate) paddings: Slab<Padding>,

    pub(crate) firmware: Vec<Station<CommandKey>>,
    pub(crate) resets: Resets,
    pub(crate) ahead: ReadAhead,
    pub(crate) buffer: WriteBuffer,
    pub(crate) dies: Vec<Die>,
    pub(crate) shares: ProgramShares,
    pub(crate) channels: Vec<Station<ChannelJob>>,
    pub(crate) link_out: Station<LinkJob>,
    pub(crate) link_in: Station<LinkJob>,

    pub(crate) prngs: Prngs,
    pub(crate) counters: Counters,
    pub(crate) bug: Seeded,
    pub(crate) effects: Vec<ZoneEffect>,
    /// For each die, the chain that the read being started has there; all `None` between reads.
    pub(crate) chain_on_die: Vec<Option<Key<ReadChain>>>,
    /// Outstanding commands with saved contents of blocks they overwrote.
    pub(crate) overwrites_in_flight: u32,
}

/// A transfer on a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChannelJob {
    /// The command to sense a page of a read chain is sent.
    Ask { chain: Key<ReadChain> },
    /// A page of a read chain is transferred, with that many bytes wanted.
    Page { chain: Key<ReadChain>, bytes: u32 },
    /// A page of this work is transferred to the die.
    Load { work: Key<Work> },
}

/// A transfer on the link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkJob {
    pub(crate) command: CommandKey,
    pub(crate) bytes: u64,
}

/// Randomness, one stream for each kind of service.
pub(crate) struct Prngs {
    pub(crate) firmware: Prng,
    pub(crate) dies: Vec<Prng>,
    pub(crate) channels: Prng,
}

impl Ssd {
    /// A new drive, all its zones empty.
    #[must_use]
    pub fn new(profile: &Profile, keeps: PayloadKind, prng: &Prng) -> Ssd {
        Ssd::power_on(profile, Media::new(profile, keeps), prng)
    }

    /// A drive with the media of an earlier one. Open zones are closed, as after any power loss.
    ///
    /// # Panics
    /// When the media are those of another profile.
    #[must_use]
    pub fn power_on(profile: &Profile, media: Media, prng: &Prng) -> Ssd {
        let geometry = profile.geometry();
        let expected = wrong_geometry(media.bug, &geometry).unwrap_or(geometry);
        assert!(media.zones.geometry() == &expected, "media and profile belong together");
        let timing = Timing::new(profile);
        let dies = profile.dies() as usize;
        let groups = profile.geometry.zones.max(profile.dies());
        let prng = prng.fork("ssd");
        let mut ssd = Ssd {
            geometry: profile.geometry(),
            namespaces: Namespaces::single(profile.geometry()),
            now: Instant::ZERO,
            events: EventQueue::default(),
            done: CompletionQueue::new(),
            zones: media.zones,
            zone_map: media.zone_map,
            allocator: media.allocator,
            conventional: media.conventional,
            store: media.store,
            commands: Slab::new(),
            chains: Slab::new(),
            works: Slab::new(),
            paddings: Slab::new(),
            firmware: timing.servers.iter().map(|cores| Station::new(*cores)).collect(),
            resets: Resets::default(),
            ahead: ReadAhead::new(profile.flash.read_ahead.0, timing.read_unit_bytes),
            buffer: WriteBuffer::new(&profile.write_buffer, timing.read_unit_bytes, timing.block_bytes, groups),
            dies: (0..dies).map(|_| Die::new()).collect(),
            shares: ProgramShares::new(profile.flash.program_order, profile.geometry.zones),
            channels: (0..profile.flash.channels).map(|_| Station::new(1)).collect(),
            link_out: Station::new(1),
            link_in: Station::new(1),
            prngs: Prngs {
                firmware: prng.fork("firmware"),
                dies: (0..dies).map(|die| prng.fork(&format!("die/{die}"))).collect(),
                channels: prng.fork("channels"),
            },
            counters: media.counters,
            bug: media.bug,
            effects: Vec::new(),
            chain_on_die: vec![None; dies],
            overwrites_in_flight: 0,
            profile: profile.clone(),
            timing,
        };
        ssd.zones.power_cycle();
        ssd.zone_map.power_cycle();
        ssd
    }

    /// The counters of the drive.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Wear of the erase units.
    #[must_use]
    pub fn wear(&self) -> Wear {
        let zones = self.allocator.wear();
        match &self.conventional {
            None => zones,
            Some(conventional) => zones.with(&conventional.wear()),
        }
    }

    /// Utilization of the hardware since power-on.
    #[must_use]
    pub fn utilisation(&self) -> Utilisation {
        Utilisation {
            die_busy_ns: self.dies.iter().map(|die| die.busy_until(self.now).as_nanos()).collect(),
            channel_busy_ns: self.channels.iter().map(|channel| channel.busy.as_nanos()).collect(),
            link_out_busy_ns: self.link_out.busy.as_nanos(),
            link_in_busy_ns: self.link_in.busy.as_nanos(),
            firmware_busy_ns: self.firmware.iter().map(|server| server.busy.as_nanos()).collect(),
        }
    }

    /// The profile the drive was made from.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The present state of a zone.
    #[must_use]
    pub fn zone(&self, zone: ZoneIndex) -> ZoneView {
        self.zones.zone(zone)
    }

    /// The dies of a zone, in the order of its stripe, at its start; none if the zone is empty. A
    /// host does not see them: they are what tests compare measurements with.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn dies_of_zone(&self, zone: ZoneIndex) -> Vec<crate::allocation::DieIndex> {
        let Some(run) = self.zone_map.get(zone) else { return Vec::new() };
        let unit = |slot| crate::allocation::UnitOfZone { slot, row: 0 };
        (0..run.stripe.slots()).map(|slot| run.stripe.die(unit(slot))).collect()
    }

    /// Bytes in the write buffer.
    #[must_use]
    pub fn buffered_bytes(&self) -> u64 {
        self.buffer.used_bytes()
    }

    /// Outstanding commands.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.commands.len()
    }

    /// The medium of a zone fails: it becomes read only or offline.
    ///
    /// # Panics
    /// On a conventional zone, and on any other state.
    pub fn degrade(&mut self, zone: ZoneIndex, to: ZoneState) {
        self.zones.degrade(zone, to);
        self.zone_map.count_change(zone);
        match to {
            ZoneState::Offline => self.retire_zone(zone),
            _ => self.seal_zone(zone),
        }
    }

    /// Fills a zone from its start in zero time and without counting, to prepare an experiment. The
    /// contents read as zeros.
    ///
    /// # Errors
    /// [`Status::TooManyActiveZones`] if the zone would be partly written and no active resource is
    /// free.
    ///
    /// # Panics
    /// When the zone is not empty, or is smaller.
    pub fn prefill(&mut self, zone: ZoneIndex, blocks: zonda_zoned::Blocks) -> Result<(), Status> {
        if let Some(conventional) = &mut self.conventional
            && zone.0 < self.geometry.conventional_zone_count
        {
            let first = self.geometry.zone_start(zone).0;
            conventional.prefill(first..first + blocks.0);
            return self.zones.set_written(zone, blocks);
        }
        if blocks.0 == 0 {
            return Ok(());
        }
        self.zones.set_written(zone, blocks)?;
        let bytes = blocks.0 * self.timing.block_bytes;
        let stripe = self.allocator.allocate(zone);
        self.allocator.prefill(zone, bytes);
        self.zone_map.insert(zone, ZoneRun::programmed(stripe, bytes, self.timing.block_bytes));
        Ok(())
    }

    /// Asserts the invariants between two events.
    ///
    /// # Panics
    /// When one is violated: the drive has a bug.
    pub fn check_invariants(&self) {
        if !self.bug.is_any() {
            self.zones.check_invariants();
        }
        self.buffer.check_invariants();
        self.resets.check_invariants();
        self.ahead.check_invariants();
        self.allocator.check_invariants();
        self.zone_map.check_invariants();
        if let Some(conventional) = &self.conventional {
            conventional.check_invariants();
        }
        if self.commands.is_empty() {
            let has_own_reads = self.conventional.is_some() || self.ahead.is_on();
            assert!(self.chains.is_empty() || has_own_reads, "reads belong to commands");
            assert!(self.paddings.is_empty(), "paddings belong to commands");
        }
    }

    /// Handles everything that is due at `now`.
    pub(crate) fn advance(&mut self, now: Instant) {
        assert!(now >= self.now, "time does not go back");
        while let Some((at, event)) = self.events.pop_due(now) {
            self.now = at;
            match event {
                Event::FirmwareEnd(command) => self.on_firmware_end(command),
                Event::CommandTimer(command) => self.on_command_timer(command),
                Event::DieEnd(die) => self.on_die_end(die as usize),
                Event::ChannelEnd(channel) => self.on_channel_end(channel as usize),
                Event::LinkInEnd => self.on_link_in_end(),
                Event::LinkOutEnd => self.on_link_out_end(),
                Event::ResetEnd => self.on_reset_end(),
            }
        }
        self.now = now;
    }

    /// The command is done.
    pub(crate) fn complete(&mut self, index: CommandKey) {
        let command = self.commands.remove(index);
        if command.status.is_success() {
            self.counters.commands_completed += 1;
        } else {
            self.counters.commands_refused += 1;
        }
        if let Some(undo) = &command.undo {
            self.overwrites_in_flight -= u32::from(!undo.blocks.is_empty());
        }
        self.on_finish_completed(&command);
        self.on_write_completed(&command);
        self.done.push(Completion { id: command.id, status: command.status, outcome: command.outcome });
    }
}

impl ZonedDevice for Ssd {
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.advance(now);
        if self.commands.len() >= COMMANDS_MAX {
            return Err(QueueFull(command));
        }
        self.take_command(command);
        Ok(())
    }

    #[inline]
    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.advance(now);
        while let Some(completion) = self.done.pop() {
            completions.push(completion);
        }
    }

    #[inline]
    fn next_timeout(&self) -> Option<Instant> {
        if self.done.is_empty() { self.events.next_at() } else { Some(self.now) }
    }
}

impl std::fmt::Debug for Ssd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ssd")
            .field("profile", &self.profile.name)
            .field("now", &self.now)
            .field("outstanding", &self.commands.len())
            .finish_non_exhaustive()
    }
}
