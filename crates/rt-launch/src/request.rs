//! What the environment of a Slurm step asks of its container: the variables `RT_CONTAINER_*`, whose values are written as
//! the options of pyxis are.

use crate::job_environment::JobEnvironment;
use crate::task::TaskId;
use oci_spec::runtime::{LinuxNamespaceType, Mount};
use rt_spec::asked_mounts;
use rt_spec::environment::REQUEST_PREFIX as PREFIX;
use rt_spec::mounts::clean;
use rt_sys::error::{Error, Result};
use rt_sys::{bail, err, look};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// The variables that name TmpFS, and another directory for layers.
const TMPFS_VARIABLE: &str = "RT_CONTAINER_TMPFS";
const LAYERS: &str = "RT_CONTAINER_LAYERS";

/// TmpFS where slurm.conf(5) names none.
const TMPFS: &str = "/tmp";

/// The variable that names the image.
pub const IMAGE: &str = "RT_CONTAINER_IMAGE";

/// The variable in which Slurm says how many tasks a step has on all nodes.
pub const STEP_TASKS: &str = "SLURM_STEP_NUM_TASKS";

/// The variable with the program's name, where something else stands in its place.
pub const ARGV0: &str = "RT_CONTAINER_ARGV0";

/// What a step asks of its container.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepContainer {
    /// The image.
    pub image: Option<Image>,
    /// What the image was found to be: a bundle or a file, absolute.
    pub resolved: Option<PathBuf>,
    /// Mounts, in order.
    pub mounts: Vec<Mount>,
    /// Destinations of mounts that are not to be.
    pub unmounted: Vec<PathBuf>,
    /// The directory to start in, absolute.
    pub workdir: Option<PathBuf>,
    /// The container's name, where it is to outlive the step.
    pub name: Option<Name>,
    /// The image file that the container's root is written to when it has ended, absolute.
    pub save: Option<PathBuf>,
    /// The caller's home is mounted, or is not.
    pub home: Option<bool>,
    /// The caller is root inside, or itself.
    pub as_root: Option<bool>,
    /// The image's entrypoint is run before the first program.
    pub entrypoint: bool,
    /// What the entrypoint prints is shown.
    pub entrypoint_log: bool,
    /// The root can be written, or cannot.
    pub writable: Option<bool>,
    /// Variables whose values are the caller's, whatever the image says.
    pub env: Vec<String>,
    /// Namespaces of the container's own.
    pub unshare: Vec<LinuxNamespaceType>,
    /// The registry is asked although the store has the image.
    pub ask_registry: bool,
    /// An image that is a file is started from a copy on the node.
    pub broadcast: bool,
    /// Where the program's checkpoints are, absolute; `%j` is the job's number.
    pub checkpoint: Option<PathBuf>,
    /// The program's name.
    pub program: Option<String>,
    /// The step's number.
    pub step: Option<u32>,
    /// How many tasks the step has on this node, where that is known.
    pub tasks: Option<usize>,
    /// What the container is of lies in a directory of the job's own, which Slurm empties as soon as the job ends.
    pub in_jobs_own: bool,
    /// TmpFS of the node, where it is known.
    pub(crate) tmpfs: Option<PathBuf>,
    /// Where the site wants layers elsewhere.
    pub(crate) layers: Option<PathBuf>,
}

/// An image, as users of pyxis name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Image {
    /// A path of a bundle or of an image file.
    Path(PathBuf),
    /// A name for `rt pull`; it may be that of a file, too.
    Name(String),
}

/// The name of a container that outlives its step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The name, as the user gave it.
    pub name: String,
    /// What is done where there is one of that name, and where there is none.
    pub mode: Mode,
    /// It is there for all jobs, until it is removed, and not for one job.
    pub global: bool,
}

/// What is done with a container of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It is joined where it runs, used where it is, and made where it is not.
    Auto,
    /// It is made, and must not be there.
    Create,
    /// It is joined, and must run.
    Exec,
    /// It is used or made, and not joined.
    NoExec,
}

impl StepContainer {
    /// True where what is written to the root is kept: under a name, or in an image.
    pub fn keeps_root(&self) -> bool {
        self.name.is_some() || self.save.is_some()
    }

