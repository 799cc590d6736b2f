//! Images that mksquashfs(1) has written: those of `seeds`, and where it is installed, images of a tree with all that a
//! tree can have, which are compared with that tree.
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::print_stdout)]

use squashfs::{Body, Entry, FilePart, Filesystem, InodeRef, Kind, Piece, Position, Source};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is known of each path, in words.
type Manifest = BTreeMap<String, String>;

fn seed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds").join(name)
}

fn open(path: &Path) -> Filesystem<FilePart> {
    Filesystem::open(FilePart::new(File::open(path).unwrap(), 0, None).unwrap(), 0).unwrap()
}

/// FNV-1a: enough to tell contents apart.
#[derive(Clone, Copy)]
struct Sum(u64);

impl Sum {
    fn new() -> Self {
        Sum(0xcbf2_9ce4_8422_2325)
    }
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

fn all_entries<S: Source>(
    fs: &Filesystem<S>,
    directory: &squashfs::Directory,
) -> squashfs::Result<Vec<Entry>> {
    let mut entries = fs.entries(directory, Position::default())?;
    let mut all = Vec::new();
    while let Some(entry) = entries.next_entry()? {
        all.push(entry);
    }
    Ok(all)
}

/// Contents, of which only up to `LOOKED_AT` bytes at the beginning and at the end are read.
const LOOKED_AT: u64 = 1 << 20;

fn contents(size: u64, mut read: impl FnMut(u64, usize, &mut Sum)) -> u64 {
    let mut sum = Sum::new();
    let head = size.min(LOOKED_AT);
    read(0, head as usize, &mut sum);
    let tail = size.saturating_sub(LOOKED_AT).max(head);
    read(tail, (size - tail) as usize, &mut sum);
    sum.0
}

fn of_image<S: Source>(fs: &Filesystem<S>) -> Manifest {
    let mut all = Manifest::new();
    let mut todo = vec![(String::new(), fs.root())];
    let mut first_names = HashMap::new();
    while let Some((path, reference)) = todo.pop() {
        let inode = fs.inode(reference).unwrap();
        let mut line = format!("{:o} {} {} {}", inode.st_mode(), inode.uid, inode.gid, inode.mtime);
        match &inode.body {
            Body::Directory(directory) => {
                let entries = all_entries(fs, directory).unwrap();
                for (n, entry) in entries.iter().enumerate() {
                    let name = String::from_utf8(entry.name.clone()).unwrap();
                    assert_eq!(fs.find(directory, &entry.name).unwrap(), Some(entry.inode), "{path}/{name}");
                    let child = fs.inode(entry.inode).unwrap();
                    assert_eq!((child.number, child.file_type()), (entry.number, entry.file_type));
                    // From every position the rest is the same; of large directories a few are tried.
                    if n % (entries.len() / 20 + 1) == 0 {
                        let mut rest = fs.entries(directory, entry.next).unwrap();
                        assert_eq!(rest.next_entry().unwrap().as_ref(), entries.get(n + 1), "{path}/{name}");
                    }
                    todo.push((format!("{path}/{name}"), entry.inode));
                }
                assert_eq!(fs.find(directory, b"not there").unwrap(), None);
                write!(line, " {} names, {} links", entries.len(), inode.links).unwrap();
            }
            Body::File(file) => {
                let sum =
                    contents(file.size, |at, length, sum| read_image(fs, reference, file, at, length, sum));
                write!(line, " {} bytes {sum:016x}", file.size).unwrap();
            }
            Body::Symlink(target) => write!(line, " -> {}", String::from_utf8_lossy(target)).unwrap(),
            Body::BlockDevice(number) | Body::CharDevice(number) => write!(line, " {number:#x}").unwrap(),
            Body::Fifo | Body::Socket => {}
        }
        for xattr in fs.xattrs(&inode).unwrap() {
            let mut sum = Sum::new();
            sum.add(&xattr.value);
            let name = String::from_utf8(xattr.name).unwrap();
            write!(line, " [{name} {} {:x}]", xattr.value.len(), sum.0).unwrap();
        }
        if !matches!(inode.body, Body::Directory(_)) && inode.links > 1 {
            let first: &mut Vec<String> = first_names.entry(reference).or_default();
            first.push(path.clone());
            write!(line, " {} links", inode.links).unwrap();
        }
        all.insert(if path.is_empty() { "/".into() } else { path }, line);
    }
    for names in first_names.values() {
        assert!(names.len() > 1, "a link without another: {names:?}");
    }
    all
}

/// Reads in pieces of odd sizes, as well as in one, and compares.
fn read_image<S: Source>(
    fs: &Filesystem<S>,
    inode: InodeRef,
    file: &squashfs::File,
    from: u64,
    length: usize,
    sum: &mut Sum,
) {
    let joined = |at: u64, length: usize| -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in fs.read(inode, file, at, length).unwrap() {
            match piece {
                Piece::Block(block, range) => bytes.extend_from_slice(&block.bytes()[range]),
                Piece::Hole(length) => bytes.resize(bytes.len() + length, 0),
            }
        }
        bytes
    };
    let whole = joined(from, length);
    assert_eq!(whole.len(), length);
    let step = 1 + length / 37;
    let mut parts = Vec::new();
    while parts.len() < length {
        parts.extend(joined(from + parts.len() as u64, step.min(length - parts.len())));
    }
    assert!(parts == whole, "{inode:?} from {from}");
    assert!(joined(file.size, 10).is_empty());
    sum.add(&whole);
}

