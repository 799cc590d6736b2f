//! The runtime's own binary, kept from containers (CVE-2019-5736).
//!
//! A container whose program is `/proc/self/exe` runs this binary, and another of its processes can then open
//! it for writing through /proc/PID/exe, if the caller may write it. Therefore the runtime of such a caller executes a
//! sealed copy of itself in memory. For every other caller, to find that out costs one system call.

use rt_sys::error::{Context, Error, Result};
use rt_sys::fd;
use rt_sys::process::ExecArgs;
use rt_sys::start;
use rustix::fd::OwnedFd;
use rustix::fs::{self, Access, AtFlags, MemfdFlags, Mode, OFlags, SealFlags};
use std::os::unix::ffi::OsStrExt;

/// Replaces this process by a sealed copy of itself where its binary could be written; else returns.
pub(crate) fn protect_binary() -> Result<()> {
    const EXE: &str = "/proc/self/exe";
    if is_anothers() || !may_change(EXE) {
        return Ok(());
    }
    let exe =
        fs::open(EXE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).context(|| "open /proc/self/exe")?;
    if is_sealed(&exe) {
        return Ok(());
    }
    let copy = sealed_copy(&exe).context(|| "copy the runtime's binary")?;
    Err(run_again(&copy).context("run the copy of the runtime's binary"))
}

/// True where another user owns the binary and nobody else may write it, as of an installed one. The kernel is asked by
/// the path that the binary was executed by, which costs a fraction of resolving /proc/self/exe.
fn is_anothers() -> bool {
    let Some(path) = start::exec_path() else { return false };
    let kernels = [&b"/proc/"[..], b"/dev/fd/"].iter().any(|dir| path.as_bytes().starts_with(dir));
    let uid = rustix::process::geteuid();
    // The group's bits are the mask of an access control list, where the file has one (acl(5)).
    !kernels
        && !uid.is_root()
        && fs::stat(path).is_ok_and(|s| s.st_uid != uid.as_raw() && s.st_mode & 0o022 == 0)
}

/// True where the caller may write the file, or owns it and can thus make it writable.
fn may_change(path: &str) -> bool {
    fs::accessat(fs::CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
        || fs::stat(path).is_ok_and(|s| s.st_uid == rustix::process::geteuid().as_raw())
}

fn is_sealed(file: &OwnedFd) -> bool {
    fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::WRITE))
}

fn sealed_copy(exe: &OwnedFd) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Named after the file, since the copy looks for `rt-pull` and the hooks beside that. memfd_create(2) takes 249 bytes.
    let name =
        Some(start::program()?).filter(|path| path.as_os_str().len() < 249).unwrap_or_else(|| "rt".into());
    // Kernels before 6.3 do not know MFD_EXEC, and let every memory file be executed.
    let copy =
        fs::memfd_create(&name, flags | MemfdFlags::EXEC).or_else(|_| fs::memfd_create(&name, flags))?;
    let mut left = fd::stat(exe)?.st_size as usize;
    while left > 0 {
        let n = fs::sendfile(&copy, exe, None, left)?;
        if n == 0 {
            rt_sys::bail!("it has become shorter");
        }
        left -= n;
    }
    seal(&copy)?;
    Ok(copy)
}

/// Seals the copy. The kernel refuses with EBUSY while somebody still holds a page of it, which sendfile(2) itself and
/// the kernel's moving of pages do for a moment. It waits 0.15 s for that, which a loaded machine can exceed.
fn seal(copy: &OwnedFd) -> Result<()> {
    const TRIES: u32 = 20;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    for _ in 1..TRIES {
        match fs::fcntl_add_seals(copy, seals) {
            Err(rustix::io::Errno::BUSY) => continue,
            done => return Ok(done?),
        }
    }
    Ok(fs::fcntl_add_seals(copy, seals)?)
}

fn run_again(copy: &OwnedFd) -> Error {
    let args: Vec<_> = std::env::args_os().collect();
    let env: Vec<_> = std::env::vars_os()
        .map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            name
        })
        .collect();
    match ExecArgs::new(&args, &env) {
        // Debian's Linux 5.10 fails with ENOENT for every file in memory: it cannot execute one.
        Ok(args) => match args.exec_fd(copy) {
            e if e.is(libc::ENOENT) => Error::from_errno(libc::ENOSYS),
            e => e,
        },
        Err(e) => e,
    }
}
