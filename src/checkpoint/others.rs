//! Processes outside of the container that have the program's memory, mapped or open: they would be parted from it.

use super::hidden::{self, Hidden};
use super::inside::Inside;
use super::processes::{self, Status, Tree, mapped_in};
use super::{aside, reach};
use rt_sys::error::{Context, Error, Result};
use rt_sys::{err, fd, mount};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long all processes of the host may be looked through, and how long then what waits in the kernel.
const LOOKED_WITHIN: Duration = Duration::from_secs(30);
const STUCK_WITHIN: Duration = Duration::from_secs(2);

/// Refuses what a process outside of `tree` shares, which would be alone with it. `files` are those of [`super::preflight::Found`], and
/// `what` says what they are. This process must not be in the container's user namespace, where it may look at no other.
pub(super) fn check_others(
    tree: &Tree,
    inside: &Inside<'_>,
    files: &BTreeSet<[String; 3]>,
    users: &Users,
    what: &str,
) -> Result<()> {
    let is_own = |device: &str| reach::decimal(device).is_some_and(|device| inside.is_own_device(&device));
    let files: Vec<_> = files.iter().filter(|[device, ..]| !is_own(device)).collect();
    let is_inside = |pid: i32| tree.processes.iter().any(|process| process.pid == pid);
    match had_by_other(&files, users, Unseen::Have, is_inside)? {
        None => Ok(()),
        Some(Had { path, how, hidden }) => {
            Err(err!("the program has {path} in its memory, {what}which {how}").hint(if hidden {
                SHOWN
            } else {
                "criu keeps none that share with others"
            }))
        }
    }
}

/// What helps where processes are hidden.
const SHOWN: &str = "give the container a /dev/shm of its own: --ipc private; or have /proc show all processes: without hidepid, or to the group of its option gid";

/// What is taken of processes that the procfs hides from this user, where they may have a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unseen {
    /// One has it.
    Have,
    /// None has: the kernel will be asked for the file itself.
    HaveNot,
}

/// A file that another process has.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Had {
    pub path: String,
    /// Says which process has it, and whether that is certain.
    pub how: String,
    /// It is not known for what the procfs hides.
    hidden: bool,
}

/// Whose processes may have a file. Of those that this user may not look at, no other one does. Root's have it where it is root's alone:
/// they may open every file, and do not.
#[derive(Debug)]
pub(super) enum Users {
    /// These.
    Of(Vec<u32>),
    /// All.
    All,
}

impl Users {
    /// True where the process with this `status` is one of theirs.
    fn have(&self, status: &Status) -> Result<bool> {
        Ok(self.has_one_of(&status.numbers("Uid")?))
    }

    fn has_one_of(&self, ids: &[u32]) -> bool {
        match self {
            Users::Of(users) => ids.iter().any(|user| users.contains(user)),
            Users::All => ids.iter().any(|user| *user != 0),
        }
    }
}

/// Which of `files`, which processes of `users` may have, a process has that is not one of those `inside`, and how.
///
/// # Errors
/// It takes too long: how many descriptors and mappings there are lies with all users of the host, and the program is stopped meanwhile.
pub(super) fn had_by_other(
    files: &[&[String; 3]],
    users: &Users,
    unseen: Unseen,
    inside: impl Fn(i32) -> bool,
) -> Result<Option<Had>> {
    if files.is_empty() {
        return Ok(None);
    }
    // The kernel lets nobody look at what a process has mapped while that waits for a file system in a call that maps.
    let said = aside::ask_within(LOOKED_WITHIN + STUCK_WITHIN, || {
        let hidden = hidden::find()?;
        let wanted = Wanted { hidden, unseen, ..Wanted::new(files, Instant::now() + LOOKED_WITHIN) };
        let found = look_through(&wanted, users, inside)?;
        serde_json::to_vec(&found).map_err(|e| err!("{e}"))
    })?;
    let said = said.ok_or_else(|| takes_too_long("one of them waits in the kernel"))?;
    serde_json::from_slice(&said).map_err(|e| err!("what is known of other processes: {e}"))
}