    /// Reads the variables by `variable`. One that is empty is none. Relative paths are below the directory of the
    /// submission, or `here`.
    pub fn read(variable: &dyn Fn(&str) -> Option<String>, here: &Path) -> Result<Self> {
        let get = |name: &str| variable(name).filter(|value| !value.is_empty());
        let within = |name: &str, e: Error| e.context(name);
        let base = get("RT_CONTAINER_SUBMIT_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
        let base = base.unwrap_or_else(|| here.to_owned());
        let switch = |name: &str| get(name).map(|text| is_on(&text).map_err(|e| within(name, e))).transpose();
        let mut asked = StepContainer {
            image: get("RT_CONTAINER_IMAGE")
                .map(|text| image(&text, &base))
                .transpose()
                .map_err(|e| within("RT_CONTAINER_IMAGE", e))?,
            resolved: get("RT_CONTAINER_RESOLVED").map(PathBuf::from),
            workdir: get("RT_CONTAINER_WORKDIR").map(|dir| clean(&Path::new("/").join(dir)).into_owned()),
            save: get("RT_CONTAINER_SAVE")
                .map(|path| saved(&path, &base))
                .transpose()
                .map_err(|e| within("RT_CONTAINER_SAVE", e))?,
            home: switch("RT_CONTAINER_MOUNT_HOME")?,
            as_root: switch("RT_CONTAINER_REMAP_ROOT")?,
            entrypoint: switch("RT_CONTAINER_ENTRYPOINT")? == Some(true),
            entrypoint_log: switch("RT_CONTAINER_ENTRYPOINT_LOG")? == Some(true),
            writable: switch("RT_CONTAINER_WRITABLE")?,
            ask_registry: switch("RT_CONTAINER_CACHE")? == Some(false),
            broadcast: switch("RT_CONTAINER_BROADCAST")? == Some(true),
            checkpoint: get("RT_CONTAINER_CHECKPOINT").map(|dir| clean(&base.join(dir)).into_owned()),
            program: get("RT_CONTAINER_ARGV0"),
            step: get("RT_CONTAINER_STEPID").and_then(|number| number.parse().ok()),
            tasks: get("RT_CONTAINER_TASKS").and_then(|number| number.parse().ok()),
            in_jobs_own: get("RT_CONTAINER_IN_JOBS_OWN").is_some(),
            tmpfs: directory(TMPFS_VARIABLE, variable),
            layers: directory(LAYERS, variable),
            ..Self::default()
        };
        let global = match get("RT_CONTAINER_SCOPE").as_deref() {
            None | Some("job") => false,
            Some("global") => true,
            Some(other) => {
                return Err(within("RT_CONTAINER_SCOPE", err!("{other:?} is neither job nor global")));
            }
        };
        if let Some(text) = get("RT_CONTAINER_NAME") {
            asked.name = Some(name(&text, global).map_err(|e| within("RT_CONTAINER_NAME", e))?);
        }
        if let Some(text) = get("RT_CONTAINER_ENV") {
            asked.env = variables(&text).map_err(|e| within("RT_CONTAINER_ENV", e))?;
        }
        if let Some(text) = get("RT_CONTAINER_UNSHARE") {
            asked.unshare = namespaces(&text).map_err(|e| within("RT_CONTAINER_UNSHARE", e))?;
        }
        if let Some(text) = get("RT_CONTAINER_MOUNTS") {
            for entry in text.split(',') {
                let what = || format!("{PREFIX}MOUNTS: {entry:?}");
                match mount(entry, &base).map_err(|e| e.context(what()))? {
                    MountEntry::Mount(mount) => {
                        if !asked.mounts.contains(&mount) {
                            asked.mounts.push(*mount);
                        }
                    }
                    MountEntry::Unmount(path) => asked.unmounted.push(path),
                }
            }
        }
        Ok(asked)
    }

    /// What the environment of a job asks for, which the launcher has written into a config; `None` where it asks for nothing.
    ///
    /// # Errors
    /// As of [`StepContainer::read`].
    pub fn of_job(job: &JobEnvironment) -> Result<Option<Self>> {
        if !job.has(PREFIX) {
            return Ok(None);
        }
        let here = job.get("SLURM_SUBMIT_DIR").unwrap_or("/");
        Self::read(&|name| job.get(name).map(str::to_owned), Path::new(here)).map(Some)
    }

    /// Where the checkpoints of the step `id` are, of which `ranks` says how many tasks it has on all nodes: those of a batch
    /// script are in the directory that is named, and those of a step that srun starts in one with its number there.
    ///
    /// # Errors
    /// What the step asks for, or several tasks, cannot be kept.
    pub fn checkpoints(&self, id: &TaskId, ranks: Option<&str>) -> Result<Option<PathBuf>> {
        let Some(dir) = &self.checkpoint else { return Ok(None) };
        let what = "RT_CONTAINER_CHECKPOINT";
        let others = [
            ("RT_CONTAINER_NAME", self.name.is_some()),
            ("RT_CONTAINER_SAVE", self.save.is_some()),
            ("RT_CONTAINER_ENTRYPOINT", self.entrypoint),
        ];
        if let Some((other, _)) = others.iter().find(|(_, asked)| *asked) {
            bail!("{what} and {other} exclude each other");
        }
        let dir = PathBuf::from(dir.to_string_lossy().replace("%j", &id.step.job));
        if id.is_batch_script() {
            return Ok(Some(dir));
        }
        match ranks {
            Some("1") | None => Ok(Some(dir.join(&id.step.step))),
            Some(ranks) => Err(err!("{what}: the step has {ranks} tasks")
                .hint("criu keeps none that talk to others: one task, or the batch script itself")),
        }
    }

    /// TmpFS of the node, a directory that each has for itself (slurm.conf(5)); Slurm's default where it is not known.
    pub fn tmpfs(&self) -> &Path {
        self.tmpfs.as_deref().unwrap_or(Path::new(TMPFS))
    }

    /// The directory of the node that layers are in. TmpFS may be the job's own, which Slurm empties before the job's tasks have ended.
    pub fn layers(&self) -> &Path {
        self.layers.as_deref().unwrap_or_else(|| self.tmpfs())
    }

    /// True where more is asked than an image and a program.
    pub fn changes_a_bundle(&self) -> bool {
        let rest = self.clone();
        let rest = StepContainer {
            image: None,
            resolved: None,
            program: None,
            step: None,
            tasks: None,
            tmpfs: None,
            layers: None,
            broadcast: false,
            ..rest
        };
        rest != StepContainer::default()
    }

    /// Looks whether the sources of the mounts are there, and no directory where an image file is to be.
    ///
    /// # Errors
    /// For the first source that is missing. What only the container's processes may reach, or nobody, is found when it is
    /// mounted.
    pub fn check_sources(&self) -> Result<()> {
        for mount in self.mounts.iter().filter(|mount| mount.typ().as_deref() != Some("tmpfs")) {
            let Some(source) = mount.source() else { continue };
            let missing =
                |e: &std::io::Error| matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
            if std::fs::metadata(source).is_err_and(|e| missing(&e)) {
                bail!("{PREFIX}MOUNTS: source path does not exist: {}", source.display());
            }
        }
        match &self.save {
            Some(path) if look::is_dir(path)? => {
                bail!("{PREFIX}SAVE: target is a directory: {}", path.display())
            }
            _ => Ok(()),
        }
    }
}

/// What a switch says.
fn is_on(text: &str) -> Result<bool> {
    match text {
        "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        _ => bail!("{text:?} is not 1 or 0"),
    }
}

/// `[USER@][REGISTRY#]IMAGE[:TAG]`, `docker://...`, `dockerd://...`, `podman://...`, another name that `rt pull` knows, or a
/// path that begins with `/` or `.`.
pub fn image(text: &str, base: &Path) -> Result<Image> {
    if text.starts_with('/')
        || text.starts_with("./")
        || text.starts_with("../")
        || text == "."
        || text == ".."
    {
        return Ok(Image::Path(clean(&base.join(text)).into_owned()));
    }
    for (theirs, ours) in [("dockerd://", "docker-daemon:"), ("podman://", "podman:")] {
        if let Some(name) = text.strip_prefix(theirs) {
            check_name(name, text)?;
            return Ok(Image::Name(format!("{ours}{name}")));
        }
    }
    let (transport, name) = match text.strip_prefix("docker://") {
        Some(name) => ("docker://", name),
        None => ("", text),
    };
    // A digest stands behind @ too, and has no #.
    let name = match name.split_once('@') {
        Some((_, rest)) if !rest.starts_with("sha256:") && !rest.starts_with("sha512:") => rest,
        _ => name,
    };
    let name = match name.split_once('#') {
        Some((registry, image)) if registry.is_empty() || image.is_empty() => {
            bail!("{text:?} is not REGISTRY#IMAGE")
        }
        Some((registry, image)) => format!("{registry}/{image}"),
        None => name.to_owned(),
    };
    check_name(&name, text)?;
    Ok(Image::Name(format!("{transport}{name}")))
}

/// TmpFS of the node (slurm.conf(5)), as [`StepContainer::tmpfs`] has it, by `variable` alone.
pub fn tmpfs(variable: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    directory(TMPFS_VARIABLE, variable).unwrap_or_else(|| TMPFS.into())
}

/// Where layers are, as [`StepContainer::layers`] has it, by `variable` alone.
pub fn layers(variable: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    directory(LAYERS, variable).unwrap_or_else(|| tmpfs(variable))
}

fn directory(name: &str, variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    variable(name).map(PathBuf::from).filter(|dir| dir.is_absolute())
}

/// Refuses what no image is called, which `text` asks for.
fn check_name(name: &str, text: &str) -> Result<()> {
    if name.is_empty() || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        bail!("{text:?} is not the name of an image");
    }
    Ok(())
}

