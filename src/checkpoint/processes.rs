//! The processes of a container as procfs shows them: which of them belong to the program, and by which numbers they are known
//! inside.

use rt_sys::error::{Context, Error, Result};
use rt_sys::ns::{self, IdMap};
use rt_sys::{bail, err, fd, look, process};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A process.
#[derive(Debug, Clone)]
pub(super) struct Process {
    /// Its number here.
    pub pid: i32,
    /// Its number in its own PID namespace.
    pub inside: i32,
    /// That of its parent here; 0 where it cannot be seen.
    pub parent: i32,
    /// Its name (comm).
    pub name: String,
    /// Its state, a letter of proc_pid_status(5).
    pub state: char,
    /// It has no memory any more: it is closing its files, or its parent has not waited for it yet.
    pub ends: bool,
    /// Who traces it; 0 for nobody.
    pub tracer: i32,
    /// Its session's number inside.
    pub session: i32,
    /// The highest number by which it, its group, its session and its threads are known inside.
    pub highest: i32,
    /// How many seccomp filters its threads have, the fewest and the most.
    pub filters: (i32, i32),
}

impl Process {
    /// Reads process `pid`; `None` where it has ended.
    pub(super) fn read(pid: i32) -> Result<Option<Process>> {
        let Some(main) = Status::read(&format!("/proc/{pid}/status"))? else { return Ok(None) };
        let inside = main.last("NSpid")?;
        // Its parent has waited for it since the file was opened.
        if inside == 0 {
            return Ok(None);
        }
        let mut process = Process {
            pid,
            inside,
            parent: main.last("PPid")?,
            name: main.text("Name").unwrap_or_default(),
            state: main.text("State").and_then(|text| text.chars().next()).unwrap_or('?'),
            ends: main.text("VmSize").is_none(),
            tracer: main.last("TracerPid")?,
            session: main.last("NSsid")?,
            highest: main.last("NSpgid")?.max(main.last("NSsid")?),
            filters: (main.filters()?, main.filters()?),
        };
        for thread in threads(pid)? {
            let Some(status) = Status::of_thread(pid, thread)? else { continue };
            process.highest = process.highest.max(status.last("NSpid")?);
            let (fewest, most) = process.filters;
            process.filters = (fewest.min(status.filters()?), most.max(status.filters()?));
        }
        Ok(Some(process))
    }

    /// As errors name it.
    pub(super) fn shown(&self) -> String {
        format!("process {} ({})", self.inside, self.name)
    }

    /// True for one that waits for its parent alone, or is being removed.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Its user ids, that for files the last one; none where it has ended.
    pub(super) fn users(&self) -> Result<Vec<u32>> {
        Status::of_thread(self.pid, self.pid)?.map_or(Ok(Vec::new()), |status| status.numbers("Uid"))
    }

    /// What the kernel asks when it uses a file.
    pub(super) fn rights(&self) -> Result<Rights> {
        let status =
            Status::of_thread(self.pid, self.pid)?.ok_or_else(|| err!("{} has ended", self.shown()))?;
        let (uids, gids) = (status.numbers("Uid")?, status.numbers("Gid")?);
        let (Some(&uid), Some(&gid)) = (uids.last(), gids.last()) else {
            bail!("a file status of /proc has no ids");
        };
        Ok(Rights { uids, uid, gid, groups: status.numbers("Groups")?, caps: status.mask("CapEff")? })
    }

    /// Its directory in procfs.
    pub(super) fn dir(&self) -> PathBuf {
        dir_of(self.pid)
    }
}

/// The ids and capabilities of a process that count for files (credentials(7)).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rights {
    /// All user ids.
    pub uids: Vec<u32>,
    /// That for files.
    pub uid: u32,
    /// That for files.
    pub gid: u32,
    pub groups: Vec<u32>,
    pub caps: rt_sys::caps::Mask,
}

/// What is mapped, as a line of proc_pid_maps(5) has it.
pub(super) struct Mapped<'a> {
    /// Where it begins, and what is behind its end.
    pub addresses: Range<u64>,
    /// What is written there goes to the file. The process can have it made writable where it is not (mprotect(2)).
    pub is_shared: bool,
    /// Where in the file it begins.
    pub offset: u64,
    /// All of the line that says which file it is, and not where.
    pub file: &'a str,
    /// The device, two numbers in hexadecimal.
    pub device: &'a str,
    /// The inode; 0 where it is no file.
    pub inode: &'a str,
    /// The path, also of what has none in a file system.
    pub path: &'a str,
}

