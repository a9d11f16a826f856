//! Errors of calls: an errno, and a message and remedy stored for the calling thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;
use zonda_devices::DriveError;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) errno: Errno,
    pub(crate) message: String,
    pub(crate) remedy: String,
}

thread_local! {
    static LAST: RefCell<Words> = RefCell::default();
}

/// Message and remedy as C strings.
#[derive(Default)]
struct Words {
    message: CString,
    remedy: CString,
}

impl Failure {
    pub(crate) fn new(errno: Errno, message: impl Into<String>, remedy: impl Into<String>) -> Failure {
        Failure { errno, message: message.into(), remedy: remedy.into() }
    }

    /// An invalid argument.
    pub(crate) fn invalid(message: impl Into<String>, remedy: impl Into<String>) -> Failure {
        Failure::new(Errno::INVAL, message, remedy)
    }

    /// A required pointer is NULL.
    pub(crate) fn null(what: &str) -> Failure {
        Failure::invalid(format!("{what} is NULL"), "pass a valid pointer")
    }

    pub(crate) fn of(error: DriveError) -> Failure {
        Failure::new(Errno::IO, error.message, error.help)
    }
}

/// Runs the body of a function of the interface: returns its value, or a negative errno after
/// storing the message. A panic becomes an error, because C cannot unwind.
pub(crate) fn guarded(body: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => of_panic(&*panic),
    };
    -remember(&failure)
}

/// Converts a panic to an error.
pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    Failure::new(
        Errno::NOTRECOVERABLE,
        format!("internal error (a bug in zonda): {text}"),
        "close the namespace, and report it",
    )
}

/// Stores the message for this thread, and returns the errno.
pub(crate) fn remember(failure: &Failure) -> c_int {
    let words = Words { message: c_string(&failure.message), remedy: c_string(&failure.remedy) };
    // The thread-local storage of an exiting thread may be destroyed already.
    let _ = LAST.try_with(|last| last.replace(words));
    failure.errno.raw_os_error()
}

/// The last message, until the next failure in this thread.
pub(crate) fn last_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().message.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The last remedy, until the next failure in this thread.
pub(crate) fn last_remedy() -> *const c_char {
    LAST.try_with(|last| last.borrow().remedy.as_ptr()).unwrap_or(c"".as_ptr())
}

fn c_string(text: &str) -> CString {
    let text: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    CString::new(text).unwrap_or_else(|_| CStr::to_owned(c""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_a_message() {
        assert_eq!(guarded(|| panic!("nothing {}", 7)), -Errno::NOTRECOVERABLE.raw_os_error());
        let words = LAST.with(|last| last.borrow().message.clone());
        assert_eq!(words.to_str().unwrap(), "internal error (a bug in zonda): nothing 7");
    }

    #[test]
    fn messages_belong_to_the_thread_whose_call_failed() {
        guarded(|| Err(Failure::invalid("mine", "do this")));
        std::thread::spawn(|| guarded(|| Err(Failure::invalid("theirs\0", "")))).join().unwrap();
        assert_eq!(LAST.with(|last| last.borrow().message.clone()), c"mine".to_owned());
        assert_eq!(LAST.with(|last| last.borrow().remedy.clone()), c"do this".to_owned());
    }
}
