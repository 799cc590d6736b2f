//! What becomes of a call: owners and devices are recorded, and told to whoever asks for them.

use super::call::{Named, Operation, operation};
use super::target::{self, View};
use rt_sys::notify::{Answer, Call, Listener, Told, stat_of, statx_of, write_memory};
use rt_sys::owner::{self, BARE_RECORD, BareRecord, Device, LONGEST_RECORD, OWNER_RECORD, OwnerRecord};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Gid, Mode, Uid, XattrFlags};
use rustix::io::Errno;

/// The id that chown(2) leaves as it is.
const STAYS: u32 = u32::MAX;

/// The answer to a call.
pub(super) fn answer(view: &View<'_>, listener: &Listener, call: &Call) -> Answer {
    let work = Work { view, listener, call };
    let done = match operation(call) {
        Operation::Chown(named, uid, gid) => work.chown(&named, uid, gid),
        Operation::Mknod(named, mode, number) => work.mknod(&named, mode, number),
        Operation::Stat(named, address) => {
            return work.tell(&named, address, |file, told| stat_of(file, told));
        }
        Operation::Statx(named, address, mask) => {
            return work.tell(&named, address, |file, told| statx_of(file, mask, told));
        }
        Operation::Other => return Answer::Continue,
        Operation::Foreign => Ok(()),
    };
    match done {
        Ok(()) => Answer::Done,
        Err(e) => Answer::Failed(e),
    }
}

/// A call, and what it is answered with.
struct Work<'a> {
    view: &'a View<'a>,
    listener: &'a Listener,
    call: &'a Call,
}

impl Work<'_> {
    fn chown(&self, named: &Named, uid: u32, gid: u32) -> Result<(), Errno> {
        let file = target::open(self.view, self.call, named)?;
        self.still()?;
        let old = read(&file)?;
        // The kernel does what it does at any change of an owner: a file of a lower layer is copied, set-id bits and
        // capabilities go, a read-only mount refuses. The owner is root before and after it.
        let own = |id: u32| if id == STAYS { None } else { Some(0) };
        let (own_uid, own_gid) = (own(uid).map(Uid::from_raw), own(gid).map(Gid::from_raw));
        match fs::chownat(&file, "", own_uid, own_gid, AtFlags::EMPTY_PATH) {
            Ok(()) => {}
            // A file of the host's, whose owner is nobody here: it is in no layer.
            Err(Errno::PERM | Errno::OVERFLOW | Errno::INVAL) => return Ok(()),
            Err(e) => return Err(e),
        }
        let (old_uid, old_gid) = old.map_or((0, 0), |old| (old.uid, old.gid));
        let new = |asked: u32, old: u32| if asked == STAYS { old } else { asked };
        let (uid, gid) = (new(uid, old_uid), new(gid, old_gid));
        let device = old.and_then(|old| old.device);
        match (old, uid, gid, device) {
            (None, 0, 0, _) => Ok(()),
            (Some(_), 0, 0, None) => remove(&file),
            _ => {
                let mode = target::stat(&file)?.st_mode & 0o7777;
                write(&file, &OwnerRecord { uid, gid, mode, device })
            }
        }
    }

    /// Makes an empty file, whose record says which device it is.
    fn mknod(&self, named: &Named, mode: u32, number: u64) -> Result<(), Errno> {
        let block = match FileType::from_raw_mode(mode) {
            FileType::BlockDevice => true,
            FileType::CharacterDevice => false,
            _ => return Err(Errno::INVAL),
        };
        let mode = mode & 0o7777 & !target::umask(self.view.proc, self.call)?;
        let file = target::create(self.view, self.call, named, Mode::from_raw_mode(mode), || {
            self.listener.waits(self.call)
        })?;
        // The kernel's calls take the number in 32 bits (new_decode_dev()).
        let number = u64::from(number as u32);
        let device = Device { block, major: libc::major(number), minor: libc::minor(number) };
        write(&file, &OwnerRecord { uid: 0, gid: 0, mode, device: Some(device) })
    }

    /// Writes what `made` makes of a file's record to the address; the kernel answers where there is no record.
    fn tell(
        &self,
        named: &Named,
        address: u64,
        made: impl FnOnce(&OwnedFd, &Told) -> Result<Vec<u8>, Errno>,
    ) -> Answer {
        if self.has_no_record(named) {
            return Answer::Continue;
        }
        // The kernel says what is wrong with the path.
        let Ok(file) = target::open(self.view, self.call, named) else { return Answer::Continue };
        let Ok(Some(record)) = read(&file) else { return Answer::Continue };
        let written = made(&file, &told(&record)).and_then(|mut bytes| {
            self.still()?;
            write_memory(self.call.thread, address, &mut bytes)
        });
        match written {
            Ok(()) => Answer::Done,
            Err(e) => Answer::Failed(e),
        }
    }

    /// True where it is sure that the kernel answers, after as few calls as can be: nearly all files have no record.
    fn has_no_record(&self, named: &Named) -> bool {
        let Some((path, follow)) = self.view.path(self.call, named) else { return false };
        let mut names = [0u8; 1024];
        let listed = match follow {
            true => fs::listxattr(&path[..], &mut names[..]),
            false => fs::llistxattr(&path[..], &mut names[..]),
        };
        let is_record =
            |name: &[u8]| [OWNER_RECORD, BARE_RECORD].iter().any(|record| record.as_bytes() == name);
        match listed {
            Ok(length) => !names[..length].split(|byte| *byte == 0).any(is_record),
            Err(Errno::RANGE) => false,
            // Without a path that is found there is nothing to be told either.
            Err(_) => true,
        }
    }

    /// What was looked up by the thread's number was the thread's.
    fn still(&self) -> Result<(), Errno> {
        if self.listener.waits(self.call) { Ok(()) } else { Err(Errno::SRCH) }
    }
}

