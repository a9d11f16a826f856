//! Work of dies: sensing pages, programming and erasing units, one at a time.

use zonda_zoned::{Duration, Instant, Key, ZoneIndex};

use crate::bug::SeededBug;
use crate::die::{DieState, Next};
use crate::events::Event;
use crate::pending::{Cause, Place, ReadChain, Work};
use crate::ssd::{ChannelJob, Ssd};

impl Ssd {
    /// A chain of pages requests a die.
    pub(crate) fn add_die_read(&mut self, die: usize, chain: Key<ReadChain>) {
        self.dies[die].add_read(chain, self.chains[chain].page);
        match self.dies[die].state {
            DieState::Idle => self.start_next(die),
            DieState::Running { .. } => {
                // The running operation ends its slice early.
                if let Some(end) =
                    self.dies[die].slice_end(self.now, self.timing.suspend_slice, self.timing.suspends_max)
                {
                    self.wake_die(die, end);
                }
            }
            DieState::Asking(_)
            | DieState::Sensing(_)
            | DieState::Sending(_)
            | DieState::Suspending
            | DieState::Loading(_) => {}
        }
    }

    pub(crate) fn add_work(&mut self, work: Work) {
        let die = usize::from(work.die);
        let zone = match work.place {
            Place::Zone { zone, .. } | Place::ZoneErase { zone } | Place::Mapping { zone } => zone,
            // Conventional zones share a translation layer, and one part of the bandwidth.
            Place::Conventional { .. } => ZoneIndex(0),
        };
        let tag = self.shares.tag(zone, self.timing.program_unit_bytes);
        let work = self.works.insert(work);
        self.dies[die].add_work(work, tag);
        if self.dies[die].state == DieState::Idle {
            self.start_next(die);
        }
    }

    /// An erase of a die.
    pub(crate) fn add_erase(&mut self, die: u16, place: Place) {
        self.add_work(Work {
            cause: Cause::Erase,
            die,
            place,
            host_bytes: 0,
            spilled_bytes: 0,
            pad_bytes: 0,
            pages_to_load: 0,
            group: 0,
            command: None,
            padding: None,
        });
    }

    /// The die is free for its next operation.
    pub(crate) fn release_die(&mut self, die: usize) {
        self.dies[die].enter(self.now, DieState::Idle);
        self.start_next(die);
    }

    fn wake_die(&mut self, die: usize, at: Instant) {
        if self.dies[die].due == Some(at) {
            return;
        }
        self.dies[die].due = Some(at);
        self.events.schedule(at, Event::DieEnd(die as u32));
    }

    fn start_next(&mut self, die: usize) {
        match self.dies[die].take_next() {
            Next::Nothing => {}
            Next::Read(chain) if self.dies[die].holds(self.chains[chain].page) => self.on_sensed(die, chain),
            Next::Read(chain) if self.timing.channel_read_command > Duration::ZERO => {
                self.dies[die].enter(self.now, DieState::Asking(chain));
                self.add_channel_job(die, ChannelJob::Ask { chain });
            }
            Next::Read(chain) => self.sense(die, chain),
            Next::Start(work, tag) if self.works[work].pages_to_load > 0 => {
                self.shares.start(tag);
                self.dies[die].enter(self.now, DieState::Loading(work));
                self.add_channel_job(die, ChannelJob::Load { work });
            }
            Next::Start(work, tag) => {
                self.shares.start(tag);
                self.start_running(die, work);
            }
            Next::Resume(work, left) => self.run(die, work, left),
        }
    }

    pub(crate) fn sense(&mut self, die: usize, index: Key<ReadChain>) {
        let chain = &self.chains[index];
        let bytes = u64::from(chain.page_bytes());
        let extra = self.timing.read_extra(chain);
        let time = self.timing.sense.draw(bytes, &mut self.prngs.dies[die]) + extra;
        self.dies[die].enter(self.now, DieState::Sensing(index));
        self.wake_die(die, self.now + time);
    }

    fn start_running(&mut self, die: usize, work: Key<Work>) {
        let is_erase = self.works[work].cause == Cause::Erase;
        let service_time = if is_erase { &self.timing.erase } else { &self.timing.program };
        let time = service_time.draw(&mut self.prngs.dies[die]) + self.timing.program_extra(&self.works[work]);
        self.run(die, work, time);
    }

