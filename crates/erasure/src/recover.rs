//! Recovery of lost chunks: which chunks are read, and what is computed from them.
//!
//! e lost data chunks are determined by e present parity chunks: with P the part of the matrix with
//! their rows and the lost columns, and Q the part with the present columns, lost = P^-1 (parity +
//! Q data). P is at most as large as the number of parity chunks; the rest of the inverse of a
//! whole stripe's matrix would be ones and zeros.

use crate::code::low_bits;
use crate::field::{inverse, multiply};
use crate::limits::CHUNKS_MAX;
use crate::{Code, Engine};

/// Maximum of recoverable data chunks: there are as many parity chunks.
const LOST_MAX: usize = CHUNKS_MAX / 2;

type Square = [[u8; LOST_MAX]; LOST_MAX];

/// The chunks to read, and what is computed from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The chunks to read, in ascending order; all of them are needed.
    pub sources: Vec<usize>,
    /// A row for each wanted chunk, a coefficient for each source.
    pub matrix: Vec<u8>,
}

impl Code {
    /// How to compute the chunks `wanted` from those in `present`; `None` if that is impossible.
    ///
    /// Chunks that are present may be wanted too: they are their own sources. Of the parity chunks
    /// those with the lowest numbers are read, since the first is an XOR; omit from `present` what
    /// should not be read.
    ///
    /// # Panics
    /// If a wanted chunk is not part of the code.
    #[must_use]
    pub fn recover(&self, present: u32, wanted: &[usize]) -> Option<Recovery> {
        let chunks = self.data() + self.parity();
        assert!(wanted.iter().all(|&chunk| chunk < chunks), "a chunk of this code");
        let present = present & self.all();
        let has = |chunk: usize| present >> chunk & 1 == 1;
        if self.is_mirror() || wanted.iter().all(|&chunk| has(chunk)) {
            return self.copies(has, wanted);
        }
        if let Some(recovery) = self.xor_of_the_others(present, wanted) {
            return Some(recovery);
        }
        if !self.is_decodable(present) {
            return None;
        }
        let solution = Solution::new(self, present);
        let mut rows = [[0; CHUNKS_MAX]; CHUNKS_MAX];
        let mut used = 0_u32;
        for (row, &chunk) in rows.iter_mut().zip(wanted) {
            if has(chunk) {
                row[chunk] = 1;
            } else if chunk < self.data() {
                solution.add_lost(self, chunk, 1, row);
            } else {
                solution.add_parity(self, chunk - self.data(), row);
            }
            used = row.iter().enumerate().fold(used, |used, (source, &number)| used | u32::from(number != 0) << source);
        }
        let sources: Vec<usize> = (0..chunks).filter(|&source| used >> source & 1 == 1).collect();
        let mut matrix = Vec::with_capacity(wanted.len() * sources.len());
        rows[..wanted.len()].iter().for_each(|row| matrix.extend(sources.iter().map(|&source| row[source])));
        Some(Recovery { sources, matrix })
    }

    /// One chunk from the data and the first parity, if the others of these are present: the case
    /// of a degraded read.
    fn xor_of_the_others(&self, present: u32, wanted: &[usize]) -> Option<Recovery> {
        let &[chunk] = wanted else { return None };
        let others = low_bits(self.data() + 1) & !(1 << chunk);
        if self.parity() == 0 || chunk > self.data() || present & others != others {
            return None;
        }
        let sources = (0..=self.data()).filter(|&source| source != chunk).collect();
        Some(Recovery { sources, matrix: vec![1; self.data()] })
    }

    /// Each chunk from itself, or from the other one of its pair.
    fn copies(&self, has: impl Fn(usize) -> bool, wanted: &[usize]) -> Option<Recovery> {
        let twin = |chunk: usize| if chunk < self.data() { chunk + self.data() } else { chunk - self.data() };
        let source = |&chunk: &usize| {
            if has(chunk) { Some(chunk) } else { Some(twin(chunk)).filter(|&twin| self.is_mirror() && has(twin)) }
        };
        let from: Vec<usize> = wanted.iter().map(source).collect::<Option<_>>()?;
        let mut sources = from.clone();
        sources.sort_unstable();
        sources.dedup();
        let rows = from.iter().flat_map(|from| sources.iter().map(move |source| u8::from(source == from)));
        let matrix = rows.collect();
        Some(Recovery { sources, matrix })
    }
}

