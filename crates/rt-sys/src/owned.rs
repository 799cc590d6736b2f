//! Who can change a file or directory: by its owner, its mode and its access control list.

use crate::error::{Context, Result};
use crate::fd::Seen;
use crate::nfs4_acl::{self, List};
use crate::{bail, caller, disk, fd, mount};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::path::Path;

/// NFS_SUPER_MAGIC (linux/magic.h).
const NFS: u64 = 0x6969;
/// AUTOFS_SUPER_MAGIC (linux/auto_fs.h).
const AUTOMOUNTS: u64 = 0x187;

/// What the kernel knows of an open file that decides who can change it.
#[derive(Debug, Clone, Copy)]
pub struct Owned {
    /// Its state.
    pub stat: Stat,
    is_on_nfs: bool,
}

/// A directory of root's or the caller's, on a way on which others can rename, as below a directory that a group may write to: they can
/// bring something of the caller's there that holds their words, such as an archive that he has unpacked.
#[derive(Debug)]
pub struct AmongOthers {
    /// The directory.
    pub dir: OwnedFd,
    /// When the first directory on the way was made in which others can rename; the outer `None` where there is none, the inner one
    /// where the file system does not say. What is older has been brought below it.
    shared: Option<Option<(i64, u32)>>,
}

impl AmongOthers {
    /// Opens the directory `path`. No link leads there but root's. From the first directory of root's or the caller's on in which others
    /// can rename, all on the way is root's or the caller's, and not older. What lies above is the site's, whoever has it.
    ///
    /// # Errors
    /// Others can have put it or something on the way there, or it is none; those of open(2).
    pub fn open(path: &Path) -> Result<AmongOthers> {
        let (found, shared) = (RefCell::new(None), RefCell::new(None));
        let is_fit = |seen: BorrowedFd<'_>, owned: &Owned, required: bool| -> Result<bool> {
            let is_trusted = caller::is_trusted(owned.stat.st_uid);
            let mut shared = shared.borrow_mut();
            match *shared {
                Some(since) => Ok(is_trusted && !is_older(seen, since)?),
                None => {
                    if is_trusted && owned.strangers_can_rename(seen)? {
                        *shared = Some(disk::born(seen)?);
                    }
                    Ok(is_trusted || !required)
                }
            }
        };
        let place = fd::walk(fs::CWD, path, |seen, owned, what| match what {
            Seen::Directory => is_fit(seen, owned, false),
            // The walk has looked whether it is root's or the caller's.
            Seen::Link => Ok(owned.stat.st_uid != caller::uid() || caller::uid() == 0),
            Seen::End => {
                *found.borrow_mut() = Some(seen.try_clone_to_owned().context(|| path.display())?);
                is_fit(seen, owned, true)
            }
        })?;
        match (place, found.into_inner()) {
            (None, Some(dir)) => Ok(AmongOthers { dir, shared: shared.into_inner() }),
            (None, None) => Err(Errno::NOENT.into()),
            (Some(place), _) => bail!("others can have put {place} there"),
        }
    }

    /// What is in its regular file `name`, of root's or the caller's, that nobody else can write. It has this name alone: others can link
    /// what they may write to.
    ///
    /// # Errors
    /// It is another's, none or older than the first directory in which others can rename; those of open(2) and read(2).
    pub fn read(&self, name: &OsStr) -> Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = fs::openat(&self.dir, name, flags, Mode::empty())?;
        let owned = Owned::of(&file)?;
        if FileType::from_raw_mode(owned.stat.st_mode) != FileType::RegularFile {
            bail!("it is no file");
        }
        if !caller::is_trusted(owned.stat.st_uid) {
            bail!("it is a file of uid {}, and neither root's nor the caller's", owned.stat.st_uid);
        }
        if owned.strangers_can_write(&file)? || owned.stat.st_nlink > 1 {
            bail!("others can write it, or it has another name");
        }
        if let Some(since) = self.shared
            && is_older(file.as_fd(), since)?
        {
            bail!("it is older than the directory in which others can rename");
        }
        fd::read_all(file)
    }
}

/// True where `what` was made before `since`. Where the file system tells no time of birth, nothing is older.
fn is_older(what: BorrowedFd<'_>, since: Option<(i64, u32)>) -> Result<bool> {
    let Some(since) = since else { return Ok(false) };
    Ok(disk::born(what)?.is_some_and(|born| born < since))
}

