//! COPY and ADD: files of the context, of another stage or of an image, into a stage.
//!
//! Every path is resolved by the kernel in the root that it belongs to (openat2(2), RESOLVE_IN_ROOT), and below a source each
//! name is opened in the directory that was opened before, through no link. What is copied is hashed twice: for the key,
//! and while it is copied, so what changes in between is an error.

use std::fs::{File, Metadata};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use dockerfile::Chmod;
use dockerfile::glob::{self, Pattern, Rules};
use dockerfile::ignore::{Ignore, clean};
use dockerfile::include::Include;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::inflate;
use oci_content::digest::{Digest, Hasher};
use oci_content::interrupt::Interrupt;
use oci_layer::owner::{self, Owner};
use oci_layer::tar::{self, EntryKind, Header, Reader};
use oci_layer::{decode, merge};
use rt_sys::error::{Context, Error, Result};
use rt_sys::owner::{Device, OWNER_RECORD, OwnerRecord};
use rt_sys::rootfs::{open_in, open_in_unmounted, open_in_unserved};
use rt_sys::{bail, disk, err, fd, tree};

/// Where sources are.
pub(super) struct Origin<'a> {
    /// No path leads out of it.
    pub root: BorrowedFd<'a>,
    /// Nor to what is mounted in it.
    pub is_one_mount: bool,
    /// What is as if it were not there.
    pub ignore: &'a Ignore,
    /// What is left out of a source, by its path there; of a source that is a file, by its name.
    pub exclude: &'a Ignore,
    /// What it is, for errors.
    pub shown: &'a str,
    /// Files keep their owners. In the context these are whoever has made them, and mean nothing in an image.
    pub keeps_owners: bool,
}

/// What is copied, by its path in the origin's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Without a slash at its beginning.
    pub path: String,
    /// The same without the links that it leads over.
    at: String,
    /// It is a directory.
    pub is_dir: bool,
    /// What of the directory is copied, by its path there; all of it where none is said.
    pub only: Option<Include>,
}

impl Found {
    /// A file, or a directory with all that is in it.
    pub(super) fn whole(path: String, is_dir: bool) -> Found {
        Found { at: path.clone(), path, is_dir, only: None }
    }
}

