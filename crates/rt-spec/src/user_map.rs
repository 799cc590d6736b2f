//! The word that says which id the caller has inside a container.

use rt_sys::bail;
use rt_sys::error::Result;

/// Which id the caller has inside the container (annotation `rt.user`, `--user-map`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserMap {
    /// The caller's own uid and gid, mapped to themselves.
    Caller,
    /// Root.
    Root,
    /// What `process.user` says.
    Config,
}

impl UserMap {
    /// The word that [`parse_user_map`] takes.
    pub fn as_str(self) -> &'static str {
        match self {
            UserMap::Caller => "caller",
            UserMap::Root => "root",
            UserMap::Config => "config",
        }
    }
}

/// Reads the word of `--user-map` and of the annotation `rt.user`.
///
/// # Errors
/// Another word than those three.
pub fn parse_user_map(word: &str) -> Result<UserMap> {
    Ok(match word {
        "caller" => UserMap::Caller,
        "root" => UserMap::Root,
        "config" => UserMap::Config,
        _ => bail!("user map {word:?} is none of caller, root and config"),
    })
}