impl Owned {
    /// The state of an open file, with the owner who can be believed: of what is on a FUSE file system that another user serves it
    /// is that user, who says of each file whose it is, as he likes.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn of(file: impl AsFd) -> Result<Owned> {
        let mut owned = Owned { stat: fd::stat(&file)?, is_on_nfs: false };
        // What is on a disk has the disk's number, and needs no second call.
        if fs::major(owned.stat.st_dev) != 0 {
            return Ok(owned);
        }
        match fd::file_system(&file)? {
            NFS => owned.is_on_nfs = true,
            mount::FUSE => owned.stat.st_uid = mount::believed_owner(&owned.stat)?,
            _ => {}
        }
        Ok(owned)
    }

    /// As [`Owned::of`]; `None` for what is on a FUSE file system that another user serves, which is not asked.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn unless_served(file: impl AsFd) -> Result<Option<Owned>> {
        match mount::others_server(&file, None)? {
            Some(_) => Ok(None),
            None => Self::of(file).map(Some),
        }
    }

    /// The state of an open file, as its file system has it, also another user's.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn as_told(file: impl AsFd) -> Result<Owned> {
        let stat = fd::stat(&file)?;
        let is_on_nfs = fs::major(stat.st_dev) == 0 && fd::file_system(&file)? == NFS;
        Ok(Owned { stat, is_on_nfs })
    }

    /// True where others than the owner can write `file`, whose state this is. Where the members of its group count as the owner,
    /// `trusts_group`, the group's bit is no objection, unless an access control list speaks of other users with it.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn others_can_write(&self, file: impl AsFd, trusts_group: bool) -> Result<bool> {
        let context = || format!("look at the rights of {}", fd::shown(&file));
        let by_mode = match self.stat.st_mode & 0o022 {
            0 => false,
            0o020 if trusts_group => has_posix_acl(&fd::link(&file)).context(context)?,
            _ => true,
        };
        if by_mode || !self.is_on_nfs {
            return Ok(by_mode);
        }
        Ok(match nfs4_acl(&fd::link(&file)).context(context)? {
            Nfs4Acl::None => false,
            Nfs4Acl::Unreadable => true,
            Nfs4Acl::Bytes(bytes) => {
                List::parse(&bytes).is_none_or(|list| list.lets_others_write(caller::uid(), trusts_group))
            }
        })
    }

    /// True where others than the owner and the caller can write `file`. Where each user has a group of the same number, the usual
    /// umask of all but root lets that group write.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn strangers_can_write(&self, file: impl AsFd) -> Result<bool> {
        if self.stat.st_mode & 0o022 == 0 && !self.is_on_nfs {
            return Ok(false);
        }
        let (uid, gid) = (caller::uid(), rustix::process::getegid().as_raw());
        self.others_can_write(file, self.stat.st_gid == gid && gid == uid && uid != 0)
    }

    /// True for a directory in which others than root and the caller can rename what is the caller's: what is looked at now is not
    /// what is opened then. In one with the sticky bit they cannot.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn strangers_can_rename(&self, dir: impl AsFd) -> Result<bool> {
        let is_others = !caller::is_trusted(self.stat.st_uid) && !caller::may_be_hosts_root(self.stat.st_uid);
        let is_sticky = Mode::from_raw_mode(self.stat.st_mode).contains(Mode::SVTX);
        Ok(is_others || !is_sticky && self.strangers_can_write(dir)?)
    }
}

/// True for a file of which an access control list says more than its mode does about who may read and write it: one that names
/// somebody, or cannot be read.
///
/// # Errors
/// The kernel does not say.
pub fn has_acl(path: &Path) -> Result<bool> {
    let context = || format!("look at the rights of {}", path.display());
    let file = fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).context(context)?;
    let link = fd::link(&file);
    if has_posix_acl(&link).context(context)? {
        return Ok(true);
    }
    if !Owned::as_told(&file)?.is_on_nfs {
        return Ok(false);
    }
    Ok(match nfs4_acl(&link).context(context)? {
        Nfs4Acl::None => false,
        Nfs4Acl::Unreadable => true,
        Nfs4Acl::Bytes(bytes) => List::parse(&bytes).is_none_or(|list| list.says_more_than_a_mode()),
    })
}

/// The first place on the way to `path` that others than root and the caller can change or have made, or can put something else in:
/// a directory, or a link. What `path` leads to is not looked at. `None` where there is none, also where nothing is there.
///
/// In a user namespace the host's root looks like everybody else who has no id there. So a link of his counts in `/` alone.
///
/// # Errors
/// The kernel does not say.
pub fn strangers_place(path: &Path) -> Result<Option<String>> {
    first_not_own(path, |_, _| Ok(true))
}

/// The same for a directory, which is looked at, too: it has to be root's or the caller's, and nobody else can write in it.
///
/// # Errors
/// The kernel does not say.
pub fn strangers_directory(path: &Path) -> Result<Option<String>> {
    let is_mounted = Cell::new(false);
    let first = || {
        first_not_own(path, |dir, owned| {
            is_mounted.set(fs::major(owned.stat.st_dev) != 0 || fd::file_system(dir)? != AUTOMOUNTS);
            Ok(caller::is_trusted(owned.stat.st_uid) && !owned.strangers_can_write(dir)?)
        })
    };
    // What another user serves is not opened.
    let found = first()?;
    if found.is_some() || is_mounted.get() {
        return Ok(found);
    }
    // Has an automounter mount it.
    let _ = fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    first()
}