impl Origin<'_> {
    /// True where the entry `relative` of a source is left out.
    fn leaves_out(&self, found: &Found, relative: &str) -> bool {
        self.ignore.excludes(&join(&found.at, relative))
            || self.exclude.excludes(relative)
            || found.only.as_ref().is_some_and(|only| !only.takes(relative))
    }

    /// True where something below a directory of a source, which is left out itself, may be in.
    fn may_take_below(&self, found: &Found, relative: &str) -> bool {
        let excluded = self.ignore.excludes(&join(&found.at, relative)) || self.exclude.excludes(relative);
        (!excluded || !self.excludes_all_below())
            && found.only.as_ref().is_none_or(|only| only.takes(relative) || only.leads_through(relative))
    }

    /// True where nothing below an excluded directory can be in.
    fn excludes_all_below(&self) -> bool {
        !self.ignore.has_exceptions() && !self.exclude.has_exceptions()
    }

    fn open(&self, path: &str, flags: OFlags) -> Result<Option<OwnedFd>> {
        let open = if self.is_one_mount { open_in_unmounted } else { open_in_unserved };
        match open(self.root, Path::new(path), flags) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(Errno::XDEV) if self.is_one_mount => {
                Err(err!("{path:?} in {}: {}", self.shown, super::mount::NOTHING))
            }
            Err(e) => Err(fd::unserved_error(e).context(format!("open {path:?} in {}", self.shown))),
        }
    }

    /// What a source stands for. A pattern may stand for nothing, and a name may not.
    pub(super) fn find(&self, source: &str, interrupt: &Interrupt) -> Result<Vec<Found>> {
        let mut found = self.find_all(source, interrupt)?;
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        found.retain(|found| found.is_dir || !self.exclude.excludes(&name(&found.path)));
        Ok(found)
    }

    /// What a source of COPY --parents stands for: the part of it behind `/./` below each directory that the part before it
    /// stands for, or all of it below the root.
    pub(super) fn find_with_parents(&self, source: &str, interrupt: &Interrupt) -> Result<Vec<Found>> {
        let (pivot, below) = source.split_once("/./").unwrap_or(("", source));
        let below = clean(below);
        let only = match below.is_empty() {
            true => None,
            false => Some(Include::new(&below).map_err(Error::new)?),
        };
        let mut all = Vec::new();
        for found in self.find_all(pivot, interrupt)? {
            if !found.is_dir {
                bail!("{:?}: no directory in {}", found.path, self.shown);
            }
            let found = Found { only: only.clone(), ..found };
            if found.only.is_none() || self.has_any(&found, interrupt)? {
                all.push(found);
            }
        }
        if all.is_empty() && !glob::is_pattern(source) {
            bail!("{source:?}: not found in {}", self.shown);
        }
        Ok(all)
    }

    /// True where anything of a source is in.
    fn has_any(&self, found: &Found, interrupt: &Interrupt) -> Result<bool> {
        let mut any = false;
        self.walk(found, interrupt, &mut |_| {
            any = true;
            Ok(())
        })?;
        Ok(any)
    }

    /// True where .dockerignore leaves `found` in, or something of it.
    fn is_in(&self, found: &Found, interrupt: &Interrupt) -> Result<bool> {
        match found.at.is_empty() || !self.ignore.excludes(&found.at) {
            true => Ok(true),
            false => Ok(found.is_dir && !self.excludes_all_below() && self.has_any(found, interrupt)?),
        }
    }

    /// What is at `path`, whose links are followed; `None` where .dockerignore leaves it out, or something on the way to it: that is
    /// not there, and a link to it leads to nothing.
    fn look(&self, path: String, is_dir: bool, interrupt: &Interrupt) -> Result<Option<Found>> {
        let mut found = Found::whole(path, is_dir);
        if self.ignore.is_empty() {
            return Ok(Some(found));
        }
        let parts = |path: &str| path.split('/').rev().map(str::to_owned).collect::<Vec<_>>();
        // What is still to be gone, the next part last.
        let (mut rest, mut at, mut links) = (parts(&found.path), String::new(), MOST_LINKS);
        while let Some(part) = rest.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    if !self.is_in(&Found::whole(at.clone(), true), interrupt)? {
                        return Ok(None);
                    }
                    at.truncate(at.rfind('/').unwrap_or(0));
                    continue;
                }
                _ => at = join(&at, &part),
            }
            let Some(fd) = self.open(&at, OFlags::PATH | OFlags::NOFOLLOW)? else { return Ok(None) };
            if FileType::from_raw_mode(fd::stat(&fd)?.st_mode) != FileType::Symlink {
                continue;
            }
            if links == 0 || self.ignore.excludes(&at) {
                return Ok(None);
            }
            links -= 1;
            let target = String::from_utf8(disk::read_link(fd.as_fd())?)
                .map_err(|_| err!("{at:?} in {}: a link that is not UTF-8", self.shown))?;
            at.truncate(if target.starts_with('/') { 0 } else { at.rfind('/').unwrap_or(0) });
            rest.append(&mut parts(&target));
        }
        found.at = at;
        Ok(self.is_in(&found, interrupt)?.then_some(found))
    }

    fn find_all(&self, source: &str, interrupt: &Interrupt) -> Result<Vec<Found>> {
        let path = clean(source);
        if !glob::is_pattern(&path) {
            let Some(fd) = self.open(&path, OFlags::PATH)? else {
                bail!("{source:?}: not found in {}", self.shown)
            };
            let Some(found) = self.look(path, is_dir(&fd)?, interrupt)? else {
                return Err(err!("{source:?}: left out of {}", self.shown).hint(".dockerignore excludes it"));
            };
            return Ok(vec![found]);
        }
        let mut paths = vec![String::new()];
        for part in path.split('/') {
            let pattern = Pattern::new(part, Rules::Path).map_err(Error::new)?;
            let mut next = Vec::new();
            for dir in paths {
                let Some(fd) = self.open(&dir, OFlags::PATH | OFlags::DIRECTORY)? else { continue };
                let mut names: Vec<_> =
                    disk::entries(fd.as_fd())?.into_iter().map(|(name, _)| name).collect();
                names.sort();
                let names = names.into_iter().filter_map(|name| String::from_utf8(name).ok());
                next.extend(names.filter(|name| pattern.matches(name)).map(|name| join(&dir, &name)));
            }
            paths = next;
        }
        let mut found = Vec::new();
        for path in paths {
            let Some(fd) = self.open(&path, OFlags::PATH)? else { continue };
            found.extend(self.look(path, is_dir(&fd)?, interrupt)?);
        }
        Ok(found)
    }

    /// Goes through what `found` is: each directory before what is in it, names in their order. A directory that is left out
    /// comes only where something in it does.
    fn walk(
        &self,
        found: &Found,
        interrupt: &Interrupt,
        visit: &mut dyn FnMut(&mut Item) -> Result<()>,
    ) -> Result<()> {
        let shown = |path: &str| format!("{path:?} in {}", self.shown);
        let top =
            self.open(&found.at, OFlags::PATH)?.ok_or_else(|| err!("{}: has gone", shown(&found.path)))?;
        if !found.is_dir {
            let any = File::from(top);
            // What a link at the end of the path led to, which the kernel has kept in the root.
            let reopen = || -> Result<File> {
                let fd = rustix::fs::open(fd::link(&any), READ, rustix::fs::Mode::empty())?;
                Ok(File::from(fd))
            };
            let any = any.try_clone().context(|| "duplicate a descriptor")?;
            let mut item = Item::of(any, String::new(), reopen)
                .and_then(|item| item.ok_or_else(|| err!("a socket, which is not copied")))
                .context(|| shown(&found.path))?;
            if !self.keeps_owners {
                item.forget_owner();
            }
            return visit(&mut item).context(|| shown(&found.path));
        }
        let names = sorted(self, &found.at)?;
        let mut stack = vec![Level { dir: top, inner: String::new(), names, left_out: None }];
        while let Some(Level { dir, inner, names, .. }) = stack.last_mut() {
            interrupt.check()?;
            let Some(name) = names.pop() else {
                stack.pop();
                continue;
            };
            let Ok(text) = String::from_utf8(name.clone()) else {
                bail!("{}: a name that is not UTF-8 is in it", shown(&join(&found.path, inner)));
            };
            let relative = join(inner, &text);
            let whole = join(&found.path, &relative);
            let out = self.leaves_out(found, &relative);
            if out && !self.may_take_below(found, &relative) {
                continue;
            }
            let step = || -> Result<Option<Item>> {
                let any = disk::open_any(dir.as_fd(), &name)?;
                if out && !disk::metadata(&any)?.is_dir() {
                    return Ok(None);
                }
                Item::of(any, relative.clone(), || disk::open_file(dir.as_fd(), &name))
            };
            let Some(mut item) = step().context(|| shown(&whole))? else { continue };
            let is_dir = item.metadata.is_dir();
            match self.keeps_owners {
                true if is_dir => item.take_owner(dir.as_fd(), &name).context(|| shown(&whole))?,
                true => {}
                false => item.forget_owner(),
            }
            let next = match is_dir {
                true => Some(disk::open_dir(dir.as_fd(), &name).context(|| shown(&whole))?),
                false => None,
            };
            item.on_the_way = out;
            let left_out = if out {
                Some(item)
            } else {
                for mut above in stack.iter_mut().filter_map(|level| level.left_out.take()) {
                    visit(&mut above).context(|| shown(&join(&found.path, &above.relative)))?;
                }
                visit(&mut item).context(|| shown(&whole))?;
                None
            };
            if let Some(dir) = next {
                if whole.len() > merge::MAX_PATH {
                    bail!("{}: a path of more than {} bytes", self.shown, merge::MAX_PATH);
                }
                let names = names_in(&dir).context(|| shown(&whole))?;
                stack.push(Level { dir, inner: relative, names, left_out });
            }
        }
        Ok(())
    }

    /// What the key of an instruction has of its sources: names, kinds, modes and contents, and no times.
    pub(super) fn digest(&self, found: &[Found], interrupt: &Interrupt) -> Result<Digest> {
        let mut hasher = Hasher::sha256();
        for found in found {
            self.walk(found, interrupt, &mut |item| item.hash(&mut hasher, interrupt, &mut io::sink()))?;
            hasher.update(b"\0");
        }
        Ok(hasher.finish())
    }
}

