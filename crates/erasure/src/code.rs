//! Erasure codes as matrices.

use std::fmt;

use crate::Engine;
use crate::field::{inverse, multiply};
use crate::limits::CHUNKS_MAX;

/// An erasure code, which defines the parity of a stripe.
///
/// Chunks are numbered data first: 0 to k - 1 are data, k to k + m - 1 parity. A set of chunks is a
/// `u32`, bit i for chunk i.
#[derive(Clone, PartialEq, Eq)]
pub struct Code {
    data: usize,
    parity: usize,
    is_mirror: bool,
    /// A row for each parity chunk, a coefficient for each data chunk.
    matrix: Vec<u8>,
}

/// Invalid numbers of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeError {
    /// A stripe without data.
    NoData,
    /// More chunks than [`CHUNKS_MAX`].
    TooManyChunks {
        /// Requested data and parity chunks.
        chunks: usize,
    },
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodeError::NoData => write!(f, "a stripe needs at least one data chunk"),
            CodeError::TooManyChunks { chunks } => {
                write!(f, "a stripe of {chunks} chunks is too wide: at most {CHUNKS_MAX} of data and parity together")
            }
        }
    }
}

impl std::error::Error for CodeError {}

impl Code {
    /// The code with `data` data and `parity` parity chunks, of which any `parity` may be lost.
    ///
    /// # Errors
    /// Without data, or with more than [`CHUNKS_MAX`] chunks.
    pub fn new(data: usize, parity: usize) -> Result<Code, CodeError> {
        check(data, data.saturating_add(parity))?;
        let mut matrix = Vec::with_capacity(data * parity);
        for row in 0..parity {
            // Scaled by the first row, then by the resulting first column.
            let scaled = |column: usize| multiply(cauchy(data, row, column), inverse(cauchy(data, 0, column)));
            let scale = inverse(scaled(0));
            matrix.extend((0..data).map(|column| multiply(scaled(column), scale)));
        }
        Ok(Code { data, parity, is_mirror: false, matrix })
    }

    /// The code whose parity chunk i is a copy of data chunk i (RAID 01): one chunk of each pair
    /// may be lost.
    ///
    /// # Errors
    /// Without data, or with more than [`CHUNKS_MAX`] chunks.
    pub fn mirror(data: usize) -> Result<Code, CodeError> {
        check(data, data.saturating_mul(2))?;
        let matrix = (0..data * data).map(|at| u8::from(at % (data + 1) == 0)).collect();
        Ok(Code { data, parity: data, is_mirror: true, matrix })
    }

    /// Chunks of data.
    #[must_use]
    pub fn data(&self) -> usize {
        self.data
    }

    /// Chunks of parity.
    #[must_use]
    pub fn parity(&self) -> usize {
        self.parity
    }

    /// The number of arbitrary chunks that may be lost.
    #[must_use]
    pub fn tolerates(&self) -> usize {
        if self.is_mirror { 1 } else { self.parity }
    }

    /// Whether all data can be recovered from the chunks that are present. Bits above the last
    /// chunk are ignored.
    #[must_use]
    pub fn is_decodable(&self, present: u32) -> bool {
        let present = present & self.all();
        if self.is_mirror {
            (present | present >> self.data) & low_bits(self.data) == low_bits(self.data)
        } else {
            present.count_ones() as usize >= self.data
        }
    }

    /// Computes the parity of a stripe.
    ///
    /// # Panics
    /// If the number of chunks is not that of the code, or their lengths differ.
    pub fn encode(&self, engine: &dyn Engine, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert!(data.len() == self.data && parity.len() == self.parity, "a stripe has the chunks of its code");
        if self.is_mirror {
            parity.iter_mut().zip(data).for_each(|(copy, chunk)| copy.copy_from_slice(chunk));
        } else {
            engine.apply(&self.matrix, data, parity);
        }
    }

    pub(crate) fn is_mirror(&self) -> bool {
        self.is_mirror
    }

    /// The coefficient of data chunk `data` in parity chunk `parity`, counted among parity chunks.
    pub(crate) fn coefficient(&self, parity: usize, data: usize) -> u8 {
        self.matrix[parity * self.data + data]
    }

    /// The set of all chunks.
    pub(crate) fn all(&self) -> u32 {
        low_bits(self.data + self.parity)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_mirror { "mirror " } else { "" };
        write!(f, "Code({kind}{}+{})", self.data, self.parity)
    }
}

