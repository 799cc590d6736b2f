//! Mounts images in namespaces that this process makes and enters, each served by a process of `rt-image`.
//!
//! /dev/fuse has to be opened in the user namespace in which it is mounted. The server must not be in the mount namespace:
//! it would keep that, and the mount, in existence, and wait for ever for the unmount at which it ends. So the order is:
//! the user namespace, the servers, the mount namespace, the mounts.

use rt_sys::caller::Caller;
use rt_sys::error::{Context, Error, Result};
use rt_sys::mount::{self, Attr, Param, Recursive};
use rt_sys::ns::{self, IdMap, IdMaps, Namespace, Namespaces, Setgroups};
use rt_sys::process::{self, ExecArgs, Memory};
use rt_sys::{bail, caps, err, fd, look, start};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags, Stat};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The device of FUSE.
const DEVICE: &str = "/dev/fuse";
/// The most that a server says: the config of an image.
const LONGEST_ANSWER: usize = 4 << 20;

/// How an image becomes a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// By FUSE.
    Mount,
    /// Unpacked into a tmpfs.
    Extract,
}

/// A file that holds an image.
#[derive(Debug)]
pub(super) struct Image {
    path: PathBuf,
    file: OwnedFd,
    key: String,
}

impl Image {
    /// Opens the file at `path`, which is absolute. What is in it is for `rt-image` to see.
    pub(super) fn open(path: &Path) -> Result<Image> {
        let context = || format!("image {}", path.display());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = fs::open(path, flags, Mode::empty()).context(context)?;
        let found = fs::fstat(&file).context(context)?;
        if fs::FileType::from_raw_mode(found.st_mode) != fs::FileType::RegularFile {
            bail!("image {}: not a regular file", path.display());
        }
        Ok(Image { path: path.to_owned(), key: key(&found), file })
    }

    /// The name of its directory.
    pub(super) fn key(&self) -> String {
        self.key.clone()
    }
}

/// What tells a file from all others: device and inode.
pub(super) fn key(found: &Stat) -> String {
    format!("{:x}-{:x}", found.st_dev, found.st_ino)
}

/// Images whose servers wait for their mounts.
#[derive(Debug)]
pub(super) struct Session {
    way: Way,
    /// To whom files belong, where namespaces of this process's own have been entered.
    owner: Option<String>,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    image: Image,
    /// None where the image is to be unpacked.
    server: Option<Server>,
}

/// A server that waits for its mount.
#[derive(Debug)]
struct Server {
    device: OwnedFd,
    link: File,
    /// The server has said that the image is sound.
    sound: bool,
}

impl Session {
    pub(super) fn new(way: Way) -> Session {
        Session { way, owner: None, waiting: Vec::new() }
    }

    /// Adds an image, once.
    pub(super) fn add(&mut self, image: Image) -> Result<()> {
        if self.waiting.iter().any(|other| other.image.key == image.key) {
            return Ok(());
        }
        let server = match self.way {
            Way::Mount => Some(self.start(&image, "-")?),
            Way::Extract => None,
        };
        self.waiting.push(Waiting { image, server });
        Ok(())
    }

    /// Adds an image, and asks for its config.
    pub(super) fn add_with_config(&mut self, image: Image) -> Result<Vec<u8>> {
        let shown = image.path.display().to_string();
        let context = || format!("image {shown}");
        let (server, config) = match self.way {
            Way::Mount => {
                let mut server = self.start(&image, "config")?;
                let config = answer(&mut server.link).context(context)?;
                (Some(Server { sound: true, ..server }), config)
            }
            Way::Extract => {
                let mut link = helper("config", &image, &[], &["-".into(), "config".into()])?;
                (None, answer(&mut link).context(context)?)
            }
        };
        self.waiting.push(Waiting { image, server });
        Ok(config)
    }

    /// Starts a server. `say` is what it is to say of the image first.
    fn start(&mut self, image: &Image, say: &str) -> Result<Server> {
        let owner = self.owner()?.to_owned();
        let device = open_device()?;
        let link = helper("serve", image, &[device.as_fd()], &[owner.into(), say.into()])?;
        Ok(Server { device, link, sound: false })
    }

    /// Enters a user namespace that maps the caller to itself, once. A caller who may mount needs none.
    fn owner(&mut self) -> Result<&str> {
        let owner = match self.owner.take() {
            Some(owner) => owner,
            None => {
                let Caller { uid, gid, .. } = enter_user_namespace()?;
                // Where one id exists, all files belong to the caller, as those of an unpacked image do.
                let maps = ns::own_maps()?;
                let several = maps.uid.iter().map(|map| u64::from(map.size)).sum::<u64>() > 1;
                if several { "-".to_owned() } else { format!("{uid}:{gid}") }
            }
        };
        Ok(self.owner.insert(owner))
    }

