//! Runs a program and all that comes of it under the tracer, lists the calls, and makes one of them fail.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::calls::{self, Kind};
use crate::sys::{self, Report, Start};

/// A place in a run: which program makes which call on what, and the how many-th of these it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Point {
    /// The program, as the name of its file.
    pub(crate) program: String,
    /// The call.
    pub(crate) call: String,
    /// What it is about, without numbers that differ from run to run.
    pub(crate) path: String,
    /// Counted from 1.
    pub(crate) nth: usize,
}

impl Point {
    /// As it stands on the command line: `PROGRAM CALL PATH #N`.
    pub(crate) fn text(&self) -> String {
        format!("{} {} {} #{}", self.program, self.call, self.path, self.nth)
    }
}

/// How long the processes that a program leaves may live: the kernel unmounts what was in the last mount namespace some time
/// after that has gone, and the server of an image ends then. A machine may be busy.
const SETTLE: Duration = Duration::from_secs(10);

/// What is done while a program runs.
#[derive(Debug, Clone)]
pub(crate) enum Mode {
    /// Nothing but to know its processes.
    Watch,
    /// The calls are listed.
    Record,
    /// The call at the point fails, once.
    Inject(Point, Kind),
}

/// What came of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// As wait(2) says it.
    pub(crate) status: i32,
    /// What was printed.
    pub(crate) stdout: String,
    /// And to standard error.
    pub(crate) stderr: String,
    /// The points, of [`Mode::Record`], with the number of the process in the order of their appearance.
    pub(crate) points: Vec<(usize, Point)>,
    /// Whether the point was reached.
    pub(crate) reached: bool,
    /// It did not end in time, and was killed.
    pub(crate) hung: bool,
    /// Processes that live when the first has ended and some time has passed.
    pub(crate) left: usize,
    /// What these execute.
    pub(crate) programs: Vec<String>,
    /// How many of these are stopped.
    pub(crate) stopped: usize,
}

impl Outcome {
    /// True where it exited with 0.
    pub(crate) fn good(&self) -> bool {
        self.status == 0 && !self.hung
    }
}

/// One process of the tree.
#[derive(Debug, Default)]
struct Process {
    number: usize,
    program: String,
    /// Whether its calls count: those of the container's program do not.
    counts: bool,
    stopped: bool,
    /// What its call is to return, at the exit of it.
    result: Option<i64>,
    /// An argument and its value, to be set again then: a program takes for granted that a call leaves its registers alone.
    changed: Option<(usize, u64)>,
}

impl Process {
    /// True from the entry of the call to which something was done to its exit.
    fn is_in_call(&self) -> bool {
        self.result.is_some() || self.changed.is_some()
    }
}

/// The processes of one work directory. All are killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Tracer {
    processes: HashMap<i32, Process>,
    programs: Vec<String>,
    dir: PathBuf,
    environment: Vec<(String, String)>,
    uid: Option<u32>,
    limit: Duration,
}

/// The state of one run.
struct Run {
    mode: Mode,
    counts: HashMap<(String, String, String), usize>,
    outcome: Outcome,
    main: i32,
    ended: bool,
    started: usize,
}

impl Tracer {
    /// For programs of these names, in a work directory.
    pub(crate) fn new(dir: &Path, programs: &[&str], uid: Option<u32>, limit: Duration) -> Tracer {
        let programs = programs.iter().map(|p| (*p).to_owned()).collect();
        let (processes, environment) = (HashMap::new(), Vec::new());
        Tracer { processes, programs, dir: dir.to_owned(), environment, uid, limit }
    }

    /// Sets the environment of what is run; there is nothing else in it.
    pub(crate) fn environment(&mut self, all: &[(String, String)]) {
        self.environment = all.to_vec();
    }

