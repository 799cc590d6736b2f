//! Words that can name an image, and what of that name somebody else has put into the current directory.
//!
//! In a directory such as /tmp whoever comes first has the names of images. A word counts there only for what nobody but root
//! and the caller can have made. A path is the caller's own choice, whoever owns what it leads to.

use rt_sys::error::{Context, Error, Result};
use rt_sys::{caller, err, fd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// True for a word that can only be a path.
pub fn is_path(word: &OsStr) -> bool {
    let starts = [&b"/"[..], b"./", b"../"];
    word == "." || word == ".." || starts.iter().any(|start| word.as_bytes().starts_with(start))
}

/// True for the name of a file that is an archive of an image, as far as names tell.
pub fn is_archive(name: &str) -> bool {
    [".tar", ".tar.gz", ".tgz", ".tar.zst"].iter().any(|end| name.ends_with(end))
}

/// What a word or another relative path leads to.
#[derive(Debug)]
pub enum There {
    /// Nothing.
    Nothing,
    /// A file of this kind, which nobody but root and the caller can have put there.
    Own(FileType),
    /// What others can have put there, and how. Nothing of it has been opened or asked.
    Foreign(Error),
}

/// Looks at `path`, which is relative, and before that at each directory and link in it.
///
/// # Errors
/// The kernel does not say what is there.
pub fn look(path: &Path) -> Result<There> {
    let here = || "look at the current directory";
    let me = Caller::own();
    let here_stat = fs::stat(".").context(here)?;
    let mut above = here_stat;
    let mut dir: Option<OwnedFd> = None;
    let mut shown = PathBuf::new();
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        shown.push(part);
        let look_at = || format!("look at {}", shown.display());
        if part == Component::CurDir {
            // The current directory, which is only the first part.
            if let Err(e) = me.require_own(&shown, &above, false) {
                return Ok(There::Foreign(e));
            }
            continue;
        }
        let at = dir.as_ref().map_or(fs::CWD, AsFd::as_fd);
        let shared = !caller::is_trusted(above.st_uid) || me.others_can_write(&above);
        let (found, opened) = match entry(at, part, shared) {
            Ok(entry) => entry,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => return Ok(There::Nothing),
            Err(Errno::XDEV) => {
                let text = "a file system is mounted there, in a directory that others can write";
                return Ok(There::Foreign(err!("{}: {text}", shown.display())));
            }
            Err(e) => return Err(e).context(look_at),
        };
        if dir.is_none()
            // Whoever serves a file system says whose its files are, as he likes.
            && let Some(uid) = rt_sys::mount::fuse_owner(Path::new("."), &here_stat).context(here)?
            && !caller::is_trusted(uid)
        {
            return Ok(There::Foreign(err!("{} is on a file system that uid {uid} serves", shown.display())));
        }
        let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
        if let Err(e) = me.require_own(&shown, &found, is_link) {
            return Ok(There::Foreign(e));
        }
        if matches!(part, Component::Normal(_)) && me.others_can_rename(&above) {
            let text = "others can put something else in its place at any time";
            return Ok(There::Foreign(err!("{}: {text}", shown.display())));
        }
        above = found;
        let follow =
            |flags| fs::openat(at, part.as_os_str(), OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty());
        let mut next = opened;
        if is_link {
            let way = fs::readlinkat(at, part.as_os_str(), Vec::new()).context(look_at)?;
            let trusts = |stat: &Stat, is_last: bool| is_last || !me.others_can_rename(stat);
            if let Some(place) = fd::walk(at, Path::new(OsStr::from_bytes(way.to_bytes())), trusts)? {
                let text =
                    format!("it leads through {place}, in which others can put something else at any time");
                return Ok(There::Foreign(err!("{}: {text}", shown.display())));
            }
            let target = match follow(OFlags::empty()) {
                Ok(target) => target,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(There::Own(FileType::Symlink)),
                Err(e) => return Err(e).context(look_at),
            };
            above = rt_sys::mount::owned_stat(&target)?;
            if let Err(e) = me.require_own(&shown, &above, false) {
                return Ok(There::Foreign(e));
            }
            next = Some(target);
        }
        if parts.peek().is_some() && next.is_none() {
            next = match follow(OFlags::NOFOLLOW) {
                Err(Errno::NOENT) => return Ok(There::Nothing),
                opened => Some(opened.context(look_at)?),
            };
        }
        dir = next;
    }
    Ok(There::Own(FileType::from_raw_mode(above.st_mode)))
}

/// The entry `part` of `dir`, itself and no target of it; opened where others can write `dir`: somebody can have mounted a
/// file system there that never answers.
fn entry(dir: impl AsFd, part: Component<'_>, shared: bool) -> Result<(Stat, Option<OwnedFd>), Errno> {
    match part {
        Component::Normal(name) if shared => {
            let opened = fd::open_entry(&dir, name, OFlags::PATH)?;
            Ok((fs::fstat(&opened)?, Some(opened)))
        }
        _ => Ok((fs::statat(&dir, part.as_os_str(), AtFlags::SYMLINK_NOFOLLOW)?, None)),
    }
}

