//! What every binary does first, and what a process can ask about how it was started.

use crate::error::{Context, Error, Result};
use crate::owned::Owned;
use crate::{caller, fd, look};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of a page: 4 KiB on x86_64, and 4, 16 or 64 KiB on aarch64, as the kernel was built.
pub fn page_size() -> usize {
    // SAFETY: no pointer is passed.
    unsafe { libc::getauxval(libc::AT_PAGESZ) as usize }
}

/// Makes read-only what is constant once the program is loaded (the ELF segment PT_GNU_RELRO): pointers to functions among
/// it. glibc does so by itself, musl only in programs that are linked dynamically.
pub fn protect_constants() {
    extern "C" fn protect(object: *mut libc::dl_phdr_info, _: usize, _: *mut libc::c_void) -> i32 {
        // SAFETY: dl_iterate_phdr(3) passes an object, whose program headers are in its memory.
        let (base, headers) = unsafe {
            let object = &*object;
            (
                object.dlpi_addr as usize,
                std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()),
            )
        };
        if let Some(constants) = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO) {
            let begin = base + constants.p_vaddr as usize;
            let within = !(page_size() - 1);
            let (first, end) = (begin & within, (begin + constants.p_memsz as usize) & within);
            // SAFETY: the linker has put nothing else on these pages that is written: the segment that can be written
            // begins with the constants, and they end with a page of the largest size of the machine, or, where a
            // linker knows only smaller pages, the last of these is left out.
            unsafe { libc::mprotect(first as *mut libc::c_void, end.saturating_sub(first), libc::PROT_READ) };
        }
        // The first object is the program.
        1
    }
    // SAFETY: the function is called during this call only, and has no data.
    unsafe { libc::dl_iterate_phdr(Some(protect), std::ptr::null_mut()) };
}

/// Where this program is, or the file of which it is a copy in memory.
///
/// # Errors
/// The kernel does not say.
pub fn program() -> Result<PathBuf> {
    let path = std::env::current_exe().context(|| "read /proc/self/exe")?;
    let name = path.to_str().and_then(|path| path.strip_prefix("/memfd:")?.strip_suffix(" (deleted)"));
    Ok(name.map(PathBuf::from).unwrap_or(path))
}

/// Where the program `name`, which is installed with this one, may be: beside it, then in each directory of PATH. A program
/// of one file has its parts in it: its `rt` is FILE/rt, and FILE is executed by the name of the other.
///
/// # Errors
/// The kernel does not say where this program is, or whose what lies beside it is.
pub fn companions(name: &str) -> Result<Vec<PathBuf>> {
    let program = program()?;
    let beside = match program.parent() {
        Some(file) if look::is_file(file)? => Some(file.to_owned()),
        _ if stranger_beside(&program, name)?.is_some() => None,
        _ => Some(program.with_file_name(name)),
    };
    let path = crate::caller::path("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).filter(|dir| !dir.as_os_str().is_empty());
    Ok(beside.into_iter().chain(in_path.map(|dir| dir.join(name))).collect())
}

/// Whose the program `name` beside this one, `program`, is, in a directory that others can write, as /tmp, if others than root, the
/// caller and the owner of this program can have put it there or can write it; none where there is nothing to object to.
fn stranger_beside(program: &Path, name: &str) -> Result<Option<u32>> {
    let Some(dir) = program.parent() else { return Ok(None) };
    let context = || format!("look whose {} is", program.with_file_name(name).display());
    match fs::stat(dir) {
        // A device without a number of its own may be NFS, where the mode does not tell.
        Ok(found) if found.st_mode & 0o022 == 0 && fs::major(found.st_dev) != 0 => return Ok(None),
        Ok(_) if !others_can_write(dir)? => return Ok(None),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        found => found.context(context)?,
    };
    let beside = match fd::open_beside_others(&program.with_file_name(name), OFlags::PATH) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        // Somebody has mounted a file system there.
        Err(Errno::XDEV) => return Ok(Some(u32::MAX)),
        beside => beside.context(context)?,
    };
    let beside_owned = Owned::of(&beside)?;
    let found = beside_owned.stat;
    let own = fs::open(program, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).context(context)?;
    let own = Owned::of(&own)?.stat;
    let is_mine = found.st_uid == own.st_uid && !caller::may_be_hosts_root(found.st_uid);
    // Anybody can give a file that he may write a second name here. A team may write what its members have installed.
    let is_teams = found.st_gid == own.st_gid && found.st_mode & own.st_mode & 0o022 == 0o020;
    let is_link = fs::FileType::from_raw_mode(found.st_mode) == fs::FileType::Symlink;
    let others_write = !is_link && beside_owned.others_can_write(&beside, is_teams)?;
    let is_trusted = (is_mine || caller::is_trusted(found.st_uid)) && !others_write;
    Ok((!is_trusted).then_some(found.st_uid))
}

/// True for a directory that others than its owner can write.
fn others_can_write(dir: &Path) -> Result<bool> {
    let dir = fs::open(dir, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).context(|| dir.display())?;
    Owned::as_told(&dir)?.others_can_write(&dir, false)
}

/// What to say where none of [`companions`] is there.
pub fn no_companion(name: &str) -> Error {
    let beside = program().map(|program| program.with_file_name(name)).unwrap_or_else(|_| name.into());
    match program().and_then(|program| stranger_beside(&program, name)) {
        Ok(Some(uid)) => {
            crate::err!(
                "{name} is not in PATH, and {} is somebody else's, or others can write it (uid {uid})",
                beside.display()
            )
        }
        _ => crate::err!("{name} is installed neither as {} nor in PATH", beside.display()),
    }
}

/// The path that this program was executed by (getauxval(3), `AT_EXECFN`).
pub fn exec_path() -> Option<&'static OsStr> {
    // SAFETY: the kernel's value is null or a C string that lives as long as the process.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) as *const libc::c_char };
    if path.is_null() {
        return None;
    }
    // SAFETY: as above.
    Some(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()))
}