    /// Runs a command to the end of its first process. `expect` is how many processes may stay: others are waited for a
    /// while.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub(crate) fn run(&mut self, command: &[String], mode: Mode, expect: usize) -> io::Result<Outcome> {
        let text = |text: &str| CString::new(text).map_err(io::Error::other);
        let ((mut stdout, its_stdout), (mut stderr, its_stderr)) = (sys::output()?, sys::output()?);
        let start = Start {
            program: text(&command[0])?,
            arguments: command.iter().map(|a| text(a)).collect::<io::Result<_>>()?,
            environment: self
                .environment
                .iter()
                .map(|(name, value)| text(&format!("{name}={value}")))
                .collect::<io::Result<_>>()?,
            dir: CString::new(self.dir.as_os_str().as_bytes())?,
            stdout: its_stdout,
            stderr: its_stderr,
            uid: self.uid,
        };
        let main = sys::start(&start)?;
        drop(start);
        let (mut printed, mut complained) = (Vec::new(), Vec::new());
        self.processes.insert(main, Process { number: 1, ..Process::default() });
        let mut run =
            Run { mode, counts: HashMap::new(), outcome: Outcome::default(), main, ended: false, started: 1 };
        let end = Instant::now() + self.limit;
        let mut settle: Option<Instant> = None;
        loop {
            if run.ended {
                if self.processes.len() <= expect {
                    break;
                }
                let until = *settle.get_or_insert_with(|| Instant::now() + SETTLE);
                if Instant::now() > until {
                    break;
                }
            } else if Instant::now() > end {
                run.outcome.hung = true;
                self.kill_all();
                break;
            }
            match sys::wait() {
                Report::Change(pid, status) => self.change(pid, status, &mut run),
                // Before a pipe is full.
                Report::Alarm => {
                    read_on(&mut stdout, &mut printed)?;
                    read_on(&mut stderr, &mut complained)?;
                }
                Report::Nobody => break,
            }
        }
        // The end of a process may be reported before the event of the one that made it, which then names it again.
        self.processes.retain(|pid, _| Path::new(&format!("/proc/{pid}")).exists());
        let mut outcome = run.outcome;
        outcome.left = self.processes.len();
        outcome.programs = self.processes.values().map(|process| process.program.clone()).collect();
        outcome.programs.sort();
        outcome.stopped = self.processes.values().filter(|p| p.stopped).count();
        read_on(&mut stdout, &mut printed)?;
        read_on(&mut stderr, &mut complained)?;
        outcome.stdout = String::from_utf8_lossy(&printed).into_owned();
        outcome.stderr = String::from_utf8_lossy(&complained).into_owned();
        Ok(outcome)
    }

    /// Kills all processes and waits for their ends.
    pub(crate) fn kill_all(&mut self) {
        let end = Instant::now() + Duration::from_secs(5);
        for pid in self.processes.keys() {
            sys::kill(*pid, libc::SIGKILL);
        }
        while !self.processes.is_empty() && Instant::now() < end {
            match sys::wait() {
                Report::Change(pid, status) if libc::WIFSTOPPED(status) => {
                    self.processes.entry(pid).or_default();
                    sys::kill(pid, libc::SIGKILL);
                    sys::go_on(libc::PTRACE_CONT, pid, 0);
                }
                Report::Change(pid, _) => {
                    self.processes.remove(&pid);
                }
                Report::Alarm => {}
                Report::Nobody => self.processes.clear(),
            }
        }
    }

    /// One report of wait(2).
    fn change(&mut self, pid: i32, status: i32, run: &mut Run) {
        if !libc::WIFSTOPPED(status) {
            self.processes.remove(&pid);
            if pid == run.main {
                run.outcome.status = status;
                run.ended = true;
            }
            return;
        }
        let started = &mut run.started;
        let process = self.processes.entry(pid).or_insert_with(|| {
            *started += 1;
            Process { number: *started, ..Process::default() }
        });
        let how = match run.mode {
            Mode::Record => libc::PTRACE_SYSCALL,
            // The exit of the call that fails is still awaited.
            Mode::Inject(..) if !run.outcome.reached || process.is_in_call() => libc::PTRACE_SYSCALL,
            _ => libc::PTRACE_CONT,
        };
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        if signal == libc::SIGTRAP | 0x80 {
            return self.call(pid, how, run);
        }
        match event {
            0 => sys::go_on(how, pid, signal),
            libc::PTRACE_EVENT_STOP if [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN].contains(&signal) => {
                process.stopped = true;
                sys::go_on(libc::PTRACE_LISTEN, pid, 0);
            }
            libc::PTRACE_EVENT_STOP => {
                process.stopped = false;
                if process.program.is_empty() {
                    self.identify(pid);
                }
                sys::go_on(how, pid, 0);
            }
            libc::PTRACE_EVENT_EXEC => {
                self.identify(pid);
                sys::go_on(how, pid, 0);
            }
            _ => {
                // A new process that is not seen yet lives from now on.
                let new = sys::event_message(pid) as i32;
                let (program, counts) = (process.program.clone(), process.counts);
                let started = &mut run.started;
                let new = self.processes.entry(new).or_insert_with(|| {
                    *started += 1;
                    Process { number: *started, ..Process::default() }
                });
                (new.program, new.counts) = (program, counts);
                sys::go_on(how, pid, 0);
            }
        }
    }

    /// Looks which program a process executes.
    fn identify(&mut self, pid: i32) {
        let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let name = exe.file_name().unwrap_or_default().to_string_lossy().replace(" (deleted)", "");
        let ours = self.programs.contains(&name) || self.programs.is_empty();
        // rt executes copies of itself in memory.
        let copy = exe.starts_with("/memfd:") || name.starts_with("memfd:");
        if let Some(process) = self.processes.get_mut(&pid) {
            process.counts = ours || copy;
            process.program = name;
        }
    }

    /// A stop for a system call, at its entry or at its exit.
    fn call(&mut self, pid: i32, how: libc::c_uint, run: &mut Run) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let Some(entry) = sys::entry(pid) else {
            if let Some(result) = process.result.take() {
                let _ = sys::set_result(pid, result);
            }
            if let Some((index, value)) = process.changed.take() {
                let _ = sys::set_argument(pid, index, value);
            }
            return sys::go_on(how, pid, 0);
        };
        let known = (process.counts && !run.outcome.reached).then(|| calls::describe(pid, &entry)).flatten();
        let Some((call, path)) = known.filter(|(_, path)| !is_of_the_loader(path)) else {
            return sys::go_on(how, pid, 0);
        };
        let path = normal(&path, &self.dir);
        let key = (process.program.clone(), call.to_owned(), path);
        let nth = run.counts.entry(key.clone()).or_insert(0);
        *nth += 1;
        let point = Point { program: key.0, call: key.1, path: key.2, nth: *nth };
        match &run.mode {
            Mode::Record => run.outcome.points.push((process.number, point)),
            Mode::Inject(wanted, kind) if *wanted == point => {
                run.outcome.reached = true;
                inject(pid, process, &entry, call, *kind);
                return sys::go_on(libc::PTRACE_SYSCALL, pid, 0);
            }
            _ => {}
        }
        sys::go_on(how, pid, 0);
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// Does to the call at whose entry a process stands what the kind says.
fn inject(pid: i32, process: &mut Process, entry: &sys::Entry, call: &str, kind: Kind) {
    match kind {
        Kind::Errno(errno) => {
            // close(2) closes whatever it says.
            if call != "close" {
                let _ = sys::skip(pid);
            }
            process.result = Some(-i64::from(errno));
        }
        Kind::Zero => {
            let _ = sys::skip(pid);
            process.result = Some(0);
        }
        Kind::Short => {
            if let Some(index) = calls::length(call) {
                let length = entry.arguments[index];
                let _ = sys::set_argument(pid, index, (length / 2).max(1));
                process.changed = Some((index, length));
            }
        }
        Kind::Signal(signal) => sys::kill(pid, signal),
    }
}

