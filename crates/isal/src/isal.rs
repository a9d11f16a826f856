//! The ISA-L engine.

use std::cell::RefCell;
use std::fmt;

use zonda_erasure::limits::CHUNKS_MAX;
use zonda_erasure::{Engine, Portable, assert_shape};

use crate::library::{Library, Tables};

/// Shorter chunks are padded to this length: for them the library has a byte-by-byte loop, five
/// times as slow.
const LENGTH_BYTES_MIN: usize = 64;

/// [`Engine`] on ISA-L.
///
/// It caches the expanded tables of the last matrix: a writer uses the same matrix all the time,
/// and expanding that of 10+4 takes an eighth of the time of encoding 4 KiB chunks.
pub struct Isal {
    library: Library,
    last: RefCell<Option<(Vec<u8>, Tables)>>,
}

impl Isal {
    /// The engine; `None` if ISA-L is not installed.
    #[must_use]
    pub fn new() -> Option<Isal> {
        Library::load().map(|library| Isal { library, last: RefCell::new(None) })
    }
}

impl Engine for Isal {
    fn apply(&self, matrix: &[u8], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert_shape(matrix, inputs, outputs);
        assert!(inputs.len() <= CHUNKS_MAX && outputs.len() <= CHUNKS_MAX, "at most {CHUNKS_MAX} chunks");
        if matrix.iter().all(|&coefficient| coefficient == 1) {
            return Portable.apply(matrix, inputs, outputs);
        }
        let mut last = self.last.borrow_mut();
        let tables = match last.take() {
            Some((known, tables)) if known == matrix && tables.inputs() == inputs.len() => (known, tables),
            _ => (matrix.to_vec(), self.library.tables(matrix, inputs.len())),
        };
        let tables = &last.insert(tables).1;
        if inputs[0].len() < LENGTH_BYTES_MIN {
            self.apply_short(tables, inputs, outputs);
        } else {
            self.library.multiply(tables, inputs, outputs);
        }
    }
}

impl Isal {
    fn apply_short(&self, tables: &Tables, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let mut filled = [[0; LENGTH_BYTES_MIN]; CHUNKS_MAX];
        let mut sums = [[0; LENGTH_BYTES_MIN]; CHUNKS_MAX];
        filled.iter_mut().zip(inputs).for_each(|(filled, input)| filled[..input.len()].copy_from_slice(input));
        let sources = filled.each_ref().map(|filled| &filled[..]);
        let mut targets = sums.each_mut().map(|sum| &mut sum[..]);
        self.library.multiply(tables, &sources[..inputs.len()], &mut targets[..outputs.len()]);
        outputs.iter_mut().zip(&sums).for_each(|(output, sum)| output.copy_from_slice(&sum[..output.len()]));
    }
}

impl fmt::Debug for Isal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Isal")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_erasure::Code;

    /// Pseudorandom bytes, the same for the same seed.
    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    fn isal() -> Option<Isal> {
        let isal = Isal::new();
        if isal.is_none() {
            eprintln!("ISA-L is not installed (Debian: apt-get install libisal2): skipping the comparison");
        }
        isal
    }

    /// Both engines on chunks of this length and memory offset; bytes around the outputs must not
    /// change.
    fn compare(isal: &Isal, matrix: &[u8], inputs: usize, length: usize, offset: usize) {
        let outputs = matrix.len() / inputs;
        let memory: Vec<Vec<u8>> = (0..inputs).map(|input| noise(input as u64, length + offset + 1)).collect();
        let chunks: Vec<&[u8]> =
            memory.iter().enumerate().map(|(at, bytes)| &bytes[(at * 7 + offset) % (offset + 1)..][..length]).collect();
        let results = [&Portable as &dyn Engine, isal].map(|engine| {
            let mut memory = vec![vec![0x5A; length + offset + 64]; outputs];
            let mut targets: Vec<&mut [u8]> =
                memory.iter_mut().map(|bytes| &mut bytes[offset..offset + length]).collect();
            engine.apply(matrix, &chunks, &mut targets);
            memory
        });
        assert!(results[0] == results[1], "{inputs} inputs of {length} bytes at {offset} by {matrix:?}");
    }

    #[test]
    fn it_gives_the_bytes_of_the_portable_engine_at_any_length_and_alignment() {
        let Some(isal) = isal() else { return };
        for length in (0..300).chain([511, 512, 4095, 4096, 4097, 65_536, 100_003]) {
            for (inputs, outputs) in [(1, 1), (2, 2), (4, 2), (10, 4), (5, 7)] {
                compare(&isal, &noise(length as u64, inputs * outputs), inputs, length, length % 64);
            }
        }
        for offset in 0..64 {
            compare(&isal, &noise(offset as u64, 30), 5, 777, offset);
        }
    }

    #[test]
    fn it_multiplies_every_byte_by_every_coefficient() {
        let Some(isal) = isal() else { return };
        for coefficient in 0..=u8::MAX {
            compare(&isal, &[coefficient], 1, 1024, 0);
        }
    }

    #[test]
    fn matrices_in_turn_and_odd_ones_are_not_mistaken_for_each_other() {
        let Some(isal) = isal() else { return };
        for _ in 0..2 {
            compare(&isal, &[2, 3, 4, 5], 2, 100, 0);
            compare(&isal, &[2, 3, 4, 5], 1, 100, 0);
            compare(&isal, &[2, 3, 4, 5], 4, 100, 0);
            compare(&isal, &[0, 0, 0, 7], 4, 100, 3);
        }
        let mut outputs = [[1_u8; 3]; 2];
        isal.apply(&[], &[], &mut outputs.each_mut().map(|output| &mut output[..]));
        assert_eq!(outputs, [[0; 3]; 2]);
        isal.apply(&[], &[&[1, 2, 3]], &mut []);
    }

    #[test]
    fn a_stripe_encoded_by_one_engine_comes_back_by_the_other() {
        let Some(isal) = isal() else { return };
        let code = Code::new(6, 3).unwrap();
        let data: Vec<Vec<u8>> = (0..6).map(|chunk| noise(chunk, 4096)).collect();
        let mut parity = vec![vec![0; 4096]; 3];
        let chunks: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        code.encode(&isal, &chunks, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        let stripe: Vec<&[u8]> = data.iter().chain(&parity).map(Vec::as_slice).collect();
        for engine in [&Portable as &dyn Engine, &isal] {
            let recovery = code.recover(0b1_1010_1101, &[1, 4, 6]).unwrap();
            let sources: Vec<&[u8]> = recovery.sources.iter().map(|&source| stripe[source]).collect();
            let mut lost = vec![vec![0; 4096]; 3];
            recovery.apply(engine, &sources, &mut lost.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
            assert!(lost[0] == stripe[1] && lost[1] == stripe[4] && lost[2] == stripe[6]);
        }
    }
}
