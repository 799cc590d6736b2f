//! The files of an image, in a directory or in a tar archive that is read where it lies, without unpacking it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use oci_layer::decode::{self, Compression};
use oci_layer::tar::{EntryKind, Reader};
use rt_sys::error::{Context, Result};
use rt_sys::rootfs::open_in;
use rt_sys::{bail, disk, err, fd};
use rustix::fs::OFlags;

/// Symbolic links in archives of `docker save` point from layer to layer.
const LINKS: usize = 8;
/// Files of one archive at most.
const MAX_MEMBERS: usize = 100_000;

/// Where files of an image are looked up by name.
pub(crate) enum Store {
    /// A directory. Links are followed wherever they lead: what is read has a digest with which it is compared.
    Directory(PathBuf),
    /// A directory in which links lead nowhere else: what is read of it is sent to others as it is.
    Enclosed(OwnedFd),
    /// A tar archive, by the places of its members.
    Tar {
        /// The archive, not compressed.
        file: Arc<File>,
        /// Names, and what is there.
        members: HashMap<String, Member>,
    },
}

/// A file of an image, where it can be read.
pub(crate) struct StoredFile {
    /// The file itself, or the archive that it is in.
    pub file: Arc<File>,
    /// Where it starts there.
    pub offset: u64,
    /// Its length.
    pub length: u64,
}

/// A member of an archive.
pub(crate) enum Member {
    /// A file.
    File {
        /// Where its data start in the archive.
        offset: u64,
        /// Its length.
        length: u64,
    },
    /// Another name.
    Link(String),
}

impl Store {
    /// Opens a directory whose links lead nowhere else.
    pub(crate) fn enclosed(path: &Path) -> Result<Store> {
        disk::open_root(path).map(Store::Enclosed)
    }

    /// Opens an archive; a compressed one is unpacked into a file of `scratch`.
    pub(crate) fn open_tar(path: &Path, scratch: impl Fn() -> Result<File>) -> Result<Store> {
        let doing = || format!("read {}", path.display());
        let mut file = disk::open_named(path)?;
        let mut head = [0; 6];
        let n = file.read_at(&mut head, 0).context(doing)?;
        if decode::sniff(&head[..n]).context(doing)? != Compression::None {
            let mut plain = scratch()?;
            let limit = decode::bomb_limit(file.metadata().context(doing)?.len());
            let source = decode::plain(io::BufReader::new(file)).context(doing)?;
            if io::copy(&mut source.take(limit + 1), &mut plain).context(doing)? > limit {
                return Err(decode::bomb()).context(doing);
            }
            file = plain;
        }
        Store::scan(file).map_err(|e| e.context(doing()))
    }

    /// What `program save` writes for an image, as an archive in `file`.
    pub(crate) fn save_from_engine(program: &str, image: &str, file: File) -> Result<Store> {
        let doing = || format!("run {program} save {image}");
        let mut command = Command::new(program);
        command.arg("save");
        if program == "podman" {
            command.args(["--format", "docker-archive"]);
        }
        let status = command
            .args(["--", image])
            .stdin(Stdio::null())
            .stdout(file.try_clone().context(doing)?)
            .status()
            .context(doing)?;
        if !status.success() {
            bail!("{}: {status}", doing());
        }
        Store::scan(file)
    }

    fn scan(file: File) -> Result<Store> {
        let length = disk::length(&file)?;
        let mut members = HashMap::new();
        let mut at = 0;
        while at < length {
            // Only headers are read: the next one is where the data end.
            let mut reader =
                Reader::new(Positioned { file: &file, at, buffer: [0; 4096], filled: 0, used: 0 });
            let Some(entry) = reader.next().context(|| format!("at byte {at}"))? else { break };
            let data = reader.get_ref().position();
            let name = oci_layer::merge::clean(&entry.path)?;
            let name = String::from_utf8_lossy(&name).into_owned();
            let stored = if entry.kind == EntryKind::File { entry.size } else { 0 };
            let end = data.checked_add(stored).filter(|end| *end <= length);
            let end = end.ok_or_else(|| err!("{name}: the archive ends in the middle of it"))?;
            match entry.kind {
                EntryKind::File if entry.sparse.is_none() => {
                    members.insert(name, Member::File { offset: data, length: entry.size });
                }
                EntryKind::Symlink | EntryKind::Hardlink => {
                    let target = String::from_utf8_lossy(&entry.link).into_owned();
                    let dir = name.rsplit_once('/').map_or("", |(dir, _)| dir);
                    let target =
                        if entry.kind == EntryKind::Symlink { format!("{dir}/{target}") } else { target };
                    // A link that leads out of the archive is left out, so its name is not found.
                    if let Ok(clean) = oci_layer::merge::clean(target.as_bytes()) {
                        let target = String::from_utf8_lossy(&clean).into_owned();
                        members.insert(name, Member::Link(target));
                    }
                }
                _ => {}
            }
            if members.len() > MAX_MEMBERS {
                bail!("the archive has more than {MAX_MEMBERS} files");
            }
            at = end.next_multiple_of(512);
        }
        Ok(Store::Tar { file: Arc::new(file), members })
    }

    /// The file `name`.
    pub(crate) fn find(&self, name: &str) -> Result<StoredFile> {
        match self {
            Store::Directory(dir) => {
                let file = disk::open_named(&dir.join(name))?;
                let length = disk::length(&file)?;
                Ok(StoredFile { file: Arc::new(file), offset: 0, length })
            }
            Store::Enclosed(dir) => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
                let context = || format!("open {name} in {}", fd::shown(dir));
                let file = File::from(open_in(dir.as_fd(), Path::new(name), flags).context(context)?);
                if !disk::metadata(&file)?.is_file() {
                    bail!("{}: not a regular file", context());
                }
                let length = disk::length(&file)?;
                Ok(StoredFile { file: Arc::new(file), offset: 0, length })
            }
            Store::Tar { file, members } => {
                let mut name = name.to_owned();
                for _ in 0..LINKS {
                    match members.get(&name) {
                        Some(Member::File { offset, length }) => {
                            let file = file.clone();
                            return Ok(StoredFile { file, offset: *offset, length: *length });
                        }
                        Some(Member::Link(target)) => name = target.clone(),
                        None => break,
                    }
                }
                bail!("the archive has no {name}")
            }
        }
    }

    /// A small file.
    pub(crate) fn read(&self, name: &str, limit: u64) -> Result<Vec<u8>> {
        let StoredFile { file, offset, length } = self.find(name)?;
        if length > limit {
            bail!("{name}: longer than {limit} bytes");
        }
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, offset).context(|| format!("read {name}"))?;
        Ok(bytes)
    }
}

/// Reads a file from a place on, in small pieces, and knows where it is.
struct Positioned<'a> {
    file: &'a File,
    at: u64,
    buffer: [u8; 4096],
    filled: usize,
    used: usize,
}

impl Positioned<'_> {
    fn position(&self) -> u64 {
        self.at - (self.filled - self.used) as u64
    }
}

impl BufRead for Positioned<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.filled {
            self.filled = self.file.read_at(&mut self.buffer, self.at)?;
            self.used = 0;
            self.at += self.filled as u64;
        }
        Ok(&self.buffer[self.used..self.filled])
    }

    fn consume(&mut self, amount: usize) {
        self.used += amount;
    }
}

impl Read for Positioned<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(buffer)?;
        self.consume(n);
        Ok(n)
    }
}
