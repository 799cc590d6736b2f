//! A tree as one layer. Its entries belong to root, but for those with a record of their owner, and a tree always gives the same
//! bytes.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use super::gzip::Gzip;
use super::holes;
use crate::limits::Limits;
use crate::squashfs_target::HOLES_LIMIT;
use oci_content::digest::{Digest, Hasher};
use oci_content::interrupt::Interrupt;
use oci_content::meter::Meter;
use oci_layer::owner;
use oci_layer::tar::{self, EntryKind, Header};
use rt_sys::error::{Context, Result};
use rt_sys::owner::{Device, OWNER_RECORD, OwnerRecord};
use rt_sys::{bail, disk, err, fd, mount};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

const BUFFER: usize = 256 << 10;

/// What overlayfs writes of an entry as attributes, in a user namespace and outside.
const MARKS: [&[u8]; 2] = [b"user.overlay.", b"trusted.overlay."];

/// What a tree is of which a layer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeKind {
    /// A root.
    Root,
    /// The upper layer of an overlay: it has what was changed, and marks of what was removed.
    Upper,
}

/// Which times the entries of a layer get, in seconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Times {
    /// Their own.
    #[default]
    Own,
    /// Their own, but none later than this one.
    NotAfter(i64),
    /// All of them this one.
    All(i64),
}

impl Times {
    /// The time of an entry that was changed at `own`.
    fn of(self, own: i64) -> i64 {
        match self {
            Times::Own => own,
            Times::NotAfter(latest) => own.min(latest),
            Times::All(time) => time,
        }
    }
}

/// A tree of which a layer is written.
#[derive(Debug)]
pub(crate) struct LayerTree {
    /// What it is.
    pub kind: TreeKind,
    /// Which times its entries get.
    pub times: Times,
    /// Where it is.
    pub root: OwnedFd,
}

/// How a layer is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    /// As registries have it.
    Gzip,
    /// Smaller and faster, for readers of the image-spec 1.1.
    Zstd,
    /// As docker's archives have it.
    None,
}

impl Compression {
    /// The media type of a layer.
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Compression::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
            Compression::Zstd => "application/vnd.oci.image.layer.v1.tar+zstd",
            Compression::None => "application/vnd.oci.image.layer.v1.tar",
        }
    }

    /// That of a layer of this media type, the image-spec's or docker's; none for layers that not everybody may distribute.
    pub(crate) fn of_media_type(text: &str) -> Option<Compression> {
        match text {
            "application/vnd.docker.image.rootfs.diff.tar.gzip" => Some(Compression::Gzip),
            "application/vnd.docker.image.rootfs.diff.tar" => Some(Compression::None),
            _ => [Compression::Gzip, Compression::Zstd, Compression::None]
                .into_iter()
                .find(|known| known.media_type() == text),
        }
    }
}

/// A layer that was written.
#[derive(Debug, Clone)]
pub(crate) struct WrittenLayer {
    /// How it is stored.
    pub compression: Compression,
    /// Digest of its bytes.
    pub digest: Digest,
    /// Digest of the tar archive.
    pub diff_id: Digest,
    /// Bytes as it is stored.
    pub size: u64,
    /// Bytes of the tar archive.
    pub plain: u64,
}

impl WrittenLayer {
    /// One that is not compressed.
    pub(crate) fn plain(diff_id: Digest, length: u64) -> WrittenLayer {
        let compression = Compression::None;
        WrittenLayer { compression, digest: diff_id.clone(), diff_id, size: length, plain: length }
    }
}

/// What looks after the writing of a layer.
#[derive(Clone, Copy)]
pub(crate) struct Watch<'a> {
    /// Asked between entries and pieces of files.
    pub interrupt: &'a Interrupt,
    /// Counts the bytes of the tree.
    pub meter: &'a Meter,
}

