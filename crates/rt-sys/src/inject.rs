//! System calls that another process makes for this one, while it is held (ptrace(2)).
//!
//! A held thread waits in the kernel, mostly in a system call that was interrupted. It gets other registers, executes one instruction, the
//! one that makes system calls in the kernel's own code of that process (vdso(7)), and stops again. Then it gets its registers back, and
//! the kernel makes the interrupted call once more when it goes on. Signals are blocked meanwhile, so that no handler runs. The thread is
//! not stepped: the kernel would force a SIGTRAP on it then, and takes the program's handler of that away where it is blocked or ignored.

use super::check;
use crate::error::{Context, Error, Result};
use crate::{bail, err};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use std::cell::{Cell, OnceCell};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What a call does to the registers of a thread.
#[cfg(target_arch = "x86_64")]
mod machine {
    /// The instruction that makes a system call.
    pub(super) const SYSCALL: &[u8] = &[0x0f, 0x05];

    pub(super) type Registers = libc::user_regs_struct;

    pub(super) fn set(registers: &mut Registers, at: u64, number: u64, args: [u64; 6]) {
        // Whatever call was interrupted, the kernel has none to make once more.
        registers.orig_rax = u64::MAX;
        (registers.rip, registers.rax) = (at, number);
        let [first, second, third, fourth, fifth, sixth] = args;
        (registers.rdi, registers.rsi, registers.rdx) = (first, second, third);
        (registers.r10, registers.r8, registers.r9) = (fourth, fifth, sixth);
    }

    /// The number and the first argument of the call that begins.
    pub(super) fn begun(registers: &Registers) -> [u64; 2] {
        [registers.orig_rax, registers.rdi]
    }

    pub(super) fn returned(registers: &Registers) -> u64 {
        registers.rax
    }

    /// Where the stack ends, below what a function without one may use (the red zone of the ABI).
    pub(super) fn free_stack(registers: &Registers) -> u64 {
        registers.rsp.saturating_sub(128)
    }

    /// What the kernel has a call return that begins anew, unless a handler runs before (include/linux/errno.h).
    const ERESTARTNOHAND: i64 = 514;
    /// The same with a call that goes on by a note of the kernel's (restart_syscall(2)), which the calls of a tracer remove.
    const ERESTART_RESTARTBLOCK: i64 = 516;
    /// The code segment of programs of 64 bits.
    const CODE: u64 = 0x33;

    /// The number of the call that is interrupted.
    pub(super) fn interrupted(registers: &Registers) -> Option<u64> {
        let is_interrupted = registers.cs == CODE
            && [i64::from(libc::EINTR), ERESTART_RESTARTBLOCK]
                .contains(&(registers.rax as i64).wrapping_neg());
        // A handler that has returned leaves no number.
        (is_interrupted && registers.orig_rax as i64 >= 0).then_some(registers.orig_rax)
    }

    pub(super) fn make_again(registers: &mut Registers, number: u64) {
        (registers.orig_rax, registers.rax) = (number, -ERESTARTNOHAND as u64);
    }

    /// How much code [`number_by`] is given, in bytes.
    pub(super) const CODE_LENGTH: usize = 8;
    /// The calls that the kernel goes on with by a note.
    const NOTED: [libc::c_long; 4] =
        [libc::SYS_poll, libc::SYS_nanosleep, libc::SYS_clock_nanosleep, libc::SYS_futex];

    /// Where the code ends behind whose call the thread goes on.
    pub(super) fn behind_call(registers: &Registers) -> u64 {
        registers.rip
    }

    /// The number that the last of `code` gives to the call that it makes, as libraries do: mov $number,%eax; syscall, or (glibc since
    /// 2.41) mov offset(%rsp),%rax; syscall, where `read` reads memory. Other code could have it from anywhere.
    pub(super) fn number_by(
        registers: &Registers,
        code: [u8; CODE_LENGTH],
        read: impl FnOnce(u64) -> Option<u64>,
    ) -> Option<u64> {
        let number = match code {
            // With such a prefix it is another register.
            [prefix, 0xb8, a, b, c, d, 0x0f, 0x05] if prefix & 0xf1 != 0x41 => {
                u32::from_le_bytes([a, b, c, d]).into()
            }
            [_, 0x48, 0x8b, 0x44, 0x24, offset, 0x0f, 0x05] => {
                read(registers.rsp.checked_add_signed(i64::from(offset as i8))?)?
            }
            _ => return None,
        };
        NOTED.contains(&libc::c_long::try_from(number).ok()?).then_some(number)
    }
}

#[cfg(target_arch = "aarch64")]
mod machine {
    pub(super) const SYSCALL: &[u8] = &[0x01, 0x00, 0x00, 0xd4];

    pub(super) type Registers = libc::user_regs_struct;

    pub(super) fn set(registers: &mut Registers, at: u64, number: u64, args: [u64; 6]) {
        registers.pc = at;
        registers.regs[8] = number;
        registers.regs[..6].copy_from_slice(&args);
    }

