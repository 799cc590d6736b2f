//! What a test works with: a caller, a bundle, the runtime's command line, and containers.

use crate::client::{Caller, Client};
use crate::sys::{self, Step};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before the test fails. The end of an overlay waits until the disk has all that anybody has written to
/// the file system of its upper layer, as an unpacked Debian.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The directories of programs that every system has.
pub const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Polls `done` until it gives a value; panics with `what` after [`DEADLINE`].
#[track_caller]
pub fn eventually<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(Instant::now() < end, "waited {DEADLINE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The children of a process, zombies included.
pub fn children(pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(candidate) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        if stat(candidate as i32).is_some_and(|s| s.parent == pid as i32) {
            all.push(candidate);
        }
    }
    all
}

/// Fields of /proc/PID/stat.
#[derive(Debug, Clone, Copy)]
pub struct ProcStat {
    /// R, S, D, T, Z …
    pub state: char,
    /// Parent's pid.
    pub parent: i32,
}

/// /proc/PID/stat of a process that exists.
pub fn stat(pid: i32) -> Option<ProcStat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text[text.rfind(')')? + 2..].split(' ');
    Some(ProcStat { state: fields.next()?.chars().next()?, parent: fields.next()?.parse().ok()? })
}

/// The identity of a namespace of a process, as `name:[inode]`.
pub fn namespace(pid: i32, name: &str) -> String {
    fs::read_link(format!("/proc/{pid}/ns/{name}"))
        .map_or_else(|e| e.to_string(), |p| p.display().to_string())
}

/// A test's surroundings.
pub struct Ctx {
    /// Who calls the runtime.
    pub caller: Caller,
    /// The test's directory, the caller's own.
    pub dir: PathBuf,
    /// The state root.
    pub state: PathBuf,
    base: PathBuf,
    client: Option<Client>,
    ids: RefCell<Vec<String>>,
    count: Cell<u32>,
    mounts_before: (String, String),
    prefix: String,
}

impl Ctx {
    /// The surroundings of the test `name`; ends the test as skipped where the caller cannot be played.
    pub fn new(name: &str, caller: Caller) -> Ctx {
        if let Some(why) = caller.unavailable() {
            crate::runner::end_skipped(why);
        }
        let base = PathBuf::from(std::env::var_os("RT_TEST_BASE").expect("started by the runner"));
        let prefix = directory_name(name);
        let dir = base.join(&prefix);
        fs::create_dir(&dir).expect("the test's directory");
        let client = matches!(caller, Caller::Nested | Caller::Range)
            .then(|| Client::new(&base.join("bin/it"), caller));
        let (uid, gid) = caller.host_ids();
        sys::chown(&dir, uid, gid).expect("chown");
        let mut ctx = Ctx {
            caller,
            state: dir.join("state"),
            dir,
            base,
            client,
            ids: RefCell::default(),
            count: Cell::new(0),
            mounts_before: Default::default(),
            prefix: format!("{:.40}-{}", prefix, std::process::id()),
        };
        ctx.mounts_before = ctx.mounts();
        ctx
    }

    /// The mount tables that a runtime must leave alone: the tests' and the client's.
    fn mounts(&self) -> (String, String) {
        let own = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        (own, self.client.as_ref().map(Client::mounts).unwrap_or_default())
    }

    /// The runtime's executable, and its directory.
    pub fn rt_path(&self) -> PathBuf {
        self.base.join("bin/rt")
    }

    /// True where `RT_BIN` names another runtime than this project's.
    pub fn foreign(&self) -> bool {
        std::env::var_os("RT_BIN").is_some()
    }

    /// The program of the tests itself, for helpers on the host (`--exchange`).
    pub fn helper(&self) -> PathBuf {
        self.base.join("bin/it")
    }

    /// True where the caller is root with capability number `cap` (containers often lack some).
    pub fn root_has(&self, cap: u32) -> bool {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let set = status.lines().find_map(|l| l.strip_prefix("CapEff:\t")).unwrap_or("0");
        self.caller == Caller::Root && u64::from_str_radix(set, 16).unwrap_or(0) >> cap & 1 == 1
    }

