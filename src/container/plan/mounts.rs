//! The mounts of a plan: what is mounted where, and in which order.

use super::image_files::{self, SQUASHFS};
use crate::container::ImageMounts;
use oci_spec::runtime::Mount;
use rt_spec::{Spec, annotations, mounts, rootless};
use rt_sys::error::Result;
use rt_sys::mount::{ATTR_RDONLY, Param, Recursive};
use rt_sys::ns::{IdMap, IdMaps};
use rt_sys::{bail, err};
use rustix::fs::{self, FileType};
use rustix::io::Errno;
use std::path::{Component, Path, PathBuf};

/// One mount.
#[derive(Debug)]
pub(crate) struct MountPlan {
    /// Where, in the container.
    pub destination: PathBuf,
    /// What is mounted.
    pub kind: MountKind,
    /// Its options.
    pub options: mounts::Options,
    /// The source is copied into the root rather than mounted, where that can be done.
    pub copied: bool,
    /// Id maps of the mount (idmap), where the config gives it some of its own.
    pub maps: Option<IdMaps>,
}

/// What is mounted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MountKind {
    /// A path of the host.
    Bind(PathBuf),
    /// The cgroup file system, as the host has it.
    Cgroup,
    /// A new instance of a file system.
    New {
        /// Its type.
        fstype: String,
        /// Its source, as mountinfo shows it.
        source: String,
    },
}

/// The mounts of `spec`, in order, and among them `home`. `ids` are the ids inside, where not every id exists. `copied` are
/// the destinations of host files that are copied, as an annotation names them.
pub(super) fn plan_mounts(
    spec: &Spec,
    bundle: &Path,
    home: Option<&Mount>,
    copied: Option<&str>,
    ids: Option<&IdMaps>,
    notes: &mut Vec<String>,
) -> Result<Vec<MountPlan>> {
    // selinux(8): the label of every file in a new file system.
    let label = spec.linux().as_ref().and_then(|linux| linux.mount_label().clone()).filter(|l| !l.is_empty());
    let optional = annotations::optional_mounts(spec);
    let mut mounts = Vec::new();
    for mount in in_order(spec.mounts().as_deref().unwrap_or_default(), home) {
        let mut plan = mount_plan(mount, bundle)?;
        if optional.is_some_and(|list| is_left_out(&plan, list)) {
            log::debug!("mount {}: left out, the host has no source for it", plan.destination.display());
            continue;
        }
        plan.copied = copied.is_some_and(|list| is_copied(&plan, list));
        if let (Some(label), MountKind::New { fstype, .. }) = (&label, &plan.kind)
            && !matches!(fstype.as_str(), "proc" | "sysfs")
        {
            plan.options.data.push(Param::Value("context".to_owned(), label.clone()));
        }
        if let Some(ids) = ids {
            rootless::drop_unmapped(&mut plan.options, ids, &plan.destination, notes);
        }
        mounts.push(plan);
    }
    Ok(mounts)
}

/// Makes binds of the mounts whose source is an image file: `rt-image` has mounted that file elsewhere.
pub(super) fn bind_images(mounts: &mut [MountPlan], bundle: &Path, images: &ImageMounts) -> Result<()> {
    for mount in mounts {
        let MountKind::New { fstype, source } = &mount.kind else { continue };
        if fstype != SQUASHFS {
            continue;
        }
        if let Some(dir) = image_files::mounted(&bundle.join(source), &mount.destination, images)? {
            mount.kind = MountKind::Bind(dir);
            mount.options.bind = true;
            mount.options.data.clear();
        }
    }
    Ok(())
}

/// `mounts`, and `home` before the first one that is to be seen below it.
fn in_order<'a>(mounts: &'a [Mount], home: Option<&'a Mount>) -> impl Iterator<Item = &'a Mount> {
    let below = |home: &Mount| mounts.iter().position(|m| m.destination().starts_with(home.destination()));
    let at = home.and_then(below).unwrap_or(mounts.len());
    mounts[..at].iter().chain(home).chain(&mounts[at..])
}

/// True for a bind that `list` names and whose source is missing.
fn is_left_out(mount: &MountPlan, list: &str) -> bool {
    let MountKind::Bind(source) = &mount.kind else { return false };
    annotations::names(list, &mount.destination)
        && matches!(fs::stat(source), Err(Errno::NOENT | Errno::NOTDIR))
}

/// True for a read-only bind that `list` names and that shows a file of the host at its own place.
fn is_copied(mount: &MountPlan, list: &str) -> bool {
    let shows_file = |source: &Path| {
        let kind = |stat: fs::Stat| FileType::from_raw_mode(stat.st_mode);
        source == mount.destination && fs::stat(source).is_ok_and(|s| kind(s) == FileType::RegularFile)
    };
    mount.options.attr.set & ATTR_RDONLY != 0
        && annotations::names(list, &mount.destination)
        && matches!(&mount.kind, MountKind::Bind(source) if shows_file(source))
}

fn mount_plan(mount: &Mount, bundle: &Path) -> Result<MountPlan> {
    let words = mount.options().iter().flatten().map(String::as_str);
    let mut options = mounts::parse(words);
    let fstype = mount.typ().clone().unwrap_or_default();
    // A relative destination was allowed before 1.0; runc still takes it from the root.
    let destination = mounts::clean(&Path::new("/").join(mount.destination())).into_owned();
    if is_root(&destination) {
        bail!(
            "mount {}: nothing can be mounted over the root (set root.path instead)",
            mount.destination().display()
        );
    }
    if fstype == "bind" {
        options.bind = true;
    }
    let maps = match (mount.uid_mappings(), mount.gid_mappings()) {
        (Some(uid), Some(gid)) => {
            options.idmap = options.idmap.or(Some(Recursive::No));
            let convert = |maps: &[oci_spec::runtime::LinuxIdMapping]| {
                maps.iter()
                    .map(|m| IdMap { container: m.container_id(), host: m.host_id(), size: m.size() })
                    .collect()
            };
            Some(IdMaps { uid: convert(uid), gid: convert(gid) })
        }
        _ => None,
    };
    let kind = if options.bind {
        let source = mount.source().as_ref().filter(|s| !s.as_os_str().is_empty());
        let source = source.ok_or_else(|| err!("mount {}: a bind needs a source", destination.display()))?;
        // A bind has no parameters of a file system. runc ignores them too.
        options.data.clear();
        MountKind::Bind(bundle.join(source))
    } else if matches!(fstype.as_str(), "cgroup" | "cgroup2") {
        MountKind::Cgroup
    } else if fstype.is_empty() || fstype == "none" {
        bail!("mount {}: type {fstype:?} without bind", destination.display());
    } else {
        let source = mount.source().as_ref().map_or_else(|| fstype.clone(), |s| s.display().to_string());
        MountKind::New { fstype, source }
    };
    Ok(MountPlan { destination, kind, options, copied: false, maps })
}

/// True where the destination is the root, also by a path that leads up again.
fn is_root(destination: &Path) -> bool {
    let depth = destination.components().fold(0u32, |depth, part| match part {
        Component::Normal(_) => depth + 1,
        Component::ParentDir => depth.saturating_sub(1),
        _ => depth,
    });
    depth == 0
}
