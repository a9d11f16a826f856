//! What computes the bytes.

use std::fmt::Debug;

/// Multiplies chunks of bytes by a matrix over GF(2^8). All engines give the same bytes.
pub trait Engine: Debug + Send {
    /// Makes each output the sum of all inputs, each times its coefficient.
    ///
    /// `matrix` holds the coefficients row by row, a row for each output, `inputs.len()` numbers a row. Inputs and outputs are of
    /// one length, which may be any. What the outputs hold before does not matter.
    ///
    /// # Panics
    /// If lengths differ, or the matrix does not fit the numbers of inputs and outputs.
    fn apply(&self, matrix: &[u8], inputs: &[&[u8]], outputs: &mut [&mut [u8]]);
}

/// Asserts what every engine may rely on.
///
/// # Panics
/// As [`Engine::apply`] says.
#[inline]
pub fn assert_shape(matrix: &[u8], inputs: &[&[u8]], outputs: &[&mut [u8]]) {
    assert_eq!(matrix.len(), inputs.len() * outputs.len(), "a row of coefficients for each output");
    if let Some(length) = outputs.first().map(|output| output.len()) {
        let is_even =
            inputs.iter().all(|input| input.len() == length) && outputs.iter().all(|output| output.len() == length);
        assert!(is_even, "chunks of a stripe are of one length");
    }
}
