//! Who calls, as far as this decides what a config may ask for.

use crate::error::{Context, Result};
use crate::ns::{self, IdMaps};
use crate::{account, caps, owned};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

/// What a caller may do: the three kinds that a config is checked and adapted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Any uid but 0, and uid 0 without CAP_SYS_ADMIN, as in an ordinary container: it can do nothing without a user
    /// namespace of its own, and can map only its own id there.
    Unprivileged,
    /// uid 0 of a user namespace that a client (podman, rootlesskit) has made.
    NamespaceRoot,
    /// uid 0 of the initial user namespace.
    Root,
}

/// Names of variables of this process's environment that an image has set.
static OF_IMAGE: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// The effective uid.
pub fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// True for root and this process's own uid: whom this process takes files from.
pub fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == self::uid()
}

/// True where `uid` can be that of the host's root: in a user namespace all who are not mapped there have this one number
/// (user_namespaces(7)), and he is one of them. Whose namespace it is must be known, else nobody is taken for him.
pub fn may_be_hosts_root(uid: u32) -> bool {
    const NOBODY: u32 = 65534;
    uid == NOBODY && ns::own_maps().is_ok_and(|maps| !ns::is_initial(&maps))
}

/// From now on, [`variable`] and [`path`] know none of `names`: Slurm has started this process with variables of an image
/// among its own.
pub fn leave_out_variables(names: impl IntoIterator<Item = String>) {
    OF_IMAGE.write().unwrap_or_else(PoisonError::into_inner).extend(names);
}

fn is_of_image(name: &str) -> bool {
    OF_IMAGE.read().unwrap_or_else(PoisonError::into_inner).iter().any(|known| known == name)
}

/// The variables of this process's environment, as its caller has set them, `NAME=VALUE` each. Those that are not UTF-8 are
/// left out.
pub fn variables() -> impl Iterator<Item = String> {
    std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        (!is_of_image(&name)).then(|| format!("{name}={value}"))
    })
}

/// The variable `name` of this process's environment, as its caller has set it. One that is empty, or not UTF-8, is none.
pub fn said(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty() && !is_of_image(name))
}

/// What passwd(5) says for HOME, USER and LOGNAME.
pub fn by_account(name: &str) -> Option<String> {
    account::variable(name)
}

/// The value of a variable that [`said`] knows, or else, for HOME, USER and LOGNAME, [`by_account`]: a job of `sbatch --export=NONE` has none of them.
pub fn variable(name: &str) -> Option<String> {
    said(name).or_else(|| by_account(name))
}

/// The path that the variable `name` of the environment names. An empty variable names none. HOME is never without a value
/// where passwd(5) has one.
pub fn path(name: &str) -> Option<PathBuf> {
    let said = std::env::var_os(name).filter(|path| !path.is_empty() && !is_of_image(name));
    said.map(PathBuf::from).or_else(|| by_account(name).map(PathBuf::from))
}

/// The directory that the variable `name` names, if the caller may trust it: one in which nobody but root and the caller can have put
/// something, or can exchange it on the way. After su or sudo, HOME may still be that of another user, who must not choose what is
/// read. Any other one is left out.
///
/// # Errors
/// The kernel does not say whose the directory is.
pub fn own_dir(name: &str) -> Result<Option<PathBuf>> {
    let Some(dir) = path(name) else { return Ok(None) };
    match owned::strangers_directory(&dir) {
        Ok(None) => Ok(Some(dir)),
        Ok(Some(place)) => {
            warn_of(name, &place);
            // Where the namespace cannot be read, it is not known who was refused, and that is no "no".
            ns::own_maps().map(|_| None)
        }
        // A file server that does not know root refuses to say: it is nothing of root's.
        Err(e) if e.is(libc::EACCES) && uid() == 0 => Ok(None),
        Err(e) => Err(e).context(|| format!("look at {}, which {name} names", dir.display())),
    }
}

/// Says once that the directory of a variable does not count: several parts of a call ask for it. Root, whose HOME is mostly that of
/// the user before su or sudo, is not told.
fn warn_of(name: &str, place: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if uid() != 0 && !SAID.swap(true, Ordering::Relaxed) {
        log::warn!("{name}: others than root and the caller can change {place}, so it does not count");
    }
}

/// The directory of the user's configuration files, if the caller may trust it ([`own_dir`]).
///
/// # Errors
/// As of [`own_dir`].
pub fn own_config_home() -> Result<Option<PathBuf>> {
    match own_dir("XDG_CONFIG_HOME")? {
        Some(config) => Ok(Some(config)),
        None => Ok(own_dir("HOME")?.map(|home| home.join(".config"))),
    }
}

/// The directory of the user's configuration files, by what `variable` says of the environment.
pub fn config_home(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let config = variable("XDG_CONFIG_HOME").filter(|dir| dir.is_absolute());
    let config = config.or_else(|| variable("HOME").map(|home| home.join(".config")));
    config.filter(|dir| dir.is_absolute())
}

/// Who calls.
#[derive(Clone, Debug)]
pub struct Caller {
    /// What the caller may do.
    pub privilege: Privilege,
    /// Effective uid.
    pub uid: u32,
    /// Effective gid.
    pub gid: u32,
    /// The ids of the caller's user namespace. Empty for an unprivileged caller: nothing depends on them there.
    pub maps: IdMaps,
}

impl Caller {
    /// The caller of this process, as the kernel knows it.
    pub fn current() -> Result<Self> {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        if uid != 0 || !caps::may_administer()? {
            return Ok(Caller { privilege: Privilege::Unprivileged, uid, gid, maps: IdMaps::default() });
        }
        let maps = ns::own_maps()?;
        let privilege = if ns::is_initial(&maps) { Privilege::Root } else { Privilege::NamespaceRoot };
        Ok(Caller { privilege, uid, gid, maps })
    }

    /// True where the caller's uid is that of the first user namespace's root, whatever it may do and whatever number it has
    /// in the caller's namespace: the files in which the kernel keeps its settings are his in every namespace below, and
    /// stat(2) tells the owner in the caller's own numbers.
    ///
    /// # Errors
    /// The kernel does not say whose its settings are.
    pub fn has_hosts_root_uid(&self) -> Result<bool> {
        const SETTINGS: &str = "/proc/sys/kernel";
        if self.privilege == Privilege::Root {
            return Ok(true);
        }
        match rustix::fs::stat(SETTINGS) {
            // A /proc that has processes only (proc(5), subset=pid).
            Err(Errno::NOENT) => Ok(self.uid == 0),
            stat => Ok(stat.context(|| format!("stat {SETTINGS}"))?.st_uid == self.uid),
        }
    }

    /// True for those who can do nothing without a user namespace of their own.
    pub fn is_unprivileged(&self) -> bool {
        self.privilege == Privilege::Unprivileged
    }
}
