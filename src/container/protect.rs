//! The runtime's own binary, kept from containers (CVE-2019-5736).
//!
//! A container whose program is `/proc/self/exe` runs this binary, and another of its processes can then open
//! it for writing through /proc/PID/exe, if the caller may write it. So a caller who may runs a sealed copy in
//! memory instead; everybody else pays one system call.

use crate::error::{Context, Error, Result};
use crate::sys::process::ExecArgs;
use rustix::fd::OwnedFd;
use rustix::fs::{self, Access, AtFlags, MemfdFlags, Mode, OFlags, SealFlags};

/// Replaces this process by a sealed copy of itself where its binary could be written; else returns.
pub fn protect_binary() -> Result<()> {
    const EXE: &str = "/proc/self/exe";
    if fs::accessat(fs::CWD, EXE, Access::WRITE_OK, AtFlags::EACCESS).is_err() {
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

fn is_sealed(file: &OwnedFd) -> bool {
    fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::WRITE))
}

fn sealed_copy(exe: &OwnedFd) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know EXEC, and need it not.
    let copy = fs::memfd_create("rt", flags | MemfdFlags::EXEC).or_else(|_| fs::memfd_create("rt", flags))?;
    let mut left = fs::fstat(exe)?.st_size as usize;
    while left > 0 {
        let n = fs::sendfile(&copy, exe, None, left)?;
        if n == 0 {
            crate::bail!("it has become shorter");
        }
        left -= n;
    }
    fs::fcntl_add_seals(&copy, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(copy)
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
        Ok(args) => args.exec_fd(copy),
        Err(e) => e,
    }
}