/// Does what [`had_by_other`] does.
fn look_through(wanted: &Wanted<'_>, users: &Users, inside: impl Fn(i32) -> bool) -> Result<Option<Had>> {
    let mut perhaps = None;
    for pid in processes::all()?.into_iter().filter(|pid| !inside(*pid)) {
        if let Some((path, how)) = had_by(&processes::dir_of(pid), wanted, users)? {
            let (text, hidden) = match how {
                How::Shares => ("shares".to_owned(), false),
                How::MayShare => ("may share, whom this user may not look at".to_owned(), false),
                How::Hidden(hidden) => {
                    (format!("may share, which /proc hides from this user ({})", hidden.option()), true)
                }
            };
            let had = Had { path, how: format!("process {pid} {text}"), hidden };
            if !hidden {
                return Ok(Some(had));
            }
            perhaps.get_or_insert(had);
        }
    }
    // Of the user's own processes are hidden those that may not be traced: as sshd's, agents for keys and `rt`'s own for a moment. That one
    // has a program's memory is so seldom that for hidepid=2, which many sites have, they are no reason to refuse.
    let who = match (wanted.hidden.filter(|_| wanted.unseen == Unseen::Have), users) {
        (Some(Hidden::Processes | Hidden::Untraceable), Users::All) => Some("a process".to_owned()),
        (Some(Hidden::Untraceable), Users::Of(_)) => hidden::own()?.map(|pid| format!("process {pid}")),
        _ => None,
    };
    if let (Some(who), Some(hidden)) = (who, wanted.hidden) {
        let how = format!("{who} may share, which /proc hides from this user ({})", hidden.option());
        perhaps.get_or_insert(Had { path: wanted.first(), how, hidden: true });
    }
    Ok(perhaps)
}

/// That there is no time left to look through all processes, and why.
fn takes_too_long(why: &str) -> Error {
    let seconds = LOOKED_WITHIN.as_secs();
    let text =
        format!("to look for the program's memory in all processes takes more than {seconds} s: {why}");
    Error::from_parts(text, Some(libc::ETIMEDOUT))
        .hint("end that process, or give the program a /dev/shm of its own: --ipc private")
}

/// Files that are looked for among those of all processes.
struct Wanted<'a> {
    /// Their paths, by the inode and the device, as procfs writes them.
    files: BTreeMap<&'a str, BTreeMap<&'a str, &'a str>>,
    /// When it has to be done.
    end: Instant,
    /// What the procfs hides, and what is taken of that.
    hidden: Option<Hidden>,
    unseen: Unseen,
}

/// How a process has a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Shares,
    /// It may not be looked at, and has used shared memory.
    MayShare,
    /// Even the latter is hidden.
    Hidden(Hidden),
}

