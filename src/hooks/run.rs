//! Running hooks.

use oci_spec::runtime::Hook;
use rt_sys::error::{Context, Result};
use rt_sys::ns::Namespaces;
use rt_sys::process::{self, ExecArgs, Memory};
use rt_sys::{bail, caller, err, fd, signal, trace, tty};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, MemfdFlags};
use std::ffi::CString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;

/// When a hook runs (runtime.md "Lifecycle").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// In the runtime's namespaces, before pivot_root; deprecated.
    Prestart,
    /// In the runtime's namespaces, before pivot_root.
    CreateRuntime,
    /// In the container's namespaces, before pivot_root.
    CreateContainer,
    /// In the container, before its program.
    StartContainer,
    /// In the runtime's namespaces, after the program was started.
    Poststart,
    /// In the runtime's namespaces, after the container was deleted.
    Poststop,
}

impl Stage {
    /// All of them, in the order in which they run.
    const ALL: [Stage; 6] = [
        Stage::Prestart,
        Stage::CreateRuntime,
        Stage::CreateContainer,
        Stage::StartContainer,
        Stage::Poststart,
        Stage::Poststop,
    ];

    /// A number for [`trace`].
    fn number(self) -> u8 {
        Stage::ALL.iter().position(|stage| *stage == self).unwrap_or(0) as u8
    }

    /// The stage of such a number; none is [`PRECREATE`]'s.
    pub(crate) fn of_number(number: u8) -> Option<Stage> {
        Stage::ALL.get(usize::from(number)).copied()
    }

    /// The stage of this name.
    pub(crate) fn named(name: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| stage.as_str() == name)
    }

    /// The name in config.json.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Stage::Prestart => "prestart",
            Stage::CreateRuntime => "createRuntime",
            Stage::CreateContainer => "createContainer",
            Stage::StartContainer => "startContainer",
            Stage::Poststart => "poststart",
            Stage::Poststop => "poststop",
        }
    }
}

/// The number for [`trace`] of hooks that change a config, which are of no stage.
const PRECREATE: u8 = 255;

/// The paths of these hooks, in the order in which they ran, where that is traced.
static PRECREATED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The path of the precreate hook that ran as number `n`.
pub(crate) fn precreate_path(n: usize) -> Option<String> {
    PRECREATED.lock().unwrap_or_else(|e| e.into_inner()).get(n).cloned()
}

/// Runs the hooks of a stage in order; the first failure ends it.
pub(crate) fn run_all(stage: Stage, hooks: &Option<Vec<Hook>>, state: &[u8], cwd: &Path) -> Result<()> {
    for (n, hook) in hooks.iter().flatten().enumerate() {
        let from = trace::now();
        let ran = run_one(hook, state, cwd);
        trace::hook(stage.number(), n, from, ran.is_err());
        ran.context(|| format!("error running {} hook #{n}", stage.as_str()))?;
    }
    Ok(())
}

/// What a hook that runs inside a container has of it.
pub(crate) struct Inside<'a> {
    /// The environment of those that have none of their own.
    pub env: &'a [String],
    /// Called in the hook's process right before its program runs.
    pub confine: &'a dyn Fn() -> Result<()>,
}

/// Runs the hooks that run inside, of the stage startContainer.
pub(crate) fn run_inside(hooks: &[Hook], state: &[u8], inside: &Inside<'_>) -> Result<()> {
    for (n, hook) in hooks.iter().enumerate() {
        let from = trace::now();
        let ran = run_logged(hook, state, Path::new("/"), Some(inside));
        trace::hook(Stage::StartContainer.number(), n, from, ran.is_err());
        ran.context(|| format!("error running {} hook #{n}", Stage::StartContainer.as_str()))?;
    }
    Ok(())
}

/// Runs one hook with `state` on its standard input and waits for it.
///
/// What the hook prints goes into the error text if it fails, else into the log: the runtime's own output
/// belongs to its caller.
pub(crate) fn run_one(hook: &Hook, state: &[u8], cwd: &Path) -> Result<()> {
    run_logged(hook, state, cwd, None)
}

fn run_logged(hook: &Hook, state: &[u8], cwd: &Path, inside: Option<&Inside<'_>>) -> Result<()> {
    // Where root works for a user, what the user has written says which program that is, and it would be in nobody's job.
    if process::outside_of_jobs() {
        log::debug!("hook {} is not run: this process is in no job", hook.path().display());
        return Ok(());
    }
    let output = memory_file(c"hook-output")?;
    run(hook, state, cwd, Streams { stdout: &output, stderr: &output }, inside)?;
    warn_of(hook, &output);
    Ok(())
}

/// Runs a hook that reads `input` and prints something else.
pub(super) fn filter(hook: &Hook, input: &[u8], cwd: &Path) -> Result<Vec<u8>> {
    let (answer, output) = (memory_file(c"hook-answer")?, memory_file(c"hook-output")?);
    let from = trace::now();
    let ran = run(hook, input, cwd, Streams { stdout: &answer, stderr: &output }, None);
    if from.is_some() {
        let mut paths = PRECREATED.lock().unwrap_or_else(|e| e.into_inner());
        paths.push(hook.path().display().to_string());
        trace::hook(PRECREATE, paths.len() - 1, from, ran.is_err());
    }
    ran?;
    warn_of(hook, &output);
    fs::seek(&answer, fs::SeekFrom::Start(0))?;
    let mut text = Vec::new();
    std::fs::File::from(answer).read_to_end(&mut text).context(|| "read what a hook has printed")?;
    Ok(text)
}

fn warn_of(hook: &Hook, output: &OwnedFd) {
    if log::max_level() >= log::LevelFilter::Warn {
        let text = end_of(output);
        if !text.is_empty() {
            log::warn!("{}{text}", hook.path().display());
        }
    }
}

