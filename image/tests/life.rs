//! How a mount begins and ends, and what its server may do.

use crate::{Caller, Place, callers, filter, within};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SECONDS: Duration = Duration::from_secs(10);

/// The processes of a mount.
struct Served {
    keeper: i32,
    worker: i32,
}

impl Served {
    fn find(place: &Place) -> Option<Served> {
        let servers = place.servers();
        let [one, other] = servers[..] else { return None };
        let keepers_child = |keeper: i32, worker: i32| {
            let children = std::fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"));
            children.is_ok_and(|pids| pids.trim() == worker.to_string()).then_some(Served { keeper, worker })
        };
        keepers_child(one, other).or_else(|| keepers_child(other, one))
    }
}

/// A program below a mount that says when it runs, and then waits to be told to go on.
fn waiting(place: &Place, caller: Caller, image: &str, then: &str) -> (Child, Served) {
    let mnt = place.text("mnt");
    let script = format!("cat \"$0/dir/hello\"; read line; {then}");
    let mut command = place.command(caller, &["rt", "mount", image, &mnt, "--", "sh", "-c", &script, &mnt]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "hello\n", "{caller:?}");
    let served = Served::find(place);
    (child, served.unwrap_or_else(|| panic!("{caller:?}: {:?}", place.servers())))
}

fn kill(pid: i32) {
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
}

/// Finishes a program of [`waiting`] and returns its exit code and all that it has said.
fn finish(mut child: Child) -> (Option<i32>, String) {
    drop(child.stdin.take());
    assert!(within(SECONDS, || child.try_wait().unwrap().is_some()), "the program hangs");
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn the_exit_code_is_the_programs() {
    let place = Place::new("exit");
    let (mnt, image) = (place.text("mnt"), place.seed("zstd.sqsh"));
    for caller in callers() {
        for code in [0, 1, 42] {
            let exit = format!("exit {code}");
            let output = place.run(caller, &["rt", "mount", &image, &mnt, "--", "sh", "-c", &exit]);
            assert_eq!(output.status.code(), Some(code), "{caller:?}");
        }
    }
}

#[test]
fn the_server_ends_with_the_last_program() {
    let place = Place::new("last");
    let image = place.seed("zstd.sqsh");
    for caller in callers() {
        // The first program ends before one that it has left behind.
        let (child, _) = waiting(&place, caller, &image, "{ sleep 0.3; cat \"$0/dir/nothing\"; } & exit 3");
        assert_eq!(finish(child).0, Some(3), "{caller:?}");
        place.no_server(caller);
    }
}

#[test]
fn a_killed_program_leaves_nothing() {
    let place = Place::new("killed");
    let image = place.seed("zstd.sqsh");
    for caller in callers() {
        let (mut child, _) = waiting(&place, caller, &image, "true");
        child.kill().unwrap();
        child.wait().unwrap();
        place.no_server(caller);
    }
}

/// What a program says to which the mount is lost: ENOTCONN, and ECONNABORTED for a request that was taken and not answered.
fn is_lost(said: &str) -> bool {
    let texts = ["Transport endpoint is not connected", "Software caused connection abort"];
    ["numbers: ", "deep': "]
        .iter()
        .all(|read| texts.iter().any(|text| said.contains(&format!("{read}{text}"))))
}

const READS: &str = "cat \"$0/dir/numbers\"; ls \"$0/dir/deep\"; exit 9";

#[test]
fn a_killed_keeper_is_an_error_and_no_hang() {
    let place = Place::new("dead-keeper");
    let image = place.seed("zstd.sqsh");
    for caller in callers() {
        let (child, served) = waiting(&place, caller, &image, READS);
        kill(served.keeper);
        place.no_server(caller);
        let (code, said) = finish(child);
        assert!(code == Some(9) && is_lost(&said), "{caller:?}: {said}");
    }
}

#[test]
fn a_stopped_keeper_ends_with_its_mount() {
    let place = Place::new("stopped-keeper");
    let image = place.seed("zstd.sqsh");
    for caller in callers() {
        let (child, served) = waiting(&place, caller, &image, "true");
        assert!(Command::new("kill").args(["-STOP", &served.keeper.to_string()]).status().unwrap().success());
        assert_eq!(finish(child).0, Some(0));
        place.no_server(caller);
    }
}

/// Every byte of an image may be hostile, so the filter comes before the first is read.
#[test]
fn nothing_is_read_before_the_server_is_confined() {
    let place = Place::new("early");
    let (mnt, image, log) = (place.text("mnt"), place.seed("zstd.sqsh"), place.text("strace"));
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("SKIP strace is not installed");
        return;
    }
    let calls = "trace=seccomp,pread64,read";
    let words = ["strace", "-f", "-y", "-e", calls, "-o", &log, "rt", "mount", &image, &mnt, "--", "true"];
    // strace has words of its own, such as of a process that ended before it was attached to.
    let output = place.run(Caller::Current, &words);
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&log).unwrap();
    let filter = "seccomp(SECCOMP_SET_MODE_FILTER";
    let servers: Vec<&str> =
        text.lines().filter(|line| line.contains(filter)).filter_map(|line| line.split(' ').next()).collect();
    assert!(!servers.is_empty(), "{text}");
    for server in servers {
        let of = |line: &&str| line.split(' ').next() == Some(server);
        let mut first = text.lines().filter(of).filter(|line| line.contains(filter) || line.contains(&image));
        let first = first.next().unwrap();
        assert!(first.contains(filter), "{first}\n{text}");
    }
}