/// A directory in which a walk is.
struct Level {
    dir: OwnedFd,
    /// Its path below the source.
    inner: String,
    /// What is left to be seen, the first name last.
    names: Vec<Vec<u8>>,
    /// It itself, where it is left out and nothing in it was in as yet.
    left_out: Option<Item>,
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::NOCTTY).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

fn sorted(origin: &Origin, path: &str) -> Result<Vec<Vec<u8>>> {
    let dir = origin.open(path, OFlags::PATH | OFlags::DIRECTORY)?;
    names_in(&dir.ok_or_else(|| err!("{path:?} in {}: has gone", origin.shown))?)
}

/// The names in a directory, the first one last.
fn names_in(dir: &OwnedFd) -> Result<Vec<Vec<u8>>> {
    let mut names: Vec<_> = disk::entries(dir.as_fd())?.into_iter().map(|(name, _)| name).collect();
    names.sort_by(|a, b| b.cmp(a));
    Ok(names)
}

fn join(dir: &str, name: &str) -> String {
    match (dir.is_empty(), name.is_empty()) {
        (true, _) => name.to_owned(),
        (_, true) => dir.to_owned(),
        _ => format!("{dir}/{name}"),
    }
}

fn is_dir(fd: &OwnedFd) -> Result<bool> {
    Ok(FileType::from_raw_mode(fd::stat(fd)?.st_mode) == FileType::Directory)
}

/// One entry of what is copied.
struct Item {
    /// Its path below the source; empty for a source that is no directory.
    relative: String,
    metadata: Metadata,
    /// A regular file, open.
    file: Option<File>,
    link: Vec<u8>,
    /// Of all but a file only the record of its owner.
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// A directory that is there only for what is in it.
    on_the_way: bool,
}

impl Item {
    /// Reads what there is of it; none for a socket, which belongs to a program.
    fn of(any: File, relative: String, open: impl FnOnce() -> Result<File>) -> Result<Option<Item>> {
        let mut metadata = disk::metadata(&any)?;
        let kind = metadata.file_type();
        if kind.is_socket() {
            return Ok(None);
        }
        if kind.is_char_device() || kind.is_block_device() {
            bail!("a device, which is not copied");
        }
        let (mut file, mut link, mut xattrs) = (None, Vec::new(), Vec::new());
        if kind.is_symlink() {
            link = disk::read_link(any.as_fd())?;
            xattrs.extend(bare_owner(&any)?);
        } else if kind.is_fifo() {
            xattrs.extend(bare_owner(&any)?);
        } else if kind.is_file() {
            let open = open()?;
            metadata = disk::metadata(&open)?;
            if !metadata.is_file() {
                bail!("became something else while it was looked at");
            }
            xattrs = disk::xattrs(open.as_fd())?;
            // Those of security modules are of this machine, and those of overlayfs are of the layers below.
            xattrs.retain(|(name, _)| {
                name.starts_with(b"user.") && !name.starts_with(b"user.overlay.")
                    || name == b"security.capability"
            });
            file = Some(open);
        }
        Ok(Some(Item { relative, metadata, file, link, xattrs, on_the_way: false }))
    }

