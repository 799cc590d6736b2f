//! What can be wrong with a file.

use std::{fmt, io};

/// The result of reading a file.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a file cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Its bytes could not be had.
    Io(io::Error),
    /// It is something else than what it was read as.
    OtherFormat(&'static str),
    /// It contradicts itself, is cut off, or goes beyond a bound; the text says where.
    Malformed(String),
}

impl Error {
    pub(crate) fn malformed(text: impl Into<String>) -> Self {
        Error::Malformed(text.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(e) => e.fmt(f),
            Error::OtherFormat(text) => f.write_str(text),
            Error::Malformed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(e) => Some(e),
            Error::OtherFormat(_) | Error::Malformed(_) => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Self {
        Error::Io(e)
    }
}
