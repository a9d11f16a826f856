//! The guest shared by all tests of a program.

use std::sync::{Mutex, PoisonError};

use crate::guest::Guest;

/// Memory of a guest, in MiB; and of one with its own target, whose disks are in its memory.
const MEMORY_MIB: u32 = 1024;
const KERNEL_TARGET_MEMORY_MIB: u32 = 1536;

/// The guest between two scenes.
static SHARED: Mutex<Option<Guest>> = Mutex::new(None);

/// A guest for one scene. Dropped, it is available for the next one, unless a test panicked in it,
/// or its kernel served a scene: then it is not reused.
#[derive(Debug)]
pub(crate) struct GuestLease {
    guest: Option<Guest>,
    is_zonda: bool,
}

impl GuestLease {
    /// The shared guest, or a new one that starts to boot.
    pub(crate) fn take(is_zonda: bool) -> GuestLease {
        let shared = if is_zonda { SHARED.lock().unwrap_or_else(PoisonError::into_inner).take() } else { None };
        GuestLease { guest: Some(shared.unwrap_or_else(|| boot(is_zonda))), is_zonda }
    }

    /// No guest yet: it is booted when needed.
    pub(crate) fn none(is_zonda: bool) -> GuestLease {
        GuestLease { guest: None, is_zonda }
    }

    /// Runs a closure with the guest. If it panics, the guest is turned off.
    pub(crate) fn with<T>(&mut self, run: impl FnOnce(&mut Guest) -> T) -> T {
        let mut guest = self.guest.take().unwrap_or_else(|| boot(self.is_zonda));
        let result = run(&mut guest);
        self.guest = Some(guest);
        result
    }
}

impl Drop for GuestLease {
    fn drop(&mut self) {
        if let (true, Some(guest)) = (self.is_zonda, self.guest.take()) {
            *SHARED.lock().unwrap_or_else(PoisonError::into_inner) = Some(guest);
        }
    }
}

/// Starts a guest.
pub(crate) fn boot(is_zonda: bool) -> Guest {
    Guest::boot(if is_zonda { MEMORY_MIB } else { KERNEL_TARGET_MEMORY_MIB })
}