    /// How many directories of the source it is in.
    fn depth(&self) -> usize {
        self.relative.matches('/').count()
    }

    /// Takes the record of a directory's owner.
    fn take_owner(&mut self, parent: BorrowedFd, name: &[u8]) -> Result<()> {
        let dir = disk::reopen_dir(parent, name)?;
        let record = disk::short_xattr(dir.as_fd(), OWNER_RECORD.as_bytes())?;
        self.xattrs.extend(record.map(|value| (OWNER_RECORD.as_bytes().to_vec(), value)));
        Ok(())
    }

    /// Has it belong to root.
    fn forget_owner(&mut self) {
        self.xattrs.retain(|(name, _)| name != OWNER_RECORD.as_bytes());
    }

    /// Records the owner of the link or pipe `name` that was made of it.
    fn set_bare_owner(&self, dir: BorrowedFd, name: &[u8], owner: Option<Owner>) -> Result<()> {
        let own = || OwnerRecord::parse(&self.xattrs.first()?.1);
        let own = || own().map(|OwnerRecord { uid, gid, .. }| Owner { uid, gid });
        owner.or_else(own).map_or(Ok(()), |owner| record_bare(dir, name, owner))
    }

    /// Gives an open file what is kept of it as attributes; `owner` comes before the owner that it had.
    fn set_attributes(&self, file: BorrowedFd, owner: Option<Owner>) -> Result<()> {
        for (name, value) in &self.xattrs {
            if owner.is_none() || name != OWNER_RECORD.as_bytes() {
                disk::set_xattr(file, name, value)?;
            }
        }
        owner.map_or(Ok(()), |owner| owner::record(file, owner))
    }

    /// Hashes it; its content goes to `out` as well.
    fn hash(&mut self, hasher: &mut Hasher, interrupt: &Interrupt, out: &mut dyn Write) -> Result<()> {
        self.hash_head(hasher);
        let Some(file) = &mut self.file else { return Ok(()) };
        // One more byte shows the end. The allocator maps and unmaps a large buffer, for each of many small files.
        let most = usize::try_from(self.metadata.len()).unwrap_or(usize::MAX).saturating_add(1);
        let mut buffer = vec![0; most.min(128 << 10)];
        let mut total = 0u64;
        loop {
            interrupt.check()?;
            let n = file.read(&mut buffer).context(|| "read")?;
            if n == 0 {
                break;
            }
            hasher.update(&buffer[..n]);
            out.write_all(&buffer[..n])?;
            total += n as u64;
        }
        self.require_length(total)
    }

    /// Hashes all but its content.
    fn hash_head(&self, hasher: &mut Hasher) {
        let mode = self.metadata.mode();
        let mut field = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        field(self.relative.as_bytes());
        field(&mode.to_le_bytes());
        field(&self.link);
        // Without these numbers the bytes of an attribute could stand for the content of another file.
        field(&(self.xattrs.len() as u64).to_le_bytes());
        let length = self.metadata.len();
        field(&self.file.as_ref().map_or(u64::MAX, |_| length).to_le_bytes());
        for (name, value) in &self.xattrs {
            field(name);
            field(value);
        }
    }

    /// Refuses a content of another length than that which was hashed.
    fn require_length(&self, length: u64) -> Result<()> {
        match length == self.metadata.len() {
            true => Ok(()),
            false => bail!("{}: changed while it was read", self.relative),
        }
    }
}

/// The record of the owner of a link or pipe, in the form of a file's; none of one that is root's.
fn bare_owner(any: &File) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let owner = owner::recorded_bare(any.as_fd())?.filter(|owner| *owner != Owner::ROOT);
    Ok(owner.map(|Owner { uid, gid }| {
        let record = OwnerRecord { uid, gid, mode: 0o777, device: None };
        (OWNER_RECORD.as_bytes().to_vec(), record.to_string().into_bytes())
    }))
}

fn record_bare(dir: BorrowedFd, name: &[u8], owner: Owner) -> Result<()> {
    match owner::record_bare(dir, name, owner)? {
        true => Ok(()),
        false => bail!("{}: its file system cannot keep a record of its owner", disk::at(dir, name)),
    }
}

/// Hashes what is read of a file.
struct Hashed<'a> {
    file: &'a File,
    hasher: &'a mut Hasher,
    length: u64,
}

impl Read for Hashed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.hasher.update(&buffer[..n]);
        self.length += n as u64;
        Ok(n)
    }
}

/// Where things are copied to.
pub(super) struct Destination<'a> {
    /// The root of the stage.
    pub root: BorrowedFd<'a>,
    /// The path in it, absolute.
    pub path: &'a str,
    /// What becomes of the mode of everything that is copied, by --chmod.
    pub mode: Option<&'a Chmod>,
    /// The owner of everything that is copied, and of directories that are made for it, by --chown.
    pub owner: Option<Owner>,
}

/// Writes a file, and leaves out what is zero: a file of an image or an archive that is one large hole must not fill the disk.
struct WithHoles<'a> {
    file: &'a File,
    length: u64,
}