/// Hashes what passes.
struct Hashing<W> {
    inner: W,
    hasher: Hasher,
    bytes: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn hashing<W: Write>(inner: W) -> Hashing<W> {
    Hashing { inner, hasher: Hasher::sha256(), bytes: 0 }
}

/// The level of zstd, its own default.
const ZSTD_LEVEL: i32 = 3;

/// Writes `tree` through a compressor, which `finish` ends.
fn write_packed<P: Write, W: Write>(
    tree: &LayerTree,
    packer: P,
    finish: impl FnOnce(P) -> io::Result<Hashing<W>>,
    (compression, watch): (Compression, Watch),
) -> Result<WrittenLayer> {
    let doing = || "write the layer";
    let mut out = BufWriter::with_capacity(BUFFER, hashing(packer));
    write_archive(tree, &mut out, watch)?;
    let plain = out.into_inner().map_err(|e| err!("{}: {}", doing(), e.error()))?;
    let mut stored = finish(plain.inner).context(doing)?;
    stored.flush().context(doing)?;
    Ok(WrittenLayer {
        compression,
        digest: stored.hasher.finish(),
        diff_id: plain.hasher.finish(),
        size: stored.bytes,
        plain: plain.bytes,
    })
}

/// Writes `tree` to `file`.
pub(crate) fn write(
    tree: &LayerTree,
    file: &File,
    compression: Compression,
    watch: Watch,
) -> Result<WrittenLayer> {
    let doing = || "write the layer";
    let file = BufWriter::with_capacity(BUFFER, disk::Named(file));
    match compression {
        Compression::Gzip => {
            let gzip = Gzip::new(hashing(file), Limits::of_this_job(None).threads).context(doing)?;
            write_packed(tree, gzip, Gzip::finish, (compression, watch))
        }
        Compression::Zstd => {
            let zstd = zstd::Encoder::new(hashing(file), ZSTD_LEVEL).context(doing)?;
            write_packed(tree, zstd, zstd::Encoder::finish, (compression, watch))
        }
        Compression::None => {
            let mut out = hashing(file);
            write_archive(tree, &mut out, watch)?;
            out.flush().context(doing)?;
            Ok(WrittenLayer::plain(out.hasher.finish(), out.bytes))
        }
    }
}

/// What `tree` is as a tar archive, of which nothing is written.
pub(crate) fn measure(tree: &LayerTree, watch: Watch) -> Result<WrittenLayer> {
    let mut out = BufWriter::with_capacity(BUFFER, hashing(io::sink()));
    write_archive(tree, &mut out, watch)?;
    let out = out.into_inner().map_err(|e| err!("hash the layer: {}", e.error()))?;
    Ok(WrittenLayer::plain(out.hasher.finish(), out.bytes))
}

/// Writes `tree` as a tar archive.
pub(crate) fn write_archive(tree: &LayerTree, out: &mut impl Write, watch: Watch) -> Result<()> {
    read_tree(tree, &mut Archive { out, watch }, watch)?;
    tar::write_end(out).context(|| "write the layer")
}

/// What takes the entries of a tree, in the order in which they are in the archive of it.
pub(crate) trait Sink {
    /// All but a regular file: what there is of it stands in the header.
    fn entry(&mut self, entry: &Header) -> Result<()>;
    /// A regular file that was not there before. `is_plain`: what the header says of it is all that `file` has, but for the record
    /// of its owner.
    fn file(&mut self, entry: Header, file: File, is_plain: bool) -> Result<()>;
    /// Another name of a file that was there before, by the name that the header has as its link.
    fn name(&mut self, entry: Header, file: File) -> Result<()>;
}

/// Gives the entries of a tree to `sink`.
pub(crate) fn read_tree(tree: &LayerTree, sink: &mut impl Sink, watch: Watch) -> Result<()> {
    let root = disk::open_dir_again(tree.root.as_fd())?;
    Entries { sink, watch, kind: tree.kind, times: tree.times, seen: HashMap::new(), holes: 0 }
        .write_tree(root)
}

/// A tar archive of the entries.
struct Archive<'a, W> {
    out: &'a mut W,
    watch: Watch<'a>,
}

impl<W: Write> Sink for Archive<'_, W> {
    fn entry(&mut self, entry: &Header) -> Result<()> {
        tar::write_header(self.out, entry).context(|| "write the archive")
    }

    fn file(&mut self, entry: Header, mut file: File, _: bool) -> Result<()> {
        self.entry(&entry)?;
        for piece in entry.extents() {
            file.seek(SeekFrom::Start(piece.offset)).context(|| "read a sparse file")?;
            copy(&file, piece.length, self.out, self.watch)?;
        }
        tar::pad(self.out, entry.stored()).context(|| "write the archive")
    }

    fn name(&mut self, entry: Header, _: File) -> Result<()> {
        self.entry(&entry)
    }
}

/// A directory, its path, and the names in it that are still to come, the first one last.
struct Level {
    dir: OwnedFd,
    path: Vec<u8>,
    names: Vec<(Vec<u8>, FileType)>,
}

