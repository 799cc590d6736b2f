//! Why a section cannot be compiled.

use std::fmt;

/// The result of compiling.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a section cannot be compiled: one line that begins with the place in the config, such as
/// `linux.seccomp.syscalls[3]: errno 5000: the highest is 4095`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    pub(crate) fn new(text: String) -> Self {
        Error(text)
    }

    /// This error with the place where it was found in front.
    pub(crate) fn at(self, place: impl fmt::Display) -> Self {
        Error(format!("{place}: {}", self.0))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Returns from the function with an [`Error`] made from format arguments.
macro_rules! bail {
    ($($arg:tt)*) => { return Err($crate::error::Error::new(format!($($arg)*))) };
}
pub(crate) use bail;
