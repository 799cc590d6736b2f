//! The program that runs inside the containers: it does what its arguments say, one after another, and
//! prints one line of JSON for each.
//!
//! `probe "write /x hello" "stat /x" "exit 3"` prints `null`, then an object, then exits with 3. An
//! operation that fails prints `{"errno": N}`, and the next one follows.

use crate::sys;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

/// Runs every operation of the command line.
pub fn main(operations: impl Iterator<Item = String>) -> i32 {
    let mut operations = operations.peekable();
    while let Some(line) = operations.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = match operate(&words) {
            Ok(value) => value,
            Err(e) => match e.raw_os_error() {
                Some(errno) => json!({ "errno": errno }),
                None => json!({ "problem": e.to_string() }),
            },
        };
        if operations.peek().is_some_and(|next| next == "pause") {
            // Whoever hears of this operation may end the program, before `pause` has said anything.
            sys::block_signals(&[libc::SIGTERM]);
        }
        say(&value);
    }
    0
}

fn say(value: &Value) {
    // One write: lines of several processes do not mix.
    let _ = io::stdout().write_all(format!("{value}\n").as_bytes());
}

fn operate(words: &[&str]) -> io::Result<Value> {
    let name = words.first().copied().unwrap_or("");
    let word = |i: usize| words.get(i).copied().unwrap_or("");
    let number = |i: usize| parse(word(i));
    let path = word(1);
    Ok(match name {
        // What the process is.
        "id" => {
            let (uid, gid) = sys::ids();
            json!({ "uid": uid, "gid": gid, "groups": sys::groups() })
        }
        "pid" => json!({ "pid": std::process::id(), "ppid": std::os::unix::process::parent_id() }),
        "args" => json!(std::env::args().collect::<Vec<_>>()),
        "exe" => json!(fs::read_link("/proc/self/exe")?),
        "env" => json!(std::env::vars().collect::<BTreeMap<_, _>>()),
        "cwd" => json!(std::env::current_dir()?),
        "fds" => json!((0..1024).filter(|fd| sys::fd_flags(*fd).is_ok()).collect::<Vec<_>>()),
        "links" => json!(
            fs::read_dir(path)?
                .flatten()
                .map(|e| (e.file_name().to_string_lossy().into_owned(), fs::read_link(e.path()).ok()))
                .collect::<BTreeMap<_, _>>()
        ),
        "status" => json!(
            fs::read_to_string(if path.is_empty() { "/proc/self/status" } else { path })?
                .lines()
                .filter_map(|line| line.split_once(':'))
                .map(|(key, value)| (key, value.trim()))
                .collect::<BTreeMap<_, _>>()
        ),
        "ns" => {
            let mut all = BTreeMap::new();
            for entry in fs::read_dir("/proc/self/ns")? {
                let entry = entry?;
                all.insert(entry.file_name().to_string_lossy().into_owned(), fs::read_link(entry.path())?);
            }
            json!(all)
        }
        "dispositions" => {
            let (blocked, ignored) = sys::inherited_signals();
            json!({ "blocked": blocked, "ignored": ignored })
        }
        "umask" => json!(sys::umask()),
        "rlimit" => json!(sys::rlimit(number(1)? as u32)?),
        "affinity" => json!(sys::affinity()),
        "names" => json!(sys::names()?),
        "clock" => json!(sys::clock(number(1)? as i32)?),
        "nnp" => json!(sys::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0)?),
        "dumpable" => json!(sys::prctl(libc::PR_GET_DUMPABLE, 0, 0)?),
        // What becomes of typing into a terminal from its other side: an error number, or 0.
        "inject" => {
            let tty = fs::File::options().read(true).write(true).open("/dev/tty");
            let fds = [Some(0), tty.as_ref().ok().map(AsRawFd::as_raw_fd)];
            let [sti, linux] = [libc::TIOCSTI, libc::TIOCLINUX].map(|command| command as u32);
            let commands = [u64::from(sti), u64::from(sti) | 1 << 32, u64::from(linux)];
            let answer = |fd: i32, command| match sys::ioctl_byte(fd, command, b'#') {
                Ok(_) => 0,
                Err(e) => e.raw_os_error().unwrap_or(-1),
            };
            let of_each = |fd: i32| commands.map(|command| answer(fd, command));
            json!({ "inject": fds.into_iter().flatten().map(of_each).collect::<Vec<_>>() })
        }
        "tty" => {
            let fd = number(1)? as i32;
            json!({
                "tty": sys::isatty(fd),
                "window": sys::window(fd).ok(),
                "foreground": sys::foreground(fd).ok(),
                "name": fs::read_link(format!("/proc/self/fd/{fd}")).ok(),
                "flags": sys::local_flags(fd).ok(),
            })
        }
        "ps" => {
            let mut pids = Vec::new();
            for entry in fs::read_dir("/proc")? {
                pids.extend(entry?.file_name().to_string_lossy().parse::<i32>());
            }
            pids.sort_unstable();
            json!(pids)
        }

        // Files.
        "cat" => json!(String::from_utf8_lossy(&fs::read(path)?)),
        "head" => {
            let mut bytes = vec![0; number(2)? as usize];
            let got = fs::File::open(path)?.read(&mut bytes)?;
            json!(String::from_utf8_lossy(&bytes[..got]))
        }
        "tail" => {
            let mut file = fs::File::open(path)?;
            let mut text = String::new();
            file.seek(io::SeekFrom::End(-(number(2)? as i64)))?;
            file.read_to_string(&mut text)?;
            json!(text)
        }
        "ls" => {
            let mut names: Vec<String> = fs::read_dir(path)?
                .map(|e| e.map(|e| e.file_name().to_string_lossy().into_owned()))
                .collect::<io::Result<_>>()?;
            names.sort();
            json!(names)
        }
        "stat" => describe(&fs::metadata(path)?),
        "lstat" => describe(&fs::symlink_metadata(path)?),
        "readlink" => json!(fs::read_link(path)?),
        "flags" => json!(sys::statfs_flags(path)?),
        "size" => json!(sys::statfs_size(path)?),
        "write" => {
            fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .open(path)?
                .write_all(word(2).as_bytes())?;
            Value::Null
        }
        "open" => {
            // Opens for writing without changing anything.
            fs::OpenOptions::new().write(true).open(path)?;
            Value::Null
        }
        "hold" => {
            // Open until the process ends.
            std::mem::forget(fs::File::open(path)?);
            Value::Null
        }
        "append" => {
            fs::OpenOptions::new().append(true).open(path)?.write_all(word(2).as_bytes())?;
            Value::Null
        }
        "mkdir" => json!(fs::create_dir(path)?),
        "rmdir" => json!(fs::remove_dir(path)?),
        "rename" => json!(fs::rename(path, word(2))?),
        "rm" => json!(fs::remove_file(path)?),
        "symlink" => json!(std::os::unix::fs::symlink(path, word(2))?),
        "chown" => json!(std::os::unix::fs::chown(path, Some(number(2)? as u32), Some(number(3)? as u32))?),
        "lchown" => {
            json!(std::os::unix::fs::lchown(path, Some(number(2)? as u32), Some(number(3)? as u32))?)
        }
        "chmod" => json!(fs::set_permissions(path, fs::Permissions::from_mode(number(2)? as u32))?),
        "link" => json!(fs::hard_link(path, word(2))?),
        "hostile-chowns" => hostile_chowns()?,
        "mknod" => json!(sys::mknod(path, libc::S_IFCHR | 0o666, number(2)? as u32, number(3)? as u32)?),
        "mkdisk" => json!(sys::mknod(path, libc::S_IFBLK | 0o600, number(2)? as u32, number(3)? as u32)?),
        "mkfifo" => json!(sys::mknod(path, libc::S_IFIFO | 0o600, 0, 0)?),
        "mksocket" => json!(sys::mknod(path, libc::S_IFSOCK | 0o600, 0, 0)?),
        "exists" => json!(fs::symlink_metadata(path).is_ok()),

        "to" => {
            // Appends what the rest of the words print to a file.
            let value = operate(&words[2..]).unwrap_or_else(|e| json!({ "errno": e.raw_os_error() }));
            let mut file = fs::OpenOptions::new().append(true).create(true).open(path)?;
            file.write_all(format!("{value}\n").as_bytes())?;
            Value::Null
        }
        "say" => json!(words[1..].join(" ")),

        // Descriptors.
        "writefd" => {
            fs::OpenOptions::new()
                .write(true)
                .open(format!("/proc/self/fd/{}", number(1)?))?
                .write_all(word(2).as_bytes())?;
            Value::Null
        }
        "readline" => {
            let mut text = String::new();
            json!({ "bytes": io::stdin().read_line(&mut text)?, "text": text })
        }
        "readall" => {
            let mut text = String::new();
            json!({ "bytes": io::stdin().read_to_string(&mut text)?, "text": text })
        }
        "stderr" => {
            io::stderr().write_all(format!("{path}\n").as_bytes())?;
            Value::Null
        }

        // What privileges are tried with.
        "mount" => json!(sys::mount(path, word(2), word(3), 0, word(4))?),
        "remount" => json!(sys::mount("none", path, "", number(2)?, "")?),
        "umount" => json!(sys::umount(path, libc::MNT_DETACH)?),
        "chroot" => json!(sys::chroot(path)?),
        "sethostname" => json!(sys::sethostname(path)?),
        "unshare" => json!(sys::unshare(number(1)? as i32)?),
        "setuid" => json!(sys::setuid(number(1)? as u32)?),
        "setgroups" => json!(sys::setgroups(&[number(1)? as u32])?),
        "syscall" => {
            let numbers: Vec<u64> = words[1..].iter().map(|w| parse(w)).collect::<io::Result<_>>()?;
            json!(sys::syscall(numbers[0] as i64, &numbers[1..])?)
        }

        // What processes do.
        "exit" => std::process::exit(number(1)? as i32),
        "die" => {
            sys::dispose(number(1)? as i32, false);
            sys::kill(std::process::id() as i32, number(1)? as i32)?;
            // As init of a pid namespace, it cannot kill itself.
            std::process::exit(99)
        }
        "ready" => json!("ready"),
        "sleep" => {
            std::thread::sleep(Duration::from_millis(number(1)?));
            Value::Null
        }
        "until" => {
            // Waits for a path.
            while !fs::exists(path)? {
                std::thread::sleep(Duration::from_millis(1));
            }
            Value::Null
        }
        "pause" => {
            // Ends with 0 on SIGTERM, also as the first process of a pid namespace.
            sys::block_signals(&[libc::SIGTERM]);
            say(&json!("ready"));
            sys::next_signal(&[libc::SIGTERM]);
            std::process::exit(0)
        }
        "deaf" => {
            // Nothing but SIGKILL ends it.
            sys::dispose(libc::SIGTERM, true);
            sys::dispose(libc::SIGINT, true);
            say(&json!("ready"));
            sys::pause()
        }
        "signals" => {
            // Prints each signal that arrives; ends with 7 on SIGTERM.
            let all = [1, 2, 3, 10, 12, 13, 15, 18, 28];
            sys::block_signals(&all);
            say(&json!("ready"));
            loop {
                let signal = sys::next_signal(&all);
                say(&json!({ "signal": signal }));
                if signal == libc::SIGTERM {
                    std::process::exit(7);
                }
            }
        }
        "count" => {
            // Counts in a file until it is killed.
            say(&json!("ready"));
            for n in 0u64.. {
                fs::write(path, n.to_string())?;
                std::thread::sleep(Duration::from_millis(2));
            }
            Value::Null
        }
        "fork" => {
            // A child that runs the rest of the words as one operation.
            match sys::fork()? {
                Some(pid) => json!({ "child": pid }),
                None => {
                    let value = operate(&words[1..]).unwrap_or_else(|e| json!({ "errno": e.raw_os_error() }));
                    say(&value);
                    sys::exit_now(0)
                }
            }
        }
        "orphan" => {
            // A grandchild in its own session whose parent is gone; runs the rest of the words.
            if let Some(pid) = sys::fork()? {
                while sys::reap(pid)?.is_none() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                return Ok(json!("orphan"));
            }
            sys::setsid();
            if sys::fork()?.is_none() {
                let value = operate(&words[1..]).unwrap_or_else(|e| json!({ "errno": e.raw_os_error() }));
                say(&value);
            }
            sys::exit_now(0)
        }
        "wait" => {
            // For every child, orphans of a pid namespace too.
            while sys::reap_any() {}
            Value::Null
        }
        "exec" => return Err(std::process::Command::new(path).args(&words[2..]).exec()),
        "spawn" => {
            let out = std::process::Command::new(path).args(&words[2..]).output()?;
            json!({ "code": out.status.code(), "out": String::from_utf8_lossy(&out.stdout) })
        }

        // Another process's memory.
        "secret" => {
            let text = format!("secret of {}", std::process::id()).into_bytes().leak();
            json!({ "pid": std::process::id(), "address": text.as_ptr() as u64, "len": text.len() })
        }
        "peek" => {
            let bytes = sys::read_memory(number(1)? as i32, number(2)?, number(3)? as usize)?;
            json!(String::from_utf8_lossy(&bytes))
        }

        // Attacks.
        "wait-for-writable-exe" => wait_for_writable_exe(number(1)?),
        "watch-descriptors" => watch_descriptors(number(1)?),
        "" => Value::Null,
        other => return Err(io::Error::other(format!("unknown operation {other}"))),
    })
}

