//! The phases of a run, repetition by repetition, and the result at its end.

use super::files::Files;
use super::keys::{Operation, Operations};
use super::result::{StoreEnd, StoreProgress, StoreResult, StoreSample};
use super::run::Run;
use super::store::Store;

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The file store is formatted.
    Formatting,
    /// It accepts requests.
    Ready,
    /// Entries are preloaded and not counted.
    Preloading,
    /// The tree quiesces before counting.
    Quiescing,
    /// Operations are counted.
    Counting,
    /// The tree quiesces after the last operation.
    Resting,
    /// Logs and manifest are closed.
    Closing,
    /// The files of a store are deleted, to free space for the next.
    Deleting,
}

impl<F: Files> Run<F> {
    /// Enters the next phase if this one is over; returns whether it is.
    pub(super) fn enter_next_phase(&mut self) -> bool {
        match self.phase {
            Phase::Ready => self.enter(Phase::Preloading),
            Phase::Preloading if self.clients_busy == 0 => self.phase = Phase::Quiescing,
            Phase::Quiescing if self.store.is_quiescent() => {
                self.store.take_counters();
                self.counted.since = Some((self.now, self.files.host_bytes()));
                self.series.begin_counting(self.now);
                self.enter(Phase::Counting);
            }
            Phase::Counting if self.clients_busy == 0 => {
                self.end_counting();
                self.phase = Phase::Resting;
            }
            Phase::Resting if self.store.is_quiescent() => {
                self.count_what_followed();
                self.store.check_all();
                self.store.close();
                self.phase = Phase::Closing;
            }
            Phase::Closing if self.store.is_closed() => {
                self.round += 1;
                if self.round == self.load.repeat {
                    self.fail(StoreEnd::Operations);
                } else {
                    self.store.delete_files();
                    self.phase = Phase::Deleting;
                }
            }
            Phase::Deleting if self.store.is_deleted() => {
                let prng = self.prng.fork(&format!("store/round/{}", self.round));
                self.source = Operations::new(&self.load, prng);
                self.store = Store::new(self.tree.clone(), self.load.clients, self.checks);
                self.enter(Phase::Preloading);
            }
            _ => return false,
        }
        true
    }

    /// The next operation of a client in this phase; `None` if none is left.
    pub(super) fn next_operation(&mut self, client: u32) -> Option<Operation> {
        let counts = self.counts(client);
        match self.phase {
            Phase::Preloading if self.begun < self.load.preload => {
                self.begun += 1;
                Some(self.source.preload())
            }
            Phase::Counting if counts && self.begun < self.load.operations => {
                self.begun += 1;
                Some(self.source.next(client))
            }
            // A client that only writes meanwhile continues until the others have finished.
            Phase::Counting if !counts && self.ended < self.load.operations => Some(self.source.next(client)),
            _ => None,
        }
    }

    pub(super) fn progress(&self, sample: StoreSample) -> StoreProgress {
        let of_round = self.load.preload + self.load.operations;
        let done = match self.phase {
            Phase::Formatting | Phase::Ready => 0,
            Phase::Preloading => self.ended,
            Phase::Quiescing => self.load.preload,
            Phase::Counting => self.load.preload + self.ended,
            Phase::Resting | Phase::Closing => of_round,
            // The round is already counted.
            Phase::Deleting => 0,
        };
        let rounds = f64::from(self.round) + done as f64 / of_round as f64;
        StoreProgress {
            elapsed: self.now.since(self.started),
            round: self.round,
            rounds: self.load.repeat,
            is_counting: self.phase == Phase::Counting,
            fraction: (rounds / f64::from(self.load.repeat)).min(1.0),
            sample,
        }
    }

    /// The result of a finished run, and the files.
    pub(super) fn result(mut self, seed: u64) -> (StoreResult, F) {
        // A failed run may have ended while counting.
        self.end_counting();
        self.count_what_followed();
        let counted = &self.counted;
        let counters = counted.counters;
        let of_user =
            |bytes: u64| if counters.user_bytes == 0 { 0.0 } else { bytes as f64 / counters.user_bytes as f64 };
        let space_amplification_mean = self.series.space_amplification_mean();
        let (samples, samples_are_cut) = self.series.into_samples();
        let result = StoreResult {
            workload: self.load.workload,
            seed,
            ended_by: self.end.unwrap_or(StoreEnd::Stuck),
            rounds: self.round,
            operations: counted.operations,
            elapsed_ns: counted.elapsed.0,
            drained_ns: self.now.since(self.started).0,
            throughput: match counted.elapsed.0 {
                0 => 0.0,
                _ => counted.operations as f64 / counted.elapsed.as_secs_f64(),
            },
            kinds: self.figures.results(),
            counters,
            host_write_bytes: counted.host.written,
            host_read_bytes: counted.host.read,
            write_amplification: of_user(counted.host.written),
            tree_write_amplification: of_user(counters.flush_bytes + counters.compaction_write_bytes),
            space_amplification_mean,
            levels: self.store.levels(),
            file_bytes: self.store.file_bytes(),
            files: self.files.usage(),
            samples,
            samples_are_cut,
        };
        (result, self.files)
    }

    /// Begins a phase in which clients run operations.
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        (self.begun, self.ended) = (0, 0);
        (0..self.load.clients).for_each(|client| self.begin(client));
    }

    /// Ends the counted time: the last operation has ended.
    fn end_counting(&mut self) {
        if self.phase != Phase::Counting {
            return;
        }
        let (since, _) = self.counted.since.expect("operations are counted since then");
        self.counted.operations += self.ended;
        self.ended = 0;
        self.counted.elapsed += self.now.since(since);
        let usage = self.files.usage();
        self.series.end_counting(self.now, &usage);
    }

    /// Counts the background work that the operations have caused.
    fn count_what_followed(&mut self) {
        if let Some((_, host)) = self.counted.since.take() {
            self.counted.host = self.counted.host.plus(self.files.host_bytes().since(host));
            self.counted.counters = self.counted.counters.plus(&self.store.take_counters());
        }
    }
}
