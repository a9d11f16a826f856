//! Diffie-Hellman groups: none, or one of RFC 7919.

use std::fmt;
use std::hint::black_box;
use std::sync::OnceLock;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd, Resize};

use crate::hash::wipe;
use crate::primes::{FFDHE2048, FFDHE3072, FFDHE4096, FFDHE6144, FFDHE8192};
use crate::random::Random;

/// Bytes of the longest public value, ffdhe8192.
pub(crate) const PUBLIC_BYTES_MAX: usize = 1024;

/// A Diffie-Hellman group (NVMe Base Specification 2.0, section 8.13, AUTH_Negotiate, DHgIDList);
/// RFC 7919, generator 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Group {
    /// No key exchange. An eavesdropper can try secrets against the exchange, so the secret must be
    /// random, as those of [`Secret::generate`](crate::Secret::generate) are.
    Null = 0,
    /// 2048 bits.
    Ffdhe2048 = 1,
    /// 3072 bits.
    Ffdhe3072 = 2,
    /// 4096 bits.
    Ffdhe4096 = 3,
    /// 6144 bits.
    Ffdhe6144 = 4,
    /// 8192 bits.
    Ffdhe8192 = 5,
}

/// A private exponent and its public value. The exponent is overwritten on drop.
pub(crate) struct KeyPair {
    parameters: &'static BoxedMontyParams,
    group: Group,
    exponent: BoxedUint,
}

/// The shared secret of the exchange, with the length of the group's prime. Overwritten on drop.
pub(crate) struct SharedSecret(Box<[u8]>);

impl Group {
    /// All groups, largest first, the one without an exchange last.
    pub const ALL: [Group; 6] =
        [Group::Ffdhe8192, Group::Ffdhe6144, Group::Ffdhe4096, Group::Ffdhe3072, Group::Ffdhe2048, Group::Null];

    /// The identifier on the wire.
    #[must_use]
    pub fn id(self) -> u8 {
        self as u8
    }

    /// The group of an identifier; `None` for an unassigned one.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Group> {
        Group::ALL.into_iter().find(|group| group.id() == id)
    }

    /// The group of a displayed name; `None` for any other.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Group> {
        Group::ALL.into_iter().find(|group| group.to_string() == name)
    }

    /// Bytes of the prime, and so of a public value; 0 for [`Group::Null`].
    #[must_use]
    pub fn length_bytes(self) -> usize {
        self.field().map_or(0, |field| field.bits / 8)
    }

    fn field(self) -> Option<&'static Field> {
        self.id().checked_sub(1).map(|index| &FIELDS[usize::from(index)])
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.length_bytes() {
            0 => f.write_str("null"),
            bytes => write!(f, "ffdhe{}", bytes * 8),
        }
    }
}

impl KeyPair {
    /// A new key in `group`; `None` in the group without an exchange.
    pub(crate) fn generate(group: Group, random: &mut Random) -> Option<KeyPair> {
        let field = group.field()?;
        let mut bytes = vec![0; field.exponent_bytes];
        random.fill(&mut bytes);
        // The highest bit is set: every exponent has its full length, and none is 0.
        bytes[0] |= 0x80;
        let exponent = BoxedUint::from_be_slice_vartime(&bytes);
        wipe(&mut bytes);
        Some(KeyPair { parameters: field.parameters(), group, exponent })
    }

    /// The public value, big endian, padded to the length of the prime.
    pub(crate) fn public_value(&self) -> Box<[u8]> {
        let generator = BoxedUint::from(2u8).resize(self.parameters.bits_precision());
        self.power(generator)
    }

    /// The secret that is shared with the owner of the public value `peer`, big endian, at most as
    /// long as the prime; some implementations omit leading zeros. `None` for values out of
    /// `2..=p-2`: with 0, 1 and p-1 the secret would be one of two known numbers.
    pub(crate) fn shared_secret(&self, peer: &[u8]) -> Option<SharedSecret> {
        if peer.len() > self.group.length_bytes() {
            return None;
        }
        let bits = self.parameters.bits_precision();
        let peer = BoxedUint::from_be_slice(peer, bits).ok()?;
        let last = self.parameters.modulus().as_ref().wrapping_sub(BoxedUint::one_with_precision(bits));
        if peer <= BoxedUint::one_with_precision(bits) || peer >= last {
            return None;
        }
        Some(SharedSecret(self.power(peer)))
    }

