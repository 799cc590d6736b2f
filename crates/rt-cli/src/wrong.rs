//! The texts for command lines that are wrong: those that people know from other programs. The hooks, whose small command
//! lines have a parser of their own, use the same ones.

pub use rt_sys::nearest::nearest;

use crate::habits::Hint;
use rt_sys::err;
use rt_sys::error::Error;
use std::ffi::OsStr;

/// The text for a command that does not exist, with what `habit` says of it, the nearest of `known`, or else `listed`,
/// which says where they are listed.
pub fn unknown_command<'a>(
    name: &OsStr,
    habit: Option<Hint>,
    known: impl IntoIterator<Item = &'a str>,
    listed: &str,
) -> Error {
    let error = err!("unknown command {name:?}");
    meant(&error, habit, || nearest(name, known)).unwrap_or_else(|| error.hint(listed))
}

/// The text for a flag that does not exist. `flag` has its dashes and no value, and so has each of `known`. `habit` is what
/// is known of it elsewhere.
pub fn unknown_flag<'a>(
    flag: &OsStr,
    habit: Option<Hint>,
    known: impl IntoIterator<Item = &'a str>,
) -> Error {
    let error = err!("unknown flag {}", flag.display());
    meant(&error, habit, || nearest(flag, known)).unwrap_or(error)
}

/// `error` with what was probably meant; none where nobody knows.
pub(crate) fn meant<'a>(
    error: &Error,
    habit: Option<Hint>,
    near: impl FnOnce() -> Option<&'a str>,
) -> Option<Error> {
    match habit {
        Some(Hint::Because(why)) => Some(err!("{error} ({why})")),
        Some(Hint::Meant(ours)) => Some(err!("{error}; did you mean {ours}?")),
        None => near().map(|near| err!("{error}; did you mean {near}?")),
    }
}

/// The text for a flag behind which the command line ends.
pub fn without_value(flag: &OsStr) -> Error {
    err!("flag {} needs a value", flag.display())
}

/// The text for a flag with a value that it does not take; `takes` says what it does.
pub fn invalid_value(flag: &OsStr, value: &OsStr, takes: &str) -> Error {
    err!("invalid value {value:?} for flag {}: it takes {takes}", flag.display())
}
