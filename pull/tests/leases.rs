//! Leases: who has one, who takes it over, and what is said meanwhile.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use super::faults::{Fault, Server};
use super::image::{Image, Layer, noise};
use super::{Place, failing};

fn sample() -> Image {
    Image::new(vec![Layer::default().file("f", noise(600_000, 1))])
}

/// The text of a lease that process `pid` of this machine has.
fn held_by(pid: u32) -> String {
    let line = |path: &str| fs::read_to_string(path).unwrap().trim().to_owned();
    let stat = line(&format!("/proc/{pid}/stat"));
    let started = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().to_owned();
    let (host, boot) = (line("/proc/sys/kernel/hostname"), line("/proc/sys/kernel/random/boot_id"));
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    format!("{host} {boot} {}\n{pid}\n{started}\n", namespace.display())
}

fn set_modified(path: &Path, time: SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

/// Waits until `look` finds something.
fn soon<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "it never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Where the kernel does not say whether the holder of a lease lives, nothing is taken over.
#[test]
fn a_look_that_fails_takes_nothing_over() {
    let place = Place::new("leases-look");
    sample().layout(&place.join("image"));
    let command = |words: &[&str]| {
        let mut command = place.command();
        command.env("RT_IMAGES", place.join("images")).args(words);
        command
    };
    assert!(command(&["pull", "-q", "--store", "oci:image:t"]).output().unwrap().status.success());
    let bundle = place.names("images/bundles").remove(0);
    for mark in place.names("images/uses") {
        set_modified(&place.join("images/uses").join(mark), SystemTime::now() - Duration::from_secs(60));
    }
    let lease = place.join(format!("images/leases/{bundle}.lease.7"));
    let text = held_by(std::process::id());
    for (words, calls) in
        [(&["prune", "--all"][..], "fstatfs"), (&["rmi", &bundle["sha256-".len()..]], "fstatfs")]
    {
        fs::write(&lease, &text).unwrap();
        let output = failing(command(words), &[calls], libc::EIO);
        assert_eq!(fs::read_to_string(&lease).ok().as_ref(), Some(&text), "{output:?}");
        assert_eq!(place.names("images/bundles"), [bundle.as_str()], "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        // On a file system without a disk whose the store is is asked first, by the same call.
        let asked_first = said.contains("look at the file system of");
        assert!(!output.status.success() && (said.contains("/proc: i") || asked_first), "{said}");
    }
    fs::remove_file(&lease).unwrap();
    assert!(command(&["prune", "--all"]).output().unwrap().status.success());
    assert!(place.names("images/bundles").is_empty());
}

/// The lease that is there now.
fn lease(place: &Place, dir: &str) -> PathBuf {
    soon(|| {
        let dir = place.join(dir);
        let mut files = fs::read_dir(dir).ok()?.flatten();
        files
            .find(|file| file.file_name().to_str().is_some_and(|name| name.contains(".lease.")))
            .map(|f| f.path())
    })
}

/// A holder that was stopped lives, and renews nothing. Others say whom they wait for, and go on without it; when it
/// goes on itself, it does no harm.
#[test]
fn a_stopped_holder_is_passed_over() {
    let place = Place::new("leases-stopped");
    let server = Server::start(sample(), Fault::Slow(Duration::from_millis(300)));
    let pull = |target: &str| {
        let mut command = place.command();
        command.args(["pull", "--plain-http", &server.name(), target]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let first = pull("first");
    // The layer's: while it is fetched, a part of it is there.
    soon(|| {
        let files = fs::read_dir(place.join("cache/partial")).ok()?;
        files.flatten().any(|file| file.metadata().is_ok_and(|stat| stat.len() > 60_000)).then_some(())
    });
    signal(&first, "-STOP");
    let held = lease(&place, "cache/leases");
    let mut second = pull("second");
    let mut said = BufReader::new(second.stderr.take().unwrap()).lines();
    let line = said.next().expect("a line while it waits").unwrap();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(line.contains(&format!("process {} on {}", first.id(), host.trim())), "{line}");
    // Time passes.
    set_modified(&held, SystemTime::now() - Duration::from_secs(60));
    assert!(second.wait().unwrap().success());
    signal(&first, "-CONT");
    let output = first.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    for target in ["first", "second"] {
        assert_eq!(fs::read(place.join(target).join("rootfs/f")).unwrap(), noise(600_000, 1));
    }
    place.is_clean();
}

/// What killed processes have left in the store goes with `rt prune`.
#[test]
fn leases_of_the_dead_go() {
    let place = Place::new("leases-dead");
    sample().layout(&place.join("image"));
    let run = |words: &[&str]| {
        let mut command = place.quiet();
        command.env("RT_IMAGES", place.join("images")).args(words).status().unwrap()
    };
    assert!(run(&["pull", "-q", "--store", "oci:image:t"]).success());
    let living = held_by(std::process::id());
    let dead = living.replace(&format!("\n{}\n", std::process::id()), "\n2147483640\n");
    for (name, text) in
        [("a.lease.1", &dead), ("b.draft-0", &dead), ("c.lease.2", &living), ("d.draft-1", &living)]
    {
        fs::write(place.join("images/leases").join(name), text).unwrap();
    }
    let old = place.join("images/leases/e.lease.1");
    fs::write(&old, "elsewhere x y\n1\n1\n").unwrap();
    set_modified(&old, SystemTime::now() - Duration::from_secs(60));
    assert!(run(&["prune"]).success());
    assert_eq!(place.names("images/leases"), ["c.lease.2", "d.draft-1"]);
}

/// A pull that goes on beside the test.
fn pull(place: &Place, server: &Server, target: &str) -> Child {
    let mut command = place.quiet();
    command.args(["pull", "-q", "--plain-http", &server.name(), target]).spawn().unwrap()
}

/// The hexadecimal digits of a blob that the cache has had, and has no more.
fn missing_blob(place: &Place, server: &Server) -> String {
    assert!(pull(place, server, "first").wait().unwrap().success());
    let hex = place.names("cache/blobs/sha256").remove(0);
    fs::remove_file(place.join("cache/blobs/sha256").join(&hex)).unwrap();
    hex
}

/// The time of a lease can lie in the future, because a clock was wrong. It is passed over once it has not changed for 30
/// seconds before the eyes of whoever waits.
#[test]
fn a_lease_of_a_time_to_come_is_passed_over() {
    let place = Place::new("leases-future");
    let server = Server::start(sample(), Fault::None);
    let hex = missing_blob(&place, &server);
    let lease = place.join(format!("cache/leases/{hex}.lease.3"));
    fs::write(&lease, "elsewhere x y\n1\n1\n").unwrap();
    set_modified(&lease, SystemTime::now() + Duration::from_secs(24 * 3600));
    let began = Instant::now();
    assert!(pull(&place, &server, "second").wait().unwrap().success());
    assert!(began.elapsed() > Duration::from_secs(20), "it was watched for {:?}", began.elapsed());
    place.is_clean();
}

/// Whoever can write in a cache can make the name of a lease with the highest number there is. It stops nobody for good.
#[test]
fn no_number_stops_a_pull_for_good() {
    let place = Place::new("leases-number");
    let server = Server::start(sample(), Fault::None);
    let hex = missing_blob(&place, &server);
    for number in [u64::from(u32::MAX), u64::from(u32::MAX) + 1] {
        let lease = place.join(format!("cache/leases/{hex}.lease.{number}"));
        fs::write(&lease, "x").unwrap();
        set_modified(&lease, SystemTime::now() - Duration::from_secs(2 * 24 * 3600));
    }
    let mut child = pull(&place, &server, "second");
    let ended = soon(|| child.try_wait().unwrap());
    assert!(ended.success(), "{ended:?}");
}
