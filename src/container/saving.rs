//! The root of a container that outlives its processes, shown as a bundle, so that it can be saved.

use super::images::ImageMounts;
use super::layer::UPPER;
use crate::store::Store;
use rt_spec::annotations;
use rt_sys::caller::Caller;
use rt_sys::error::{Context, Result};
use rt_sys::mount::{self, Attr, Param, Recursive};
use rt_sys::ns::{self, IdMap, IdMaps, Namespace, Setgroups};
use rt_sys::{err, fd};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use std::path::{Path, PathBuf};

/// The directory beside a layer in which the bundle is made.
const BUNDLE: &str = "bundle";

/// Shows the image of container `id` with its layer over it as a bundle, in a mount namespace that this process enters.
/// Returns the bundle.
pub(crate) fn show_as_bundle(store: &Store, mut images: ImageMounts, id: &str) -> Result<PathBuf> {
    let dir = store.container(id)?;
    let kept = dir.kept()?.ok_or_else(|| err!("container {id} keeps no layer"))?;
    let (bundle, mounted) = match kept.is_file {
        true => images.mount_alone(store, &kept.image).map(|(bundle, root)| (bundle, Some(root)))?,
        false => (kept.image.clone(), None),
    };
    let context = || format!("bundle {}", bundle.display());
    let mut spec = rt_spec::Config::load(&bundle.join("config.json")).context(context)?.spec;
    let root = spec.root_mut().as_mut().ok_or_else(|| err!("root is missing")).context(context)?;
    let image = mounted.unwrap_or_else(|| bundle.join(root.path()));
    root.set_path("rootfs".into());
    annotations::forget(&mut spec, annotations::ANNOTATION_IMAGE_FILE);
    let shown = kept.layer.join(BUNDLE);
    let made = shown.join("rootfs");
    std::fs::create_dir_all(&made).context(|| format!("make {}", made.display()))?;
    let text = serde_json::to_vec(&spec).map_err(|e| err!("{e}"))?;
    std::fs::write(shown.join("config.json"), text).context(|| format!("write {}", shown.display()))?;
    // What the image says of itself, where the bundle has it.
    if let Ok(text) = std::fs::read(bundle.join("image.json")) {
        std::fs::write(shown.join("image.json"), text).context(|| format!("write {}", shown.display()))?;
    }
    enter_namespaces()?;
    let overlay = overlay(&image, &kept.layer.join(UPPER))?;
    mount::attach_to(&overlay, &made).context(|| format!("mount on {}", made.display()))?;
    Ok(shown)
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
    let root = open(Path::new("/"))?;
    mount::set_attr(&root, Recursive::Yes, Attr::SLAVE).context(|| "change the propagation of /")
}

/// The image below what was written, to be read only. Each of the two is named by a descriptor: overlayfs takes layers as
/// text, in which a path may have no colon.
fn overlay(image: &Path, upper: &Path) -> Result<OwnedFd> {
    let (image, upper) = (open(image)?, open(upper)?);
    let name = |dir: &OwnedFd| format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
    let layers = format!("{}:{}", name(&upper), name(&image));
    let params = [Param::Value("lowerdir".into(), layers), Param::Flag("userxattr".into())];
    let attr = mount::ATTR_NODEV | mount::ATTR_RDONLY;
    mount::new_fs("overlay", "overlay", &params, attr).context(|| "put the layer over the image")
}

fn open(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::empty()).context(|| format!("open {}", path.display()))
}
