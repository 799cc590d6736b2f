//! What package managers must be told where root of one id is emulated.
//!
//! apt checks that it became its user `_apt`, which an answered setresgid(2) does not make true. One line tells it to stay
//! root. `rt pull --user-map root` writes it into bundles; in others, such as those of podman, the file is shown over the image.

use super::account;
use rt_sys::error::{Context, Result};
use rt_sys::rootfs::Rootfs;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::path::Path;

const APT_DIRECTORY: &str = "/etc/apt/apt.conf.d";
const APT_FILE: &str = "/etc/apt/apt.conf.d/zz-one-user";
/// What is said of an image without apt, or of one that does not let its user in there.
const NOT_THERE: [Errno; 5] = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::XDEV, Errno::ACCESS];
const APT_LINE: &str = "APT::Sandbox::User \"root\";\n";

/// Shows the file to an image that has apt and lacks it.
#[cold]
pub(super) fn tell(rootfs: &mut Rootfs) -> Result<()> {
    let has = |path: &str, flags| match rootfs.open(Path::new(path), OFlags::PATH | flags) {
        Ok(_) => Ok(true),
        Err(e) if NOT_THERE.contains(&e) => Ok(false),
        Err(e) => Err(e).context(|| format!("look at {path} of the image")),
    };
    if !has(APT_DIRECTORY, OFlags::DIRECTORY)? || has(APT_FILE, OFlags::empty())? {
        return Ok(());
    }
    account::bind_files(rootfs, &[(APT_FILE, APT_LINE.to_owned())])
        .context(|| "tell apt that there is one user")
}