    /// The pid of the process that holds the client's namespaces.
    pub fn client_pid(&self) -> i32 {
        self.client.as_ref().map_or(0, |c| c.child.id() as i32)
    }

    /// An id that no other test uses.
    pub fn id(&self) -> String {
        self.count.set(self.count.get() + 1);
        let id = format!("{}-{}", self.prefix, self.count.get());
        self.ids.borrow_mut().push(id.clone());
        id
    }

    /// Has the end-of-test check delete `id`, too.
    pub fn remember(&self, id: &str) {
        self.ids.borrow_mut().push(id.into());
    }

    /// A path in the test's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Gives `path` and everything below it to the caller.
    pub fn give(&self, path: &Path) {
        let (uid, gid) = self.caller.host_ids();
        sys::chown(path, uid, gid).expect("chown");
        if path.is_dir() && !path.is_symlink() {
            for entry in fs::read_dir(path).expect("readable").flatten() {
                self.give(&entry.path());
            }
        }
    }

    /// Gives one link, file or directory to the caller.
    pub fn give_link(&self, path: &Path) {
        let (uid, gid) = self.caller.host_ids();
        sys::chown(path, uid, gid).expect("chown");
    }

    /// A directory of the caller in the test's directory.
    pub fn mkdir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("a directory");
        let (uid, gid) = self.caller.host_ids();
        sys::chown(&path, uid, gid).expect("chown");
        path
    }

    /// A file of the caller in the test's directory.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("a file");
        let (uid, gid) = self.caller.host_ids();
        sys::chown(&path, uid, gid).expect("chown");
        path
    }

    /// A bundle whose rootfs has every usual mount point; the config fits the caller.
    pub fn bundle(&self) -> Bundle {
        let bundle = self.bare_bundle();
        for dir in ["bin", "etc", "dev", "proc", "sys", "root", "home", "var", "run", "mnt"] {
            bundle.mkdir(dir);
        }
        bundle.mkdir("tmp");
        fs::set_permissions(bundle.rootfs().join("tmp"), fs::Permissions::from_mode(0o1777)).expect("chmod");
        fs::hard_link(self.base.join("template/probe"), bundle.rootfs().join("bin/probe")).expect("a link");
        bundle.file("etc/passwd", "root:x:0:0:root:/root:/bin/probe\nalice:x:1000:1000::/home:/bin/probe\n");
        bundle.file("etc/group", "root:x:0:\nalice:x:1000:\n");
        bundle
    }

    /// A bundle whose rootfs has the payload and what it is linked with, nothing else.
    pub fn bare_bundle(&self) -> Bundle {
        self.count.set(self.count.get() + 1);
        let dir = self.mkdir(&format!("bundle{}", self.count.get()));
        link_tree(&self.base.join("template"), &dir.join("rootfs"));
        let bundle = Bundle { dir, config: default_config(self.caller), ids: self.caller.host_ids() };
        bundle.give_directories();
        bundle.write();
        bundle
    }

    /// A command of the caller.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Cmd {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", SYSTEM_PATH);
        command.current_dir(&self.dir);
        self.count.set(self.count.get() + 1);
        let name = format!("out{}", self.count.get());
        Cmd {
            command,
            before: Vec::new(),
            caller: self.caller.steps(self.client.as_ref()),
            after: Vec::new(),
            out: self.file(&format!("{name}.1"), ""),
            err: self.file(&format!("{name}.2"), ""),
            input: None,
            piped: false,
        }
    }

    /// `rt --root STATE ARGS…`.
    pub fn rt<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Cmd {
        let mut cmd = self.command(self.rt_path());
        cmd.command.arg("--root").arg(&self.state).args(args);
        cmd
    }

    /// `rt run` of the bundle under a new id, to its end.
    pub fn run(&self, bundle: &Bundle) -> Out {
        self.run_with(bundle, &[])
    }

    /// The same with more flags of `run`.
    pub fn run_with(&self, bundle: &Bundle, flags: &[&str]) -> Out {
        let id = self.id();
        self.rt(["run"]).args(flags).arg("--bundle").arg(&bundle.dir).arg(&id).run()
    }

    /// `rt create`, which must succeed in silence.
    pub fn create(&self, bundle: &Bundle) -> Container<'_> {
        self.create_with(bundle, &[])
    }

    /// The same with more flags of `create`.
    pub fn create_with(&self, bundle: &Bundle, flags: &[&str]) -> Container<'_> {
        let id = self.id();
        let pid_file = self.path(&format!("{id}.pid"));
        let cmd = self
            .rt(["create"])
            .args(flags)
            .arg("--bundle")
            .arg(&bundle.dir)
            .arg("--pid-file")
            .arg(&pid_file)
            .arg(&id);
        let (out, err) = (cmd.out.clone(), cmd.err.clone());
        let done = cmd.run();
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "create");
        let pid = fs::read_to_string(&pid_file).expect("the pid file");
        let pid = pid.parse().unwrap_or_else(|_| panic!("the pid file holds {pid:?}"));
        Container { ctx: self, id, pid, out, err }
    }

    /// A container whose program has started; `operations` should begin with one that prints.
    pub fn started(&self, bundle: &Bundle) -> Container<'_> {
        let container = self.create(bundle);
        self.rt(["start", &container.id]).silent();
        container.line(0);
        container
    }

    /// Removes everything that the test made; what should not be there is listed.
    pub fn finish(self) -> Vec<String> {
        let mut left = Vec::new();
        for id in self.ids.borrow().iter() {
            let out = self.rt(["delete", "--force", id]).run();
            // Before Linux 6.11 rt cannot tell a process of another test, whose namespace was given the same number, from
            // one that is left. Those are looked for below.
            let untold = sys::kernel() < (6, 11) && out.stderr.contains("before Linux 6.11");
            if out.code != 0 && !untold {
                left.push(format!("delete --force {id}: rc {} {}", out.code, out.stderr.trim()));
            }
        }
        for name in fs::read_dir(&self.state).into_iter().flatten().flatten() {
            // rt's index of containers that run in place; it has a test of its own.
            if name.file_name() != ".in-place" {
                left.push(format!("state {}", name.path().display()));
            }
        }
        let own = [self.client_pid() as u32];
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            // Zombies were reparented to this process, their reaper.
            let mut alive = Vec::new();
            for pid in children(std::process::id()) {
                if !own.contains(&pid) && !matches!(sys::reap(pid as i32), Ok(Some(_)) | Err(_)) {
                    alive.push(pid);
                }
            }
            if alive.is_empty() {
                break;
            }
            if Instant::now() > end {
                for pid in alive {
                    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                    let text = String::from_utf8_lossy(&command).replace('\0', " ");
                    left.push(format!("process {pid}: {text}"));
                    let _ = sys::kill(pid as i32, libc::SIGKILL);
                    let _ = eventually("its end", || sys::reap(pid as i32).ok().flatten());
                }
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let after = self.mounts();
        for (before, after) in [(&self.mounts_before.0, &after.0), (&self.mounts_before.1, &after.1)] {
            left.extend(after.lines().filter(|l| !before.contains(l)).map(|l| format!("mount {l}")));
        }
        left
    }
}