fn parse(word: &str) -> io::Result<u64> {
    let parsed = match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => word.parse::<i64>().map(|n| n as u64).or_else(|_| word.parse()),
    };
    parsed.map_err(|_| io::Error::other(format!("{word:?} is no number")))
}

/// chown(2) by a program that means harm: paths at the edge of a page, of every length, and nowhere; a path that changes while it is
/// read; thousands of calls at once; and callers that are killed in the middle. Says what each of them got.
fn hostile_chowns() -> io::Result<Value> {
    const PAGE: u64 = 4096;
    let (here, nowhere) = (libc::AT_FDCWD as u64, u64::MAX - PAGE);
    let chown = |dir: u64, path: u64, flags: u64| {
        let done = sys::syscall(libc::SYS_fchownat, &[dir, path, 7, 8, flags]);
        done.map_or_else(|e| e.raw_os_error().unwrap_or(-1), |_| 0)
    };
    for name in ["/edge", "/one", "/two"] {
        fs::write(name, "")?;
    }
    // The second page is not there.
    let (memory, none) = ((libc::PROT_READ | libc::PROT_WRITE) as u64, u64::MAX);
    let pages = sys::syscall(
        libc::SYS_mmap,
        &[0, 2 * PAGE, memory, (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64, none, 0],
    )? as u64;
    sys::syscall(libc::SYS_munmap, &[pages + PAGE, PAGE])?;
    let at_the_edge = |text: &[u8]| -> io::Result<u64> {
        fs::write("/text", text)?;
        let file = fs::File::open("/text")?;
        let start = pages + PAGE - text.len() as u64;
        sys::syscall(libc::SYS_read, &[file.as_raw_fd() as u64, start, text.len() as u64])?;
        Ok(start)
    };
    let edge = chown(here, at_the_edge(b"/edge\0")?, 0);
    let endless = chown(here, at_the_edge(b"/edge")?, 0);
    let long = |length: usize| {
        let path = format!("{}edge\0", "/".repeat(length - 4));
        chown(here, path.as_ptr() as u64, 0)
    };
    let empty = chown(here, c"".as_ptr() as u64, 0);
    let descriptor = chown(77, c"x".as_ptr() as u64, 0);
    let changing = &[const { AtomicU8::new(0) }; 5];
    let put =
        |path: &[u8; 5]| path.iter().zip(changing).for_each(|(byte, to)| to.store(*byte, Ordering::Relaxed));
    put(b"/one\0");
    let stop = &AtomicBool::new(false);
    let mut results = BTreeSet::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                put(b"/two\0");
                put(b"/one\0");
            }
        });
        let many = || (0..1250).map(|_| chown(here, changing.as_ptr() as u64, 0)).collect::<BTreeSet<i32>>();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(many)).collect();
        threads.into_iter().for_each(|thread| results.extend(thread.join().unwrap_or_default()));
        stop.store(true, Ordering::Relaxed);
    });
    for pause in 0..40u64 {
        if let Some(child) = sys::fork()? {
            std::thread::sleep(Duration::from_micros(50 * pause));
            sys::kill(child, libc::SIGKILL)?;
            while sys::reap(child)?.is_none() {}
        } else {
            loop {
                chown(here, c"/one".as_ptr() as u64, 0);
            }
        }
    }
    Ok(json!({
        "edge": edge, "endless": endless, "nowhere": chown(here, nowhere, 0), "longest": long(4095),
        "too long": long(4096), "empty": empty, "descriptor": descriptor, "changing": results,
    }))
}

