//! The operations of `rt` at whose calls faults happen, and the directory that they begin with.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// What is run after a fault, to see that nothing stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The same command, which succeeds.
    Same,
    /// The same command; it may find that what it is for is done.
    Once,
    /// The same command, whatever comes of it, and then another one, which finishes what was begun.
    Then(&'static str),
    /// `delete --force` of this container, which may be gone.
    Delete(&'static str),
}

/// An operation. A word `REGISTRY` in a command is the host of a registry; one that begins with `./` is run itself, and all
/// others are commands of `rt`. After `nested` stands a command in a user namespace of one id, whose state is at the default place.
pub(crate) struct Operation {
    /// As it is named on the command line.
    pub(crate) name: &'static str,
    /// Commands that make its directory what it needs, once.
    pub(crate) prepare: &'static [&'static str],
    /// Commands that start what it needs, before each run.
    pub(crate) live: &'static [&'static str],
    /// The command at whose calls faults happen.
    pub(crate) command: &'static str,
    /// What is run afterwards.
    pub(crate) next: Next,
}

const fn simple(name: &'static str, command: &'static str, next: Next) -> Operation {
    Operation { name, prepare: &[], live: &[], command, next }
}

const fn prepared(
    name: &'static str,
    prepare: &'static [&'static str],
    command: &'static str,
    next: Next,
) -> Operation {
    Operation { name, prepare, live: &[], command, next }
}

const fn with(
    name: &'static str,
    live: &'static [&'static str],
    command: &'static str,
    next: Next,
) -> Operation {
    Operation { name, prepare: &[], live, command, next }
}

