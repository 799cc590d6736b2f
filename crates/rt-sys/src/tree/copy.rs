//! Copies of directory trees.
//!
//! Nothing here grows with a tree but a list of its directories, and one of its files with several names: no recursion, which
//! would need stack for every level, and three directories open at a time. Sparse files stay sparse, since a file of a terabyte
//! can be all holes.

use crate::error::{Context, Error, Result};
use crate::{bail, disk, fd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    self, AtFlags, FileType, Mode, OFlags, ResolveFlags, SeekFrom, Stat, Timestamps, XattrFlags,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW);
const DIRECTORY: OFlags = FLAGS.union(OFlags::RDONLY).union(OFlags::DIRECTORY);

/// The longest path that the kernel takes, with its end.
const PATH_MAX: usize = libc::PATH_MAX as usize;

/// A directory of the source that was found and made, and is yet to be filled.
struct Directory {
    /// Its path below the one that is copied.
    path: PathBuf,
    /// Its owner and mode.
    stat: Stat,
}

/// What a copy does beside copying.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manner {
    /// Nothing that is mounted in the source or in the target is entered, and what the target has already stays.
    pub around_mounts: bool,
    /// Fifos are made, and times are kept, and the extended attributes of files and directories ([`copy_attributes`]).
    pub whole: bool,
}

/// Copies directories, files and links below `from` to `to`, with owners and modes. A file with several names there has them in the
/// copy, too. Devices, sockets and fifos are left out.
///
/// # Errors
/// What cannot be read or made, named by its path below `from`.
pub fn copy(from: impl AsFd, to: impl AsFd, manner: Manner) -> Result<()> {
    let (from, to) = (from.as_fd(), to.as_fd());
    let mut copying = Copying { to, manner, found: Vec::new(), made: BTreeMap::new() };
    let open = |at, path: &Path| open_below(at, path, manner).map_err(Error::from);
    copying.copy_entries(&open(from, Path::new("."))?, &open(to, Path::new("."))?, None)?;
    // Each directory comes after the one it is in; the list grows meanwhile.
    let mut next = 0;
    while let Some(directory) = copying.found.get(next) {
        let path = directory.path.clone();
        let dirs = open(from, &path).and_then(|source| Ok((source, open(to, &path)?)));
        dirs.and_then(|(source, target)| copying.copy_entries(&source, &target, Some(next)))
            .context(|| path.display())?;
        next += 1;
    }
    // Modes are set at the end: a directory that its owner may not search or write could not have been filled. So are attributes, since
    // what is made in a directory inherits an access list. The inner ones come first, since they could not be reached through such a
    // directory.
    for Directory { path, stat } in copying.found.iter().rev() {
        let source = || open(from, path);
        open(to, path).and_then(|dir| finish(source, &dir, stat, manner)).context(|| path.display())?;
    }
    Ok(())
}

/// Gives what was made and filled owner, attributes and mode of its source.
fn finish<S: AsFd>(
    source: impl FnOnce() -> Result<S>,
    made: &OwnedFd,
    stat: &Stat,
    manner: Manner,
) -> Result<()> {
    // In this order: chown(2) clears the set-user-ID and set-group-ID bits and capabilities, and an access list the latter bit.
    fd::chown_like(made, stat);
    if manner.whole {
        copy_attributes(source()?, made)?;
    }
    fs::fchmod(made, mode_of(stat))?;
    if manner.whole {
        fs::futimens(made, &times_of(stat))?;
    }
    Ok(())
}

/// Opens the directory `path` below `root`. Somebody may replace a directory of the source by a link meanwhile, so no link
/// is followed, and nothing outside `root` is reached (openat2(2), Linux 5.6).
fn open_below(root: BorrowedFd<'_>, path: &Path, manner: Manner) -> Result<OwnedFd, Errno> {
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    resolve.set(ResolveFlags::NO_XDEV, manner.around_mounts);
    fs::openat2(root, path, DIRECTORY, Mode::empty(), resolve)
}

/// A copy that is being made.
struct Copying<'a> {
    to: BorrowedFd<'a>,
    manner: Manner,
    found: Vec<Directory>,
    /// What has been made of files with several names, by device and inode of the source.
    made: BTreeMap<(u64, u64), Made>,
}

