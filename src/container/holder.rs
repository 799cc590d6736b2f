//! The process that holds the container of a run while its launcher may still start ranks.
//!
//! The container ends with its last process, and a rank may have ended before the next one is started. So the rank that makes the
//! container makes this process, too, which waits inside until the launcher has ended, but a minute at most; the last of the
//! ranks that the launcher has announced ends it before that (`step`). The others join by it.
//!
//! It runs for no rank: it is nobody's child, is in a session of its own, and has neither the streams of one, whose other ends wait
//! for their end, nor any descriptor but the launcher's pidfd. It is confined as the program is and has nothing of the host in its
//! memory, since the container may be hostile, and whoever joins by it must be able to look at it. Therefore its program is one
//! of some instructions, which needs no library of the image's.

use super::init;
use super::plan::ProcessPlan;
use super::program::Prepared;
use super::protect;
use crate::store::{ProcessIdentity, open_pidfd};
use rt_sys::error::{Error, Result};
use rt_sys::ns::Namespaces;
use rt_sys::process::{self, ExecArgs, Memory};
use rt_sys::{bail, err, fd, signal};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::pipe::PipeFlags;
use std::convert::Infallible;
use std::path::Path;

/// What lists of processes show.
const NAME: &str = "rt-holder";

/// What is needed to make the process, opened on the host.
#[derive(Debug)]
pub(super) struct Holder {
    launcher: OwnedFd,
    program: OwnedFd,
}

impl Holder {
    /// For a run whose launcher is the process `launcher`. `None` where that has ended, and on a machine for which there is no such
    /// program.
    ///
    /// # Errors
    /// The kernel makes no files in memory, or no descriptors.
    pub(super) fn new(launcher: i32) -> Result<Option<Holder>> {
        let (Some(text), Some(pidfd)) = (program::text(), open_pidfd(launcher)?) else { return Ok(None) };
        let program = protect::sealed(Path::new(NAME), |file| fd::write_all(file, &text))?;
        Ok(Some(Holder { launcher: pidfd, program }))
    }

    /// Makes the process, beside one that is ready to become the program of `plan`, and makes it known by `note`. `ignored` are
    /// the signals that this process ignores.
    ///
    /// # Errors
    /// The user may have no more processes, or those of `note`.
    pub(super) fn start(
        &self,
        plan: &ProcessPlan,
        prepared: &Prepared,
        ignored: u64,
        note: impl FnOnce(i32, ProcessIdentity) -> Result<()>,
    ) -> Result<()> {
        // One that nobody knows must not stay: it ends where this process does before it has said that all know it.
        let (known, when_known) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // As the program gets them. A child of a process that ignores SIGCHLD cannot be waited for.
        signal::reset(ignored);
        let mut holder = Err(err!("its parent has ended"));
        // A child of a child that ends: the program has no children but its own.
        let parent = process::spawn(Namespaces::NONE, Memory::Shared, || {
            holder = self.spawn(plan, prepared, &known);
            0
        })?;
        process::wait(parent.pid)?;
        let (pid, identity) = holder?;
        note(pid, identity)?;
        fd::write_all(&when_known, b"k")
    }

    /// Makes the process, in one that ends after it.
    fn spawn(
        &self,
        plan: &ProcessPlan,
        prepared: &Prepared,
        known: &OwnedFd,
    ) -> Result<(i32, ProcessIdentity)> {
        // It gets neither the streams of the program, nor the lock of the container's directory, for which others wait.
        rustix::stdio::dup2_stdin(&self.launcher)?;
        fd::close_all_but(1, &[self.program.as_raw_fd(), known.as_raw_fd()])?;
        let child =
            process::spawn(Namespaces::NONE, Memory::Copied, || match self.hold(plan, prepared, known) {
                Ok(never) => match never {},
                Err(_) => 1,
            })?;
        Ok((child.pid.as_raw_nonzero().get(), identity(&child)?))
    }

    /// Becomes the process; returns only the error.
    fn hold(&self, plan: &ProcessPlan, prepared: &Prepared, known: &OwnedFd) -> Result<Infallible> {
        // Until it has executed, its memory is that of a process of the host.
        init::undumpable()?;
        rustix::process::setsid()?;
        let args = ExecArgs::new(&[NAME], &[])?;
        if rustix::io::read(known, &mut [0])? == 0 {
            bail!("this process is not known");
        }
        plan.confine(prepared)?;
        Err(args.exec_fd(&self.program))
    }
}

/// Says why there is no such process: the rank starts all the same.
pub(super) fn tell(e: &Error) {
    log::debug!("the container ends with the last of its ranks: {e}");
}

/// The identity of a child that nobody has waited for.
fn identity(child: &process::Child) -> Result<ProcessIdentity> {
    if let Some(identity) = ProcessIdentity::of(child.pid, None) {
        return Ok(identity);
    }
    let pid = child.pid.as_raw_nonzero().get();
    let time = process::start_time(pid)?.ok_or_else(|| err!("process {pid} has ended"))?;
    Ok(ProcessIdentity::StartTime(time))
}

/// What the process executes: it waits until its descriptor 0 can be read, as a pidfd can when its process has ended, and ends.
mod program {
    /// How long it waits at most, in seconds. Launchers start the ranks of a node one right after the other.
    const LONGEST: u32 = 60;