/// The kind of file that `word` names; `None` where nothing is there. A path is the caller's choice, and is followed.
///
/// # Errors
/// Others can have put it there, or the kernel does not say.
pub fn own(word: &Path) -> Result<Option<FileType>> {
    if is_path(word.as_os_str()) {
        return rt_sys::look::kind(word);
    }
    match look(word)? {
        There::Nothing => Ok(None),
        There::Own(kind) => Ok(Some(kind)),
        There::Foreign(e) => Err(refused(word, e)),
    }
}

/// What [`own`] finds, where a word that says itself that a file is meant, by `names_file`, may lead to anybody's.
///
/// # Errors
/// As of [`own`].
pub fn own_or_file(word: &Path, names_file: impl Fn(&str) -> bool) -> Result<Option<FileType>> {
    if word.to_str().is_some_and(names_file) && rt_sys::look::is_file(word)? {
        return Ok(Some(FileType::RegularFile));
    }
    own(word)
}

/// True for a directory with the config of a bundle.
///
/// # Errors
/// As of [`require_own`].
pub fn has_own_config(word: &Path) -> Result<bool> {
    let config = Path::new("config.json");
    require_own(word, config)?;
    rt_sys::look::is_file(word.join(config))
}

/// The first place on the way to the directory `path`, itself among them, at which others can put something else, as it is to be
/// shown; `None` where nobody can.
///
/// # Errors
/// The kernel does not say.
pub fn changeable_by_others(path: &Path) -> Result<Option<String>> {
    let me = Caller::own();
    fd::walk(fs::CWD, path, |dir, _| !me.others_can_rename(dir)).context(|| path.display())
}

/// Refuses what is at `word`, a bundle with the config `config`, where others can have put it there.
///
/// # Errors
/// It is no path, and others than root and the caller own or can write it, its config, a directory between, or a link to one
/// of them.
pub fn require_own(word: &Path, config: &Path) -> Result<()> {
    if is_path(word.as_os_str()) || !is_file_name(config) {
        return own(word).map(drop);
    }
    match look(&word.join(config))? {
        There::Foreign(e) => Err(refused(word, e)),
        _ => Ok(()),
    }
}

fn refused(word: &Path, why: Error) -> Error {
    let shown = word.display();
    let hint = format!("./{shown} is that one, and docker://{shown} the image of that name");
    why.context(shown.to_string()).hint(hint)
}

/// True for the name of a bundle's own config. One that is elsewhere is the caller's choice.
fn is_file_name(config: &Path) -> bool {
    config.components().count() == 1 && config.is_relative()
}

/// Whether the current directory is the bundle of a container, by `config`, under the same conditions. Its id can be meant for
/// an image.
///
/// # Errors
/// The kernel does not say what is there.
pub fn look_here(config: &Path) -> Result<There> {
    look(&if is_file_name(config) { Path::new(".").join(config) } else { ".".into() })
}

/// Says that the current directory is not taken for the bundle of the container `id`.
pub fn refused_here(id: &str, why: Error) -> Error {
    let hint = format!("--bundle . names the bundle that is here, and docker://{id} the image of that name");
    why.context(id.to_owned()).hint(hint)
}

/// Who looks.
#[derive(Clone, Copy)]
struct Caller {
    uid: u32,
    gid: u32,
}

impl Caller {
    /// This process's effective ids.
    fn own() -> Caller {
        Caller { uid: caller::uid(), gid: rustix::process::getegid().as_raw() }
    }

    fn require_own(self, path: &Path, stat: &Stat, is_link: bool) -> Result<()> {
        let what = || match path == Path::new(".") {
            true => "the current directory".into(),
            false => path.display().to_string(),
        };
        if !caller::is_trusted(stat.st_uid) {
            return Err(err!("{} belongs to uid {}", what(), stat.st_uid));
        }
        if !is_link && self.others_can_write(stat) {
            return Err(err!("{} belongs to uid {}, and others can write it", what(), stat.st_uid));
        }
        Ok(())
    }

    /// Where each user has a group of the same number, the usual umask of all but root lets that group write.
    fn others_can_write(self, stat: &Stat) -> bool {
        let is_own_group = stat.st_gid == self.gid && self.gid == self.uid && self.uid != 0;
        stat.st_mode & if is_own_group { 0o002 } else { 0o022 } != 0
    }

    /// True for a directory in which others can rename what is the caller's: what is looked at now is not what is opened then.
    /// In one with the sticky bit they cannot.
    fn others_can_rename(self, dir: &Stat) -> bool {
        let is_others = !caller::is_trusted(dir.st_uid) && !caller::may_be_hosts_root(dir.st_uid);
        is_others || self.others_can_write(dir) && Mode::from_raw_mode(dir.st_mode) & Mode::SVTX != Mode::SVTX
    }
}