const fn beside(name: &'static str, live: &'static [&'static str], command: &'static str) -> Operation {
    with(name, live, command, Next::Delete("c1"))
}

const CREATED: &[&str] = &["create -b waits c1"];
const RUNNING: &[&str] = &["run -d -b waits c1"];
const PAUSED: &[&str] = &["run -d -b waits c1", "pause c1"];
const FILE: &[&str] = &["save -q ./bundle image.sqsh"];
const STORE: &[&str] = &["pull -q --store oci:layout:1"];
const CACHED: &[&str] = &[
    "push -q --plain-http --no-cache ./bundle REGISTRY/team/x:1",
    "pull -q --plain-http REGISTRY/team/x:1 out",
];
const PUSHED: &[&str] = &["push -q --plain-http --no-cache ./bundle REGISTRY/team/x:1"];
/// One whose output is kept, and that has ended.
const LOGGED: &[&str] = &["run -d --name c1 ./bundle", "logs -f c1"];
const WAITING: &[&str] = &["run -d --name c1 ./bundle /bin/wait"];
/// One whose state is where nobody has named a place.
const OF_DEFAULT: &[&str] = &["nested run -d --name c1 ./bundle /bin/wait"];
/// Its layer belongs to one copy of the image: overlayfs knows the image by its inode.
const LAYER: &[&str] = &["run --overlay layer ./bundle /bin/write"];
const READ_LAYER: &[&str] = &[
    "run --overlay layer ./bundle /bin/write",
    "run -d --name c1 --overlay layer --read-only ./bundle /bin/wait",
];

/// All of them.
pub(crate) const OPERATIONS: &[Operation] = &[
    simple("run-bundle", "run ./bundle", Next::Same),
    simple("run-as-root", "run --as-root ./bundle", Next::Same),
    simple("run-overlay", "run --overlay out ./bundle", Next::Same),
    simple("run-writable", "run --writable ./bundle", Next::Same),
    simple("run-volume", "run -v ./data:/mnt ./bundle", Next::Same),
    prepared("run-name", STORE, "run oci:layout:1", Next::Same),
    simple("run-new-name", "run oci:layout:1", Next::Same),
    prepared("run-sqsh", FILE, "run ./image.sqsh", Next::Same),
    prepared("run-extract", FILE, "run --extract ./image.sqsh", Next::Same),
    simple("run-detached", "run -d -b waits c1", Next::Delete("c1")),
    simple("run-logged", "run -d --name c1 ./bundle /bin/wait", Next::Delete("c1")),
    // A name is looked for in PATH.
    simple("run-searched", "run ./bundle hello", Next::Same),
    with("run-layer-again", LAYER, "run --overlay layer ./bundle", Next::Same),
    with("run-layer-read", READ_LAYER, "run --overlay layer --read-only ./bundle", Next::Same),
    simple("pull-layout", "pull -q oci:layout:1 out", Next::Same),
    prepared("pull-registry", PUSHED, "pull -q --plain-http REGISTRY/team/x:1 out", Next::Same),
    simple("pull-store", "pull -q --store oci:layout:1", Next::Same),
    simple("save-archive", "save -q ./bundle oci-archive:out:1", Next::Once),
    simple("save-docker-archive", "save -q ./bundle docker-archive:out:x:1", Next::Once),
    simple("save-sqsh", "save -q ./bundle out.sqsh", Next::Once),
    prepared("save-runfile", FILE, "save -q --runfile out ./image.sqsh", Next::Once),
    prepared("runfile", &["save -q --runfile program ./bundle"], "./program", Next::Same),
    simple("convert-sqsh", "convert -q oci:layout:1 out.sqsh", Next::Once),
    prepared("convert-bundle", FILE, "convert -q image.sqsh out", Next::Once),
    with("save-overlay", LAYER, "save -q --overlay layer ./bundle oci-archive:out:1", Next::Once),
    with("save-overlay-sqsh", LAYER, "save -q --overlay layer ./bundle out.sqsh", Next::Once),
    with(
        "push-overlay",
        LAYER,
        "push -q --plain-http --overlay layer ./bundle REGISTRY/team/x:3",
        Next::Same,
    ),
    simple("push", "push -q --plain-http ./bundle REGISTRY/team/x:2", Next::Same),
    simple("inspect", "inspect oci:layout:1", Next::Same),
    prepared("inspect-sqsh", FILE, "inspect image.sqsh", Next::Same),
    prepared("inspect-registry", PUSHED, "inspect --plain-http REGISTRY/team/x:1", Next::Same),
    prepared("images", STORE, "images", Next::Same),
    prepared("rmi", STORE, "rmi oci:layout:1", Next::Then("prune")),
    prepared("prune", STORE, "prune --all", Next::Same),
    prepared("cache-prune", CACHED, "cache prune", Next::Same),
    simple("create", "create -b bundle c2", Next::Delete("c2")),
    beside("start", CREATED, "start c1"),
    beside("state", CREATED, "state c1"),
    beside("list", CREATED, "list -q"),
    with("list-of-default", OF_DEFAULT, "nested list -q", Next::Same),
    beside("kill", RUNNING, "kill c1 KILL"),
    beside("exec", RUNNING, "exec c1 /bin/hello"),
    beside("pause", RUNNING, "pause c1"),
    beside("resume", PAUSED, "resume c1"),
    beside("logs", LOGGED, "logs c1"),
    beside("stop", WAITING, "stop --time 0 c1"),
    beside("ps", RUNNING, "ps c1"),
    beside("delete", CREATED, "delete --force c1"),
];

/// Makes the directory that all of them begin with: bundles, a layout, and places for the caller's own.
///
/// # Errors
/// Those of its files, and what `rt` said.
pub(crate) fn make_template(dir: &Path, rt: &Path) -> io::Result<()> {
    for name in ["data", "run", "home", "tmp"] {
        fs::create_dir_all(dir.join(name))?;
    }
    for (name, program) in [("bundle", "/bin/hello"), ("waits", "/bin/wait")] {
        let bundle = dir.join(name);
        make_root(&bundle.join("rootfs"))?;
        run(rt, &["spec"], &bundle)?;
        let config = bundle.join("config.json");
        let text = fs::read_to_string(&config)?.replace("\"terminal\": true", "\"terminal\": false");
        fs::write(&config, text.replace("\"sh\"", &format!("\"{program}\"")))?;
    }
    run(rt, &["save", "-q", "./bundle", "oci:layout:1"], dir)?;
    // Times that no copy has by chance.
    let mut find = Command::new("find");
    find.args([".", "-exec", "touch", "-h", "-d", "2020-02-02 02:02:02", "{}", "+"]).current_dir(dir);
    require(find.status()?.success(), "find")
}

fn require(good: bool, what: &str) -> io::Result<()> {
    if good { Ok(()) } else { Err(io::Error::other(format!("{what} failed"))) }
}

fn run(rt: &Path, arguments: &[&str], dir: &Path) -> io::Result<()> {
    let output = Command::new(rt).args(arguments).current_dir(dir).output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(io::Error::other(text)) }
}

