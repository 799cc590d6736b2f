//! A directory of a file system as the target of layers.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Content, Counts, LayerTarget, add};
use crate::merge::{DirMetadata, Target};
use crate::owner::{self, Owner};
use crate::tar::{EntryKind, Header};
use rt_sys::disk::{self, Ids};
use rt_sys::error::Result;
use rt_sys::owner::Device;

/// A directory, and how entries are written into it.
pub struct DirectoryTarget<'a> {
    root: Arc<OwnedFd>,
    /// Takes directories that have to go: rename(2) takes one call however much is in them.
    trash: OwnedFd,
    trashed: AtomicU64,
    /// The caller's user and group.
    caller: Ids,
    /// Others may look into the tree: no write permission but the caller's, no setuid, no file capabilities.
    shared: bool,
    /// Owners are recorded, and devices are empty files with a record ([`crate::owner`]).
    owners: bool,
    counts: &'a Counts,
}

impl DirectoryTarget<'_> {
    /// Writes into `root`, an empty directory; `trash` is one beside it. `shared`, `owners`: see [`DirectoryTarget`].
    pub fn new(
        root: OwnedFd,
        trash: OwnedFd,
        shared: bool,
        owners: bool,
        counts: &Counts,
    ) -> DirectoryTarget<'_> {
        DirectoryTarget {
            root: Arc::new(root),
            trash,
            trashed: AtomicU64::new(0),
            caller: disk::caller(),
            shared,
            owners,
            counts,
        }
    }

    fn attributes(&self, file: &File, xattrs: &[(Vec<u8>, Vec<u8>)], owner: Owner, mode: u32) -> Result<()> {
        for (name, value) in xattrs {
            if !set_attribute(file, name, value, self.shared)? {
                add(&self.counts.xattrs, 1);
            }
        }
        if self.owners {
            owner::record_of_mode(file.as_fd(), owner, mode, None)?;
        }
        Ok(())
    }

    /// True where the mode is set when the content is there. The kernel takes setuid and setgid bits away when the file is
    /// written (inode(7)), and sets no attributes of a file that its owner may not write.
    fn is_late(&self, entry: &Header) -> bool {
        entry.mode & 0o7000 != 0 || !entry.xattrs.is_empty() || self.owners
    }

    /// Gives a new file what there is of it beside its content.
    pub(super) fn finish(&self, file: &File, entry: &Header) -> Result<()> {
        self.attributes(file, &entry.xattrs, Owner::of_header(entry.uid, entry.gid), entry.mode)?;
        if self.is_late(entry) {
            disk::set_mode(file.as_fd(), self.file_mode(entry.mode))?;
        }
        disk::set_times(file.as_fd(), entry.mtime)
    }

    /// True where what would be made of `entry` is what `file` is: the caller's, which nobody else can change, with this mode, time and
    /// attributes. Owners are in records, which `file` has itself.
    pub(super) fn would_be_same(&self, file: &File, entry: &Header) -> Result<bool> {
        let metadata = disk::metadata(file)?;
        let mode = metadata.mode() & 0o7777;
        let kept = |name: &[u8]| !is_powerful(name) && !disk::is_steering(name);
        Ok(self.owners
            && metadata.uid() == self.caller.uid
            && mode == entry.mode
            && mode & 0o400 != 0
            && (!self.shared || guard_file(mode) == mode)
            && metadata.mtime() == entry.mtime.0
            && entry.xattrs.iter().all(|(name, _)| kept(name)))
    }

    /// Gives `file` another name; false where the kernel does not: on another file system, or where it has too many.
    pub(super) fn share(&self, file: &File, dir: &Arc<OwnedFd>, name: &[u8]) -> Result<bool> {
        match disk::link_open(file.as_fd(), dir.as_fd(), name) {
            Err(e)
                if [libc::EXDEV, libc::EMLINK, libc::EPERM, libc::EOPNOTSUPP].iter().any(|no| e.is(*no)) =>
            {
                Ok(false)
            }
            linked => linked.map(|()| true),
        }
    }

    /// An empty file that stands for a device.
    fn device(&self, dir: &Arc<OwnedFd>, name: &[u8], entry: &Header) -> Result<()> {
        let file = disk::create_file(dir.as_fd(), name, 0o600)?;
        let (major, minor) = entry.device;
        let device = Device { block: entry.kind == EntryKind::Block, major, minor };
        let owner = Owner::of_header(entry.uid, entry.gid);
        if !owner::record_of_mode(file.as_fd(), owner, entry.mode, Some(device))? {
            add(&self.counts.devices, 1);
            return disk::unlink(dir.as_fd(), name);
        }
        disk::set_mode(file.as_fd(), self.file_mode(entry.mode))?;
        disk::set_times(file.as_fd(), entry.mtime)
    }

    /// The mode of a file on disk: its owner can read it.
    fn file_mode(&self, mode: u32) -> u32 {
        self.mode(mode, 0o400, guard_file)
    }

    /// The mode of a directory on disk: its owner can do everything in it, or could not even remove the tree.
    fn dir_mode(&self, mode: u32) -> u32 {
        self.mode(mode, 0o700, guard_dir)
    }

    /// A mode with what its owner needs and, in a tree that others see, without what `guard` takes.
    fn mode(&self, mode: u32, needed: u32, guard: fn(u32) -> u32) -> u32 {
        if mode & needed != needed {
            add(&self.counts.repaired, 1);
        }
        let mode = mode | needed;
        if !self.shared {
            return mode;
        }
        let guarded = guard(mode);
        if guarded != mode {
            add(&self.counts.guarded, 1);
        }
        guarded
    }
}

