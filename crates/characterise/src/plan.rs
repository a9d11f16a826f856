//! What is run: the loads of each part, in their order.

use zonda_zoned::Geometry;

use crate::limits::{
    DEPTHS, LARGE_SIZE_BYTES, MATRIX_APPEND_DEPTHS, MATRIX_RATES_PERCENT, MATRIX_READ_DEPTHS, MATRIX_SIZE_BYTES,
    MATRIX_WRITERS, READS_OF_ZONE, SCHEDULER_ONE_IN, SCHEDULER_QUEUE_TIME, SCHEDULER_READS, SCHEDULER_SIZE_BYTES,
    SCHEDULER_WRITERS_MAX, SCHEDULER_WRITES, SIZE_MAX_BYTES, SIZE_MIN_BYTES, WRITE_ZONES_MAX,
};
use crate::{Kind, Load, Part, SchedulerName};

/// Loads that run at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) part: Part,
    pub(crate) loads: Vec<Load>,
    /// The I/O scheduler before the drive, in the part that compares them.
    pub(crate) scheduler: Option<SchedulerName>,
}

impl Run {
    pub(crate) fn new(part: Part, loads: Vec<Load>) -> Run {
        Run { part, loads, scheduler: None }
    }

    /// What is run, in words.
    pub(crate) fn words(&self) -> String {
        let loads = self.loads.iter().map(Load::words).collect::<Vec<_>>().join(" beside ");
        match self.scheduler {
            Some(scheduler) => format!("{loads}, scheduler {scheduler}"),
            None => loads,
        }
    }

    /// The share of the time of its part.
    pub(crate) fn weight(&self) -> u64 {
        let is = |kind: Kind| self.loads.iter().any(|load| load.kind == kind);
        match () {
            () if is(Kind::Finish) => 8,
            () if is(Kind::Reset) => 2,
            () => 1,
        }
    }
}

/// What the drive allows.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) geometry: Geometry,
    /// Zones that are read.
    pub(crate) read_zones: u32,
    /// Zones that may be written at a time.
    pub(crate) write_zones: u32,
    /// How full zones are that the interference matrix resets, in percent.
    pub(crate) reset_fill: u32,
    /// The highest rates of reads and writes so far, in a second; infinite if none was measured.
    pub(crate) rates: [f64; 2],
}

impl Shape {
    /// Powers of two times the smallest size, as far as commands allow.
    fn sizes(&self, kind: Kind) -> Vec<u64> {
        let block = u64::from(self.geometry.block_size_bytes);
        let blocks = match kind {
            Kind::Append => self.geometry.max_append_blocks,
            _ => self.geometry.max_transfer_blocks,
        };
        let zone = self.geometry.zone_capacity_bytes();
        let largest = blocks.bytes(self.geometry.block_size_bytes).min(SIZE_MAX_BYTES).min(zone);
        let smallest = SIZE_MIN_BYTES.next_multiple_of(block).min(largest / block * block);
        std::iter::successors(Some(smallest), |size| Some(size * 2)).take_while(|size| *size <= largest).collect()
    }

    /// The largest size up to this one, or the smallest.
    fn size(&self, kind: Kind, wanted: u64) -> u64 {
        let sizes = self.sizes(kind);
        sizes.iter().rev().find(|size| **size <= wanted).or(sizes.first()).copied().unwrap_or(SIZE_MIN_BYTES)
    }

    /// 1, 2, 4, ... and the maximum.
    fn counts(&self, most: u32) -> Vec<u32> {
        let mut counts: Vec<u32> =
            std::iter::successors(Some(1u32), |count| Some(count * 2)).take_while(|count| *count < most).collect();
        counts.extend((most > 0).then_some(most));
        counts
    }