    /// `base` to the private exponent, in time that depends only on the group.
    fn power(&self, base: BoxedUint) -> Box<[u8]> {
        BoxedMontyForm::new(base, self.parameters).pow(&self.exponent).retrieve().to_be_bytes()
    }
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Drop for KeyPair {
    fn drop(&mut self) {
        self.exponent.as_mut_words().fill(0);
        black_box(&mut self.exponent);
    }
}

impl SharedSecret {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for SharedSecret {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// A group with a prime, and its precomputed parameters.
struct Field {
    prime: &'static str,
    bits: usize,
    /// RFC 7919, section 5.2 asks for at least 225, 275, 325, 375 and 400 bits.
    exponent_bytes: usize,
    parameters: OnceLock<BoxedMontyParams>,
}

static FIELDS: [Field; 5] = [
    Field { prime: FFDHE2048, bits: 2048, exponent_bytes: 32, parameters: OnceLock::new() },
    Field { prime: FFDHE3072, bits: 3072, exponent_bytes: 40, parameters: OnceLock::new() },
    Field { prime: FFDHE4096, bits: 4096, exponent_bytes: 48, parameters: OnceLock::new() },
    Field { prime: FFDHE6144, bits: 6144, exponent_bytes: 48, parameters: OnceLock::new() },
    Field { prime: FFDHE8192, bits: 8192, exponent_bytes: 56, parameters: OnceLock::new() },
];

impl Field {
    fn parameters(&self) -> &BoxedMontyParams {
        self.parameters.get_or_init(|| {
            let bits = u32::try_from(self.bits).expect("a prime has a few thousand bits");
            let prime = BoxedUint::from_be_hex(self.prime, bits).into_option().expect("the primes are hexadecimal");
            let prime = Odd::new(prime).into_option().expect("the primes are odd");
            BoxedMontyParams::new_vartime(prime)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXCHANGING: [Group; 5] =
        [Group::Ffdhe2048, Group::Ffdhe3072, Group::Ffdhe4096, Group::Ffdhe6144, Group::Ffdhe8192];

    fn pair(group: Group, seed: u8) -> KeyPair {
        KeyPair::generate(group, &mut Random::new([seed; 32])).unwrap()
    }

    fn prime(group: Group) -> BoxedUint {
        group.field().unwrap().parameters().modulus().as_ref().clone()
    }

    /// `2^(b-130) e`, cut off, by the series of e in fixed point with 256 bits to spare.
    fn digits_of_e(bits: u32) -> BoxedUint {
        let precision = bits + 256;
        let mut term = BoxedUint::one_with_precision(precision).shl(bits - 130 + 190);
        let mut sum = term.clone();
        for k in 1u64.. {
            let divisor = BoxedUint::from(k).into_nz().into_option().unwrap();
            term = term.div_rem_vartime(&divisor).0;
            if bool::from(term.is_zero()) {
                break;
            }
            sum = sum.wrapping_add(&term);
        }
        sum.shr(190).resize(bits)
    }

    /// RFC 7919, appendix A: the definition, with the X of each group.
    #[test]
    fn the_primes_follow_their_definition() {
        let offsets = [560_316u64, 2_625_351, 5_736_041, 15_705_020, 10_965_728];
        for (group, x) in EXCHANGING.into_iter().zip(offsets) {
            let bits = group.length_bytes() as u32 * 8;
            let one = BoxedUint::one_with_precision(bits);
            let middle = digits_of_e(bits).wrapping_add(BoxedUint::from(x).resize(bits)).shl(64);
            let zero = BoxedUint::zero_with_precision(bits);
            // 2^b is zero in b bits.
            let expected = zero.wrapping_sub(one.shl(bits - 64)).wrapping_add(&middle).wrapping_sub(&one);
            assert_eq!(prime(group), expected, "{group}");
        }
    }

    /// Fermat's test to a few bases, of p and of (p-1)/2: a slip in a digit would fail it.
    #[test]
    fn the_primes_are_safe_primes() {
        for group in EXCHANGING {
            let p = prime(group);
            let half = p.shr(1);
            for modulus in [p, half] {
                let bits = modulus.bits_precision();
                let minus_one = modulus.wrapping_sub(BoxedUint::one_with_precision(bits));
                let parameters = BoxedMontyParams::new_vartime(Odd::new(modulus).into_option().unwrap());
                for base in [2u8, 3, 5] {
                    let base = BoxedMontyForm::new(BoxedUint::from(base).resize(bits), &parameters);
                    assert!(bool::from(base.pow(&minus_one).retrieve().is_one()), "{group}");
                }
            }
        }
    }

    #[test]
    fn both_sides_find_the_same_secret_in_every_group() {
        for group in EXCHANGING {
            let (a, b) = (pair(group, 1), pair(group, 2));
            let (public_a, public_b) = (a.public_value(), b.public_value());
            assert_eq!(public_a.len(), group.length_bytes());
            let shared = a.shared_secret(&public_b).unwrap();
            assert_eq!(shared.bytes(), b.shared_secret(&public_a).unwrap().bytes(), "{group}");
            assert_eq!(shared.bytes().len(), group.length_bytes());
            assert_ne!(shared.bytes(), pair(group, 3).shared_secret(&public_a).unwrap().bytes());
        }
    }

    #[test]
    fn public_values_that_fix_the_secret_are_refused() {
        for group in EXCHANGING {
            let key = pair(group, 1);
            let p = prime(group);
            let one = BoxedUint::one_with_precision(p.bits_precision());
            let p_minus_1 = p.wrapping_sub(&one);
            let p_plus_1 = p.wrapping_add(&one);
            let zero = vec![0; group.length_bytes()];
            for refused in
                [&zero[..], &one.to_be_bytes(), &p_minus_1.to_be_bytes(), &p.to_be_bytes(), &p_plus_1.to_be_bytes()]
            {
                assert!(key.shared_secret(refused).is_none(), "{group}");
            }
            assert!(key.shared_secret(&vec![0xff; group.length_bytes()]).is_none());
            assert!(key.shared_secret(&[]).is_none(), "an empty value is 0");
            assert!(key.shared_secret(&vec![1; group.length_bytes() + 1]).is_none(), "longer than the prime");
            assert!(key.shared_secret(&p_minus_1.wrapping_sub(&one).to_be_bytes()).is_some(), "p-2 is allowed");
        }
    }

    #[test]
    fn leading_zeros_of_a_public_value_may_be_omitted() {
        let key = pair(Group::Ffdhe2048, 1);
        let mut long = vec![0; 256];
        long[255] = 77;
        assert_eq!(key.shared_secret(&[77]).unwrap().bytes(), key.shared_secret(&long).unwrap().bytes());
    }

    #[test]
    fn every_group_has_exactly_its_identifier() {
        for group in Group::ALL {
            assert_eq!(Group::from_id(group.id()), Some(group));
        }
        assert_eq!((Group::from_id(6), Group::from_id(255)), (None, None));
        assert!(KeyPair::generate(Group::Null, &mut Random::new([0; 32])).is_none());
        assert_eq!(Group::ALL.map(Group::length_bytes), [1024, 768, 512, 384, 256, 0]);
        assert_eq!([Group::Null.to_string(), Group::Ffdhe6144.to_string()], ["null", "ffdhe6144"]);
    }

    #[test]
    fn debug_output_contains_no_private_exponent() {
        assert_eq!(format!("{:?}", pair(Group::Ffdhe2048, 1)), "KeyPair { group: Ffdhe2048, .. }");
    }
}
