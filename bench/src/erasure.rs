//! Speed of encoding parity and of recovering lost chunks, compared with copying the same data.
//!
//! The chunks of a stripe are in the CPU cache, as when a volume encodes new data; from memory
//! every engine runs at the bandwidth of the memory. Each case is timed in rounds, alternating with
//! `copy_from_slice` of its data chunks; the median is reported. All figures are for the bytes of k
//! chunks: data for encoding, chunks read for decoding.

use std::hint::black_box;
use std::time::Instant;

use serde::Serialize;
use zonda_erasure::{Code, Engine, Portable};
use zonda_isal::Isal;

use crate::host::median;

/// Many short rounds: even on a busy machine most of them, and so the median, are not interrupted.
const ROUNDS: usize = 301;
/// Bytes of data that one round works on.
const ROUND_BYTES: usize = 2 << 20;

const CODES: [(usize, usize); 3] = [(3, 1), (4, 2), (10, 4)];
const CHUNKS_BYTES: [usize; 2] = [4 << 10, 64 << 10];

/// One figure.
#[derive(Serialize)]
struct Figure {
    code: String,
    chunk_bytes: usize,
    engine: &'static str,
    encode_gb_s: f64,
    decode_one_gb_s: f64,
    decode_all_gb_s: f64,
    copy_gb_s: f64,
}

/// Runs all cases and prints the results.
pub(crate) fn run_all(as_json: bool) {
    let isal = Isal::new();
    let engines =
        [("portable", Some(&Portable as &dyn Engine)), ("isal", isal.as_ref().map(|isal| isal as &dyn Engine))];
    let mut figures = Vec::new();
    for (data, parity) in CODES {
        for chunk_bytes in CHUNKS_BYTES {
            for (name, engine) in engines {
                let Some(engine) = engine else { continue };
                let code = Code::new(data, parity).expect("a code of few chunks");
                figures.push(measure(&code, chunk_bytes, name, engine));
            }
        }
    }
    if as_json {
        println!("{}", serde_json::to_string_pretty(&figures).expect("figures are plain numbers"));
        return;
    }
    println!(
        "{:<8} {:>7} {:<10} {:>12} {:>14} {:>14} {:>12}",
        "erasure", "chunk", "engine", "encode GB/s", "one lost GB/s", "m lost GB/s", "memcpy GB/s"
    );
    for figure in &figures {
        println!(
            "{:<8} {:>3} KiB {:<10} {:>12.1} {:>14.1} {:>14.1} {:>12.1}",
            figure.code,
            figure.chunk_bytes >> 10,
            figure.engine,
            figure.encode_gb_s,
            figure.decode_one_gb_s,
            figure.decode_all_gb_s,
            figure.copy_gb_s
        );
    }
    if isal.is_none() {
        println!("ISA-L is not installed (Debian: apt-get install libisal2)");
    }
}

fn measure(code: &Code, chunk_bytes: usize, name: &'static str, engine: &dyn Engine) -> Figure {
    let (data, parity) = (code.data(), code.parity());
    let mut stripe: Vec<Vec<u8>> = (0..data + parity).map(|chunk| vec![(37 * chunk + 11) as u8; chunk_bytes]).collect();
    let mut copies = vec![vec![0; chunk_bytes]; data];
    let lost: Vec<usize> = (0..parity.min(data)).collect();
    let mut rounds = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        rounds[0].push(timed(code, chunk_bytes, || {
            let (chunks, parity) = stripe.split_at_mut(data);
            code.encode(engine, &shared(chunks.iter()), &mut exclusive(parity));
            black_box(parity);
        }));
        for (round, lost) in [(1, &lost[..1]), (2, &lost)] {
            let present = lost.iter().fold(u32::MAX, |present, chunk| present & !(1 << chunk));
            let recovery = code.recover(present, lost).expect("no more are lost than may be");
            rounds[round].push(timed(code, chunk_bytes, || {
                let sources = shared(recovery.sources.iter().map(|&source| &stripe[source]));
                recovery.apply(engine, &sources, &mut exclusive(&mut copies[..lost.len()]));
                black_box(&mut copies);
            }));
        }
        rounds[3].push(timed(code, chunk_bytes, || {
            copies.iter_mut().zip(&stripe).for_each(|(copy, chunk)| copy.copy_from_slice(black_box(chunk)));
            black_box(&mut copies);
        }));
    }
    let [encode_gb_s, decode_one_gb_s, decode_all_gb_s, copy_gb_s] = rounds.map(median);
    Figure {
        code: format!("{data}+{parity}"),
        chunk_bytes,
        engine: name,
        encode_gb_s,
        decode_one_gb_s,
        decode_all_gb_s,
        copy_gb_s,
    }
}

/// Gigabytes of data per second.
fn timed(code: &Code, chunk_bytes: usize, mut work: impl FnMut()) -> f64 {
    let stripe_bytes = code.data() * chunk_bytes;
    let times = (ROUND_BYTES / stripe_bytes).max(1);
    let before = Instant::now();
    (0..times).for_each(|_| work());
    (times * stripe_bytes) as f64 / before.elapsed().as_nanos() as f64
}

fn shared<'a>(chunks: impl Iterator<Item = &'a Vec<u8>>) -> Vec<&'a [u8]> {
    chunks.map(|chunk| black_box(chunk).as_slice()).collect()
}

fn exclusive(chunks: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    chunks.iter_mut().map(Vec::as_mut_slice).collect()
}
