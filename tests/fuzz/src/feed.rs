//! An input as a sequence of choices.

use zonda_zoned::Prng;

/// Reads choices from the front of an input. Past its end every number is zero, so that any input
/// is complete, and removing the last byte changes nothing before it.
#[derive(Clone, Debug)]
pub(crate) struct Feed<'a> {
    rest: &'a [u8],
}

impl<'a> Feed<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Feed<'a> {
        Feed { rest: input }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// At most `length` bytes.
    pub(crate) fn take(&mut self, length: usize) -> &'a [u8] {
        let (front, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        front
    }

    /// All remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let found = self.take(N);
        bytes[..found.len()].copy_from_slice(found);
        bytes
    }

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number below `end`, from one byte; `end` is at most 256.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::from(self.u8()) % end
    }

    /// One of several.
    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// A byte string, preceded by its length of two bytes, at most `most`.
    pub(crate) fn stretch(&mut self, most: usize) -> &'a [u8] {
        let length = usize::from(self.u16()).min(most);
        self.take(length)
    }
}

/// A number that depends on every byte (FNV-1a), for values that the input must not be able to
/// predict.
pub(crate) fn digest(input: &[u8]) -> u64 {
    input.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A random seed that the input cannot predict.
pub(crate) fn seed_of(input: &[u8]) -> [u8; 32] {
    let mut prng = Prng::new(digest(input));
    let mut seed = [0; 32];
    for part in seed.chunks_exact_mut(8) {
        part.copy_from_slice(&prng.next_u64().to_le_bytes());
    }
    seed
}
