//! Memory for reuse: completed stripes, and buffers.
//!
//! A recently used buffer is in the CPU cache; a new one is a page to be cleared, which costs more
//! than the parity that is computed into it. Members may keep their buffers for longer: these are
//! not reused.

use bytes::{Bytes, BytesMut};

use super::super::requests::RequestKey;
use super::stripe::Stripe;
use crate::limits::SPARES_MAX;
use crate::shape::Stream;

/// The use of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) enum Use {
    /// All parity of a stripe.
    Parity,
    /// The metadata beside all blocks of a stripe.
    Metadata,
    /// All slots of a stripe, with their metadata in band.
    Slots,
}

/// How many uses there are.
pub(in crate::machine) const USES: usize = 3;

/// Objects for reuse.
#[derive(Debug, Default)]
pub(super) struct Spare {
    stripes: Vec<Stripe>,
    /// For each stream and use: all buffers of one use have the same length.
    buffers: [[Vec<BytesMut>; USES]; 3],
    pub(super) chunks: Vec<Bytes>,
    pub(super) records: Vec<u8>,
    /// Requests that a stripe ends, and the number of their parts.
    pub(super) ended: Vec<(RequestKey, u64)>,
}

impl Spare {
    /// A buffer with its previous contents; zeros at first.
    pub(super) fn buffer(&mut self, stream: Stream, of: Use, bytes: usize) -> BytesMut {
        match self.buffers[stream as usize][of as usize].pop() {
            Some(mut buffer) => {
                buffer.resize(bytes, 0);
                buffer
            }
            None => BytesMut::zeroed(bytes),
        }
    }

    /// A completed stripe, to be filled again.
    pub(super) fn stripe(&mut self) -> Option<Stripe> {
        self.stripes.pop()
    }

    /// Recycles a stripe without references.
    pub(super) fn reuse(&mut self, mut stripe: Stripe) {
        let pools = self.buffers[stripe.stream as usize].iter_mut();
        for (pool, buffer) in pools.zip(&mut stripe.buffers) {
            if !buffer.is_empty()
                && pool.len() < SPARES_MAX
                && let Ok(free) = std::mem::take(buffer).try_into_mut()
            {
                pool.push(free);
            }
        }
        if self.stripes.len() < SPARES_MAX {
            stripe.clear();
            self.stripes.push(stripe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_zoned::Instant;

    /// A stripe with its parity in this buffer.
    fn stripe_with(buffer: BytesMut) -> Stripe {
        let mut stripe = Stripe::new(Stream::Small, Instant::ZERO, 2, 3);
        stripe.buffers[Use::Parity as usize] = buffer.freeze();
        stripe
    }

    #[test]
    fn a_buffer_that_only_its_stripe_refers_to_is_used_again_and_one_that_a_member_keeps_is_not() {
        for keeps in [false, true] {
            let mut spare = Spare::default();
            let mut buffer = spare.buffer(Stream::Small, Use::Parity, 64);
            buffer.fill(1);
            let stripe = stripe_with(buffer);
            let kept = keeps.then(|| stripe.buffers[Use::Parity as usize].clone());
            spare.reuse(stripe);
            let is_used_again = spare.buffer(Stream::Small, Use::Parity, 64)[..] == [1; 64];
            assert_eq!(is_used_again, kept.is_none());
        }
    }
}
