//! Black-box tests of `rt-pull`.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, missing_docs, unreachable_pub)]

mod faults;
mod filter;
mod hostile;
mod image;
mod image_file;
mod images;
mod leases;
mod others;
mod owners;
mod push;
mod registry;
mod stress;
mod tls;
mod transports;
mod trees;
mod uploads;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory of one test, removed at its end.
pub struct Place(PathBuf);

impl Place {
    pub fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("rt-pull-test-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// `rt-pull` with nothing of the user's own environment.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rt-pull"));
        command
            .current_dir(&self.0)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.join("home"))
            .env("RT_CACHE", self.join("cache"))
            .env("CONTAINERS_REGISTRIES_CONF", "/dev/null");
        command
    }

    /// The same for what runs beside the test, whose output nobody reads.
    pub fn quiet(&self) -> Command {
        let mut command = self.command();
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    /// Standard output of a command that has to succeed.
    pub fn good(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Standard error of one that has to fail.
    pub fn bad(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Names in a directory of this place, sorted.
    pub fn names(&self, dir: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.join(dir)).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Nothing half done lies around: no partial bundle, no lease.
    pub fn is_clean(&self) {
        let left: Vec<String> = self.names(".").into_iter().filter(|n| n.contains("partial")).collect();
        assert!(left.is_empty(), "left: {left:?}");
        if self.join("cache/leases").exists() {
            assert!(self.names("cache/leases").is_empty(), "leases: {:?}", self.names("cache/leases"));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The output of `command` where these system calls fail so.
pub fn failing(command: Command, calls: &[&str], errno: i32) -> Output {
    filtered(command, filter::fails(calls, errno))
}

/// The same where no thread can be started, but a process can: clone with CLONE_THREAD fails, and clone3, whose flags no
/// filter sees, says that it is not there.
pub fn threadless(command: Command) -> Output {
    let thread = libc::CLONE_THREAD as u64;
    let flags =
        serde_json::json!({ "index": 0, "op": "SCMP_CMP_MASKED_EQ", "value": thread, "valueTwo": thread });
    filtered(
        command,
        serde_json::json!([
            { "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::ENOSYS },
            { "names": ["clone"], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::EAGAIN, "args": [flags] },
        ]),
    )
}

fn filtered(command: Command, rules: serde_json::Value) -> Output {
    filter::under_filter(command, rules, |command| command.output().unwrap())
}

/// True where a peer is installed; says so and counts as skipped where it is not.
pub fn have(program: &str) -> bool {
    let found =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success();
    if !found {
        // Past the capture of the test's output, so that it is counted.
        let _ = writeln!(std::io::stderr(), "SKIP {program} is not installed");
    }
    found
}
