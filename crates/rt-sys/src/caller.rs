//! Who calls, as far as it decides what a config may ask for.

use crate::caps;
use crate::error::Result;
use crate::ns::{self, IdMaps};
use std::path::PathBuf;

/// The three kinds of callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any uid but 0, and uid 0 without CAP_SYS_ADMIN, as in an ordinary container: one id can be mapped, nothing else is
    /// allowed.
    Unprivileged,
    /// uid 0 of a user namespace that somebody made: podman, rootlesskit.
    NamespaceRoot,
    /// uid 0 of the initial user namespace.
    Root,
}

/// The directory that the variable `name` of the environment names.
pub fn dir(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// The same, but for root only one of root's: after su or sudo HOME may still be that of a user, who must not choose what
/// root reads.
pub fn own_dir(name: &str) -> Option<PathBuf> {
    let dir = dir(name)?;
    let others =
        rustix::process::geteuid().is_root() && rustix::fs::stat(&dir).is_ok_and(|stat| stat.st_uid != 0);
    (!others).then_some(dir)
}

/// Who calls.
#[derive(Clone, Debug)]
pub struct Caller {
    /// What the caller may do.
    pub kind: Kind,
    /// Effective uid.
    pub uid: u32,
    /// Effective gid.
    pub gid: u32,
    /// The ids of the caller's user namespace; empty where unprivileged, when nobody needs them.
    pub maps: IdMaps,
}

impl Caller {
    /// Asks the kernel.
    pub fn current() -> Result<Self> {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        if uid != 0 || !caps::may_administer()? {
            return Ok(Caller { kind: Kind::Unprivileged, uid, gid, maps: IdMaps::default() });
        }
        let maps = ns::own_maps()?;
        let kind = if ns::is_initial(&maps) { Kind::Root } else { Kind::NamespaceRoot };
        Ok(Caller { kind, uid, gid, maps })
    }

    /// True for those who can do nothing without a user namespace of their own.
    pub fn is_unprivileged(&self) -> bool {
        self.kind == Kind::Unprivileged
    }
}