    pub(super) fn begun(registers: &Registers) -> [u64; 2] {
        [registers.regs[8], registers.regs[0]]
    }

    pub(super) fn returned(registers: &Registers) -> u64 {
        registers.regs[0]
    }

    pub(super) fn free_stack(registers: &Registers) -> u64 {
        registers.sp.saturating_sub(128)
    }

    /// The first argument is lost. Few calls return so: the kernel makes the others anew by itself.
    pub(super) fn interrupted(_: &Registers) -> Option<u64> {
        None
    }

    pub(super) fn make_again(_: &mut Registers, _: u64) {}

    pub(super) const CODE_LENGTH: usize = 0;

    pub(super) fn behind_call(_: &Registers) -> u64 {
        0
    }

    pub(super) fn number_by(
        _: &Registers,
        _: [u8; CODE_LENGTH],
        _: impl FnOnce(u64) -> Option<u64>,
    ) -> Option<u64> {
        None
    }
}

use machine::Registers;

/// NT_PRSTATUS (elf.h): the general registers.
const GENERAL: usize = 1;
/// How the stop of a thread says that it begins or ends a system call (PTRACE_O_TRACESYSGOOD).
const AT_CALL: i32 = libc::SIGTRAP | 0x80;
/// PTRACE_PEEKSIGINFO_SHARED (linux/ptrace.h), which libc has not for each machine.
const SHARED: u32 = 1;
/// How many signals that wait are read at once.
const AT_ONCE: usize = 64;

/// How long a thread may take for what it is had to do. Code, memory and directories are the program's, which can have a call wait for ever,
/// or exchange the code that makes it.
pub const WITHIN: Duration = Duration::from_secs(5);
/// How often a thread is asked whether it has stopped before this one sleeps in between, and for how long it does.
const LOOKS: u32 = 200;
const PAUSE: Duration = Duration::from_micros(200);
/// How much of the kernel's code in a process is looked at, in bytes.
const LARGEST_VDSO: u64 = 1 << 16;
/// The signals that are blocked during a call: all but SIGSYS, which tells that the program answers its calls itself
/// (PR_SET_SYSCALL_USER_DISPATCH(2const), SECCOMP_RET_TRAP). Where that is blocked the kernel would take its handler away.
const BLOCKED: u64 = !(1 << (libc::SIGSYS - 1));

/// Which of the signals that wait are asked for (struct __ptrace_peeksiginfo_args, linux/ptrace.h; not each libc has it).
#[repr(C)]
struct Peek {
    offset: u64,
    flags: u32,
    count: i32,
}

/// A thread that is held. It goes on when this is dropped, as if nothing had been.
#[derive(Debug)]
pub struct Held {
    /// Its id, also that of its process where it is the first.
    pub id: i32,
    /// When it makes no more calls, and its signals are not looked through any more.
    end: Cell<Instant>,
    /// Where the instruction is that makes its calls.
    instruction: OnceCell<u64>,
    /// It has other registers than its own, and does not stop to get them back.
    is_lost: Cell<bool>,
}

impl Held {
    /// Holds the thread `id`. One that a signal has stopped stays stopped when it goes on.
    ///
    /// # Errors
    /// EPERM: this process may not, or another one traces it. ESRCH: it has ended.
    pub fn begin(id: i32) -> Result<Held> {
        Held::begin_until(id, Instant::now() + WITHIN)
    }

    /// The same, where it makes no call any more at `end`, and what takes long ends then.
    ///
    /// # Errors
    /// The same.
    pub fn begin_until(id: i32, end: Instant) -> Result<Held> {
        request(libc::PTRACE_SEIZE as _, id, 0, libc::PTRACE_O_TRACESYSGOOD as u64)
            .context(|| format!("trace thread {id}"))?;
        let held = Held { id, end: Cell::new(end), instruction: OnceCell::new(), is_lost: Cell::new(false) };
        loop {
            request(libc::PTRACE_INTERRUPT as _, id, 0, 0).context(|| format!("stop thread {id}"))?;
            let status = held.wait()?;
            if status >> 16 == libc::PTRACE_EVENT_STOP {
                return Ok(held);
            }
            // A signal was on its way. The thread gets it, and stops behind that.
            request(libc::PTRACE_CONT as _, id, 0, u64::from(libc::WSTOPSIG(status).unsigned_abs()))
                .context(|| format!("continue thread {id}"))?;
        }
    }

    /// Lets it make calls for so much longer: its caller has done something else meanwhile.
    pub fn extend(&self, by: Duration) {
        self.end.set(self.end.get() + by);
    }

    /// Has the kernel end the thread's process if this one ends while it is held, by whatever: in the middle of a call it would go on with
    /// the registers and the signal mask of that, and ended is better than damaged.
    ///
    /// # Errors
    /// It has ended.
    pub fn end_with_caller(&self) -> Result<()> {
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACESYSGOOD;
        request(libc::PTRACE_SETOPTIONS as _, self.id, 0, options as u64)
            .map(drop)
            .context(|| format!("have thread {} end with this process", self.id))
    }