fn check(data: usize, chunks: usize) -> Result<(), CodeError> {
    if data == 0 {
        return Err(CodeError::NoData);
    }
    if chunks > CHUNKS_MAX { Err(CodeError::TooManyChunks { chunks }) } else { Ok(()) }
}

fn cauchy(data: usize, row: usize, column: usize) -> u8 {
    inverse(((data + row) ^ column) as u8)
}

/// A set of the first chunks.
pub(crate) fn low_bits(count: usize) -> u32 {
    u32::MAX >> (CHUNKS_MAX - count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Portable;
    use crate::oracle::{Oracle, is_invertible};

    /// The rows of all chunks: the identity for data, then parity.
    fn rows(code: &Code) -> Vec<Vec<u8>> {
        let unit = |chunk| (0..code.data()).map(|column| u8::from(column == chunk)).collect();
        let data = (0..code.data()).map(unit);
        data.chain(code.matrix.chunks(code.data()).map(<[u8]>::to_vec)).collect()
    }

    fn sets(chunks: usize, size: usize) -> impl Iterator<Item = u32> {
        (0..1_u32 << chunks).filter(move |set| set.count_ones() as usize == size)
    }

    #[test]
    fn any_k_chunks_give_the_others() {
        for chunks in 1..=14 {
            for parity in 0..chunks.min(5) {
                let code = Code::new(chunks - parity, parity).unwrap();
                let rows = rows(&code);
                for present in sets(chunks, code.data()) {
                    let left = (0..chunks).filter(|chunk| present >> chunk & 1 == 1).map(|chunk| rows[chunk].clone());
                    assert!(is_invertible(left.collect()), "{code:?} of {present:b}");
                    assert!(code.is_decodable(present));
                }
                assert!(sets(chunks, code.data() - 1).all(|present| !code.is_decodable(present)), "{code:?}");
            }
        }
    }

    #[test]
    fn the_first_parity_is_the_xor_of_the_data_and_the_first_column_is_ones() {
        for data in 1..CHUNKS_MAX {
            let code = Code::new(data, CHUNKS_MAX - data).unwrap();
            assert!((0..data).all(|column| code.coefficient(0, column) == 1), "{code:?}");
            assert!((0..code.parity()).all(|row| code.coefficient(row, 0) == 1), "{code:?}");
            assert!(!code.matrix.contains(&0), "{code:?}");
        }
    }

    #[test]
    fn the_matrix_of_four_and_two_is_golden() {
        assert_eq!(Code::new(4, 2).unwrap().matrix, [1, 1, 1, 1, 1, 217, 92, 172]);
    }

    #[test]
    fn a_mirror_tolerates_the_loss_of_one_of_each_pair() {
        let code = Code::mirror(3).unwrap();
        assert_eq!(code.tolerates(), 1);
        for present in 0..64 {
            let is_decodable = (0..3).all(|chunk| present >> chunk & 1 == 1 || present >> (chunk + 3) & 1 == 1);
            assert_eq!(code.is_decodable(present), is_decodable, "{present:b}");
        }
        let data: [&[u8]; 3] = [b"ab", b"cd", b"ef"];
        for engine in [&Portable as &dyn Engine, &Oracle] {
            let mut copies = [[0; 2]; 3];
            code.encode(engine, &data, &mut copies.each_mut().map(|copy| &mut copy[..]));
            assert_eq!(copies.each_ref().map(|copy| &copy[..]), data);
            let mut product = [[0; 2]; 3];
            engine.apply(&code.matrix, &data, &mut product.each_mut().map(|copy| &mut copy[..]));
            assert_eq!(product, copies, "the matrix gives the same result");
        }
    }

    #[test]
    fn invalid_codes_are_refused_with_a_message() {
        assert_eq!(Code::new(0, 2), Err(CodeError::NoData));
        assert_eq!(Code::new(30, 3), Err(CodeError::TooManyChunks { chunks: 33 }));
        assert_eq!(Code::mirror(17), Err(CodeError::TooManyChunks { chunks: 34 }));
        assert!(Code::new(usize::MAX, usize::MAX).is_err() && Code::mirror(usize::MAX).is_err());
        let text = CodeError::TooManyChunks { chunks: 33 }.to_string();
        assert_eq!(text, "a stripe of 33 chunks is too wide: at most 32 of data and parity together");
        assert_eq!(Code::new(32, 0).unwrap().all(), u32::MAX);
        assert_eq!(Code::mirror(16).unwrap().tolerates(), 1);
    }
}