impl<'a> Wanted<'a> {
    fn new(files: &[&'a [String; 3]], end: Instant) -> Self {
        let mut by_inode: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for [device, inode, path] in files {
            by_inode.entry(inode.as_str()).or_default().insert(device.as_str(), path.as_str());
        }
        Wanted { files: by_inode, end, hidden: None, unseen: Unseen::Have }
    }

    fn find(&self, device: &str, inode: &str) -> Option<(String, How)> {
        self.files.get(inode)?.get(device).map(|path| ((*path).to_owned(), How::Shares))
    }

    /// The path of one.
    fn first(&self) -> String {
        self.files.values().flat_map(BTreeMap::values).next().copied().unwrap_or_default().to_owned()
    }

    /// Fails where there is no time left. `dir` is that of the process that is looked at.
    fn check_time(&self, dir: &Path) -> Result<()> {
        match Instant::now() > self.end {
            true => Err(takes_too_long(&format!("{} has not been looked through then", dir.display()))),
            false => Ok(()),
        }
    }
}

/// Which of the files the process with this directory in procfs has mapped or open. One that may not be looked at is another user's, who
/// may not open what is `users`' alone, or ends.
///
/// What the process has open may be served by its user, who can leave a question without an answer for ever. So no file system is asked:
/// procfs tells the inode (since Linux 5.14) and the mount, and the table of mounts the device.
fn had_by(dir: &Path, wanted: &Wanted<'_>, users: &Users) -> Result<Option<(String, How)>> {
    wanted.check_time(dir)?;
    let shown = || format!("look at {}", dir.display());
    let maps = match processes::maps_of(dir) {
        Err(e) if has_ended(&e) => return Ok(None),
        Err(e) if may_not(&e) || e.is(libc::E2BIG) => {
            return Ok(may_share(dir, wanted, users)?.map(|how| (wanted.first(), how)));
        }
        maps => maps.context(shown)?,
    };
    for mapped in mapped_in(&String::from_utf8_lossy(&maps)) {
        wanted.check_time(dir)?;
        if let Some(had) = wanted.find(mapped.device, mapped.inode) {
            return Ok(Some(had));
        }
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let links = match fs::open(dir.join("fd"), flags, Mode::empty()).and_then(fs::Dir::new) {
        Err(e) if has_ended(&e.into()) || may_not(&e.into()) => return Ok(None),
        links => links.context(shown)?,
    };
    let mut mounts = None;
    for link in links {
        wanted.check_time(dir)?;
        let link = match link {
            Err(e) if has_ended(&e.into()) => break,
            link => link.context(shown)?,
        };
        let name = OsStr::from_bytes(link.file_name().to_bytes());
        let (path, info) = (dir.join("fd").join(name), dir.join("fdinfo").join(name));
        let target = match fs::readlink(&path, Vec::new()) {
            // The last is said of the directory itself.
            Err(Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM | Errno::INVAL) => continue,
            target => target.context(|| format!("look at {}", path.display()))?,
        };
        // What has no path is no file in memory, and can have a long text there.
        if !target.to_bytes().starts_with(b"/") {
            continue;
        }
        let Some(info) = beginning_of(&info)? else { continue };
        let field = |key: &str| info.lines().find_map(|line| Some(line.strip_prefix(key)?.trim()));
        let inode = field("ino:");
        if inode.is_some_and(|inode| !wanted.files.contains_key(inode)) {
            continue;
        }
        let mounts = match &mut mounts {
            Some(mounts) => mounts,
            None => mounts.insert(devices_of(dir, wanted)?),
        };
        let device = field("mnt_id:").and_then(|id| mounts.get(&id.parse().ok()?).copied());
        let found = match (device, inode) {
            (Some(device), Some(inode)) => wanted.find(&reach::device_number(device), inode),
            // The mount is the kernel's own, or in no table.
            _ => match fd::known_identity(&path) {
                Err(Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM) => continue,
                known => {
                    let (device, inode) = known.context(|| format!("look at {}", path.display()))?;
                    wanted.find(&reach::device_number(device), &inode.to_string())
                }
            },
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn has_ended(e: &Error) -> bool {
    [libc::ENOENT, libc::ESRCH].into_iter().any(|errno| e.is(errno))
}

fn may_not(e: &Error) -> bool {
    [libc::EACCES, libc::EPERM].into_iter().any(|errno| e.is(errno))
}

/// The first lines of a file of procfs; `None` where what it is of has ended, or may not be looked at.
fn beginning_of(path: &Path) -> Result<Option<String>> {
    let mut text = [0; 1024];
    let read = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|file| rustix::io::read(&file, &mut text));
    match read.map_err(Error::from) {
        Err(e) if has_ended(&e) || may_not(&e) => Ok(None),
        read => {
            let read = read.context(|| format!("read {}", path.display()))?;
            Ok(Some(String::from_utf8_lossy(&text[..read]).into_owned()))
        }
    }
}

/// The devices of the mounts of a process, by their ids; none where it has ended.
fn devices_of(dir: &Path, wanted: &Wanted<'_>) -> Result<BTreeMap<u64, u64>> {
    let mut devices = BTreeMap::new();
    let read = mount::each_in(dir, |id, device| {
        devices.insert(id, device);
        wanted.check_time(dir)
    });
    match read {
        // The last is said of one that has no mount namespace any more.
        Err(e) if has_ended(&e) || may_not(&e) || e.is(libc::EINVAL) => Ok(BTreeMap::new()),
        Err(e) if e.is(libc::ETIMEDOUT) => Err(e),
        read => read.context(|| format!("look at the mounts of {}", dir.display())).map(|()| devices),
    }
}

/// Whether a process that may not be looked at may have memory of `users`: it is theirs, and has used shared memory (RssShmem,
/// proc_pid_status(5)). Those that log users in, and inits of `rt`'s, have not.
///
/// With hidepid=1 procfs tells its effective user alone. Root's has more than the user asked for.
fn may_share(dir: &Path, wanted: &Wanted<'_>, users: &Users) -> Result<Option<How>> {
    let shown = || format!("look at {}", dir.display());
    let status = match fd::read_file(&dir.join("status")) {
        Err(e) if has_ended(&e) => return Ok(None),
        Err(e) if may_not(&e) => {
            let stat = match fs::stat(dir) {
                Err(Errno::NOENT | Errno::SRCH) => return Ok(None),
                stat => stat.context(shown)?,
            };
            // As for hidepid=2, of the user's own none counts.
            let may = matches!(users, Users::All) && users.has_one_of(&[stat.st_uid]);
            let counts = may && wanted.unseen == Unseen::Have;
            return Ok(counts.then(|| How::Hidden(wanted.hidden.unwrap_or(Hidden::Content))));
        }
        status => Status(status.context(shown)?),
    };
    let has_used = || status.text("RssShmem").is_some_and(|used| !used.starts_with("0 "));
    Ok((users.have(&status)? && has_used()).then_some(How::MayShare))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt_sys::disk;
    use rustix::fd::AsFd;
    use std::fs::File;

    /// Which of the `files`, with their paths, this process has.
    fn had(files: &[(&File, &str)], end: Instant) -> Result<Option<(String, How)>> {
        let numbers = |file: &File| {
            let stat = fd::stat(file).unwrap();
            [reach::device_number(stat.st_dev), stat.st_ino.to_string()]
        };
        let files: Vec<[String; 3]> = files
            .iter()
            .map(|(file, path)| {
                let [device, inode] = numbers(file);
                [device, inode, (*path).to_owned()]
            })
            .collect();
        had_by(Path::new("/proc/self"), &Wanted::new(&files.iter().collect::<Vec<_>>(), end), &Users::All)
    }

    #[test]
    fn what_another_process_has_is_found() {
        let end = Instant::now() + LOOKED_WITHIN;
        // On a mount of the table, and on the kernel's own.
        let named = File::open("/proc/version").unwrap();
        let memory = File::from(fs::memfd_create("rt", fs::MemfdFlags::CLOEXEC).unwrap());
        let had_as =
            |file, path: &str| had(&[(file, path)], end).unwrap() == Some((path.to_owned(), How::Shares));
        assert!(had_as(&named, "/named"));
        assert!(had_as(&memory, "/memory"));
        // A file of that number elsewhere, and no time.
        let mut stat = fd::stat(&memory).unwrap();
        stat.st_dev += 1;
        let other = [reach::device_number(stat.st_dev), stat.st_ino.to_string(), "/other".to_owned()];
        assert_eq!(had_by(Path::new("/proc/self"), &Wanted::new(&[&other], end), &Users::All).unwrap(), None);
        let error = had(&[(&memory, "/memory")], Instant::now() - Duration::from_millis(1)).unwrap_err();
        assert!(error.is(libc::ETIMEDOUT), "{error}");
        assert!(
            error.to_string().contains("s: /proc/self has not been looked through then (end "),
            "{error}"
        );
    }

    #[test]
    fn devices_are_those_of_mounts() {
        let end = Instant::now() + LOOKED_WITHIN;
        let root = File::open("/proc").unwrap();
        let id = disk::mount_id(root.as_fd()).unwrap();
        let devices = devices_of(Path::new("/proc/self"), &Wanted::new(&[], end)).unwrap();
        assert_eq!(devices.get(&id), Some(&fd::stat(&root).unwrap().st_dev));
    }
}