    /// Has the thread make system call `number`, and returns what that returns. What the arguments lead to lies in its memory.
    ///
    /// # Errors
    /// Those of the call. ETIMEDOUT: it has not come to its end in time.
    pub fn call(&self, number: libc::c_long, args: [u64; 6]) -> Result<u64> {
        self.call_within(WITHIN, number, args)
    }

    /// The same, where the call itself may take so long: one that waits for nobody comes to its end.
    ///
    /// # Errors
    /// The same.
    pub fn call_within(&self, within: Duration, number: libc::c_long, args: [u64; 6]) -> Result<u64> {
        let shown = || format!("have thread {} make a system call", self.id);
        if self.is_lost.get() || Instant::now() > self.end.get() {
            return Err(Error::from(Errno::TIMEDOUT).context(shown()));
        }
        let at = self.instruction().context(shown)?;
        let (before, signals) = (self.registers().context(shown)?, self.blocked().context(shown)?);
        self.block(BLOCKED).context(shown)?;
        let mut registers = before;
        machine::set(&mut registers, at, number.unsigned_abs(), args);
        // It stops before the call and behind it.
        let made = self
            .set_registers(&registers)
            .and_then(|()| self.run_to_call(WITHIN))
            .and_then(|()| self.registers())
            .and_then(|begun| match machine::begun(&begun) == [number.unsigned_abs(), args[0]] {
                true => self.run_to_call(within),
                // The code is the program's.
                false => Err(err!("it makes another one")),
            })
            .and_then(|()| self.registers());
        // It goes on as it was, whatever has become of the call.
        let runs = made.as_ref().is_err_and(|e| e.is(libc::ETIMEDOUT));
        let back = self.stop_again(runs).and_then(|()| self.set_registers(&before));
        self.is_lost.set(back.is_err());
        back.and_then(|()| self.block(signals)).context(shown)?;
        let returned = machine::returned(&made.context(shown)?);
        match i32::try_from(returned as i64) {
            Ok(error @ -4095..0) => Err(Errno::from_raw_os_error(-error).into()),
            _ => Ok(returned),
        }
    }

    /// As [`Held::call`], with `bytes` in the thread's memory, whose address `args` gets.
    ///
    /// # Errors
    /// Its stack has no room for them; those of the call.
    pub fn call_with(
        &self,
        number: libc::c_long,
        bytes: &[u8],
        args: impl FnOnce(u64) -> [u64; 6],
    ) -> Result<u64> {
        let length = bytes.len() as u64;
        let below = machine::free_stack(&self.registers()?).checked_sub(length);
        let at = below.ok_or_else(|| err!("thread {} has no stack", self.id))? & !15;
        let memory = self.memory()?;
        let shown = || self.memory_path().display().to_string();
        let mut before = vec![0; bytes.len()];
        memory.read_exact_at(&mut before, at).context(shown)?;
        memory.write_all_at(bytes, at).context(shown)?;
        let made = self.call(number, args(at));
        memory.write_all_at(&before, at).context(shown)?;
        made
    }

    /// The number of the system call that returns EINTR when the thread goes on, or may do so. Of one that has been interrupted before, and
    /// goes on by a note of the kernel's (restart_syscall(2)), the program's code tells, or it is not known.
    ///
    /// # Errors
    /// It has ended.
    pub fn interrupted(&self) -> Result<Option<u64>> {
        let shown = || format!("look at the registers of thread {}", self.id);
        let registers = self.registers().context(shown)?;
        match machine::interrupted(&registers) {
            Some(number) if number == libc::SYS_restart_syscall as u64 => {
                let memory = self.memory()?;
                let mut code = [0; machine::CODE_LENGTH];
                let at = machine::behind_call(&registers).saturating_sub(machine::CODE_LENGTH as u64);
                let read = |at| {
                    let mut word = [0; size_of::<u64>()];
                    memory.read_exact_at(&mut word, at).ok().map(|()| u64::from_ne_bytes(word))
                };
                let code_read = memory.read_exact_at(&mut code, at).is_ok();
                Ok(code_read.then(|| machine::number_by(&registers, code, read)).flatten())
            }
            number => Ok(number),
        }
    }

