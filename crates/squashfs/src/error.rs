//! What is wrong with an image: what kind of fault, in which of its structures, and at which byte.

use std::borrow::Cow;
use std::fmt;
use std::io;

/// The result of everything that reads an image.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What an error is to the code that has to decide by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The bytes are not those of a squashfs.
    NotSquashfs,
    /// It is a squashfs with something that this reader does not know, such as an older version.
    Unsupported,
    /// The image contradicts itself: it is damaged, cut off, or made to deceive.
    Damaged,
    /// A value is sound, but larger than this reader allows.
    TooLarge,
    /// The file could not be read; errno(3), where there was one.
    Io(Option<i32>),
}

/// An error: in which structure, at which byte of the image, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    what: &'static str,
    at: u64,
    why: Cow<'static, str>,
}

impl Error {
    pub(crate) fn new(kind: Kind, what: &'static str, at: u64, why: impl Into<Cow<'static, str>>) -> Self {
        Error { kind, what, at, why: why.into() }
    }

    pub(crate) fn damaged(what: &'static str, at: u64, why: impl Into<Cow<'static, str>>) -> Self {
        Error::new(Kind::Damaged, what, at, why)
    }

    pub(crate) fn too_large(what: &'static str, at: u64, found: u64, most: u64) -> Self {
        Error::new(Kind::TooLarge, what, at, format!("{found} is more than {most}"))
    }

    pub(crate) fn io(what: &'static str, at: u64, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::damaged(what, at, "the image is cut off here"),
            _ => Error::new(Kind::Io(error.raw_os_error()), what, at, error.to_string()),
        }
    }

    /// What it is to code that decides.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The structure of the image that is wrong.
    pub fn what(&self) -> &'static str {
        self.what
    }

    /// The offset of that structure in the image, in bytes.
    pub fn at(&self) -> u64 {
        self.at
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::NotSquashfs => f.write_str(&self.why),
            _ => write!(f, "{} at byte {:#x}: {}", self.what, self.at, self.why),
        }
    }
}

impl std::error::Error for Error {}