fn describe(meta: &fs::Metadata) -> Value {
    let kind = meta.file_type();
    let kind = match () {
        () if kind.is_dir() => "dir",
        () if kind.is_symlink() => "link",
        () if kind.is_char_device() => "char",
        () if kind.is_block_device() => "block",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () => "file",
    };
    json!({
        "kind": kind,
        "mode": meta.mode() & 0o7777,
        "uid": meta.uid(),
        "gid": meta.gid(),
        "size": meta.size(),
        "dev": meta.dev(),
        "ino": meta.ino(),
        "major": libc::major(meta.rdev()),
        "minor": libc::minor(meta.rdev()),
    })
}

/// CVE-2019-5736: tries for `ms` milliseconds to get a writable handle on the executable of any other
/// process that it sees, and says which it got.
fn wait_for_writable_exe(ms: u64) -> Value {
    let own = fs::metadata("/proc/self/exe").map(|m| (m.dev(), m.ino())).ok();
    let end = std::time::Instant::now() + Duration::from_millis(ms);
    let mut held: Vec<(String, fs::File)> = Vec::new();
    let mut got: Vec<String> = Vec::new();
    say(&json!("ready"));
    while std::time::Instant::now() < end {
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.parse::<i32>().is_err() || name == std::process::id().to_string() {
                continue;
            }
            let exe = format!("/proc/{name}/exe");
            if fs::metadata(&exe).map(|m| (m.dev(), m.ino())).ok() == own {
                continue;
            }
            // Held open for reading: it can be reopened for writing once nobody executes it any more.
            if held.len() < 64
                && let Ok(file) = fs::File::open(&exe)
            {
                held.push((fs::read_link(&exe).map_or(exe, |p| p.display().to_string()), file));
            }
        }
        for (name, file) in &held {
            use std::os::fd::AsRawFd;
            use std::os::unix::fs::FileExt;
            let again = format!("/proc/self/fd/{}", file.as_raw_fd());
            // Every ELF file begins with this byte already. A sealed copy opens, but takes no writes.
            let wrote = fs::OpenOptions::new().write(true).open(again).and_then(|f| f.write_at(b"\x7f", 0));
            if wrote.is_ok() && !got.contains(name) {
                got.push(name.clone());
            }
        }
    }
    json!({ "seen": held.len(), "writable": got })
}