impl Write for WithHoles<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.iter().any(|byte| *byte != 0) {
            self.file.write_all_at(bytes, self.length).map_err(|e| disk::Named(self.file).name(e))?;
        }
        self.length += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What directories are like that are made on the way.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewDirs {
    owner: Owner,
    mode: u32,
}

impl NewDirs {
    /// Directories that everybody can read.
    pub(super) fn of(owner: Owner) -> NewDirs {
        NewDirs { owner, mode: 0o755 }
    }
}

impl Destination<'_> {
    /// Copies `found`, which have this digest; with `unpacks`, archives among them are unpacked.
    pub(super) fn copy(
        &self,
        origin: &Origin,
        found: &[Found],
        unpacks: bool,
        digest: &Digest,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let mut hasher = Hasher::sha256();
        let into = self.is_directory(found.len())?;
        for found in found {
            let mut trail = Vec::new();
            if found.is_dir {
                trail.push(Made { dir: self.make_dirs(self.path)?, mtime: None });
            }
            origin.walk(found, interrupt, &mut |item| {
                let (dir, name);
                if found.is_dir {
                    leave(&mut trail, item.depth() + 1)?;
                    name = item.relative.rsplit('/').next().unwrap_or_default().to_owned();
                    let deepest = trail.last().ok_or_else(|| err!("no directory"))?;
                    dir = disk::open_dir_again(deepest.dir.as_fd())?;
                } else if unpacks && self.unpack(item, &mut hasher, interrupt)? {
                    return Ok(());
                } else {
                    let last = found.path.rsplit('/').next().unwrap_or_default();
                    let path = if into { format!("{}/{last}", self.path) } else { self.path.to_owned() };
                    let (parent, last) = self.place(&path)?;
                    (dir, name) = (parent, last);
                }
                if item.metadata.is_dir() {
                    item.hash(&mut hasher, interrupt, &mut io::sink())?;
                    trail.push(self.directory(dir.as_fd(), &name, item)?);
                    return Ok(());
                }
                self.write(dir.as_fd(), &name, item, &mut hasher, interrupt)
            })?;
            leave(&mut trail, 0)?;
            hasher.update(b"\0");
        }
        match hasher.finish() == *digest {
            true => Ok(()),
            false => bail!("{}: changed while it was copied", origin.shown),
        }
    }

    /// Whether sources go into a directory of that name, or one becomes a file of it.
    fn is_directory(&self, sources: usize) -> Result<bool> {
        if self.path.ends_with('/') {
            return Ok(true);
        }
        let there = match open_in(self.root, Path::new(self.path), OFlags::PATH) {
            Ok(fd) => is_dir(&fd)?,
            Err(Errno::NOENT | Errno::NOTDIR) => false,
            Err(e) => return Err(Error::from(e).context(self.path)),
        };
        if sources > 1 && !there {
            bail!(
                "{}: with more than one source the destination must be a directory and end in /",
                self.path
            );
        }
        Ok(there)
    }

    /// The directory and the name that a file of this path is to have, links followed in the root.
    fn place(&self, path: &str) -> Result<(OwnedFd, String)> {
        let (parent, name) = path.trim_end_matches('/').rsplit_once('/').unwrap_or(("", path));
        if let Ok(there) = open_in(self.root, Path::new(path), OFlags::PATH) {
            if is_dir(&there)? {
                bail!("{path}: a directory, which no file replaces");
            }
            let (root, there) = (fd::path_of(self.root)?, fd::path_of(&there)?);
            if let Ok(inside) = there.strip_prefix(&root)
                && let (Some(dir), Some(name)) =
                    (inside.parent(), inside.file_name().and_then(|name| name.to_str()))
            {
                return Ok((self.make_dirs(&dir.to_string_lossy())?, name.to_owned()));
            }
        }
        Ok((self.make_dirs(parent)?, name.to_owned()))
    }

    /// The mode of what had `mode` before.
    fn mode(&self, mode: u32, is_dir: bool) -> u32 {
        self.mode.map_or(mode, |chmod| chmod.apply(mode, is_dir))
    }

    /// The owner of what has none of its own.
    fn owner(&self) -> Owner {
        self.owner.unwrap_or(Owner::ROOT)
    }

    /// Opens the directory that things are copied into; what is made of it has the mode of --chmod in digits, less its set-id bits.
    fn make_dirs(&self, path: &str) -> Result<OwnedFd> {
        let new = NewDirs::of(self.owner());
        let mode = match self.mode {
            Some(Chmod::Digits(mode)) => mode & 0o777,
            Some(Chmod::Letters(_)) | None => new.mode,
        };
        make_dirs(self.root, path, NewDirs { mode, ..new })
    }

    /// The same for an archive, of whose directories only its own headers and the flags for all of its entries say something.
    fn make_dirs_of_archive(&self, path: &str) -> Result<OwnedFd> {
        make_dirs(self.root, path, NewDirs::of(self.owner()))
    }

    /// Makes a directory, or gives the one that is there the mode of the source's; as BuildKit does, the owner and the time as
    /// well, unless it is there only for what is in it.
    fn directory(&self, parent: BorrowedFd, name: &str, item: &Item) -> Result<Made> {
        let metadata = &item.metadata;
        let made = match rustix::fs::mkdirat(parent, name, rustix::fs::Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(e) => {
                return Err(e).context(|| format!("make directory {}", disk::at(parent, name.as_bytes())));
            }
        };
        let dir = disk::reopen_dir(parent, name.as_bytes()).map_err(|e| match e.errno() {
            Some(libc::ENOTDIR | libc::ELOOP) if !made => {
                err!("{}: no directory, and none replaces it", disk::at(parent, name.as_bytes()))
            }
            _ => e,
        })?;
        disk::set_mode(dir.as_fd(), self.mode(metadata.mode() & 0o7777, true))?;
        if !made && item.on_the_way {
            return Ok(Made { dir: dir.into(), mtime: None });
        }
        if !made {
            disk::remove_xattr(dir.as_fd(), OWNER_RECORD.as_bytes())?;
        }
        item.set_attributes(dir.as_fd(), self.owner)?;
        Ok(Made { dir: dir.into(), mtime: Some((metadata.mtime(), metadata.mtime_nsec() as u32)) })
    }

    fn write(
        &self,
        dir: BorrowedFd,
        name: &str,
        item: &mut Item,
        hasher: &mut Hasher,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let bytes = name.as_bytes();
        disk::unlink(dir, bytes).map_err(|e| match e.errno() {
            Some(libc::EISDIR) => err!("{}: a directory, which no file replaces", disk::at(dir, bytes)),
            _ => e,
        })?;
        let mode = self.mode(item.metadata.mode() & 0o7777, false);
        let mtime = (item.metadata.mtime(), item.metadata.mtime_nsec() as u32);
        let kind = item.metadata.file_type();
        if kind.is_symlink() {
            item.hash(hasher, interrupt, &mut io::sink())?;
            disk::symlink(dir, bytes, &item.link)?;
            item.set_bare_owner(dir, bytes, self.owner)?;
            return disk::set_times_at(dir, bytes, mtime);
        }
        if kind.is_fifo() {
            item.hash(hasher, interrupt, &mut io::sink())?;
            disk::fifo(dir, bytes, mode)?;
            item.set_bare_owner(dir, bytes, self.owner)?;
            return disk::set_times_at(dir, bytes, mtime);
        }
        let file = disk::create_file(dir, bytes, 0o600)?;
        let mut out = WithHoles { file: &file, length: 0 };
        item.hash(hasher, interrupt, &mut out)?;
        file.set_len(out.length).context(|| format!("set the length of {}", fd::shown(&file)))?;
        item.set_attributes(file.as_fd(), self.owner)?;
        disk::set_mode(file.as_fd(), mode)?;
        disk::set_times(file.as_fd(), mtime)
    }

    /// Writes a heredoc.
    pub(super) fn write_text(&self, name: &str, text: &str, alone: bool) -> Result<()> {
        let into = self.is_directory(if alone { 1 } else { 2 })?;
        let path = if into { format!("{}/{name}", self.path) } else { self.path.to_owned() };
        let (dir, name) = self.place(&path)?;
        disk::unlink(dir.as_fd(), name.as_bytes())?;
        let file = disk::create_file(dir.as_fd(), name.as_bytes(), 0o600)?;
        disk::Named(&file).write_all(text.as_bytes()).context(|| format!("write {path}"))?;
        owner::record(file.as_fd(), self.owner())?;
        disk::set_mode(file.as_fd(), self.mode(0o644, false))
    }

    /// Unpacks `found`, a file, if it is an archive. False where it is none.
    pub(super) fn unpack_alone(&self, origin: &Origin, found: &Found, interrupt: &Interrupt) -> Result<bool> {
        let mut unpacked = false;
        origin.walk(found, interrupt, &mut |item| {
            unpacked = self.unpack(item, &mut Hasher::sha256(), interrupt)?;
            Ok(())
        })?;
        Ok(unpacked)
    }

    /// Unpacks a file, if it is an archive. False where it is none: nothing of it is hashed then.
    fn unpack(&self, item: &mut Item, hasher: &mut Hasher, interrupt: &Interrupt) -> Result<bool> {
        let Some(file) = &item.file else { return Ok(false) };
        let mut hashed = hasher.clone();
        item.hash_head(&mut hashed);
        let mut source = Hashed { file, hasher: &mut hashed, length: 0 };
        let plain = inflate::plain(BufReader::with_capacity(128 << 10, &mut source))?;
        let mut plain = plain.take(decode::bomb_limit(item.metadata.len()));
        let mut head = Vec::new();
        let read = plain.by_ref().take(tar::HEAD as u64).read_to_end(&mut head);
        if let Some(e) = read.as_ref().err().and_then(inflate::wants_memory) {
            return Err(e);
        }
        // What has no header of an archive at its beginning is a file as any other. Behind one, what is wrong is an error.
        if read.is_err() || !tar::is_head(&head) {
            drop(plain);
            (&*file).rewind().context(|| "go back to the beginning")?;
            return Ok(false);
        }
        let mut reader = Reader::new(head.as_slice().chain(BufReader::with_capacity(128 << 10, plain)));
        // As if the archive were unpacked in a root of its own: no link leads out of the destination.
        let top = self.make_dirs_of_archive(self.path)?;
        let inside = Destination { root: top.as_fd(), path: "/", ..*self };
        while let Some(header) = reader.next().context(|| "read the archive")? {
            interrupt.check()?;
            let path = String::from_utf8_lossy(&header.path).into_owned();
            inside.entry(&header, &mut reader).context(|| path)?;
        }
        drop(reader);
        // The digest is of the whole file.
        io::copy(&mut source, &mut io::sink()).context(|| "read")?;
        let length = source.length;
        item.require_length(length)?;
        *hasher = hashed;
        Ok(true)
    }

    /// Makes an upper layer of an archive of one: what hides things of layers below becomes what overlayfs has for that, and a
    /// device a record.
    pub(super) fn unpack_layer(&self, archive: impl io::BufRead, interrupt: &Interrupt) -> Result<()> {
        let mut reader = Reader::new(archive);
        let mut directories = Vec::new();
        while let Some(header) = reader.next().context(|| "read the archive")? {
            interrupt.check()?;
            let shown = String::from_utf8_lossy(&header.path).into_owned();
            self.layer_entry(&header, &mut reader).context(|| shown)?;
            if header.kind == EntryKind::Directory {
                directories.push((merge::clean(&header.path)?.into_owned(), header.mtime));
            }
        }
        // What came later has changed them.
        for (path, mtime) in directories.into_iter().rev() {
            let path = String::from_utf8_lossy(&path).into_owned();
            let dir = self.make_dirs_of_archive(&path)?;
            disk::set_times(disk::reopen_self(dir.as_fd())?.as_fd(), mtime)?;
        }
        Ok(())
    }

    fn layer_entry<R: io::BufRead>(&self, header: &Header, reader: &mut Reader<R>) -> Result<()> {
        let path = merge::clean(&header.path)?;
        let text = std::str::from_utf8(&path).map_err(|_| err!("a name that is not UTF-8"))?;
        let (parent, name) = text.rsplit_once('/').unwrap_or(("", text));
        let device = matches!(header.kind, EntryKind::Character | EntryKind::Block);
        if !device && !name.starts_with(".wh.") {
            return self.entry(header, reader);
        }
        let dir = self.make_dirs_of_archive(parent)?;
        if name == ".wh..wh..opq" {
            disk::set_xattr(disk::reopen_self(dir.as_fd())?.as_fd(), b"user.overlay.opaque", b"y")?;
            return Ok(());
        }
        let hidden = name.strip_prefix(".wh.");
        disk::unlink(dir.as_fd(), hidden.unwrap_or(name).as_bytes())?;
        if let Some(hidden) = hidden {
            let kind = FileType::CharacterDevice;
            let made = rustix::fs::mknodat(&dir, hidden, kind, rustix::fs::Mode::empty(), 0);
            return made.context(|| "make a whiteout");
        }
        let file = disk::create_file(dir.as_fd(), name.as_bytes(), 0o600)?;
        let (major, minor) = header.device;
        let record = Device { block: header.kind == EntryKind::Block, major, minor };
        disk::set_mode(file.as_fd(), header.mode)?;
        let owner = Owner::of_header(header.uid, header.gid);
        if !owner::record_if_kept(file.as_fd(), owner, Some(record))? {
            bail!("a device, of which its file system keeps no record");
        }
        disk::set_times(file.as_fd(), header.mtime)
    }

    /// Writes one entry of an archive. Links of the image are followed inside of it, as if this ran there.
    fn entry<R: io::BufRead>(&self, header: &Header, reader: &mut Reader<R>) -> Result<()> {
        let within = |path: &[u8]| -> Result<String> {
            let path = merge::clean(path)?;
            let text = std::str::from_utf8(&path).map_err(|_| err!("a name that is not UTF-8"))?;
            Ok(format!("{}/{text}", self.path.trim_end_matches('/')))
        };
        let path = within(&header.path)?;
        let owner = self.owner.unwrap_or_else(|| Owner::of_header(header.uid, header.gid));
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let (dir, name) = (self.make_dirs_of_archive(parent)?, name.as_bytes());
        let dir = dir.as_fd();
        let is_dir = header.kind == EntryKind::Directory;
        match name.is_empty() {
            // The destination itself, which nothing replaces.
            true if !is_dir => return Ok(()),
            true => {}
            false => clear(dir, name, is_dir)?,
        }
        if is_dir {
            let dir = self.make_dirs_of_archive(&path)?;
            let dir = disk::reopen_self(dir.as_fd())?;
            owner::replace(dir.as_fd(), owner)?;
            return disk::set_mode(dir.as_fd(), self.mode(header.mode, true));
        }
        let mode = self.mode(header.mode, false);
        match header.kind {
            EntryKind::Symlink => {
                disk::symlink(dir, name, &header.link)?;
                record_bare(dir, name, owner)?;
            }
            EntryKind::Fifo => {
                disk::fifo(dir, name, mode)?;
                record_bare(dir, name, owner)?;
            }
            EntryKind::Hardlink => {
                let target = within(&header.link)?;
                let (target, last) = target.rsplit_once('/').unwrap_or(("", &target));
                return disk::link(self.make_dirs_of_archive(target)?.as_fd(), last.as_bytes(), dir, name);
            }
            EntryKind::File => {
                let mut file = disk::create_file(dir, name, 0o600)?;
                for extent in header.extents() {
                    file.seek(SeekFrom::Start(extent.offset)).context(|| "seek")?;
                    let mut left = extent.length;
                    while left > 0 {
                        let piece = reader.piece().context(|| "read the archive")?;
                        let n = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                        if n == 0 {
                            bail!("the archive ends in the middle of a file");
                        }
                        file.write_all(&piece[..n]).context(|| "write")?;
                        reader.consume(n);
                        left -= n as u64;
                    }
                }
                file.set_len(header.size).context(|| "set the length")?;
                for (name, value) in header.xattrs.iter().filter(|(name, _)| !disk::is_steering(name)) {
                    disk::set_xattr(file.as_fd(), name, value)?;
                }
                owner::record(file.as_fd(), owner)?;
                disk::set_mode(file.as_fd(), mode)?;
            }
            // As a pull leaves them out.
            _ => return Ok(()),
        }
        disk::set_times_at(dir, name, header.mtime)
    }
}