/// The name of a test's directory below the common one.
pub fn directory_name(test: &str) -> String {
    test.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

fn link_tree(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a directory");
    for entry in fs::read_dir(from).expect("the template").flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().expect("its type").is_dir() {
            link_tree(&entry.path(), &target);
        } else {
            fs::hard_link(entry.path(), target).expect("a hard link");
        }
    }
}

/// What `runc spec` (for users: `--rootless`) writes, less what the tests rarely need: no network
/// namespace and no /sys.
fn default_config(caller: Caller) -> Value {
    let (uid, gid) = caller.host_ids();
    let mut namespaces = vec!["pid", "ipc", "uts", "mount"];
    let mut linux = json!({});
    if caller == Caller::User {
        namespaces.push("user");
        linux["uidMappings"] = json!([{ "containerID": 0, "hostID": uid, "size": 1 }]);
        linux["gidMappings"] = json!([{ "containerID": 0, "hostID": gid, "size": 1 }]);
    }
    linux["namespaces"] = namespaces.iter().map(|kind| json!({ "type": kind })).collect();
    linux["maskedPaths"] =
        json!(["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/not/there"]);
    linux["readonlyPaths"] = json!(["/proc/bus", "/proc/sys", "/proc/sysrq-trigger", "/not/there"]);
    let caps = json!(["CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"]);
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": { "uid": 0, "gid": 0 },
            "args": ["/probe"],
            "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm"],
            "cwd": "/",
            "capabilities": { "bounding": caps, "effective": caps, "permitted": caps },
            "noNewPrivileges": true,
        },
        "root": { "path": "rootfs", "readonly": false },
        "hostname": "probe",
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
              "options": ["nosuid", "strictatime", "mode=755", "size=65536k"] },
            { "destination": "/dev/pts", "type": "devpts", "source": "devpts",
              "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"] },
            { "destination": "/dev/shm", "type": "tmpfs", "source": "shm",
              "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"] },
        ],
        "linux": linux,
    })
}

