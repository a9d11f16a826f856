//! ISA-L's functions, loaded at run time. The only module with unsafe code.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// The soname of every ISA-L 2.x.
const NAME: &CStr = c"libisal.so.2";
/// Bytes of the expanded tables for each coefficient (`erasure_code.h`: `gftbls` must be of size 32 *
/// k * rows).
const TABLE_BYTES: usize = 32;
/// Bytes of each chunk in one call: its length is an `int`.
const CALL_BYTES: usize = 1 << 30;
/// Chunks of one call, inputs and outputs each.
const CHUNKS_MAX: usize = zonda_erasure::limits::CHUNKS_MAX;

/// `dlfcn.h`: find all symbols now.
const RTLD_NOW: c_int = 2;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// `void ec_init_tables(int k, int rows, unsigned char *a, unsigned char *gftbls)`
type InitTables = unsafe extern "C" fn(c_int, c_int, *const u8, *mut u8);
/// `void ec_encode_data(int len, int k, int rows, unsigned char *gftbls, unsigned char **data, unsigned char **coding)`
type EncodeData = unsafe extern "C" fn(c_int, c_int, c_int, *const u8, *const *const u8, *const *mut u8);

/// The functions of the library, which stays loaded as long as the program runs.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    init_tables: InitTables,
    encode_data: EncodeData,
}

/// A matrix in the format of the library.
#[derive(Debug)]
pub(crate) struct Tables {
    inputs: usize,
    outputs: usize,
    bytes: Vec<u8>,
}

impl Library {
    /// The library, if it is installed.
    pub(crate) fn load() -> Option<Library> {
        static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
        *LIBRARY.get_or_init(|| Library::open(NAME))
    }

    fn open(name: &CStr) -> Option<Library> {
        // SAFETY: the name ends with a zero. When it is loaded, ISA-L only selects functions by
        // CPUID.
        let library = unsafe { dlopen(name.as_ptr(), RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let symbol = |name: &CStr| {
            // SAFETY: the handle is that of a library that was opened and is never closed; the name
            // ends with a zero.
            let symbol = unsafe { dlsym(library, name.as_ptr()) };
            (!symbol.is_null()).then_some(symbol)
        };
        let (init_tables, encode_data) = (symbol(c"ec_init_tables")?, symbol(c"ec_encode_data")?);
        // SAFETY: the function of this name has this signature in `erasure_code.h`, which all
        // versions of the library with its name share. `*const` stands for what the library only
        // reads.
        let init_tables = unsafe { std::mem::transmute::<*mut c_void, InitTables>(init_tables) };
        // SAFETY: as above.
        let encode_data = unsafe { std::mem::transmute::<*mut c_void, EncodeData>(encode_data) };
        Some(Library { init_tables, encode_data })
    }

    /// Expands a matrix with a row of `inputs` coefficients for each output.
    pub(crate) fn tables(&self, matrix: &[u8], inputs: usize) -> Tables {
        let outputs = matrix.len() / inputs;
        assert!((1..=CHUNKS_MAX).contains(&inputs) && (1..=CHUNKS_MAX).contains(&outputs));
        assert_eq!(matrix.len(), inputs * outputs);
        let mut bytes = vec![0; TABLE_BYTES * matrix.len()];
        // SAFETY: the function reads k * rows bytes of the matrix and writes 32 * k * rows bytes of
        // tables; both are there.
        unsafe { (self.init_tables)(inputs as c_int, outputs as c_int, matrix.as_ptr(), bytes.as_mut_ptr()) };
        Tables { inputs, outputs, bytes }
    }

    /// Computes the outputs from the inputs. All have the same length.
    pub(crate) fn multiply(&self, tables: &Tables, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(inputs.len() == tables.inputs && outputs.len() == tables.outputs);
        let length = inputs[0].len();
        assert!(inputs.iter().all(|input| input.len() == length));
        assert!(outputs.iter().all(|output| output.len() == length));
        let mut sources = [std::ptr::null(); CHUNKS_MAX];
        let mut targets = [std::ptr::null_mut(); CHUNKS_MAX];
        for from in (0..length).step_by(CALL_BYTES) {
            let to = length.min(from + CALL_BYTES);
            sources.iter_mut().zip(inputs).for_each(|(source, input)| *source = input[from..to].as_ptr());
            targets.iter_mut().zip(&mut *outputs).for_each(|(target, output)| *target = output[from..to].as_mut_ptr());
            // SAFETY: there are k sources and `rows` targets of `to - from` bytes each, and 32 * k *
            // rows bytes of tables, as just asserted. The function reads sources and tables and
            // writes targets, of any alignment, and keeps none of the pointers. Targets are
            // exclusive borrows, so none overlaps another chunk.
            unsafe {
                (self.encode_data)(
                    (to - from) as c_int,
                    tables.inputs as c_int,
                    tables.outputs as c_int,
                    tables.bytes.as_ptr(),
                    sources.as_ptr(),
                    targets.as_ptr(),
                );
            }
            clear_upper_registers();
        }
    }
}

/// Clears the upper parts of vector registers: after a call of ISA-L 2.30 this reduces the time of
/// a small product from 392 to some 90 ns, presumably because the program's own SSE instructions no
/// longer have to preserve their contents.
fn clear_upper_registers() {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx")]
        fn clear() {
            std::arch::x86_64::_mm256_zeroupper();
        }
        if std::arch::is_x86_feature_detected!("avx") {
            // SAFETY: the processor has AVX.
            unsafe { clear() };
        }
    }
}

impl Tables {
    /// Coefficients of a row.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_or_one_without_the_functions_is_none() {
        assert!(Library::open(c"libno-such-thing.so.2").is_none());
        assert!(Library::open(c"libc.so.6").is_none());
    }
}