/// The image file that a container is saved to.
fn saved(text: &str, base: &Path) -> Result<PathBuf> {
    let path = clean(&base.join(text)).into_owned();
    if text.ends_with('/') || text.ends_with("/.") || text == "." || text == ".." {
        bail!("target is a directory: {text}");
    }
    Ok(path)
}

/// `NAME[:auto|create|exec|no_exec|job|global[+...]]`; `global` is what is true where no flag says it.
fn name(text: &str, global: bool) -> Result<Name> {
    let (name, flags) = text.split_once(':').unwrap_or((text, ""));
    let (mut mode, mut global) = (Mode::Auto, global);
    for flag in flags.split('+') {
        match flag {
            "" | "auto" => mode = Mode::Auto,
            "create" => mode = Mode::Create,
            "exec" => mode = Mode::Exec,
            "no_exec" => mode = Mode::NoExec,
            "job" => global = false,
            "global" => global = true,
            other => bail!("{other:?} is none of auto, create, exec, no_exec, job and global"),
        }
    }
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '.');
    // A job's number stands in front of it.
    if name.is_empty() || name.len() > 200 || name.starts_with('.') || !name.chars().all(good) {
        return Err(err!("{name:?} is no name of a container")
            .hint("at most 200 letters, digits, '_', '+', '-' and '.', the first not '.'"));
    }
    Ok(Name { name: name.to_owned(), mode, global })
}

