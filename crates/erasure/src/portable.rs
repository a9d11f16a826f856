//! The arithmetic in safe Rust, in loops that compilers vectorize.
//!
//! A row of coefficients is processed bit by bit, from the highest: double the output, then add
//! (XOR) the inputs whose coefficient has the bit (Horner's rule). So an output is doubled at most
//! seven times however many inputs there are, no table is looked up, and a row of ones is one pass
//! of XOR. Doubling eight bits is a shift, a comparison and an XOR in each byte of a vector.

use crate::Engine;
use crate::engine::assert_shape;
use crate::field::REDUCTION;
use crate::limits::CHUNKS_MAX;

/// Bytes per iteration of the innermost loop.
const LANE_BYTES: usize = 64;
/// Bytes of each chunk that are processed before the next: those of sixteen chunks stay in a
/// first-level cache.
const PIECE_LANES: usize = 1024 / LANE_BYTES;
/// Inputs that one pass adds.
const PASS_INPUTS: usize = 8;

type Lane = [u8; LANE_BYTES];

/// [`Engine`] in safe Rust.
#[derive(Clone, Copy, Debug, Default)]
pub struct Portable;

impl Engine for Portable {
    fn apply(&self, matrix: &[u8], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert_shape(matrix, inputs, outputs);
        assert!(inputs.len() <= CHUNKS_MAX && outputs.len() <= CHUNKS_MAX, "at most {CHUNKS_MAX} chunks");
        if inputs.len() <= PASS_INPUTS && matrix.iter().all(|&coefficient| coefficient == 1) {
            outputs.iter_mut().for_each(|output| xor(inputs, output));
            return;
        }
        let mut rows = [Row::default(); CHUNKS_MAX];
        for (row, coefficients) in rows.iter_mut().zip(matrix.chunks_exact(inputs.len().max(1))) {
            *row = Row::new(coefficients);
        }
        let mut lanes: [&[Lane]; CHUNKS_MAX] = [&[]; CHUNKS_MAX];
        lanes.iter_mut().zip(inputs).for_each(|(lanes, input)| *lanes = input.as_chunks().0);
        let count = outputs.first().map_or(0, |output| output.len() / LANE_BYTES);
        for from in (0..count).step_by(PIECE_LANES) {
            let piece = from..count.min(from + PIECE_LANES);
            for (row, output) in rows.iter().zip(outputs.iter_mut()) {
                row.apply(&lanes, piece.start, &mut output.as_chunks_mut().0[piece.clone()]);
            }
        }
        if outputs.first().is_some_and(|output| output.len() % LANE_BYTES != 0) {
            apply_to_rest(&rows, inputs, outputs);
        }
    }
}

/// The sum of few inputs, in one pass: this is fast for narrow stripes with one parity.
fn xor(inputs: &[&[u8]], output: &mut [u8]) {
    let mut lanes: [&[Lane]; PASS_INPUTS] = [&[]; PASS_INPUTS];
    lanes.iter_mut().zip(inputs).for_each(|(lanes, input)| *lanes = input.as_chunks().0);
    let (whole, rest) = output.as_chunks_mut();
    add(Before::Forgotten, &lanes[..inputs.len()], whole);
    rest.fill(0);
    for input in inputs {
        rest.iter_mut().zip(input.as_chunks::<LANE_BYTES>().1).for_each(|(byte, other)| *byte ^= other);
    }
}

/// The remainder behind the last whole lane, filled up with zeros.
fn apply_to_rest(rows: &[Row; CHUNKS_MAX], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
    let mut filled = [[[0; LANE_BYTES]]; CHUNKS_MAX];
    for (lane, input) in filled.iter_mut().zip(inputs) {
        let rest = input.as_chunks::<LANE_BYTES>().1;
        lane[0][..rest.len()].copy_from_slice(rest);
    }
    let lanes = filled.each_ref().map(|lane| &lane[..]);
    for (row, output) in rows.iter().zip(outputs) {
        let mut sum = [[0; LANE_BYTES]];
        row.apply(&lanes, 0, &mut sum);
        let rest = output.as_chunks_mut::<LANE_BYTES>().1;
        rest.copy_from_slice(&sum[0][..rest.len()]);
    }
}

/// A row of coefficients by bits.
#[derive(Clone, Copy, Default)]
struct Row {
    /// For each bit the set of inputs whose coefficient has it.
    inputs_of: [u32; 8],
}

/// Treatment of the output's previous bytes before inputs are added.
#[derive(Clone, Copy)]
enum Before {
    Forgotten,
    Kept,
    Doubled,
}

impl Row {
    fn new(coefficients: &[u8]) -> Row {
        let mut inputs_of = [0; 8];
        for (input, &coefficient) in coefficients.iter().enumerate() {
            for (bit, inputs) in inputs_of.iter_mut().enumerate() {
                *inputs |= u32::from(coefficient >> bit & 1) << input;
            }
        }
        Row { inputs_of }
    }

