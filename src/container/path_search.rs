//! The search for a program by PATH, inside the container.

use super::not_executable::is_noexec;
use rt_sys::error::{Context, Error, Result};
use rt_sys::{bail, err};
use rustix::fs::{self, AtFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Finds the program as execvp(3) would, so that a missing one is create's error. The texts are Go's, which
/// clients turn into exit codes 126 and 127.
pub(super) fn find_program(name: &str, env: &[String]) -> Result<CString> {
    let quoted = format!("exec: {name:?}");
    if name.is_empty() {
        bail!("exec: executable path is empty");
    }
    if name.contains('/') {
        return check_program(Path::new(name)).map_err(|e| match e {
            Errno::NOENT => not_here(err!("{quoted}: stat {name}: {}", Error::from(e)), name),
            Errno::ISDIR => err!("{quoted}: is a directory: permission denied"),
            e => refused(&quoted, e, Path::new(name)),
        });
    }
    let path = env.iter().find_map(|v| v.strip_prefix("PATH=")).unwrap_or("");
    let mut closed = None;
    for dir in path.split(':') {
        let dir = if dir.is_empty() { "." } else { dir };
        let path = Path::new(dir).join(name);
        match check_program(&path) {
            Ok(found) => return Ok(found),
            Err(Errno::ACCESS) => closed = Some(path),
            Err(e) if is_elsewhere(e) => {}
            Err(e) => return Err(e).context(|| format!("{quoted}: look at {}", path.display())),
        }
    }
    match closed {
        Some(path) => Err(refused(&quoted, Errno::ACCESS, &path)),
        None => Err(err!("{quoted}: executable file not found in $PATH")),
    }
}

/// The error of a program that is not at its path, with where a relative one begins: a caller's own directory is not in
/// the container unless it is asked for.
fn not_here(error: Error, name: &str) -> Error {
    match std::env::current_dir() {
        Ok(dir) if !name.starts_with('/') => error.hint(format!(
            "the working directory inside is {}: rt run has -w DIR and --home for another",
            dir.display()
        )),
        _ => error,
    }
}

/// The error of a program that is there.
fn refused(quoted: &str, e: Errno, path: &Path) -> Error {
    let error = Error::from(e).context(quoted);
    match e {
        Errno::ACCESS if is_noexec(path) => {
            error.hint(format!("the file system of {} is mounted noexec", path.display()))
        }
        _ => error,
    }
}

/// True where a program of the name may be in a later directory, as execvp(3) of glibc has it: the directory has none, or is
/// on a server that is away. Whatever else the kernel says, another program of the name is not the one that is meant.
fn is_elsewhere(e: Errno) -> bool {
    let missing = [Errno::NOENT, Errno::NOTDIR, Errno::ISDIR, Errno::LOOP, Errno::NAMETOOLONG, Errno::INVAL];
    let away = [Errno::STALE, Errno::NODEV, Errno::TIMEDOUT, Errno::HOSTDOWN, Errno::NOTCONN];
    missing.contains(&e) || away.contains(&e)
}

fn check_program(path: &Path) -> Result<CString, Errno> {
    let found = fs::stat(path)?;
    if fs::FileType::from_raw_mode(found.st_mode) == fs::FileType::Directory {
        return Err(Errno::ISDIR);
    }
    fs::accessat(fs::CWD, path, fs::Access::EXEC_OK, AtFlags::EACCESS)?;
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_have_the_texts_that_clients_match() {
        let env = ["PATH=/usr/bin:/bin".to_owned()];
        let text = |name: &str| find_program(name, &env).unwrap_err().to_string();
        assert_eq!(text("/no/x"), "exec: \"/no/x\": stat /no/x: no such file or directory");
        assert_eq!(text("no-such"), "exec: \"no-such\": executable file not found in $PATH");
        assert_eq!(text("/etc/passwd"), "exec: \"/etc/passwd\": permission denied");
        assert_eq!(text("/tmp"), "exec: \"/tmp\": is a directory: permission denied");
        assert!(find_program("sh", &env).is_ok());
    }
}
