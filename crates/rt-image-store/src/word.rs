//! Words that can name an image, and what of that name somebody else has put into the current directory.
//!
//! In a directory such as /tmp whoever comes first has the names of images. A word counts there only for what nobody but root
//! and the caller can have made. A path is the caller's own choice, whoever owns what it leads to.

use rt_sys::error::{Context, Error, Result};
use rt_sys::fd::{self, Seen};
use rt_sys::owned::Owned;
use rt_sys::{caller, err, mount};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// How a file is opened that is looked at, and nothing else.
const ENTRY: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

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
    let mut dir = fs::open(".", ENTRY, Mode::empty()).context(here)?;
    // It is the caller's choice to be here, also with somebody who serves it.
    let mut above = Owned::of(&dir)?;
    // The file system of which it is known that nobody else serves it.
    let mut unserved = None;
    let mut shown = PathBuf::new();
    for part in path.components() {
        shown.push(part);
        let look_at = || format!("look at {}", shown.display());
        if part == Component::CurDir {
            // The current directory, which is only the first part.
            if let Some(why) = why_not_own(&shown, &dir, &above, false)? {
                return Ok(There::Foreign(why));
            }
            continue;
        }
        let is_shared = !caller::is_trusted(above.stat.st_uid) || above.strangers_can_write(&dir)?;
        let found = match entry(&dir, part, is_shared) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => return Ok(There::Nothing),
            Err(Errno::XDEV) => {
                let text = "a file system is mounted there, in a directory that others can write";
                return Ok(There::Foreign(err!("{}: {text}", shown.display())));
            }
            Err(e) => return Err(e).context(look_at),
        };
        // Whoever serves a file system says whose its files are, as he likes, or nothing.
        if let Some(server) = mount::others_server(&found, unserved)? {
            return Ok(There::Foreign(err!("{} is on a file system that {server} serves", shown.display())));
        }
        let owned = Owned::of(&found)?;
        unserved = Some(owned.stat.st_dev);
        let is_link = FileType::from_raw_mode(owned.stat.st_mode) == FileType::Symlink;
        if let Some(why) = why_not_own(&shown, &found, &owned, is_link)? {
            return Ok(There::Foreign(why));
        }
        if matches!(part, Component::Normal(_)) && above.strangers_can_rename(&dir)? {
            let text = "others can put something else in its place at any time";
            return Ok(There::Foreign(err!("{}: {text}", shown.display())));
        }
        if !is_link {
            (above, dir) = (owned, found);
            continue;
        }
        let way = fs::readlinkat(&found, "", Vec::new()).context(look_at)?;
        let trusts = |dir: BorrowedFd<'_>, owned: &Owned, what| match what {
            Seen::Directory => Ok(!owned.strangers_can_rename(dir)?),
            Seen::Link | Seen::End => Ok(true),
        };
        if let Some(place) = fd::walk_unserved(&dir, Path::new(OsStr::from_bytes(way.to_bytes())), trusts)? {
            let text =
                format!("it leads through {place}, in which others can put something else at any time");
            return Ok(There::Foreign(err!("{}: {text}", shown.display())));
        }
        let target = match fs::openat(&dir, part.as_os_str(), ENTRY, Mode::empty()) {
            Ok(target) => target,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(There::Own(FileType::Symlink)),
            Err(e) => return Err(e).context(look_at),
        };
        let Some(end) = Owned::unless_served(&target)? else {
            return Ok(There::Foreign(err!("{}: it leads to what another user serves", shown.display())));
        };
        (above, unserved) = (end, Some(end.stat.st_dev));
        if let Some(why) = why_not_own(&shown, &target, &above, false)? {
            return Ok(There::Foreign(why));
        }
        dir = target;
    }
    Ok(There::Own(FileType::from_raw_mode(above.stat.st_mode)))
}

/// Opens the entry `part` of `dir`, itself and no target of it. In a directory that is shared, somebody can have mounted a file
/// system there that never answers.
fn entry(dir: &OwnedFd, part: Component<'_>, is_shared: bool) -> Result<OwnedFd, Errno> {
    match part {
        Component::Normal(name) if is_shared => fd::open_entry(dir, name, OFlags::PATH),
        _ => fs::openat(dir, part.as_os_str(), ENTRY | OFlags::NOFOLLOW, Mode::empty()),
    }
}

/// The kind of file that `word` names; `None` where nothing is there. A path is the caller's choice, and is followed.
///
/// # Errors
/// Others can have put it there, or the kernel does not say.
pub fn own(word: &Path) -> Result<Option<FileType>> {
    if is_path(word.as_os_str()) {
        return rt_sys::look::kind_unserved(word);
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
    if word.to_str().is_some_and(names_file) && rt_sys::look::is_file_unserved(word)? {
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
    rt_sys::look::is_file_unserved(word.join(config))
}

/// The first place on the way to the directory `path`, itself among them, at which others can put something else, as it is to be
/// shown; `None` where nobody can.
///
/// # Errors
/// The kernel does not say.
pub fn changeable_by_others(path: &Path) -> Result<Option<String>> {
    let trusts = |seen: BorrowedFd<'_>, owned: &Owned, what| {
        Ok(what == Seen::Link || !owned.strangers_can_rename(seen)?)
    };
    fd::walk(fs::CWD, path, trusts).context(|| path.display())
}

/// The directory for temporary files (TMPDIR, else /tmp), for what is found again by its path.
///
/// # Errors
/// Others can rename what is in it, or the kernel does not say.
pub fn temporary_directory() -> Result<PathBuf> {
    let dir = caller::path("TMPDIR").unwrap_or_else(|| "/tmp".into());
    match changeable_by_others(&dir)? {
        None => Ok(dir),
        Some(place) => Err(err!("TMPDIR: others can rename what is in {place}")
            .hint("TMPDIR names a directory that nobody else can write, or one such as /tmp")),
    }
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
    let hint =
        format!("--bundle \"$PWD\" names the bundle that is here, and docker://{id} the image of that name");
    why.context(id.to_owned()).hint(hint)
}

/// Why a file with this state is not the caller's or root's own; none where it is.
fn why_not_own(path: &Path, file: impl AsFd, owned: &Owned, is_link: bool) -> Result<Option<Error>> {
    let what = || match path == Path::new(".") {
        true => "the current directory".into(),
        false => path.display().to_string(),
    };
    let uid = owned.stat.st_uid;
    if !caller::is_trusted(uid) {
        return Ok(Some(err!("{} belongs to uid {uid}", what())));
    }
    if !is_link && owned.strangers_can_write(file)? {
        return Ok(Some(err!("{} belongs to uid {uid}, and others can write it", what())));
    }
    Ok(None)
}
