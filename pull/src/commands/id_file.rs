//! The files of `rt build --iidfile` and `--metadata-file`, in a directory where others may write, too.

use crate::draft::{self, Draft};
use rt_sys::error::{Context, Result};
use rt_sys::{bail, disk, err, fd};
use rustix::fs::{FileType, Mode, OFlags, PROC_SUPER_MAGIC};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

const FILE: &[u8] = b"file";

/// Where a text is to go that there is only in the end.
pub(super) struct IdFile {
    /// The flag's name, and the path, for errors.
    shown: String,
    parent: OwnedFd,
    name: Vec<u8>,
}

/// How what has the name is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// A file, a link or nothing: a new file gets the name.
    Replaced,
    /// A pipe or a device: it is opened.
    Opened,
    /// The kernel's name of what is open, or a link to one, as /dev/stdout is: what it leads to is opened.
    Followed,
}

impl IdFile {
    /// Opens the directory that it is in.
    ///
    /// # Errors
    /// There is none, or nothing can be written there, as far as can be told before: a pipe may get its reader later.
    pub(super) fn at(flag: &str, path: PathBuf) -> Result<IdFile> {
        let shown = format!("--{flag} {}", path.display());
        let opened = draft::place(&path).and_then(|(parent, name)| {
            let file = IdFile { shown: shown.clone(), parent, name };
            match file.how()? {
                How::Replaced if !disk::may_write(file.parent.as_fd())? => bail!("no file can be made there"),
                How::Replaced => file.check_replaceable()?,
                How::Opened if !file.may_open()? => bail!("it is not for the caller to write"),
                How::Opened | How::Followed => {}
            }
            Ok(file)
        });
        opened.context(|| shown)
    }

    /// Writes `text`, and waits for nobody who would read it.
    ///
    /// # Errors
    /// Also where nobody reads a pipe (ENXIO), or nobody empties it (EAGAIN).
    pub(super) fn write(self, text: &str) -> Result<()> {
        let shown = self.shown.clone();
        let written = match self.how() {
            Ok(How::Replaced) => self.replace(text),
            Ok(how) => self.open(how).and_then(|mut file| Ok(file.write_all(text.as_bytes())?)),
            Err(e) => Err(e),
        };
        written.context(|| shown)
    }

    /// Refuses what a directory with the sticky bit keeps for its owner. A build has only the caller's id, and root's rights over it.
    fn check_replaceable(&self) -> Result<()> {
        let (dir, uid) = (fd::stat(&self.parent)?, disk::caller().uid);
        if dir.st_mode & 0o1000 == 0 || dir.st_uid == uid {
            return Ok(());
        }
        match disk::open_any(self.parent.as_fd(), &self.name).and_then(fd::stat) {
            Ok(there) if there.st_uid != uid => {
                Err(err!("it belongs to uid {}, and only its owner may replace it there", there.st_uid))
            }
            Err(e) if !e.is(libc::ENOENT) => Err(e),
            _ => Ok(()),
        }
    }

    /// True where a pipe or a device is the caller's to write.
    fn may_open(&self) -> Result<bool> {
        const WRITE: u32 = 2;
        disk::may(disk::open_any(self.parent.as_fd(), &self.name)?.as_fd(), WRITE)
    }

    fn how(&self) -> Result<How> {
        let parent = self.parent.as_fd();
        // Nobody who is not trusted with all else puts a link into these two.
        let is_kernels = fd::file_system(parent)? == PROC_SUPER_MAGIC as u64;
        let is_system = is_kernels || disk::is_same(disk::open_root(Path::new("/"))?.as_fd(), b"dev", parent);
        Ok(match disk::mode_at(parent, &self.name)?.map(FileType::from_raw_mode) {
            _ if is_kernels => How::Followed,
            Some(FileType::Symlink) if is_system => How::Followed,
            None | Some(FileType::RegularFile | FileType::Symlink) => How::Replaced,
            Some(FileType::Fifo | FileType::CharacterDevice) => How::Opened,
            Some(_) => bail!("neither a file nor a pipe"),
        })
    }

    /// Opens what is there, and truncates nothing.
    fn open(&self, how: How) -> Result<File> {
        let links = if how == How::Followed { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.parent, &self.name[..], flags | links, Mode::empty())?;
        let kind = FileType::from_raw_mode(fd::stat(&opened)?.st_mode);
        if how == How::Opened && !matches!(kind, FileType::Fifo | FileType::CharacterDevice) {
            return Err(err!("something else has come into its place"));
        }
        Ok(File::from(opened))
    }

    /// Puts a new file into its place: what was a link leads nowhere, and whoever reads sees all of the text.
    fn replace(self, text: &str) -> Result<()> {
        let draft = Draft::within(self.parent, self.name)?;
        let mode = 0o666 & !rt_sys::process::clear_umask();
        disk::create_file(draft.dir(), FILE, mode)?.write_all(text.as_bytes())?;
        draft.put(FILE)
    }
}