    /// Enters the mount namespace. Images that are added later would be served from within it.
    pub(super) fn enter(mut self) -> Result<Entered> {
        let caller = Caller::current()?;
        self.owner()?;
        ns::unshare(Namespace::Mount).context(|| "make a mount namespace")?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open("/", flags, Mode::empty()).context(|| "open the host's root directory")?;
        mount::set_attr(&root, Recursive::Yes, Attr::SLAVE).context(|| "change the propagation of /")?;
        Ok(Entered { waiting: self.waiting, uid: caller.uid, gid: caller.gid })
    }
}

fn enter_user_namespace() -> Result<Caller> {
    let caller = Caller::current()?;
    if caller.is_unprivileged() {
        let proc = fd::open_proc()?;
        ns::unshare(Namespace::User).context(|| "make a user namespace")?;
        let one = |id| vec![IdMap { container: id, host: id, size: 1 }];
        let maps = IdMaps { uid: one(caller.uid), gid: one(caller.gid) };
        maps.write(&proc, "self", Setgroups::Deny)?;
    }
    Ok(caller)
}

/// Namespaces of this process's own, in which the images can be mounted.
#[derive(Debug)]
pub(super) struct Entered {
    waiting: Vec<Waiting>,
    uid: u32,
    gid: u32,
}

impl Entered {
    /// Mounts the images in turn where `place` says, and returns what else it says.
    pub(super) fn mount<T>(self, mut place: impl FnMut(&Image) -> Result<(OwnedFd, T)>) -> Result<Vec<T>> {
        let mut said = Vec::new();
        let mut servers = Vec::new();
        for Waiting { image, server } in self.waiting {
            let (at, about) = place(&image)?;
            said.push(about);
            let context = || format!("image {}", image.path.display());
            match server {
                Some(server) => {
                    server.mount(&image, &at, self.uid, self.gid).context(context)?;
                    servers.push((image, server));
                }
                None => unpack(&image, &at).context(context)?,
            }
        }
        for (image, mut server) in servers.into_iter().filter(|(_, server)| !server.sound) {
            answer(&mut server.link).context(|| format!("image {}", image.path.display()))?;
        }
        Ok(said)
    }
}

/// Gives up what this process may do in its new user namespace, as a user does who executes a program.
pub(super) fn give_up() -> Result<()> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => caps::give_up(),
    }
}

impl Server {
    fn mount(&self, image: &Image, at: &OwnedFd, uid: u32, gid: u32) -> Result<()> {
        let params = [
            ("fd", self.device.as_raw_fd().to_string()),
            ("rootmode", "40000".to_owned()),
            ("user_id", uid.to_string()),
            ("group_id", gid.to_string()),
            ("subtype", "squashfs".to_owned()),
        ];
        let mut params: Vec<Param> =
            params.into_iter().map(|(key, value)| Param::Value(key.to_owned(), value)).collect();
        // The kernel checks modes itself, and lets every id of the container in. Where the file system itself is read-only, and
        // not only this mount of it, the kernel keeps no time of access: else it asks again for the attributes of whatever
        // was read.
        params.extend(["ro", "default_permissions", "allow_other"].map(|key| Param::Flag(key.to_owned())));
        // What mountinfo shows, of which fsconfig(2) takes 255 bytes.
        let path = image.path.to_string_lossy();
        let source = if path.len() <= LONGEST_SOURCE { path } else { "squashfs".into() };
        let tree = mount::new_fs("fuse", &source, &params, ATTRIBUTES).context(|| "mount it by FUSE")?;
        mount::attach(&tree, at).context(|| "attach its mount")?;
        // A request that comes before the mount is there would be answered to nobody. A server that has found a fault in
        // the image is gone, and has said why.
        match rustix::io::write(&self.link, b"1") {
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::PIPE) if !self.sound => Ok(()),
            Err(e) => Err(e).context(|| "start its server"),
        }
    }
}

/// The longest value that fsconfig(2) takes, in bytes.
const LONGEST_SOURCE: usize = 255;
/// Nothing of an image can be written, gives other rights, or is a device.
const ATTRIBUTES: u64 = mount::ATTR_RDONLY | mount::ATTR_NOSUID | mount::ATTR_NODEV;

