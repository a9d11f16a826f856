#[test]
fn perf() {
    let n = 3_000_000u64;
    for len in [24usize, 32, 88, 512, 4096] {
        let data = vec![7u8; len];
        let start = std::time::Instant::now();
        let mut x = 0u64;
        for i in 0..n { let mut d = i as u8; std::hint::black_box(&mut d); x += u64::from(crc_fast::crc32_iscsi(std::hint::black_box(&data))); }
        eprintln!("crc of {len}: {} ps {x}", start.elapsed().as_nanos() as u64 * 1000 / n);
    }
}
