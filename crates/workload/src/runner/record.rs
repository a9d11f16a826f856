//! Records results during a run.

use std::collections::BTreeMap;

use zonda_zoned::{Duration, Instant, Status};

use crate::limits::{JOB_SAMPLES_MAX, SAMPLES_MAX};
use crate::result::{ErrorCount, JobSample, KindResult, RequestKind, Sample, VerifyError, VerifyErrors};
use crate::summary::LatencyRecord;

/// The completions of all jobs so far.
pub(super) struct Recorder {
    jobs: Vec<JobRecord>,
    started: Instant,
    /// The series never extends beyond this.
    planned_end: Instant,
    sample_start: Instant,
    sample_length: Duration,
    series: Vec<Sample>,
    is_cut: bool,
    /// Requests of all jobs, including the ramp.
    pub(super) operations: u64,
    pub(super) bytes: u64,
}

/// The completions of one job.
struct JobRecord {
    measured_from: Instant,
    /// Completions at this instant and later are not counted.
    until: Instant,
    kinds: [Option<Box<KindRecord>>; RequestKind::ALL.len()],
    errors: BTreeMap<(RequestKind, Status), u64>,
    verify_errors: Option<VerifyErrors>,
    sample: LatencyRecord,
    sample_bytes: u64,
    sample_errors: u64,
}

struct KindRecord {
    bytes: u64,
    latency: LatencyRecord,
}

impl Recorder {
    pub(super) fn new(started: Instant, planned_end: Instant, sample_length: Duration) -> Recorder {
        Recorder {
            jobs: Vec::new(),
            started,
            planned_end,
            sample_start: started,
            sample_length,
            series: Vec::new(),
            is_cut: false,
            operations: 0,
            bytes: 0,
        }
    }

    /// Adds the next job, which is measured from `measured_from` until `until`.
    pub(super) fn add_job(&mut self, measured_from: Instant, until: Instant) {
        self.jobs.push(JobRecord {
            measured_from,
            until,
            kinds: Default::default(),
            errors: BTreeMap::new(),
            verify_errors: None,
            sample: LatencyRecord::for_samples(),
            sample_bytes: 0,
            sample_errors: 0,
        });
    }

    #[inline]
    pub(super) fn success(&mut self, now: Instant, job: u32, kind: RequestKind, bytes: u64, latency_ns: u64) {
        let job = &mut self.jobs[job as usize];
        if now >= job.until {
            return;
        }
        self.operations += 1;
        self.bytes += bytes;
        job.sample.record(latency_ns);
        job.sample_bytes += bytes;
        if now >= job.measured_from {
            let record = job.kinds[kind as usize]
                .get_or_insert_with(|| Box::new(KindRecord { bytes: 0, latency: LatencyRecord::new() }));
            record.bytes += bytes;
            record.latency.record(latency_ns);
        }
    }

    pub(super) fn error(&mut self, now: Instant, job: u32, kind: RequestKind, status: Status) {
        let job = &mut self.jobs[job as usize];
        *job.errors.entry((kind, status)).or_default() += 1;
        job.sample_errors += u64::from(now < job.until);
    }

    /// Records that a command of a job has detected blocks with wrong contents.
    pub(super) fn verify_error(&mut self, now: Instant, job: u32, blocks: u64, first: VerifyError) {
        let at_ns = now.since(self.started).0;
        let errors = &mut self.jobs[job as usize].verify_errors;
        errors.get_or_insert(VerifyErrors { blocks: 0, first: VerifyError { at_ns, ..first } }).blocks += blocks;
    }

    /// When the current sample ends.
    pub(super) fn sample_end(&self) -> Instant {
        self.sample_start + self.sample_length
    }

    /// Closes the samples that end at or before `now`. True if there was one.
    #[inline]
    pub(super) fn advance(&mut self, now: Instant) -> bool {
        if now.since(self.sample_start) < self.sample_length {
            return false;
        }
        let before = self.sample_start;
        self.close_samples(now);
        self.sample_start > before
    }

    fn close_samples(&mut self, now: Instant) {
        let now = now.min(self.planned_end);
        while now.since(self.sample_start) >= self.sample_length {
            if self.is_used_up() {
                self.is_cut = true;
                let intervals = now.since(self.sample_start).0 / self.sample_length.0;
                self.sample_start += self.sample_length * intervals;
                return;
            }
            self.close_sample(self.sample_length);
        }
    }

    /// Whether the series is full.
    fn is_used_up(&self) -> bool {
        self.series.len() as u64 >= SAMPLES_MAX.min(JOB_SAMPLES_MAX / self.jobs.len().max(1) as u64)
    }

    fn close_sample(&mut self, length: Duration) {
        let jobs = self.jobs.iter_mut().map(JobRecord::take_sample).collect();
        let start_ns = self.sample_start.since(self.started).0;
        self.series.push(Sample { start_ns, length_ns: length.0, jobs });
        self.sample_start += length;
    }

    /// The series up to `end`, and whether it was truncated.
    pub(super) fn take_series(&mut self, end: Instant) -> (Vec<Sample>, bool) {
        self.close_samples(end);
        let rest = end.since(self.sample_start);
        // Completions at the end of a run without a time limit belong to its last sample, of any
        // length.
        let has_rest = rest > Duration::ZERO || self.jobs.iter().any(JobRecord::has_sample);
        if has_rest && !self.is_cut {
            if self.is_used_up() {
                self.is_cut = true;
            } else {
                self.close_sample(rest);
            }
        }
        // Samples may have been closed since, while a worker paused before it found no work left.
        let end_ns = end.since(self.started).0;
        while self.series.last().is_some_and(|sample| sample.start_ns >= end_ns && sample.is_empty()) {
            self.series.pop();
        }
        if let Some(last) = self.series.last_mut() {
            last.length_ns = last.length_ns.min(end_ns - last.start_ns);
        }
        (std::mem::take(&mut self.series), self.is_cut)
    }

    /// The results of a job measured for `measured`.
    pub(super) fn kinds(&self, job: usize, measured: Duration) -> Vec<KindResult> {
        let per_second = |count: u64| if measured.0 == 0 { 0.0 } else { count as f64 / measured.as_secs_f64() };
        let recorded = RequestKind::ALL.into_iter().zip(&self.jobs[job].kinds);
        recorded
            .filter_map(|(kind, record)| {
                let record = record.as_ref()?;
                Some(KindResult {
                    kind,
                    operations: record.latency.count(),
                    bytes: record.bytes,
                    bandwidth_bytes_per_second: per_second(record.bytes),
                    iops: per_second(record.latency.count()),
                    latency: record.latency.summary(),
                })
            })
            .collect()
    }

    pub(super) fn verify_errors(&self, job: usize) -> Option<VerifyErrors> {
        self.jobs[job].verify_errors
    }

    pub(super) fn errors(&self, job: usize) -> Vec<ErrorCount> {
        let errors = self.jobs[job].errors.iter();
        errors.map(|(&(kind, status), &count)| ErrorCount { kind, status, count }).collect()
    }
}

impl JobRecord {
    fn has_sample(&self) -> bool {
        self.sample.count() > 0 || self.sample_errors > 0
    }

    fn take_sample(&mut self) -> JobSample {
        let sample = JobSample {
            operations: self.sample.count(),
            bytes: std::mem::take(&mut self.sample_bytes),
            errors: std::mem::take(&mut self.sample_errors),
            mean_latency_ns: self.sample.mean_ns(),
            p99_latency_ns: self.sample.quantile_ns(0.99),
        };
        self.sample.clear();
        sample
    }
}