/// The first name of a file in the copy.
struct Made {
    /// The number of its directory in [`Copying::found`]; `None` for that of the whole tree.
    dir: Option<usize>,
    name: OsString,
}

impl Copying<'_> {
    /// Copies what is in one directory, which has that number. The directories in it are made empty, and found.
    fn copy_entries(&mut self, from: &OwnedFd, to: &OwnedFd, number: Option<usize>) -> Result<()> {
        let manner = self.manner;
        for entry in fs::Dir::read_from(from)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let stat = match manner.around_mounts {
                false => fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?,
                true => match fd::stat_entry(from, name) {
                    Err(Errno::XDEV) => continue,
                    stat => stat?,
                },
            };
            let made = self.made.get(&key_of(&stat)).filter(|_| stat.st_nlink > 1);
            let copied = match (made, FileType::from_raw_mode(stat.st_mode)) {
                (_, FileType::Directory) => self.make_directory(to, name, stat, number),
                (Some(made), _) => self.link(made, to, name),
                (None, kind) => self.make_file((from, number), to, name, kind, &stat),
            };
            match copied {
                // A mount point that this container has anyway, or a directory that leads to one.
                Err(e) if manner.around_mounts && e.is(libc::EEXIST) && is_of_mount(to, name) => {}
                copied => copied.context(|| Path::new(name).display())?,
            }
        }
        Ok(())
    }

    /// The path of the directory with that number.
    fn path_of(&self, number: Option<usize>) -> &Path {
        number.and_then(|number| self.found.get(number)).map_or(Path::new(""), |found| &found.path)
    }

    fn make_directory(
        &mut self,
        to: &OwnedFd,
        name: &OsStr,
        stat: Stat,
        number: Option<usize>,
    ) -> Result<()> {
        let path = self.path_of(number).join(name);
        if path.as_os_str().len() >= PATH_MAX {
            bail!("a path in it has more than {PATH_MAX} bytes");
        }
        let made = fs::mkdirat(to, name, Mode::RWXU);
        let is_mount = || matches!(fd::stat_entry(to, name), Err(Errno::XDEV));
        if made.is_ok() || self.manner.around_mounts && is_of_mount(to, name) && !is_mount() {
            self.found.push(Directory { path, stat });
        }
        Ok(made?)
    }

    fn make_file(
        &mut self,
        (from, number): (&OwnedFd, Option<usize>),
        to: &OwnedFd,
        name: &OsStr,
        kind: FileType,
        stat: &Stat,
    ) -> Result<()> {
        let owned = |()| fd::chown_entry_like(to, name, stat);
        match kind {
            FileType::Symlink => {
                fs::symlinkat(fs::readlinkat(from, name, Vec::new())?, to, name).map(owned)?;
            }
            FileType::RegularFile => copy_file(from.as_fd(), to.as_fd(), name, self.manner)?,
            FileType::Fifo if self.manner.whole => {
                fs::mknodat(to, name, FileType::Fifo, mode_of(stat), 0).map(owned)?;
            }
            _ => return Ok(()),
        }
        if stat.st_nlink > 1 {
            self.made.insert(key_of(stat), Made { dir: number, name: name.to_owned() });
        }
        Ok(())
    }

    /// Gives what was made another name.
    fn link(&self, made: &Made, to: &OwnedFd, name: &OsStr) -> Result<()> {
        let path = self.path_of(made.dir);
        let shown = || format!("link it to {}", path.join(&made.name).display());
        let here = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let dir = open_below(self.to, here, self.manner).context(shown)?;
        // Without flags, a link is not followed, but gets another name.
        fs::linkat(&dir, &made.name, to, name, AtFlags::empty()).context(shown)
    }
}

/// True where a mount is, or a directory.
fn is_of_mount(to: &OwnedFd, name: &OsStr) -> bool {
    match fd::stat_entry(to, name) {
        Ok(stat) => FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
        Err(e) => e == Errno::XDEV,
    }
}

/// What tells a file from all others.
fn key_of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

