//! GF(2^8) with the polynomial 0x11D, for which 2 generates all elements but 0.

/// x^8 = x^4 + x^3 + x^2 + 1.
pub(crate) const REDUCTION: u8 = 0x1D;

/// Elements but 0.
const ORDER: usize = 255;

const TABLES: Tables = Tables::new();

struct Tables {
    /// Powers of 2, twice over, so that the sum of two logarithms needs no reduction.
    powers: [u8; 2 * ORDER],
    logarithms: [u8; ORDER + 1],
}

impl Tables {
    const fn new() -> Tables {
        let mut tables = Tables { powers: [0; 2 * ORDER], logarithms: [0; ORDER + 1] };
        let mut element = 1;
        let mut exponent = 0;
        while exponent < ORDER {
            tables.powers[exponent] = element;
            tables.powers[exponent + ORDER] = element;
            tables.logarithms[element as usize] = exponent as u8;
            element = (element << 1) ^ ((element >> 7) * REDUCTION);
            exponent += 1;
        }
        tables
    }
}

pub(crate) fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let logarithm = |element: u8| usize::from(TABLES.logarithms[usize::from(element)]);
    TABLES.powers[logarithm(a) + logarithm(b)]
}

pub(crate) fn inverse(a: u8) -> u8 {
    assert!(a != 0, "0 has no inverse");
    TABLES.powers[ORDER - usize::from(TABLES.logarithms[usize::from(a)])]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle;

    #[test]
    fn products_are_those_of_polynomials() {
        for a in 0..=u8::MAX {
            for b in 0..=u8::MAX {
                assert_eq!(multiply(a, b), oracle::multiply(a, b), "{a} times {b}");
            }
        }
    }

    #[test]
    fn an_element_times_its_inverse_is_one() {
        for a in 1..=u8::MAX {
            assert_eq!(multiply(a, inverse(a)), 1, "{a}");
        }
    }
}
