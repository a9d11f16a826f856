//! A slow reference implementation of the same arithmetic: bit by bit and byte by byte, without
//! tables.

use crate::Engine;

/// The product of two polynomials, modulo x^8 + x^4 + x^3 + x^2 + 1.
pub(crate) fn multiply(a: u8, b: u8) -> u8 {
    let product = (0..8).filter(|bit| b >> bit & 1 == 1).fold(0_u16, |sum, bit| sum ^ (u16::from(a) << bit));
    let rest =
        (8..16).rev().fold(product, |rest, bit| if rest >> bit & 1 == 1 { rest ^ (0x11D << (bit - 8)) } else { rest });
    rest as u8
}

/// Rows times columns.
#[derive(Debug)]
pub(crate) struct Oracle;

impl Engine for Oracle {
    fn apply(&self, matrix: &[u8], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        for (row, output) in outputs.iter_mut().enumerate() {
            for (at, byte) in output.iter_mut().enumerate() {
                *byte = 0;
                for (column, input) in inputs.iter().enumerate() {
                    *byte ^= multiply(matrix[row * inputs.len() + column], input[at]);
                }
            }
        }
    }
}

/// Whether a matrix of k rows and k columns can be inverted, by elimination.
pub(crate) fn is_invertible(mut rows: Vec<Vec<u8>>) -> bool {
    let size = rows.len();
    for column in 0..size {
        let Some(pivot) = (column..size).find(|&row| rows[row][column] != 0) else { return false };
        rows.swap(column, pivot);
        let pivot = rows[column].clone();
        let inverse = (1..=u8::MAX).find(|&element| multiply(pivot[column], element) == 1).expect("it is not 0");
        for row in &mut rows[column + 1..] {
            let factor = multiply(row[column], inverse);
            for (number, above) in row.iter_mut().zip(&pivot) {
                *number ^= multiply(factor, *above);
            }
        }
    }
    true
}

/// Pseudorandom bytes, the same for the same seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}