fn copy_file(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &OsStr, manner: Manner) -> Result<()> {
    // Without O_NONBLOCK, the open of a fifo that has taken the file's place would wait for a writer for ever.
    let source = fs::openat(from, name, OFlags::RDONLY | OFlags::NONBLOCK | FLAGS, Mode::empty())?;
    let stat = fd::stat(&source)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | FLAGS;
    let file = fs::openat(to, name, create, Mode::RUSR | Mode::WUSR)?;
    copy_content(source.as_fd(), file.as_fd(), stat.st_size as u64)?;
    finish(|| Ok(source.as_fd()), &file, &stat, manner)
}

/// Gives the file or directory `to` the extended attributes of `from` that a program may have set (xattr(7)): not those that say how a
/// file system stores a file, nor the labels that the kernel's security modules give.
///
/// # Errors
/// One could not be read or set: the file system may have none of its kind, or none as long. The error names it.
pub fn copy_attributes(from: impl AsFd, to: impl AsFd) -> Result<()> {
    for (name, value) in disk::xattrs(from.as_fd())?.iter().filter(|(name, _)| is_of_program(name)) {
        fs::fsetxattr(&to, &name[..], value, XattrFlags::empty())
            .context(|| format!("keep its attribute {} (size {})", name.escape_ascii(), value.len()))?;
    }
    Ok(())
}

fn is_of_program(name: &[u8]) -> bool {
    const LABELS: [&[u8]; 4] = [b"security.selinux", b"security.SMACK64", b"security.ima", b"security.evm"];
    let kinds: [&[u8]; 3] = [b"user.", b"security.", b"trusted."];
    ACCESS_LISTS.iter().any(|list| list.as_bytes() == name)
        || kinds.iter().any(|kind| name.starts_with(kind))
            && !LABELS.iter().any(|label| name.starts_with(label))
}

/// Takes the access lists (acl(5)) from a directory, which it may have inherited, and what is made in it would.
///
/// # Errors
/// Those of fremovexattr(2).
pub fn remove_access_lists(dir: impl AsFd) -> Result<()> {
    ACCESS_LISTS.iter().try_for_each(|list| disk::remove_xattr(dir.as_fd(), list.as_bytes()))
}

const ACCESS_LISTS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// Copies the content of a file of `size` bytes to an empty one, and leaves out its holes.
///
/// # Errors
/// Those of ftruncate(2), lseek(2) and sendfile(2).
pub fn copy_content(from: BorrowedFd<'_>, to: BorrowedFd<'_>, size: u64) -> Result<()> {
    // The file has its full size first, as one hole. Only the parts with data are written then.
    fs::ftruncate(to, size)?;
    let mut at = 0;
    while let Some(data) = next_data(from, at, size)? {
        at = data.end;
        copy_range(from, to, data)?;
    }
    Ok(())
}

/// Where the next data of `file` is, from `at` on and below `size` (lseek(2), SEEK_DATA and SEEK_HOLE). A file system that
/// knows nothing of holes shows the whole file as data.
///
/// # Errors
/// Those of lseek(2).
pub fn next_data(file: BorrowedFd<'_>, at: u64, size: u64) -> Result<Option<Range<u64>>, Errno> {
    if at >= size {
        return Ok(None);
    }
    let start = match fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        // Only a hole is left.
        Err(Errno::NXIO) => return Ok(None),
        Err(e) => return Err(e),
    };
    let end = fs::seek(file, SeekFrom::Hole(start))?.min(size);
    Ok((start < end).then_some(start..end))
}

