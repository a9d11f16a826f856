//! Export information, and requests of all kinds.

use serde_json::Value;

use crate::tools::{have, refused, run};
use crate::{Fixture, SIZE};

#[test]
fn nbdinfo_reports_the_features_of_the_export() {
    if !have(&["nbdinfo"]) {
        return;
    }
    let keys = "[[nbd.export]]\nname = \"disk\"\ndescription = \"a fixture\"\n[[nbd.export]]\nname = \"view\"\nread_only = true\n";
    let fixture = Fixture::with(keys);
    let info = |url: &str| -> Value {
        let text = run("nbdinfo", &["--json", url]);
        serde_json::from_str::<Value>(&text).expect("JSON")["exports"][0].take()
    };
    for url in [fixture.unix_url(), fixture.url("nbd")] {
        let disk = info(&url);
        assert_eq!((&disk["export-name"], &disk["export-size"]), (&"disk".into(), &SIZE.into()), "{disk}");
        assert_eq!((&disk["description"], &disk["block_size_minimum"]), (&"a fixture".into(), &4096.into()), "{disk}");
        for can in ["can_multi_conn", "can_flush", "can_fua", "can_trim", "can_zero"] {
            assert_eq!(disk[can], true, "{can} in {disk}");
        }
        assert_eq!((&disk["is_read_only"], &disk["contexts"][0]), (&false.into(), &"base:allocation".into()), "{disk}");
    }
    let view = info(&fixture.unix_url().replace("///disk", "///view"));
    assert_eq!((&view["is_read_only"], &view["can_trim"]), (&true.into(), &false.into()), "{view}");
    let list = run("nbdinfo", &["--list", &fixture.unix_url()]);
    assert!(list.contains("export=\"disk\"") && list.contains("export=\"view\""), "{list}");
    let map: Value = serde_json::from_str(&run("nbdinfo", &["--map", "--json", &fixture.unix_url()])).expect("JSON");
    assert_eq!((&map[0]["length"], &map[0]["description"]), (&SIZE.into(), &"data".into()), "{map}");
    refused("nbdinfo", &[&fixture.unix_url().replace("///disk", "///other")]);
}

#[test]
fn qemu_io_verifies_every_pattern_that_it_wrote() {
    if !have(&["qemu-io"]) {
        return;
    }
    let fixture = Fixture::open();
    let io = |commands: &[&str]| {
        let here = fixture.unix_url();
        let mut arguments = vec!["-f", "raw"];
        commands.iter().for_each(|command| arguments.extend(["-c", command]));
        arguments.push(&here);
        let words = run("qemu-io", &arguments);
        assert!(!words.contains("failed") && !words.contains("error"), "{words}");
    };
    io(&["write -P 0xa1 0 64k", "write -P 0xa2 64k 32M", "write -P 0xa3 -f 200M 1M", "flush"]);
    io(&["read -P 0xa1 0 64k", "read -P 0xa2 64k 32M", "read -P 0xa3 200M 1M", "read -P 0 201M 1M"]);
    // Unaligned ranges: qemu obeys the reported block size, and does read-modify-writes.
    io(&["write -P 0xb1 1000 3000", "read -P 0xa1 0 1000", "read -P 0xb1 1000 3000", "read -P 0xa1 4000 61536"]);
    io(&["write -z 8k 8k", "read -P 0 8k 8k", "write -z -u 1M 16M", "read -P 0 1M 16M", "read -P 0xa2 17M 15M"]);
    io(&["discard 200M 1M", "read -P 0 200M 1M", "discard 0 256M", "read -P 0 0 32M"]);
    io(&["aio_write -P 0xc1 0 1M", "aio_write -P 0xc2 1M 1M", "aio_write -P 0xc3 2M 1M", "aio_flush"]);
    io(&["read -P 0xc1 0 1M", "read -P 0xc2 1M 1M", "read -P 0xc3 2M 1M"]);
}

#[test]
fn fio_verifies_random_writes_of_many_sizes() {
    if !have(&["fio"]) {
        return;
    }
    let mut fixture = Fixture::open();
    let uri = format!("--uri={}", fixture.url("nbd"));
    let job = |name: &str, more: &[&str]| {
        let name = format!("--name={name}");
        let fixed = [&*name, "--ioengine=nbd", &*uri, "--size=64M", "--iodepth=16", "--verify=crc32c", "--randseed=7"];
        run(
            "fio",
            &[&fixed[..], &["--verify_fatal=1", "--verify_state_save=0", "--output-format=terse"], more].concat(),
        );
    };
    job("blocks", &["--rw=randrw", "--bsrange=4k-256k", "--blockalign=4k", "--io_size=96M"]);
    job("trims", &["--rw=trimwrite", "--bs=64k", "--offset=192M"]);
    assert!(fixture.server.stop().success());
}
