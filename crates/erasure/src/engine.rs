//! Engines, which compute the bytes.

use std::fmt::Debug;

/// Multiplies chunks of bytes by a matrix over GF(2^8). All engines give the same results.
pub trait Engine: Debug + Send {
    /// Computes each output as the sum of all inputs, each times its coefficient.
    ///
    /// `matrix` holds the coefficients row by row, a row of `inputs.len()` coefficients for each
    /// output. All inputs and outputs have the same length, which is arbitrary. The previous
    /// contents of outputs are ignored.
    ///
    /// # Panics
    /// If lengths differ, or the size of the matrix does not match the numbers of inputs and
    /// outputs.
    fn apply(&self, matrix: &[u8], inputs: &[&[u8]], outputs: &mut [&mut [u8]]);
}

/// Asserts the preconditions of every engine.
///
/// # Panics
/// As [`Engine::apply`].
#[inline]
pub fn assert_shape(matrix: &[u8], inputs: &[&[u8]], outputs: &[&mut [u8]]) {
    assert_eq!(matrix.len(), inputs.len() * outputs.len(), "a row of coefficients for each output");
    if let Some(length) = outputs.first().map(|output| output.len()) {
        let is_even =
            inputs.iter().all(|input| input.len() == length) && outputs.iter().all(|output| output.len() == length);
        assert!(is_even, "chunks of a stripe are of one length");
    }
}
