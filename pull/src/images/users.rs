//! Who uses a bundle: processes on this machine, which are looked at, and others, which have left marks.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rt_image_store::is_bundle_name;
use rt_image_store::mark::{Machine, Mark};
use rt_sys::error::{Context, Result};
use rt_sys::{caps, disk, look, ns};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::OwnStore;

/// What is said of a mark on which somebody has mounted something, and of one that is the other users' own.
const HIDDEN: [i32; 6] = [libc::EXDEV, libc::ELOOP, libc::EACCES, libc::EPERM, libc::ESTALE, libc::ENOTCONN];
/// A process that has marked a bundle enters it within this time, or finds that it is not there any more.
pub(crate) const STARTING: Duration = Duration::from_secs(1);
/// Marks of other machines count for so long, since their processes cannot be seen.
pub(crate) const ELSEWHERE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Who uses a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BundleUser {
    /// These processes of this machine.
    Processes(BTreeSet<i32>),
    /// A process of this machine that was started just now.
    Starting,
    /// Somebody on another machine, perhaps; since how long.
    Elsewhere { host: String, uid: u32, age: Duration },
}

impl std::fmt::Display for BundleUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BundleUser::Processes(pids) => {
                let pids: Vec<String> = pids.iter().take(5).map(i32::to_string).collect();
                write!(f, "by processes {}", pids.join(", "))
            }
            BundleUser::Starting => f.write_str("by a container that was started just now"),
            BundleUser::Elsewhere { host, uid, age } => {
                write!(f, "on {host} by uid {uid}, {} ago", rough(*age))
            }
        }
    }
}