impl Recovery {
    /// Computes the wanted chunks, in the requested order, from the sources in theirs.
    ///
    /// # Panics
    /// If the number of chunks is not that of the recovery, or their lengths differ.
    pub fn apply(&self, engine: &dyn Engine, sources: &[&[u8]], wanted: &mut [&mut [u8]]) {
        assert!(sources.len() == self.sources.len(), "one chunk for each source");
        assert_eq!(self.matrix.len(), sources.len() * wanted.len(), "one chunk for each wanted one");
        let copy_of = |row: &[u8]| {
            let only = row.iter().position(|&number| number != 0)?;
            (row[only] == 1 && row[only + 1..].iter().all(|&number| number == 0)).then_some(only)
        };
        let mut rows = self.matrix.chunks_exact(sources.len().max(1));
        if rows.clone().all(|row| copy_of(row).is_some()) {
            for (chunk, only) in wanted.iter_mut().zip(rows.by_ref().filter_map(copy_of)) {
                chunk.copy_from_slice(sources[only]);
            }
        } else {
            engine.apply(&self.matrix, sources, wanted);
        }
    }
}

/// The lost data chunks in terms of parity and of the present data.
struct Solution {
    /// The lost data chunks and as many parity chunks (counted among parity chunks); only the first
    /// `lost` entries of each count.
    lost: usize,
    chunks: [usize; LOST_MAX],
    parities: [usize; LOST_MAX],
    /// A row for each lost chunk, a coefficient for each of the parity chunks.
    inverse: Square,
    present: u32,
}

impl Solution {
    fn new(code: &Code, present: u32) -> Solution {
        let mut solution = Solution {
            lost: 0,
            chunks: [0; LOST_MAX],
            parities: [0; LOST_MAX],
            inverse: [[0; LOST_MAX]; LOST_MAX],
            present,
        };
        for chunk in (0..code.data()).filter(|chunk| present >> chunk & 1 == 0) {
            solution.chunks[solution.lost] = chunk;
            solution.lost += 1;
        }
        let parities = (0..code.parity()).filter(|parity| present >> (code.data() + parity) & 1 == 1);
        solution.parities.iter_mut().take(solution.lost).zip(parities).for_each(|(place, parity)| *place = parity);
        let mut square = [[0; LOST_MAX]; LOST_MAX];
        for (row, &parity) in square.iter_mut().zip(&solution.parities[..solution.lost]) {
            for (number, &chunk) in row.iter_mut().zip(&solution.chunks[..solution.lost]) {
                *number = code.coefficient(parity, chunk);
            }
        }
        solution.inverse = invert(square, solution.lost);
        solution
    }

    /// Adds a lost data chunk, times a coefficient, to a row over all chunks.
    fn add_lost(&self, code: &Code, chunk: usize, times: u8, row: &mut [u8; CHUNKS_MAX]) {
        let place = self.chunks[..self.lost].iter().position(|&lost| lost == chunk).expect("it is lost");
        for (&parity, &number) in self.parities.iter().zip(&self.inverse[place][..self.lost]) {
            let number = multiply(times, number);
            row[code.data() + parity] ^= number;
            for data in (0..code.data()).filter(|data| self.present >> data & 1 == 1) {
                row[data] ^= multiply(number, code.coefficient(parity, data));
            }
        }
    }

    /// Adds a lost parity chunk, counted among parity chunks.
    fn add_parity(&self, code: &Code, parity: usize, row: &mut [u8; CHUNKS_MAX]) {
        for data in 0..code.data() {
            let number = code.coefficient(parity, data);
            if self.present >> data & 1 == 1 {
                row[data] ^= number;
            } else {
                self.add_lost(code, data, number, row);
            }
        }
    }
}

