//! Overlays whose layers have long paths.
//!
//! fsconfig(2) takes values of 255 bytes, and the layers of a client's image are longer. A layer is therefore given as
//! /proc/self/fd/N, which is short. Where the lower layers are still longer together, they are given one by one
//! (`lowerdir+`, Linux 6.7), or on older kernels all in the one page of parameters that mount(2) takes.

use super::{attributes_of_new, guard_proc, note_mounted, set_propagation, symlink};
use crate::container::plan::MountPlan;
use rt_sys::bail;
use rt_sys::error::{Context, Result};
use rt_sys::mount::Param;
use rt_sys::rootfs::{MountPoint, Place, Rootfs};
use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags};
use std::path::Path;

/// The longest value that fsconfig(2) takes, in bytes.
pub(super) const MOST_IN_A_VALUE: usize = 255;

/// The parameters of an overlay that names its layers by descriptors.
pub(super) struct Layers {
    pub params: Vec<Param>,
    /// What the parameters name: it must be open until the overlay is made.
    open: Vec<OwnedFd>,
}

/// Mounts an overlay by mount(2), with all lower layers in one parameter. False where their paths are short, or too
/// long for a page.
#[cold]
pub(super) fn mount_with_one_parameter(
    rootfs: &mut Rootfs<'_>,
    mount: &MountPlan,
    source: &str,
    params: &[Param],
) -> Result<bool> {
    let Some(layers) = layers_by_descriptor(params, usize::MAX)? else { return Ok(false) };
    if !layers.params.iter().any(is_long) {
        return Ok(false);
    }
    let place = rootfs.place(&mount.destination, MountPoint::Directory, symlink(mount))?;
    if let Place::At(fd) = &place {
        guard_proc(mount, fd, || false)?;
    }
    let Some(done) = place.mount("overlay", source, &layers.params, attributes_of_new(mount)) else {
        return Ok(false);
    };
    drop(layers.open);
    done?;
    note_mounted(rootfs, mount, None);
    set_propagation(mount, &rootfs.resolve(&mount.destination)?)?;
    Ok(true)
}

fn is_long(param: &Param) -> bool {
    matches!(param, Param::Value(_, value) if value.len() > MOST_IN_A_VALUE)
}

/// The layers of an overlay as files of /proc/self/fd. `None` where no value is longer than fsconfig(2) takes. Where
/// the lower layers have more than `most` bytes together, they are given one by one.
pub(super) fn layers_by_descriptor(params: &[Param], most: usize) -> Result<Option<Layers>> {
    if !params.iter().any(is_long) {
        return Ok(None);
    }
    let mut open = Vec::new();
    let mut by_descriptor = |path: &Path| -> Result<String> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::open(path, flags, Mode::empty()).context(|| path.display())?;
        let name = rt_sys::fd::link(&fd);
        open.push(fd);
        Ok(name)
    };
    let mut short = Vec::new();
    for param in params {
        match param {
            Param::Value(key, value) if key == "lowerdir" => {
                let layers = split_layers(value);
                let names = layers.iter().map(|l| by_descriptor(Path::new(l))).collect::<Result<Vec<_>>>()?;
                let all = names.join(":");
                if all.len() <= most {
                    short.push(Param::Value(key.clone(), all));
                } else {
                    short.extend(names.into_iter().map(|name| Param::Value("lowerdir+".to_owned(), name)));
                }
            }
            Param::Value(key, value) if key == "upperdir" || key == "workdir" => {
                let [path] = &split_layers(value)[..] else { bail!("{key} {value:?} is not one directory") };
                short.push(Param::Value(key.clone(), by_descriptor(Path::new(path))?));
            }
            other => short.push(other.clone()),
        }
    }
    Ok(Some(Layers { params: short, open }))
}

/// The directories in an overlay's parameter: a colon stands between them, and a backslash before a character that is
/// part of a path.
fn split_layers(value: &str) -> Vec<String> {
    let mut layers = vec![String::new()];
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match (c, layers.last_mut()) {
            ('\\', Some(layer)) => layer.extend(chars.next()),
            (':', _) => layers.push(String::new()),
            (c, Some(layer)) => layer.push(c),
            _ => {}
        }
    }
    layers
}
