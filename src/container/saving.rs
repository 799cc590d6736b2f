//! The root of a container that outlives its processes, shown as a bundle, so that it can be saved.

use super::images::ImageMounts;
use super::layer::{self, UPPER};
use crate::store::{self, Store};
use rt_image_store::others::{self, OthersRoot};
use rt_spec::annotations;
use rt_sys::caller::Caller;
use rt_sys::error::{Context, Result};
use rt_sys::mount::{self, Attr, Param, Recursive};
use rt_sys::ns::{self, IdMap, IdMaps, Namespace, Setgroups};
use rt_sys::{bail, err, fd};
use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// How long a config may be, that of the bundle and the image's own.
const MOST: usize = 16 << 20;

/// Shows the image of container `id` with its layer over it as a bundle, in a mount namespace that this process enters.
/// Returns the bundle.
pub(crate) fn show_as_bundle(store: &Store, mut images: ImageMounts, id: &str) -> Result<PathBuf> {
    let dir = store.container(id)?;
    let kept = dir.persistent()?.ok_or_else(|| err!("container {id} keeps no layer"))?;
    kept.check_file()?;
    let (bundle, mounted) = match kept.is_file {
        true => images.mount_alone(store, &kept.image).map(|(bundle, root)| (bundle, Some(root)))?,
        false => (kept.image.clone(), None),
    };
    // Before anything is opened: overlayfs takes no layer of another mount namespace.
    enter_namespaces()?;
    let context = || format!("bundle {}", bundle.display());
    // Others can have put a link there, to have their choice of the caller's files saved: in a bundle of a store, or below one.
    let is_others = mounted.is_none()
        && (rt_image_store::is_stored(&bundle) || others::first_on_way(&bundle).context(context)?.is_some());
    let dir = match is_others {
        true => rt_image_store::open_bundle(&bundle).context(context)?.0,
        false => open_bundle(&bundle, kept.is_file)?,
    };
    let is_users = mounted.is_none() && !is_others;
    let links = if is_users { OFlags::empty() } else { OFlags::NOFOLLOW };
    let open = |way: &Path, flags: OFlags| match is_others {
        true => others::open_inside(&dir, way, flags),
        false => fs::openat(&dir, way, flags | links | OFlags::CLOEXEC, Mode::empty()),
    };
    let text_of = |name| text_of(open, name).context(context);
    let config = text_of("config.json")?.ok_or_else(|| err!("it has no config.json"));
    let mut spec = config.and_then(rt_spec::Config::parse).context(context)?.spec;
    let root = spec.root_mut().as_mut().ok_or_else(|| err!("root is missing")).context(context)?;
    let place = OFlags::PATH | OFlags::DIRECTORY;
    let open_root = |root: &Path| open(root, place).context(|| format!("open {}", root.display()));
    let image = match mounted {
        Some(mounted) => fs::openat(&dir, &mounted, place | OFlags::CLOEXEC, Mode::empty())
            .context(|| format!("open {}", mounted.display())),
        None if is_users => match OthersRoot::on_way(&bundle.join(root.path())).context(context)? {
            Some(others) => others.open(),
            None => open_root(root.path()),
        },
        // Nor does that config say where the root is.
        None => open_root(Path::new(rt_image_store::ROOT)),
    }
    .context(context)?;
    root.set_path("rootfs".into());
    annotations::forget(&mut spec, annotations::ANNOTATION_IMAGE_FILE);
    let text = serde_json::to_vec(&spec).map_err(|e| err!("{e}"))?;
    // What the image says of itself, where the bundle has it.
    let of_image = text_of("image.json")?;
    let overlay = overlay(&image, &kept.layer)?;
    let shown = private_directory(store, id)?;
    write_new(&shown.join("config.json"), &text)?;
    of_image.map_or(Ok(()), |text| write_new(&shown.join("image.json"), &text))?;
    let made = shown.join("rootfs");
    fs::mkdir(&made, Mode::RWXU).context(|| format!("make {}", made.display()))?;
    mount::attach_to(&overlay, &made).context(|| format!("mount on {}", made.display()))?;
    Ok(shown)
}

