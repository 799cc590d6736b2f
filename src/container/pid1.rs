//! The init of a PID namespace (`--init`, annotation `rt.init`): passes signals on, reaps, and ends as the program does.
//!
//! The kernel gives the first process of a PID namespace no signal for which it has no handler (pid_namespaces(7)): a
//! program in that place that has none for SIGINT or SIGTERM cannot be interrupted. With this init the program is the
//! second process.
//!
//! The init that has set the container up makes the program as its child, and then executes `rt` once more, by a
//! descriptor: nothing of the host is left in its memory, neither the caller's environment nor what `rt` has read. Its
//! executable is what `protect` has seen to: a file that nobody inside can write, or a sealed copy.

use super::plan::ProcessPlan;
use super::program::Prepared;
use super::{Checkpoint, init};
use rt_sys::error::{Context, Error, Result};
use rt_sys::ns::Namespaces;
use rt_sys::process::{self, ExecArgs, Memory};
use rt_sys::{err, fd, signal, start};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, WaitOptions};

/// The name by which this executable is told to be a container's init.
const NAME: &str = "rt-init";

/// Makes the program and becomes its init; returns only the error. `ignored` are the signals that this process ignores.
pub(super) fn become_init(plan: &ProcessPlan, exe: &OwnedFd, prepared: &mut Prepared, ignored: u64) -> Error {
    // Until it has executed, its memory is that of a process of the host, which the program must not look into.
    if let Err(e) = init::undumpable() {
        return e;
    }
    // From here on they wait for the init, which takes them one by one. The program's process unblocks them.
    signal::block_all();
    let mut failure = None;
    let child = process::spawn(Namespaces::NONE, Memory::Shared, || {
        failure = Some(match in_foreground(plan.terminal) {
            Ok(()) => plan.exec_in_child(prepared, ignored),
            Err(e) => e,
        });
        1
    });
    match (child, failure) {
        (Err(e), _) => e.context("make the program's process"),
        (Ok(child), Some(e)) => {
            let _ = process::wait(child.pid);
            e
        }
        (Ok(child), None) => serve_for(child.pid.as_raw_nonzero().get(), exe),
    }
}

/// Becomes the init of restored processes, which are this process's children and stopped, and has them go on. `program` is the
/// one that the exit code is of. Returns only the error.
pub(super) fn become_init_of(checkpoint: &dyn Checkpoint, program: i32, exe: &OwnedFd) -> Error {
    let first = rustix::process::getpid();
    if first != Pid::INIT {
        return err!("this is process {first:?} of its PID namespace, and not the first");
    }
    if let Err(e) = init::undumpable() {
        return e;
    }
    signal::block_all();
    match checkpoint.continue_all() {
        Ok(()) => serve_for(program, exe),
        Err(e) => e,
    }
}

/// Executes `rt` as the init of the program `program`; returns only the error.
fn serve_for(program: i32, exe: &OwnedFd) -> Error {
    // An error is mostly that of a build of rt that is linked dynamically, whose interpreter the image lacks.
    match ExecArgs::new(&[NAME, &program.to_string()], &[]) {
        Ok(args) => args.exec_fd(exe).context("start the container's init").hint("--init=false"),
        Err(e) => e,
    }
}

/// Gives the program a process group of its own, and that the terminal: ^C reaches the program and not its init too, which
/// would pass it on a second time.
fn in_foreground(terminal: bool) -> Result<()> {
    rustix::process::setpgid(None, None)?;
    if terminal {
        rustix::termios::tcsetpgrp(rustix::stdio::stdin(), rustix::process::getpid())
            .context(|| "give the program the terminal")?;
    }
    Ok(())
}

/// The init's program. Returns only where this process is not to be one.
pub(crate) fn main() {
    // Only what was executed by a descriptor is looked at further: each start of rt comes by here.
    if !start::exec_path().is_some_and(|path| path.as_encoded_bytes().starts_with(b"/dev/fd/")) {
        return;
    }
    let mut args = std::env::args_os();
    if args.next().is_none_or(|name| name != NAME) {
        return;
    }
    let pid = args.next().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
    process::exit_now(pid.map_or(1, serve))
}

/// Waits for the program, whose process is `main`, and returns the exit code.
fn serve(main: Pid) -> i32 {
    // The program alone holds its files, so that their other ends see when it closes them.
    let _ = fd::close_all_but(0, &[]);
    let _ = rustix::process::chdir("/");
    let _ = rustix::thread::set_name(c"rt-init");
    loop {
        if let Some(code) = reap(main) {
            return code;
        }
        match signal::take().number {
            libc::SIGCHLD => {}
            // An error means that it has just ended, which the next look tells.
            number => drop(signal::send(main.as_raw_nonzero().get(), number)),
        }
    }
}

/// Takes what has ended off the process table. The exit code, where the program has.
fn reap(main: Pid) -> Option<i32> {
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
    loop {
        match rustix::process::wait(options) {
            Ok(Some((pid, status))) if pid == main => match status.stopping_signal() {
                // ^Z. Without an init the kernel ignores it, as nobody in the session could have the program go on.
                Some(libc::SIGTSTP) => drop(signal::send(main.as_raw_nonzero().get(), libc::SIGCONT)),
                Some(_) => {}
                None => return Some(process::exit_code(status).into()),
            },
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}
