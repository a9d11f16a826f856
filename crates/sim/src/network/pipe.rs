//! One direction of a connection: bytes in order, with latency, in segments of any size, in bounded
//! buffers.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use zonda_zoned::{Duration, Instant, Prng};

use crate::scenario::DurationDef;

/// Properties of one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PipeShape {
    #[serde(rename = "latency_ns", with = "DurationDef")]
    pub(crate) latency: Duration,
    /// Maximum additional latency.
    #[serde(rename = "jitter_ns", with = "DurationDef")]
    pub(crate) jitter: Duration,
    pub(crate) bytes_per_second: u64,
    /// Bytes in flight, including those that have arrived and not been read.
    pub(crate) buffer_bytes: usize,
    /// Maximum size of a segment.
    pub(crate) segment_bytes_max: u64,
    /// Maximum size of a read by the receiver.
    pub(crate) read_bytes_max: u64,
}

/// After all faults have ended, held bytes arrive within this time.
const RECOVERY: Duration = Duration::from_secs(1);

/// One direction of a connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    shape: PipeShape,
    bytes_per_second: u64,
    prng: Prng,
    /// Bytes that the sender has not yet written to the socket.
    waiting: VecDeque<Bytes>,
    flight: VecDeque<(Instant, Bytes)>,
    flight_bytes: usize,
    /// When the last byte in flight arrives.
    last_at: Instant,
    /// No byte arrives earlier.
    held_until: Instant,
    /// The sender closes its end after the queued bytes.
    is_closing: bool,
    end_at: Option<Instant>,
    is_ended: bool,
}

impl Pipe {
    pub(crate) fn new(shape: PipeShape, prng: Prng) -> Pipe {
        Pipe {
            bytes_per_second: shape.bytes_per_second,
            shape,
            prng,
            waiting: VecDeque::new(),
            flight: VecDeque::new(),
            flight_bytes: 0,
            last_at: Instant::ZERO,
            held_until: Instant::ZERO,
            is_closing: false,
            end_at: None,
            is_ended: false,
        }
    }

    pub(crate) fn push(&mut self, pieces: impl IntoIterator<Item = Bytes>) {
        if !self.is_closing {
            self.waiting.extend(pieces);
        }
    }

    /// The sender closes its end: queued bytes are still sent.
    pub(crate) fn close(&mut self) {
        self.is_closing = true;
    }

    /// Drops the bytes that the sender has not yet written.
    pub(crate) fn forget_waiting(&mut self) {
        self.waiting.clear();
    }