/// CVE-2016-9962: looks for `ms` milliseconds whether /proc/PID/{fd,cwd,root} of another process leads to
/// a directory of another mount namespace's root (one that has the marker file).
fn watch_descriptors(ms: u64) -> Value {
    let end = std::time::Instant::now() + Duration::from_millis(ms);
    let own_root = fs::metadata("/").map(|m| (m.dev(), m.ino())).ok();
    let mut found: Vec<String> = Vec::new();
    let mut seen = 0;
    say(&json!("ready"));
    while std::time::Instant::now() < end {
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.parse::<i32>().is_err() || name == std::process::id().to_string() || name == "1" {
                continue;
            }
            seen += 1;
            let mut links = vec![format!("/proc/{name}/cwd"), format!("/proc/{name}/root")];
            links.extend(
                fs::read_dir(format!("/proc/{name}/fd"))
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|e| e.path().display().to_string()),
            );
            for link in links {
                let outside = ["host-marker", "../host-marker", "../../host-marker", "../../../host-marker"]
                    .iter()
                    .any(|up| fs::metadata(format!("{link}/{up}")).is_ok());
                let other_root = link.ends_with("/root")
                    && fs::metadata(&link).is_ok_and(|m| Some((m.dev(), m.ino())) != own_root);
                if outside || other_root {
                    found.push(link);
                }
            }
        }
    }
    found.sort();
    found.dedup();
    json!({ "seen": seen, "outside": found })
}