impl Level {
    fn new(dir: OwnedFd, path: Vec<u8>) -> Result<Level> {
        let mut names = disk::entries(dir.as_fd())?;
        names.sort_by(|(a, _), (b, _)| b.cmp(a));
        Ok(Level { dir, path, names })
    }
}

/// An owner and a group.
type Ids = (u64, u64);

/// The entries of a tree that are being read.
struct Entries<'a, S> {
    sink: &'a mut S,
    watch: Watch<'a>,
    kind: TreeKind,
    times: Times,
    /// First names of files with several, and their owners.
    seen: HashMap<(u64, u64), (Vec<u8>, Ids)>,
    /// Bytes of holes.
    holes: u64,
}

impl<S: Sink> Entries<'_, S> {
    /// Reads a tree, the entries of a directory in the order of their names, so that a tree always gives one digest. What
    /// runs in it may change it meanwhile: every name is opened in the directory that was opened before, no link is followed.
    fn write_tree(&mut self, root: OwnedFd) -> Result<()> {
        let mut stack = vec![Level::new(root, Vec::new())?];
        while let Some(level) = stack.last_mut() {
            let Some((name, kind)) = level.names.pop() else {
                stack.pop();
                continue;
            };
            self.watch.interrupt.check()?;
            let path = join(&level.path, &name);
            let shown = || String::from_utf8_lossy(&path).into_owned();
            if let Some(inner) = self.entry(level.dir.as_fd(), (&name, kind), &path).context(shown)? {
                stack.push(Level::new(inner, path)?);
            }
        }
        Ok(())
    }

    /// Reads one entry, as root's where there is no record of its owner: a bundle has only one id, and inside it is root's. A
    /// directory is returned, open.
    fn entry(
        &mut self,
        dir: BorrowedFd,
        (name, kind): (&[u8], FileType),
        path: &[u8],
    ) -> Result<Option<OwnedFd>> {
        if kind == FileType::RegularFile
            && let Some((file, metadata)) = disk::open_entry_if_file(dir, name)
        {
            let entry = self.header(path, &metadata);
            return self.file(name, file, &metadata, entry).map(|()| None);
        }
        let shown = || String::from_utf8_lossy(path).escape_default().to_string();
        let any = match fd::open_entry(dir, name, OFlags::PATH) {
            Ok(any) => File::from(any),
            // In a directory that the image leaves open to everybody. Its server may never answer.
            Err(e @ Errno::XDEV) if mount::is_others_fuse_at(dir, OsStr::from_bytes(name))? => {
                log::warn!("{}: {}, and left out", shown(), fd::unserved_error(e));
                return Ok(None);
            }
            _ => disk::open_any(dir, name)?,
        };
        let metadata = disk::metadata(&any)?;
        let kind = metadata.file_type();
        let mut entry = self.header(path, &metadata);
        if (kind.is_symlink() || kind.is_fifo())
            && let Some(owner) = owner::recorded_bare(any.as_fd()).context(shown)?
        {
            (entry.uid, entry.gid) = (owner.uid.into(), owner.gid.into());
        }
        if kind.is_symlink() {
            entry.kind = EntryKind::Symlink;
            entry.mode = 0o777;
            entry.link = disk::read_link(any.as_fd())?;
        } else if kind.is_dir() {
            let open = disk::reopen_dir(dir, name)?;
            entry.kind = EntryKind::Directory;
            entry.xattrs = disk::xattrs(open.as_fd()).context(shown)?;
            let marks = self.take_marks(&mut entry)?;
            take_record(&mut entry);
            entry.path.push(b'/');
            self.sink.entry(&entry)?;
            if marks.opaque {
                self.sink.entry(&whiteout(path, b".wh..opq"))?;
            }
            return Ok(Some(open.into()));
        } else if kind.is_fifo() {
            entry.kind = EntryKind::Fifo;
        } else if kind.is_file() {
            let file = disk::open_file(dir, name)?;
            let metadata = disk::metadata(&file)?;
            return self.file(name, file, &metadata, entry).map(|()| None);
        } else if self.kind == TreeKind::Upper && kind.is_char_device() && metadata.rdev() == 0 {
            entry = whiteout_of(path, name);
        } else {
            // A socket lives only as long as its program, and devices are left out of images at a pull as well.
            return Ok(None);
        }
        self.sink.entry(&entry)?;
        Ok(None)
    }

    /// The header of what `metadata` describes, as far as it is known for each kind.
    fn header(&self, path: &[u8], metadata: &Metadata) -> Header {
        Header {
            mtime: (self.times.of(metadata.mtime()), 0),
            ..Header::new(path.to_vec(), EntryKind::File, metadata.permissions().mode() & 0o7777)
        }
    }

    fn file(&mut self, name: &[u8], file: File, metadata: &Metadata, mut entry: Header) -> Result<()> {
        let inode = (metadata.dev(), metadata.ino());
        if metadata.nlink() > 1
            && let Some((first, owner)) = self.seen.get(&inode)
        {
            entry.kind = EntryKind::Hardlink;
            entry.link = first.clone();
            (entry.uid, entry.gid) = *owner;
            return self.sink.name(entry, file);
        }
        entry.xattrs = disk::xattrs(file.as_fd())
            .context(|| String::from_utf8_lossy(&entry.path).escape_default().to_string())?;
        let attributes = entry.xattrs.len();
        let marks = self.take_marks(&mut entry)?;
        let is_plain = entry.xattrs.len() == attributes;
        if marks.whiteout && metadata.len() == 0 {
            return self.sink.entry(&whiteout_of(&entry.path, name));
        }
        let device = take_record(&mut entry);
        let owner = (entry.uid, entry.gid);
        if metadata.nlink() > 1 {
            self.seen.insert(inode, (entry.path.clone(), owner));
        }
        if let Some(device) = device {
            entry.kind = if device.block { EntryKind::Block } else { EntryKind::Character };
            entry.device = (device.major, device.minor);
            return self.sink.entry(&entry);
        }
        unbind_capability(&mut entry.xattrs);
        entry.size = metadata.len();
        entry.sparse = holes::sparse_map(&file, metadata)?;
        self.holes = self.holes.saturating_add(entry.size - entry.stored());
        if self.holes > HOLES_LIMIT {
            bail!("with it, the holes of all files are more than {} TiB", HOLES_LIMIT >> 40);
        }
        self.sink.file(entry, file, is_plain)
    }

    /// Takes overlayfs' marks from the attributes of an entry.
    ///
    /// # Errors
    /// The entry is in the image, elsewhere than at its path, as the kernel's options redirect_dir and metacopy have it.
    fn take_marks(&self, entry: &mut Header) -> Result<Marks> {
        let mut marks = Marks::default();
        if self.kind == TreeKind::Root {
            return Ok(marks);
        }
        let (overlays, others) =
            std::mem::take(&mut entry.xattrs).into_iter().partition(|(name, _)| mark(name).is_some());
        entry.xattrs = others;
        for (name, value) in &overlays {
            match (mark(name).unwrap_or_default(), &value[..]) {
                (b"opaque", b"y") => marks.opaque = true,
                (b"whiteout", _) => marks.whiteout = true,
                (b"redirect" | b"metacopy", _) => {
                    let name = String::from_utf8_lossy(name);
                    bail!(
                        "its attribute {name} has overlayfs look for it in the image, which a layer cannot say"
                    );
                }
                _ => {}
            }
        }
        Ok(marks)
    }
}

