//! Black-box tests of `rt-image`, alone and as `rt` executes it.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, missing_docs, unreachable_pub)]

mod crafted;
#[path = "../../pull/tests/filter.rs"]
mod filter;
mod hostile;
mod life;
mod mount;
mod run;
mod sif;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A user without passwd entry.
    User,
    Root,
    /// uid 0 of a user namespace with one id.
    Nested,
    /// Whoever runs the tests, where that is not root.
    Current,
}

const UID: &str = "23998";

/// A directory of one test, removed at its end.
pub struct Place(PathBuf);

impl Place {
    pub fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("rt-image-test-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("mnt")).unwrap();
        std::fs::create_dir_all(path.join("dev")).unwrap();
        std::fs::create_dir_all(path.join("home")).unwrap();
        std::fs::create_dir_all(path.join("bin")).unwrap();
        // The build's own directory may be closed to other users.
        for program in ["rt", "rt-image"] {
            std::fs::copy(built(program), path.join("bin").join(program)).unwrap();
        }
        let place = Place(path);
        for dir in ["", "home", "mnt"] {
            open_to_all(&place.join(dir));
        }
        place
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// A path as text, for command lines.
    pub fn text(&self, name: &str) -> String {
        self.join(name).to_str().unwrap().to_owned()
    }

    /// A seed of the crate squashfs, under a name that no other test has.
    pub fn seed(&self, name: &str) -> String {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/squashfs/tests/seeds").join(name);
        std::fs::copy(from, self.join(name)).unwrap();
        self.text(name)
    }

    /// A command of this caller, with an open /dev/fuse of its own and nothing of the user's environment.
    pub fn command(&self, caller: Caller, words: &[&str]) -> Command {
        self.command_with(
            caller,
            "mknod -m 666 $0/dev/fuse c 10 229 && mount --bind $0/dev/fuse /dev/fuse",
            words,
        )
    }

    /// The same with another /dev/fuse: `device` is a command of a shell, in which $0 is this place.
    pub fn command_with(&self, caller: Caller, device: &str, words: &[&str]) -> Command {
        let path = format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", self.text("bin"));
        let home = format!("HOME={}", self.text("home"));
        let plain = ["setpriv", "--reuid", UID, "--regid", UID, "--clear-groups"];
        let nested = ["setpriv", "--reuid", UID, "--regid", UID, "--clear-groups", "unshare", "-Ur"];
        let become_caller: &[&str] = match caller {
            Caller::User => &plain,
            Caller::Nested => &nested,
            Caller::Root | Caller::Current => &[],
        };
        let script = format!("mount -t tmpfs none $0/dev && {device} && exec \"$@\"");
        let mut all = match caller {
            Caller::Current => vec![],
            _ => vec!["unshare", "-m", "sh", "-c", &script, self.0.to_str().unwrap()],
        };
        all.extend(become_caller);
        // Others can write in the home of all callers, so it is no place for a cache.
        let cache = format!("RT_CACHE={}", self.text(&format!("cache-{caller:?}")));
        all.extend(["env", "-i", &path, &home, &cache]);
        all.extend(words);
        let mut command = Command::new(all[0]);
        command.args(&all[1..]).current_dir(self.join("home")).stdin(Stdio::null());
        command
    }

    pub fn run(&self, caller: Caller, words: &[&str]) -> Output {
        let output = self.command(caller, words).output().unwrap();
        // What a server needs after its last mount has gone.
        self.no_server(caller);
        output
    }

    /// Standard output of a command that has to succeed, and to say nothing else.
    pub fn good(&self, caller: Caller, words: &[&str]) -> String {
        let output = self.run(caller, words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && errors.is_empty(),
            "{caller:?} {words:?}: {}: {errors}",
            output.status
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Standard error of one that has to fail.
    pub fn bad(&self, caller: Caller, words: &[&str]) -> String {
        let output = self.run(caller, words);
        assert!(!output.status.success(), "{caller:?} {words:?} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }

    /// What serves the images of this place: two processes for each mount, a keeper and a worker.
    pub fn servers(&self) -> Vec<i32> {
        let of = |entry: std::fs::DirEntry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let words = std::fs::read(entry.path().join("cmdline")).ok()?;
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            let own = words.iter().any(|word| word.starts_with(self.0.as_os_str().as_encoded_bytes()));
            (words.get(1) == Some(&&b"serve"[..]) && own).then_some(pid)
        };
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(of).collect()
    }

    /// Every server has ended, within a time in which it would have noticed.
    pub fn no_server(&self, what: impl std::fmt::Debug) {
        let ended = within(Duration::from_secs(10), || self.servers().is_empty());
        assert!(ended, "{what:?}: servers are left: {:?}", self.servers());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits until `what` is true. False where that takes longer than `time`.
pub fn within(time: Duration, mut what: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !what() {
        if start.elapsed() > time {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
}

/// A program of this workspace. `rt` is another package, which `cargo test -p rt-image` does not build.
fn built(program: &str) -> PathBuf {
    let image = Path::new(env!("CARGO_BIN_EXE_rt-image"));
    let path = image.with_file_name(program);
    assert!(path.exists(), "{} is missing: cargo build --workspace makes it", path.display());
    path
}

/// The callers that can be had here; none where FUSE cannot be.
pub fn callers() -> Vec<Caller> {
    let root =
        std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)).unwrap() == 0;
    let all = if root { vec![Caller::User, Caller::Root, Caller::Nested] } else { vec![Caller::Current] };
    let place = Place::new(&format!("probe-{:?}", std::thread::current().id()));
    let open = |caller: &Caller| {
        let open = place.command(*caller, &["sh", "-c", ": <>/dev/fuse"]).output().unwrap();
        open.status.success()
            || skip(&format!("{caller:?}: /dev/fuse: {}", String::from_utf8_lossy(&open.stderr).trim()))
    };
    all.into_iter().filter(open).collect()
}

/// Says past the capture of the test's output what is skipped, so that it is counted.
pub fn skip(why: &str) -> bool {
    let _ = writeln!(std::io::stderr(), "SKIP {why}");
    false
}

/// True where a program is installed.
pub fn have(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
    found.status.success() || skip(&format!("{program} is not installed"))
}
