//! The host's criu(8): where it is, which version it has, and how it is executed in a container's namespaces.
//!
//! criu has to see the files of the container by their paths there, so it runs in the container's mount namespace, with all
//! capabilities of the container's user namespace. Nothing that it is made of may be the image's: it, its loader and its library
//! directories are opened on the host and executed by descriptor. What it, its loader and its libraries look up by a fixed
//! path leads to directories of the kernel's, in which nobody can make an entry.

use crate::container::{loader_of, sealed};
use rt_image_store::word::changeable_by_others;
use rt_sys::error::{Context, Error, Result};
use rt_sys::process::ExecArgs;
use rt_sys::{bail, caller, caps, err, fd, look, output};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::fs;
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest that can work without root: `--unprivileged`, and what the kernel asks of it, were complete then.
const OLDEST: Version = Version(4, 1, 1);
/// The first that can dump a TCP or UDP socket on Linux 6.16 and later.
const WANTED: Version = Version(4, 2, 0);

/// Where programs and their loaders look for libraries, below the root that criu lies in.
const LIBRARIES: [&str; 4] = ["lib64", "usr/lib64", "lib", "usr/lib"];

/// What the loader of the GNU C library reads libraries' names from, whatever it is told (ld.so(8)).
const PRELOAD: &[u8] = b"/etc/ld.so.preload";
/// As long, and never there.
const NOTHING: &[u8] = b"/proc/self/ns/none";
/// What criu sees of an environment. It executes `sh` to ask for iptables, which it then takes for missing; libraries read their
/// configuration when they are loaded.
const ENVIRONMENT: [&str; 3] = [
    "PATH=/proc/self/ns",
    "GNUTLS_SYSTEM_PRIORITY_FILE=/proc/self/ns/none",
    "OPENSSL_CONF=/proc/self/ns/none",
];

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
    /// Its libraries, each by the directory that has it and the name there.
    libraries: Vec<(usize, PathBuf)>,
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
            None => in_path("criu")?.ok_or_else(|| err!("criu is not in PATH").hint(REMEDY))?,
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
        let mut criu = Criu { path, version: OLDEST, loader, libraries: Vec::new() };
        criu.version = criu.ask_version()?;
        criu.libraries = criu.find_libraries()?;
        if criu.version < OLDEST {
            let (path, version) = (criu.path.display(), criu.version);
            return Err(err!("{path}: criu {version} cannot work without root").hint(REMEDY));
        }
        Ok(criu)
    }

    /// Its libraries as the loader finds them.
    ///
    /// # Errors
    /// One lies elsewhere than in the directories that the loader is given: in a container that is the image.
    fn find_libraries(&self) -> Result<Vec<(usize, PathBuf)>> {
        let Some((_, dirs)) = &self.loader else { return Ok(Vec::new()) };
        let shown = || format!("list the libraries of {}", self.path.display());
        let printed = output::of(&mut self.on_host(&["--list"])).context(shown)?;
        let text = String::from_utf8_lossy(&printed.stdout).into_owned();
        libraries_in(&text, dirs).map_err(|library| {
            let (path, dirs) = (self.path.display(), joined(dirs));
            err!("{path}: its library {library} is in none of {}", dirs.display())
        })
    }

    /// The command that executes it on the host. `options` are for its loader.
    fn on_host(&self, options: &[&str]) -> Command {
        let mut command = match &self.loader {
            Some((loader, dirs)) => {
                let mut command = Command::new(loader);
                command.arg("--library-path").arg(joined(dirs)).args(options).arg(&self.path);
                command
            }
            None => Command::new(&self.path),
        };
        command.env_clear();
        command
    }

    fn ask_version(&self) -> Result<Version> {
        let shown = || format!("run {} --version", self.path.display());
        let printed = output::of(self.on_host(&[]).arg("--version")).context(shown)?;
        let text = String::from_utf8_lossy(&printed.stdout).into_owned();
        parse_version(&text).ok_or_else(|| {
            let errors = String::from_utf8_lossy(&printed.stderr);
            let said = errors.lines().chain(text.lines()).next().unwrap_or("nothing").to_owned();
            err!("{}: it says {said:?}", shown())
        })
    }

    /// Opens what is executed, while the host's files can be reached, and `dirs`, each by its path and open, by mounts of their own:
    /// the processes of a container may look into criu, and criu follows links that they have made, so nothing above these
    /// directories is to be reached by its descriptors.
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
        let loader = match opened.next() {
            Some(loader) => Some(Loader::new(&loader, opened.collect(), self.libraries.clone())?),
            None => None,
        };
        Ok((Opened { program, loader }, dirs))
    }
}