    /// Drops all bytes between the ends.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.flight.clear();
        self.flight_bytes = 0;
    }

    pub(crate) fn hold_until(&mut self, until: Instant) {
        self.held_until = self.held_until.max(until);
    }

    pub(crate) fn throttle(&mut self, bytes_per_second: u64) {
        self.bytes_per_second = bytes_per_second;
    }

    /// Ends all faults: held bytes still arrive late, within a bound.
    pub(crate) fn end_faults(&mut self, now: Instant) {
        self.held_until = self.held_until.min(now + RECOVERY);
        self.bytes_per_second = self.shape.bytes_per_second;
        let latest = now + self.shape.latency + self.shape.jitter;
        self.last_at = self.last_at.min(latest);
        for (at, _) in &mut self.flight {
            *at = (*at).min(latest);
        }
        self.end_at = self.end_at.map(|at| at.min(latest));
    }

    /// Moves queued bytes into the socket, until its buffer is full; returns their number.
    pub(crate) fn pump(&mut self, now: Instant) -> usize {
        let mut moved = 0;
        while self.flight_bytes < self.shape.buffer_bytes
            && let Some(front) = self.waiting.front_mut()
        {
            let most = (1 + self.prng.below(self.shape.segment_bytes_max)) as usize;
            let most = most.min(self.shape.buffer_bytes - self.flight_bytes).min(front.len());
            let segment = front.split_to(most);
            if front.is_empty() {
                self.waiting.pop_front();
            }
            let arrival = self.arrival(now) + Duration::of_transfer(most as u64, self.bytes_per_second);
            self.last_at = arrival;
            self.flight_bytes += most;
            moved += most;
            self.flight.push_back((arrival, segment));
        }
        if self.is_closing && !self.is_ended && self.waiting.is_empty() && self.end_at.is_none() {
            self.end_at = Some(self.arrival(now));
        }
        moved
    }

    /// When the next bytes, or the end of the stream, can be read.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let at = self.flight.front().map(|(at, _)| *at).or(self.end_at)?;
        Some(at.max(self.held_until))
    }

    /// Whether only the end of the stream is left to read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.flight.is_empty() && self.end_at.is_some()
    }

    /// Reads the end of the stream.
    pub(crate) fn take_end(&mut self) {
        self.end_at = None;
        self.is_ended = true;
    }

    /// Reads bytes that have arrived, up to a random number.
    pub(crate) fn read(&mut self, now: Instant) -> Bytes {
        let most = (1 + self.prng.below(self.shape.read_bytes_max)) as usize;
        let Some(first) = self.next(now, most) else { return Bytes::new() };
        if first.len() == most || self.flight.front().is_none_or(|(at, _)| *at > now) {
            return first;
        }
        let mut merged = BytesMut::from(&first[..]);
        while merged.len() < most
            && let Some(segment) = self.next(now, most - merged.len())
        {
            merged.extend_from_slice(&segment);
        }
        merged.freeze()
    }

    fn next(&mut self, now: Instant, most: usize) -> Option<Bytes> {
        let (at, segment) = self.flight.front_mut()?;
        if *at > now {
            return None;
        }
        let read = segment.split_to(most.min(segment.len()));
        if segment.is_empty() {
            self.flight.pop_front();
        }
        self.flight_bytes -= read.len();
        Some(read)
    }

    fn arrival(&mut self, now: Instant) -> Instant {
        let jitter = Duration(self.prng.below(self.shape.jitter.0 + 1));
        (now + self.shape.latency + jitter).max(self.last_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe(buffer_bytes: usize) -> Pipe {
        let shape = PipeShape {
            latency: Duration(10),
            jitter: Duration(30),
            bytes_per_second: 1_000_000_000,
            buffer_bytes,
            segment_bytes_max: 7,
            read_bytes_max: 11,
        };
        Pipe::new(shape, Prng::new(1))
    }

    #[test]
    fn bytes_arrive_in_order_in_any_segmentation_and_then_the_end() {
        let mut pipe = pipe(20);
        let sent: Vec<u8> = (0..200).collect();
        pipe.push([Bytes::copy_from_slice(&sent[..90]), Bytes::copy_from_slice(&sent[90..])]);
        pipe.close();
        let (mut now, mut read) = (Instant(1), Vec::new());
        pipe.pump(now);
        while !pipe.is_at_end() {
            now = now.max(pipe.next_at().expect("bytes are in flight"));
            let chunk = pipe.read(now);
            assert!((1..=11).contains(&chunk.len()));
            read.extend_from_slice(&chunk);
            assert!(pipe.flight_bytes <= 20);
            pipe.pump(now);
        }
        assert_eq!(read, sent);
    }

    #[test]
    fn a_pipe_without_a_reader_accepts_as_much_as_its_buffer_holds() {
        let mut pipe = pipe(64);
        pipe.push([Bytes::from_static(&[7; 500])]);
        assert_eq!(pipe.pump(Instant(1)), 64);
        assert_eq!(pipe.pump(Instant(1_000)), 0);
        let read = pipe.read(Instant(1_000));
        assert_eq!(pipe.pump(Instant(1_000)), read.len());
    }

    #[test]
    fn held_bytes_arrive_soon_after_faults_end() {
        let mut pipe = pipe(64);
        pipe.push([Bytes::from_static(b"abc")]);
        pipe.pump(Instant(1));
        let later = Instant(10_000_000_000);
        pipe.hold_until(later);
        assert_eq!(pipe.next_at(), Some(later));
        pipe.end_faults(Instant(100));
        assert_eq!(pipe.next_at(), Some(Instant(100) + RECOVERY));
    }
}