/// Takes the record of an entry's owner from its attributes. Returns the device that it stands for.
fn take_record(entry: &mut Header) -> Option<Device> {
    let at = entry.xattrs.iter().position(|(name, _)| name == OWNER_RECORD.as_bytes())?;
    let (_, value) = entry.xattrs.remove(at);
    let record = OwnerRecord::parse(&value)?;
    (entry.uid, entry.gid) = (record.uid.into(), record.gid.into());
    record.device
}

/// Gives capabilities that count in one user namespace alone (version 3 of the attribute, with that namespace's root) the form of
/// those that count for whoever unpacks the layer (version 2; linux/capability.h).
fn unbind_capability(xattrs: &mut [(Vec<u8>, Vec<u8>)]) {
    const LENGTH: [usize; 2] = [20, 24];
    const REVISIONS: [u32; 2] = [0x0200_0000, 0x0300_0000];
    const REVISION_MASK: u32 = 0xff00_0000;
    for (_, value) in xattrs.iter_mut().filter(|(name, _)| name == b"security.capability") {
        let Some(head) = value.first_chunk().map(|head| u32::from_le_bytes(*head)) else { continue };
        if head & REVISION_MASK == REVISIONS[1] && value.len() == LENGTH[1] {
            value.truncate(LENGTH[0]);
            value[..4].copy_from_slice(&(head & !REVISION_MASK | REVISIONS[0]).to_le_bytes());
        }
    }
}