/// The files that get what a hook prints.
#[derive(Clone, Copy)]
struct Streams<'a> {
    stdout: &'a OwnedFd,
    /// What it holds in the end goes into the error or the log.
    stderr: &'a OwnedFd,
}

/// Runs a hook and waits for it.
fn run(
    hook: &Hook,
    state: &[u8],
    cwd: &Path,
    Streams { stdout, stderr }: Streams<'_>,
    inside: Option<&Inside<'_>>,
) -> Result<()> {
    let shown = hook.path().display();
    let path =
        CString::new(hook.path().as_os_str().as_bytes()).map_err(|_| err!("hook path has a NUL byte"))?;
    let args = match hook.args().as_deref() {
        None | Some([]) => vec![shown.to_string()],
        Some(args) => args.to_vec(),
    };
    let env = match (hook.env(), inside) {
        (Some(env), _) => env.clone(),
        (None, Some(inside)) => inside.env.to_vec(),
        // A hook for which the config names no environment gets the runtime's.
        (None, None) => caller::variables().collect(),
    };
    let args = ExecArgs::new(&args, &env)?;
    let input = memory_file(c"hook-stdin")?;
    rustix::io::write(&input, state)?;
    fs::seek(&input, fs::SeekFrom::Start(0))?;
    // runc starts hooks in the bundle. A bundle that is gone is no reason to fail.
    let child = process::spawn(Namespaces::NONE, Memory::Copied, || {
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        // A group of its own, so that a hook that takes too long ends with its children.
        let _ = rustix::process::setpgid(None, None);
        let _ = rustix::process::chdir(cwd);
        let ready = tty::become_hook_stdio(&input, stdout, stderr);
        signal::reset(u64::MAX);
        // A container's seccomp filter can refuse close_range(2). It does so only inside, where every descriptor but the
        // program's own is close-on-exec already.
        let _ = fd::cloexec_from(3);
        match ready.and_then(|()| inside.map_or(Ok(()), |inside| (inside.confine)())) {
            Ok(()) => drop(args.exec(&path)),
            Err(e) => drop(rustix::io::write(rustix::stdio::stderr(), e.to_string().as_bytes())),
        }
        127
    })
    .context(|| format!("start {shown}"))?;
    if let Some(seconds) = hook.timeout()
        && !ends_within(&child.pidfd, seconds)?
    {
        let _ = rustix::process::kill_process_group(child.pid, rustix::process::Signal::KILL);
        // The hook may have been killed before it made its group.
        let _ = rustix::process::pidfd_send_signal(&child.pidfd, rustix::process::Signal::KILL);
        process::wait(child.pid)?;
        bail!("{shown} did not end within {seconds} s");
    }
    let status = process::wait(child.pid)?;
    let failure = match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => return Ok(()),
        (Some(127), _) if fs::fstat(stderr).is_ok_and(|s| s.st_size == 0) => {
            match check_program(hook.path()) {
                Ok(()) => "exit status 127".to_owned(),
                Err(e) => e.to_string(),
            }
        }
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    };
    bail!("{shown}: {failure}{}", end_of(stderr))
}

fn check_program(path: &Path) -> Result<()> {
    fs::access(path, fs::Access::EXEC_OK)?;
    Ok(())
}

fn memory_file(name: &std::ffi::CStr) -> Result<OwnedFd> {
    fs::memfd_create(name, MemfdFlags::CLOEXEC).context(|| "make a memory file")
}

fn ends_within(pidfd: &OwnedFd, seconds: i64) -> Result<bool> {
    // A timeout of i64::MAX seconds, which means "never", is more than an Instant can hold.
    let wait = std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let deadline = std::time::Instant::now().checked_add(wait);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(std::time::Instant::now()));
        let timeout =
            left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(n) => return Ok(n > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// The end of what a hook printed, in one line.
fn end_of(output: &OwnedFd) -> String {
    const MOST: u64 = 1024;
    let size = fs::fstat(output).map_or(0, |s| s.st_size as u64);
    let mut text = vec![0; MOST as usize];
    let n = rustix::io::pread(output.as_fd(), &mut text, size.saturating_sub(MOST)).unwrap_or(0);
    let text = String::from_utf8_lossy(&text[..n]);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    if lines.is_empty() { String::new() } else { format!(": {}", lines.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::HookBuilder;

    fn hook(script: &str, timeout: Option<i64>) -> Hook {
        let args = ["sh", "-c", script].map(String::from).to_vec();
        let mut hook = HookBuilder::default().path("/bin/sh").args(args).build().unwrap();
        hook.set_timeout(timeout);
        hook
    }

    #[test]
    fn state_arrives_and_failures_speak() {
        let cwd = Path::new("/");
        run_one(&hook("test \"$(cat)\" = '{}'", None), b"{}", cwd).unwrap();
        let error = run_one(&hook("echo no luck >&2; exit 3", None), b"{}", cwd).unwrap_err();
        assert_eq!(error.to_string(), "/bin/sh: exit status 3: no luck");
        let error = run_one(&hook("sleep 60", Some(1)), b"{}", cwd).unwrap_err();
        assert!(error.to_string().contains("did not end within 1 s"), "{error}");
        run_one(&hook("exit 0", Some(i64::MAX)), b"{}", cwd).unwrap();
        let error = run_one(&hook("sleep 60", Some(-1)), b"{}", cwd).unwrap_err();
        assert!(error.to_string().contains("did not end"), "{error}");
        let missing = HookBuilder::default().path("/no/such/hook").build().unwrap();
        let error = run_one(&missing, b"{}", cwd).unwrap_err();
        assert_eq!(error.to_string(), "/no/such/hook: no such file or directory");
    }
}