/// True from this version of Linux on.
fn since(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (major, minor)
}

#[test]
fn a_killed_worker_is_replaced_unless_it_dies_at_once() {
    let place = Place::new("dead-worker");
    let image = place.seed("zstd.sqsh");
    for caller in callers() {
        let (child, served) = waiting(&place, caller, &image, READS);
        std::thread::sleep(Duration::from_millis(1100));
        kill(served.worker);
        if !since(6, 9) {
            place.no_server(caller);
            let (code, said) = finish(child);
            assert!(code == Some(9) && is_lost(&said), "{caller:?}: {said}");
            continue;
        }
        assert!(within(SECONDS, || Served::find(&place).is_some_and(|now| now.worker != served.worker)));
        let (code, said) = finish(child);
        assert!(code == Some(9) && said.contains("\n99\n") && said.contains("er"), "{caller:?}: {said}");
        assert!(!is_lost(&said), "{caller:?}: {said}");
        place.no_server(caller);

        let (child, _) = waiting(&place, caller, &image, READS);
        // On a busy machine one may live long enough.
        let ended = || match Served::find(&place) {
            Some(served) => {
                let _ = Command::new("kill").args(["-KILL", &served.worker.to_string()]).output();
                false
            }
            None => place.servers().is_empty(),
        };
        assert!(within(SECONDS, ended), "{caller:?}");
        let (code, said) = finish(child);
        assert!(code == Some(9) && is_lost(&said), "{caller:?}: {said}");
    }
}

#[test]
fn the_server_has_its_descriptors_and_nothing_else() {
    let place = Place::new("confined");
    let image = place.seed("zstd.sqsh");
    for caller in callers().into_iter().filter(|caller| *caller != Caller::Current) {
        let (child, served) = waiting(&place, caller, &image, "true");
        for pid in [served.keeper, served.worker] {
            is_confined(&format!("/proc/{pid}"), &image, caller);
        }
        assert_eq!(finish(child).0, Some(0));
        place.no_server(caller);
    }
}

fn is_confined(proc: &str, image: &str, caller: Caller) {
    let status = std::fs::read_to_string(format!("{proc}/status")).unwrap();
    let value =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(value(set), "0000000000000000", "{caller:?} {set}");
    }
    assert_eq!((value("Seccomp:").as_str(), value("NoNewPrivs:").as_str()), ("2", "1"), "{caller:?}");
    assert_eq!(std::fs::read_link(format!("{proc}/cwd")).unwrap().to_str(), Some("/"));
    let mut open: Vec<String> = std::fs::read_dir(format!("{proc}/fd"))
        .unwrap()
        .map(|fd| std::fs::read_link(fd.unwrap().path()).unwrap().display().to_string())
        .collect();
    open.sort();
    open.dedup();
    assert_eq!(open, ["/dev/fuse", "/dev/null", image], "{caller:?}");
    let memory: u64 = value("VmRSS:").trim_end_matches(" kB").parse().unwrap();
    assert!(memory < 25 << 10, "{caller:?}: {memory} kB");
}