/// A bundle directory and its config.
pub struct Bundle {
    /// The bundle.
    pub dir: PathBuf,
    /// What [`Bundle::write`] writes.
    pub config: Value,
    /// Who owns it.
    pub ids: (u32, u32),
}

impl Bundle {
    /// The root filesystem.
    pub fn rootfs(&self) -> PathBuf {
        self.dir.join("rootfs")
    }

    /// Writes config.json.
    pub fn write(&self) {
        let text = serde_json::to_string_pretty(&self.config).expect("JSON");
        self.raw(&text);
    }

    /// Writes `text` as config.json.
    pub fn raw(&self, text: &str) {
        let path = self.dir.join("config.json");
        fs::write(&path, text).expect("config.json");
        sys::chown(&path, self.ids.0, self.ids.1).expect("chown");
    }

    /// Has the payload do `operations`.
    pub fn ops(mut self, operations: &[&str]) -> Self {
        let mut args = vec!["/probe"];
        args.extend(operations);
        self.set("/process/args", json!(args));
        self
    }

    /// Sets the value at a JSON pointer, making the objects on the way, and writes the config.
    pub fn set(&mut self, pointer: &str, value: Value) -> &mut Self {
        let mut at = &mut self.config;
        for key in pointer[1..].split('/') {
            at = match at {
                Value::Array(list) => &mut list[key.parse::<usize>().expect("an index")],
                other => &mut other[key],
            };
        }
        *at = value;
        self.write();
        self
    }

    /// [`Bundle::set`] by value.
    pub fn with(mut self, pointer: &str, value: Value) -> Self {
        self.set(pointer, value);
        self
    }

    /// Removes the value at `parent` / `key`.
    pub fn unset(mut self, parent: &str, key: &str) -> Self {
        if let Some(object) = self.config.pointer_mut(parent).and_then(Value::as_object_mut) {
            object.remove(key);
        }
        self.write();
        self
    }

    /// Adds an element to the array at a JSON pointer.
    pub fn push(mut self, pointer: &str, value: Value) -> Self {
        if self.config.pointer(pointer).is_none() {
            self.set(pointer, json!([]));
        }
        self.config.pointer_mut(pointer).and_then(Value::as_array_mut).expect("an array").push(value);
        self.write();
        self
    }

    /// Adds a mount.
    pub fn mount(self, destination: &str, kind: &str, source: &str, options: &[&str]) -> Self {
        let mount = json!({ "destination": destination, "type": kind, "source": source, "options": options });
        self.push("/mounts", mount)
    }

    /// Removes the mount at `destination`.
    pub fn without_mount(mut self, destination: &str) -> Self {
        let list = self.config["mounts"].as_array_mut().expect("mounts");
        list.retain(|m| m["destination"] != destination);
        self.write();
        self
    }

    /// Adds a namespace, new or by path.
    pub fn namespace(self, kind: &str, path: Option<&str>) -> Self {
        let mut bundle = self.without_namespace(kind);
        let mut namespace = json!({ "type": kind });
        if let Some(path) = path {
            namespace["path"] = json!(path);
        }
        bundle.config["linux"]["namespaces"].as_array_mut().expect("namespaces").push(namespace);
        bundle.write();
        bundle
    }

