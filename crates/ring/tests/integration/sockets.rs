//! Sockets, over both backends.
#![allow(missing_docs, clippy::unwrap_used)]

use std::io::ErrorKind;
use std::net::Shutdown;
use std::rc::Rc;

use crate::support::{connection, error_of, loopback, next, once, receive};
use zonda_ring::{Address, Bytes, BytesMut, Operation, Outcome, Ring, RingOptions, Socket};

fn send(socket: &Rc<Socket>, pieces: Vec<Bytes>) -> Operation {
    Operation::Send { socket: Rc::clone(socket), pieces }
}

fn receive_into(socket: &Rc<Socket>, capacity: usize) -> Operation {
    Operation::Receive { socket: Rc::clone(socket), buffer: BytesMut::with_capacity(capacity) }
}

/// Bytes of which every position has its own value, so that order shows.
fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

on_both_backends! {
    fn a_message_goes_round_between_two_sockets(ring: &Ring) {
        let (near, far) = connection(ring);
        for round in 0..3_u8 {
            let message = vec![round; 4096];
            assert_eq!(once(ring, send(&near, vec![message.clone().into()])).bytes, 4096);
            let received = receive(ring, &far, 4096, 4096);
            assert_eq!(received, message);
            once(ring, send(&far, vec![received.into()])).result.unwrap();
            assert_eq!(receive(ring, &near, 4096, 4096), message);
        }
    }

    fn a_receive_appends_to_what_the_buffer_holds(ring: &Ring) {
        let (near, far) = connection(ring);
        once(ring, send(&near, vec![Bytes::from_static(b"and this")])).result.unwrap();
        let mut buffer = BytesMut::with_capacity(64);
        buffer.extend_from_slice(b"this ");
        let done = once(ring, Operation::Receive { socket: far, buffer });
        let Ok(Outcome::Received(buffer)) = done.result else { panic!("{done:?}") };
        assert_eq!((&buffer[..], done.bytes), (&b"this and this"[..], 8));
    }

    fn thousands_of_pieces_in_one_send_reach_a_slow_reader_whole_and_in_order(ring: &Ring) {
        let (near, far) = connection(ring);
        near.set_kernel_buffers(32 << 10, 32 << 10).unwrap();
        far.set_kernel_buffers(32 << 10, 32 << 10).unwrap();
        let sent = pattern(5_000 * 211);
        let pieces = sent.chunks(211).map(Bytes::copy_from_slice).collect();
        let client = ring.client();
        client.submit(1, send(&near, pieces));
        let received = receive(ring, &far, sent.len(), 3_000);
        assert!(received == sent, "the bytes are the same");
        let done = next(ring, &client);
        assert!(matches!(done.result, Ok(Outcome::Sent)));
        assert_eq!(done.bytes, sent.len() as u64);
    }

    fn sends_on_one_socket_leave_in_the_order_of_submission(ring: &Ring) {
        let (near, far) = connection(ring);
        near.set_kernel_buffers(16 << 10, 16 << 10).unwrap();
        let sent = pattern(2_000_000);
        let client = ring.client();
        let mut rest = &sent[..];
        let mut count = 0;
        while !rest.is_empty() {
            // From nothing to more than the kernel's buffers.
            let (piece, more) = rest.split_at(rest.len().min((count * 7_919) % 60_000));
            client.submit(count as u64, send(&near, vec![Bytes::copy_from_slice(piece)]));
            rest = more;
            count += 1;
        }
        assert!(receive(ring, &far, sent.len(), 100_000) == sent, "the bytes are the same");
        let tokens: Vec<u64> = (0..count).map(|_| next(ring, &client)).map(|done| {
            assert!(matches!(done.result, Ok(Outcome::Sent)));
            done.token
        }).collect();
        assert!(tokens.iter().copied().eq(0..count as u64), "and the sends end in order");
    }

    fn both_directions_move_large_messages_at_once(ring: &Ring) {
        let (near, far) = connection(ring);
        let sent = pattern(8 << 20);
        let client = ring.client();
        client.submit(0, send(&near, vec![sent.clone().into()]));
        client.submit(1, send(&far, vec![sent.clone().into()]));
        let mut received = [Vec::new(), Vec::new()];
        client.submit(10, receive_into(&near, 1 << 16));
        client.submit(11, receive_into(&far, 1 << 16));
        while client.outstanding() > 0 {
            let done = next(ring, &client);
            let Outcome::Received(buffer) = done.result.unwrap() else { continue };
            let side = done.token as usize - 10;
            received[side].extend_from_slice(&buffer);
            if received[side].len() < sent.len() {
                client.submit(done.token, receive_into([&near, &far][side], 1 << 16));
            }
        }
        assert!(received[0] == sent && received[1] == sent, "the bytes are the same");
    }

    fn an_empty_send_completes(ring: &Ring) {
        let (near, _far) = connection(ring);
        let done = once(ring, send(&near, vec![Bytes::new()]));
        assert!(matches!(done.result, Ok(Outcome::Sent)) && done.bytes == 0);
    }

    fn a_receive_sees_the_end_of_the_stream_after_the_last_byte(ring: &Ring) {
        let (near, far) = connection(ring);
        let client = ring.client();
        client.submit(1, receive_into(&far, 100));
        once(ring, send(&near, vec![Bytes::from_static(b"bye")])).result.unwrap();
        drop(near);
        assert_eq!(next(ring, &client).bytes, 3);
        for _ in 0..2 {
            let done = once(ring, receive_into(&far, 100));
            assert!(matches!(done.result, Ok(Outcome::Received(buffer)) if buffer.is_empty()));
        }
    }

    fn a_send_to_a_disconnected_peer_fails_and_so_do_all_later_ones(ring: &Ring) {
        let (near, far) = Socket::pair().unwrap();
        let near = Rc::new(near);
        drop(far);
        for _ in 0..2 {
            assert_eq!(error_of(ring, send(&near, vec![Bytes::from_static(b"hello")])).kind(), ErrorKind::BrokenPipe);
        }
    }

    fn a_refused_connection_is_an_error(ring: &Ring) {
        let address = Socket::listen(&loopback()).unwrap().local_address().unwrap();
        assert_eq!(error_of(ring, Operation::Connect { address }).kind(), ErrorKind::ConnectionRefused);
        let nowhere = Address::Unix("/nonexistent/socket".into());
        assert_eq!(error_of(ring, Operation::Connect { address: nowhere }).kind(), ErrorKind::NotFound);
    }

    fn an_address_in_use_is_an_error(_ring: &Ring) {
        let first = Socket::listen(&loopback()).unwrap();
        let second = Socket::listen(&first.local_address().unwrap());
        assert_eq!(second.unwrap_err().kind(), ErrorKind::AddrInUse);
    }

    fn one_listener_accepts_many_connections(ring: &Ring) {
        let listener = Rc::new(Socket::listen(&loopback()).unwrap());
        let address = listener.local_address().unwrap();
        let client = ring.client();
        for token in 0..100 {
            client.submit(token, Operation::Connect { address: address.clone() });
            client.submit(1_000 + token, Operation::Accept(Rc::clone(&listener)));
        }
        let (mut near, mut far) = (Vec::new(), Vec::new());
        while client.outstanding() > 0 {
            match next(ring, &client).result.unwrap() {
                Outcome::Connected(socket) => near.push(socket),
                Outcome::Accepted(socket) => far.push(socket),
                other => panic!("unexpected {other:?}"),
            }
        }
        let mut names: Vec<String> = near.iter().map(|socket| socket.local_address().unwrap().to_string()).collect();
        let mut peers: Vec<String> = far.iter().map(|socket| socket.peer_address().unwrap().to_string()).collect();
        names.sort();
        peers.sort();
        assert_eq!((names.len(), names), (100, peers));
    }

    fn a_connection_over_a_unix_path_carries_bytes(ring: &Ring) {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Unix(directory.path().join("socket"));
        let listener = Rc::new(Socket::listen(&address).unwrap());
        assert_eq!(listener.local_address().unwrap(), address);
        let near = match once(ring, Operation::Connect { address }).result.unwrap() {
            Outcome::Connected(socket) => Rc::new(socket),
            other => panic!("unexpected {other:?}"),
        };
        let far = match once(ring, Operation::Accept(listener)).result.unwrap() {
            Outcome::Accepted(socket) => Rc::new(socket),
            other => panic!("unexpected {other:?}"),
        };
        near.set_no_delay(true).unwrap();
        assert_eq!(far.peer_address().unwrap(), Address::Unix("".into()));
        once(ring, send(&near, vec![Bytes::from_static(b"hello")])).result.unwrap();
        assert_eq!(receive(ring, &far, 5, 5), b"hello");
    }

    fn a_shutdown_ends_a_receive_an_accept_and_a_blocked_send(ring: &Ring) {
        let (near, far) = connection(ring);
        near.set_kernel_buffers(16 << 10, 16 << 10).unwrap();
        let listener = Rc::new(Socket::listen(&loopback()).unwrap());
        let client = ring.client();
        client.submit(1, receive_into(&near, 10));
        client.submit(2, Operation::Accept(Rc::clone(&listener)));
        client.submit(3, send(&near, vec![vec![0; 16 << 20].into()]));
        client.submit(4, send(&near, vec![vec![0; 16].into()]));
        ring.run_once(Some(ring.now())).unwrap();
        ring.run_once(Some(ring.now())).unwrap();
        assert_eq!(client.outstanding(), 4);
        near.shutdown(Shutdown::Both).unwrap();
        listener.shutdown(Shutdown::Both).unwrap();
        let mut ends: Vec<_> = (0..4).map(|_| next(ring, &client)).map(|done| {
            (done.token, done.result.map(|_| done.bytes).map_err(|error| error.kind()))
        }).collect();
        ends.sort_by_key(|end| end.0);
        assert_eq!(ends, [
            (1, Ok(0)),
            (2, Err(ErrorKind::InvalidInput)),
            (3, Err(ErrorKind::BrokenPipe)),
            (4, Err(ErrorKind::BrokenPipe)),
        ]);
        drop(far);
    }

    fn many_receives_on_one_socket_share_out_all_bytes(ring: &Ring) {
        let (near, far) = connection(ring);
        let client = ring.client();
        for token in 0..20 {
            client.submit(token, receive_into(&far, 10));
        }
        ring.run_once(Some(ring.now())).unwrap();
        once(ring, send(&near, vec![pattern(150).into()])).result.unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let received: u64 = (0..20).map(|_| next(ring, &client).bytes).sum();
        assert_eq!(received, 150);
    }

    fn a_socket_taken_by_one_ring_is_served_by_the_ring_of_another_thread(ring: &Ring) {
        let listener = Rc::new(Socket::listen(&loopback()).unwrap());
        let near = match once(ring, Operation::Connect { address: listener.local_address().unwrap() }).result.unwrap() {
            Outcome::Connected(socket) => Rc::new(socket),
            other => panic!("unexpected {other:?}"),
        };
        let far = match once(ring, Operation::Accept(listener)).result.unwrap() {
            Outcome::Accepted(socket) => socket,
            other => panic!("unexpected {other:?}"),
        };
        let backend = ring.backend();
        let other = std::thread::spawn(move || crate::support::run_with(backend, far, |ring, far| {
            let far = Rc::new(far);
            let received = receive(ring, &far, 10_000, 1_000);
            once(ring, send(&far, vec![received.into()])).result.unwrap();
        }));
        once(ring, send(&near, vec![pattern(10_000).into()])).result.unwrap();
        assert_eq!(receive(ring, &near, 10_000, 10_000), pattern(10_000));
        other.join().unwrap();
    }
}

#[test]
#[should_panic(expected = "a receive needs spare capacity")]
fn a_receive_without_spare_capacity_panics() {
    let ring = Ring::new(RingOptions::default()).unwrap();
    let (near, _far) = Socket::pair().unwrap();
    ring.client().submit(0, Operation::Receive { socket: Rc::new(near), buffer: BytesMut::new() });
}