fn of_tree(root: &Path) -> Manifest {
    let mut all = Manifest::new();
    let mut todo = vec![(String::new(), root.to_owned())];
    while let Some((path, at)) = todo.pop() {
        let stat = at.symlink_metadata().unwrap();
        let mut line = format!("{:o} {} {} {}", stat.mode(), stat.uid(), stat.gid(), stat.mtime() as u32);
        let kind = stat.file_type();
        if kind.is_dir() {
            let mut names = 0;
            let mut links = 2;
            for entry in fs::read_dir(&at).unwrap() {
                let entry = entry.unwrap();
                names += 1;
                links += u32::from(entry.file_type().unwrap().is_dir());
                todo.push((format!("{path}/{}", entry.file_name().into_string().unwrap()), entry.path()));
            }
            write!(line, " {names} names, {links} links").unwrap();
        } else if kind.is_file() {
            let file = File::open(&at).unwrap();
            let sum = contents(stat.size(), |from, length, sum| {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, from).unwrap();
                sum.add(&bytes);
            });
            write!(line, " {} bytes {sum:016x}", stat.size()).unwrap();
        } else if kind.is_symlink() {
            write!(line, " -> {}", fs::read_link(&at).unwrap().display()).unwrap();
        } else if kind.is_block_device() || kind.is_char_device() {
            let (major, minor) = (stat.rdev() >> 8 & 0xfff, stat.rdev() & 0xff | stat.rdev() >> 12 & 0xfff00);
            write!(line, " {:#x}", minor & 0xff | major << 8 | (minor & !0xff) << 12).unwrap();
        }
        if !kind.is_dir() && stat.nlink() > 1 {
            write!(line, " {} links", stat.nlink()).unwrap();
        }
        all.insert(if path.is_empty() { "/".into() } else { path }, line);
    }
    all
}