    /// Removes a namespace: the host's is used.
    pub fn without_namespace(mut self, kind: &str) -> Self {
        let list = self.config["linux"]["namespaces"].as_array_mut().expect("namespaces");
        list.retain(|n| n["type"] != kind);
        self.write();
        self
    }

    /// Gives the process these capabilities: bounding, effective, permitted.
    pub fn caps(self, caps: &[&str]) -> Self {
        self.with("/process/capabilities", json!({ "bounding": caps, "effective": caps, "permitted": caps }))
    }

    /// Adds a hook of a kind (`prestart`, …): `program` (see [`Ctx::helper`]) does `args` as the payload would.
    pub fn hook(self, kind: &str, path: &Path, args: &[&str]) -> Self {
        let mut all = vec!["probe".to_string()];
        all.extend(args.iter().map(|a| a.to_string()));
        self.push(&format!("/hooks/{kind}"), json!({ "path": path, "args": all }))
    }

    /// A directory in the rootfs.
    pub fn mkdir(&self, path: &str) -> PathBuf {
        let full = self.rootfs().join(path);
        fs::create_dir_all(&full).expect("a directory");
        let mut at = full.as_path();
        while at != self.rootfs() {
            sys::chown(at, self.ids.0, self.ids.1).expect("chown");
            at = at.parent().expect("below the rootfs");
        }
        full
    }

    /// A file in the rootfs.
    pub fn file(&self, path: &str, text: &str) -> PathBuf {
        let full = self.rootfs().join(path);
        fs::write(&full, text).expect("a file");
        sys::chown(&full, self.ids.0, self.ids.1).expect("chown");
        full
    }

    /// A symbolic link in the rootfs.
    pub fn link(&self, path: &str, target: &str) -> PathBuf {
        let full = self.rootfs().join(path);
        if full.is_dir() && !full.is_symlink() {
            fs::remove_dir(&full).expect("an empty directory in the link's place");
        }
        let _ = fs::remove_file(&full);
        std::os::unix::fs::symlink(target, &full).expect("a link");
        sys::chown(&full, self.ids.0, self.ids.1).expect("chown");
        full
    }

    /// Every path of the rootfs with what can be seen of it, but for the times of directories: to compare
    /// before with after where mount points may be made for a while.
    pub fn tree(&self) -> BTreeMap<PathBuf, String> {
        tree(&self.rootfs(), false)
    }

    /// The same with the times of directories: it must not have been touched at all.
    pub fn strict_tree(&self) -> BTreeMap<PathBuf, String> {
        tree(&self.rootfs(), true)
    }

    fn give_directories(&self) {
        fn give(dir: &Path, ids: (u32, u32)) {
            sys::chown(dir, ids.0, ids.1).expect("chown");
            for entry in fs::read_dir(dir).expect("readable").flatten() {
                if entry.file_type().is_ok_and(|t| t.is_dir()) {
                    give(&entry.path(), ids);
                }
            }
        }
        give(&self.dir, self.ids);
    }
}

/// Every path below `dir` with its kind, mode, owner, size, time and link target.
pub fn tree(dir: &Path, directory_times: bool) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(path) = todo.pop() {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        let link = fs::read_link(&path).map(|p| p.display().to_string()).unwrap_or_default();
        let mut text = format!("{:o} {}:{} {link}", meta.mode(), meta.uid(), meta.gid());
        if !meta.is_dir() {
            text += &format!(" {} bytes", meta.size());
        }
        if !meta.is_dir() || directory_times {
            text += &format!(" {}.{:09}", meta.mtime(), meta.mtime_nsec());
        }
        if meta.is_dir() {
            todo.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|e| e.path()));
        }
        all.insert(path, text);
    }
    all
}

/// A command that is about to run as the caller.
pub struct Cmd {
    /// The command itself.
    pub command: Command,
    before: Vec<Step>,
    caller: Vec<Step>,
    after: Vec<Step>,
    /// Where its standard output goes.
    pub out: PathBuf,
    /// Where its standard error goes.
    pub err: PathBuf,
    input: Option<Vec<u8>>,
    piped: bool,
}

impl Cmd {
    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<std::ffi::OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets the working directory.
    pub fn cwd(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        // Joining a mount namespace moves to its root.
        self.after.push(Step::Chdir(sys::c(dir)));
        self
    }

