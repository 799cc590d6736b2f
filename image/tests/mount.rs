//! What a program sees below a mounted image.

use crate::{Caller, Place, callers, have};
use std::process::Command;

/// A listing of all that stat(2) and the contents say.
const LIST: &str = "cd \"$0\" && find . -printf '%P %y %#m %s %Ts %n %l\\n' | LC_ALL=C sort && \
    find . -type f | LC_ALL=C sort | xargs -d '\\n' cat | md5sum";

/// What the seeds hold, in the words of [`LIST`].
pub const SEEDS: &[&str] = &[
    " d 0755 109 1500000000 4 ",
    "dir d 01777 109 1500000000 3 ",
    "dir/again f 0644 4393 4000000000 2 ",
    "dir/deep/er/hole f 0644 50003 1500000000 1 ",
    "dir/hello f 04755 6 1000000000 1 ",
    "dir/link l 0777 11 1500000000 1 ../no/where",
    "disk b 0660 0 1500000002 1 ",
    "null c 0666 0 1500000001 1 ",
    "pipe p 0600 0 1500000003 1 ",
    "sock s 0600 0 1500000004 1 ",
];

#[test]
fn every_compression_shows_the_same_tree() {
    let place = Place::new("seeds");
    let mnt = place.text("mnt");
    for caller in callers() {
        let mut first = None;
        for name in ["gzip", "lzma", "lzo", "xz", "lz4", "zstd", "stored", "bcj"] {
            let image = place.seed(&format!("{name}.sqsh"));
            let listing = place.good(caller, &["rt", "mount", &image, &mnt, "--", "sh", "-c", LIST, &mnt]);
            for line in &SEEDS[1..] {
                assert!(listing.lines().any(|found| found == *line), "{caller:?} {name}: {line}\n{listing}");
            }
            assert_eq!(*first.get_or_insert(listing.clone()), listing, "{name}");
        }
    }
    assert!(std::fs::read_dir(&mnt).unwrap().next().is_none(), "a mount has come out");
}

#[test]
fn files_belong_to_a_caller_who_has_one_id() {
    let place = Place::new("owners");
    let (mnt, image) = (place.text("mnt"), place.seed("zstd.sqsh"));
    for caller in callers() {
        let owners = place.good(
            caller,
            &["rt", "mount", &image, &mnt, "--", "sh", "-c", "stat -c %u:%g \"$0/dir/hello\"; id -u", &mnt],
        );
        let expected = match caller {
            Caller::User => format!("{0}:{0}\n{0}\n", crate::UID),
            Caller::Root => "1000:70000\n0\n".to_owned(),
            Caller::Nested => "0:0\n0\n".to_owned(),
            Caller::Current => continue,
        };
        assert_eq!(owners, expected, "{caller:?}");
    }
}

#[test]
fn attributes_are_shown() {
    let place = Place::new("xattrs");
    let (mnt, image) = (place.text("mnt"), place.seed("xattrs.sqsh"));
    if !have("getfattr") {
        return;
    }
    for caller in callers() {
        let script = "cd \"$0\"; getfattr -d dir/hello; getfattr -n user.long --only-values empty | wc -c; \
            getfattr -n user.none empty 2>&1; getfattr -d dir/numbers";
        let said = place
            .good(caller, &["rt", "mount", &image, &mnt, "--", "sh", "-c", &format!("{script}; true"), &mnt]);
        assert!(said.contains("user.colour=\"blue\"\n\n300\n"), "{caller:?}: {said}");
        assert!(said.contains("No such attribute"), "{said}");
    }
}

