//! Who calls the runtime, and from where: a user, root, or a client inside its own user namespace.

use crate::sys::{self, Step, c};
use std::fs;
use std::io::{BufRead, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// The caller of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A user whose uid has no passwd entry.
    User,
    /// Real root.
    Root,
    /// uid 0 of a user namespace with one id, made by a client (rootless podman without subuids).
    Nested,
    /// uid 0 of a user namespace with a range of ids (rootless podman with subuids).
    Range,
}

/// A user.
pub const USER: &[Caller] = &[Caller::User];
/// Real root.
pub const ROOT: &[Caller] = &[Caller::Root];
/// A client's user namespace with one id.
pub const NESTED: &[Caller] = &[Caller::Nested];
/// A user and root.
pub const BOTH: &[Caller] = &[Caller::User, Caller::Root];
/// A user, root and a client's user namespace.
pub const ALL: &[Caller] = &[Caller::User, Caller::Root, Caller::Nested];
/// Everybody, a client's namespace with a range of ids too.
pub const EVERY: &[Caller] = &[Caller::User, Caller::Root, Caller::Nested, Caller::Range];

/// The user that tests run by root become; no passwd has it.
pub const UID: u32 = 23456;
/// Its group, other than the uid so that mistakes show.
pub const GID: u32 = 23457;
/// Its supplementary groups.
pub const GROUPS: [u32; 2] = [23457, 34567];
/// The range of ids of [`Caller::Range`], inside and outside.
pub const RANGE: (u32, u32, u32) = (1, 400_000, 65_536);

impl Caller {
    /// The word in test names.
    pub fn word(self) -> &'static str {
        match self {
            Caller::User => "user",
            Caller::Root => "root",
            Caller::Nested => "nested",
            Caller::Range => "range",
        }
    }

    /// True where the tests themselves run as root.
    pub fn tests_are_root() -> bool {
        sys::euid() == 0
    }

    /// Why this caller cannot be played here, if it cannot.
    pub fn unavailable(self) -> Option<&'static str> {
        match self {
            Caller::Root | Caller::Range if !Caller::tests_are_root() => Some("the tests do not run as root"),
            _ => None,
        }
    }

    /// The uid and gid on the host.
    pub fn host_ids(self) -> (u32, u32) {
        match self {
            Caller::Root => (0, 0),
            _ if Caller::tests_are_root() => (UID, GID),
            _ => (sys::euid(), sys::egid()),
        }
    }

    /// What a child does to become this caller; `client` is the namespace to enter, if any.
    pub fn steps(self, client: Option<&Client>) -> Vec<Step> {
        let mut steps = Vec::new();
        if self != Caller::Root && Caller::tests_are_root() {
            steps.push(Step::Groups(GROUPS.to_vec()));
            steps.push(Step::Ids(UID, GID));
        }
        if let Some(client) = client {
            steps.extend(client.namespaces.iter().map(|fd| Step::Join(fd.as_raw_fd())));
        }
        steps
    }
}

/// A process that holds a user and a mount namespace open, as podman's pause process does.
pub struct Client {
    /// The holder.
    pub child: Child,
    namespaces: Vec<OwnedFd>,
    _alive: ChildStdin,
}

impl Client {
    /// Makes the namespaces of `caller` ([`Caller::Nested`] or [`Caller::Range`]).
    pub fn new(program: &Path, caller: Caller) -> Client {
        let mut command = Command::new(program);
        command.arg("--hold").stdin(Stdio::piped()).stdout(Stdio::piped());
        sys::before_exec(&mut command, caller.steps(None));
        let mut child = command.spawn().expect("the client's process");
        let mut alive = child.stdin.take().expect("piped");
        let mut said = std::io::BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut expect = |word: &str| {
            let line = said.next().and_then(Result::ok).unwrap_or_default();
            assert_eq!(line, word, "a user namespace for the client");
        };
        expect("unshared");
        let pid = child.id();
        let (uid, gid) = caller.host_ids();
        let more = if caller == Caller::Range {
            format!("{} {} {}\n", RANGE.0, RANGE.1, RANGE.2)
        } else {
            fs::write(format!("/proc/{pid}/setgroups"), "deny").expect("setgroups");
            String::new()
        };
        fs::write(format!("/proc/{pid}/uid_map"), format!("0 {uid} 1\n{more}")).expect("uid_map");
        fs::write(format!("/proc/{pid}/gid_map"), format!("0 {gid} 1\n{more}")).expect("gid_map");
        writeln!(alive, "mapped").expect("the client listens");
        expect("ready");
        let namespaces = ["user", "mnt"]
            .map(|name| {
                fs::File::open(format!("/proc/{pid}/ns/{name}")).expect("the client's namespace").into()
            })
            .into();
        Client { child, namespaces, _alive: alive }
    }

    /// The mount table of the client's namespace.
    pub fn mounts(&self) -> String {
        fs::read_to_string(format!("/proc/{}/mountinfo", self.child.id())).unwrap_or_default()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The holder's side of [`Client`].
pub fn hold() -> i32 {
    if let Err(e) = sys::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) {
        println!("unshare: {e}");
        return 1;
    }
    println!("unshared");
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
    println!("ready");
    line.clear();
    let _ = std::io::stdin().read_line(&mut line);
    0
}

/// Swaps two paths for ever (renameat2 EXCHANGE): the other side of a race.
pub fn exchange(args: &[String]) -> i32 {
    println!("\"ready\"");
    loop {
        // Now and then the other side must get a turn, too: this machine may have two processors.
        for _ in 0..50 {
            let _ = sys::exchange(Path::new(&args[0]), Path::new(&args[1]));
        }
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
}

/// How /sys/fs/cgroup looks to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cgroups {
    /// cgroup2 alone.
    V2,
    /// The machine's v1 hierarchies without the unified one.
    V1,
}

impl Cgroups {
    /// What a child of root does first, to see cgroups this way in a mount namespace of its own.
    pub fn steps(self) -> Vec<Step> {
        let mut steps = vec![
            Step::Unshare(libc::CLONE_NEWNS),
            Step::Mount(c("none"), c("/"), c(""), libc::MS_REC | libc::MS_PRIVATE, c("")),
        ];
        match self {
            Cgroups::V2 => {
                let cgroup = c("/sys/fs/cgroup");
                if is_mount_point("/sys/fs/cgroup") {
                    steps.push(Step::Detach(cgroup.clone()));
                }
                steps.push(Step::Mount(c("cgroup2"), cgroup, c("cgroup2"), 0, c("")));
            }
            Cgroups::V1 => {
                if is_mount_point("/sys/fs/cgroup/unified") {
                    steps.push(Step::Detach(c("/sys/fs/cgroup/unified")));
                }
            }
        }
        steps
    }
}

fn is_mount_point(path: &str) -> bool {
    fs::read_to_string("/proc/self/mountinfo")
        .is_ok_and(|table| table.lines().any(|line| line.split(' ').nth(4) == Some(path)))
}
