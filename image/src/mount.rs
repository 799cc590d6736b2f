//! Mounts images in namespaces that this process makes and enters, each served by a process of its own.
//!
//! /dev/fuse has to be opened in the user namespace in which it is mounted. The server must not be in the mount namespace:
//! it would keep that, and the mount, in existence, and wait for ever for the unmount at which it ends. So the order is:
//! the user namespace, the servers, the mount namespace, the mounts.

use crate::extract;
use crate::file::ImageFile;
use crate::fuse::Owner;
use rt_sys::caller::Caller;
use rt_sys::error::{Context, Error, Result};
use rt_sys::mount::{self, Attr, Param, Recursive};
use rt_sys::ns::{self, IdMap, IdMaps, Namespace, Namespaces, Setgroups};
use rt_sys::process::{self, ExecArgs, Memory};
use rt_sys::{bail, fd};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::pipe::PipeFlags;
use std::ffi::OsString;
use std::path::Path;

/// The device of FUSE.
const DEVICE: &str = "/dev/fuse";

/// Images whose servers wait for their mounts, in the namespaces of which this process is the first.
#[derive(Debug)]
pub(crate) struct Session {
    waiting: Vec<Waiting>,
    uid: u32,
    gid: u32,
}

#[derive(Debug)]
struct Waiting {
    image: ImageFile,
    /// None where the image is to be unpacked.
    server: Option<Server>,
}

#[derive(Debug)]
struct Server {
    device: OwnedFd,
    /// The server begins when a byte comes here, and ends where none can come any more.
    ready: OwnedFd,
}

/// How an image becomes a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// By FUSE.
    Mount,
    /// Unpacked into a tmpfs.
    Extract,
}

impl Session {
    /// Enters namespaces of its own and starts a server for each of `images` that is to be mounted.
    ///
    /// The user namespace maps the caller to itself. A caller who may mount needs none.
    pub(crate) fn start(images: Vec<ImageFile>, way: Way) -> Result<Session> {
        let caller = Caller::current()?;
        let (uid, gid) = (caller.uid, caller.gid);
        let proc = fd::open_proc()?;
        if caller.is_unprivileged() {
            ns::unshare(Namespace::User).context(|| "make a user namespace")?;
            let one = |id| vec![IdMap { container: id, host: id, size: 1 }];
            let maps = IdMaps { uid: one(uid), gid: one(gid) };
            maps.write(&proc, "self", Setgroups::Deny)?;
        }
        // Where one id exists, all files belong to the caller, as those of an unpacked image do.
        let maps = ns::own_maps()?;
        let several = maps.uid.iter().map(|map| u64::from(map.size)).sum::<u64>() > 1;
        let owner = if several { Owner::OfImage } else { Owner::One(uid, gid) };
        let start = |image: ImageFile| {
            let server = match way {
                Way::Mount => Some(start_server(&image, owner)?),
                Way::Extract => None,
            };
            Ok(Waiting { image, server })
        };
        let waiting = images.into_iter().map(start).collect::<Result<_>>()?;
        ns::unshare(Namespace::Mount).context(|| "make a mount namespace")?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open("/", flags, Mode::empty())?;
        mount::set_attr(&root, Recursive::Yes, Attr::SLAVE).context(|| "change the propagation of /")?;
        Ok(Session { waiting, uid, gid })
    }