    /// Has the kernel make system call `number`, the one that is interrupted, once more. A handler of a signal that runs before ends it, as
    /// ever.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn make_again(&self, number: u64) -> Result<()> {
        let shown = || format!("set the registers of thread {}", self.id);
        let mut registers = self.registers().context(shown)?;
        machine::make_again(&mut registers, number);
        self.set_registers(&registers).context(shown)
    }

    /// Takes the signal that a child has been stopped or continued (SIGCHLD) away from the thread's process, for which it waits. Others
    /// stay. True where there was one.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn forget_stop_of_child(&self) -> Result<bool> {
        self.forget(libc::SIGCHLD, |info| {
            // SAFETY: si_status is part of what the kernel says of children (sigaction(2)).
            let status = unsafe { info.si_status() };
            [(libc::CLD_STOPPED, libc::SIGSTOP), (libc::CLD_CONTINUED, libc::SIGCONT)]
                .contains(&(info.si_code, status))
        })
    }

    /// Has the thread go on to the next place where the kernel looks for signals, and stop there again.
    ///
    /// # Errors
    /// It has ended.
    pub fn come_round(&self) -> Result<()> {
        self.stop_again(false).context(|| format!("continue thread {}", self.id))
    }

    /// Takes the signal that continues (SIGCONT) away from the thread's process, for which it waits: it goes on by it, and does not see it.
    /// All of its threads are held. True where there was one.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn forget_continue(&self) -> Result<bool> {
        self.forget(libc::SIGCONT, |_| true)
    }

    /// Takes signal `number` away from the thread's process, if one that waits is such a one. It waits once at most, as those do that are
    /// not real-time ones (signal(7)).
    fn forget(&self, number: i32, is_one: impl Fn(&libc::siginfo_t) -> bool) -> Result<bool> {
        let shown = || format!("take a signal from thread {}", self.id);
        let [own, of_process] = self.pending().context(shown)?.map(|mask| mask & (1 << (number - 1)) != 0);
        // Its own the thread would get first.
        if own || !of_process || self.find_waiting(number).context(shown)?.is_none_or(|info| !is_one(&info)) {
            return Ok(false);
        }
        // Before a thread goes back to its program, the kernel shows each signal that is not blocked to whoever traces it.
        let blocked = self.blocked().context(shown)?;
        self.block(!(1 << (number - 1))).context(shown)?;
        let taken = self.take();
        self.block(blocked).and(taken).map(|()| true).context(shown)
    }

    /// Has the thread come to its next signal, and go on without it to the stop behind.
    fn take(&self) -> Result<()> {
        loop {
            request(libc::PTRACE_CONT as _, self.id, 0, 0)?;
            // It may tell once more that it is stopped, before it looks for signals.
            if self.wait()? >> 16 != libc::PTRACE_EVENT_STOP {
                break;
            }
        }
        self.stop_again(false)
    }

    /// Which signals wait for the thread, and which for its process, each a bit.
    fn pending(&self) -> Result<[u64; 2]> {
        let status = crate::fd::read_file(&PathBuf::from(format!("/proc/{}/status", self.id)))?;
        let mask = |key: &str| {
            let mut lines = status.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
            let text = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            let mask = text.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
            mask.ok_or_else(|| err!("a file status of /proc has no mask {key}"))
        };
        Ok([mask("SigPnd")?, mask("ShdPnd")?])
    }

    /// What is known of signal `number` that waits for the thread's process; `None` where the kernel had no room to note it. For each that
    /// is read the kernel goes through all before it, and their number lies with the program and whoever sends them. So they are read from
    /// both ends: what `rt` has caused is behind all, and what has waited for long is before.
    ///
    /// # Errors
    /// ETIMEDOUT: it is not found in time.
    fn find_waiting(&self, number: i32) -> Result<Option<libc::siginfo_t>> {
        let (mut first, mut last) = (0, self.count_waiting()?);
        while first < last {
            let at_end = last.saturating_sub(AT_ONCE as u64).max(first);
            for begin in [at_end, first] {
                let found = self.peek::<AT_ONCE>(begin)?;
                if let Some(found) = found.into_iter().find(|info| info.si_signo == number) {
                    return Ok(Some(found));
                }
            }
            (first, last) = (first + AT_ONCE as u64, at_end);
        }
        Ok(None)
    }

    /// How many signals wait for the thread's process.
    fn count_waiting(&self) -> Result<u64> {
        let is_behind = |at: u64| Ok::<bool, Error>(self.peek::<1>(at)?.is_empty());
        let mut most = 1;
        while !is_behind(most)? {
            most *= 2;
        }
        let (mut least, mut most) = (most / 2, most);
        while least < most {
            let middle = least.midpoint(most);
            match is_behind(middle)? {
                true => most = middle,
                false => least = middle + 1,
            }
        }
        Ok(least)
    }

    /// Signals that wait for the thread's process, from the one with the place `offset` on, `N` at most.
    fn peek<const N: usize>(&self, offset: u64) -> Result<Vec<libc::siginfo_t>> {
        if Instant::now() > self.end.get() {
            return Err(Error::from(Errno::TIMEDOUT).context("look through its signals"));
        }
        let args = Peek { offset, flags: SHARED, count: N as i32 };
        // SAFETY: all zeros are such structures.
        let mut infos: [libc::siginfo_t; N] = unsafe { std::mem::zeroed() };
        let (args, data) = ((&raw const args) as usize, (&raw mut infos) as u64);
        let read = request(libc::PTRACE_PEEKSIGINFO as _, self.id, args, data)?;
        Ok(infos[..usize::try_from(read).unwrap_or_default().min(N)].to_vec())
    }

    fn memory_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/mem", self.id))
    }

    fn memory(&self) -> Result<File> {
        let path = self.memory_path();
        File::options().read(true).write(true).open(&path).context(|| format!("open {}", path.display()))
    }

    /// The address of the instruction that makes system calls.
    fn instruction(&self) -> Result<u64> {
        if let Some(known) = self.instruction.get() {
            return Ok(*known);
        }
        let found = self.find_instruction()?;
        Ok(*self.instruction.get_or_init(|| found))
    }

    fn find_instruction(&self) -> Result<u64> {
        // How long that file is lies with the program.
        let mut maps = BufReader::new(File::open(format!("/proc/{}/maps", self.id))?);
        let mut line = Vec::new();
        let range = loop {
            line.clear();
            if maps.read_until(b'\n', &mut line)? == 0 {
                bail!("it has no vdso");
            }
            if let Some(range) = str::from_utf8(&line).ok().and_then(vdso) {
                break range;
            }
        };
        let address = |text: &str| u64::from_str_radix(text, 16).map_err(|_| err!("maps has another form"));
        let (start, end) = range.split_once('-').unwrap_or_default();
        let (start, end) = (address(start)?, address(end)?);
        let mut code = vec![0; end.saturating_sub(start).min(LARGEST_VDSO) as usize];
        self.memory()?
            .read_exact_at(&mut code, start)
            .context(|| self.memory_path().display().to_string())?;
        let found = code.windows(machine::SYSCALL.len()).position(|part| part == machine::SYSCALL);
        found.map(|at| start + at as u64).ok_or_else(|| err!("its vdso makes no system call"))
    }

    fn registers(&self) -> Result<Registers> {
        // SAFETY: all zeros are registers.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        let mut part = libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of::<Registers>() };
        request(libc::PTRACE_GETREGSET as _, self.id, GENERAL, (&raw mut part) as u64)?;
        // Those of a program of 32 bits are others, and fewer.
        if part.iov_len != size_of::<Registers>() {
            bail!("its program is none of 64 bits");
        }
        Ok(registers)
    }

    fn set_registers(&self, registers: &Registers) -> Result<()> {
        let base = (registers as *const Registers).cast_mut().cast();
        let mut part = libc::iovec { iov_base: base, iov_len: size_of::<Registers>() };
        request(libc::PTRACE_SETREGSET as _, self.id, GENERAL, (&raw mut part) as u64).map(drop)
    }

    /// The signals that it blocks, each a bit: outside of the call that is interrupted, which may block others.
    ///
    /// # Errors
    /// It has ended.
    pub fn blocked(&self) -> Result<u64> {
        let mut signals = 0u64;
        request(libc::PTRACE_GETSIGMASK as _, self.id, size_of::<u64>(), (&raw mut signals) as u64)?;
        Ok(signals)
    }

    fn block(&self, signals: u64) -> Result<()> {
        request(libc::PTRACE_SETSIGMASK as _, self.id, size_of::<u64>(), (&raw const signals) as u64)
            .map(drop)
    }

    /// Has it run until it begins a system call, or ends the one that it has begun.
    fn run_to_call(&self, within: Duration) -> Result<()> {
        loop {
            request(libc::PTRACE_SYSCALL as _, self.id, 0, 0)?;
            match self.wait_within(within)? {
                status if libc::WSTOPSIG(status) == AT_CALL => return Ok(()),
                // It has told once more that it is stopped, and has executed nothing, or is told to stop, as it is.
                status if status >> 16 == libc::PTRACE_EVENT_STOP => {}
                status if libc::WSTOPSIG(status) == libc::SIGSTOP => {}
                status if libc::WSTOPSIG(status) == libc::SIGSYS => {
                    bail!("its calls are answered by itself, with the signal SIGSYS")
                }
                status => bail!("it has stopped by signal {}", libc::WSTOPSIG(status)),
            }
        }
    }

    /// Has it stop where [`Held::begin`] has it stop, among the kernel's signals: behind that an interrupted call begins anew. `runs` is
    /// whether it is not stopped yet.
    fn stop_again(&self, mut runs: bool) -> Result<()> {
        loop {
            // Any other stop on the way there is one that it takes this for.
            request(libc::PTRACE_INTERRUPT as _, self.id, 0, 0)?;
            if !std::mem::take(&mut runs) {
                request(libc::PTRACE_CONT as _, self.id, 0, 0)?;
            }
            if self.wait()? >> 16 == libc::PTRACE_EVENT_STOP {
                return Ok(());
            }
        }
    }

    fn wait(&self) -> Result<i32> {
        self.wait_within(WITHIN)
    }

    /// Waits until it has stopped, and returns how. ETIMEDOUT: it does not.
    fn wait_within(&self, within: Duration) -> Result<i32> {
        let end = Instant::now() + within;
        let shown = || format!("wait for thread {}", self.id);
        let (mut status, mut looks) = (0, 0);
        loop {
            let how = libc::__WALL | libc::WNOHANG;
            // SAFETY: waitpid writes a number, which lives over the call.
            match check(unsafe { libc::waitpid(self.id, &raw mut status, how) }.into()) {
                Err(e) if e.is(libc::EINTR) => {}
                Err(e) => return Err(e.context(shown())),
                Ok(0) if Instant::now() > end => return Err(Error::from(Errno::TIMEDOUT).context(shown())),
                // Mostly it stops at once.
                Ok(0) if looks < LOOKS => {
                    looks += 1;
                    std::thread::yield_now();
                }
                Ok(0) => std::thread::sleep(PAUSE),
                Ok(_) if libc::WIFSTOPPED(status) => return Ok(status),
                Ok(_) => bail!("thread {} has ended", self.id),
            }
        }
    }
}

