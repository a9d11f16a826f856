//! The first two blocks of a physical zone.
//!
//! ```text
//! block 0, "ZERZ": the zone is reserved         block 1, "ZEOW": who owns it since
//!   0..4   zone                                   0..4   zone
//!   4..12  reservation: counts the zones          4..12  reservation
//!          that were reserved                    12..16  namespace
//!                                                16..20  v-zone
//!                                                20..28  generation of the v-zone
//!                                                28      group within the v-zone
//!                                                29      place within the group
//! ```
//!
//! The first block binds the zone to a die (eZNS, section 4.3); it is written before the owner is
//! known. The second proves that what follows belongs to the v-zone that the log names.

use super::PoolId;
use super::block::{self, BlockError};
use super::codec::{Decoder, Encoder};

pub(super) const RESERVED: [u8; 4] = *b"ZERZ";
pub(super) const OWNED: [u8; 4] = *b"ZEOW";

/// The reservation of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) zone: u32,
    pub(crate) number: u64,
}

/// The owner of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) reservation: Reservation,
    pub(crate) namespace: u32,
    pub(crate) vzone: u32,
    pub(crate) generation: u64,
    pub(crate) group: u8,
    pub(crate) place: u8,
}

impl Reservation {
    fn encode(self, to: &mut Encoder) {
        to.u32(self.zone).u64(self.number);
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Reservation> {
        Some(Reservation { zone: from.u32()?, number: from.u64()? })
    }

    pub(crate) fn to_block(self, pool: PoolId, block_bytes: usize) -> Vec<u8> {
        let mut body = Encoder::default();
        self.encode(&mut body);
        block::seal(RESERVED, pool, &body.into_bytes(), block_bytes)
    }

    pub(crate) fn of_block(pool: PoolId, block: &[u8]) -> Result<Reservation, BlockError> {
        let mut body = Decoder::new(body_of(RESERVED, pool, block)?);
        Reservation::decode(&mut body).filter(|_| body.is_empty()).ok_or(BlockError::Damaged)
    }
}

impl Owner {
    pub(crate) fn to_block(self, pool: PoolId, block_bytes: usize) -> Vec<u8> {
        let mut body = Encoder::default();
        self.reservation.encode(&mut body);
        body.u32(self.namespace).u32(self.vzone).u64(self.generation).u8(self.group).u8(self.place);
        block::seal(OWNED, pool, &body.into_bytes(), block_bytes)
    }

    pub(crate) fn of_block(pool: PoolId, block: &[u8]) -> Result<Owner, BlockError> {
        let mut body = Decoder::new(body_of(OWNED, pool, block)?);
        Owner::decode(&mut body).filter(|_| body.is_empty()).ok_or(BlockError::Damaged)
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Owner> {
        Some(Owner {
            reservation: Reservation::decode(from)?,
            namespace: from.u32()?,
            vzone: from.u32()?,
            generation: from.u64()?,
            group: from.u8()?,
            place: from.u8()?,
        })
    }
}

fn body_of(magic: [u8; 4], pool: PoolId, block: &[u8]) -> Result<&[u8], BlockError> {
    let (found, body) = block::open(magic, block)?;
    if found == pool { Ok(body) } else { Err(BlockError::OtherPool) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: PoolId = PoolId([1; 16]);

    #[test]
    fn headers_are_read_as_they_were_written_and_by_their_own_pool_only() {
        let reservation = Reservation { zone: 17, number: 1 << 40 };
        let block = reservation.to_block(POOL, 512);
        assert_eq!(Reservation::of_block(POOL, &block), Ok(reservation));
        assert_eq!(Reservation::of_block(PoolId([2; 16]), &block), Err(BlockError::OtherPool));
        let owner = Owner { reservation, namespace: 3, vzone: 9, generation: 4, group: 2, place: 7 };
        let block = owner.to_block(POOL, 512);
        assert_eq!(Owner::of_block(POOL, &block), Ok(owner));
        assert_eq!(Reservation::of_block(POOL, &block), Err(BlockError::NotOurs));
    }
}