/// A directory that is being filled.
struct Made {
    dir: OwnedFd,
    /// What its time is at the end, where it is new.
    mtime: Option<(i64, u32)>,
}

/// Leaves all but the first `depth` directories, which then get their times.
fn leave(trail: &mut Vec<Made>, depth: usize) -> Result<()> {
    while trail.len() > depth {
        if let Some(Made { dir, mtime: Some(mtime) }) = trail.pop() {
            disk::set_times(dir.as_fd(), mtime)?;
        }
    }
    Ok(())
}

/// Takes away what an entry of an archive replaces: everything but a directory that stays one.
fn clear(dir: BorrowedFd, name: &[u8], becomes_dir: bool) -> Result<()> {
    let mode = disk::mode_at(dir, name)?;
    let is_dir = mode.is_some_and(|mode| FileType::from_raw_mode(mode) == FileType::Directory);
    match is_dir && becomes_dir {
        true => Ok(()),
        false => tree::remove(dir, name, None),
    }
}

/// Opens the directory `path` in `root`, links followed inside, and makes what of it is missing.
pub(super) fn make_dirs(root: BorrowedFd, path: &str, new: NewDirs) -> Result<OwnedFd> {
    make_dirs_by(root, path, new, MOST_LINKS)
}

/// A path leads over no more links to what is not there, as the kernel has it (path_resolution(7)).
const MOST_LINKS: usize = 40;

