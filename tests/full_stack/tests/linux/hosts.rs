//! Two hosts at once.

use std::thread;

use zonda_full_stack::{Console, Namespace, Scene, Stage, Subsystem};

#[test]
fn two_hosts_share_a_server_and_a_namespace() {
    let scene = Scene::named("hosts")
        .subsystem(Subsystem::named("own-1").namespace(Namespace::zoned(32, 8)))
        .subsystem(Subsystem::named("own-2").namespace(Namespace::zoned(32, 8)))
        .subsystem(Subsystem::named("shared").namespace(Namespace::zoned(32, 8).timed()));
    let Some(stage) = scene.open_or_skip() else { return };
    let (first, second) = thread::scope(|scope| {
        let first = scope.spawn(|| run(&stage, "1", "0", "--hdr-digest --data-digest"));
        let second = scope.spawn(|| run(&stage, "2", "16", ""));
        (first.join(), second.join())
    });
    for (console, first_zone) in [(first, 0), (second, 16)] {
        let console = console.expect("the guest's script succeeds");
        let zones = console.zones_of_blkzone("blkzone");
        assert!(zones.iter().all(|zone| zone.state == "fu"), "fio filled its zones: {zones:?}");
        assert_eq!(zones[0].start, first_zone * 16384);
    }
}

fn run(stage: &Stage, number: &str, first_zone: &str, digests: &str) -> Console {
    let guest = stage.guest(number, "hosts.sh").variable("HOST_NUMBER", number).variable("FIRST_ZONE", first_zone);
    guest.variable("DIGESTS", digests).run(|request| panic!("the guest asks for {request}"))
}