/// `NAME[,NAME...]`
fn variables(text: &str) -> Result<Vec<String>> {
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    match text.split(',').find(|name| !is_name(name)) {
        Some(wrong) => bail!("{wrong:?} is no name of a variable"),
        None => Ok(text.split(',').map(str::to_owned).collect()),
    }
}

/// `net|ipc|uts[,...]`
fn namespaces(text: &str) -> Result<Vec<LinuxNamespaceType>> {
    let kind = |word: &str| match word {
        "net" => Ok(LinuxNamespaceType::Network),
        "ipc" => Ok(LinuxNamespaceType::Ipc),
        "uts" => Ok(LinuxNamespaceType::Uts),
        other => bail!("unknown namespace {other:?}: none of net, ipc and uts"),
    };
    text.split(',').map(kind).collect()
}

/// What an entry of the mounts asks for.
enum MountEntry {
    Mount(Box<Mount>),
    Unmount(PathBuf),
}

/// `SRC[:DST[:FLAG+FLAG...]]`, where SRC is a path, `tmpfs` or `umount`.
fn mount(entry: &str, base: &Path) -> Result<MountEntry> {
    let mut parts = entry.splitn(3, ':');
    let source =
        parts.next().filter(|source| !source.is_empty()).ok_or_else(|| err!("the source is missing"))?;
    let target = parts.next().unwrap_or(source);
    let flags = parts.next().unwrap_or("").split('+').filter(|flag| !flag.is_empty());
    // What enroot's words of these say is what a mount here is in any case.
    let flags: Vec<String> = flags.filter(|flag| !flag.starts_with("x-create=")).map(str::to_owned).collect();
    let is_path = |path: &str| path.starts_with(['/', '.']);
    if !is_path(source) && source != "tmpfs" && source != "umount" {
        let wrong = err!("the source is neither a path nor tmpfs or umount");
        return Err(wrong.hint("a path begins with / or ./"));
    }
    if !is_path(target) {
        return Err(err!("the target {target:?} is no path").hint("a path begins with / or ./"));
    }
    // Below the container's root, whatever directory the container starts in.
    let inside = Path::new("/").join(target);
    if inside.components().any(|part| part == Component::ParentDir) {
        bail!("the target {target:?} leads up");
    }
    let destination = clean(&inside).into_owned();
    if destination == Path::new("/") {
        bail!("the target is the root");
    }
    let shown = destination.to_str().ok_or_else(|| err!("the target is not UTF-8"))?;
    if source == "umount" {
        return match flags.first() {
            Some(flag) => bail!("umount takes no flag {flag:?}"),
            None => Ok(MountEntry::Unmount(destination)),
        };
    }
    let mount = if source == "tmpfs" {
        asked_mounts::tmpfs(&format!("{shown}:{}", flags.join(",")))?
    } else {
        let source = clean(&base.join(source)).into_owned();
        let source = source.to_str().ok_or_else(|| err!("the source is not UTF-8"))?;
        asked_mounts::path(source, shown, flags)?
    };
    Ok(MountEntry::Mount(Box::new(mount)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<StepContainer> {
        let find = |name: &str| {
            let short = name.strip_prefix(PREFIX)?;
            variables.iter().find(|(known, _)| *known == short).map(|(_, value)| (*value).to_owned())
        };
        StepContainer::read(&find, Path::new("/work/dir"))
    }

    #[test]
    fn nothing_asked_is_nothing() {
        let none = read(&[]).unwrap();
        assert_eq!(none, StepContainer::default());
        assert!(!none.changes_a_bundle());
        assert_eq!(
            read(&[("MOUNTS", ""), ("NAME", ""), ("WRITABLE", "")]).unwrap(),
            StepContainer::default()
        );
        assert!(!read(&[("IMAGE", "x"), ("ARGV0", "id")]).unwrap().changes_a_bundle());
        assert!(read(&[("WORKDIR", "/x")]).unwrap().changes_a_bundle());
    }

    #[test]
    fn images_are_named_as_in_pyxis() {
        let of = |text: &str| read(&[("IMAGE", text)]).map(|asked| asked.image.unwrap());
        let name = |text: &str| Image::Name(text.to_owned());
        let path = |text: &str| Image::Path(text.into());
        for (text, image) in [
            ("ubuntu", name("ubuntu")),
            ("ubuntu:22.04", name("ubuntu:22.04")),
            ("nvcr.io#nvidia/pytorch:22.04-py3", name("nvcr.io/nvidia/pytorch:22.04-py3")),
            ("nvcr.io/nvidia/pytorch:22.04-py3", name("nvcr.io/nvidia/pytorch:22.04-py3")),
            ("docker://ubuntu", name("docker://ubuntu")),
            ("docker://$oauthtoken@nvcr.io#a/b:1", name("docker://nvcr.io/a/b:1")),
            ("jo@ubuntu:1", name("ubuntu:1")),
            ("reg.example:5000#a/b", name("reg.example:5000/a/b")),
            ("team/x@sha256:12", name("team/x@sha256:12")),
            ("jo@reg#team/x@sha256:12", name("reg/team/x@sha256:12")),
            ("dockerd://a:1", name("docker-daemon:a:1")),
            ("podman://a", name("podman:a")),
            ("oci-archive:x.tar", name("oci-archive:x.tar")),
            ("x.sqsh", name("x.sqsh")),
            ("/a//x.sqsh", path("/a/x.sqsh")),
            ("./x.sqsh", path("/work/dir/x.sqsh")),
            ("../b", path("/work/dir/../b")),
            (".", path("/work/dir")),
        ] {
            assert_eq!(of(text).unwrap(), image, "{text}");
        }
        for wrong in ["#x", "reg#", "a b", "docker://", "jo@", "podman://", "dockerd://a b", "podman://a\t"] {
            let error = of(wrong).unwrap_err().to_string();
            assert!(error.starts_with("RT_CONTAINER_IMAGE: "), "{wrong}: {error}");
        }
        let asked = read(&[("IMAGE", "./x"), ("SUBMIT_DIR", "/home/jo")]).unwrap();
        assert_eq!(asked.image, Some(path("/home/jo/x")));
    }

    #[test]
    fn checkpoints_are_of_one_task() {
        let of = |variables: &[(&str, &str)], id: &str, ranks: Option<&str>| {
            let dir = read(variables).unwrap().checkpoints(&TaskId::parse(id).unwrap(), ranks);
            dir.map(|dir| dir.map(|dir| dir.display().to_string())).map_err(|e| e.to_string())
        };
        let (batch, step) = ("n.42.4294967291.0", "n.42.3.0");
        let asked = [("CHECKPOINT", "./ck.%j")];
        assert_eq!(of(&[("IMAGE", "x")], batch, None), Ok(None));
        assert_eq!(of(&asked, batch, Some("4")), Ok(Some("/work/dir/ck.42".to_owned())));
        assert_eq!(of(&asked, step, Some("1")), Ok(Some("/work/dir/ck.42/3".to_owned())));
        assert!(of(&asked, step, Some("4")).unwrap_err().contains("the step has 4 tasks"));
        for other in [("NAME", "x"), ("SAVE", "x.sqsh"), ("ENTRYPOINT", "1")] {
            let error = of(&[asked[0], other], batch, None).unwrap_err();
            assert!(error.contains("exclude each other"), "{error}");
        }
    }

    fn shown(mount: &Mount) -> String {
        let source = mount.source().as_ref().unwrap().display();
        let options = mount.options().as_deref().unwrap().join("+");
        format!("{source} {} {} {options}", mount.destination().display(), mount.typ().as_deref().unwrap())
    }

    #[test]
    fn mounts_are_written_as_in_pyxis() {
        for (text, expected) in [
            ("/home:/test-mnt", "/home /test-mnt bind rbind+rprivate"),
            ("/var/lib", "/var/lib /var/lib bind rbind+rprivate"),
            ("./:/mnt", "/work/dir /mnt bind rbind+rprivate"),
            ("../x/y:/mnt", "/work/dir/../x/y /mnt bind rbind+rprivate"),
            ("./data", "/work/dir/data /data bind rbind+rprivate"),
            ("/a:/mnt:ro", "/a /mnt bind rbind+ro+rro+rprivate"),
            ("/a:/mnt:", "/a /mnt bind rbind+rprivate"),
            ("/a:/mnt:unbindable+ro", "/a /mnt bind rbind+unbindable+ro+rro"),
            ("/a:/mnt:bind+x-create=file+nosuid", "/a /mnt bind bind+nosuid+rprivate"),
            ("/a b:/c d", "/a b /c d bind rbind+rprivate"),
            ("/d/x.sqsh:/data:noexec", "/d/x.sqsh /data squashfs noexec+rprivate"),
            ("tmpfs:/t", "tmpfs /t tmpfs nosuid+nodev+mode=1777"),
            ("tmpfs:/t:huge=within_size+mode=700", "tmpfs /t tmpfs nosuid+nodev+huge=within_size+mode=700"),
        ] {
            let asked = read(&[("MOUNTS", text)]).unwrap();
            assert_eq!(asked.mounts.len(), 1, "{text}");
            assert_eq!(shown(&asked.mounts[0]), expected, "{text}");
        }
        let asked = read(&[("MOUNTS", "/a:/b,./:/c,umount:/root,/a:/b,tmpfs:/t")]).unwrap();
        assert_eq!(asked.mounts.len(), 3, "the same one twice is one");
        assert_eq!(asked.unmounted, [PathBuf::from("/root")]);
    }

    #[test]
    fn wrong_mounts_are_refused() {
        for (text, why) in [
            (":", "the source is missing"),
            (":/b", "the source is missing"),
            ("/a:", "no path"),
            ("/a:/b,", "the source is missing"),
            ("/a:/b,,/c", "the source is missing"),
            ("/a:b", "\"b\" is no path"),
            ("a:/b", "neither a path"),
            ("devpts:/b", "neither a path"),
            ("tmpfs", "\"tmpfs\" is no path"),
            ("umount", "\"umount\" is no path"),
            ("umount:/b:ro", "takes no flag"),
            ("/a:../b", "leads up"),
            ("/a:/b/../../c", "leads up"),
            ("../b", "leads up"),
            ("/a:/", "the root"),
            ("/a:./", "the root"),
            ("/a:/b:fly", "fly"),
            ("/a:/b:ro:rw", "ro:rw"),
            ("/a:/b:x-detach", "x-detach"),
        ] {
            let error = read(&[("MOUNTS", text)]).unwrap_err().to_string();
            assert!(error.starts_with("RT_CONTAINER_MOUNTS: ") && error.contains(why), "{text}: {error}");
        }
        let asked = read(&[("MOUNTS", "/:/b,/not/there:/c")]).unwrap();
        let error = asked.check_sources().unwrap_err().to_string();
        assert_eq!(error, "RT_CONTAINER_MOUNTS: source path does not exist: /not/there");
    }

    #[test]
    fn names_have_a_mode_and_a_scope() {
        let of = |text: &str| read(&[("NAME", text)]).map(|asked| asked.name.unwrap());
        for (text, mode) in [
            ("x", Mode::Auto),
            ("x:", Mode::Auto),
            ("x:auto", Mode::Auto),
            ("x:create", Mode::Create),
            ("x:exec", Mode::Exec),
            ("x:no_exec", Mode::NoExec),
        ] {
            assert_eq!(of(text).unwrap(), Name { name: "x".into(), mode, global: false });
        }
        let long = "a".repeat(201);
        for wrong in ["", ":exec", "/tmp/foo", "a b", ".x", "x:attach", "x:create:exec", "ä", long.as_str()]
        {
            if wrong.is_empty() {
                continue;
            }
            assert!(of(wrong).is_err(), "{wrong}");
        }
        assert!(read(&[("NAME", "x"), ("SCOPE", "global")]).unwrap().name.unwrap().global);
        assert!(read(&[("SCOPE", "node")]).unwrap_err().to_string().contains("neither job nor global"));
    }

    #[test]
    fn the_rest_is_checked() {
        let asked = read(&[
            ("WORKDIR", "/usr/local/bin"),
            ("ENV", "A,B_1"),
            ("UNSHARE", "net,uts"),
            ("WRITABLE", "0"),
            ("REMAP_ROOT", "1"),
            ("MOUNT_HOME", "no"),
            ("CACHE", "0"),
            ("STEPID", "4294967291"),
            ("SAVE", "out.sqsh"),
        ])
        .unwrap();
        assert_eq!(asked.workdir.as_deref(), Some(Path::new("/usr/local/bin")));
        assert_eq!(asked.env, ["A", "B_1"]);
        assert_eq!(asked.unshare, [LinuxNamespaceType::Network, LinuxNamespaceType::Uts]);
        assert_eq!((asked.writable, asked.as_root, asked.home), (Some(false), Some(true), Some(false)));
        assert!(asked.ask_registry);
        assert_eq!(asked.step, Some(u32::MAX - 4));
        assert_eq!(asked.save.as_deref(), Some(Path::new("/work/dir/out.sqsh")));
        assert_eq!(read(&[("WORKDIR", "../")]).unwrap().workdir.as_deref(), Some(Path::new("/..")));
        for (name, wrong) in [
            ("ENV", "A,"),
            ("ENV", "A B"),
            ("ENV", "1A"),
            ("ENV", "A=1"),
            ("UNSHARE", "pid"),
            ("UNSHARE", "net,"),
            ("WRITABLE", "maybe"),
            ("REMAP_ROOT", "2"),
            ("MOUNT_HOME", "-1"),
            ("ENTRYPOINT", "x"),
            ("ENTRYPOINT_LOG", "x"),
            ("CACHE", "x"),
            ("SAVE", "/tmp/"),
            ("SAVE", "/"),
            ("SAVE", "./"),
        ] {
            let error = read(&[(name, wrong)]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("RT_CONTAINER_{name}: ")), "{name}={wrong}: {error}");
        }
    }
}