/// A loader that takes nothing from the image.
#[derive(Debug)]
struct Loader {
    /// A copy that nobody can change, and that preloads nothing.
    program: OwnedFd,
    /// It is the GNU C library's, which takes the option that keeps it from a cache of libraries.
    is_glibc: bool,
    /// Where it finds libraries.
    dirs: Vec<OwnedFd>,
    /// What it loads, as [`Criu`] has it.
    libraries: Vec<(usize, PathBuf)>,
}

impl Loader {
    fn new(file: &OwnedFd, dirs: Vec<OwnedFd>, libraries: Vec<(usize, PathBuf)>) -> Result<Loader> {
        let shown = || fd::shown(file);
        let mut text = fd::read_file(&PathBuf::from(fd::link(file))).context(shown)?;
        let is_glibc = replace_all(&mut text, PRELOAD, NOTHING);
        let program =
            sealed(Path::new("criu"), |copy| Ok(std::fs::File::from(copy.try_clone()?).write_all(&text)?));
        Ok(Loader { program: program.context(|| "copy the loader of criu")?, is_glibc, dirs, libraries })
    }
}

/// Replaces every `from` of `text` by `to`, which is as long. False where there is none.
fn replace_all(text: &mut [u8], from: &[u8], to: &[u8]) -> bool {
    let mut found = false;
    let mut start = 0;
    while let Some(n) = text[start..].windows(from.len()).position(|window| window == from) {
        text[start + n..][..to.len()].copy_from_slice(to);
        start += n + to.len();
        found = true;
    }
    found
}

/// The libraries of `text`, what a loader lists, but for the loader itself: each by the place in `dirs` of the directory that has it, and
/// its name there.
///
/// # Errors
/// The name of the first that is in none of them.
fn libraries_in(text: &str, dirs: &[PathBuf]) -> Result<Vec<(usize, PathBuf)>, String> {
    let mut found = Vec::new();
    for (name, path) in text.lines().filter_map(|line| line.trim().split_once(" => ")) {
        let path = Path::new(path.split(" (").next().unwrap_or(path));
        let place = dirs.iter().enumerate().find_map(|(at, dir)| {
            let rest = path.strip_prefix(dir).ok()?;
            // Or in the part of a directory that is for this processor (ld.so(8)).
            let is_there = rest.components().count() == 1 || rest.starts_with("glibc-hwcaps");
            is_there.then(|| (at, rest.to_owned()))
        });
        let place = place.ok_or_else(|| name.to_owned())?;
        if !name.rsplit('/').next().is_some_and(|name| name.starts_with("ld-")) {
            found.push(place);
        }
    }
    Ok(found)
}

/// A criu that can be executed where its path means nothing.
#[derive(Debug)]
pub(super) struct Opened {
    program: OwnedFd,
    loader: Option<Loader>,
}

