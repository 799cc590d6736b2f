//! The host's criu(8): where it is, which version it has, and how it is executed in a container's namespaces.
//!
//! criu has to see the files of the container by their paths there, so it runs in the container's mount namespace. Nothing of it
//! has to be in the image: it, its loader and its library directories are opened on the host and executed by descriptor.

use crate::container::loader_of;
use rt_image_store::word::changeable_by_others;
use rt_sys::error::{Context, Error, Result};
use rt_sys::process::ExecArgs;
use rt_sys::{bail, caller, caps, err, fd, look, output};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest that can work without root: `--unprivileged`, and what the kernel asks of it, were complete then.
const OLDEST: Version = Version(4, 1, 1);
/// The first that can dump a TCP or UDP socket on Linux 6.16 and later.
const WANTED: Version = Version(4, 2, 0);

/// Where programs and their loaders look for libraries, below the root that criu lies in.
const LIBRARIES: [&str; 4] = ["lib64", "usr/lib64", "lib", "usr/lib"];

const REMEDY: &str = "install criu 4.2 or later, or name one by RT_CRIU or checkpoint.criu of config.toml";

/// A version of criu.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u32, u32, u32);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Version(major, minor, 0) => write!(f, "{major}.{minor}"),
            Version(major, minor, patch) => write!(f, "{major}.{minor}.{patch}"),
        }
    }
}

impl Version {
    /// What cannot be kept with this version and could be with a later one.
    pub(crate) fn shortcoming(self) -> Option<String> {
        (self < WANTED).then(|| {
            format!(
                "criu {self} cannot dump sockets of TCP and UDP on Linux 6.16 and later: criu {WANTED} can"
            )
        })
    }
}

/// The criu of the host that was found.
#[derive(Debug)]
pub(crate) struct Criu {
    /// Where it is.
    pub path: PathBuf,
    /// Its version.
    pub version: Version,
    /// The loader that it is linked for, and where that finds libraries; none of a static one.
    loader: Option<(PathBuf, Vec<PathBuf>)>,
}

impl Criu {
    /// Finds the one that the site or the caller has named, else the first in PATH.
    ///
    /// # Errors
    /// There is none, or it is too old.
    pub(crate) fn find() -> Result<Criu> {
        Self::find_by(&rt_config::own_variable)
    }

    /// The same, where the caller's variables are `variable`.
    pub(super) fn find_by(variable: rt_config::Lookup<'_>) -> Result<Criu> {
        let config = rt_config::Config::read(variable)?;
        let named = config.paths(&rt_config::CRIU).pop();
        let path = match named {
            Some(path) => path,
            None => in_path()?.ok_or_else(|| err!("criu is not in PATH").hint(REMEDY))?,
        };
        Self::at(path)
    }

    fn at(path: PathBuf) -> Result<Criu> {
        let shown = || path.display().to_string();
        if !look::is_file(&path).context(shown)? {
            return Err(err!("{}: no such program", path.display()).hint(REMEDY));
        }
        let loader = match loader_of(&path).context(shown)? {
            Some(named) => Some(loader_beside(&path, &named)?),
            None => None,
        };
        let mut criu = Criu { path, version: OLDEST, loader };
        criu.version = criu.ask_version()?;
        if criu.version < OLDEST {
            let (path, version) = (criu.path.display(), criu.version);
            return Err(err!("{path}: criu {version} cannot work without root").hint(REMEDY));
        }
        Ok(criu)
    }

    fn ask_version(&self) -> Result<Version> {
        let mut command = match &self.loader {
            Some((loader, dirs)) => {
                let mut command = Command::new(loader);
                command.arg("--library-path").arg(joined(dirs)).arg(&self.path);
                command
            }
            None => Command::new(&self.path),
        };
        let shown = || format!("run {} --version", self.path.display());
        let printed = output::of(command.arg("--version").env_clear()).context(shown)?;
        let text = String::from_utf8_lossy(&printed.stdout).into_owned();
        parse_version(&text).ok_or_else(|| {
            let errors = String::from_utf8_lossy(&printed.stderr);
            let said = errors.lines().chain(text.lines()).next().unwrap_or("nothing").to_owned();
            err!("{}: it says {said:?}", shown())
        })
    }