/// The addresses of the kernel's code in a process, if that is what this line of its maps is of. A file can be called `[vdso]`, too.
fn vdso(line: &str) -> Option<&str> {
    let mut words = line.split_ascii_whitespace();
    let range = words.next()?;
    words.nth(1)?;
    words.eq(["00:00", "0", "[vdso]"]).then_some(range)
}

/// Maps `file` elsewhere as a held process is had to do: what a filter that ends who does so does to this process, it would do to that.
///
/// # Errors
/// Those of mmap(2), mremap(2) and munmap(2).
pub fn try_mapping(file: BorrowedFd<'_>) -> Result<()> {
    let length = crate::start::page_size();
    let map = |protection, how, number| {
        // SAFETY: the kernel chooses where.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, how, number, 0) };
        match at == libc::MAP_FAILED {
            true => Err(Error::from(std::io::Error::last_os_error())),
            false => Ok(at),
        }
    };
    let mapped =
        map(libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd()).context(|| "mmap(2)")?;
    let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let reserved = map(libc::PROT_NONE, how, -1).context(|| "mmap(2)")?;
    // SAFETY: nothing else knows of either.
    let moved =
        unsafe { libc::mremap(mapped, length, length, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, reserved) };
    check(i64::from(moved != libc::MAP_FAILED) - 1).context(|| "mremap(2)")?;
    // SAFETY: the same.
    check(unsafe { libc::munmap(moved, length) }.into()).map(drop).context(|| "munmap(2)")
}

