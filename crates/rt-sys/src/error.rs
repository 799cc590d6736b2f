//! One error type whose text reads "doing what: why", outermost step first.
//!
//! System error texts are the C library's with a lower-case first letter ("no such file or
//! directory"): podman, containerd, docker and CRI-O match them case-sensitively.

use std::fmt;

/// The result of everything that can fail in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error as the user reads it, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Empty where `errno` says it all: its text is looked up when somebody reads it, for most errors of system
    /// calls are answers that were asked for.
    text: String,
    errno: Option<i32>,
}

impl Error {
    /// An error that no system call caused.
    pub fn new(text: impl Into<String>) -> Self {
        Error { text: text.into(), errno: None }
    }

    /// The error of a system call, by its positive errno(3) value.
    pub fn from_errno(errno: i32) -> Self {
        Error { text: String::new(), errno: Some(errno) }
    }

    /// The errno(3) value of the system call at the root of this error, if there was one.
    pub fn errno(&self) -> Option<i32> {
        self.errno
    }

    /// True when the root cause is this errno(3) value.
    pub fn is(&self, errno: i32) -> bool {
        self.errno == Some(errno)
    }

    /// Puts the step that failed in front of the text.
    pub fn context(self, doing: impl fmt::Display) -> Self {
        Error { text: format!("{doing}: {self}"), errno: self.errno }
    }

    /// Appends what the user can do about it.
    pub fn hint(self, remedy: impl fmt::Display) -> Self {
        Error { text: format!("{self} ({remedy})"), errno: self.errno }
    }

    /// An error received from another process, rebuilt from its parts.
    pub fn from_parts(text: String, errno: Option<i32>) -> Self {
        Error { text, errno }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errno {
            Some(errno) if self.text.is_empty() => f.write_str(&errno_text(errno)),
            _ => f.write_str(&self.text),
        }
    }
}

impl std::error::Error for Error {}

impl From<rustix::io::Errno> for Error {
    fn from(e: rustix::io::Errno) -> Self {
        Error::from_errno(e.raw_os_error())
    }
}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        match e.raw_os_error() {
            Some(errno) => Error::from_errno(errno),
            None => Error::new(e.to_string()),
        }
    }
}

/// Adds the failing step to an error; the closure runs only on failure.
pub trait Context<T> {
    /// `self`, with `doing` in front of its error text.
    fn context<D: fmt::Display>(self, doing: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for Result<T, E> {
    fn context<D: fmt::Display>(self, doing: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|e| e.into().context(doing()))
    }
}

/// An [`Error`] from format arguments.
#[macro_export]
macro_rules! err {
    ($($arg:tt)*) => { $crate::error::Error::new(format!($($arg)*)) };
}

/// Returns from the function with an [`Error`] made from format arguments.
#[macro_export]
macro_rules! bail {
    ($($arg:tt)*) => { return Err($crate::err!($($arg)*)) };
}

/// The C library's text for `errno`, first letter lower case, without a number.
pub fn errno_text(errno: i32) -> String {
    let full = std::io::Error::from_raw_os_error(errno).to_string();
    let text = full.strip_suffix(&format!(" (os error {errno})")).unwrap_or(&full);
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => full,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_what_clients_match() {
        assert_eq!(errno_text(libc::ENOENT), "no such file or directory");
        assert_eq!(errno_text(libc::EACCES), "permission denied");
        assert_eq!(errno_text(libc::EPERM), "operation not permitted");
        let e = Error::from_errno(libc::ENOENT).context("stat /x").context("exec: \"/x\"");
        assert_eq!(e.to_string(), "exec: \"/x\": stat /x: no such file or directory");
        assert_eq!(e.errno(), Some(libc::ENOENT));
    }
}