/// Unpacks an image into a tmpfs.
fn unpack(image: &Image, at: &OwnedFd) -> Result<()> {
    let params = [Param::Value("mode".to_owned(), "0755".to_owned())];
    let tree = mount::new_fs("tmpfs", "rt-image", &params, ATTRIBUTES & !mount::ATTR_RDONLY)?;
    let root = fs::openat(&tree, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut link = helper("unpack", image, &[root.as_fd()], &["-".into(), "-".into()])?;
    let left_out = answer(&mut link).map_err(|e| match e.errno() {
        Some(libc::ENOSPC) => e.hint("a tmpfs has half of the node's memory"),
        _ => e,
    })?;
    if !left_out.is_empty() {
        log::debug!("image {}: {}", image.path.display(), String::from_utf8_lossy(&left_out));
    }
    mount::set_attr(&tree, Recursive::No, Attr::READONLY)?;
    mount::attach(&tree, at)
}

/// Opens /dev/fuse, and says what can be done where that is not possible.
fn open_device() -> Result<OwnedFd> {
    let opened = fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    opened.map_err(Error::from).context(|| format!("open {DEVICE}")).map_err(|e| match e.errno() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            e.hint("the kernel's module fuse is not loaded; --extract unpacks the image into memory instead")
        }
        Some(libc::EACCES | libc::EPERM) => e.hint(
            "the device has to be open to all users, mode 0666; --extract unpacks the image into memory instead",
        ),
        _ => e,
    })
}

/// Starts `rt-image COMMAND IMAGE LINK [DESCRIPTOR] WORDS PATH` for an image, as no child of this process: the program that
/// this process becomes has no child that it does not know. Returns the other end of its link.
fn helper(
    command: &str,
    image: &Image,
    descriptors: &[rustix::fd::BorrowedFd<'_>],
    words: &[OsString],
) -> Result<File> {
    let context = || "start rt-image";
    let kind = (AddressFamily::UNIX, SocketType::STREAM);
    let (own, its) = socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).context(context)?;
    let mut numbers = vec![image.file.as_raw_fd(), its.as_raw_fd()];
    numbers.extend(descriptors.iter().map(AsRawFd::as_raw_fd));
    let mut all: Vec<OsString> = ["rt-image", command].map(OsString::from).into();
    all.extend(numbers.iter().map(|number| number.to_string().into()));
    all.extend_from_slice(words);
    // For those who look at a list of processes, too.
    all.push(image.path.clone().into());
    let program = ExecArgs::new(&all, &[])?;
    let places = start::companions("rt-image")?;
    let places = places.iter().filter_map(|path| std::ffi::CString::new(path.as_os_str().as_bytes()).ok());
    let places: Vec<_> = places.collect();
    let mut failed = None;
    let child = process::spawn(Namespaces::NONE, Memory::Shared, || {
        let grandchild = process::spawn(Namespaces::NONE, Memory::Shared, || {
            // It ends with its mounts, or by whoever ends it: of what the caller blocks it is to know nothing.
            rt_sys::signal::reset(0);
            // Ctrl-C is for the program, which may want to read its files when it gets it.
            let _ = rustix::process::setsid();
            if numbers.iter().all(|number| fd::keep_over_exec(*number).is_ok()) {
                failed = places
                    .iter()
                    .map(|place| (place, program.exec(place)))
                    .find(|(_, e)| !e.is(libc::ENOENT));
            }
            1
        });
        i32::from(grandchild.is_err())
    });
    let child = child.context(context)?;
    if process::exit_code(process::wait(child.pid)?) != 0 {
        bail!("start rt-image: no process for it");
    }
    if let Some((place, e)) = failed {
        return Err(e.context(format!("execute {}", place.to_string_lossy())));
    }
    drop(its);
    Ok(own.into())
}

/// What a process of `rt-image` says first: 0 and a text, or the errno and the text of an error.
fn answer(link: &mut File) -> Result<Vec<u8>> {
    let mut head = [0; 8];
    match link.read_exact(&mut head) {
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Err(no_answer()),
        result => result.context(|| "read rt-image's answer")?,
    }
    let [a, b, c, d, e, f, g, h] = head;
    let (errno, length) = (i32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]) as usize);
    if length > LONGEST_ANSWER {
        return Err(no_answer());
    }
    let mut text = vec![0; length];
    link.read_exact(&mut text).context(|| "read rt-image's answer")?;
    match errno {
        0 => Ok(text),
        errno => {
            let text = String::from_utf8_lossy(&text).into_owned();
            Err(Error::from_parts(text, Some(errno).filter(|errno| *errno > 0)))
        }
    }
}

/// The error where `rt-image` was not there to be executed, or has ended.
fn no_answer() -> Error {
    match start::companions("rt-image").and_then(look::first_file) {
        Ok(Some(_)) => err!("rt-image has ended without an answer"),
        Ok(None) => start::no_companion("rt-image"),
        Err(e) => e,
    }
}
