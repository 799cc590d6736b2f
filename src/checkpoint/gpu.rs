//! Programs on GPUs of NVIDIA.
//!
//! criu knows nothing of a device. NVIDIA's cuda-checkpoint has a process copy what is in its GPUs into its memory and close
//! them, and has it take them again. It is a program of the host that is executed as criu is, on the host: the calls of the
//! process to CUDA wait meanwhile, so that the process has to run for each of these steps.
//!
//! Which processes a checkpoint has parted from their GPUs stands in the container's record before the first of them is. Whatever
//! becomes of this call, the next `rt resume` or `rt checkpoint` gives them back.

use super::criu;
use super::preflight::{self, Descriptor};
use super::processes::{Process, Tree};
use crate::container;
use crate::store::Store;
use rt_sys::error::{Context, Error, Result};
use rt_sys::{caller, err, fd, look, output};
use rustix::fs::{self, FileType};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How the names of the driver's devices begin, which it chooses itself.
const DEVICE: &str = "/dev/nvidia";
/// Where the driver tells of its GPUs, below the root of a container.
const GPUS: &str = "proc/driver/nvidia/gpus";
/// How long a process may take to come to the end of the work that its GPUs have.
const LOCK: Duration = Duration::from_secs(10);
/// How long an answer may take beyond that. A process that is stopped meanwhile gives none.
const ANSWER: Duration = Duration::from_secs(10);
/// How long the memory of a process's GPUs may take on its way: a terabyte at 1.6 GB/s, as one was measured.
const COPY: Duration = Duration::from_secs(600);

const REMEDY: &str =
    "cuda-checkpoint of NVIDIA keeps it: name one by RT_CUDA_CHECKPOINT or checkpoint.cuda of config.toml";
const LIMITS: &str =
    "it keeps no managed memory (UVM), no MIG or MPS, and nothing that processes share (NCCL, CUDA IPC)";

/// The host's cuda-checkpoint.
#[derive(Debug, Clone)]
pub(crate) struct Cuda {
    /// Where it is.
    pub path: PathBuf,
}

/// A GPU, as the driver names it; empty what it does not say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gpu {
    /// Which one of its kind it is: `GPU-` and a UUID.
    pub uuid: String,
    /// Its kind.
    pub model: String,
}

/// What of an image was on GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gpus {
    /// The processes, by their numbers inside.
    pub processes: Vec<i32>,
    /// The GPUs that they had open.
    pub devices: Vec<Gpu>,
}

/// Processes that are parted from their GPUs for a dump.
#[derive(Debug)]
pub(super) struct Parted<'a> {
    processes: Vec<&'a Process>,
    /// What the image says of them.
    pub gpus: Gpus,
}

impl Cuda {
    /// Finds the one that the site or the caller has named, else the first in PATH, if any.
    ///
    /// # Errors
    /// What was named is no program.
    pub(crate) fn find() -> Result<Option<Cuda>> {
        Self::find_by(&rt_config::own_variable)
    }

    /// The same, where the caller's variables are `variable`.
    pub(super) fn find_by(variable: rt_config::Lookup<'_>) -> Result<Option<Cuda>> {
        let config = rt_config::Config::read(variable)?;
        let path = match config.paths(&rt_config::CUDA_CHECKPOINT).pop() {
            Some(path) => path,
            None => match criu::in_path("cuda-checkpoint")? {
                Some(path) => path,
                None => return Ok(None),
            },
        };
        if !look::is_file(&path).context(|| path.display().to_string())? {
            return Err(err!("{}: no such program", path.display()).hint(REMEDY));
        }
        Ok(Some(Cuda { path }))
    }

    /// Has it do something with `process` within `limit`, and returns what it prints.
    fn run(&self, process: &Process, args: &[&str], limit: Duration) -> Result<String> {
        let mut command = Command::new(&self.path);
        command.args(args).args(["--pid", &process.pid.to_string()]).env_clear();
        // The driver's library can lie where only this variable says.
        command.envs(caller::path("LD_LIBRARY_PATH").map(|path| ("LD_LIBRARY_PATH", path)));
        let shown = || format!("{}: {} {}", process.shown(), self.path.display(), args.join(" "));
        let printed = output::of_within(&mut command, limit).context(shown)?;
        let text = String::from_utf8_lossy(&printed.stdout).into_owned();
        if printed.status.success() {
            return Ok(text);
        }
        let errors = String::from_utf8_lossy(&printed.stderr).into_owned();
        let said = errors.lines().chain(text.lines()).map(str::trim).find(|line| !line.is_empty());
        let said = said.map_or_else(|| printed.status.to_string(), str::to_owned);
        Err(err!("{}: {said}", shown()).hint(LIMITS))
    }