/// The path of an open file from the working directory, which is procfs: descriptors that have only the path take no calls about
/// attributes.
fn path_of(file: &OwnedFd) -> String {
    format!("self/fd/{}", file.as_raw_fd())
}

fn is_bare(mode: u32) -> bool {
    owner::is_bare(FileType::from_raw_mode(mode))
}

/// The record of a file.
fn read(file: &OwnedFd) -> Result<Option<OwnerRecord>, Errno> {
    let mode = target::stat(file)?.st_mode;
    if is_bare(mode) {
        let record = BareRecord::read(path_of(file))?;
        return Ok(record.map(|BareRecord { uid, gid }| OwnerRecord { uid, gid, mode, device: None }));
    }
    let mut value = [0u8; LONGEST_RECORD];
    match fs::getxattr(path_of(file), OWNER_RECORD, &mut value[..]) {
        Ok(length) => Ok(OwnerRecord::parse(&value[..length])),
        // RANGE: longer than any record.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::RANGE) => Ok(None),
        Err(e) => Err(e),
    }
}

fn write(file: &OwnedFd, record: &OwnerRecord) -> Result<(), Errno> {
    let OwnerRecord { uid, gid, .. } = *record;
    if is_bare(target::stat(file)?.st_mode) {
        return BareRecord { uid, gid }.write(path_of(file)).map(drop);
    }
    match fs::setxattr(path_of(file), OWNER_RECORD, record.to_string().as_bytes(), XattrFlags::empty()) {
        // Some file systems keep none at all.
        Err(Errno::OPNOTSUPP | Errno::PERM) if record.device.is_none() => Ok(()),
        written => written,
    }
}

fn remove(file: &OwnedFd) -> Result<(), Errno> {
    if is_bare(target::stat(file)?.st_mode) {
        return BareRecord::remove(path_of(file));
    }
    match fs::removexattr(path_of(file), OWNER_RECORD) {
        Err(Errno::NODATA) => Ok(()),
        removed => removed,
    }
}

/// What is told of a file with this record.
fn told(record: &OwnerRecord) -> Told {
    let kind = |device: &Device| if device.block { libc::S_IFBLK } else { libc::S_IFCHR };
    let device = record.device.map(|device| (kind(&device), device.major, device.minor));
    Told { uid: record.uid, gid: record.gid, device }
}
