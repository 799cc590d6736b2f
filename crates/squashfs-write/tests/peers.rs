//! What unsquashfs and the kernel's format make of our images. Without squashfs-tools the comparison is skipped, and says so.

use squashfs_write::{Compression, ImageWriter, Kind, Metadata, NodeId, Options, Tree};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

type TestResult = Result<(), Box<dyn std::error::Error>>;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("squashfs-write-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a directory for the test");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn metadata(mode: u16) -> Metadata {
    Metadata { mode, uid: 1000, gid: 100, mtime: 1_700_000_000, xattrs: BTreeMap::new() }
}

/// Bytes that do not compress, the same ones each time.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(length)
    .collect()
}

/// Files of every size that matters to the format, links, a large directory, a deep one.
fn nasty_files() -> Vec<(String, Vec<u8>)> {
    let mut files = vec![
        ("empty".to_owned(), Vec::new()),
        ("one".to_owned(), b"1".to_vec()),
        ("block".to_owned(), vec![b'b'; 128 << 10]),
        ("block-and-one".to_owned(), vec![b'c'; (128 << 10) + 1]),
        ("noise".to_owned(), noise(1 << 20, 7)),
        ("again".to_owned(), noise(1 << 20, 7)),
        ("zeros".to_owned(), vec![0; 3 << 20]),
        ("same-1".to_owned(), b"the same text".to_vec()),
        ("same-2".to_owned(), b"the same text".to_vec()),
        ("n".repeat(255), b"long name".to_vec()),
    ];
    let mut holes = vec![0; 1 << 20];
    holes[300_000..400_000].fill(b'x');
    files.push(("holes".to_owned(), holes));
    files.extend(
        (0..3000).map(|i| (format!("large/entry-{i:05}-with-a-long-name"), format!("{i}\n").into_bytes())),
    );
    let deep: String = (0..60).map(|i| format!("d{i}/")).collect();
    files.push((format!("{deep}bottom"), b"deep".to_vec()));
    files
}

fn directory(tree: &mut Tree, path: &str) -> Result<NodeId, std::io::Error> {
    let mut at = Tree::ROOT;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        at = match tree.get(at, part.as_bytes()) {
            Some(next) => next,
            None => {
                let next = tree.add(metadata(0o755), Kind::Directory(BTreeMap::new()));
                tree.insert(at, part.as_bytes(), next)?;
                next
            }
        };
    }
    Ok(at)
}

fn write(path: &Path, options: Options) -> Result<squashfs_write::Written, Box<dyn std::error::Error>> {
    let mut image = ImageWriter::new(File::create_new(path)?, options)?;
    let mut tree = Tree::new(metadata(0o755));
    for (name, content) in nasty_files() {
        let file = image.add_file(&mut &content[..], content.len() as u64)?;
        let (dir, last) = name.rsplit_once('/').unwrap_or(("", &name));
        let dir = directory(&mut tree, dir)?;
        let node = tree.add(metadata(0o644), Kind::File(file));
        tree.insert(dir, last.as_bytes(), node)?;
    }
    let one = tree.get(Tree::ROOT, b"one").ok_or("no file")?;
    tree.insert(Tree::ROOT, b"hard", one)?;
    let root = Metadata { uid: 0, gid: 0, ..metadata(0o4755) };
    let device = Metadata { uid: 0, gid: 0, ..metadata(0o600) };
    let mut labelled = metadata(0o640);
    labelled.xattrs.insert(b"user.colour".to_vec(), b"green".to_vec());
    labelled.xattrs.insert(b"system.posix_acl_access".to_vec(), b"left out".to_vec());
    // Links have no attributes of users.
    let mut trusted = metadata(0o777);
    trusted.xattrs.insert(b"trusted.colour".to_vec(), b"red".to_vec());
    let text = image.add_file(&mut &b"text"[..], 4)?;
    for (name, metadata, kind) in [
        ("link", metadata(0o777), Kind::Symlink(b"../some/where".to_vec())),
        ("fifo", metadata(0o600), Kind::Fifo),
        ("socket", metadata(0o600), Kind::Socket),
        ("null", device.clone(), Kind::CharDevice(1, 3)),
        ("disk", device, Kind::BlockDevice(8, 1)),
        ("setuid", root, Kind::File(text)),
        ("labelled", labelled.clone(), Kind::File(text)),
        ("labelled-dir", Metadata { mode: 0o755, ..labelled }, Kind::Directory(BTreeMap::new())),
        ("labelled-link", trusted, Kind::Symlink(b"x".to_vec())),
    ] {
        let node = tree.add(metadata, kind);
        tree.insert(Tree::ROOT, name.as_bytes(), node)?;
    }
    Ok(image.finish(&tree)?)
}

fn all_compressions() -> [Compression; 5] {
    [Compression::None, Compression::Gzip(9), Compression::Gzip(6), Compression::Lz4, Compression::Zstd(3)]
}