    /// Steps that the child takes first, with the tests' own privileges.
    pub fn before(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.before.extend(steps);
        self
    }

    /// Steps that the child takes as the caller, last.
    pub fn after(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.after.extend(steps);
        self
    }

    /// Runs it with the tests' own privileges, not the caller's.
    pub fn by_tests(mut self) -> Self {
        self.caller.clear();
        self
    }

    /// Standard input.
    pub fn input(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.input = Some(text.into());
        self
    }

    /// Standard output and error as pipes, which end when nobody holds them any more.
    pub fn piped(mut self) -> Self {
        self.piped = true;
        self
    }

    /// Starts it.
    pub fn spawn(mut self) -> Job {
        let open = |path: &Path| {
            Stdio::from(fs::OpenOptions::new().append(true).open(path).expect("an output file"))
        };
        if self.piped {
            self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        } else {
            self.command.stdout(open(&self.out)).stderr(open(&self.err));
        }
        self.command.stdin(if self.input.is_some() { Stdio::piped() } else { Stdio::null() });
        let mut steps = std::mem::take(&mut self.before);
        steps.append(&mut self.caller);
        steps.append(&mut self.after);
        sys::before_exec(&mut self.command, steps);
        let text = format!("{:?}", self.command);
        let mut child = self.command.spawn().unwrap_or_else(|e| panic!("{text}: {e}"));
        if let (Some(bytes), Some(mut pipe)) = (self.input, child.stdin.take()) {
            let _ = pipe.write_all(&bytes);
        }
        Job { child, out: self.out, err: self.err, text }
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn run(self) -> Out {
        self.spawn().wait()
    }

    /// Runs it; it must succeed.
    #[track_caller]
    pub fn ok(self) -> Out {
        let out = self.run();
        assert_eq!(out.code, 0, "{out:?}");
        out
    }

    /// Runs it; it must succeed and say nothing.
    #[track_caller]
    pub fn silent(self) {
        let out = self.run();
        assert_eq!((out.code, out.stdout.as_str(), out.stderr.as_str()), (0, "", ""), "{out:?}");
    }

    /// Runs it; it must fail with one line that contains each of `texts`.
    #[track_caller]
    pub fn fails(self, texts: &[&str]) -> Out {
        let out = self.run();
        out.failed(texts);
        out
    }
}

/// A command that runs.
pub struct Job {
    /// The process.
    pub child: Child,
    /// Where its standard output goes.
    pub out: PathBuf,
    err: PathBuf,
    text: String,
}

impl Job {
    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(mut self) -> Out {
        let end = Instant::now() + DEADLINE;
        let status = loop {
            match self.child.try_wait().expect("a child") {
                Some(status) => break status,
                None if Instant::now() > end => {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    panic!("{} did not end within {DEADLINE:?}: {:?}", self.text, self.lines());
                }
                None => std::thread::sleep(Duration::from_micros(500)),
            }
        };
        use std::os::unix::process::ExitStatusExt;
        Out {
            code: sys::exit_code(status.into_raw()),
            stdout: text(&self.out),
            stderr: text(&self.err),
            command: self.text,
        }
    }

    /// What it has printed so far, by lines.
    pub fn lines(&self) -> Vec<String> {
        text(&self.out).lines().map(String::from).collect()
    }

    /// What it has said on its standard error so far.
    pub fn errors(&self) -> String {
        text(&self.err)
    }

    /// Waits for line `n` of its standard output, and parses it.
    #[track_caller]
    pub fn line(&mut self, n: usize) -> Value {
        let (out, err) = (self.out.clone(), self.err.clone());
        let command = self.text.clone();
        eventually(&format!("line {n} of {command}"), || {
            if let Some(value) = complete_line(&out, n) {
                return Some(value);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                let last = complete_line(&out, n);
                assert!(last.is_some(), "{command}: {status}: {:?} {:?}", text(&out), text(&err));
                return last;
            }
            None
        })
    }
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn complete_line(path: &Path, n: usize) -> Option<Value> {
    let text = text(path);
    let line = text.split_inclusive('\n').nth(n)?;
    line.ends_with('\n').then(|| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line:?}: {e}")))
}

/// A command's end.
#[derive(Debug)]
pub struct Out {
    /// Exit code, 128+n for a signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// The command line.
    #[allow(dead_code, reason = "for the Debug output")]
    pub command: String,
}

impl Out {
    /// Line `n` of the payload's output.
    #[track_caller]
    pub fn line(&self, n: usize) -> Value {
        let line = self.stdout.lines().nth(n).unwrap_or_else(|| panic!("no line {n}: {self:?}"));
        serde_json::from_str(line).unwrap_or_else(|e| panic!("{line:?}: {e}"))
    }