/// A root with what can get lost: modes, links, attributes, a file of many pieces.
fn make_root(root: &Path) -> io::Result<()> {
    let bin = root.join("bin");
    fs::create_dir_all(&bin)?;
    fs::create_dir_all(root.join("closed/inner"))?;
    // mov eax, 1; mov edi, 1; mov esi, the text; mov edx, 6; syscall; mov eax, 60; xor edi, edi; syscall
    let mut hello =
        vec![0xb8, 1, 0, 0, 0, 0xbf, 1, 0, 0, 0, 0xbe, 0xa2, 0, 0x40, 0, 0xba, 6, 0, 0, 0, 0x0f, 5];
    hello.extend([0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 5, b'h', b'e', b'l', b'l', b'o', b'\n']);
    hello[11] = (HEADERS + 31) as u8;
    program(&bin.join("hello"), &hello)?;
    // again: mov eax, 34 (pause); syscall; jmp again
    program(&bin.join("wait"), &[0xb8, 34, 0, 0, 0, 0x0f, 5, 0xeb, 0xf7])?;
    // What is changed over an image: a file that is new, and one that is removed. The texts stand behind the last syscall.
    let (open, unlink) = ([0xb8, 2, 0, 0, 0, 0xbf], [0x0f, 5, 0xb8, 87, 0, 0, 0, 0xbf]);
    let mut write = open.to_vec();
    // mov eax, 2; mov edi, "/new"; mov esi, O_WRONLY | O_CREAT; mov edx, 0644; syscall
    write.extend([0, 0, 0x40, 0, 0xbe, 0x41, 0, 0, 0, 0xba, 0xa4, 1, 0, 0]);
    // mov eax, 87; mov edi, "/bin/again"; syscall
    write.extend(unlink);
    write.extend([0, 0, 0x40, 0, 0x0f, 5]);
    // mov eax, 60; xor edi, edi; syscall
    write.extend([0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 5]);
    let texts = HEADERS + write.len();
    write[6] = texts as u8;
    write[28] = (texts + b"/new\0".len()) as u8;
    write.extend(b"/new\0/bin/again\0");
    program(&bin.join("write"), &write)?;
    std::os::unix::fs::symlink("hello", bin.join("link"))?;
    fs::hard_link(bin.join("hello"), bin.join("again"))?;
    let mut file = fs::File::create(root.join("closed/inner/data"))?;
    let mut random = 1_u64;
    for _ in 0..40_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        file.write_all(&random.to_le_bytes()[4..])?;
    }
    // Where the file system has none, there is none to lose.
    let _ = crate::sys::set_attribute(&root.join("closed/inner/data"), c"user.x", b"y");
    fs::set_permissions(root.join("closed/inner/data"), fs::Permissions::from_mode(0o4750))?;
    fs::set_permissions(root.join("closed"), fs::Permissions::from_mode(0o711))?;
    fs::set_permissions(root.join("closed/inner"), fs::Permissions::from_mode(0o1777))
}

/// The length of a file's two headers.
const HEADERS: usize = 64 + 56;

/// Writes a static program of these instructions (elf(5)).
fn program(path: &Path, code: &[u8]) -> io::Result<()> {
    let (base, length) = (0x40_0000_u64, (HEADERS + code.len()) as u64);
    let mut all = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    all.extend((base + HEADERS as u64).to_le_bytes());
    all.extend(64_u64.to_le_bytes());
    all.extend([0; 12]);
    for half in [64_u16, 56, 1, 0, 0, 0] {
        all.extend(half.to_le_bytes());
    }
    // PT_LOAD, readable and executable.
    all.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for word in [0, base, base, length, length, 0x1000] {
        all.extend(word.to_le_bytes());
    }
    all.extend_from_slice(code);
    fs::write(path, all)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}
