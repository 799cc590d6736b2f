//! Running `rt` from inside of Slurm's processes: its output line by line, and a limit on its time.

use crate::ffi::{self, Running, User};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::RawFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// A call of `rt`.
pub(crate) struct Call<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [&'a CStr],
    pub(crate) environment: &'a [CString],
    /// Who calls; `None` is who this process is.
    pub(crate) user: Option<&'a User>,
    /// The namespace whose mounts it has; `None` for those of this process.
    pub(crate) mounts: Option<RawFd>,
    pub(crate) limit: Option<Duration>,
    /// What it says when the limit has ended it is passed on, too: for a save, where what was to be saved is now.
    pub(crate) says_end: bool,
}

/// How it has ended.
pub(crate) enum End {
    /// With this status, and this on stdout.
    Status(i32, Vec<u8>),
    /// By us: it took too long.
    Late,
}

/// How long a program may take to end after it was told to.
const GRACE: Duration = Duration::from_secs(5);

/// What is kept of a line, or of stdout: more is no output of `rt`.
const MOST: usize = 64 << 10;

/// How many lines of stderr are passed on. A user's programs choose how much they say, and it goes to root's memory and log.
const MOST_LINES: usize = 100;

impl Call<'_> {
    /// Runs it to its end. `line` gets lines of stderr as they come, as [`ffi::shown`] has them, until the limit: what is said
    /// then is about an early end ([`Call::says_end`]). Of more than [`MOST_LINES`] it gets `and more` and the last one, which says
    /// why `rt` has failed.
    pub(crate) fn run(&self, mut line: impl FnMut(&str)) -> io::Result<End> {
        let running = ffi::start(self.program, self.arguments, self.environment, self.user, self.mounts)?;
        let (mut passed, says_end) = (0, self.says_end);
        let mut last = None;
        let end = watch(running, self.limit, [libc::SIGTERM, libc::SIGKILL], GRACE, |late, text| {
            if late && !says_end {
                return;
            }
            let text = ffi::shown(text);
            if passed < MOST_LINES {
                passed += 1;
                line(&text);
            } else {
                last = Some(text);
            }
        });
        if let Some(last) = last {
            line("and more");
            line(&last);
        }
        Ok(end)
    }
}

/// Waits for the end of a program. After `limit` it gets `signals`, each after another `grace`. What has not ended after the last
/// one is left alone: a process that waits in the kernel for a file system of its user's cannot be killed.
fn watch(
    mut running: Running,
    limit: Option<Duration>,
    signals: [libc::c_int; 2],
    grace: Duration,
    mut line: impl FnMut(bool, &str),
) -> End {
    let mut deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut signals = signals.into_iter();
    let mut late = false;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            late = true;
            let Some(signal) = signals.next() else { return End::Late };
            running.signal(signal);
            deadline = Instant::now().checked_add(grace);
            continue;
        }
        let (ready, ended) = running.wait(left);
        read(&mut running, 0, ready[0], &mut out);
        read(&mut running, 1, ready[1], &mut err);
        while let Some(at) = err.iter().position(|c| *c == b'\n') {
            let rest = err.split_off(at + 1);
            line(late, text(&err));
            err = rest;
        }
        // What has inherited the output and lives on is not waited for.
        if ended && ready == [false; 2] {
            break;
        }
    }
    if !err.is_empty() {
        line(late, text(&err));
    }
    let status = running.status();
    if late && status != 0 { End::Late } else { End::Status(status, out) }
}

fn text(line: &[u8]) -> &str {
    let valid = line.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    valid.trim_end()
}

