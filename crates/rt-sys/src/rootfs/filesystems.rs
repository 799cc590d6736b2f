//! Types of file systems that decide where something may be made, by the magic numbers of statfs(2).

use crate::error::Result;
use rustix::fd::AsFd;

/// procfs.
pub const PROC_MAGIC: u64 = rustix::fs::PROC_SUPER_MAGIC as u64;
/// sysfs.
pub const SYSFS_MAGIC: u64 = 0x6265_6572;

/// File systems that show the kernel's own objects. A new directory there is an order to the kernel (a directory in
/// cgroup2 is a new cgroup), or cannot be made.
pub(super) fn is_kernel_fs(magic: u64) -> bool {
    matches!(
        magic,
        0x6367_7270         // cgroup2
        | 0x0027_e0eb       // cgroup
        | 0x6265_6570       // configfs
        | 0x0765_5821       // resctrl
        | 0x7472_6163       // tracefs
        | 0x6462_6720       // debugfs
        | SYSFS_MAGIC
        | PROC_MAGIC
    )
}

/// File systems that several nodes may have mounted, and what people call them.
const SHARED: [(u64, &str); 11] = [
    (0x6969, "NFS"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x00c3_6400, "Ceph"),
    (FUSE, "FUSE"),
    (0xaad7_aaea, "PanFS"),
    (0x5346_414f, "AFS"),
    (0xfe53_4d42, "SMB"),
    (0x0102_1997, "9P"),
    (0x7461_636f, "OCFS2"),
];

/// tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

const FUSE: u64 = 0x6573_5546;
const OVERLAY: u64 = 0x794c_7630;

/// True for a file system that several nodes may have mounted: flock(2) and the notes of this node say nothing about the
/// containers of the others.
pub(super) fn is_shared_fs(magic: u64) -> bool {
    SHARED.iter().any(|(shared, _)| *shared == magic)
}

/// True where what is written to the file system of `dir` is memory.
pub fn is_in_memory(dir: impl AsFd) -> Result<bool> {
    Ok(IN_MEMORY.contains(&crate::fd::file_system(dir)?))
}

/// The name of the file system of `dir`, where overlayfs takes no upper layer from it: the kernel refuses those whose
/// files others may change behind its back, and other overlays.
pub fn name_of_overlay_stranger(dir: impl AsFd) -> Result<Option<&'static str>> {
    let magic = crate::fd::file_system(dir)?;
    let all = SHARED.iter().chain(&[(OVERLAY, "an overlay")]);
    Ok(all.into_iter().find(|(stranger, _)| *stranger == magic).map(|(_, name)| *name))
}
