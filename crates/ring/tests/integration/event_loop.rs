//! The loop itself, over both backends: time, wakers, clients, and shutdown.
#![allow(missing_docs, clippy::unwrap_used)]

use std::rc::Rc;

use crate::support::{connection, next, once};
use zonda_ring::{Bytes, BytesMut, File, FileOptions, Operation, Outcome, Ring, RingOptions, Socket};
use zonda_zoned::{Duration, Instant};

fn receive_from(socket: &Rc<Socket>) -> Operation {
    Operation::Receive { socket: Rc::clone(socket), buffer: BytesMut::with_capacity(4096) }
}

fn send_to(socket: &Rc<Socket>, text: &'static str) -> Operation {
    Operation::Send { socket: Rc::clone(socket), pieces: vec![Bytes::from(text)] }
}

fn is_cancelled<T: std::fmt::Debug>(result: &std::io::Result<T>) -> bool {
    let cancelled = rustix::io::Errno::CANCELED.raw_os_error();
    result.as_ref().is_err_and(|error| error.raw_os_error() == Some(cancelled))
}

on_both_backends! {
    fn an_idle_iteration_ends_at_its_deadline_and_not_before(ring: &Ring) {
        for wait_ns in [0, 1, 1_000, 999_999, 1_000_001, 20_000_000] {
            let until = ring.now() + Duration(wait_ns);
            ring.run_once(Some(until)).unwrap();
            assert!(ring.now() >= until);
        }
        let past = Instant(1);
        ring.run_once(Some(past)).unwrap();
    }

    fn an_earlier_deadline_is_met_after_a_later_one_was_set(ring: &Ring) {
        let waker = ring.waker();
        waker.wake();
        let far = ring.now() + Duration::from_secs(3_000);
        ring.run_once(Some(far)).unwrap();
        let near = ring.now() + Duration::from_millis(2);
        ring.run_once(Some(near)).unwrap();
        assert!(ring.now() >= near && ring.now() < far);
        // And a later one again, which the earlier timer must not cut short.
        let third = ring.now() + Duration::from_millis(5);
        ring.run_once(Some(third)).unwrap();
        assert!(ring.now() >= third);
    }

    fn an_iteration_with_a_completion_does_not_wait_for_its_deadline(ring: &Ring) {
        let (near, far) = connection(ring);
        let client = ring.client();
        client.submit(1, send_to(&near, "now"));
        client.submit(2, receive_from(&far));
        let never = Instant(u64::MAX);
        while client.outstanding() > 0 {
            ring.run_once(Some(never)).unwrap();
            while client.next().is_some() {}
        }
    }

    fn the_waker_ends_an_iteration_from_another_thread(ring: &Ring) {
        for _ in 0..50 {
            let waker = ring.waker();
            let thread = std::thread::spawn(move || waker.wake());
            ring.run_once(None).unwrap();
            thread.join().unwrap();
        }
    }

    fn a_wake_before_the_iteration_is_not_lost_and_counts_once(ring: &Ring) {
        let waker = ring.waker();
        waker.wake();
        waker.wake();
        ring.run_once(None).unwrap();
        let until = ring.now() + Duration::from_millis(1);
        ring.run_once(Some(until)).unwrap();
        assert!(ring.now() >= until, "nothing of the second wake is left");
    }

    fn every_message_of_another_thread_is_seen_after_its_wake(ring: &Ring) {
        let (sender, receiver) = std::sync::mpsc::channel();
        let waker = ring.waker();
        let thread = std::thread::spawn(move || {
            for number in 0..20_000 {
                sender.send(number).unwrap();
                waker.wake();
            }
        });
        let mut seen = 0;
        while seen < 20_000 {
            ring.run_once(None).unwrap();
            seen += receiver.try_iter().count();
        }
        thread.join().unwrap();
    }

    fn a_waker_may_outlive_its_ring(ring: &Ring) {
        let other = Ring::new(RingOptions::on(ring.backend())).unwrap();
        let waker = other.waker();
        drop(other);
        waker.wake();
    }

    fn ten_thousand_operations_at_once_all_end(ring: &Ring) {
        let directory = tempfile::tempdir().unwrap();
        let file = Rc::new(File::open(&directory.path().join("file"), FileOptions::create_new()).unwrap());
        file.write_at(&[1; 4096], 0).unwrap();
        let (near, far) = connection(ring);
        let client = ring.client();
        let mut expected = 0;
        for token in 0..10_000_u64 {
            let operation = match token % 4 {
                0 => Operation::Read { file: Rc::clone(&file), offset: 0, buffer: BytesMut::with_capacity(512) },
                1 => send_to(&near, "four"),
                2 => Operation::Receive { socket: Rc::clone(&far), buffer: BytesMut::with_capacity(4) },
                _ => Operation::Write { file: Rc::clone(&file), offset: 4096 + token, pieces: vec![Bytes::from("x")] },
            };
            expected += token;
            client.submit(token, operation);
        }
        assert_eq!(client.outstanding(), 10_000);
        let mut tokens = 0;
        let mut received = 0;
        while client.outstanding() > 0 {
            let done = next(ring, &client);
            tokens += done.token;
            if let Outcome::Received(buffer) = done.result.unwrap() {
                received += buffer.len();
                // A receive may have found less than its capacity; another takes the rest.
                if client.outstanding() == 0 && received < 10_000 {
                    client.submit(0, receive_from(&far));
                }
            }
        }
        assert_eq!((tokens, received), (expected, 10_000));
    }

    fn many_idle_receives_do_not_keep_other_operations_waiting(ring: &Ring) {
        let client = ring.client();
        let pairs: Vec<_> = (0..500).map(|_| Socket::pair().unwrap()).map(|(a, b)| (Rc::new(a), Rc::new(b))).collect();
        for (index, (near, _)) in pairs.iter().enumerate() {
            client.submit(index as u64, receive_from(near));
        }
        ring.run_once(Some(ring.now())).unwrap();
        let (near, far) = connection(ring);
        once(ring, send_to(&near, "hello")).result.unwrap();
        assert_eq!(once(ring, receive_from(&far)).bytes, 5);
        once(ring, send_to(&pairs[321].1, "you")).result.unwrap();
        let done = next(ring, &client);
        assert_eq!((done.token, done.bytes), (321, 3));
    }

    fn operations_that_end_at_once_do_not_starve_the_others(ring: &Ring) {
        let (near, far) = connection(ring);
        let waker = ring.waker();
        let client = ring.client();
        client.submit(1, receive_from(&far));
        once(ring, send_to(&near, "hello")).result.unwrap();
        let busy = ring.client();
        waker.wake();
        let (left, _right) = Socket::pair().unwrap();
        let left = Rc::new(left);
        let mut iterations = 0;
        // Every iteration here has another completion, yet the receive must end.
        while client.next().is_none() {
            busy.submit(2, send_to(&left, ""));
            ring.run_once(None).unwrap();
            while busy.next().is_some() {}
            iterations += 1;
            assert!(iterations < 1_000, "the receive is starved");
        }
    }

    fn two_clients_see_only_their_own_completions(ring: &Ring) {
        let (near, far) = connection(ring);
        let (one, two) = (ring.client(), ring.client());
        one.submit(5, send_to(&near, "hello"));
        two.submit(5, receive_from(&far));
        while one.outstanding() + two.outstanding() > 0 {
            ring.run_once(None).unwrap();
            while let Some(done) = one.next() {
                assert!(matches!(done.result, Ok(Outcome::Sent)));
            }
            while let Some(done) = two.next() {
                assert!(matches!(done.result, Ok(Outcome::Received(_))));
            }
        }
    }

    fn operations_of_a_dropped_client_are_cancelled_and_take_no_bytes(ring: &Ring) {
        let (near, far) = connection(ring);
        let dropped = ring.client();
        dropped.submit(1, receive_from(&far));
        ring.run_once(Some(ring.now())).unwrap();
        dropped.submit(2, receive_from(&far));
        drop(dropped);
        ring.run_once(Some(ring.now() + Duration::from_millis(1))).unwrap();
        // The bytes go to the next receive.
        once(ring, send_to(&near, "hello")).result.unwrap();
        assert_eq!(once(ring, receive_from(&far)).bytes, 5);
    }

    fn a_client_dropped_during_a_send_breaks_the_stream_rather_than_leave_a_gap(ring: &Ring) {
        let (near, _far) = connection(ring);
        near.set_kernel_buffers(16 << 10, 16 << 10).unwrap();
        let (dropped, stays) = (ring.client(), ring.client());
        dropped.submit(1, Operation::Send { socket: Rc::clone(&near), pieces: vec![vec![1; 16 << 20].into()] });
        stays.submit(2, send_to(&near, "after"));
        ring.run_once(Some(ring.now())).unwrap();
        drop(dropped);
        assert!(is_cancelled(&next(ring, &stays).result));
        assert!(is_cancelled(&once(ring, send_to(&near, "later")).result));
    }

    fn dropping_a_ring_ends_all_outstanding_operations(ring: &Ring) {
        let (near, far) = Socket::pair().unwrap();
        let (near, far) = (Rc::new(near), Rc::new(far));
        let listener = Rc::new(Socket::listen(&crate::support::loopback()).unwrap());
        let directory = tempfile::tempdir().unwrap();
        let file = Rc::new(File::open(&directory.path().join("file"), FileOptions::create_new()).unwrap());
        let other = Ring::new(RingOptions::on(ring.backend())).unwrap();
        let client = other.client();
        client.submit(1, receive_from(&far));
        client.submit(2, Operation::Accept(Rc::clone(&listener)));
        client.submit(3, Operation::Send { socket: Rc::clone(&near), pieces: vec![vec![1; 16 << 20].into()] });
        client.submit(4, send_to(&near, "queued"));
        other.run_once(None).unwrap();
        for token in 10..60 {
            let pieces = vec![Bytes::from(vec![1; 100_000]), Bytes::from(vec![2; 100_000])];
            client.submit(token, Operation::Write { file: Rc::clone(&file), offset: token * 200_000, pieces });
        }
        client.submit(60, receive_from(&near));
        other.run_once(Some(other.now())).unwrap();
        client.submit(61, receive_from(&near));
        drop(other);
        let mut ended = 0;
        while let Some(done) = client.next() {
            assert!(done.result.is_ok() || is_cancelled(&done.result), "{done:?}");
            ended += 1;
        }
        assert_eq!((ended, client.outstanding()), (56, 0));
        client.submit(70, receive_from(&near));
        assert!(is_cancelled(&client.next().unwrap().result));
    }

    fn many_dropped_clients_corrupt_no_buffers(ring: &Ring) {
        for round in 0..200 {
            let (near, far) = Socket::pair().unwrap();
            let (near, far) = (Rc::new(near), Rc::new(far));
            let client = ring.client();
            for token in 0..8 {
                client.submit(token, receive_from(&far));
            }
            if round % 2 == 0 {
                ring.run_once(Some(ring.now())).unwrap();
            }
            let other = ring.client();
            other.submit(0, send_to(&near, "late"));
            drop(client);
            while other.outstanding() > 0 {
                ring.run_once(None).unwrap();
                while other.next().is_some() {}
            }
        }
    }

    fn a_ring_that_polls_before_it_sleeps_does_the_same(ring: &Ring) {
        let spin = Duration::from_micros(300);
        let polling = Ring::new(RingOptions { spin, ..RingOptions::on(ring.backend()) }).unwrap();
        let (near, far) = connection(&polling);
        for _ in 0..10 {
            once(&polling, send_to(&near, "hello")).result.unwrap();
            assert_eq!(once(&polling, receive_from(&far)).bytes, 5);
        }
        for wait_ns in [100_000, 2_000_000] {
            let until = polling.now() + Duration(wait_ns);
            polling.run_once(Some(until)).unwrap();
            assert!(polling.now() >= until);
        }
    }
}

#[test]
#[should_panic(expected = "belongs to the ring that used it first")]
fn a_socket_in_two_rings_panics() {
    let (one, two) = (Ring::new(RingOptions::default()).unwrap(), Ring::new(RingOptions::default()).unwrap());
    let (near, _far) = Socket::pair().unwrap();
    let near = Rc::new(near);
    one.client().submit(1, receive_from(&near));
    two.client().submit(1, receive_from(&near));
}