/// Copies a part of a file inside the kernel (sendfile(2)), to the same place.
fn copy_range(from: BorrowedFd<'_>, to: BorrowedFd<'_>, part: Range<u64>) -> Result<(), Errno> {
    fs::seek(to, SeekFrom::Start(part.start))?;
    let mut at = part.start;
    while at < part.end {
        let most = usize::try_from(part.end - at).unwrap_or(usize::MAX);
        match fs::sendfile(to, from, Some(&mut at), most) {
            // The file has become shorter meanwhile.
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn mode_of(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode & 0o7777)
}

fn times_of(stat: &Stat) -> Timestamps {
    let time = |tv_sec, tv_nsec| fs::Timespec { tv_sec, tv_nsec: tv_nsec as _ };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs as files;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    const WHOLE: Manner = Manner { around_mounts: true, whole: true };

    /// A directory with two others, from which and to which is copied.
    fn place(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("rt-copy-{name}-{}", std::process::id()));
        files::create_dir_all(path.join("from")).unwrap();
        files::create_dir(path.join("to")).unwrap();
        path
    }

    fn copy_in(place: &Path, manner: Manner) -> Result<()> {
        let open = |name| files::File::open(place.join(name)).unwrap();
        copy(open("from"), open("to"), manner)
    }

    fn set(path: &Path, name: &str, value: &[u8]) {
        fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
    }

    fn get(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
        let mut value = [0; 256];
        fs::getxattr(path, name, &mut value[..]).map(|n| value[..n].to_vec())
    }

    /// An access list in which uid 0 may read (acl(5), linux/posix_acl_xattr.h).
    fn list() -> Vec<u8> {
        let none = u32::MAX;
        let entries: [(u16, u16, u32); 5] =
            [(1, 6, none), (2, 4, 0), (4, 0, none), (0x10, 4, none), (0x20, 0, none)];
        let entries = entries.iter().flat_map(|(tag, bits, id)| {
            [&tag.to_le_bytes()[..], &bits.to_le_bytes()[..], &id.to_le_bytes()[..]].concat()
        });
        2u32.to_le_bytes().into_iter().chain(entries).collect()
    }

    #[test]
    fn names_of_one_file_stay_names_of_one_file() {
        for manner in [Manner::default(), WHOLE] {
            let place = place(&format!("names-{}", manner.whole));
            let (from, to) = (place.join("from"), place.join("to"));
            files::create_dir_all(from.join("a/b")).unwrap();
            files::write(from.join("a/b/first"), "content").unwrap();
            symlink("nowhere", from.join("link")).unwrap();
            fs::mknodat(fs::CWD, from.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
            for (one, other) in
                [("a/b/first", "second"), ("a/b/first", "a/b/third"), ("link", "a/link"), ("fifo", "a/fifo")]
            {
                files::hard_link(from.join(one), from.join(other)).unwrap();
            }
            files::write(from.join("alone"), "content").unwrap();
            // A directory to which not even its owner may write.
            files::set_permissions(from.join("a/b"), files::Permissions::from_mode(0o500)).unwrap();
            copy_in(&place, manner).unwrap();
            let state = |name: &str| files::symlink_metadata(to.join(name)).unwrap();
            assert_eq!(state("a/b").mode() & 0o777, 0o500);
            for dir in [&from, &to] {
                files::set_permissions(dir.join("a/b"), files::Permissions::from_mode(0o700)).unwrap();
            }
            assert_eq!(state("a/b/first").nlink(), 3);
            assert_eq!(state("a/b/first").ino(), state("second").ino());
            assert_eq!(state("a/b/first").ino(), state("a/b/third").ino());
            assert_eq!(files::read(to.join("second")).unwrap(), b"content");
            assert!(state("link").is_symlink());
            assert_eq!((state("link").nlink(), state("link").ino()), (2, state("a/link").ino()));
            assert_eq!(state("alone").nlink(), 1);
            match manner.whole {
                true => assert_eq!(state("fifo").ino(), state("a/fifo").ino()),
                false => assert!(!to.join("fifo").exists() && !to.join("a/fifo").exists()),
            }
            files::remove_dir_all(place).unwrap();
        }
    }

    #[test]
    fn a_file_that_is_there_stays_and_is_an_error() {
        let place = place("there");
        let (from, to) = (place.join("from"), place.join("to"));
        files::write(from.join("one"), "copied").unwrap();
        files::hard_link(from.join("one"), from.join("other")).unwrap();
        files::write(to.join("one"), "stays").unwrap();
        assert!(copy_in(&place, WHOLE).unwrap_err().is(libc::EEXIST));
        assert_eq!(files::read(to.join("one")).unwrap(), b"stays");
        files::remove_dir_all(place).unwrap();
    }

    #[test]
    fn attributes_are_kept_where_all_is() {
        let place = place("attributes");
        let (from, to) = (place.join("from"), place.join("to"));
        files::create_dir(from.join("dir")).unwrap();
        files::write(from.join("dir/plain"), "").unwrap();
        files::write(from.join("file"), "content").unwrap();
        if fs::setxattr(from.join("file"), "user.none", b"", XattrFlags::empty()) == Err(Errno::OPNOTSUPP) {
            return files::remove_dir_all(place).unwrap();
        }
        set(&from.join("file"), "user.value", b"a\0b\xff");
        fs::setxattr(from.join("file"), &b"user.\xff"[..], b"name", XattrFlags::empty()).unwrap();
        set(&from.join("file"), ACCESS_LISTS[0], &list());
        set(&from.join("dir"), "user.dir", b"1");
        set(&from.join("dir"), ACCESS_LISTS[1], &list());
        // CAP_NET_RAW (linux/capability.h), which only root gives.
        let capability = [[1, 0, 0, 2], [0, 0x20, 0, 0], [0; 4], [0; 4], [0; 4]].concat();
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            set(&from.join("file"), "security.capability", &capability);
        }
        files::set_permissions(from.join("dir"), files::Permissions::from_mode(0o2755)).unwrap();
        copy_in(&place, WHOLE).unwrap();
        let file = to.join("file");
        assert_eq!(get(&file, "user.none"), Ok(vec![]));
        assert_eq!(get(&file, "user.value").as_deref(), Ok(&b"a\0b\xff"[..]));
        let mut value = [0; 4];
        assert_eq!(fs::getxattr(&file, &b"user.\xff"[..], &mut value[..]), Ok(4));
        assert_eq!(get(&file, ACCESS_LISTS[0]), Ok(list()));
        assert_eq!(get(&to.join("dir"), "user.dir").as_deref(), Ok(&b"1"[..]));
        assert_eq!(get(&to.join("dir"), ACCESS_LISTS[1]), Ok(list()));
        if is_root {
            assert_eq!(get(&file, "security.capability"), Ok(capability));
        }
        for name in ["file", "dir"] {
            let [had, has] = [&from, &to].map(|dir| files::metadata(dir.join(name)).unwrap());
            assert_eq!((had.mode(), had.mtime_nsec()), (has.mode(), has.mtime_nsec()), "{name}");
        }
        // It was made before its directory had a list to inherit.
        assert_eq!(get(&to.join("dir/plain"), ACCESS_LISTS[0]), Err(Errno::NODATA));
        files::remove_dir_all(&to).unwrap();
        files::create_dir(&to).unwrap();
        copy_in(&place, Manner::default()).unwrap();
        assert_eq!(get(&file, "user.value"), Err(Errno::NODATA));
        files::remove_dir_all(place).unwrap();
    }

    #[test]
    fn an_attribute_that_cannot_be_kept_is_named() {
        let place = place("refused");
        let file = place.join("from/file");
        files::write(&file, "").unwrap();
        if fs::setxattr(&file, "user.k", b"1", XattrFlags::empty()) == Err(Errno::OPNOTSUPP) {
            return files::remove_dir_all(place).unwrap();
        }
        // No file of procfs has any, and this one its owner may write to.
        let (from, to) = (files::File::open(&file).unwrap(), files::File::open("/proc/self/comm").unwrap());
        let error = copy_attributes(from, to).unwrap_err();
        assert!(error.is(libc::EOPNOTSUPP), "{error}");
        assert!(error.to_string().starts_with("keep its attribute user.k (size 1): "), "{error}");
        files::remove_dir_all(place).unwrap();
    }

    #[test]
    fn what_file_systems_and_security_modules_say_is_not_the_programs() {
        for name in
            ["lustre.lov", "system.nfs4_acl", "btrfs.compression", "security.selinux", "security.SMACK64EXEC"]
        {
            assert!(!is_of_program(name.as_bytes()), "{name}");
        }
        for name in ["user.k", "system.posix_acl_default", "security.capability", "trusted.k"] {
            assert!(is_of_program(name.as_bytes()), "{name}");
        }
    }
}