    /// Opens what is executed, while the host's files can be reached.
    pub(super) fn open(&self) -> Result<Opened> {
        let open = |path: &Path, flags: OFlags| {
            fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
                .context(|| format!("open {}", path.display()))
        };
        let program = open(&self.path, OFlags::RDONLY)?;
        let loader = match &self.loader {
            Some((loader, dirs)) => {
                let dirs = dirs.iter().map(|dir| open(dir, OFlags::PATH | OFlags::DIRECTORY));
                Some((open(loader, OFlags::RDONLY)?, dirs.collect::<Result<Vec<_>>>()?))
            }
            None => None,
        };
        Ok(Opened { program, loader })
    }

    /// The same, and `dirs`, each by its path and open, by mounts of their own: the processes of a container may look into criu,
    /// and nothing above these directories is to be reached by its descriptors.
    pub(super) fn open_apart(&self, dirs: &[(&Path, &OwnedFd)]) -> Result<(Opened, Vec<OwnedFd>)> {
        let mut paths = vec![self.path.as_path()];
        if let Some((loader, libraries)) = &self.loader {
            paths.push(loader);
            paths.extend(libraries.iter().map(PathBuf::as_path));
        }
        let own = paths.len();
        paths.extend(dirs.iter().map(|(path, _)| *path));
        let mut opened = rt_sys::mount::apart(&paths)?;
        let copies = opened.split_off(own);
        // The kernel copies by path alone, and the path can lead elsewhere by now.
        for ((path, dir), copy) in dirs.iter().zip(&copies) {
            let (dir, copy) = (fd::stat(dir)?, fd::stat(copy)?);
            if (dir.st_dev, dir.st_ino) != (copy.st_dev, copy.st_ino) {
                bail!("{}: somebody has put another directory in its place", path.display());
            }
        }
        let dirs = copies;
        let mut opened = opened.into_iter();
        let program = opened.next().ok_or_else(|| err!("criu was not opened"))?;
        let loader = opened.next().map(|loader| (loader, opened.collect()));
        Ok((Opened { program, loader }, dirs))
    }
}

/// A criu that can be executed where its path means nothing.
#[derive(Debug)]
pub(super) struct Opened {
    program: OwnedFd,
    loader: Option<(OwnedFd, Vec<OwnedFd>)>,
}

impl Opened {
    /// Replaces this process by criu with the arguments `args`; returns only the error. `keep` are descriptors that criu gets
    /// beside the standard streams. The environment is empty.
    pub(super) fn exec(&self, args: &[String], keep: &[&OwnedFd]) -> Error {
        match self.try_exec(args, keep) {
            Ok(error) | Err(error) => error.context("execute criu"),
        }
    }

    fn try_exec(&self, args: &[String], keep: &[&OwnedFd]) -> Result<Error> {
        // Whatever else is open here is the host's.
        fd::cloexec_from(3)?;
        take_capabilities()?;
        keep.iter().try_for_each(|fd| fd::keep_over_exec(fd.as_raw_fd()))?;
        fd::keep_over_exec(self.program.as_raw_fd())?;
        let path = |fd: &OwnedFd| fd::link(fd);
        let mut words = vec!["criu".to_owned()];
        let executed = match &self.loader {
            Some((loader, dirs)) => {
                dirs.iter().try_for_each(|dir| fd::keep_over_exec(dir.as_raw_fd()))?;
                let dirs: Vec<String> = dirs.iter().map(path).collect();
                words.extend(["--library-path".to_owned(), dirs.join(":"), path(&self.program)]);
                loader
            }
            None => &self.program,
        };
        words.extend_from_slice(args);
        Ok(ExecArgs::new(&words, &[])?.exec_fd(executed))
    }
}