fn make_dirs_by(root: BorrowedFd, path: &str, new: NewDirs, links: usize) -> Result<OwnedFd> {
    let mut dir = disk::open_dir_again(root)?;
    let mut done = String::new();
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." {
            done =
                Path::new(&done).parent().unwrap_or(Path::new("")).as_os_str().to_string_lossy().into_owned();
            dir = open_in(root, Path::new(&done), OFlags::PATH | OFlags::DIRECTORY)?;
            continue;
        }
        done = join(&done, part);
        let open = || open_in(root, Path::new(&done), OFlags::PATH | OFlags::DIRECTORY);
        let shown = || format!("make directory /{done}");
        dir = match open() {
            Err(Errno::NOENT) => {
                match rustix::fs::mkdirat(&dir, part, rustix::fs::Mode::from_raw_mode(new.mode)) {
                    Ok(()) => {
                        let made = open().context(shown)?;
                        if new.owner != Owner::ROOT {
                            owner::record(disk::reopen_self(made.as_fd())?.as_fd(), new.owner)?;
                        }
                        made
                    }
                    // A link to what is not there: that is made.
                    Err(Errno::EXIST) if links > 0 => {
                        let target = rustix::fs::readlinkat(&dir, part, Vec::new()).context(shown)?;
                        let target =
                            target.to_str().map_err(|_| err!("/{done}: a link that is not UTF-8"))?;
                        let within = fd::path_of(&dir)?;
                        let top = fd::path_of(root)?;
                        let within = within.strip_prefix(&top).unwrap_or(Path::new("")).to_string_lossy();
                        let target =
                            if target.starts_with('/') { target.to_owned() } else { join(&within, target) };
                        make_dirs_by(root, &target, new, links - 1)?
                    }
                    Err(e) => return Err(e).context(shown),
                }
            }
            Err(Errno::NOTDIR) => bail!("/{done}: no directory, and none replaces it"),
            opened => opened.context(shown)?,
        };
    }
    Ok(dir)
}

/// The bytes of a file of the context of at most `most` bytes; none where there is no such file.
pub(super) fn read(root: BorrowedFd, path: &Path, most: usize) -> Result<Option<Vec<u8>>> {
    let shown = || path.display().to_string();
    let fd = match open_in_unserved(root, path, READ) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        opened => opened.map_err(fd::unserved_error).context(shown)?,
    };
    match fd::stat(&fd)?.st_size {
        size if size > most as i64 => bail!("{}: longer than {most} bytes", shown()),
        _ => {}
    }
    fd::read_regular(&fd, most).context(shown)?.map(Some).ok_or_else(|| err!("{}: not a file", shown()))
}