impl Drop for Held {
    fn drop(&mut self) {
        // One that is lost ends with this process.
        if !self.is_lost.get() && request(libc::PTRACE_DETACH as _, self.id, 0, 0).is_err() {
            // It has ended, or runs: what it was had to do has not come to its end.
            let stopped = request(libc::PTRACE_INTERRUPT as _, self.id, 0, 0).and_then(|_| self.wait());
            let _ = stopped.and_then(|_| request(libc::PTRACE_DETACH as _, self.id, 0, 0));
        }
    }
}

fn request(what: libc::c_long, id: i32, address: usize, data: u64) -> Result<libc::c_long> {
    // SAFETY: what the kernel reads or writes by `address` and `data` the callers keep over the call.
    check(unsafe { libc::syscall(libc::SYS_ptrace, what, id, address, data) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};

    /// A shell that does what `script` says, and waits for a line in it.
    fn spawn(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Gives the line, and returns what the script prints until it succeeds.
    fn told_a_line(mut child: Child) -> String {
        child.stdin.take().unwrap().write_all(b"line\n").unwrap();
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(child.wait().unwrap().success());
        said
    }

    #[test]
    fn a_held_process_makes_calls_and_goes_on() {
        // It waits in read(2), which begins anew.
        let child = spawn("read -r line; echo \"$line\"; sleep 0.2; exec /bin/pwd -P");
        let id = child.id() as i32;
        std::thread::sleep(std::time::Duration::from_millis(100));
        let held = Held::begin(id).unwrap();
        assert_eq!(held.call(libc::SYS_getpid, [0; 6]).unwrap(), id as u64);
        let moved = held.call_with(libc::SYS_chdir, b"/proc\0", |at| [at, 0, 0, 0, 0, 0]);
        assert_eq!(moved.unwrap(), 0);
        assert!(held.call(libc::SYS_close, [1000, 0, 0, 0, 0, 0]).unwrap_err().is(libc::EBADF));
        drop(held);
        assert_eq!(told_a_line(child), "line\n/proc\n");
    }

    #[test]
    fn a_call_that_waits_for_ever_is_given_up() {
        use std::os::unix::ffi::OsStrExt;
        let fifo = std::env::temp_dir().join(format!("rt-sys-fifo-{}", std::process::id()));
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let child = spawn("read -r line; echo \"$line\"");
        std::thread::sleep(Duration::from_millis(100));
        let held = Held::begin_until(child.id() as i32, Instant::now() + 2 * WITHIN).unwrap();
        let path = [fifo.as_os_str().as_bytes(), b"\0"].concat();
        let opened = held.call_with(libc::SYS_openat, &path, |at| [libc::AT_FDCWD as u64, at, 0, 0, 0, 0]);
        assert!(opened.unwrap_err().is(libc::ETIMEDOUT));
        // What has been done before can be undone.
        assert_eq!(held.call(libc::SYS_getpid, [0; 6]).unwrap(), u64::from(child.id()));
        drop(held);
        std::fs::remove_file(&fifo).unwrap();
        assert_eq!(told_a_line(child), "line\n");
    }

    #[test]
    fn a_call_may_take_longer() {
        let child = spawn("read -r line; echo \"$line\"");
        std::thread::sleep(Duration::from_millis(100));
        // It waits until the other end of its pipe is no longer locked.
        let pipe = child.stdin.as_ref().unwrap().as_fd().try_clone_to_owned().unwrap();
        let lock = |how| rustix::fs::flock(&pipe, how).unwrap();
        lock(rustix::fs::FlockOperation::LockExclusive);
        let held = Held::begin(child.id() as i32).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(WITHIN + Duration::from_secs(1));
                lock(rustix::fs::FlockOperation::Unlock);
            });
            let args = [0, libc::LOCK_EX as u64, 0, 0, 0, 0];
            assert_eq!(held.call_within(2 * WITHIN, libc::SYS_flock, args).unwrap(), 0);
        });
        drop(held);
        assert_eq!(told_a_line(child), "line\n");
    }

    #[test]
    fn a_signal_behind_many_is_found() {
        const MANY: usize = 30_000;
        let mut parent = spawn("sleep 60 & echo $!; exec sleep 60");
        let id = parent.id() as i32;
        let mut line = String::new();
        BufReader::new(parent.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let child: i32 = line.trim().parse().unwrap();
        wait_until(|| word(id, "comm", 0).trim() == "sleep");
        let send = |pid, signal| {
            // SAFETY: kill takes numbers.
            check(unsafe { libc::kill(pid, signal) }.into()).unwrap();
        };
        let held = Held::begin(id).unwrap();
        assert!(!held.forget_stop_of_child().unwrap());
        // More than this user may have waiting are lost.
        (0..MANY).for_each(|_| send(id, libc::SIGRTMIN()));
        send(child, libc::SIGSTOP);
        let of_children = 1 << (libc::SIGCHLD - 1);
        wait_until(|| held.pending().unwrap()[1] & of_children != 0);
        let begin = Instant::now();
        let waiting = held.count_waiting().unwrap();
        assert!(held.forget_stop_of_child().unwrap());
        assert!(begin.elapsed() < Duration::from_millis(500), "{:?}", begin.elapsed());
        assert_eq!(held.count_waiting().unwrap(), waiting - 1);
        assert_eq!(held.pending().unwrap()[1] & of_children, 0);
        assert!(!held.forget_stop_of_child().unwrap() && !held.forget_continue().unwrap());
        // Once more, and where there is no time.
        send(child, libc::SIGCONT);
        wait_until(|| held.pending().unwrap()[1] & of_children != 0);
        held.end.set(begin);
        assert!(held.forget_stop_of_child().unwrap_err().is(libc::ETIMEDOUT));
        held.end.set(Instant::now() + WITHIN);
        assert!(held.forget_stop_of_child().unwrap());
        drop(held);
        // The signals that are left end it.
        assert!(!parent.wait().unwrap().success());
        send(child, libc::SIGKILL);
    }

    #[test]
    fn only_the_kernels_code_is_the_vdso() {
        let range = "7ffe36dfa000-7ffe36dfc000";
        let line = |rest: &str| format!("{range} r-xp 00000000 {rest}");
        assert_eq!(vdso(&line("00:00 0                          [vdso]")), Some(range));
        assert_eq!(vdso(&line("00:1c 77                         /tmp/[vdso]")), None);
        assert_eq!(vdso(&line("00:1c 77                         /tmp/a [vdso]")), None);
        assert_eq!(vdso(&line("00:00 0                          [vvar]")), None);
    }

    #[test]
    fn what_a_program_does_at_a_trap_stays() {
        for (trap, end) in [("echo trapped", "trapped\nend\n"), ("", "end\n")] {
            let mut child =
                spawn(&format!("trap '{trap}' TRAP; echo; read -r line; kill -TRAP $$; echo end"));
            let id = child.id() as i32;
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(50));
            let held = Held::begin(id).unwrap();
            for _ in 0..3 {
                assert_eq!(held.call(libc::SYS_getpid, [0; 6]).unwrap(), id as u64);
            }
            drop(held);
            assert_eq!(told_a_line(child), end);
        }
    }

    #[test]
    fn a_held_process_ends_with_its_caller() {
        use std::os::unix::process::ExitStatusExt;
        for ends in [true, false] {
            let mut child = Command::new("sleep").arg("0.3").spawn().unwrap();
            let id = child.id() as i32;
            // A thread that ends is a tracer that does.
            let caller = std::thread::spawn(move || {
                let held = Held::begin(id).unwrap();
                held.end_with_caller().unwrap();
                assert_eq!(held.call(libc::SYS_getpid, [0; 6]).unwrap(), id as u64);
                if ends {
                    std::mem::forget(held);
                }
            });
            caller.join().unwrap();
            assert_eq!(child.wait().unwrap().signal(), ends.then_some(libc::SIGKILL));
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn code_tells_which_call_it_makes() {
        // SAFETY: all zeros are registers.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        registers.rsp = 0x1000;
        let number = |code| machine::number_by(&registers, code, |at| (at == 0xff8).then_some(7));
        assert_eq!(number([0xc7, 0xb8, 35, 0, 0, 0, 0x0f, 0x05]), Some(35));
        assert_eq!(number([0x41, 0xb8, 35, 0, 0, 0, 0x0f, 0x05]), None, "of %r8d");
        assert_eq!(number([0xc7, 0xb8, 35, 1, 0, 0, 0x0f, 0x05]), None);
        assert_eq!(number([0xc7, 0xb8, 35, 0, 0, 0, 0xcd, 0x80]), None);
        assert_eq!(number([0xca, 0x48, 0x8b, 0x44, 0x24, 0xf8, 0x0f, 0x05]), Some(7));
        assert_eq!(number([0xca, 0x48, 0x8b, 0x44, 0x24, 0x20, 0x0f, 0x05]), None);
        assert_eq!(number([0xca, 0x48, 0x8b, 0x44, 0x24, 0xf8, 0x90, 0x90]), None);
    }

    /// A program of 32 bits that waits for ever (pause(2)).
    #[cfg(target_arch = "x86_64")]
    const OF_32_BITS: &[u8] = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0\x01\0\0\0\
        \x54\x80\x04\x08\x34\0\0\0\0\0\0\0\0\0\0\0\x34\0\x20\0\x01\0\0\0\0\0\0\0\
        \x01\0\0\0\0\0\0\0\0\x80\x04\x08\0\x80\x04\x08\x5d\0\0\0\x5d\0\0\0\x05\0\0\0\0\x10\0\0\
        \xb8\x1d\0\0\0\xcd\x80\xeb\xf7";

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_program_of_32_bits_makes_no_calls() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("rt-sys-32-bits-{}", std::process::id()));
        std::fs::write(&path, OF_32_BITS).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        let spawned = Command::new(&path).spawn();
        std::fs::remove_file(&path).unwrap();
        let mut child = match spawned {
            // A kernel without such programs.
            Err(e) if e.raw_os_error() == Some(libc::ENOEXEC) => return,
            spawned => spawned.unwrap(),
        };
        let held = Held::begin(child.id() as i32).unwrap();
        let made = held.call(libc::SYS_getpid, [0; 6]);
        let looked = held.interrupted();
        drop(held);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(made.unwrap_err().to_string().contains("none of 64 bits"));
        assert!(looked.is_err());
    }

    /// The word behind the first `words` of a file of process `id`.
    fn word(id: i32, file: &str, words: usize) -> String {
        let text = std::fs::read_to_string(format!("/proc/{id}/{file}")).unwrap();
        text.split(' ').nth(words).unwrap_or_default().to_owned()
    }

    fn wait_until(what: impl Fn() -> bool) {
        while !what() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    #[test]
    fn a_stopped_process_stays_stopped_and_waits_anew() {
        let begin = std::time::Instant::now();
        let mut child = Command::new("sleep").arg("0.6").spawn().unwrap();
        let id = child.id() as i32;
        let sleeps = [libc::SYS_nanosleep, libc::SYS_clock_nanosleep].map(|number| number.to_string());
        wait_until(|| sleeps.contains(&word(id, "syscall", 0)));
        // SAFETY: kill takes numbers.
        unsafe { libc::kill(id, libc::SIGSTOP) };
        let is_stopped = || word(id, "stat", 2) == "T";
        wait_until(is_stopped);
        drop(Held::begin(id).unwrap());
        wait_until(is_stopped);
        let held = Held::begin(id).unwrap();
        let interrupted = held.interrupted().unwrap();
        if let Some(number) = interrupted {
            assert!(sleeps.contains(&number.to_string()));
            held.make_again(number).unwrap();
        }
        drop(held);
        wait_until(is_stopped);
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(is_stopped());
        // SAFETY: kill takes numbers.
        unsafe { libc::kill(id, libc::SIGCONT) };
        if cfg!(target_arch = "x86_64") {
            // Not restart_syscall(2).
            wait_until(|| word(id, "stat", 2) == "S");
            assert!(sleeps.contains(&word(id, "syscall", 0)));
            assert!(interrupted.is_some());
        }
        assert!(child.wait().unwrap().success());
        assert!(begin.elapsed() >= std::time::Duration::from_millis(600));
    }
}