/// What overlayfs says of an entry.
#[derive(Debug, Default, Clone, Copy)]
struct Marks {
    /// It hides what layers below have of its name.
    whiteout: bool,
    /// It hides what directories of its name have in layers below.
    opaque: bool,
}

/// What an attribute of overlayfs says; none for other attributes.
fn mark(name: &[u8]) -> Option<&[u8]> {
    MARKS.iter().find_map(|prefix| name.strip_prefix(*prefix))
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.is_empty() { b"" } else { b"/" };
    [dir, slash, name].concat()
}

/// The entry that hides what layers below have at `path`, whose last part is `name` (image-spec, layer.md, Whiteouts).
fn whiteout_of(path: &[u8], name: &[u8]) -> Header {
    let dir = path.strip_suffix(name).unwrap_or_default();
    whiteout(dir.strip_suffix(b"/").unwrap_or(dir), name)
}

fn whiteout(dir: &[u8], what: &[u8]) -> Header {
    Header::new(join(dir, &[b".wh.", what].concat()), EntryKind::File, 0o600)
}

/// Copies a file's first `length` bytes, and can be interrupted meanwhile. However little a read gives, the pieces are of the
/// same length each time: what deflate makes of them, hence the digest, depends on it.
pub(super) fn copy(mut file: &File, length: u64, out: &mut impl Write, watch: Watch) -> Result<()> {
    let mut left = length;
    let mut buffer = vec![0; BUFFER.min(usize::try_from(length).unwrap_or(BUFFER))];
    while left > 0 {
        watch.interrupt.check()?;
        let most = buffer.len().min(usize::try_from(left).unwrap_or(BUFFER));
        match file.read_exact(&mut buffer[..most]) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                bail!("{}: became shorter while it was read", fd::shown(file))
            }
            read => read.context(|| format!("read {}", fd::shown(file)))?,
        }
        out.write_all(&buffer[..most]).context(|| "write the archive")?;
        watch.meter.add(most as u64);
        left -= most as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Remembers the lengths of what is written to it.
    struct Lengths(Vec<usize>);

    impl Write for Lengths {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn records_become_owners() {
        let entry = |value: &str| {
            let mut entry = Header::new(b"x".to_vec(), EntryKind::File, 0o644);
            entry.xattrs = vec![
                (b"user.a".to_vec(), b"b".to_vec()),
                (OWNER_RECORD.as_bytes().to_vec(), value.as_bytes().to_vec()),
            ];
            let device = take_record(&mut entry);
            (entry.uid, entry.gid, device.is_some(), entry.xattrs.len())
        };
        assert_eq!(entry("33:42:644"), (33, 42, false, 1));
        assert_eq!(entry("0:6:660:block-8-0"), (0, 6, true, 1));
        assert_eq!(entry("what"), (0, 0, false, 1));
    }

    #[test]
    fn capabilities_of_one_namespace_become_those_of_all() {
        let attribute = |head: u32, length: usize| {
            let value = [&head.to_le_bytes()[..], &vec![7; length - 4]].concat();
            let mut xattrs = vec![(b"security.capability".to_vec(), value)];
            unbind_capability(&mut xattrs);
            (xattrs[0].1[3], xattrs[0].1[0], xattrs[0].1.len())
        };
        assert_eq!(attribute(0x0300_0001, 24), (2, 1, 20));
        assert_eq!(attribute(0x0200_0001, 20), (2, 1, 20));
        assert_eq!(attribute(0x0300_0001, 20), (3, 1, 20), "not of the kernel's making");
    }

    #[test]
    fn what_a_read_gives_changes_no_piece() {
        let (reader, mut writer) = io::pipe().unwrap();
        let length = BUFFER + BUFFER / 2;
        let write = std::thread::spawn(move || {
            vec![0; length].chunks(4999).for_each(|piece| writer.write_all(piece).unwrap());
        });
        let (interrupt, meter, mut out) = (Interrupt::default(), Meter::default(), Lengths(Vec::new()));
        let watch = Watch { interrupt: &interrupt, meter: &meter };
        copy(&File::from(OwnedFd::from(reader)), length as u64, &mut out, watch).unwrap();
        write.join().unwrap();
        assert_eq!((out.0, meter.have()), (vec![BUFFER, BUFFER / 2], length as u64));
    }
}
