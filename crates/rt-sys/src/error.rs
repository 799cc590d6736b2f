//! One error type whose text reads "doing what: why", outermost step first.
//!
//! Code that has to decide looks at the [`Kind`] or the errno(3) value of an error, never at its text.
//!
//! System error texts are the C library's with a lower-case first letter ("no such file or
//! directory"): podman, containerd, docker and CRI-O match them case-sensitively.

use std::fmt;

/// The result of everything that can fail in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What an error is to the code that has to decide by it. Most errors are only told, so most are [`Kind::Other`]; what
/// a system call said is in [`Error::errno`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// Nothing is decided by it.
    #[default]
    Other,
    /// The work was asked to stop, by a signal or because another part of it failed. It is never the cause.
    Interrupted,
    /// Bytes are not those that their digest or their size promises. To try the same bytes again is no use.
    Damaged,
}

/// An error as the user reads it, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Empty where `errno` says it all: its text is looked up when somebody reads it, for most errors of system
    /// calls are answers that were asked for.
    text: String,
    errno: Option<i32>,
    kind: Kind,
}

impl Error {
    /// An error that no system call caused.
    pub fn new(text: impl Into<String>) -> Self {
        Error { text: text.into(), errno: None, kind: Kind::Other }
    }

    /// This error, as one of `kind`.
    pub fn of_kind(self, kind: Kind) -> Self {
        Error { kind, ..self }
    }

    /// What it is to code that decides; context and hints do not change it.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The error of a system call, by its positive errno(3) value.
    pub fn from_errno(errno: i32) -> Self {
        Error { text: String::new(), errno: Some(errno), kind: Kind::Other }
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
        Error { text: format!("{doing}: {self}"), ..self }
    }

    /// Appends what the user can do about it.
    pub fn hint(self, remedy: impl fmt::Display) -> Self {
        Error { text: format!("{self} ({remedy})"), ..self }
    }

    /// An error whose text is not that of its errno, or that was received from another process. A kind is not among the
    /// parts: only the process in which an error arises decides by its kind.
    pub fn from_parts(text: String, errno: Option<i32>) -> Self {
        Error { text, errno, kind: Kind::Other }
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

/// An error of this type that was carried through a reader or writer, as [`std::io::Error::other`] does, comes out as
/// it went in.
impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        match e.raw_os_error() {
            Some(errno) => Error::from_errno(errno),
            None => e.downcast().unwrap_or_else(|e| Error::new(e.to_string())),
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

    #[test]
    fn kinds_outlast_context_and_readers() {
        let e = Error::new("wrong").of_kind(Kind::Damaged).context("blob").hint("fetch it again");
        assert_eq!((e.kind(), e.errno()), (Kind::Damaged, None));
        let through = Error::from(std::io::Error::other(e.clone()));
        assert_eq!(through, e);
        assert_eq!(Error::from(std::io::Error::other("text")).to_string(), "text");
        assert_eq!(Error::from_errno(libc::EIO).kind(), Kind::Other);
        assert!(size_of::<Error>() <= 40, "errors of system calls are common");
    }
}
