//! Control groups (cgroups(7)), which are only ever read.

use crate::error::{Context, Result};
use crate::fd;
use crate::mount::unescape;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Those of a process, as directories that the caller sees.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// A version 1 controller and its directory.
    pub v1: Vec<(String, PathBuf)>,
    /// The directory in the hierarchy of version 2.
    pub v2: Option<PathBuf>,
}

/// The files of one controller, which have other names in each version.
#[derive(Debug)]
pub enum Files<'a> {
    /// Of version 1.
    V1(&'a Path),
    /// Of version 2.
    V2(&'a Path),
}
use Files::{V1, V2};

impl Cgroups {
    /// Those of process `pid`.
    ///
    /// # Errors
    /// The process has ended, or procfs cannot be read.
    pub fn of(pid: i32) -> Result<Cgroups> {
        let text = |path: String| {
            let bytes = fd::read_file(Path::new(&path)).context(|| format!("read {path}"))?;
            Ok::<_, crate::error::Error>(String::from_utf8_lossy(&bytes).into_owned())
        };
        Ok(Cgroups::find(&text(format!("/proc/{pid}/cgroup"))?, &text("/proc/self/mountinfo".into())?))
    }

    /// Brings the lines of proc_pid_cgroup(5) and proc_pid_mountinfo(5) together. What is not
    /// mounted, or only in a part that the process is not in, is left out.
    fn find(cgroup: &str, mountinfo: &str) -> Cgroups {
        let mut found = Cgroups::default();
        for line in cgroup.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            for controller in controllers.split(',') {
                let dir = mountinfo.lines().find_map(|mount| directory(mount, controller, path));
                match (controller, dir) {
                    ("", dir) => found.v2 = dir,
                    (_, Some(dir)) => found.v1.push((controller.to_owned(), dir)),
                    (_, None) => {}
                }
            }
        }
        found
    }

    /// Where the files of `controller` are.
    pub fn files(&self, controller: &str) -> Option<Files<'_>> {
        match self.v1.iter().find(|(name, _)| name == controller) {
            Some((_, dir)) => Some(V1(dir)),
            None => self.v2.as_deref().map(V2),
        }
    }

    /// How much more memory the processes in it may use, in bytes, by its limit and those above it; `None` without one. Content of files
    /// that is cached counts as free: the kernel gives it up first.
    ///
    /// # Errors
    /// Those of read(2), but for files that are not there or that the caller may not read.
    pub fn memory_left(&self) -> Result<Option<u64>> {
        // From memory.high on the kernel has who writes wait. With swap, what is swapped out counts, too.
        let (dir, limits, cached) = match self.files("memory") {
            Some(V1(dir)) => (
                dir,
                [
                    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
                    ("memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes"),
                ],
                ["total_inactive_file", "total_active_file"],
            ),
            Some(V2(dir)) => (
                dir,
                [("memory.max", "memory.current"), ("memory.high", "memory.current")],
                ["inactive_file", "active_file"],
            ),
            None => return Ok(None),
        };
        let mut least = None;
        for dir in dir.ancestors() {
            let stat = text(dir, "memory.stat")?.unwrap_or_default();
            let lines = stat.lines().filter_map(|line| line.split_once(' '));
            let cached: u64 = lines
                .filter(|(key, _)| cached.contains(key))
                .filter_map(|(_, n)| n.parse::<u64>().ok())
                .sum();
            for (limit, used) in limits {
                // The root of version 2 has none.
                let [Some(limit), Some(used)] = [number(dir, limit)?, number(dir, used)?] else { continue };
                let left = limit.saturating_sub(used.saturating_sub(cached));
                least = Some(least.map_or(left, |least: u64| least.min(left)));
            }
        }
        Ok(least)
    }
}

/// How much more memory this machine has without swapping, in bytes: MemAvailable of proc_meminfo(5). `None` where that is not said.
///
/// # Errors
/// Those of read(2), but for a file that is not there or that the caller may not read.
pub fn host_memory_left() -> Result<Option<u64>> {
    let text = text(Path::new("/proc"), "meminfo")?.unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.map(|kib| kib.saturating_mul(1024)))
}

