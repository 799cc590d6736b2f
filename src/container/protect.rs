//! The runtime's own binary, kept from containers (CVE-2019-5736).
//!
//! A container whose program is `/proc/self/exe` runs this binary, and another of its processes can then open
//! it for writing through /proc/PID/exe, if the caller may write it. Therefore the runtime of such a caller executes a
//! sealed file in memory. For every other caller, to find that out costs one system call.
//!
//! That file need not be a copy. What /proc/PID/exe shows is the program that was executed, and the kernel maps a second file
//! beside it: the interpreter that the program names (elf(5), PT_INTERP), whose entry it jumps to. So the program is a stand-in of
//! some hundred bytes, and its interpreter is this binary, by the path /proc/self/exe, which leads here until the execve(2) is done.
//! To a mapped file no path leads but /proc/PID/map_files, which takes capabilities in the initial user namespace (proc(5)).
//! Inside, the stand-in is no program: its interpreter would be itself, or whatever executes it.

use rt_sys::error::{Context, Error, Result};
use rt_sys::fd;
use rt_sys::process::ExecArgs;
use rt_sys::start;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{self, Access, AtFlags, MemfdFlags, Mode, OFlags, SealFlags};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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
    let stand_in = match stand_in::of(&exe)? {
        Some(text) => sealed_own(|file| fd::write_all(file, &text)),
        None => sealed_copy(&exe),
    };
    let stand_in = stand_in.context(|| "copy the runtime's binary")?;
    Err(run_again(&stand_in).context("run the copy of the runtime's binary"))
}

/// This executable, to be executed once more when the host's files are out of reach, and as a program of the container: a file
/// that nobody inside can write. `proc` is the host's procfs.
pub(crate) fn executable(proc: BorrowedFd<'_>) -> Result<OwnedFd> {
    let exe = fs::openat(proc, "self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .context(|| "open /proc/self/exe")?;
    if fd::stat(&exe)?.st_size as usize > stand_in::LONGEST {
        return Ok(exe);
    }
    let path = start::program()?;
    let shown = || format!("copy {}", path.display());
    let whole = fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).context(shown)?;
    sealed_copy(&whole).context(shown)
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
    sealed_own(|file| copy(exe, file))
}

/// Writes all of `exe` to `file`.
fn copy(exe: &OwnedFd, file: &OwnedFd) -> Result<()> {
    let mut left = fd::stat(exe)?.st_size as usize;
    while left > 0 {
        let n = fs::sendfile(file, exe, None, left)?;
        if n == 0 {
            rt_sys::bail!("it has become shorter");
        }
        left -= n;
    }
    Ok(())
}