#[test]
fn the_caller_has_no_child_that_it_did_not_make() {
    let place = Place::new("children");
    let (mnt, image) = (place.text("mnt"), place.seed("zstd.sqsh"));
    for caller in callers() {
        let script = "read -r children </proc/$$/task/$$/children; echo $children end";
        assert_eq!(
            place.good(caller, &["rt", "mount", &image, &mnt, "--", "sh", "-c", script]).trim_end(),
            "end"
        );
    }
}

#[test]
fn a_pipe_ends_with_the_program() {
    let place = Place::new("pipe");
    let image = place.seed("zstd.sqsh");
    for caller in callers() {
        // A server that kept the pipe open would keep this reader waiting while the mount is held.
        let (mut child, _) = waiting(&place, caller, &image, "exec >&- 2>&-; read line");
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut rest = String::new();
        std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut rest).unwrap();
        assert_eq!((rest.as_str(), place.servers().len()), ("", 2), "{caller:?}");
        assert_eq!(finish(child).0, Some(1));
    }
}

#[test]
fn a_program_that_does_not_exist_leaves_nothing() {
    let place = Place::new("no-program");
    let (mnt, image) = (place.text("mnt"), place.seed("zstd.sqsh"));
    for caller in callers() {
        let said = place.bad(caller, &["rt", "mount", &image, &mnt, "--", "/no/such/program"]);
        assert_eq!(said, "rt: execute /no/such/program: no such file or directory\n");
        let said = place.bad(caller, &["rt", "mount", &image, "/no/such/dir", "--", "true"]);
        assert_eq!(said, "rt: mount point /no/such/dir: no such file or directory\n");
    }
}

#[test]
fn an_unpacked_image_needs_no_device() {
    let place = Place::new("extract");
    let (mnt, image) = (place.text("mnt"), place.seed("zstd.sqsh"));
    for caller in callers().into_iter().filter(|caller| *caller != Caller::Current) {
        let script = "cd \"$0\" && find . -printf '%P %y %#m %s %Ts %n %l\\n' | LC_ALL=C sort; cat dir/deep/er/hole | tr -d '\\0'; \
            touch x 2>&1; grep \" $0 \" /proc/self/mounts";
        let closed = "mknod -m 000 $0/dev/fuse c 10 254 && mount --bind $0/dev/fuse /dev/fuse";
        let words = ["rt", "mount", "--extract", &image, &mnt, "--", "sh", "-c", script, &mnt];
        let output = place.command_with(caller, closed, &words).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        for line in crate::mount::SEEDS
            .iter()
            .filter(|line| !["b", "c", "s"].contains(&line.split(' ').nth(1).unwrap()))
        {
            // The sizes and links of directories are the tmpfs's.
            let is_directory = line.split(' ').nth(1) == Some("d");
            let found = match is_directory {
                true => said.lines().any(|found| {
                    found.split(' ').take(3).eq(line.split(' ').take(3)) && found.contains(" 1500000000 ")
                }),
                false => said.lines().any(|found| found == *line),
            };
            assert!(found, "{caller:?}: {line}\n{said}");
        }
        assert!(said.contains("\nend") && said.contains("Read-only file system"), "{said}");
        assert!(said.contains("tmpfs ro,nosuid,nodev"), "{said}");
        assert!(place.servers().is_empty());
    }
}

#[test]
fn a_closed_or_missing_device_names_the_remedy() {
    let place = Place::new("closed");
    let (mnt, image) = (place.text("mnt"), place.seed("zstd.sqsh"));
    for caller in callers().into_iter().filter(|caller| *caller == Caller::User) {
        let words = ["rt", "mount", &image, &mnt, "--", "true"];
        let closed = "mknod -m 600 $0/dev/fuse c 10 229 && mount --bind $0/dev/fuse /dev/fuse";
        let said = place.command_with(caller, closed, &words).output().unwrap();
        let said = String::from_utf8(said.stderr).unwrap();
        assert!(
            said.starts_with("rt: open /dev/fuse: permission denied (") && said.contains("--extract"),
            "{said}"
        );
        // A number that no driver has.
        let missing = "mknod -m 666 $0/dev/fuse c 10 254 && mount --bind $0/dev/fuse /dev/fuse";
        let said = place.command_with(caller, missing, &words).output().unwrap();
        let said = String::from_utf8(said.stderr).unwrap();
        assert!(
            said.starts_with("rt: open /dev/fuse: no such device (") && said.contains("--extract"),
            "{said}"
        );
    }
}