fn first_not_own(
    path: &Path,
    trusts_end: impl Fn(BorrowedFd<'_>, &Owned) -> Result<bool>,
) -> Result<Option<String>> {
    fd::walk_unserved(fs::CWD, path, |seen, owned, what| match what {
        Seen::End => trusts_end(seen, owned),
        _ => is_on_own_way(seen, owned, what),
    })
    .context(|| path.display())
}

/// True for a directory on a way in which nobody but root and the caller can rename, and for a link that nobody else has made.
fn is_on_own_way(seen: BorrowedFd<'_>, owned: &Owned, what: Seen) -> Result<bool> {
    match what {
        Seen::End => Ok(true),
        Seen::Directory => Ok(!owned.strangers_can_rename(seen)?),
        Seen::Link => {
            Ok(caller::is_trusted(owned.stat.st_uid) || fd::path_of(seen)?.parent() == Some(Path::new("/")))
        }
    }
}

/// As [`strangers_place`], of what is there alone; `None` where nothing is.
fn strangers_place_if_there(path: &Path) -> Result<Option<Option<String>>> {
    let (place, is_there) = (RefCell::new(None), Cell::new(false));
    let served = fd::walk_unserved(fs::CWD, path, |seen, owned, what| {
        is_there.set(what == Seen::End);
        if place.borrow().is_none() && !is_on_own_way(seen, owned, what)? {
            *place.borrow_mut() = Some(fd::shown(seen));
        }
        Ok(true)
    });
    match served.context(|| path.display())? {
        None if !is_there.get() => Ok(None),
        served => Ok(Some(place.into_inner().or(served))),
    }
}

/// What is at a path of the user's configuration.
#[derive(Debug)]
pub enum Own {
    /// Nothing.
    Missing,
    /// What somebody else than root and the caller can have put there, and why that may be.
    Strangers(String),
    /// A file or directory of root's or the caller's, which is open. Others may be able to write it.
    Opened(OwnedFd, Owned),
}

/// Opens `path`, a file or directory of the user's configuration. HOME and the variables beside it can be another user's, after su(1)
/// for instance, so it counts who can have put it there, and every link on the way. What another user serves is not asked. One call
/// where the kernel remembers that nothing is there.
///
/// # Errors
/// The kernel does not say, or it is not for the caller to read.
pub fn open(path: &Path, flags: OFlags) -> Result<Own> {
    let how = OFlags::PATH | OFlags::CLOEXEC;
    if let Err(Errno::NOENT | Errno::NOTDIR) =
        fs::openat2(fs::CWD, path, how, Mode::empty(), ResolveFlags::CACHED)
    {
        return Ok(Own::Missing);
    }
    let Some(strangers) = strangers_place_if_there(path)? else { return Ok(Own::Missing) };
    if let Some(place) = strangers {
        return Ok(Own::Strangers(format!("others than root and the caller can change {place}")));
    }
    // A fifo would be waited for, and a terminal would become the controlling one.
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Own::Missing),
        file => file?,
    };
    let owned = Owned::of(&file)?;
    if !caller::is_trusted(owned.stat.st_uid) {
        let uid = owned.stat.st_uid;
        return Ok(Own::Strangers(format!("it belongs to uid {uid}, neither to root nor to the caller")));
    }
    Ok(Own::Opened(file, owned))
}

/// True for a file with an access control list (acl(5)): the bits of its mode for the group are then what anybody who is named in the
/// list may do at most.
fn has_posix_acl(path: &str) -> Result<bool, Errno> {
    match fs::getxattr(path, "system.posix_acl_access", &mut [0u8; 0][..]) {
        Ok(_) => Ok(true),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(e) => Err(e),
    }
}

/// What a server says.
enum Nfs4Acl {
    /// It has no lists: NFS 3, and servers that have modes only.
    None,
    /// A list that is not for the caller, or too long for an attribute.
    Unreadable,
    Bytes(Vec<u8>),
}

fn nfs4_acl(path: &str) -> Result<Nfs4Acl, Errno> {
    // As long as an attribute can be (xattr(7)).
    let mut bytes = vec![0u8; 64 << 10];
    match fs::getxattr(path, nfs4_acl::NAME, &mut bytes[..]) {
        Ok(length) => {
            bytes.truncate(length);
            Ok(Nfs4Acl::Bytes(bytes))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(Nfs4Acl::None),
        Err(Errno::ACCESS | Errno::PERM | Errno::RANGE) => Ok(Nfs4Acl::Unreadable),
        Err(e) => Err(e),
    }
}
