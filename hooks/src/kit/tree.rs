//! A tree of files as hooks look at it: the host's root, another driver's, or a container's.
//!
//! Every path is resolved inside the tree, links too.

use ld_so_cache::LD_CACHE;
use ld_so_cache::elf::{Elf, ReadAt};
use ld_so_cache::symbols::Symbols;
use rt_sys::bail;
use rt_sys::error::{Context, Result};
use rt_sys::fd::path_of;
use rt_sys::rootfs::open_in;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat, Statx, StatxFlags};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The most bytes of a file that are read. A large ld.so.cache has some 100 KB.
const MOST: usize = 16 << 20;
/// The most paths that are looked at, with other work counted as looks, see [`Tree::pay`]. A program may name thousands of
/// libraries and directories to search each of them in; a large one has some hundred of both.
const MOST_LOOKS: u32 = 1 << 20;
/// The most bytes that are read of libraries and lists of names, and kept of them. An image without an ld.so.cache may have
/// some thousand libraries, of each of which some 50 KB are read.
const MOST_BYTES: u64 = 512 << 20;
/// The most names of a directory that are read.
const MOST_NAMES: usize = 1 << 17;
/// The names of a directory that are listed in the time of one look.
const NAMES_A_LOOK: usize = 16;

/// The libraries that have been read, by device and inode, because each library has several names.
type Elfs = HashMap<(u64, u64), Option<Rc<Elf>>>;

/// The symbols of libraries that have been read, by device and inode.
type AllSymbols = HashMap<(u64, u64), Option<Rc<Symbols>>>;

/// A root directory and what is below it.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    path: PathBuf,
    /// See [`Tree::shown`].
    shown: OnceCell<Option<PathBuf>>,
    elfs: RefCell<Elfs>,
    symbols: RefCell<AllSymbols>,
    ld_cache: OnceCell<Option<Vec<u8>>>,
    /// How many paths may still be looked at.
    looks: Cell<u32>,
    /// How many bytes may still be read and kept.
    bytes: Cell<u64>,
}

/// A file of a tree whose bytes count.
struct Counted<'a> {
    file: &'a File,
    left: &'a Cell<u64>,
}

impl ReadAt for Counted<'_> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> ld_so_cache::Result<usize> {
        if self.left.get() == 0 {
            return Ok(0);
        }
        let read = self.file.read_at(offset, buffer)?;
        self.left.set(self.left.get().saturating_sub(read as u64));
        Ok(read)
    }
}