    fn run(&mut self, die: usize, work: Key<Work>, left: Duration) {
        self.dies[die].enter(self.now, DieState::Running { work, since: self.now, left });
        let slice_end = if self.dies[die].has_reads() {
            self.dies[die].slice_end(self.now, self.timing.suspend_slice, self.timing.suspends_max)
        } else {
            None
        };
        self.wake_die(die, slice_end.unwrap_or(self.now + left));
    }

    pub(crate) fn on_die_end(&mut self, die: usize) {
        if self.dies[die].due != Some(self.now) {
            return; // The die was rescheduled since.
        }
        self.dies[die].due = None;
        match self.dies[die].state {
            DieState::Sensing(chain) => self.on_sensed(die, chain),
            DieState::Running { work, since, left } if self.now == since + left => self.on_work_end(die, work),
            DieState::Running { work, since, left } => {
                let done = self.now - since;
                self.counters.suspensions += 1;
                self.dies[die].suspend(work, left - done + self.timing.resume_latency);
                let latency = self.timing.suspend_latency(self.works[work].cause);
                if latency == Duration::ZERO {
                    return self.release_die(die);
                }
                self.dies[die].enter(self.now, DieState::Suspending);
                self.wake_die(die, self.now + latency);
            }
            DieState::Suspending => self.release_die(die),
            state => unreachable!("a die in state {state:?} has no end of its own"),
        }
    }

    fn on_sensed(&mut self, die: usize, index: Key<ReadChain>) {
        let chain = &mut self.chains[index];
        let (bytes, page) = (chain.page_bytes(), chain.page);
        chain.page_is_sensed();
        self.dies[die].keep_in_register(page);
        // The page's successor queues behind the reads that wait, before the die is free again.
        // With a cache register the die is free for others at once, but the next page of this
        // command follows when this one was transferred.
        if chain.pages_to_sense > 0 && !self.timing.cache_read {
            self.dies[die].add_read(index, None);
        }
        self.add_channel_job(die, ChannelJob::Page { chain: index, bytes });
        if self.timing.cache_read {
            self.release_die(die);
        } else {
            self.dies[die].enter(self.now, DieState::Sending(index));
        }
    }

    pub(crate) fn on_page_loaded(&mut self, index: Key<Work>) {
        let work = &mut self.works[index];
        work.pages_to_load -= 1;
        let (die, left) = (usize::from(work.die), work.pages_to_load);
        if left > 0 {
            self.add_channel_job(die, ChannelJob::Load { work: index });
        } else {
            self.start_running(die, index);
        }
    }

    fn on_work_end(&mut self, die: usize, index: Key<Work>) {
        let work = self.works.remove(index);
        self.dies[die].work_done();
        self.release_die(die);
        match (work.cause, work.place) {
            (Cause::Erase, place) => {
                self.counters.erases += 1;
                if let Place::Conventional { unit, .. } = place {
                    self.on_collection_erased(die, unit);
                }
            }
            (Cause::Collection, _) => self.on_collection_programmed(&work),
            (Cause::Mapping, _) => self.counters.programs += 1,
            (Cause::Host | Cause::Padding | Cause::Spill, _) => self.on_programmed(&work),
        }
    }

    fn on_programmed(&mut self, work: &Work) {
        self.counters.programs += 1;
        match work.cause {
            Cause::Spill => self.counters.programmed_spill_bytes += work.host_bytes,
            _ => self.counters.programmed_host_bytes += work.host_bytes + work.spilled_bytes,
        }
        self.counters.programmed_padding_bytes += work.pad_bytes;
        match work.place {
            Place::Zone { zone, generation, slot, row } => {
                if self.zone_map.generation(zone) == generation {
                    let run = self.zone_map.run_mut(zone);
                    run.unit_arrived(slot, row);
                    self.zone_map.note_progress(zone);
                }
                if let Some(padding) = work.padding {
                    self.on_padded(padding, slot);
                }
            }
            Place::Conventional { unit, program } => self.on_conventional_programmed(work.die, unit, program),
            Place::ZoneErase { .. } | Place::Mapping { .. } => unreachable!("neither programs data"),
        }
        self.buffer.release(work.group, work.host_bytes);
        if work.cause != Cause::Padding {
            self.on_data_programmed();
        }
        if let Some(command) = work.command {
            self.end_part(command);
        }
        if self.buffer.is_waited_for() && !self.bug.has(SeededBug::LostWakeup) {
            self.admit();
        }
    }
}
