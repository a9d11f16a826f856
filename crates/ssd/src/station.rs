//! A resource with a queue: firmware cores, a channel, one direction of the link.

use std::collections::VecDeque;

use zonda_zoned::{Duration, Instant};

/// First come, first served, by one or more servers. The owner samples the service times and
/// schedules the ends.
#[derive(Debug)]
pub(crate) struct Station<J> {
    waiting: VecDeque<J>,
    serving: u32,
    servers: u32,
    /// The job in service, if there is one server.
    current: Option<J>,
    /// Time in service, all servers together.
    pub(crate) busy: Duration,
}

impl<J: Copy> Station<J> {
    pub(crate) fn new(servers: u32) -> Station<J> {
        Station { waiting: VecDeque::new(), serving: 0, servers, current: None, busy: Duration::ZERO }
    }

    /// Whether a job that arrives now is served at once.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.serving < self.servers
    }

    /// A job arrives; returned if its service starts now.
    #[inline]
    pub(crate) fn arrive(&mut self, job: J) -> Option<J> {
        if self.serving == self.servers {
            self.waiting.push_back(job);
            return None;
        }
        self.serving += 1;
        self.current = Some(job);
        Some(job)
    }

    /// A service ends; returns the job whose service starts now.
    #[inline]
    pub(crate) fn depart(&mut self) -> Option<J> {
        assert!(self.serving > 0, "a service that ends has begun");
        let next = self.waiting.pop_front();
        if next.is_none() {
            self.serving -= 1;
        }
        self.current = next;
        next
    }

    /// The job in service at a station with one server.
    #[inline]
    pub(crate) fn current(&self) -> J {
        assert!(self.servers == 1, "only a single server has one current job");
        self.current.expect("a service that ends has begun")
    }
}

/// A bus: transfer time of bytes, without a division.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bus {
    /// Nanoseconds a byte, in units of 2^-32.
    ns_per_byte_q32: u64,
}

impl Bus {
    pub(crate) fn new(bytes_per_second: u64) -> Bus {
        assert!(bytes_per_second > 0, "a bus has bandwidth");
        let ns_per_byte_q32 = (1_000_000_000u128 << 32).div_ceil(u128::from(bytes_per_second));
        Bus { ns_per_byte_q32: u64::try_from(ns_per_byte_q32).expect("a bus moves at least a byte a second") }
    }

    #[inline]
    pub(crate) fn time(self, bytes: u64) -> Duration {
        Duration(((u128::from(bytes) * u128::from(self.ns_per_byte_q32)) >> 32) as u64)
    }
}

/// The last instant of a service that starts now.
#[inline]
pub(crate) fn serve<J: Copy>(station: &mut Station<J>, now: Instant, time: Duration) -> Instant {
    station.busy += time;
    now + time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_served_in_order_of_arrival_as_servers_become_free() {
        let mut station = Station::new(2);
        assert_eq!(station.arrive('a'), Some('a'));
        assert_eq!(station.arrive('b'), Some('b'));
        assert_eq!(station.arrive('c'), None);
        assert_eq!(station.arrive('d'), None);
        assert_eq!(station.depart(), Some('c'));
        assert_eq!(station.depart(), Some('d'));
        assert_eq!(station.depart(), None);
        assert!(station.is_free());
    }

    #[test]
    fn a_bus_takes_the_time_of_its_bandwidth() {
        assert_eq!(Bus::new(600 << 20).time(16 << 10), Duration(26_041));
        assert_eq!(Bus::new(1_000_000_000).time(1_000_000), Duration(1_000_000));
    }
}