    /// What the driver says of a process: running, locked, checkpointed or failed.
    fn state(&self, process: &Process) -> Result<String> {
        Ok(self.run(process, &["--get-state"], ANSWER)?.trim().to_owned())
    }

    fn lock(&self, process: &Process) -> Result<()> {
        let timeout = LOCK.as_millis().to_string();
        self.run(process, &["--action", "lock", "--timeout", &timeout], LOCK + ANSWER).map(|_| ())
    }

    fn act(&self, process: &Process, action: &str, more: &[&str]) -> Result<()> {
        self.run(process, &[&["--action", action], more].concat(), COPY).map(|_| ())
    }

    /// Gives a process its GPUs back, as far as it is parted from them. `map` says which GPUs are in the place of which.
    fn give_back(&self, process: &Process, map: Option<&str>) -> Result<()> {
        match self.state(process)?.as_str() {
            "running" => Ok(()),
            "locked" => self.act(process, "unlock", &[]),
            "checkpointed" => {
                let map = map.map(|map| ["--device-map", map]);
                self.act(process, "restore", map.as_ref().map_or(&[], |map| &map[..]))?;
                self.act(process, "unlock", &[])
            }
            other => Err(err!("{}: its GPUs are lost: cuda-checkpoint calls it {other:?}", process.shown())
                .hint("end it, and go on from an earlier checkpoint")),
        }
    }
}

impl<'a> Parted<'a> {
    /// Looks for the processes of `tree` that have GPUs open. None of them is parted from them yet.
    ///
    /// # Errors
    /// There are some, and no cuda-checkpoint.
    pub(super) fn of(tree: &'a Tree, cuda: Option<&Cuda>) -> Result<Parted<'a>> {
        let mut parted = Parted { processes: Vec::new(), gpus: Gpus::default() };
        let mut devices = BTreeMap::new();
        for process in &tree.processes {
            let descriptors = preflight::descriptors_of(process)?;
            let mut of_driver = descriptors.iter().filter(|descriptor| descriptor.text().starts_with(DEVICE));
            let Some(first) = of_driver.clone().next() else { continue };
            if cuda.is_none() {
                return Err(first.refused(&format!("the device {}", first.text()), REMEDY));
            }
            parted.processes.push(process);
            parted.gpus.processes.push(process.inside);
            of_driver.try_for_each(|descriptor| {
                devices.extend(minor_of(descriptor)?.map(|minor| (minor, ())));
                Ok::<(), Error>(())
            })?;
        }
        let named = names_in(Path::new("/"))?;
        parted.gpus.devices = devices.keys().map(|minor| named_as(*minor, &named)).collect();
        Ok(parted)
    }

    /// True where no process has a GPU.
    pub(super) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Parts the processes from their GPUs, in order; [`give_back`] undoes it. Until all of them have come to the end of what
    /// their GPUs work at, none is copied: two may wait for each other there.
    pub(super) fn part(&self, store: &Store, id: &str, cuda: Option<&Cuda>) -> Result<()> {
        let Some(cuda) = cuda.filter(|_| !self.is_empty()) else { return Ok(()) };
        for process in &self.processes {
            let state = cuda.state(process)?;
            if state != "running" {
                return Err(err!("{}: cuda-checkpoint calls it {state:?}", process.shown())
                    .hint("somebody else has parted it from its GPUs"));
            }
        }
        container::note_parted(store, id, &self.gpus.processes)?;
        self.processes.iter().try_for_each(|process| cuda.lock(process))?;
        self.processes.iter().try_for_each(|process| cuda.act(process, "checkpoint", &[]))
    }
}

impl Gpus {
    /// Finds a GPU for each that was there, among those of the container whose root is `root`: the same one, or another one of
    /// the same kind. Returns what cuda-checkpoint has to be told of it, if anything.
    ///
    /// # Errors
    /// There are too few.
    pub(super) fn map(&self, root: &Path) -> Result<Option<String>> {
        match self.is_empty() {
            true => Ok(None),
            false => mapped(&self.devices, usable_in(root)?),
        }
    }