/// Lets criu have all capabilities of this process's user namespace, in which it is not root: execve(2) gives them to root
/// alone. CAP_SETUID and CAP_SETGID stay away, because criu would become root by them where no root is mapped.
fn take_capabilities() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return caps::raise();
    }
    const SET_IDS: caps::Mask = 1 << 6 | 1 << 7;
    let all = caps::current()?.permitted.bits() & !SET_IDS;
    caps::set(&caps::Sets { bounding: all, effective: all, permitted: all, inheritable: all, ambient: all })?;
    Ok(())
}

fn in_path() -> Result<Option<PathBuf>> {
    let path = caller::path("PATH").unwrap_or_default();
    // Debian has it in /usr/sbin, which is in no user's PATH.
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    for candidate in dirs.filter(|dir| dir.is_absolute()).map(|dir| dir.join("criu")) {
        match fs::access(&candidate, fs::Access::EXEC_OK) {
            Ok(()) => return Ok(Some(candidate)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => {}
            Err(e) => return Err(e).context(|| format!("look for {}", candidate.display())),
        }
    }
    Ok(None)
}

/// The loader `named` and the library directories of the root that `program` lies in: the innermost directory above it that has
/// the loader. So criu may lie in the root of another distribution.
fn loader_beside(program: &Path, named: &Path) -> Result<(PathBuf, Vec<PathBuf>)> {
    let below = named.strip_prefix("/").unwrap_or(named);
    for root in program.ancestors().skip(1) {
        let loader = root.join(below);
        if !look::exists(&loader).context(|| loader.display().to_string())? {
            continue;
        }
        let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
        let mut dirs = Vec::new();
        for dir in LIBRARIES.iter().flat_map(|dir| [root.join(dir).join(&multiarch), root.join(dir)]) {
            if look::is_dir(&dir).context(|| dir.display().to_string())? {
                dirs.push(dir);
            }
        }
        if root != Path::new("/") {
            require_own(&loader, &dirs)?;
        }
        return Ok((loader, dirs));
    }
    bail!("{}: its loader {} is not there", program.display(), named.display())
}

/// Fails where others can put something else at a loader or a directory with libraries: anybody can make one above a criu that
/// lies in a directory that is open to all.
fn require_own(loader: &Path, dirs: &[PathBuf]) -> Result<()> {
    let shown = || format!("{}, the loader of criu", loader.display());
    let owner = fs::stat(loader).context(shown)?.st_uid;
    if !caller::is_trusted(owner) && !caller::may_be_hosts_root(owner) {
        bail!("{}: it is another user's", shown());
    }
    let above = loader.parent().unwrap_or(Path::new("/"));
    for dir in std::iter::once(above).chain(dirs.iter().map(PathBuf::as_path)) {
        if let Some(place) = changeable_by_others(dir)? {
            bail!(
                "{}: criu's libraries are not taken from there: others can put something else at {place}",
                dir.display()
            );
        }
    }
    Ok(())
}

fn joined(dirs: &[PathBuf]) -> OsString {
    dirs.iter().map(|dir| dir.as_os_str()).collect::<Vec<_>>().join(OsStr::new(":"))
}

/// `Version: 4.2.1`, the first line of `criu --version`.
fn parse_version(text: &str) -> Option<Version> {
    let version = text.lines().next()?.strip_prefix("Version: ")?.trim();
    // A version of a packager's or of a repository goes on behind a dash or a plus.
    let version = version.split(['-', '+', ' ']).next()?;
    let mut numbers = version.split('.').map(str::parse);
    let mut next = || numbers.next().transpose().ok();
    Some(Version(next()??, next()?.unwrap_or(0), next()?.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared() {
        assert_eq!(parse_version("Version: 4.2.1\n"), Some(Version(4, 2, 1)));
        assert_eq!(parse_version("Version: 4.2\nGitID: v4.2-3-g0\n"), Some(Version(4, 2, 0)));
        assert_eq!(parse_version("Version: 4.1.1-2\n"), Some(OLDEST));
        assert_eq!(parse_version("Version: x\n"), None);
        assert_eq!(parse_version(""), None);
        assert!(Version(3, 17, 1) < OLDEST && Version(4, 10, 0) > WANTED);
        assert!(OLDEST.shortcoming().is_some() && WANTED.shortcoming().is_none());
    }
}