impl Opened {
    /// Its descriptors.
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        let loader =
            self.loader.iter().flat_map(|loader| std::iter::once(&loader.program).chain(&loader.dirs));
        std::iter::once(&self.program).chain(loader).map(AsRawFd::as_raw_fd).collect()
    }

    /// Replaces this process by criu with the arguments `args`; returns only the error. `keep` are descriptors that criu gets
    /// beside the standard streams.
    pub(super) fn exec(&self, args: &[String], keep: &[&OwnedFd]) -> Error {
        match self.try_exec(args, keep) {
            Ok(error) | Err(error) => error.context("execute criu"),
        }
    }

    fn try_exec(&self, args: &[String], keep: &[&OwnedFd]) -> Result<Error> {
        // The paths below are of the kernel's own file system.
        fd::open_proc()?;
        // Whatever else is open here is the host's.
        fd::cloexec_from(3)?;
        take_capabilities()?;
        keep.iter().try_for_each(|fd| fd::keep_over_exec(fd.as_raw_fd()))?;
        fd::keep_over_exec(self.program.as_raw_fd())?;
        let path = |fd: &OwnedFd| fd::link(fd);
        let mut words = vec!["criu".to_owned()];
        let executed = match &self.loader {
            Some(loader) => {
                loader.dirs.iter().try_for_each(|dir| fd::keep_over_exec(dir.as_raw_fd()))?;
                let dirs: Vec<String> = loader.dirs.iter().map(path).collect();
                words.extend(loader.is_glibc.then(|| "--inhibit-cache".to_owned()));
                words.extend(["--library-path".to_owned(), dirs.join(":")]);
                // DT_RPATH counts before that, and names directories of the image here. What is loaded already is looked for nowhere.
                let loaded =
                    loader.libraries.iter().map(|(at, name)| format!("{}/{}", dirs[*at], name.display()));
                let loaded = loaded.collect::<Vec<_>>().join(":");
                words.extend(["--preload".to_owned(), loaded, path(&self.program)]);
                &loader.program
            }
            None => &self.program,
        };
        words.extend_from_slice(args);
        Ok(ExecArgs::new(&words, &ENVIRONMENT.map(str::to_owned))?.exec_fd(executed))
    }
}

/// Lets criu have all capabilities of this process's user namespace, in which it is not root: execve(2) gives them to root
/// alone. CAP_SETUID and CAP_SETGID stay away, because criu would become root by them where no root is mapped.
fn take_capabilities() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return caps::raise();
    }
    let all = caps::current()?.permitted.bits() & !caps::SET_IDS;
    caps::set(&caps::Sets { bounding: all, effective: all, permitted: all, inheritable: all, ambient: all })?;
    Ok(())
}

/// The first program `name` in PATH.
pub(super) fn in_path(name: &str) -> Result<Option<PathBuf>> {
    let path = caller::path("PATH").unwrap_or_default();
    // Debian has criu in /usr/sbin, which is in no user's PATH.
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    for candidate in dirs.filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)) {
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

    #[test]
    fn libraries_lie_where_the_loader_is_told_to_look() {
        let dirs = [PathBuf::from("/usr/lib64"), PathBuf::from("/usr/lib")];
        let of = |text: &str| libraries_in(text, &dirs);
        assert_eq!(
            of("\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /usr/lib/libc.so.6 (0x2)\n\t/lib64/ld.so (0x3)\n"),
            Ok(vec![(1, PathBuf::from("libc.so.6"))])
        );
        assert_eq!(
            of("\t/lib64/ld-linux-x86-64.so.2 => /usr/lib64/ld-linux-x86-64.so.2 (0x3)\n"),
            Ok(vec![])
        );
        assert_eq!(of("\tlibnet.so.1 => /opt/lib/libnet.so.1 (0x2)\n"), Err("libnet.so.1".into()));
        assert_eq!(of("\tlibnet.so.1 => not found\n"), Err("libnet.so.1".into()));
        let named = "glibc-hwcaps/x86-64-v3/libz.so.1";
        assert_eq!(of(&format!("\tlibz.so.1 => /usr/lib/{named} (0x2)\n")), Ok(vec![(1, named.into())]));
        assert_eq!(of("\tlibz.so.1 => /usr/lib/other/libz.so.1 (0x2)\n"), Err("libz.so.1".into()));
    }

    #[test]
    fn the_copy_of_a_loader_preloads_nothing() {
        assert_eq!(PRELOAD.len(), NOTHING.len());
        let mut text = [&b"x"[..], PRELOAD, b"\0y", PRELOAD, b"z"].concat();
        assert!(replace_all(&mut text, PRELOAD, NOTHING));
        assert_eq!(text, [&b"x"[..], NOTHING, b"\0y", NOTHING, b"z"].concat());
        assert!(!replace_all(&mut text, PRELOAD, NOTHING));
    }
}