/// How long what the kernel says of a process's memory may be, in bytes: how many mappings there are, and how long the paths of their
/// files, lies with the program.
const MOST_OF_MAPS: u64 = 64 << 20;

/// The file maps of the process with the directory `dir` in procfs.
///
/// # Errors
/// Those of open(2) and read(2). E2BIG: it is too long.
pub(super) fn maps_of(dir: &Path) -> Result<Vec<u8>> {
    let mut maps = Vec::new();
    File::open(dir.join("maps"))?.take(MOST_OF_MAPS).read_to_end(&mut maps)?;
    match maps.len() as u64 == MOST_OF_MAPS {
        true => Err(Error::from_errno(libc::E2BIG)),
        false => Ok(maps),
    }
}

/// What the lines of `text`, a file maps of procfs, say.
pub(super) fn mapped_in(text: &str) -> impl Iterator<Item = Mapped<'_>> {
    text.lines().filter_map(|line| {
        // Behind addresses, permissions and the place in the file.
        let file = line.splitn(4, ' ').nth(3)?;
        let mut place = line.split(' ');
        let (start, end) = place.next()?.split_once('-')?;
        let permissions = place.next()?;
        let is_shared = permissions.ends_with('s');
        let address = |text| u64::from_str_radix(text, 16).ok();
        let offset = address(place.next()?)?;
        let mut fields = file.splitn(3, ' ');
        let (device, inode) = (fields.next()?, fields.next()?);
        let path = fields.next().unwrap_or_default().trim_start();
        let addresses = address(start)?..address(end)?;
        Some(Mapped { addresses, is_shared, offset, file, device, inode, path })
    })
}

/// The directory of process `pid` in procfs.
pub(super) fn dir_of(pid: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// The numbers of all processes that this one's /proc shows.
pub(super) fn all() -> Result<Vec<i32>> {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse().ok();
    Ok(look::entries("/proc")?.iter().filter_map(number).collect())
}

/// The threads of process `pid`; none where it has ended.
pub(super) fn threads(pid: i32) -> Result<Vec<i32>> {
    match look::entries(format!("/proc/{pid}/task")) {
        Err(e) if e.is(libc::ENOENT) || e.is(libc::ESRCH) => Ok(Vec::new()),
        entries => Ok(entries?.iter().filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect()),
    }
}

/// The children of process `pid`; none where it has ended.
fn children(pid: i32) -> Result<Vec<i32>> {
    let proc = fd::open_proc()?;
    let mut found = Vec::new();
    for thread in threads(pid)? {
        match process::children(&proc, &format!("{pid}/task/{thread}")) {
            Err(e) if e.is(libc::ENOENT) || e.is(libc::ESRCH) => {}
            children => found.extend(children?),
        }
    }
    Ok(found)
}

/// The user ids and the group ids that a process has inside its user namespace: of each range the first, and how many there are.
pub(super) fn ids_of(dir: &Path) -> Result<Vec<Vec<[u32; 2]>>> {
    let maps = ns::maps_of(dir)?;
    let ranges = |maps: &[IdMap]| maps.iter().map(|map| [map.container, map.size]).collect();
    Ok(vec![ranges(&maps.uid), ranges(&maps.gid)])
}

/// All user ids of the threads of `tree`, those saved and those for files among them.
pub(super) fn users_of(tree: &Tree) -> Result<BTreeSet<u32>> {
    let mut users = BTreeSet::new();
    for process in &tree.processes {
        for thread in threads(process.pid)? {
            if let Some(status) = Status::of_thread(process.pid, thread)? {
                users.extend(status.numbers("Uid")?);
            }
        }
    }
    Ok(users)
}

/// The text of a file `status` of procfs.
pub(super) struct Status(pub Vec<u8>);

impl Status {
    /// Reads the file at `path`; `None` where its process or thread has ended.
    fn read(path: &str) -> Result<Option<Status>> {
        match fd::read_file(Path::new(path)) {
            Err(e) if e.is(libc::ENOENT) || e.is(libc::ESRCH) => Ok(None),
            text => text.context(|| format!("read {path}")).map(|text| Some(Status(text))),
        }
    }

    /// That of `thread` of process `pid`; `None` where it has ended.
    pub(super) fn of_thread(pid: i32, thread: i32) -> Result<Option<Status>> {
        Self::read(&format!("/proc/{pid}/task/{thread}/status"))
    }

    /// What stands behind `key` and a colon.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        let mut lines = self.0.split(|byte| *byte == b'\n').map(String::from_utf8_lossy);
        lines.find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim().to_owned()))
    }

    /// The last number behind `key`: of a list of namespaces the innermost.
    pub(super) fn last(&self, key: &str) -> Result<i32> {
        let text = self.text(key);
        let number = text.as_deref().and_then(|text| text.split_whitespace().last()?.parse().ok());
        number.ok_or_else(|| err!("a file status of /proc has no number {key}"))
    }

    /// How many seccomp filters there are. Linux tells since 5.9, as which criu needs one, too (proc_pid_status(5)).
    ///
    /// # Errors
    /// It is the strict mode, which knows no filters.
    pub(super) fn filters(&self) -> Result<i32> {
        match self.last("Seccomp")? {
            0 => Ok(0),
            2 => self.last("Seccomp_filters"),
            mode => bail!("a process is in mode {mode} of seccomp(2), which rt does not keep"),
        }
    }

    /// All numbers behind `key`.
    pub(super) fn numbers(&self, key: &str) -> Result<Vec<u32>> {
        let numbers = self.text(key).map(|text| text.split_whitespace().map(str::parse).collect());
        numbers.and_then(Result::ok).ok_or_else(|| err!("a file status of /proc has no numbers {key}"))
    }

    /// The mask behind `key`.
    pub(super) fn mask(&self, key: &str) -> Result<u64> {
        let mask = self.text(key).and_then(|text| u64::from_str_radix(&text, 16).ok());
        mask.ok_or_else(|| err!("a file status of /proc has no mask {key}"))
    }
}