/// The libraries of a program that is not static.
fn is_of_the_loader(path: &str) -> bool {
    path.starts_with("/lib") || path.starts_with("/usr/lib") || path.starts_with("/etc/ld.so")
}

/// A path without what differs from run to run: the work directory, numbers, digests.
pub(crate) fn normal(path: &str, dir: &Path) -> String {
    let path = path.replace(&*dir.to_string_lossy(), ".");
    let mut all = String::new();
    let mut word = String::new();
    let end = |word: &mut String, all: &mut String| {
        let digits = word.bytes().filter(u8::is_ascii_digit).count();
        let hex = word.bytes().all(|b| b.is_ascii_hexdigit());
        match (hex && digits > 0, word.len()) {
            (true, 9..) => all.push('H'),
            (true, 2..) if digits == word.len() => all.push('N'),
            (true, 5..) => all.push('H'),
            _ => all.push_str(word),
        }
        word.clear();
    };
    for c in path.chars() {
        if c.is_alphanumeric() {
            word.push(c);
        } else {
            end(&mut word, &mut all);
            all.push(if c.is_whitespace() { '_' } else { c });
        }
    }
    end(&mut word, &mut all);
    if all.is_empty() { "-".into() } else { all }
}

/// Reads what is in a pipe by now.
fn read_on(pipe: &mut fs::File, all: &mut Vec<u8>) -> io::Result<()> {
    match pipe.read_to_end(all) {
        Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
        _ => Ok(()),
    }
}