/// The directory of `path` below a mount of `controller`'s hierarchy, the second version's where it
/// is empty.
fn directory(mount: &str, controller: &str, path: &str) -> Option<PathBuf> {
    let (mount, fs) = mount.split_once(" - ")?;
    let mut fs = fs.split(' ');
    let (fstype, options) = (fs.next()?, fs.nth(1).unwrap_or_default());
    let serves = match controller {
        "" => fstype == "cgroup2",
        _ => fstype == "cgroup" && options.split(',').any(|option| option == controller),
    };
    let mut mount = mount.split(' ').skip(3);
    let (root, point) = (mount.next()?, mount.next()?);
    let below = Path::new(path).strip_prefix(root).ok().filter(|_| serves)?;
    // Outside the caller's cgroup namespace.
    if below.starts_with("..") {
        return None;
    }
    Some(PathBuf::from(OsString::from_vec(unescape(point.as_bytes()))).join(below))
}

/// The text of a file; `None` of one that is not there or that the caller may not read.
fn text(dir: &Path, file: &str) -> Result<Option<String>> {
    let path = dir.join(file);
    match fd::read_file(&path) {
        Err(e) if [libc::ENOENT, libc::EACCES, libc::EPERM].into_iter().any(|errno| e.is(errno)) => Ok(None),
        bytes => bytes
            .map(|bytes| Some(String::from_utf8_lossy(&bytes).into_owned()))
            .context(|| format!("read {}", path.display())),
    }
}

/// A file with one number; `max` is the greatest. `None` of one that is not there or that the caller may not read, or without a number.
///
/// # Errors
/// Those of read(2).
pub fn number(dir: &Path, file: &str) -> Result<Option<u64>> {
    let text = text(dir, file)?;
    Ok(text.and_then(|text| if text.trim() == "max" { Some(u64::MAX) } else { text.trim().parse().ok() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 20 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw
31 20 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 20 0:28 /job /mnt/a\\040b rw - cgroup cgroup rw,memory
33 20 0:29 /other /mnt/pids rw - cgroup cgroup rw,pids
";

    #[test]
    fn cgroups_are_found_in_a_hybrid_layout() {
        let found = Cgroups::find("4:pids:/job\n3:memory:/job/1\n2:cpu,cpuacct:/job\n0::/job/2\n", MOUNTS);
        let v1 = [("memory", "/mnt/a b/1"), ("cpu", "/sys/fs/cgroup/cpu,cpuacct/job")];
        let mut v1: Vec<(String, PathBuf)> = v1.map(|(c, d)| (c.into(), d.into())).into();
        v1.push(("cpuacct".into(), "/sys/fs/cgroup/cpu,cpuacct/job".into()));
        assert_eq!(found, Cgroups { v1, v2: Some("/sys/fs/cgroup/unified/job/2".into()) });
        assert_eq!(Cgroups::find("0::/../..\n", MOUNTS), Cgroups::default());
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(host_memory_left().unwrap().is_some_and(|left| left > 0));
    }

    #[test]
    fn the_least_of_a_group_and_those_above_is_left() {
        let dir = std::env::temp_dir().join(format!("rt-cgroup-{}", std::process::id()));
        let leaf = dir.join("job/step");
        std::fs::create_dir_all(&leaf).unwrap();
        let left = |v1: bool| {
            let (v1, v2) = if v1 {
                (vec![("memory".into(), leaf.clone())], None)
            } else {
                (Vec::new(), Some(leaf.clone()))
            };
            Cgroups { v1, v2 }.memory_left().unwrap()
        };
        let write = |at: &str, files: &[(&str, &str)]| {
            for (file, text) in files {
                std::fs::write(dir.join(at).join(file), text).unwrap();
            }
        };
        assert_eq!(left(false), None);
        write("job/step", &[("memory.max", "max\n"), ("memory.current", "50\n")]);
        write(
            "job",
            &[
                ("memory.max", "100\n"),
                ("memory.current", "90\n"),
                ("memory.stat", "anon 40\nfile 50\ninactive_file 20\nactive_file 5\n"),
            ],
        );
        assert_eq!(left(false), Some(35));
        assert_eq!(left(true), None);
        write("job/step", &[("memory.limit_in_bytes", "60\n"), ("memory.usage_in_bytes", "70\n")]);
        assert_eq!(left(true), Some(0));
        write("job/step", &[("memory.stat", "inactive_file 99\ntotal_inactive_file 30\n")]);
        assert_eq!(left(true), Some(20));
        // The kernel ends a process at the limit with swap, and makes who writes wait above memory.high.
        write("job", &[("memory.memsw.limit_in_bytes", "100\n"), ("memory.memsw.usage_in_bytes", "95\n")]);
        assert_eq!(left(true), Some(5));
        write("job", &[("memory.high", "80\n")]);
        assert_eq!(left(false), Some(15));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