/// The program's process and all that come from it.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    /// The program's first.
    pub processes: Vec<Process>,
}

impl Tree {
    /// Finds the tree of the program `root` among the processes `all` of a container, whose first process is `first`.
    ///
    /// # Errors
    /// The container has processes that are not the program's: an image of them would be none.
    pub(super) fn find(all: &[i32], first: i32, root: i32) -> Result<Tree> {
        let mut known = BTreeMap::new();
        for pid in all {
            known.extend(Process::read(*pid)?.map(|process| (*pid, process)));
        }
        let mut processes: Vec<Process> = Vec::new();
        let mut next = vec![root];
        while let Some(pid) = next.pop() {
            let Some(process) = known.remove(&pid) else { continue };
            next.extend(known.values().filter(|child| child.parent == pid).map(|child| child.pid));
            processes.push(process);
            // One that has ended has no mount namespace any more, by which it would be the container's. criu makes it again.
            for child in children(pid)?.into_iter().filter(|child| !known.contains_key(child)) {
                processes.extend(Process::read(child)?.filter(Process::has_ended));
            }
        }
        if processes.is_empty() {
            bail!("the program has ended");
        }
        if let Some(other) = known.values().find(|process| process.pid != first) {
            return Err(err!("{} is none of the program's", other.shown())
                .hint("rt exec has started it, or its parent has ended: end it first"));
        }
        Ok(Tree { processes })
    }

    /// The program.
    pub(super) fn program(&self) -> &Process {
        &self.processes[0]
    }

    /// The process that the container's caller has given its processors: `rt`'s init, or the program where that was the first.
    pub(super) fn init(&self) -> i32 {
        let program = self.program();
        if program.inside == 1 { program.pid } else { program.parent }
    }

    /// The highest number that the tree needs inside.
    pub(super) fn highest(&self) -> i32 {
        self.processes.iter().map(|process| process.highest.max(process.inside)).max().unwrap_or(0)
    }
}

/// The only child of `first`, which is an init of `rt`'s own.
pub(super) fn child_of(all: &[i32], first: i32) -> Result<i32> {
    for pid in all {
        // The process has ended meanwhile, or it is the program: the oldest child, as orphans come later.
        if let Some(process) = Process::read(*pid)?
            && process.parent == first
        {
            return Ok(process.pid);
        }
    }
    bail!("the program has ended")
}