/// Layers that are written of what is shown believe such attributes, and overlays above it obey them.
#[test]
fn attributes_that_steer_are_not_shown() {
    let place = Place::new("steering");
    if !have("mksquashfs") || !have("getfattr") {
        return;
    }
    let (mnt, image, tree) = (place.text("mnt"), place.text("x.sqsh"), place.text("tree"));
    let script = "mkdir $0 && cd $0 && echo x >file && setfattr -n user.colour -v blue file && \
        setfattr -n user.overlay.opaque -v y file && setfattr -n user.containers.override_stat -v 0:0:666:block-8-0 file && \
        mksquashfs $0 $1 -quiet -no-progress -xattrs";
    let made = Command::new("sh").args(["-c", script, &tree, &image]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    for caller in callers() {
        for flags in [&[][..], &["--extract"]] {
            let shown =
                "getfattr -d -m - $0/file 2>&1; getfattr -n user.containers.override_stat $0/file 2>&1; true";
            let words = [&["rt", "mount"], flags, &[&image, &mnt, "--", "sh", "-c", shown, &mnt]].concat();
            let said = place.good(caller, &words);
            assert!(!said.contains("overlay") && !said.contains("block-8-0"), "{caller:?}: {said}");
            assert!(said.contains("blue") || flags == ["--extract"], "{caller:?}: {said}");
        }
    }
}

#[test]
fn a_large_directory_is_complete() {
    let place = Place::new("many");
    let (mnt, image) = (place.text("mnt"), place.seed("many.sqsh"));
    for caller in callers() {
        let script = "cd \"$0/names\" && ls | wc -l && ls -l | wc -l && stat -c %n a-rather-long-name-1499 && \
            { stat a-rather-long-name-1501 2>&1 || true; }";
        let said = place.good(caller, &["rt", "mount", &image, &mnt, "--", "sh", "-c", script, &mnt]);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[..3], ["1500", "1501", "a-rather-long-name-1499"], "{caller:?}");
        assert!(lines[3].contains("No such file"), "{said}");
    }
}

#[test]
fn many_programs_read_at_once() {
    if !have("mksquashfs") {
        return;
    }
    let place = Place::new("at-once");
    let (mnt, image) = (place.text("mnt"), place.text("bin.sqsh"));
    // A program that is optimised is shorter than what is read below.
    let program = std::fs::read(place.text("bin/rt-image")).unwrap();
    std::fs::write(place.text("bin/long"), program.repeat((5 << 20) / program.len() + 1)).unwrap();
    let made = Command::new("mksquashfs")
        .args([
            &place.text("bin"),
            &image,
            "-comp",
            "zstd",
            "-Xcompression-level",
            "1",
            "-quiet",
            "-no-progress",
        ])
        .output();
    assert!(made.unwrap().status.success());
    let sum = |path: String| {
        let sum = Command::new("sh").args(["-c", &format!("md5sum <{path}")]).output().unwrap();
        String::from_utf8(sum.stdout).unwrap()
    };
    let expected = sum(place.text("bin/long"));
    for caller in callers() {
        // From several places at a time, so that blocks are asked for by many, and out of order.
        let script = "for n in 1 2 3 4 5 6 7 8; do md5sum <\"$0/long\" & \
            dd if=\"$0/long\" bs=4096 skip=$((n * 97)) count=300 status=none | wc -c & done; wait";
        let said = place.good(caller, &["rt", "mount", &image, &mnt, "--", "sh", "-c", script, &mnt]);
        assert_eq!(said.lines().filter(|line| *line == expected.trim()).count(), 8, "{caller:?}: {said}");
        assert_eq!(said.lines().filter(|line| *line == "1228800").count(), 8, "{said}");
    }
}

#[test]
fn nothing_can_be_written() {
    let place = Place::new("read-only");
    let (mnt, image) = (place.text("mnt"), place.seed("gzip.sqsh"));
    for caller in callers() {
        let script = "cd \"$0/dir\"; touch new 2>&1; rm hello 2>&1; echo x 2>&1 >hello; mkfifo p 2>&1; true";
        let said = place.run(caller, &["rt", "mount", &image, &mnt, "--", "sh", "-c", script, &mnt]);
        let said = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
        assert_eq!(said.matches("Read-only file system").count(), 4, "{caller:?}: {said}");
    }
}

/// Of a file system that could be written the kernel asks again for the attributes of whatever was read, because of the time of
/// access: as many requests as there are directories, and as files were read.
#[test]
fn the_file_system_itself_is_read_only() {
    let place = Place::new("ro");
    let (mnt, image) = (place.text("mnt"), place.seed("gzip.sqsh"));
    for caller in callers() {
        let words =
            ["rt", "mount", &image, &mnt, "--", "sh", "-c", "grep \" $0 \" /proc/self/mountinfo", &mnt];
        let said = place.good(caller, &words);
        let of_file_system = said.split(" - ").nth(1).and_then(|words| words.split(' ').nth(2));
        assert!(of_file_system.is_some_and(|options| options.starts_with("ro,")), "{caller:?}: {said}");
    }
}