/// Enters a mount namespace of this process's own, in which nobody can write to the layer that `rt run --overlay` keeps in
/// `dir`, until the last process in that namespace has ended.
pub(crate) fn keep_layer(dir: &Path) -> Result<()> {
    enter_namespaces()?;
    layer::keep_from_writers(&fd::absolute(dir)?, &format!("rt-{}", std::process::id()))
}

/// Opens the bundle of a container: one that has just been mounted, or one at the path that it had, without a link, when the
/// container was made.
fn open_bundle(path: &Path, is_mounted: bool) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let links = if is_mounted { ResolveFlags::empty() } else { ResolveFlags::NO_SYMLINKS };
    match fs::openat2(fs::CWD, path, flags, Mode::empty(), links) {
        Err(Errno::LOOP) => {
            bail!("{}: a link in its path was not there when the container was made", path.display())
        }
        dir => dir.context(|| format!("open {}", path.display())),
    }
}

/// What is in the file `name` of a bundle; `None` where it has no such file. One that cannot be read is an error: the saved image
/// would not say it.
fn text_of(
    open: impl Fn(&Path, OFlags) -> rustix::io::Result<OwnedFd>,
    name: &str,
) -> Result<Option<Vec<u8>>> {
    let context = || format!("read {name}");
    let file = match open(name.as_ref(), OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
        Err(Errno::NOENT) => return Ok(None),
        file => file.context(context)?,
    };
    let text = fd::read_regular(file, MOST).context(context)?;
    text.map(Some).ok_or_else(|| err!("{name}: no file of at most {MOST} bytes"))
}

/// A directory that no other process can reach: a tmpfs in this mount namespace, over the state of container `id`. A program
/// in a container may have been shown the directory of the layer, and /tmp.
fn private_directory(store: &Store, id: &str) -> Result<PathBuf> {
    let path = rt_sys::fd::absolute(store.path())?.join(id);
    let mode = Param::Value("mode".into(), "700".into());
    let tmpfs = mount::new_fs("tmpfs", "tmpfs", &[mode], mount::ATTR_NOSUID | mount::ATTR_NODEV)
        .context(|| "make a tmpfs for the bundle")?;
    mount::attach_to(&tmpfs, &path).context(|| format!("mount on {}", path.display()))?;
    Ok(path)
}

fn write_new(path: &Path, text: &[u8]) -> Result<()> {
    let context = || format!("write {}", path.display());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::open(path, flags, Mode::RUSR | Mode::WUSR).context(context)?;
    fd::write_all(&file, text).context(context)
}

/// Enters a mount namespace of this process's own; where it may not mount, in a user namespace in which it has its ids.
fn enter_namespaces() -> Result<()> {
    let caller = Caller::current()?;
    if caller.is_unprivileged() {
        ns::unshare(Namespace::User).context(|| "make a user namespace")?;
        let one = |id| vec![IdMap { container: id, host: id, size: 1 }];
        let maps = IdMaps { uid: one(caller.uid), gid: one(caller.gid) };
        maps.write(&fd::open_proc()?, "self", Setgroups::Deny)?;
    }
    ns::unshare(Namespace::Mount).context(|| "make a mount namespace")?;
    let root = fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .context(|| "open /")?;
    mount::set_attr(&root, Recursive::Yes, Attr::SLAVE).context(|| "change the propagation of /")
}

/// The image below what was written, to be read only. Each of the two is named by a descriptor: overlayfs takes layers as
/// text, in which a path may have no colon. Neither the layer nor what was written may be a link.
fn overlay(image: &OwnedFd, layer: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let context = || format!("open {}", layer.join(UPPER).display());
    let upper = fs::openat(store::open_layer(layer)?, UPPER, flags, Mode::empty()).context(context)?;
    let name = |dir: &OwnedFd| fd::link(dir);
    let layers = format!("{}:{}", name(&upper), name(image));
    let params = [Param::Value("lowerdir".into(), layers), Param::Flag("userxattr".into())];
    let attr = mount::ATTR_NODEV | mount::ATTR_RDONLY;
    mount::new_fs("overlay", "overlay", &params, attr).context(|| "put the layer over the image")
}
