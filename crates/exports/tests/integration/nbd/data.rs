//! Written data are read back.

use zonda_devices::create_image;
use zonda_exports::Source;
use zonda_nbd::NbdError;
use zonda_nbd::testing::Answer;
use zonda_nbd::wire::transmission::{command, command_flags};

use super::client::open;
use super::{BLOCK, SIZE, address, drive, plan, plan_of, serve, stop};

/// Bytes that depend on their offset.
fn pattern(offset: u64, length: u64, salt: u8) -> Vec<u8> {
    (offset..offset + length).map(|at| (at / 511) as u8 ^ (at >> 16) as u8 ^ salt).collect()
}

#[test]
fn many_requests_on_many_connections_are_served() {
    let server = serve(plan());
    let at = address(&server);
    let mut hosts: Vec<_> = (0..8).map(|_| open(&at, "memory")).collect();
    let piece = 256 << 10;
    let places = || (0..SIZE / piece / 2).map(|index| index * 2 * piece);
    let mut asked = Vec::new();
    for (index, offset) in places().enumerate() {
        let host = index % hosts.len();
        let data = pattern(offset, piece, host as u8);
        asked.push((host, hosts[host].begin(command::WRITE, 0, offset, piece, &data)));
    }
    for (host, cookie) in asked.drain(..) {
        assert_eq!(hosts[host].end(cookie), Ok(Answer::Done));
    }
    for (index, offset) in places().enumerate() {
        // Another one reads.
        let host = (index + 3) % hosts.len();
        asked.push((host, hosts[host].begin(command::READ, 0, offset, piece, &[])));
    }
    for ((index, offset), (host, cookie)) in places().enumerate().zip(asked) {
        let expected = pattern(offset, piece, (index % 8) as u8);
        assert!(hosts[host].end(cookie) == Ok(Answer::Data(expected)), "at {offset}");
    }
    assert!(hosts[0].read(piece, piece).iter().all(|&byte| byte == 0), "zeros between them");
    hosts.into_iter().for_each(super::client::Host::disconnect);
    stop(server);
}

#[test]
fn the_longest_request_is_split_for_the_drive() {
    let server = serve(plan());
    let mut host = open(&address(&server), "memory");
    let length = 32 << 20;
    let data = pattern(3 * BLOCK, length, 9);
    assert_eq!(host.write_durably(3 * BLOCK, &data), Ok(Answer::Done));
    assert!(host.read(3 * BLOCK, length) == data);
    assert_eq!(host.ask(command::READ, 0, 0, length + BLOCK), Err(NbdError::Invalid), "the maximum applies");
    host.disconnect();
    stop(server);
}

#[test]
fn unaligned_requests_change_only_their_own_bytes() {
    let server = serve(plan());
    let at = address(&server);
    let mut hosts = [open(&at, "memory"), open(&at, "memory")];
    let mut expected = pattern(0, 4 * BLOCK, 1);
    assert_eq!(hosts[0].write(0, &expected), Ok(Answer::Done));
    // Sectors of 512 bytes, as kernels send them, from two clients into the same blocks at once.
    let mut asked = Vec::new();
    for sector in 1..31 {
        let (host, offset) = (sector % 2, sector as u64 * 512);
        let data = vec![sector as u8; 512];
        expected[offset as usize..][..512].copy_from_slice(&data);
        asked.push((host, hosts[host].begin(command::WRITE, 0, offset, 512, &data)));
    }
    for (host, cookie) in asked {
        assert_eq!(hosts[host].end(cookie), Ok(Answer::Done));
    }
    assert!(hosts[0].read(0, 4 * BLOCK) == expected);
    expected[100..9000].fill(0);
    assert_eq!(hosts[1].ask(command::WRITE_ZEROES, 0, 100, 8900), Ok(Answer::Done));
    assert_eq!(hosts[1].read(1, 4 * BLOCK - 2), expected[1..expected.len() - 1]);
    hosts.into_iter().for_each(super::client::Host::disconnect);
    stop(server);
}

#[test]
fn everything_can_be_trimmed_and_zeroed_in_one_request() {
    let server = serve(plan());
    let mut host = open(&address(&server), "memory");
    for (command, flags) in [
        (command::TRIM, command_flags::FUA),
        (command::WRITE_ZEROES, 0),
        (command::WRITE_ZEROES, command_flags::NO_HOLE),
    ] {
        for offset in (0..SIZE).step_by(SIZE as usize / 16) {
            assert_eq!(host.write(offset, &pattern(offset, 3 * BLOCK, 7)), Ok(Answer::Done));
        }
        assert_eq!(host.ask(command, flags, 0, SIZE), Ok(Answer::Done));
        for offset in (0..SIZE).step_by(32 << 20) {
            assert!(host.read(offset, 32 << 20).iter().all(|&byte| byte == 0), "{command} {flags}");
        }
    }
    host.disconnect();
    stop(server);
}

#[test]
fn data_flushed_on_one_connection_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("image");
    create_image(&path, &drive()).expect("the image is created");
    let image = || plan_of(Source::Image(path.clone()));
    let server = serve(image());
    let at = address(&server);
    let (mut one, mut other) = (open(&at, "image"), open(&at, "image"));
    let data = pattern(0, 1 << 20, 5);
    assert_eq!(one.write(0, &data), Ok(Answer::Done));
    assert_eq!(other.flush(), Ok(Answer::Done));
    assert_eq!(other.write_durably(SIZE - 700, &data[..700]), Ok(Answer::Done));
    assert!(one.read(SIZE - 700, 700) == data[..700]);
    stop(server);
    let server = serve(image());
    let mut late = open(&address(&server), "image");
    assert!(late.read(0, 1 << 20) == data && late.read(SIZE - 700, 700) == data[..700]);
    late.disconnect();
    stop(server);
}
