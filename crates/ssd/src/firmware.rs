//! Firmware: processing time of commands.
//!
//! A command first occupies a core of its server for its serial time, behind earlier commands; then
//! it takes its parallel time concurrently with all others. The serial time of a reset is split
//! into pieces, each queued behind waiting commands; `reset.rs` has those that hold back programs.

use zonda_zoned::Duration;

use crate::events::Event;
use crate::pending::{CommandKey, Kind};
use crate::ssd::Ssd;
use crate::station::serve;

impl Ssd {
    /// A submitted command goes to its firmware server.
    pub(crate) fn enter_firmware(&mut self, index: CommandKey) {
        let command = &self.commands[index];
        let (kind, server) = (command.kind, self.timing.server(command.kind));
        if command.exclusive > Duration::ZERO {
            return self.queue_reset(index);
        }
        let pays_to_open = command.flags.opens_zone && self.timing.zone_open_extra > Duration::ZERO;
        let is_passed_by = kind != Kind::Reset && !pays_to_open && self.timing.opcode(kind).is_parallel_only;
        if is_passed_by && self.firmware[server].is_free() {
            return self.after_firmware(index);
        }
        if let Some(starting) = self.firmware[server].arrive(index) {
            self.start_firmware(server, starting);
        }
    }

    fn start_firmware(&mut self, server: usize, index: CommandKey) {
        let (timing, command) = (&self.timing, &mut self.commands[index]);
        let time = if command.kind == Kind::Reset {
            let piece = timing.reset.piece;
            let time = if piece == Duration::ZERO { command.serial_left } else { command.serial_left.min(piece) };
            command.serial_left = command.serial_left - time;
            time
        } else {
            let extra = if command.flags.opens_zone { timing.zone_open_extra } else { Duration::ZERO };
            timing.opcode(command.kind).serial.draw(command.bytes, &mut self.prngs.firmware) + extra
        };
        let end = serve(&mut self.firmware[server], self.now, time);
        self.events.schedule(end, Event::FirmwareEnd(index));
    }

    pub(crate) fn on_firmware_end(&mut self, index: CommandKey) {
        let command = &self.commands[index];
        let server = self.timing.server(command.kind);
        let has_more = command.kind == Kind::Reset && command.serial_left > Duration::ZERO;
        if let Some(next) = self.firmware[server].depart() {
            self.start_firmware(server, next);
        }
        if !has_more {
            return self.after_firmware(index);
        }
        // The rest of the reset's work queues behind waiting commands.
        if let Some(starting) = self.firmware[server].arrive(index) {
            self.start_firmware(server, starting);
        }
    }

    pub(crate) fn after_firmware(&mut self, index: CommandKey) {
        let kind = self.commands[index].kind;
        if kind.is_write() {
            return self.request_space(index);
        }
        let time = self.parallel_time(index);
        if kind == Kind::Short && self.commands[index].committed_bytes > 0 {
            self.commit(index);
        }
        if time > Duration::ZERO {
            self.events.schedule(self.now + time, Event::CommandTimer(index));
        } else {
            self.on_command_timer(index);
        }
    }

    /// Samples the parallel time of a command.
    pub(crate) fn parallel_time(&mut self, index: CommandKey) -> Duration {
        let command = &self.commands[index];
        let (kind, bytes) = (command.kind, command.bytes);
        let prng = &mut self.prngs.firmware;
        match kind {
            Kind::Reset => self.timing.reset.parallel.draw(prng),
            _ => self.timing.opcode(kind).parallel.draw(bytes, prng),
        }
    }

    pub(crate) fn on_command_timer(&mut self, index: CommandKey) {
        match self.commands[index].kind {
            Kind::Read => {
                if !self.waits_for_map(index) {
                    self.start_read(index);
                }
            }
            Kind::Finish => self.start_finish(index),
            Kind::Short | Kind::Reset | Kind::Write | Kind::Append | Kind::WriteZeroes => self.complete(index),
        }
    }
}
