//! Where a store is: the default places, and what makes a directory fit to be one.

use rt_sys::bail;
use rt_sys::error::{Context, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Who has chosen the path of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chosen {
    /// The caller, by `--root`: the path may lead through links, and an unusable one is an error.
    ByCaller,
    /// This module ([`default_roots`]): an unusable path is passed over.
    ByDefault,
}

/// The places of a store that nobody has named, best first. A tmpfs is wanted: records mean nothing after a reboot.
pub(super) fn default_roots() -> impl Iterator<Item = PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let maps = if uid == 0 { rt_sys::ns::own_maps().ok() } else { None };
    let system = maps.as_ref().filter(|maps| rt_sys::ns::is_initial(maps)).map(|_| PathBuf::from("/run/rt"));
    let users: &[(&str, &str)] = match system {
        Some(_) => &[],
        None => &[("/run/user/", "/rt"), ("/dev/shm/rt-", ""), ("/tmp/rt-", "")],
    };
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime_dir =
        runtime_dir.filter(|dir| !users.is_empty() && dir.is_absolute()).map(|dir| dir.join("rt"));
    let users = users.iter().map(move |(before, after)| PathBuf::from(format!("{before}{uid}{after}")));
    // Users who are uid 0 of a user namespace each share the names above; the first of them has taken those.
    let host = maps.filter(|_| system.is_none()).and_then(|maps| Some(maps.uid.first()?.host));
    let nested = host.map(|host| PathBuf::from(format!("/tmp/rt-{uid}-of-{host}")));
    system.into_iter().chain(runtime_dir).chain(users).chain(nested)
}

/// Opens a store's directory after checking that nobody else can have put something into it. `None` where it
/// does not exist, or is not usable and was not asked for by name.
pub(super) fn open_root(path: &Path, chosen: Chosen) -> Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // In /tmp every user can make a link of this name.
    let required = chosen == Chosen::ByCaller;
    let flags = if required { flags } else { flags | OFlags::NOFOLLOW };
    let dir = match fs::open(path, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(None),
        Err(_) if !required => return Ok(None),
        Err(e) => return Err(e).context(|| format!("open the state directory {}", path.display())),
    };
    let stat = fs::fstat(&dir)?;
    let me = rustix::process::geteuid().as_raw();
    if stat.st_uid != me || stat.st_mode & 0o022 != 0 {
        if !required {
            return Ok(None);
        }
        bail!(
            "the state directory {} must belong to uid {me} and be writable by nobody else",
            path.display()
        );
    }
    Ok(Some(dir))
}