    /// True where no process had a GPU.
    pub(super) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Gives those of a container that has just been restored to its processes, which go on.
    pub(super) fn restore(&self, store: &Store, id: &str, cuda: Option<&Cuda>) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        container::note_parted(store, id, &self.processes)?;
        let parted = parted_of(store, id)?;
        let first = parted.first().ok_or_else(|| {
            err!("the program has ended before its GPUs were given back to it")
                .hint("programs of JAX do so, and cannot be restored")
        })?;
        let map = self.map(&first.dir().join("root"))?;
        give_back_by(store, id, &parted, cuda, map.as_deref())
    }
}

/// Gives back to the processes of container `id`, which are not stopped, what a checkpoint has parted them from.
pub(super) fn give_back(store: &Store, id: &str, cuda: Option<&Cuda>) -> Result<()> {
    match store.load(id)?.parted.is_empty() {
        true => Ok(()),
        false => give_back_by(store, id, &parted_of(store, id)?, cuda, None),
    }
}

/// The processes of a container that are parted from their GPUs, as its record says.
fn parted_of(store: &Store, id: &str) -> Result<Vec<Process>> {
    let parted = store.load(id)?.parted;
    let mut processes = Vec::new();
    for pid in container::processes(store, id)? {
        processes.extend(Process::read(pid)?.filter(|process| parted.contains(&process.inside)));
    }
    Ok(processes)
}

/// The first error of a process is returned when all others have their GPUs.
fn give_back_by(
    store: &Store,
    id: &str,
    parted: &[Process],
    cuda: Option<&Cuda>,
    map: Option<&str>,
) -> Result<()> {
    let cuda = cuda.ok_or_else(|| {
        err!("container {id} waits for its GPUs, and there is no cuda-checkpoint").hint(REMEDY)
    })?;
    let given: Vec<Result<()>> = parted.iter().map(|process| cuda.give_back(process, map)).collect();
    given.into_iter().collect::<Result<()>>().and_then(|()| container::note_parted(store, id, &[]))
}

/// The number by which the driver knows the GPU that a descriptor is of; `None` for its other devices.
fn minor_of(descriptor: &Descriptor<'_>) -> Result<Option<u32>> {
    minor_at(&descriptor.path(), &descriptor.text())
}

/// The same of what is open or lies at `path`, and is called `name` inside.
fn minor_at(path: &Path, name: &str) -> Result<Option<u32>> {
    let Some(number) = name.strip_prefix(DEVICE).and_then(|number| number.parse().ok()) else {
        return Ok(None);
    };
    let stat = fs::stat(path).context(|| format!("look at {name}"))?;
    // A container may know it by another number.
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    Ok(Some(if is_device { fs::minor(stat.st_rdev) } else { number }))
}

/// The GPUs by the driver's numbers, as it tells of them below `root`.
fn names_in(root: &Path) -> Result<BTreeMap<u32, Gpu>> {
    let dirs = match look::entries(root.join(GPUS)) {
        Err(e) if e.is(libc::ENOENT) => Vec::new(),
        dirs => dirs?,
    };
    let mut named = BTreeMap::new();
    for dir in dirs {
        let path = dir.join("information");
        let text = fd::read_file(&path).context(|| format!("read {}", path.display()))?;
        named.extend(parse_information(&String::from_utf8_lossy(&text)));
    }
    Ok(named)
}

/// A file `information` of the driver's.
fn parse_information(text: &str) -> Option<(u32, Gpu)> {
    let value = |key: &str| {
        text.lines()
            .find_map(|line| Some(line.strip_prefix(key)?.trim_start().strip_prefix(':')?.trim().to_owned()))
    };
    // Before the first use of a GPU its UUID is not known to the kernel.
    let uuid = value("GPU UUID").filter(|uuid| !uuid.contains('?')).unwrap_or_default();
    Some((value("Device Minor")?.parse().ok()?, Gpu { uuid, model: value("Model").unwrap_or_default() }))
}

fn named_as(minor: u32, named: &BTreeMap<u32, Gpu>) -> Gpu {
    named.get(&minor).cloned().unwrap_or_else(|| Gpu { uuid: String::new(), model: String::new() })
}

/// The GPUs that processes of the container with the root `root` can open.
fn usable_in(root: &Path) -> Result<Vec<Gpu>> {
    let named = names_in(root)?;
    let mut usable = BTreeMap::new();
    for path in look::entries(root.join("dev"))? {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        // A directory of the driver's has such a name, too.
        if let Some(minor) = minor_at(&path, &format!("/dev/{name}"))?
            && may_open(&path)?
        {
            usable.insert(minor, named_as(minor, &named));
        }
    }
    Ok(usable.into_values().collect())
}