impl Target for DirectoryTarget<'_> {
    type Dir = Arc<OwnedFd>;

    fn root(&self) -> Arc<OwnedFd> {
        self.root.clone()
    }

    fn open_dir(&self, parent: &Arc<OwnedFd>, name: &[u8]) -> Result<Arc<OwnedFd>> {
        disk::open_dir(parent.as_fd(), name).map(Arc::new)
    }

    fn make_dir(&self, parent: &Arc<OwnedFd>, name: &[u8]) -> Result<()> {
        disk::make_dir(parent.as_fd(), name)
    }

    fn unlink(&self, parent: &Arc<OwnedFd>, name: &[u8]) -> Result<()> {
        disk::unlink(parent.as_fd(), name)
    }

    /// Moves it out of the tree, under a name that no other has.
    fn discard_dir(&self, parent: &Arc<OwnedFd>, name: &[u8]) -> Result<()> {
        let number = self.trashed.fetch_add(1, Ordering::Relaxed);
        disk::rename(parent.as_fd(), name, self.trash.as_fd(), number.to_string().as_bytes())
    }

    fn link(&self, from: &Arc<OwnedFd>, from_name: &[u8], to: &Arc<OwnedFd>, to_name: &[u8]) -> Result<()> {
        disk::link(from.as_fd(), from_name, to.as_fd(), to_name)
    }

    fn finish_dir(&self, dir: Option<(&Arc<OwnedFd>, &[u8])>, metadata: &DirMetadata) -> Result<()> {
        let dir = match dir {
            None => disk::reopen_self(self.root.as_fd())?,
            Some((parent, name)) => disk::reopen_dir(parent.as_fd(), name)?,
        };
        self.attributes(&dir, &metadata.xattrs, Owner::of_header(metadata.uid, metadata.gid), metadata.mode)?;
        disk::set_mode(dir.as_fd(), self.dir_mode(metadata.mode))?;
        disk::set_times(dir.as_fd(), metadata.mtime)
    }
}

impl LayerTarget for DirectoryTarget<'_> {
    type NewFile = File;

    fn create(&self, dir: &Arc<OwnedFd>, name: &[u8], entry: &Header) -> Result<File> {
        // With any other mode the owner could not set attributes; write() sets the asked one then.
        let mode = if self.is_late(entry) { 0o600 } else { self.file_mode(entry.mode) };
        disk::create_file(dir.as_fd(), name, mode)
    }

    fn write(&self, file: File, entry: &Header, content: Content<'_>) -> Result<()> {
        content.write_to(&file)?;
        self.finish(&file, entry)
    }

    fn special(&self, dir: &Arc<OwnedFd>, name: &[u8], entry: &Header) -> Result<()> {
        let record = || match self.owners {
            true => owner::record_bare(dir.as_fd(), name, Owner::of_header(entry.uid, entry.gid)).map(drop),
            false => Ok(()),
        };
        if entry.kind == EntryKind::Fifo {
            disk::fifo(dir.as_fd(), name, self.file_mode(entry.mode))?;
            return record();
        }
        if matches!(entry.kind, EntryKind::Character | EntryKind::Block) {
            return self.device(dir, name, entry);
        }
        disk::symlink(dir.as_fd(), name, &entry.link)?;
        record()?;
        disk::set_times_at(dir.as_fd(), name, entry.mtime)
    }

    fn has_devices(&self) -> bool {
        self.owners
    }

    fn count_changes(&self, entry: &Header) {
        if !self.owners && (entry.uid, entry.gid) != (self.caller.uid.into(), self.caller.gid.into()) {
            add(&self.counts.owners, 1);
        }
    }
}

/// A file's mode in a tree that other users see. They would run a setuid file as the caller, outside any container, and
/// could put their own code into what they may write.
fn guard_file(mode: u32) -> u32 {
    mode & !0o6022
}

/// A directory's mode in a tree that other users see. One with the sticky bit is no danger: others can make files in it, and replace none.
fn guard_dir(mode: u32) -> u32 {
    match mode & 0o1000 {
        0 => mode & !0o022,
        _ => mode,
    }
}

fn is_powerful(name: &[u8]) -> bool {
    name == b"security.capability" || name.starts_with(b"system.posix_acl_")
}

/// Sets what an unprivileged user may set; false for the rest.
fn set_attribute(file: &File, name: &[u8], value: &[u8], shared: bool) -> Result<bool> {
    let harmless = name.starts_with(b"user.") && !disk::is_steering(name);
    // Access lists could let others write. Everybody who can execute a file with capabilities that root has unpacked gets
    // them, also outside any container.
    let allowed = harmless || is_powerful(name) && !shared;
    if !allowed {
        return Ok(false);
    }
    disk::set_xattr(file.as_fd(), name, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_others_may_see() {
        assert_eq!(guard_file(0o4755), 0o755);
        assert_eq!(guard_file(0o2755), 0o755);
        assert_eq!(guard_file(0o6777), 0o755);
        assert_eq!(guard_file(0o777), 0o755);
        assert_eq!(guard_file(0o644), 0o644);
        assert_eq!(guard_dir(0o1777), 0o1777);
        assert_eq!(guard_dir(0o2775), 0o2755);
    }
}
