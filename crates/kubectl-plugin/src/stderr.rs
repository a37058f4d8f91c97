//! What is told beside what was asked for.

use std::fmt;
use std::io::{self, Write as _};

/// In place of the standard one, which ends the program when nobody reads stderr any more: what is under way is worth more than what
/// is said about it.
macro_rules! eprintln {
    ($($what:tt)*) => { $crate::stderr::tell(format_args!($($what)*)) };
}

/// Says it in a line, if anybody hears it.
pub(crate) fn tell(what: fmt::Arguments<'_>) {
    // All at once, so that lines of several programs do not mix.
    _ = io::stderr().lock().write_all(format!("{what}\n").as_bytes());
}
