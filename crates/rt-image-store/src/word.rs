//! Words that can name an image, and what of that name somebody else has put into the current directory.
//!
//! In a directory such as /tmp whoever comes first has the names of images. A word counts there only for what nobody but root
//! and the caller can have made. A path is the caller's own choice, whoever owns what it leads to.

use rt_sys::err;
use rt_sys::error::{Context, Result};
use rustix::fs::{self, FileType, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// True for a word that can only be a path.
pub fn is_path(word: &OsStr) -> bool {
    let starts = [&b"/"[..], b"./", b"../"];
    word == "." || word == ".." || starts.iter().any(|start| word.as_bytes().starts_with(start))
}

/// True for the name of a file that is an archive of an image, as far as names tell.
pub fn is_archive(name: &str) -> bool {
    [".tar", ".tar.gz", ".tgz", ".tar.zst"].iter().any(|end| name.ends_with(end))
}

/// Refuses `word`, which names a file, or a bundle with the config `config`, where others can have put it here.
///
/// # Errors
/// It is no path, and others than root and the caller own or can write it, its config, a directory between, or a link to one
/// of them.
pub fn require_own(word: &Path, config: Option<&Path>) -> Result<()> {
    if is_path(word.as_os_str()) {
        return Ok(());
    }
    let shown = word.display();
    let hint = || format!("./{shown} is that one, and docker://{shown} the image of that name");
    let below = |path: &Path| require_own_path(path).map_err(|e| e.context(shown.to_string()).hint(hint()));
    below(word)?;
    match config.filter(|config| is_file_name(config)) {
        Some(config) => below(&word.join(config)),
        None => Ok(()),
    }
}

/// True for the name of a bundle's own config. One that is elsewhere is the caller's choice.
fn is_file_name(config: &Path) -> bool {
    config.components().count() == 1 && config.is_relative()
}

/// Refuses the current directory as the bundle of the container `id`, under the same conditions: `id` can be meant for an
/// image.
///
/// # Errors
/// Others own or can write it or its config.
pub fn require_own_directory(id: &str, config: &Path) -> Result<()> {
    let path = if is_file_name(config) { Path::new(".").join(config) } else { ".".into() };
    require_own_path(&path).map_err(|e| {
        let text =
            format!("--bundle . names the bundle that is here, and docker://{id} the image of that name");
        e.context(id.to_owned()).hint(text)
    })
}

/// Looks at `path`, which is relative, and at each directory above it.
fn require_own_path(path: &Path) -> Result<()> {
    for part in path.ancestors().filter(|part| !part.as_os_str().is_empty()) {
        let shown = || part.display().to_string();
        let found = match fs::lstat(part) {
            // Whoever opens it says so.
            Err(Errno::NOENT) => continue,
            found => found.context(shown)?,
        };
        let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
        require_own_file(part, &found, is_link)?;
        if is_link {
            require_own_file(part, &fs::stat(part).context(shown)?, false)?;
        }
    }
    Ok(())
}

fn require_own_file(path: &Path, stat: &Stat, is_link: bool) -> Result<()> {
    let what =
        if path == Path::new(".") { "the current directory".into() } else { path.display().to_string() };
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if ![0, uid].contains(&stat.st_uid) {
        return Err(err!("{what} belongs to uid {}", stat.st_uid));
    }
    // Where each user has a group of the same number, the usual umask of all but root lets that group write.
    let is_own_group = stat.st_gid == gid && gid == uid && uid != 0;
    let others = if is_own_group { 0o002 } else { 0o022 };
    if !is_link && stat.st_mode & others != 0 {
        return Err(err!("{what} belongs to uid {}, and others can write it", stat.st_uid));
    }
    Ok(())
}