/// An answer that the kernel does not take is an error of the program that waits for it.
#[test]
fn an_answer_that_fails_is_an_error_and_no_hang() {
    let place = Place::new("answers");
    let (mnt, image) = (place.text("mnt"), place.seed("zstd.sqsh"));
    for caller in callers() {
        let script = "cat \"$0/dir/numbers\"; ls \"$0\" > /dev/null && exit 7";
        let mut command =
            place.command(caller, &["rt", "mount", &image, &mnt, "--", "sh", "-c", script, &mnt]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // The contents of files are the only answers that are made of parts.
        let child = failing(command, &["writev"], libc::EIO);
        let (code, said) = finish(child);
        assert!(
            code == Some(7) && said.contains("numbers: Input/output error"),
            "{caller:?}: {code:?} {said}"
        );
        place.no_server(caller);
    }
}

/// Near the limit of processes it is said that the image has no server: the program does not find a mount without one.
#[test]
fn a_server_that_cannot_be_made_is_said() {
    let place = Place::new("no-process");
    let (mnt, image) = (place.text("mnt"), place.seed("zstd.sqsh"));
    let Some(caller) = callers().into_iter().find(|caller| matches!(caller, Caller::User)) else { return };
    let hello = format!("{mnt}/dir/hello");
    let mut failed = 0;
    for most in 1..12 {
        let limit = format!("--nproc={most}");
        let output =
            place.run(caller, &["prlimit", &limit, "rt", "mount", &image, &mnt, "--", "cat", &hello]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || said.starts_with("rt: "), "{most}: {said}");
        failed += usize::from(said.contains("rt-image") || said.contains("server"));
    }
    assert!(failed > 1, "{failed}");
}

/// A call that fails does not say that a file system has no attributes.
#[test]
fn an_attribute_that_cannot_be_set_is_an_error() {
    let place = Place::new("no-attribute");
    let (mnt, image) = (place.text("mnt"), place.seed("xattrs.sqsh"));
    for (errno, code) in [(libc::EIO, 1), (libc::EOPNOTSUPP, 0)] {
        let mut command =
            place.command(Caller::Current, &["rt", "mount", "--extract", &image, &mnt, "--", "true"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (ended, said) = finish(failing(command, &["fsetxattr"], errno));
        assert!(
            ended == Some(code) && (code == 0 || said.contains("attribute")),
            "{errno}: {ended:?} {said}"
        );
    }
}

/// Starts `command` where these system calls fail so.
fn failing(command: Command, calls: &[&str], errno: i32) -> Child {
    filter::under_filter(command, filter::fails(calls, errno), |command| command.spawn().unwrap())
}

/// A keeper whose answer does not arrive ends, and its worker with it, however soon that is: whoever waits for the answer waits
/// for the end of the last process that could give it.
#[test]
fn a_worker_ends_with_a_keeper_that_ends_at_once() {
    let place = Place::new("no-answer");
    let image = place.seed("zstd.sqsh");
    let program = place.join("bin/rt-image");
    for _ in 0..200 {
        let (own, its) = std::os::unix::net::UnixStream::pair().unwrap();
        // What is written to the other end fails, and a read of it waits.
        own.shutdown(std::net::Shutdown::Read).unwrap();
        // No mount comes, so nothing is asked of the device.
        let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
        let file = std::fs::File::open(&image).unwrap();
        let passed: [&dyn std::os::fd::AsFd; 3] = [&file, &its, &device];
        let numbers = passed.map(|fd| {
            rustix::io::fcntl_setfd(fd.as_fd(), rustix::io::FdFlags::empty()).unwrap();
            std::os::fd::AsRawFd::as_raw_fd(&fd.as_fd()).to_string()
        });
        let mut command = Command::new(&program);
        command.arg("serve").args(&numbers).args(["-", "-", &image]).stdin(Stdio::null());
        let mut keeper = command.spawn().unwrap();
        drop((file, its, device));
        assert!(within(SECONDS, || keeper.try_wait().unwrap().is_some()), "the keeper waits");
        place.no_server("its worker");
    }
}