    /// The runs of a part, in their order: the coarse ones of all curves come first if a part of
    /// them has no time.
    pub(crate) fn runs(&self, part: Part) -> Vec<Run> {
        let loads = match part {
            Part::Reads => self.reads(),
            Part::Writes => self.writes(),
            Part::Appends => self.appends(),
            Part::Interference => return self.interference(),
            Part::Schedulers => return self.schedulers(),
            Part::Groups | Part::Zones => Vec::new(),
        };
        let mut runs: Vec<Run> = Vec::new();
        for load in loads {
            let run = Run::new(part, vec![load]);
            // Curves share points.
            if !runs.contains(&run) {
                runs.push(run);
            }
        }
        runs
    }

    fn reads(&self) -> Vec<Load> {
        let zones = self.read_zones;
        let small = self.size(Kind::Read, SIZE_MIN_BYTES);
        let large = self.size(Kind::Read, LARGE_SIZE_BYTES);
        let read = |size, depth, zones| Load::of_data(Kind::Read, size, depth, zones);
        let mut loads: Vec<Load> = self.sizes(Kind::Read).into_iter().map(|size| read(size, 1, zones)).collect();
        loads.extend(DEPTHS.map(|depth| read(small, depth, zones)));
        for size in [small, large] {
            loads.extend(self.counts(zones).into_iter().map(|zones| read(size, READS_OF_ZONE * zones, zones)));
        }
        loads
    }

    fn writes(&self) -> Vec<Load> {
        let write = |size, zones| Load::of_data(Kind::Write, size, zones, zones);
        let mut loads: Vec<Load> = self.sizes(Kind::Write).into_iter().map(|size| write(size, 1)).collect();
        for size in [SIZE_MIN_BYTES, LARGE_SIZE_BYTES].map(|size| self.size(Kind::Write, size)) {
            let counts = self.counts(self.write_zones.min(WRITE_ZONES_MAX));
            loads.extend(counts.into_iter().map(|zones| write(size, zones)));
        }
        loads
    }

    fn appends(&self) -> Vec<Load> {
        let append = |size, depth, zones| Load::of_data(Kind::Append, size, depth, zones);
        let small = self.size(Kind::Append, SIZE_MIN_BYTES);
        let mut loads: Vec<Load> = self.sizes(Kind::Append).into_iter().map(|size| append(size, 1, 1)).collect();
        loads.extend(DEPTHS.into_iter().map(|depth| append(small, depth, 1)));
        let counts = self.counts(self.write_zones.min(WRITE_ZONES_MAX));
        loads.extend(counts.into_iter().map(|zones| append(small, zones, zones)));
        loads
    }

    /// Loads of an operation in the interference matrix, from the lightest to the heaviest.
    pub(crate) fn matrix_loads(&self, kind: Kind) -> Vec<Load> {
        let size = self.size(kind, MATRIX_SIZE_BYTES);
        match kind {
            Kind::Read => MATRIX_READ_DEPTHS.map(|depth| Load::of_data(kind, size, depth, self.read_zones)).to_vec(),
            Kind::Write => {
                // Another zone is left for what runs beside.
                let most = self.write_zones.saturating_sub(1).max(1);
                let writers = MATRIX_WRITERS.into_iter().filter(|writers| *writers <= most);
                writers.map(|writers| Load::of_data(kind, size, writers, writers)).collect()
            }
            Kind::Append => MATRIX_APPEND_DEPTHS.map(|depth| Load::of_data(kind, size, depth, 1)).to_vec(),
            Kind::Reset => vec![Load::of_management(kind, self.reset_fill)],
            Kind::Finish => vec![Load::of_management(kind, 0)],
            Kind::Open | Kind::Close => Vec::new(),
        }
    }

    /// The load that stands for an operation in the matrix.
    pub(crate) fn matrix_load(&self, kind: Kind) -> Option<Load> {
        let loads = self.matrix_loads(kind);
        let place = if kind == Kind::Read { 2 } else { 1 };
        loads.get(place.min(loads.len().saturating_sub(1))).copied()
    }