/// False where the device's permissions, or the cgroup's rules for devices, keep this process from it.
fn may_open(path: &Path) -> Result<bool> {
    match fs::access(path, fs::Access::READ_OK | fs::Access::WRITE_OK) {
        Ok(()) => Ok(true),
        Err(Errno::ACCESS | Errno::PERM) => Ok(false),
        Err(e) => Err(e).context(|| format!("look at {}", path.display())),
    }
}

/// The list of cuda-checkpoint that says by which of the GPUs `there` those of `wanted` are replaced; `None` where all are the
/// same, or the driver does not tell which they are.
fn mapped(wanted: &[Gpu], there: Vec<Gpu>) -> Result<Option<String>> {
    let (same, mut free): (Vec<Gpu>, Vec<Gpu>) = there.into_iter().partition(|gpu| wanted.contains(gpu));
    let mut same_left = same;
    let mut pairs = Vec::new();
    for gpu in wanted {
        let is_same = |other: &Gpu| other == gpu;
        let is_like = |other: &Gpu| gpu.model.is_empty() || other.model == gpu.model;
        let found = match same_left.iter().position(is_same) {
            Some(at) => same_left.remove(at),
            None => match free.iter().position(is_like) {
                Some(at) => free.remove(at),
                None => {
                    let kind = if gpu.model.is_empty() { "of a kind that is not known" } else { &gpu.model };
                    return Err(err!(
                        "the program had {} GPUs, and none is left here for one: {kind}",
                        wanted.len()
                    )
                    .hint("restore it where it can open as many GPUs of the same kind"));
                }
            },
        };
        pairs.push((gpu.uuid.clone(), found.uuid));
    }
    let is_known = pairs.iter().all(|(old, new)| !old.is_empty() && !new.is_empty());
    let is_other = pairs.iter().any(|(old, new)| old != new);
    let list = pairs.iter().map(|(old, new)| format!("{old}={new}")).collect::<Vec<_>>().join(",");
    Ok((is_known && is_other).then_some(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(uuid: &str, model: &str) -> Gpu {
        Gpu { uuid: uuid.to_owned(), model: model.to_owned() }
    }

    #[test]
    fn the_driver_tells_of_a_gpu() {
        let text = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 27\nGPU UUID: \t GPU-1f-2e\nDevice Minor: \t 3\n";
        assert_eq!(parse_information(text), Some((3, gpu("GPU-1f-2e", "NVIDIA H200"))));
        let unused = "Model: \t X\nGPU UUID: \t GPU-????????-????\nDevice Minor: \t 0\n";
        assert_eq!(parse_information(unused), Some((0, gpu("", "X"))));
        assert_eq!(parse_information("Model: X\n"), None);
    }

    #[test]
    fn each_gpu_gets_one_of_its_kind() {
        let (a, b, other) = (gpu("GPU-a", "X"), gpu("GPU-b", "X"), gpu("GPU-c", "Y"));
        let map = |wanted: &[&Gpu], there: &[&Gpu]| {
            let copies = |gpus: &[&Gpu]| gpus.iter().map(|gpu| (*gpu).clone()).collect::<Vec<_>>();
            mapped(&copies(wanted), copies(there)).map_err(|e| e.to_string())
        };
        assert_eq!(map(&[&a, &b], &[&b, &a, &other]), Ok(None));
        assert_eq!(map(&[&a], &[&b, &other]), Ok(Some("GPU-a=GPU-b".to_owned())));
        // One that is there itself is no other's.
        assert_eq!(map(&[&a, &b], &[&b, &gpu("GPU-d", "X")]), Ok(Some("GPU-a=GPU-d,GPU-b=GPU-b".to_owned())));
        assert!(map(&[&a], &[&other]).unwrap_err().contains("had 1 GPUs, and none is left here for one: X"));
        assert!(map(&[&a, &b], &[&a]).is_err());
        // What the driver does not name is only counted.
        let unknown = gpu("", "");
        assert_eq!(map(&[&unknown], &[&unknown]), Ok(None));
        assert_eq!(map(&[&unknown], &[&other]), Ok(None));
        assert!(map(&[&unknown, &unknown], &[&unknown]).is_err());
    }
}