/// The inverse of the upper left part of a square (Gauss and Jordan). Every square part of the
/// code's matrix has one.
fn invert(mut square: Square, size: usize) -> Square {
    let mut result = [[0; LOST_MAX]; LOST_MAX];
    (0..size).for_each(|at| result[at][at] = 1);
    for column in 0..size {
        let pivot = (column..size)
            .find(|&row| square[row][column] != 0)
            .expect("a square part of a Cauchy matrix has an inverse");
        square.swap(column, pivot);
        result.swap(column, pivot);
        let scale = inverse(square[column][column]);
        for at in 0..size {
            square[column][at] = multiply(square[column][at], scale);
            result[column][at] = multiply(result[column][at], scale);
        }
        for row in (0..size).filter(|&row| row != column) {
            let factor = square[row][column];
            for at in 0..size {
                square[row][at] ^= multiply(factor, square[column][at]);
                result[row][at] ^= multiply(factor, result[column][at]);
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Portable;
    use crate::oracle::{Oracle, noise};

    /// A stripe of chunks of some bytes.
    fn stripe(code: &Code, length: usize) -> Vec<Vec<u8>> {
        let data: Vec<Vec<u8>> = (0..code.data()).map(|chunk| noise(chunk as u64 + 1, length)).collect();
        let mut parity = vec![vec![0; length]; code.parity()];
        let data_of: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        code.encode(&Oracle, &data_of, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        data.into_iter().chain(parity).collect()
    }

    fn check(code: &Code, stripe: &[Vec<u8>], present: u32, wanted: &[usize], engine: &dyn Engine) {
        let recovery = code.recover(present, wanted).unwrap_or_else(|| panic!("{code:?} of {present:b}: {wanted:?}"));
        assert!(recovery.sources.iter().all(|source| present >> source & 1 == 1), "{code:?} of {present:b}");
        assert!(recovery.sources.is_sorted());
        let sources: Vec<&[u8]> = recovery.sources.iter().map(|&source| stripe[source].as_slice()).collect();
        let mut chunks = vec![vec![0xAA; stripe[0].len()]; wanted.len()];
        recovery.apply(engine, &sources, &mut chunks.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        for (&wanted, chunk) in wanted.iter().zip(&chunks) {
            assert!(*chunk == stripe[wanted], "{code:?} of {present:b}: chunk {wanted}");
        }
    }

    #[test]
    fn every_chunk_comes_back_whatever_is_lost() {
        for chunks in 1..=14 {
            for parity in 0..chunks.min(5) {
                let code = Code::new(chunks - parity, parity).unwrap();
                let stripe = stripe(&code, 5);
                let everything: Vec<usize> = (0..chunks).collect();
                for present in (0..1 << chunks).filter(|&present| code.is_decodable(present)) {
                    check(&code, &stripe, present, &everything, &Portable);
                }
            }
        }
    }

    #[test]
    fn unrecoverable_chunks_are_none_and_present_chunks_are_their_own_sources() {
        let code = Code::new(3, 2).unwrap();
        assert_eq!(code.recover(0b11000, &[0]), None);
        let copy = Recovery { sources: vec![1, 3], matrix: vec![0, 1, 1, 0] };
        assert_eq!(code.recover(0b01010, &[3, 1]), Some(copy));
        assert_eq!(code.recover(0b01010, &[]), Some(Recovery { sources: vec![], matrix: vec![] }));
        let striped = Code::new(4, 0).unwrap();
        assert_eq!(striped.recover(0b0111, &[3]), None);
        assert!(striped.recover(0b0111, &[2]).is_some());
    }

    #[test]
    fn one_lost_chunk_is_the_xor_of_the_others_and_the_first_parity() {
        for data in 1..=10 {
            let code = Code::new(data, 3).unwrap();
            for lost in 0..data {
                let recovery = code.recover(!(1 << lost), &[lost]).unwrap();
                let others: Vec<usize> = (0..=data).filter(|&chunk| chunk != lost).collect();
                assert_eq!(recovery, Recovery { sources: others, matrix: vec![1; data] });
            }
        }
    }

    #[test]
    fn a_mirror_reads_one_chunk_for_one() {
        let code = Code::mirror(3).unwrap();
        let stripe = stripe(&code, 7);
        assert_eq!(code.recover(0b111_110, &[0]), Some(Recovery { sources: vec![3], matrix: vec![1] }));
        assert_eq!(code.recover(0b000_001, &[3]), Some(Recovery { sources: vec![0], matrix: vec![1] }));
        assert_eq!(code.recover(0b110_110, &[0]), None);
        for present in (0..64).filter(|&present| code.is_decodable(present)) {
            check(&code, &stripe, present, &[5, 4, 3, 2, 1, 0], &Portable);
            check(&code, &stripe, present, &[0, 3], &Oracle);
        }
    }

    #[test]
    fn copies_of_one_chunk_are_read_from_the_first_that_is_present() {
        let code = Code::new(1, 3).unwrap();
        assert_eq!(code.recover(0b1100, &[0]), Some(Recovery { sources: vec![2], matrix: vec![1] }));
        assert_eq!(code.recover(0b1000, &[1, 2]), Some(Recovery { sources: vec![3], matrix: vec![1, 1] }));
    }

    #[test]
    fn the_widest_codes_come_back_from_their_parity_alone() {
        let code = Code::new(16, 16).unwrap();
        let stripe = stripe(&code, 3);
        check(&code, &stripe, 0xFFFF_0000, &(0..16).collect::<Vec<_>>(), &Portable);
        check(&code, &stripe, 0x0F0F_F0F0, &(0..32).collect::<Vec<_>>(), &Portable);
    }
}