    /// Each load alone, each pair of operations, all loads beside resets and finishes, and reads and
    /// writes beside each other of which one has a limited rate.
    fn interference(&self) -> Vec<Run> {
        let part = Part::Interference;
        let mut runs: Vec<Run> = Vec::new();
        let mut add = |loads: Vec<Load>| {
            let run = Run::new(part, loads);
            if !runs.contains(&run) {
                runs.push(run);
            }
        };
        let standard: Vec<Load> = Kind::MATRIX.into_iter().filter_map(|kind| self.matrix_load(kind)).collect();
        // The rates of resets and finishes alone limit how long they last beside others.
        for load in standard.iter().rev() {
            add(vec![*load]);
        }
        for (place, first) in standard.iter().enumerate() {
            for second in &standard[place..] {
                add(vec![*first, *second]);
            }
        }
        let others: Vec<Load> =
            [Kind::Read, Kind::Write, Kind::Append].into_iter().flat_map(|kind| self.matrix_loads(kind)).collect();
        for load in &others {
            add(vec![*load]);
            for kind in [Kind::Reset, Kind::Finish] {
                if let Some(beside) = self.matrix_load(kind) {
                    add(vec![*load, beside]);
                }
            }
        }
        let pairs = [Kind::Write, Kind::Append].map(|kind| [(Kind::Read, kind), (kind, Kind::Read)]);
        for (kind, limited) in pairs.into_iter().flatten() {
            for percent in MATRIX_RATES_PERCENT {
                if let (Some(load), Some(limited)) = (self.matrix_load(kind), self.matrix_load(limited)) {
                    add(vec![load, Load { rate_percent: Some(percent), ..limited }]);
                }
            }
        }
        // Finishes may take longer than their time: what has no time then is among them.
        runs.sort_by_key(|run| run.loads.iter().any(|load| load.kind == Kind::Finish));
        runs
    }

    /// The same readers and writers behind each scheduler. Their requests have one size, so that the
    /// bytes of both can be added.
    fn schedulers(&self) -> Vec<Run> {
        let writers = self.write_zones.clamp(1, SCHEDULER_WRITERS_MAX);
        let size = |kind| self.size(kind, SCHEDULER_SIZE_BYTES);
        let writes = outstanding(SCHEDULER_WRITES, self.rates[1]);
        let loads = vec![
            Load::of_data(Kind::Read, size(Kind::Read), outstanding(SCHEDULER_READS, self.rates[0]), self.read_zones),
            Load::of_data(Kind::Write, size(Kind::Write), writes / writers * writers, writers),
        ];
        let run = |scheduler| Run { part: Part::Schedulers, loads: loads.clone(), scheduler: Some(scheduler) };
        SchedulerName::ALL.map(run).to_vec()
    }
}