/// Writes this executable, which [`executable`] has opened, to `file`.
pub(crate) fn copy_executable(exe: &OwnedFd, file: &OwnedFd) -> Result<()> {
    let exe = fs::open(fd::link(exe), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    copy(&exe.context(|| "read the runtime's binary")?, file)
}

/// A file in memory with the name of this executable, beside which the copy looks for `rt-pull` and the hooks. `fill` has filled it,
/// and nobody can change it.
fn sealed_own(fill: impl FnOnce(&OwnedFd) -> Result<()>) -> Result<OwnedFd> {
    // memfd_create(2) takes 249 bytes.
    let name = Some(start::program()?).filter(|path| path.as_os_str().len() < 249);
    sealed(&name.unwrap_or_else(|| "rt".into()), fill)
}

/// A file in memory of this name, which `fill` has filled and nobody can change.
pub(crate) fn sealed(name: &Path, fill: impl FnOnce(&OwnedFd) -> Result<()>) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know MFD_EXEC, and let every memory file be executed.
    let copy = fs::memfd_create(name, flags | MemfdFlags::EXEC).or_else(|_| fs::memfd_create(name, flags))?;
    fill(&copy)?;
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

/// A program that has nothing but an interpreter, this binary.
mod stand_in {
    use rt_sys::error::{Context, Result};
    use rt_sys::{fd, mount};
    use rustix::fd::OwnedFd;

    /// No stand-in is longer.
    pub(super) const LONGEST: usize = 1024;

    /// Where a stand-in is mapped: above every binary that is linked to a fixed address, and below what the kernel chooses.
    const ADDRESS: u64 = 0x4000_0000;

    /// The largest size of a page, to which segments are aligned.
    const PAGE: u64 = 0x1_0000;

    /// What the interpreter's path is.
    const PATH: &[u8] = b"/proc/self/exe\0";

    /// Sizes of the file header and of a program header (elf(5), ELFCLASS64).
    const HEADER: usize = 64;
    const SEGMENT: usize = 56;

    const PT_LOAD: u32 = 1;
    const PT_INTERP: u32 = 3;
    const READ: u32 = 4;
    /// What the C library looks up in the headers of the program (getauxval(3), AT_PHDR), and the kernel: PT_TLS, PT_GNU_STACK
    /// and PT_GNU_RELRO, which say where the memory of a thread begins, that no stack is executed, and what becomes read-only.
    const KEPT: [u32; 3] = [7, 0x6474_e551, 0x6474_e552];

    /// The stand-in of the binary `exe`; none where the kernel cannot map that as an interpreter: it has one itself, or is not
    /// linked to a fixed address. Nor on a FUSE file system, whose server may end before this process does: a mapped file is
    /// read as it is executed.
    pub(super) fn of(exe: &OwnedFd) -> Result<Option<Vec<u8>>> {
        if fd::file_system(exe)? == mount::FUSE {
            return Ok(None);
        }
        let mut head = [0; 4096];
        let length = rustix::io::pread(exe, &mut head, 0).context(|| format!("read {}", fd::shown(exe)))?;
        Ok(build(&head[..length]))
    }

    /// The stand-in of a binary that begins with `head`.
    fn build(head: &[u8]) -> Option<Vec<u8>> {
        let short = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
        let long =
            |bytes: &[u8], at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        const ET_EXEC: u16 = 2;
        // 64 bits, little-endian.
        if !head.starts_with(b"\x7fELF\x02\x01")
            || short(16)? != ET_EXEC
            || usize::from(short(54)?) != SEGMENT
        {
            return None;
        }
        let first = usize::try_from(long(head, 32)?).ok()?;
        let count = usize::from(short(56)?);
        let segments = head.get(first..first.checked_add(count * SEGMENT)?)?;
        let mut kept = Vec::new();
        for segment in segments.chunks_exact(SEGMENT) {
            match u32::from_le_bytes(segment[..4].try_into().ok()?) {
                PT_INTERP => return None,
                PT_LOAD if long(segment, 16)?.checked_add(long(segment, 40)?)? > ADDRESS => return None,
                kind if KEPT.contains(&kind) => kept.extend_from_slice(segment),
                _ => {}
            }
        }
        let headers = HEADER + 2 * SEGMENT + kept.len();
        let whole = headers + PATH.len();
        let segment = |kind: u32, offset: usize, size: usize| {
            let (offset, size) = (offset as u64, size as u64);
            let address = ADDRESS + offset;
            let longs = [offset, address, address, size, size, if kind == PT_LOAD { PAGE } else { 1 }];
            let words = [kind, READ].map(u32::to_le_bytes).concat();
            [words, longs.map(u64::to_le_bytes).concat()].concat()
        };
        let mut text = head.get(..HEADER)?.to_vec();
        text[32..40].copy_from_slice(&(HEADER as u64).to_le_bytes());
        // Where sections are: there are none.
        text[40..48].fill(0);
        text[56..58].copy_from_slice(&u16::try_from(2 + kept.len() / SEGMENT).ok()?.to_le_bytes());
        text[58..64].fill(0);
        text.extend(segment(PT_INTERP, headers, PATH.len()));
        text.extend(segment(PT_LOAD, 0, whole));
        text.extend(kept);
        text.extend(PATH);
        (text.len() <= LONGEST).then_some(text)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn segment(kind: u32, address: u64, size: u64) -> Vec<u8> {
            let longs = [0, address, address, size, size, 0x1000];
            [[kind, READ].map(u32::to_le_bytes).concat(), longs.map(u64::to_le_bytes).concat()].concat()
        }

        fn head(kind: u16, segments: &[Vec<u8>]) -> Vec<u8> {
            let mut head =
                [b"\x7fELF\x02\x01\x01".to_vec(), vec![0; 9], kind.to_le_bytes().to_vec()].concat();
            head.resize(HEADER, 0);
            head[32..40].copy_from_slice(&64_u64.to_le_bytes());
            head[54..56].copy_from_slice(&56_u16.to_le_bytes());
            head[56..58].copy_from_slice(&u16::try_from(segments.len()).unwrap().to_le_bytes());
            [head, segments.concat()].concat()
        }

        #[test]
        fn a_stand_in_has_an_interpreter_and_the_librarys_segments() {
            let (tls, stack) = (segment(7, 0x50_0000, 48), segment(0x6474_e551, 0, 0));
            let binary =
                head(2, &[segment(PT_LOAD, 0x40_0000, 99), segment(4, 0, 9), tls.clone(), stack.clone()]);
            let text = build(&binary).unwrap();
            assert_eq!(text[..32], binary[..32]);
            assert_eq!(text[56..58], [4, 0]);
            assert_eq!(text[64..68], PT_INTERP.to_le_bytes());
            assert_eq!(text[64 + 2 * SEGMENT..][..2 * SEGMENT], [tls, stack].concat());
            assert!(text.ends_with(PATH) && text.len() == 64 + 4 * SEGMENT + PATH.len());
            for part in 0..text.len() {
                let _ = build(&binary[..part.min(binary.len())]);
            }
        }

        #[test]
        fn what_the_kernel_cannot_map_as_an_interpreter_has_no_stand_in() {
            let load = segment(PT_LOAD, 0x40_0000, 99);
            for binary in [
                head(3, std::slice::from_ref(&load)),
                head(2, &[load.clone(), segment(PT_INTERP, 0, 20)]),
                head(2, &[segment(PT_LOAD, ADDRESS - 1, 99)]),
                head(2, &[segment(PT_LOAD, u64::MAX, 99)]),
                b"#!/bin/sh\n".to_vec(),
                Vec::new(),
            ] {
                assert_eq!(build(&binary), None);
            }
        }
    }
}