    fn apply(&self, inputs: &[&[Lane]; CHUNKS_MAX], from: usize, output: &mut [Lane]) {
        let to = from + output.len();
        let highest = self.inputs_of.iter().rposition(|&inputs| inputs != 0).unwrap_or(0);
        let mut before = Before::Forgotten;
        for &inputs_of_bit in self.inputs_of[..=highest].iter().rev() {
            let mut left = inputs_of_bit;
            loop {
                let mut pieces: [&[Lane]; PASS_INPUTS] = [&[]; PASS_INPUTS];
                let mut count = 0;
                while left != 0 && count < PASS_INPUTS {
                    pieces[count] = &inputs[left.trailing_zeros() as usize][from..to];
                    count += 1;
                    left &= left - 1;
                }
                add(before, &pieces[..count], output);
                before = Before::Kept;
                if left == 0 {
                    break;
                }
            }
            before = Before::Doubled;
        }
    }
}

/// Adds up to [`PASS_INPUTS`] pieces to the output, with a separate loop for each number of them.
fn add(before: Before, pieces: &[&[Lane]], output: &mut [Lane]) {
    match *pieces {
        [] => add_some(before, [], output),
        [a] => add_some(before, [a], output),
        [a, b] => add_some(before, [a, b], output),
        [a, b, c] => add_some(before, [a, b, c], output),
        [a, b, c, d] => add_some(before, [a, b, c, d], output),
        [a, b, c, d, e] => add_some(before, [a, b, c, d, e], output),
        [a, b, c, d, e, f] => add_some(before, [a, b, c, d, e, f], output),
        [a, b, c, d, e, f, g] => add_some(before, [a, b, c, d, e, f, g], output),
        [a, b, c, d, e, f, g, h] => add_some(before, [a, b, c, d, e, f, g, h], output),
        _ => unreachable!("a pass adds at most {PASS_INPUTS} inputs"),
    }
}

fn add_some<const N: usize>(before: Before, pieces: [&[Lane]; N], output: &mut [Lane]) {
    match before {
        Before::Forgotten => each_lane(pieces, output, |_| 0),
        Before::Kept => each_lane(pieces, output, |byte| byte),
        Before::Doubled => each_lane(pieces, output, double),
    }
}

#[inline(always)]
fn double(byte: u8) -> u8 {
    (byte << 1) ^ if byte >= 0x80 { REDUCTION } else { 0 }
}

/// Lanes are copied, so that the compiler keeps them in registers: a sum in place, byte by byte,
/// runs at a third of the speed.
#[inline(always)]
fn each_lane<const N: usize>(pieces: [&[Lane]; N], output: &mut [Lane], before: impl Fn(u8) -> u8) {
    let pieces = pieces.map(|piece| &piece[..output.len()]);
    for (at, lane) in output.iter_mut().enumerate() {
        let mut sum = *lane;
        sum.iter_mut().for_each(|byte| *byte = before(*byte));
        for piece in &pieces {
            sum.iter_mut().zip(&piece[at]).for_each(|(byte, other)| *byte ^= other);
        }
        *lane = sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{Oracle, noise};

    fn check(matrix: &[u8], inputs: &[&[u8]], outputs: usize) {
        let length = inputs.first().map_or(9, |input| input.len());
        let mut expected = vec![vec![0; length]; outputs];
        Oracle.apply(matrix, inputs, &mut expected.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        let mut computed = vec![vec![0xAA; length]; outputs];
        Portable.apply(matrix, inputs, &mut computed.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        assert!(computed == expected, "{} inputs of {length} bytes by {matrix:?}", inputs.len());
    }

    #[test]
    fn every_coefficient_multiplies_every_byte() {
        let bytes: Vec<u8> = (0..=u8::MAX).collect();
        for coefficient in 0..=u8::MAX {
            check(&[coefficient], &[&bytes], 1);
        }
    }

    #[test]
    fn any_matrix_times_any_number_of_chunks_of_any_length_and_alignment() {
        let lengths = [0, 1, 7, 8, 15, 16, 20, 31, 33, 64, 100, 1023, 1024, 1025, 2048, 2500, 4096];
        for (round, &length) in lengths.iter().cycle().take(8 * lengths.len()).enumerate() {
            let (inputs, outputs) = ([1, 2, 3, 7, 8, 9, 10, 17, 32][round % 9], round % 5);
            let data = noise(round as u64, (length + 1) * inputs + 13);
            let chunks: Vec<&[u8]> =
                (0..inputs).map(|input| &data[input * (length + 1) + round % 13..][..length]).collect();
            check(&noise(99 + round as u64, inputs * outputs), &chunks, outputs);
            check(&vec![1; inputs * outputs], &chunks, outputs);
        }
    }

    #[test]
    fn rows_of_zeros_make_zeros_and_no_inputs_too() {
        check(&[0, 0, 0, 2], &[&[1, 2, 3], &[4, 5, 6]], 2);
        check(&[], &[], 2);
        check(&[], &[&[1, 2]], 0);
    }

    #[test]
    #[should_panic(expected = "chunks of a stripe are of one length")]
    fn chunks_of_different_lengths_are_a_mistake() {
        Portable.apply(&[1, 1], &[&[1, 2], &[3]], &mut [&mut [0, 0][..]]);
    }
}