#[test]
fn unsquashfs_reads_what_was_written() -> TestResult {
    if Command::new("unsquashfs").arg("-version").output().is_err() {
        eprintln!("skipped: squashfs-tools is not installed");
        return Ok(());
    }
    for compression in all_compressions() {
        let scratch = Scratch::new("peers");
        let image = scratch.0.join("x.sqsh");
        let written = write(&image, Options { compression, threads: 2, ..Options::default() })?;
        // "again" and one of the two small texts.
        assert_eq!((written.duplicates, written.xattrs_left_out), (2, 2), "{compression:?}");
        let out = scratch.0.join("out");
        let ran = Command::new("unsquashfs")
            .args(["-n", "-q", "-user-xattrs", "-d"])
            .arg(&out)
            .arg(&image)
            .output()?;
        let said = String::from_utf8_lossy(&ran.stderr);
        // A plain user cannot make the devices.
        assert!(out.join("large").is_dir(), "{compression:?}: {said}");
        for (name, content) in nasty_files() {
            assert!(std::fs::read(out.join(&name))? == content, "{compression:?}: {name}: {said}");
        }
        let one = out.join("one").metadata()?;
        assert_eq!((one.nlink(), one.mtime()), (2, 1_700_000_000));
        assert_eq!(std::fs::read_link(out.join("link"))?, Path::new("../some/where"));
        let listed = Command::new("unsquashfs").args(["-n", "-lln"]).arg(&image).output()?;
        let listed: Vec<_> = std::str::from_utf8(&listed.stdout)?.split_whitespace().collect();
        let listed = listed.join(" ");
        for line in ["crw------- 0/0 1, 3", "brw------- 0/0 8, 1", "-rwsr-xr-x 0/0"] {
            assert!(listed.contains(line), "{compression:?}: {line}: {listed:.2000}");
        }
    }
    Ok(())
}

#[test]
fn the_same_input_gives_the_same_bytes() -> TestResult {
    let scratch = Scratch::new("same");
    let mut first = None;
    for (at, threads) in [1, 2, 7, 1].into_iter().enumerate() {
        let path = scratch.0.join(format!("{at}.sqsh"));
        write(&path, Options { threads, ..Options::default() })?;
        let bytes = std::fs::read(path)?;
        assert!(*first.get_or_insert_with(|| bytes.clone()) == bytes, "with {threads} threads");
    }
    Ok(())
}

#[test]
fn what_the_format_cannot_say_is_refused() -> TestResult {
    let scratch = Scratch::new("refused");
    let new = |name: &str, options| ImageWriter::new(File::create_new(scratch.0.join(name))?, options);
    assert!(new("size", Options { block_size: 100_000, ..Options::default() }).is_err());
    let mut image = new("short", Options::default())?;
    let short = image.add_file(&mut &b"abc"[..], 4).map(drop).expect_err("the content is too short");
    assert_eq!(short.kind(), std::io::ErrorKind::UnexpectedEof);

    let mut tree = Tree::new(metadata(0o755));
    let dir = tree.add(metadata(0o755), Kind::Directory(BTreeMap::new()));
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
        assert!(tree.insert(Tree::ROOT, name, dir).is_err());
    }
    tree.insert(Tree::ROOT, b"a", dir)?;
    tree.insert(dir, b"loop", dir)?;
    assert!(new("loop", Options::default())?.finish(&tree).is_err());
    Ok(())
}

/// What is written of ranges reads as the whole content does.
#[test]
fn sparse_files_are_as_their_bytes() -> TestResult {
    if Command::new("unsquashfs").arg("-version").output().is_err() {
        eprintln!("skipped: squashfs-tools is not installed");
        return Ok(());
    }
    const BLOCK: u64 = 128 << 10;
    let end = 5 * BLOCK + 1000;
    let cases: [(u64, Vec<std::ops::Range<u64>>); 8] = [
        (end, vec![]),
        (end, vec![0..1, 1..end]),
        (end, vec![10..20, 30..BLOCK + 1, 3 * BLOCK - 1..3 * BLOCK + 1]),
        (end, vec![0..BLOCK, end - 1..end, end..end]),
        (end, vec![2 * BLOCK..3 * BLOCK, end..end]),
        (4 * BLOCK, vec![BLOCK - 1..BLOCK, 4 * BLOCK..4 * BLOCK]),
        (1000, vec![1..2, 500..600]),
        (1000, vec![]),
    ];
    let scratch = Scratch::new("sparse");
    let image = scratch.0.join("x.sqsh");
    let mut tree = Tree::new(metadata(0o755));
    let mut writer = ImageWriter::new(File::create_new(&image)?, Options::default())?;
    let mut contents = Vec::new();
    for (n, (size, data)) in cases.iter().enumerate() {
        let bytes = noise(*size as usize, n as u64 + 1);
        let mut whole = vec![0; *size as usize];
        let mut pieces = Vec::new();
        for range in data {
            let range = range.start as usize..range.end as usize;
            whole[range.clone()].copy_from_slice(&bytes[range.clone()]);
            pieces.extend_from_slice(&bytes[range]);
        }
        let file = writer.add_sparse_file(&mut &pieces[..], *size, data)?;
        let node = tree.add(metadata(0o644), Kind::File(file));
        tree.insert(Tree::ROOT, format!("{n}").as_bytes(), node)?;
        contents.push(whole);
    }
    let short = writer.add_sparse_file(&mut &b"abc"[..], 9, std::slice::from_ref(&(0..4)));
    assert_eq!(short.map(drop).expect_err("too short").kind(), std::io::ErrorKind::UnexpectedEof);
    writer.finish(&tree)?;
    let out = scratch.0.join("out");
    let ran = Command::new("unsquashfs").args(["-n", "-q", "-d"]).arg(&out).arg(&image).output()?;
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    for (n, content) in contents.iter().enumerate() {
        assert!(std::fs::read(out.join(n.to_string()))? == *content, "{n}");
    }
    Ok(())
}