    /// Where it is mapped, as programs that are linked to a fixed address are.
    const ADDRESS: u64 = 0x40_0000;

    /// Sizes of the file header and of a program header (elf(5), ELFCLASS64).
    const HEADER: usize = 64;
    const SEGMENT: usize = 56;

    const PT_LOAD: u32 = 1;
    const PT_GNU_STACK: u32 = 0x6474_e551;
    const EXECUTE: u32 = 1;
    const WRITE: u32 = 2;
    const READ: u32 = 4;

    /// The machine's number (elf(5), e_machine) and its instructions; `None` for a machine that has none here.
    fn instructions(longest: u32) -> Option<(u16, Vec<u8>)> {
        if cfg!(target_arch = "x86_64") {
            let milliseconds = (longest * 1000).to_le_bytes();
            let code = [
                &[0x48, 0xb8, 0, 0, 0, 0, 1, 0, 0, 0][..], // movabs rax, 1 << 32: a pollfd of descriptor 0 and POLLIN
                &[0x50],                                   // push rax
                &[0x48, 0x89, 0xe7],                       // mov rdi, rsp
                &[0xbe, 1, 0, 0, 0],                       // mov esi, 1
                &[0xba],                                   // mov edx, milliseconds
                &milliseconds,
                &[0xb8, 7, 0, 0, 0],    // mov eax, 7: poll(2)
                &[0x0f, 0x05],          // syscall
                &[0x31, 0xff],          // xor edi, edi
                &[0xb8, 0xe7, 0, 0, 0], // mov eax, 231: exit_group(2)
                &[0x0f, 0x05],          // syscall
            ];
            return Some((62, code.concat()));
        }
        if cfg!(target_arch = "aarch64") {
            let code: [u32; 13] = [
                0xd2c0_0029,                // mov x9, 1 << 32: a pollfd of descriptor 0 and POLLIN
                0xf81f_0fe9,                // str x9, [sp, -16]!
                0x9100_03e0,                // mov x0, sp
                0xd280_0021,                // mov x1, 1
                0xd280_000a | longest << 5, // mov x10, seconds
                0xa9bf_7fea,                // stp x10, xzr, [sp, -16]!: a timespec
                0x9100_03e2,                // mov x2, sp
                0xd280_0003,                // mov x3, 0
                0xd280_0928,                // mov x8, 73: ppoll(2)
                0xd400_0001,                // svc 0
                0xd280_0000,                // mov x0, 0
                0xd280_0bc8,                // mov x8, 94: exit_group(2)
                0xd400_0001,                // svc 0
            ];
            return Some((183, code.map(u32::to_le_bytes).concat()));
        }
        None
    }

    /// The file of it.
    pub(super) fn text() -> Option<Vec<u8>> {
        build(LONGEST)
    }

    fn build(longest: u32) -> Option<Vec<u8>> {
        let (machine, code) = instructions(longest)?;
        let (headers, segments) = (HEADER + 2 * SEGMENT, 2_u16);
        let size = (headers + code.len()) as u64;
        let mut text = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        // An executable (ET_EXEC) of version 1.
        text.extend([2_u16.to_le_bytes(), machine.to_le_bytes()].concat());
        text.extend(1_u32.to_le_bytes());
        // Where it begins, and where its program headers and its sections are, of which there are none.
        for long in [ADDRESS + headers as u64, HEADER as u64, 0] {
            text.extend(long.to_le_bytes());
        }
        text.extend(0_u32.to_le_bytes());
        for short in [HEADER as u16, SEGMENT as u16, segments, 0, 0, 0] {
            text.extend(short.to_le_bytes());
        }
        for (kind, may, address, size, align) in
            [(PT_LOAD, READ | EXECUTE, ADDRESS, size, 0x1_0000), (PT_GNU_STACK, READ | WRITE, 0, 0, 16)]
        {
            text.extend([kind, may].map(u32::to_le_bytes).concat());
            text.extend([0, address, address, size, size, align].map(u64::to_le_bytes).concat());
        }
        text.extend(code);
        Some(text)
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::io::Write;
        use std::os::unix::fs::PermissionsExt;
        use std::process::{Command, Stdio};
        use std::time::{Duration, Instant};

        #[test]
        fn it_ends_when_its_descriptor_can_be_read_or_its_time_is_over() {
            let path = std::env::temp_dir().join(format!("rt-holder-{}", std::process::id()));
            for (longest, told) in [(20, true), (1, false)] {
                let Some(text) = build(longest) else { return };
                std::fs::write(&path, text).unwrap();
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
                let begun = Instant::now();
                let mut child = Command::new(&path).stdin(Stdio::piped()).spawn().unwrap();
                std::thread::sleep(Duration::from_millis(100));
                assert_eq!(child.try_wait().unwrap(), None, "it waits");
                if told {
                    child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
                }
                // `wait` would close its descriptor.
                let status = loop {
                    match child.try_wait().unwrap() {
                        Some(status) => break status,
                        None => std::thread::sleep(Duration::from_millis(10)),
                    }
                };
                assert!(status.success(), "{status:?}");
                assert_eq!(begun.elapsed() < Duration::from_secs(1), told);
            }
            std::fs::remove_file(&path).unwrap();
        }
    }
}