    /// All lines of the payload's output.
    #[track_caller]
    pub fn all(&self) -> Vec<Value> {
        assert_eq!(self.code, 0, "{self:?}");
        (0..self.stdout.lines().count()).map(|n| self.line(n)).collect()
    }

    /// The standard output as one JSON document.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// It must have failed, with one line that contains each of `texts`.
    #[track_caller]
    pub fn failed(&self, texts: &[&str]) {
        assert_ne!(self.code, 0, "should have failed: {self:?}");
        let stderr = self.stderr.replace("\\\"", "\"");
        for text in texts {
            assert!(stderr.contains(text), "stderr lacks {text:?}: {self:?}");
        }
        assert_eq!(self.stderr.trim_end().lines().count(), 1, "one line of error: {self:?}");
    }
}

/// A container that was created.
pub struct Container<'a> {
    ctx: &'a Ctx,
    /// Its id.
    pub id: String,
    /// Its first process.
    pub pid: i32,
    /// Its standard output.
    pub out: PathBuf,
    /// Its standard error.
    pub err: PathBuf,
}

impl Container<'_> {
    /// `rt state`.
    #[track_caller]
    pub fn state(&self) -> Value {
        self.ctx.rt(["state", &self.id]).ok().json()
    }

    /// The status in `rt state`.
    #[track_caller]
    pub fn status(&self) -> String {
        self.state()["status"].as_str().expect("a status").into()
    }

    /// `rt start`.
    #[track_caller]
    pub fn start(&self) {
        self.ctx.rt(["start", &self.id]).silent();
    }

    /// `rt kill ID SIGNAL`.
    #[track_caller]
    pub fn kill(&self, signal: &str) {
        self.ctx.rt(["kill", &self.id, signal]).silent();
    }

    /// `rt delete`.
    #[track_caller]
    pub fn delete(&self) {
        self.ctx.rt(["delete", &self.id]).silent();
    }

    /// `rt exec ID /probe OPERATIONS…`, to its end.
    #[track_caller]
    pub fn exec(&self, operations: &[&str]) -> Out {
        self.exec_with(&[], operations).run()
    }

    /// The same with flags, not yet run.
    pub fn exec_with(&self, flags: &[&str], operations: &[&str]) -> Cmd {
        self.ctx.rt(["exec"]).args(flags).args([self.id.as_str(), "/probe"]).args(operations)
    }

    /// Waits for line `n` of its output.
    #[track_caller]
    pub fn line(&self, n: usize) -> Value {
        eventually(&format!("line {n} of the container, which printed {:?}", text(&self.out)), || {
            complete_line(&self.out, n)
        })
    }

    /// Waits for its end and reaps it: the exit code, 128+n for a signal.
    #[track_caller]
    pub fn reap(&self) -> i32 {
        eventually("the container's end", || sys::reap(self.pid).expect("a child of its creator"))
    }

    /// Waits until it has ended, without reaping it.
    #[track_caller]
    pub fn ended(&self) {
        eventually("the container's end", || stat(self.pid).is_none_or(|s| s.state == 'Z').then_some(()));
    }

    /// Kills, reaps and deletes it.
    #[track_caller]
    pub fn end(&self) {
        self.kill("KILL");
        self.reap();
        self.delete();
    }
}

/// A hexadecimal field of /proc status.
pub fn hex(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap_or("x"), 16).unwrap_or_else(|e| panic!("{value}: {e}"))
}

/// A value that the payload prints for a failed operation.
pub fn errno(number: i32) -> Value {
    json!({ "errno": number })
}