/// A time for people: `5 s`, `3 h`, `12 d`.
pub(crate) fn rough(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A mark as it lies in the store.
#[derive(Debug)]
pub(crate) struct AgedMark {
    /// What it says.
    pub mark: Mark,
    /// Whose file it is; none where it could not be looked at. In a user namespace a user has another number than outside.
    pub owner: Option<u32>,
    /// How long ago its user started a container.
    pub age: Duration,
}

impl OwnStore {
    /// All marks. Ages are by the clock of the file server, which wrote their times.
    pub(crate) fn marks(&self) -> Result<Vec<AgedMark>> {
        let now = self.now();
        let mut marks = Vec::new();
        for (file, _) in disk::entries(self.uses())? {
            let Some(mark) = std::str::from_utf8(&file).ok().and_then(Mark::parse) else { continue };
            let looked_at = disk::size_and_time(self.uses(), &file)
                .and_then(|(_, used)| Ok((used, disk::owner_at(self.uses(), &file)?)));
            match looked_at {
                Ok((used, owner)) => {
                    let age = now.duration_since(used).unwrap_or_default();
                    marks.push(AgedMark { mark, owner: Some(owner), age });
                }
                // Somebody has removed it meanwhile.
                Err(e) if e.is(libc::ENOENT) => {}
                // Whose it is and when the image was used is not known, as where somebody has mounted a file system on it, or
                // the caller may not look. So it counts, as one of another machine.
                Err(e) if HIDDEN.iter().any(|errno| e.is(*errno)) => {
                    marks.push(AgedMark { mark, owner: None, age: Duration::ZERO });
                }
                Err(e) => return Err(e),
            }
        }
        Ok(marks)
    }

    /// The time of the file server: that of a file which was just made.
    pub(crate) fn now(&self) -> SystemTime {
        let name = format!(",now-{}", rt_sys::unique::name()).into_bytes();
        let made = disk::create_own_file(self.uses(), &name).map(drop);
        let time = made.and_then(|()| disk::size_and_time(self.uses(), &name));
        let _ = disk::unlink(self.uses(), &name);
        time.map_or_else(|_| SystemTime::now(), |(_, time)| time)
    }

    /// Who uses `bundle` now.
    pub(crate) fn users(&self, bundle: &str) -> Result<Vec<BundleUser>> {
        Ok(Users::look(self)?.of(bundle))
    }
}

/// True where the caller sees the processes of all users, also where /proc hides them (hidepid).
pub(crate) fn sees_all() -> bool {
    let may_look = || caps::current().is_ok_and(|caps| caps.effective.contains(CapabilitySet::SYS_PTRACE));
    disk::caller().uid == 0 && ns::own_maps().is_ok_and(|maps| ns::is_initial(&maps)) && may_look()
}

/// Who uses which bundle, as of one moment.
pub(crate) struct Users {
    here: Machine,
    uid: u32,
    /// The caller sees the processes of all users.
    sees_all: bool,
    pub marks: Vec<AgedMark>,
    processes: BTreeMap<String, BTreeSet<i32>>,
}

impl Users {
    /// Looks at marks first, and then at processes: whoever leaves a mark later finds no bundle.
    pub(crate) fn look(store: &OwnStore) -> Result<Users> {
        let (here, marks) = (Machine::current()?, store.marks()?);
        let uid = disk::caller().uid;
        let processes = processes_by_bundle(&Prefixes::of(store))?;
        Ok(Users { here, uid, sees_all: sees_all(), marks, processes })
    }

    /// The users of one bundle.
    pub(crate) fn of(&self, bundle: &str) -> Vec<BundleUser> {
        let mut users = Vec::new();
        users.extend(self.processes.get(bundle).cloned().map(BundleUser::Processes));
        for AgedMark { mark, owner, age } in self.marks.iter().filter(|aged| aged.mark.bundle == bundle) {
            let sees = owner.is_some_and(|owner| owner == self.uid || self.sees_all);
            let seen = mark.machine == self.here && sees;
            if seen && *age < STARTING {
                users.push(BundleUser::Starting);
            } else if !seen && *age < ELSEWHERE {
                users.push(BundleUser::Elsewhere { host: mark.host.clone(), uid: mark.uid, age: *age });
            }
        }
        users
    }

    /// How long ago the bundle was used last.
    pub(crate) fn idle(&self, bundle: &str) -> Option<Duration> {
        self.marks.iter().filter(|aged| aged.mark.bundle == bundle).map(|aged| aged.age).min()
    }
}

/// The processes of this machine that have a bundle of the store: as their working or root directory, or in their mount
/// namespace. Of other users' processes only root sees all of that, and everybody the mounts, unless /proc hides them
/// (hidepid).
///
/// # Errors
/// A process that may have a bundle could not be looked at. What is not known is no "no", for which a bundle would go.
fn processes_by_bundle(prefixes: &Prefixes) -> Result<BTreeMap<String, BTreeSet<i32>>> {
    let mut all: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    let mut namespaces: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for name in process_names().context(|| "read /proc")? {
        let Some(pid) = std::str::from_utf8(&name).ok().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let proc = Path::new("/proc").join(pid.to_string());
        let mut found = BTreeSet::new();
        for link in ["cwd", "root"].map(|link| proc.join(link)) {
            if let Some(path) = of_process(&link, std::fs::read_link(&link))? {
                found.extend(prefixes.bundles_in(path.as_os_str().as_bytes()));
            }
        }
        let mounts = proc.join("mountinfo");
        let mounted = || -> Result<_> {
            let text = of_process(&mounts, std::fs::read(&mounts))?;
            Ok(text.map(|text| prefixes.bundles_in(&text)))
        };
        // Many processes share a namespace, whose list of mounts can be long.
        let namespace = proc.join("ns/mnt");
        match of_process(&namespace, std::fs::metadata(&namespace))?.map(|stat| stat.ino()) {
            Some(namespace) => {
                // The list of a process that ends just now is not that of those which go on in its namespace.
                if !namespaces.contains_key(&namespace)
                    && let Some(bundles) = mounted()?
                {
                    namespaces.insert(namespace, bundles);
                }
                found.extend(namespaces.get(&namespace).into_iter().flatten().cloned());
            }
            // Another user's namespace has no number for the caller, and its list of mounts can be read.
            None => found.extend(mounted()?.into_iter().flatten()),
        }
        for bundle in found {
            all.entry(bundle).or_default().insert(pid);
        }
    }
    Ok(all)
}

/// The names in /proc, among which are the processes.
fn process_names() -> Result<Vec<Vec<u8>>, Errno> {
    look::names(fs::open("/proc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// What the kernel says of a process in `file`; none where the process has ended, or is another user's.
///
/// # Errors
/// All others: the process may well be there.
fn of_process<T>(file: &Path, answer: std::io::Result<T>) -> Result<Option<T>> {
    match answer.as_ref().map_err(|e| e.raw_os_error()) {
        // It has ended. EINVAL is what mountinfo says of a zombie, which has no mount namespace any more.
        Err(Some(libc::ENOENT | libc::ESRCH | libc::EINVAL)) => Ok(None),
        // Another user's (proc(5), ptrace(2)); EPERM where /proc is mounted with hidepid=1.
        Err(Some(libc::EACCES | libc::EPERM)) => Ok(None),
        // A path of more than a page, by which any user could keep root from removing images. A container's bundle is
        // seen among its mounts.
        Err(Some(libc::ENAMETOOLONG)) => Ok(None),
        _ => answer.map(Some).context(|| format!("read {}", file.display())),
    }
}

/// What stands in front of the names of a store's bundles, in paths and in lists of mounts.
#[derive(Debug)]
struct Prefixes(Vec<Vec<u8>>);

impl Prefixes {
    /// The path of the bundles, and their path in their file system, by which a mount names what it shows
    /// (proc_pid_mountinfo(5), field 4). Where that cannot be found out, the bundles of all stores count.
    fn of(store: &OwnStore) -> Prefixes {
        let all_stores = || Prefixes(vec![b"/".to_vec()]);
        let Ok(path) = store.store.path().join(rt_image_store::BUNDLES).canonicalize() else {
            return all_stores();
        };
        let plain = [path.as_os_str().as_bytes(), b"/"].concat();
        // Without it the bundles of all stores count, which are at least those of this one.
        let own = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let inside = disk::mount_id(store.bundles()).and_then(|id| in_file_system(&own, id, &escape(&plain)));
        match inside {
            Some(inside) => Prefixes(vec![escape(&plain), plain, inside]),
            None => all_stores(),
        }
    }

    /// The names of bundles in a text, also of those that were renamed to be removed.
    fn bundles_in(&self, text: &[u8]) -> BTreeSet<String> {
        const LENGTH: usize = "sha256-".len() + 64;
        let mut names = BTreeSet::new();
        for (at, _) in text.windows(4).enumerate().filter(|(_, start)| *start == b"/sha") {
            let (before, behind) = text.split_at(at + 1);
            let of_store = self.0.iter().any(|prefix| {
                let begin = before.strip_suffix(&prefix[..]);
                *prefix == b"/"
                    || begin.is_some_and(|b| matches!(b.last(), None | Some(b' ' | b'=' | b':' | b',')))
            });
            let name = behind.get(..LENGTH).and_then(|name| std::str::from_utf8(name).ok());
            names.extend(name.filter(|name| of_store && is_bundle_name(name)).map(str::to_owned));
        }
        names
    }
}

/// The path in its file system of `path`, which lies on the mount `id` of a list of mounts.
fn in_file_system(mounts: &[u8], id: u64, path: &[u8]) -> Option<Vec<u8>> {
    let id = id.to_string();
    let line = mounts
        .split(|&b| b == b'\n')
        .find(|line| line.split(|&b| b == b' ').next() == Some(id.as_bytes()))?;
    let mut fields = line.split(|&b| b == b' ').skip(3);
    let not_root = |field| if field == b"/" { &b""[..] } else { field };
    let (root, point) = (not_root(fields.next()?), not_root(fields.next()?));
    Some([root, path.strip_prefix(point)?].concat())
}

/// As paths are written in lists of mounts.
fn escape(path: &[u8]) -> Vec<u8> {
    let escaped = path.iter().flat_map(|&b| match b {
        b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{b:03o}").into_bytes(),
        _ => vec![b],
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_are_found_in_lists_of_mounts() {
        let one = rt_image_store::bundle_name("sha256", &"1".repeat(64));
        let two = rt_image_store::bundle_name("sha512", &"2".repeat(128));
        let text = format!(
            "36 35 98:0 /i/bundles/{one}/rootfs / ro - ext4 /dev/x ro\n37 35 0:9 / /l rw - overlay o \
             lowerdir=/s/i/bundles/{two}.removed-1/rootfs\n38 /sha256-12 /sha"
        );
        let found = |prefixes: &[&str]| {
            let prefixes = prefixes.iter().map(|prefix| prefix.as_bytes().to_vec()).collect();
            Prefixes(prefixes).bundles_in(text.as_bytes())
        };
        assert_eq!(found(&["/"]), BTreeSet::from([one.clone(), two.clone()]));
        assert_eq!(found(&["/i/bundles/"]), BTreeSet::from([one.clone()]));
        assert_eq!(found(&["/s/i/bundles/", "/i/bundles/"]), BTreeSet::from([one, two]));
        assert_eq!(found(&["/j/bundles/"]), BTreeSet::new());
    }

    #[test]
    fn a_path_is_found_in_its_file_system() {
        let mounts = b"21 1 8:1 / / rw - ext4 /dev/a rw\n22 21 8:2 /export/home /home rw - ext4 /dev/b rw\n";
        let inside = |id, path: &str| {
            in_file_system(mounts, id, &escape(path.as_bytes())).map(|path| String::from_utf8(path).unwrap())
        };
        assert_eq!(inside(21, "/a b/"), Some("/a\\040b/".into()));
        assert_eq!(inside(22, "/home/me/"), Some("/export/home/me/".into()));
        assert_eq!((inside(22, "/elsewhere/"), inside(23, "/home/")), (None, None));
    }

    #[test]
    fn ages_are_rough() {
        let said = [0, 119, 120, 7200, 172_800].map(|n| rough(Duration::from_secs(n)));
        assert_eq!(said, ["0 s", "119 s", "2 min", "2 h", "2 d"]);
    }
}