fn same(what: &str, found: &Manifest, expected: &Manifest) {
    let wrong: Vec<_> = expected
        .iter()
        .filter(|(path, line)| found.get(*path) != Some(line))
        .map(|(path, line)| format!("{path}: {line}\n   found {:?}", found.get(path)))
        .chain(
            found.keys().filter(|path| !expected.contains_key(*path)).map(|path| format!("{path}: too much")),
        )
        .take(10)
        .collect();
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

#[test]
fn seeds_are_read_in_every_compression() {
    let expected: Manifest = include_str!("seeds/tree.txt")
        .lines()
        .map(|line| line.split_once(' ').map(|(path, rest)| (path.to_owned(), rest.to_owned())).unwrap())
        .collect();
    for name in ["gzip", "lzma", "lzo", "xz", "lz4", "zstd", "stored", "bcj"] {
        let found = of_image(&open(&seed(&format!("{name}.sqsh"))));
        if std::env::var_os("RT_WRITE_SEEDS").is_some() {
            let text: String = found.iter().map(|(path, line)| format!("{path} {line}\n")).collect();
            fs::write(seed("tree.txt"), text).unwrap();
        }
        same(name, &found, &expected);
    }
}

#[test]
fn a_large_directory_is_found_by_its_index() {
    let fs = open(&seed("many.sqsh"));
    let manifest = of_image(&fs);
    assert_eq!(manifest.len(), 1502);
    assert!(manifest.contains_key("/names/a-rather-long-name-1500"));
}

#[test]
fn attributes_are_read() {
    let manifest = of_image(&open(&seed("xattrs.sqsh")));
    assert!(manifest["/dir/hello"].contains("[user.colour 4 "), "{}", manifest["/dir/hello"]);
    assert!(manifest["/empty"].contains("[user.long 300 "), "{}", manifest["/empty"]);
    assert!(!manifest["/dir/numbers"].contains('['));
}

#[test]
fn a_part_of_a_file_is_an_image() {
    let bytes = fs::read(seed("zstd.sqsh")).unwrap();
    let path = std::env::temp_dir().join(format!("squashfs-part-{}", std::process::id()));
    fs::write(&path, [&[7u8; 4096][..], &bytes, &[9; 100]].concat()).unwrap();
    let part = |size| FilePart::new(File::open(&path).unwrap(), 4096, size);
    let fs = Filesystem::open(part(Some(bytes.len() as u64)).unwrap(), 0).unwrap();
    same("part", &of_image(&fs), &of_image(&open(&seed("zstd.sqsh"))));
    assert!(part(Some(bytes.len() as u64 + 101)).is_err());
    let cut = Filesystem::open(part(Some(200)).unwrap(), 0).map(drop).unwrap_err();
    assert_eq!(cut.kind(), Kind::Damaged);
    assert!(cut.to_string().contains("cut off"), "{cut}");
    fs::remove_file(path).unwrap();
}

#[test]
fn what_is_no_squashfs_is_said_so() {
    let said = |bytes: &[u8]| Filesystem::open(bytes, 0).map(drop).unwrap_err();
    assert_eq!(said(b"").to_string(), "not a squashfs: it has only 0 bytes");
    assert_eq!(said(&[0; 4096]).kind(), Kind::NotSquashfs);
    let mut old = fs::read(seed("gzip.sqsh")).unwrap();
    old[28] = 3;
    let said = said(&old);
    assert_eq!((said.kind(), said.at()), (Kind::Unsupported, 28));
    assert_eq!(said.to_string(), "superblock at byte 0x1c: squashfs 3.0, not 4.0");
}

/// Reads everything of an image that may be anything, up to a bound.
fn devour(bytes: &[u8]) -> usize {
    let Ok(fs) = Filesystem::open(bytes, 0) else { return 0 };
    let mut seen = std::collections::HashSet::new();
    let mut todo = vec![fs.root()];
    while let Some(reference) = todo.pop() {
        if seen.len() > 500 || !seen.insert(reference) {
            continue;
        }
        let Ok(inode) = fs.inode(reference) else { continue };
        let _ = fs.xattrs(&inode);
        match &inode.body {
            Body::Directory(directory) => {
                let _ = fs.find(directory, b"numbers");
                if let Ok(mut entries) = fs.entries(directory, Position::default()) {
                    for _ in 0..500 {
                        let Ok(Some(entry)) = entries.next_entry() else { break };
                        let _ = fs.entries(directory, entry.next).map(|mut rest| rest.next_entry());
                        todo.push(entry.inode);
                    }
                }
                let _ = fs.entries(directory, Position(0x0012_3456)).map(|mut rest| rest.next_entry());
            }
            Body::File(file) => {
                let _ = fs.read(reference, file, 0, 100_000);
                let _ = fs.read(reference, file, file.size.saturating_sub(5), 100);
                let _ = fs.read(reference, file, u64::MAX, 100);
            }
            _ => {}
        }
    }
    seen.len()
}

#[test]
fn damaged_images_are_errors() {
    let mut random = 0x1234_5678_9abc_def0u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    for name in ["stored", "gzip", "lzo", "xz", "lzma", "lz4", "zstd", "bcj", "xattrs"] {
        let good = fs::read(seed(&format!("{name}.sqsh"))).unwrap();
        assert!(devour(&good) > 10, "{name}");
        let rounds = if name == "stored" { 3000 } else { 300 };
        for _ in 0..rounds {
            let mut bad = good.clone();
            for _ in 0..1 + next(4) {
                let at = match next(3) {
                    0 => next(96),
                    // Metadata stands at the end.
                    1 => bad.len() - 1 - next(600.min(bad.len())),
                    _ => next(bad.len()),
                };
                bad[at] = [0, 1, 0x7f, 0x80, 0xff, next(256) as u8][next(6)];
            }
            if next(8) == 0 {
                bad.truncate(next(bad.len()));
            }
            devour(&bad);
        }
    }
}

/// A tree with all that a tree can have.
fn nasty_tree(root: &Path) {
    let dir = |name: &str| {
        let path = root.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    let time = |path: &Path, seconds: &str| run("touch", &["-hd", seconds, path.to_str().unwrap()]);
    fs::write(dir("empty").join("nothing"), "").unwrap();
    // Lengths around the ends of blocks of 4 KiB and 128 KiB.
    let lengths = dir("lengths");
    let mut noise = Vec::new();
    File::open("/dev/urandom").unwrap().take(400_000).read_to_end(&mut noise).unwrap();
    for length in [1, 4095, 4096, 4097, 8192, 131_071, 131_072, 131_073, 300_000] {
        fs::write(lengths.join(format!("noise-{length}")), &noise[..length]).unwrap();
        let text: Vec<u8> = (0..length).map(|n| b"0123456789abcdef\n"[n * n % 17]).collect();
        fs::write(lengths.join(format!("text-{length}")), text).unwrap();
    }
    let holes = dir("holes");
    for (name, size, at) in
        [("small", 1 << 20, 500_000), ("large", 5 << 30, 4_500_000_000), ("last", 300_000, 299_990)]
    {
        let file = File::create(holes.join(name)).unwrap();
        file.set_len(size).unwrap();
        file.write_all_at(b"not a hole", at).unwrap();
    }
    File::create(holes.join("all")).unwrap().set_len(1_000_000).unwrap();
    let links = dir("links");
    fs::write(links.join("0"), "many names").unwrap();
    for n in 1..200 {
        fs::hard_link(links.join("0"), links.join(n.to_string())).unwrap();
    }
    std::os::unix::fs::symlink("x".repeat(4000), links.join("long")).unwrap();
    std::os::unix::fs::symlink("../..", links.join("up")).unwrap();
    let deep = (0..60).fold(dir("deep"), |path, n| path.join(format!("directory-{n}")));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("end"), "found").unwrap();
    let many = dir("many");
    for n in 0..10_000 {
        fs::write(many.join(format!("entry-{n}-of-a-large-directory")), "").unwrap();
    }
    let names = dir("names");
    for name in ["a".repeat(255), "ä".repeat(127), " ".into(), "new\nline".into(), "-".into(), "\u{1}".into()]
    {
        fs::write(names.join(name), "x").unwrap();
    }
    let modes = dir("modes");
    for mode in [0o000, 0o4755, 0o2755, 0o1777, 0o7777, 0o640] {
        let path = modes.join(format!("{mode:o}"));
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    run("mkfifo", &[modes.join("fifo").to_str().unwrap()]);
    std::os::unix::net::UnixListener::bind(modes.join("socket")).unwrap();
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        run("mknod", &[modes.join("null").to_str().unwrap(), "c", "1", "3"]);
        run("mknod", &[modes.join("disk").to_str().unwrap(), "b", "259", "70000"]);
        run("chown", &["-h", "12345:4000000000", modes.join("640").to_str().unwrap()]);
    }
    let times = dir("times");
    for seconds in ["@0", "@1", "@2147483648", "@4294967295"] {
        let path = times.join(seconds);
        fs::write(&path, seconds).unwrap();
        time(&path, seconds);
    }
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn images_are_like_the_tree_they_were_made_of() {
    if Command::new("mksquashfs").arg("-version").output().is_err() {
        eprintln!("SKIP mksquashfs is not installed");
        return;
    }
    let place = std::env::temp_dir().join(format!("squashfs-test-{}", std::process::id()));
    let _ = fs::remove_dir_all(&place);
    let root = place.join("tree");
    fs::create_dir_all(&root).unwrap();
    nasty_tree(&root);
    let expected = of_tree(&root);
    let image = place.join("image.sqsh");
    let forms: [&[&str]; 10] = [
        &["-comp", "gzip"],
        &["-comp", "lzo", "-noD"],
        &["-comp", "lzo", "-b", "4K"],
        &["-comp", "lz4"],
        &["-comp", "lz4", "-Xhc", "-always-use-fragments"],
        &["-comp", "xz", "-b", "1M"],
        &["-comp", "zstd", "-Xcompression-level", "1", "-b", "256K"],
        &["-comp", "zstd", "-noI", "-noD", "-noF", "-no-fragments"],
        &["-comp", "lzma"],
        &["-comp", "gzip", "-no-duplicates", "-no-sparse"],
    ];
    for (n, form) in forms.into_iter().enumerate() {
        let mut arguments =
            vec![root.to_str().unwrap(), image.to_str().unwrap(), "-noappend", "-no-progress", "-quiet"];
        arguments.extend(form);
        // mksquashfs reads the 5 GiB of its hole.
        let without_large = n > 1;
        if without_large {
            arguments.extend(["-e", "holes/large"]);
        }
        run("mksquashfs", &arguments);
        let mut expected = expected.clone();
        if without_large {
            expected.remove("/holes/large");
            let line = expected["/holes"].replace("4 names", "3 names");
            expected.insert("/holes".into(), line);
        }
        same(&format!("{form:?}"), &of_image(&open(&image)), &expected);
    }
    run("chmod", &["-R", "u+rwx", place.to_str().unwrap()]);
    fs::remove_dir_all(place).unwrap();
}