#[test]
fn devices_and_set_id_bits_of_an_image_mean_nothing() {
    let place = Place::new("nosuid");
    let (mnt, image) = (place.text("mnt"), place.seed("gzip.sqsh"));
    for caller in callers() {
        let script = "cat \"$0/null\" 2>&1; grep \" $0 \" /proc/self/mounts";
        let said = place.run(caller, &["rt", "mount", &image, &mnt, "--", "sh", "-c", script, &mnt]);
        let said = String::from_utf8(said.stdout).unwrap();
        assert!(said.contains("Permission denied"), "{caller:?}: {said}");
        assert!(said.contains(" ro,nosuid,nodev,"), "{caller:?}: {said}");
    }
}

/// What an unpacked tree has of attributes and special files, and that the rest is said.
#[test]
fn what_cannot_be_unpacked_is_said() {
    let place = Place::new("left-out");
    if !have("mksquashfs") || !have("getfattr") {
        return;
    }
    let tree = place.text("tree");
    let script = "mkdir -p $0/dir && cd $0 && echo x >file && echo y >dir/locked && mkfifo pipe && ln -s file link && \
        setfattr -n user.colour -v blue file && setfattr -n user.shape -v round dir && \
        setfattr -n user.colour -v red dir/locked && setfattr -n user.overlay.opaque -v y dir && \
        chmod 000 dir/locked && chmod 4755 file && touch -d @1500000000 file dir/locked dir";
    let sh = |script: &str| {
        let done = Command::new("sh").args(["-c", script, &tree]).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    sh(script);
    let callers = callers();
    let root = callers.contains(&Caller::Root);
    if root {
        sh("cd $0 && setfattr -n trusted.secret -v x file && mknod null c 1 3 && mknod disk b 7 0 && \
            setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 dir/locked && \
            setfattr -h -n trusted.secret -v x link && touch -d @1500000000 file dir/locked dir");
    }
    let image = place.text("x.sqsh");
    // The socket as a program has left it.
    let _socket = std::os::unix::net::UnixListener::bind(format!("{tree}/sock")).unwrap();
    let made = Command::new("mksquashfs")
        .args([&tree, &image, "-comp", "zstd", "-quiet", "-no-progress", "-xattrs"])
        .output();
    assert!(made.unwrap().status.success());
    for caller in callers {
        let mnt = place.text("mnt");
        let log = place.text(&format!("home/log-{caller:?}"));
        let script = "cd $0 && find . -mindepth 1 -printf '%P %y %#m %Ts\n' | grep -v ^link | LC_ALL=C sort; cat file; \
            getfattr -Rd -m - . 2>/dev/null | grep -v '^$'; true";
        let words = [
            "rt",
            "--debug",
            "--log",
            &log,
            "mount",
            "--extract",
            &image,
            &mnt,
            "--",
            "sh",
            "-c",
            script,
            &mnt,
        ];
        let shown = place.good(caller, &words);
        let log = std::fs::read_to_string(log).unwrap();
        let said = log.lines().find(|line| line.contains("left out: "));
        let said = said.unwrap_or_else(|| panic!("{caller:?}: {log}"));
        for line in ["dir d 0755 1500000000", "dir/locked f 0 1500000000", "file f 04755 1500000000", "x"] {
            assert!(shown.lines().any(|found| found == line), "{caller:?}: {line}\n{shown}");
        }
        assert!(shown.contains("pipe p 0644 ") && shown.contains("sock s 0755 "), "{caller:?}: {shown}");
        // A tmpfs has attributes of users from Linux 6.6 on, and a file of mode 000 shows its own to root alone.
        let kept = shown.contains("# file: file\nuser.colour=\"blue\"\n");
        assert_eq!(kept, !said.contains("user.colour ("), "{caller:?}: {shown}{said}");
        let kept = shown.contains("# file: dir\nuser.shape=\"round\"\n");
        assert_eq!(kept, !said.contains("user.shape ("), "{caller:?}: {shown}{said}");
        assert!(said.contains("user.overlay.opaque (1)") && !shown.contains("overlay"), "{caller:?}: {said}");
        if root {
            assert!(said.contains("left out: 2 device nodes; the attributes "), "{caller:?}: {said}");
            assert!(!shown.contains("null") && !shown.contains("disk"), "{caller:?}: {shown}");
            assert!(said.contains("trusted.secret (2)"), "{caller:?}: {said}");
            assert_eq!(
                said.contains("security.capability (1)"),
                caller == Caller::User,
                "{caller:?}: {said}"
            );
        }
    }
}