    /// The caller's ids.
    pub(crate) fn ids(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    /// Mounts the images in turn where `place` says, and returns what else it says.
    pub(crate) fn mount<T>(
        self,
        mut place: impl FnMut(&ImageFile) -> Result<(OwnedFd, T)>,
    ) -> Result<Vec<T>> {
        let mut said = Vec::new();
        let (uid, gid) = self.ids();
        for Waiting { image, server } in self.waiting {
            let (at, about) = place(&image)?;
            said.push(about);
            let done = match server {
                Some(server) => server.mount(&image, &at, uid, gid),
                None => unpack(&image, &at),
            };
            done.context(|| format!("image {}", image.path.display()))?;
        }
        Ok(said)
    }
}

impl Server {
    fn mount(self, image: &ImageFile, at: &OwnedFd, uid: u32, gid: u32) -> Result<()> {
        let params = [
            ("fd", self.device.as_raw_fd().to_string()),
            ("rootmode", "40000".to_owned()),
            ("user_id", uid.to_string()),
            ("group_id", gid.to_string()),
            ("subtype", "squashfs".to_owned()),
        ];
        let mut params: Vec<Param> =
            params.into_iter().map(|(key, value)| Param::Value(key.to_owned(), value)).collect();
        // The kernel checks modes itself, and lets every id of the container in.
        params.extend(["default_permissions", "allow_other"].map(|key| Param::Flag(key.to_owned())));
        // What mountinfo shows, of which fsconfig(2) takes 255 bytes.
        let path = image.path.to_string_lossy();
        let source = if path.len() <= LONGEST_SOURCE { path } else { "squashfs".into() };
        let tree = mount::new_fs("fuse", &source, &params, ATTRIBUTES).context(|| "mount it by FUSE")?;
        mount::attach(&tree, at).context(|| "attach its mount")?;
        // A request that comes before the mount is there would be answered to nobody.
        rustix::io::write(&self.ready, b"1").context(|| "start its server")?;
        Ok(())
    }
}

/// The longest value that fsconfig(2) takes, in bytes.
const LONGEST_SOURCE: usize = 255;
/// Nothing of an image can be written, gives other rights, or is a device.
const ATTRIBUTES: u64 = mount::ATTR_RDONLY | mount::ATTR_NOSUID | mount::ATTR_NODEV;

/// Unpacks an image into a tmpfs.
fn unpack(image: &ImageFile, at: &OwnedFd) -> Result<()> {
    /// For blocks that several files share.
    const CACHE: usize = 16 << 20;
    let params = [Param::Value("mode".to_owned(), "0755".to_owned())];
    let tree = mount::new_fs("tmpfs", "rt-image", &params, ATTRIBUTES & !mount::ATTR_RDONLY)?;
    let root = fs::openat(&tree, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    extract::extract(&image.filesystem(CACHE)?, root).map_err(|e| match e.errno() {
        Some(libc::ENOSPC) => e.hint("a tmpfs has half of the node's memory"),
        _ => e,
    })?;
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

fn start_server(image: &ImageFile, owner: Owner) -> Result<Server> {
    let device = open_device()?;
    let (wait, ready) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).context(|| "make a pipe")?;
    let mut words: Vec<OsString> = ["rt-image", "serve"].map(OsString::from).into();
    let numbers = [&image.file.as_fd(), &device.as_fd(), &wait.as_fd()].map(|fd| fd.as_raw_fd());
    words.extend(numbers.map(|number| number.to_string().into()));
    words.extend([image.part.offset, image.part.size].map(|number| number.to_string().into()));
    words.push(match owner {
        Owner::OfImage => "-".into(),
        Owner::One(uid, gid) => format!("{uid}:{gid}").into(),
    });
    // For those who look at a list of processes.
    words.push(image.path.clone().into());
    let program = ExecArgs::new(&words, &[])?;
    // A child of a child, whose parent has ended: the program that this process becomes has no child that it does not know.
    let child = process::spawn(Namespaces::NONE, Memory::Shared, || {
        let grandchild =
            process::spawn(Namespaces::NONE, Memory::Shared, || become_server(&program, &numbers));
        i32::from(grandchild.is_err())
    });
    let child = child.context(|| "start the server of the image")?;
    if process::exit_code(process::wait(child.pid)?) != 0 {
        bail!("start the server of the image: no process for it");
    }
    Ok(Server { device, ready })
}

/// Executes this program again as the server, which gets its descriptors and nothing else of this process.
fn become_server(program: &ExecArgs, descriptors: &[i32]) -> i32 {
    // Ctrl-C is for the program, which may want to read its files when it gets it.
    let _ = rustix::process::setsid();
    for number in descriptors {
        if fd::keep_over_exec(*number).is_err() {
            return 1;
        }
    }
    let _ = program.exec(c"/proc/self/exe");
    1
}

/// Opens the directory at `path` to mount on it.
pub(crate) fn mount_point(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::empty()).context(|| format!("mount point {}", path.display()))
}