/// Reads what there is of an output. One that has ended is closed.
fn read(running: &mut Running, which: usize, ready: bool, into: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    if !ready {
        return;
    }
    let count = running.outputs[which].as_mut().map_or(Ok(0), |file: &mut File| file.read(&mut buffer));
    match count {
        Ok(0) => running.outputs[which] = None,
        Ok(count) if into.len() < MOST => into.extend_from_slice(&buffer[..count]),
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
        Err(_) => running.outputs[which] = None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn shell(script: &str, limit: Option<Duration>) -> (End, Vec<String>) {
        let script = CString::new(script).unwrap();
        let call = Call {
            program: Path::new("/bin/sh"),
            arguments: &[c"sh", c"-c", &script],
            environment: &[c"PATH=/usr/bin:/bin".to_owned(), c"COLOUR=red".to_owned()],
            user: None,
            mounts: None,
            limit,
            says_end: script.to_bytes().ends_with(b"# heard"),
        };
        let mut lines = Vec::new();
        let end = call.run(|line| lines.push(line.to_owned())).unwrap();
        (end, lines)
    }

    #[test]
    fn output_comes_by_lines() {
        let (end, lines) = shell(
            "echo one >&2; printf 'two\\r\\n\\nthree' >&2; echo $COLOUR; ls /proc/self/fd; exit 3",
            None,
        );
        let End::Status(3, out) = end else { panic!("another end") };
        // ls has one of its own.
        assert_eq!(String::from_utf8(out).unwrap(), "red\n0\n1\n2\n3\n");
        assert_eq!(lines, ["one", "two", "", "three"]);
    }

    /// What the user's programs print goes to root's log.
    #[test]
    fn what_is_passed_on_has_a_bound() {
        let script =
            r"i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done >&2; echo the reason >&2";
        let (_, lines) = shell(script, None);
        assert_eq!(lines.len(), 102, "{lines:?}");
        assert_eq!((&lines[99][..], &lines[100][..], &lines[101][..]), ("line 99", "and more", "the reason"));
        let (_, lines) = shell("yes | head -n 100 >&2", None);
        assert_eq!(lines, ["y"; 100]);
        let (_, lines) = shell(r"printf '\033%05000d' 7 >&2", None);
        assert!(lines[0].starts_with(r"\u{1b}0000") && lines[0].len() == 1000, "{lines:?}");
        let (_, lines) = shell(r"printf 'a\rerror: slurmd\342\200\256\302\233x\r\n' >&2", None);
        assert_eq!(lines, [r"a\rerror: slurmd\u{202e}\u{9b}x"]);
    }

    #[test]
    fn a_process_that_lives_on_is_not_waited_for() {
        let start = Instant::now();
        let (end, _) = shell("sleep 60 & echo $!; exit 0", None);
        let End::Status(0, out) = end else { panic!("another end") };
        assert!(start.elapsed() < Duration::from_secs(30));
        let pid = String::from_utf8(out).unwrap();
        std::process::Command::new("kill").arg(pid.trim()).status().unwrap();
    }

    #[test]
    fn a_limit_ends_it() {
        assert!(matches!(shell("sleep 60", Some(Duration::from_millis(100))).0, End::Late));
        // One that ends well in spite of it has done its work.
        let (end, _) = shell(
            "trap 'echo done; exit 0' TERM; while :; do sleep 0.05; done",
            Some(Duration::from_millis(300)),
        );
        assert!(matches!(end, End::Status(0, out) if out == b"done\n"));
        let script = "echo began >&2; trap 'echo interrupted >&2; exit 1' TERM; while :; do sleep 0.05; done";
        let (end, lines) = shell(script, Some(Duration::from_millis(300)));
        assert!(matches!(end, End::Late) && lines == ["began"], "{lines:?}");
        let (end, lines) = shell(&format!("{script} # heard"), Some(Duration::from_millis(300)));
        assert!(matches!(end, End::Late) && lines == ["began", "interrupted"], "{lines:?}");
    }

    #[test]
    fn what_cannot_be_killed_is_left_alone() {
        let environment = [c"PATH=/usr/bin:/bin".to_owned()];
        let script = c"echo $$; exec sleep 60";
        let running =
            ffi::start(Path::new("/bin/sh"), &[c"sh", c"-c", script], &environment, None, None).unwrap();
        let pid = running.number();
        // Signal 0 ends nothing.
        let (start, limit) = (Instant::now(), Duration::from_millis(100));
        let end = watch(running, Some(limit), [0, 0], limit, |_, _| {});
        assert!(matches!(end, End::Late) && start.elapsed() < Duration::from_secs(30));
        std::process::Command::new("kill").arg(pid.to_string()).status().unwrap();
    }

    /// Who executes for a user: root as another one, anybody else as himself.
    fn user() -> User {
        let this = std::fs::metadata("/proc/self").unwrap();
        let (uid, gid) = if this.uid() == 0 { (23456, 23456) } else { (this.uid(), this.gid()) };
        User { uid, gid, groups: Vec::new() }
    }

    fn users_shell(script: &CStr, limit: Option<Duration>) -> End {
        let arguments = [c"sh", c"-c", script];
        let environment = [c"PATH=/usr/bin:/bin".to_owned()];
        let program = Path::new("/bin/sh");
        Call {
            program,
            arguments: &arguments,
            environment: &environment,
            user: Some(&user()),
            mounts: None,
            limit,
            says_end: false,
        }
        .run(|_| {})
        .unwrap()
    }

    #[test]
    fn nothing_is_left_of_a_users_program() {
        let leave = "setsid sh -c 'echo $$; exec sleep 60 2>&-' & setsid sh -c 'echo $$; sleep 60 & wait' & sleep 0.2;";
        for (end, status) in [("exit 3", 3), ("kill -KILL $$", 137)] {
            let script = CString::new(format!("{leave} {end}")).unwrap();
            let End::Status(found, out) = users_shell(&script, None) else { panic!("another end") };
            let out = String::from_utf8(out).unwrap();
            assert_eq!((found, out.lines().count()), (status, 2), "{out}");
            for pid in out.lines() {
                assert!(!Path::new("/proc").join(pid).exists(), "{pid} is left");
            }
        }
    }

    #[test]
    fn a_user_cannot_end_the_keeper_of_his_program() {
        if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
            println!(
                "SKIP a_user_cannot_end_the_keeper_of_his_program: only root keeps a program of another user"
            );
            return;
        }
        let script = c"kill -KILL $PPID || exit 4";
        assert!(matches!(users_shell(script, None), End::Status(4, _)));
    }

    #[test]
    fn a_limit_ends_a_users_program() {
        let limit = Some(Duration::from_millis(300));
        assert!(matches!(users_shell(c"sleep 60", limit), End::Late));
        let done = c"trap 'echo done; exit 0' TERM; while :; do sleep 0.05; done";
        assert!(matches!(users_shell(done, limit), End::Status(0, out) if out == b"done\n"));
        let script = c"echo $$; trap '' TERM; while :; do sleep 0.05; done";
        let environment = [c"PATH=/usr/bin:/bin".to_owned()];
        let running =
            ffi::start(Path::new("/bin/sh"), &[c"sh", c"-c", script], &environment, Some(&user()), None)
                .unwrap();
        let (start, grace) = (Instant::now(), Duration::from_millis(300));
        let end = watch(running, limit, [libc::SIGTERM, libc::SIGKILL], grace, |_, _| {});
        assert!(matches!(end, End::Late) && start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn what_cannot_be_executed_is_a_status() {
        let call = Call {
            program: Path::new("/no/such/program"),
            arguments: &[c"x"],
            environment: &[],
            user: None,
            mounts: None,
            limit: None,
            says_end: false,
        };
        assert!(matches!(call.run(|_| {}).unwrap(), End::Status(127, _)));
    }
}