impl Tree {
    /// Opens the tree at `path`.
    pub fn open(path: &Path) -> Result<Tree> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(path, flags, Mode::empty()).context(|| format!("open {}", path.display()))?;
        Ok(Tree::of(root, path))
    }

    /// The tree whose directory `root` is, and `path` leads to it.
    pub fn of(root: OwnedFd, path: &Path) -> Tree {
        let (elfs, symbols) = (RefCell::default(), RefCell::default());
        let (shown, ld_cache) = (OnceCell::new(), OnceCell::new());
        let (looks, bytes) = (Cell::new(MOST_LOOKS), Cell::new(MOST_BYTES));
        Tree { root, path: path.to_owned(), shown, elfs, symbols, ld_cache, looks, bytes }
    }

    /// Where the tree is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `result`, which counts only where it did not take more looks at these trees than any honest image makes necessary.
    ///
    /// # Errors
    /// There were too many, or as much other work, see [`Tree::pay`]; what would have been found by more is not known.
    pub fn within_bounds<T>(trees: [&Tree; 2], result: Result<T>) -> Result<T> {
        if trees.iter().any(|tree| tree.looks.get() == 0) {
            bail!(
                "the image makes the hook look for too much: more than {MOST_LOOKS} paths, or as much other work"
            );
        }
        if trees.iter().any(|tree| tree.bytes.get() == 0) {
            bail!(
                "the image makes the hook look for too much: more than {} MiB of libraries",
                MOST_BYTES >> 20
            );
        }
        result
    }

    /// Counts what is kept in memory.
    fn keep(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes as u64));
    }

    /// Counts work that takes about as long as `looks` looks at a path. False where nothing is left.
    pub fn pay(&self, looks: usize) -> bool {
        let looks = u32::try_from(looks).unwrap_or(u32::MAX);
        self.looks.set(self.looks.get().saturating_sub(looks));
        !self.is_used_up()
    }

    /// True where no work is left. A search ends then, because [`Tree::within_bounds`] refuses whatever it finds.
    pub fn is_used_up(&self) -> bool {
        self.looks.get() == 0 || self.bytes.get() == 0
    }

    /// Opens what `path` leads to in the tree; nothing where it cannot be had.
    fn look(&self, path: &Path, flags: OFlags) -> Option<OwnedFd> {
        if !self.pay(1) {
            return None;
        }
        open_in(self.root.as_fd(), path, flags).ok()
    }

    /// Opens `path` for reading if it is a regular file. Those of procfs and sysfs say that they are.
    pub fn file(&self, path: impl AsRef<Path>) -> Option<File> {
        self.file_and_stat(path.as_ref()).map(|(file, _)| file)
    }

    fn file_and_stat(&self, path: &Path) -> Option<(File, Stat)> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.look(path, flags)?;
        let stat = fs::fstat(&file).ok()?;
        (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| (File::from(file), stat))
    }

    /// What the dynamic loader sees of the library at `path`; `None` where that is none. A file is read once, by
    /// whatever names it is asked for.
    pub fn elf(&self, path: impl AsRef<Path>) -> Option<Rc<Elf>> {
        let (file, stat) = self.file_and_stat(path.as_ref())?;
        let mut elfs = self.elfs.borrow_mut();
        let read = || {
            let elf = Elf::read(&Counted { file: &file, left: &self.bytes }).ok()?;
            let texts = elf.needed.iter().chain(&elf.defines).chain(&elf.rpath).chain(&elf.runpath);
            let requires = elf.requires.iter().map(|need| need.library.len() + need.version.len());
            self.keep(texts.map(String::len).chain(requires).sum());
            Some(Rc::new(elf))
        };
        elfs.entry((stat.st_dev, stat.st_ino)).or_insert_with(read).clone()
    }

    /// The dynamic symbols of the library or program at `path`, read once; `None` where it is none.
    pub fn symbols(&self, path: impl AsRef<Path>) -> Option<Rc<Symbols>> {
        let (file, stat) = self.file_and_stat(path.as_ref())?;
        let mut symbols = self.symbols.borrow_mut();
        let read = || Symbols::read(&Counted { file: &file, left: &self.bytes }).ok().map(Rc::new);
        symbols.entry((stat.st_dev, stat.st_ino)).or_insert_with(read).clone()
    }

    /// The contents of [`LD_CACHE`], read once.
    pub fn ld_cache(&self) -> Option<&[u8]> {
        self.ld_cache.get_or_init(|| self.read(LD_CACHE)).as_deref()
    }

    /// The contents of a file; `None` where it is missing, no regular file, unreadable, or absurdly large.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let (file, stat) = self.file_and_stat(path.as_ref())?;
        // procfs says that its files have 0 bytes, and sysfs a page. With one byte of room more than the file has, the
        // read that meets its end needs no larger buffer.
        let mut bytes = Vec::with_capacity((stat.st_size as usize).clamp(4095, MOST) + 1);
        loop {
            match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes)) {
                Ok(0) => return Some(bytes),
                Ok(_) if bytes.len() > MOST => return None,
                Ok(_) if bytes.len() < bytes.capacity() => {}
                Ok(_) => bytes.reserve(bytes.len()),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// A file as text, without white space around it; `None` as of [`Tree::read`].
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(String::from_utf8_lossy(&self.read(path)?).trim().to_owned())
    }

    /// The names in a directory, sorted; none where there is no such directory.
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let Some(dir) = self.look(path.as_ref(), flags) else { return Vec::new() };
        let Ok(dir) = fs::Dir::new(dir) else { return Vec::new() };
        let mut names: Vec<String> = dir
            .filter_map(|entry| {
                let name = OsStr::from_bytes(entry.ok()?.file_name().to_bytes()).to_str()?.to_owned();
                (name != "." && name != "..").then_some(name)
            })
            .take(MOST_NAMES)
            .collect();
        if names.len() == MOST_NAMES {
            // What is not seen is not known.
            self.looks.set(0);
        }
        self.keep(names.iter().map(String::len).sum());
        if !self.pay(names.len() / NAMES_A_LOOK) {
            return Vec::new();
        }
        names.sort_unstable();
        names
    }

    /// What `path` leads to, if anything.
    pub fn stat(&self, path: impl AsRef<Path>) -> Option<Stat> {
        fs::fstat(self.look(path.as_ref(), OFlags::PATH)?).ok()
    }

    /// True where `path` leads to something.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.look(path.as_ref(), OFlags::PATH).is_some()
    }

    /// True where `path` leads to a directory.
    pub fn has_dir(&self, path: impl AsRef<Path>) -> bool {
        self.stat(path).is_some_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory)
    }

    /// What statx(2) says of the directory at `path`, with its mount; `None` where there is none, or a link.
    pub fn directory(&self, path: impl AsRef<Path>) -> Option<Statx> {
        let dir = self.look(path.as_ref(), OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY)?;
        fs::statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()
    }

    /// The text of the link at `path`, if it is one.
    pub fn link(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let path = path.as_ref();
        let dir = self.look(path.parent()?, OFlags::PATH)?;
        let target = fs::readlinkat(dir, path.file_name()?, Vec::new()).ok()?;
        Some(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
    }

    /// Where `path` leads to, without links, as a path in the tree.
    pub fn real(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let path = path.as_ref();
        let found = self.look(path, OFlags::PATH)?;
        Some(Path::new("/").join(path_of(&found).ok()?.strip_prefix(self.shown()?).ok()?))
    }

    /// The root's path as the kernel knows it, without links.
    pub fn shown(&self) -> Option<&Path> {
        self.shown.get_or_init(|| path_of(&self.root).ok()).as_deref()
    }

    /// The last name of the link at `path`: how sysfs says to which device or driver something belongs.
    pub fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(self.link(path)?.file_name()?.to_str()?.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        let dir = std::env::temp_dir().join(format!("rt-tree-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("etc")).unwrap();
        std::fs::write(dir.join("etc/name"), "inside\n").unwrap();
        std::os::unix::fs::symlink("/etc/name", dir.join("link")).unwrap();
        let tree = Tree::open(&dir).unwrap();
        assert_eq!(tree.text("/link").as_deref(), Some("inside"));
        assert_eq!(tree.real("/link").as_deref(), Some(Path::new("/etc/name")));
        assert_eq!(tree.link("/link").as_deref(), Some(Path::new("/etc/name")));
        assert_eq!(tree.list("/"), ["etc", "link"]);
        assert!(tree.has_dir("/etc") && !tree.has("/etc/passwd") && tree.read("/etc").is_none());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