/// Outstanding requests in the comparison of schedulers: those of a slow drive must complete within the
/// run. Powers of two, so that two reports of a drive mostly have the same.
fn outstanding(most: u32, per_second: f64) -> u32 {
    let in_time = per_second * SCHEDULER_QUEUE_TIME.0 as f64 / 1e9;
    (in_time as u32).checked_next_power_of_two().unwrap_or(most).clamp(most / SCHEDULER_ONE_IN, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        let geometry = Geometry { block_size_bytes: 4096, ..Geometry::tiny() };
        Shape { geometry, read_zones: 5, write_zones: 3, reset_fill: 100, rates: [f64::INFINITY; 2] }
    }

    #[test]
    fn sizes_and_counts_stay_within_the_limits_of_the_drive() {
        let shape = shape();
        assert_eq!(shape.sizes(Kind::Write), [4096, 8192, 16_384, 32_768], "8 blocks are the largest transfer");
        assert_eq!(shape.sizes(Kind::Append), [4096, 8192, 16_384], "4 blocks are the largest append");
        assert_eq!(shape.counts(5), [1, 2, 4, 5]);
        assert_eq!(shape.counts(4), [1, 2, 4]);
        assert_eq!((shape.size(Kind::Write, LARGE_SIZE_BYTES), shape.size(Kind::Write, 100)), (32_768, 4096));
    }

    #[test]
    fn the_matrix_has_each_pair_once_and_each_load_alone() {
        let runs = shape().runs(Part::Interference);
        let pair = |first: Kind, second: Kind| {
            let is_pair = |run: &&Run| run.loads.iter().map(|load| load.kind).eq([first, second]);
            let is_limited = |run: &&Run| run.loads.iter().any(|load| load.rate_percent.is_some());
            runs.iter().filter(|run| !is_limited(run)).filter(is_pair).count()
        };
        assert_eq!((pair(Kind::Read, Kind::Write), pair(Kind::Write, Kind::Read)), (1, 0));
        assert_eq!((pair(Kind::Read, Kind::Finish), pair(Kind::Append, Kind::Reset)), (4, 3), "at all depths");
        for run in &runs {
            for load in &run.loads {
                let is_alone = |other: &Run| other.loads == [load.unlimited()];
                assert!(runs.iter().any(is_alone), "{load:?} is not measured alone");
            }
            assert!(run.loads.iter().filter(|load| load.kind == Kind::Write).all(|load| load.zones < 3));
        }
    }

    #[test]
    fn reads_and_writes_are_also_measured_beside_each_other_at_limited_rates() {
        let runs = shape().runs(Part::Interference);
        let of = |run: &Run| Some((run.loads.first()?.kind, run.loads.get(1)?.kind, run.loads.get(1)?.rate_percent?));
        let limited: Vec<_> = runs.iter().filter_map(of).collect();
        let of = |kind, beside| [25, 50, 75].map(|percent| (kind, beside, percent));
        let expected = [
            of(Kind::Read, Kind::Write),
            of(Kind::Write, Kind::Read),
            of(Kind::Read, Kind::Append),
            of(Kind::Append, Kind::Read),
        ];
        assert_eq!(limited, expected.concat());
        assert!(runs.iter().all(|run| run.loads[0].rate_percent.is_none()));
    }

    #[test]
    fn each_scheduler_has_the_same_load_of_which_a_part_must_wait() {
        for write_zones in [1, 3, 100] {
            let runs = Shape { write_zones, ..shape() }.runs(Part::Schedulers);
            let schedulers: Vec<_> = runs.iter().filter_map(|run| run.scheduler).collect();
            assert_eq!(schedulers, SchedulerName::ALL);
            assert!(runs.iter().all(|run| run.loads == runs[0].loads));
            let [read, write] = runs[0].loads[..] else { panic!("{:?}", runs[0]) };
            assert_eq!((read.kind, read.zones, read.size_bytes), (Kind::Read, 5, write.size_bytes));
            assert_eq!((write.kind, write.zones), (Kind::Write, write_zones.min(8)));
            assert_eq!(write.queue_depth % write.zones, 0, "each writer has as many outstanding as the others");
            assert!(write.queue_depth as usize > zonda_sched::limits::IN_FLIGHT_MAX);
        }
    }

    #[test]
    fn a_slow_drive_gets_fewer_requests_before_its_scheduler() {
        let of = |rates| {
            let runs = Shape { rates, ..shape() }.runs(Part::Schedulers);
            runs[0].loads.iter().map(|load| load.queue_depth).collect::<Vec<_>>()
        };
        assert_eq!(of([100_000.0, 100_000.0]), [64, 510], "three writers have 170 each");
        assert_eq!(of([300.0, 1000.0]), [32, 126]);
        assert_eq!(of([10.0, 10.0]), [8, 63]);
    }

    #[test]
    fn no_load_is_run_twice() {
        for part in Part::ALL {
            let runs = shape().runs(part);
            for (place, run) in runs.iter().enumerate() {
                assert!(!runs[..place].contains(run), "{run:?}");
            }
        }
    }
}
