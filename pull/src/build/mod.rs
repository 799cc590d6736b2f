//! `rt build`: a Containerfile becomes an image of the store.
//!
//! | file | what it knows |
//! |---|---|
//! | `mod.rs` | the story of a build: which stages, in which order; what they take files from |
//! | `side_by_side.rs` | which stages are needed, and several of them at once |
//! | `stage.rs` | what each instruction does to a stage |
//! | `context.rs` | the directories that files are taken from |
//! | `remote.rs` | what URLs name |
//! | `copy.rs` | COPY and ADD |
//! | `inflate.rs` | what compresses an archive |
//! | `exec.rs` | RUN, as a container of `rt` |
//! | `said.rs` | what RUN says, on its way to the caller |
//! | `mount.rs` | the build's namespaces and overlays |
//! | `mount_points.rs` | what RUN lacks to mount on, and that it is in no layer |
//! | `place.rs` | layers by key, and what else stays between builds |
//! | `registry_cache.rs` | layers by key in a registry |
//! | `variables.rs` | what is taken of the caller's environment |
//! | `owners.rs` | whose the files are that the caller's one id has made |
//! | `kept_image.rs` | the layers of an image of the store, for a push |
//! | `output.rs` | a stage as an image: in the store, as an archive, a bundle or a file |
//!
//! The crate `dockerfile` reads the language.

mod context;
mod copy;
mod exec;
mod inflate;
mod kept_image;
mod mount;
mod mount_points;
mod output;
mod owners;
mod place;
mod registry_cache;
mod remote;
mod said;
mod side_by_side;
mod stage;
pub(crate) mod variables;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use dockerfile::ignore::Ignore;
use dockerfile::{Dockerfile, Instruction, Kind, words};
use serde_json::{Value, json};

pub(crate) use self::context::{Context, Named};
use self::context::{Local, MOST_IGNORED, Opened};
pub(crate) use self::kept_image::KeptImage;
use self::mount::Mounted;
pub(crate) use self::output::{Made, Output};
pub(crate) use self::owners::{is_recorded, record_owners};
pub(crate) use self::place::Place;
use self::place::{Layer, Session};
use self::registry_cache::RegistryCache;
use self::remote::Fetcher;
pub(crate) use self::remote::is_url;
use self::stage::{Base, Chain, Files, Source, Stage};
use crate::bundle;
use crate::platform::Platform;
use crate::save::{self, Compression, Times};
use oci_content::digest::Digest;
use oci_content::interrupt::{Interrupt, interrupted, is_interrupted};
use oci_registry::reference::Reference;
use oci_registry::registry::ConnectOptions;
use rt_image_store::word::changeable_by_others;
use rt_spec::emulation::RootEmulation;
use rt_sys::error::{Context as _, Error, Result};
use rt_sys::{bail, disk, err, fd};
use rustix::fs::OFlags;

/// No secret is longer (docker's bound).
const LONGEST_SECRET: usize = 500 << 10;

/// The argument, or variable of the caller's, after which nothing in the image was changed.
pub(crate) const EPOCH: &str = "SOURCE_DATE_EPOCH";
/// What is no time.
const NO_SECONDS: &str = "not a number of seconds since 1970";

/// A time that the user has named, in seconds since 1970; none where it is none that an image can have.
fn seconds(text: &str) -> Option<i64> {
    // What is in the year 10000 is no date of RFC 3339.
    text.parse().ok().filter(|seconds| (0..253_402_300_800).contains(seconds))
}

/// Nothing is built for another machine.
///
/// # Errors
/// `flag` names another platform than this one, or none.
pub(crate) fn check_platform(flag: &str, platform: &str) -> Result<()> {
    let (asked, host): (Platform, _) = (platform.parse()?, Platform::host());
    if (asked.os, asked.architecture) != (host.os, host.architecture) {
        bail!("{flag}={platform} is not supported: it is not this machine's");
    }
    Ok(())
}

/// Reads the value of --timestamp.
///
/// # Errors
/// It is no number of seconds since 1970.
pub(crate) fn timestamp(text: &str) -> Result<i64> {
    seconds(text).ok_or_else(|| err!("--timestamp {text}: {NO_SECONDS}"))
}

/// What the user asked for.
pub(crate) struct BuildOptions {
    /// What files are taken from.
    pub context: Context,
    /// `--build-context`: what names stand for.
    pub named: Vec<(String, Named)>,
    /// `--ssh`: the sockets of agents, by their ids.
    pub agents: Vec<(String, PathBuf)>,
    /// The file; by default that of the context.
    pub file: Option<PathBuf>,
    /// Which stage, by name or number.
    pub target: Option<String>,
    /// `--build-arg`, with their values.
    pub arguments: Vec<(String, String)>,
    /// `--label`
    pub labels: Vec<(String, String)>,
    /// `--annotation`
    pub annotations: Vec<(String, String)>,
    /// `--secret`
    pub secrets: Vec<Secret>,
    /// Nothing that is kept is used.
    pub no_cache: bool,
    /// `--no-cache-filter`: stages for which that is so, in small letters.
    pub no_cache_for: Vec<String>,
    /// How many stages are built at once, where the caller says it.
    pub jobs: Option<usize>,
    /// `--timestamp`: the time of all files and of the image, in seconds since 1970.
    pub timestamp: Option<i64>,
    /// How the layers of a layout or an archive are stored.
    pub compression: Compression,
    /// `--cache-from` and `--cache-to`: caches in registries.
    pub caches: Caches,
    /// `--network none`: RUN that names no network has none.
    pub no_network: bool,
    /// `--add-host`: more lines for the file of hosts that RUN sees.
    pub hosts: Vec<(String, IpAddr)>,
    /// What becomes of the owners that root gives in RUN.
    pub emulation: RootEmulation,
    /// Nothing is said but errors and warnings, and what RUN says.
    pub quiet: bool,
}

/// Caches in registries, and how to connect to them.
pub(crate) struct Caches {
    /// Where layers are taken from.
    pub from: Vec<Reference>,
    /// Where those of this build are written to.
    pub to: Vec<Reference>,
    /// How to connect.
    pub connect: ConnectOptions,
}

/// A secret that RUN may ask for.
pub(crate) struct Secret {
    /// By what it is asked for.
    pub id: String,
    /// Where its value is.
    pub from: SecretFrom,
}

/// Where the value of a secret is.
pub(crate) enum SecretFrom {
    /// Here: what a file had in it when the build began. A pipe gives it only once.
    Value(Vec<u8>),
    /// In a variable of the caller's.
    Variable(String),
}

impl Secret {
    /// Reads one from a file or a pipe.
    pub(crate) fn from_file(id: String, path: &Path) -> Result<Secret> {
        let value = read_given(path, LONGEST_SECRET).context(|| format!("secret {id:?}"))?;
        Ok(Secret { id, from: SecretFrom::Value(value) })
    }

    fn read(&self) -> Result<Vec<u8>> {
        let shown = || format!("secret {:?}", self.id);
        match &self.from {
            SecretFrom::Variable(name) => variables::of_caller(name)
                .map(String::into_bytes)
                .ok_or_else(|| err!("{}: there is no variable {name}", shown())),
            SecretFrom::Value(value) => Ok(value.clone()),
        }
    }
}

/// Gets an image into the store, and returns the path of its bundle.
pub(crate) type Fetch<'a> = dyn Fn(&str, Use, &Interrupt) -> Result<PathBuf> + Sync + 'a;

/// What a build does with an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    /// Its files are read and written over: FROM.
    Base,
    /// Single files are read: --from.
    Files,
}

/// A build.
struct Builder<'a> {
    options: &'a BuildOptions,
    file: Dockerfile,
    /// The instructions of each stage, with its FROM as the first.
    stages: Vec<&'a [Instruction]>,
    context: Arc<Local>,
    /// Contexts of other names, as far as they were opened.
    others: Mutex<HashMap<String, Arc<Local>>>,
    /// What leaves nothing out.
    nothing: Ignore,
    /// ARG before the first FROM, and what is predefined.
    globals: BTreeMap<String, String>,
    /// What the caller's environment says of proxies: RUN has it, and no key and no history.
    proxies: Vec<(String, String)>,
    /// The file of hosts for RUN, where it is not that of this machine.
    hosts: Option<PathBuf>,
    place: Place,
    // Before the session, in whose directory it is mounted: the fields go in this order.
    memory: Mounted,
    session: Session,
    interrupt: &'a Interrupt,
    fetch: &'a Fetch<'a>,
    /// When the build began.
    now: String,
    /// Which times the files in the image get.
    times: Times,
    /// When the image was made, in RFC 3339, where the caller says it.
    created: Option<String>,
    /// Stages that were built. Whoever builds one holds its lock, and takes only locks of stages before it.
    built: Vec<Mutex<Option<Stage>>>,
    /// Images that were fetched, and where they are. One is fetched at a time: a fetch has threads of its own.
    images: Mutex<HashMap<(String, Use), (PathBuf, Mounted)>>,
    /// Who makes the layer of a key holds its lock: whoever needs the same one then finds it.
    making: Mutex<HashMap<String, Arc<Mutex<()>>>>,
    used: Mutex<BTreeSet<String>>,
    /// Stages are built side by side: what their commands say has a prefix.
    has_prefixes: bool,
    /// What went wrong first.
    failure: Mutex<Option<Error>>,
    /// Caches in registries that layers are taken from.
    caches: Vec<RegistryCache>,
    /// The layers that the build has used, by their keys.
    layers: Mutex<Vec<(String, Layer)>>,
    /// How many layers were made.
    made: AtomicUsize,
    /// The stage whose base is the lowest layer of what goes into the store.
    lowest: Option<usize>,
    /// What finds out meanwhile what that base is as an archive.
    measuring: Mutex<Option<output::Measuring>>,
}

/// Of an instruction so many characters are shown.
const MOST_SHOWN: usize = 300;

/// The beginning of an instruction, on one line.
fn shown(text: &str) -> String {
    let text = rt_sys::log::one_line(text);
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// Takes a lock. What a thread that panicked has left in it is of no matter: the build ends with it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// What FROM and `--from` name.
enum From {
    Scratch,
    Stage(usize),
    Image(String),
    /// A context of this name.
    Files(String),
}

/// Builds, and makes `outputs` of the result. Returns the digest of the image's manifest.
///
/// # Errors
/// What went wrong, with the line of the file. Of the image nothing is there then; the layers that were made are kept.
pub(crate) fn build(
    options: &BuildOptions,
    outputs: &[Output],
    interrupt: &Interrupt,
    fetch: &Fetch,
) -> Result<Digest> {
    if options.context == Context::Stdin && options.file.as_deref() == Some(Path::new("-")) {
        bail!("--file -: the context is read from there");
    }
    rt_sys::process::raise_open_files();
    mount::enter()?;
    rt_sys::process::clear_umask();
    let place = Place::open()?;
    let session = place.session()?;
    let opened = context::open(&options.context, &fetcher(options, &session, interrupt))?;
    let (context, name, text) = read_file(options, opened, &session)?;
    let file = Dockerfile::parse(&text).map_err(|e| err!("{}: {e}", name.display()))?;
    let ignore = read_ignore(options, &context)?;
    let context = Arc::new(Local { root: context, ignore, shown: "the context".to_owned() });
    let memory = session.path.join("memory");
    std::fs::create_dir(&memory).context(|| format!("make {}", memory.display()))?;
    let memory = mount::memory(&memory)?;
    let hosts = exec::hosts_file(&options.hosts, memory.path())?;
    let instructions = file.instructions.clone();
    let mut builder = Builder {
        options,
        file,
        stages: stages(&instructions),
        context,
        others: Mutex::default(),
        nothing: Ignore::default(),
        globals: BTreeMap::new(),
        proxies: variables::proxies(),
        hosts,
        place,
        memory,
        session,
        interrupt,
        fetch,
        now: rt_sys::time::rfc3339(rt_sys::time::now()),
        times: Times::Own,
        created: None,
        built: Vec::new(),
        images: Mutex::default(),
        making: Mutex::default(),
        used: Mutex::default(),
        has_prefixes: false,
        failure: Mutex::default(),
        caches: registry_cache::open(&options.caches.from, &options.caches.connect, interrupt)?,
        layers: Mutex::default(),
        made: AtomicUsize::new(0),
        lowest: None,
        measuring: Mutex::default(),
    };
    builder.built.resize_with(builder.stages.len(), Mutex::default);
    builder.read_globals(&instructions).map_err(|e| e.context(name.display()))?;
    builder.read_times()?;
    let target = builder.target()?;
    if outputs.iter().any(|output| matches!(output, Output::Store(_))) {
        builder.lowest = builder.lowest_of(target);
    }
    let built = side_by_side::build(&mut builder, target).and_then(|()| builder.stage(target));
    let mut stage = built.map_err(|e| match lock(&builder.failure).take() {
        Some(failure) => failure.context(name.display()),
        None => e,
    })?;
    builder.warn_of_arguments();
    let labels = stage.config.entry("Labels").or_insert_with(|| json!({}));
    if let Value::Object(labels) = labels {
        labels.extend(options.labels.iter().map(|(name, value)| (name.clone(), json!(value))));
        if labels.is_empty() {
            stage.config.remove("Labels");
        }
    }
    let digest = output::write(&builder, &stage, outputs)?;
    for target in &options.caches.to {
        builder.tell(&format!("layers to the cache {target}"));
        registry_cache::write(&builder, target, &options.caches.connect)
            .context(|| format!("--cache-to {target}"))?;
    }
    if builder.made.load(Ordering::Relaxed) > 0 {
        builder.place.bound()?;
    }
    Ok(digest)
}

/// What fetches for a build.
fn fetcher<'a>(options: &'a BuildOptions, session: &'a Session, interrupt: &'a Interrupt) -> Fetcher<'a> {
    let agent = options.agents.iter().find(|(id, _)| id == "default").map(|(_, socket)| &**socket);
    Fetcher { session: &session.path, agent, interrupt }
}

/// The context's root and the file, and how that is called in errors. A context that is a file alone has nothing in it.
fn read_file(
    options: &BuildOptions,
    opened: Opened,
    session: &Session,
) -> Result<(OwnedFd, PathBuf, Vec<u8>)> {
    match opened {
        Opened::Files(root) => {
            let (name, text) = file_of(options, &root)?;
            Ok((root, name, text))
        }
        Opened::File(..) if options.file.is_some() => bail!("--file: the context is a file itself"),
        Opened::File(name, text) => {
            let empty = session.draft(0o755)?.join("upper");
            Ok((disk::open_root(&empty)?, name.into(), text))
        }
    }
}

/// The file, and how it is called in errors.
fn file_of(options: &BuildOptions, context: &OwnedFd) -> Result<(PathBuf, Vec<u8>)> {
    let most = dockerfile::MOST_BYTES;
    if let Some(path) = &options.file {
        let text = if path == Path::new("-") {
            let mut text = Vec::new();
            let stdin = std::io::stdin().lock();
            stdin.take(most as u64 + 1).read_to_end(&mut text).context(|| "read stdin")?;
            Some(text)
        } else {
            match options.context {
                Context::Directory(_) => Some(read_given(path, most)?),
                _ => copy::read(context.as_fd(), path, most)?,
            }
        };
        return text.map(|text| (path.clone(), text)).ok_or_else(|| err!("{}: no such file", path.display()));
    }
    for name in ["Containerfile", "Dockerfile"] {
        if let Some(text) = copy::read(context.as_fd(), Path::new(name), most)? {
            return Ok((PathBuf::from(name), text));
        }
    }
    let context = match &options.context {
        Context::Directory(path) => path.display().to_string(),
        Context::Stdin => "standard input".to_owned(),
        Context::Url(url) => url.clone(),
    };
    Err(err!("{context}: neither a Containerfile nor a Dockerfile is in it").hint("-f names another"))
}

/// All of a file that the caller has named, which can be a pipe or a device: whoever writes into it is waited for.
fn read_given(path: &Path, most: usize) -> Result<Vec<u8>> {
    let read = || -> Result<Vec<u8>> {
        let file = File::from(fd::open_named_unserved(path, OFlags::RDONLY | OFlags::NOCTTY)?);
        if file.metadata()?.is_dir() {
            bail!("a directory");
        }
        let mut text = Vec::new();
        file.take(most as u64 + 1).read_to_end(&mut text)?;
        match text.len() > most {
            true => Err(err!("longer than {} KiB", most >> 10)),
            false => Ok(text),
        }
    };
    read().context(|| path.display().to_string())
}

/// A file beside one that the caller has named: any, beside a directory; with any other context one that is in it.
fn read_named(
    options: &BuildOptions,
    context: &OwnedFd,
    path: &Path,
    most: usize,
) -> Result<Option<Vec<u8>>> {
    match options.context {
        Context::Directory(_) => {
            fd::read_if_regular_unserved(path, most).context(|| path.display().to_string())
        }
        _ => copy::read(context.as_fd(), path, most),
    }
}

/// What is left out of the context: by FILE.dockerignore beside the file, else by the context's own.
fn read_ignore(options: &BuildOptions, context: &OwnedFd) -> Result<Ignore> {
    let mut text = None;
    if let Some(path) = options.file.as_ref().filter(|path| **path != Path::new("-")) {
        let mut beside = path.clone().into_os_string();
        beside.push(".dockerignore");
        text = read_named(options, context, Path::new(&beside), MOST_IGNORED)?;
    }
    for name in ["Containerfile.dockerignore", "Dockerfile.dockerignore"]
        .into_iter()
        .filter(|_| options.file.is_none())
    {
        if text.is_none() {
            text = copy::read(context.as_fd(), Path::new(name), MOST_IGNORED)?;
        }
    }
    if text.is_none() {
        text = own_ignore(context)?;
    }
    parse_ignore(text)
}

/// What the context itself says of what is left out.
fn own_ignore(context: &OwnedFd) -> Result<Option<Vec<u8>>> {
    for name in [".containerignore", ".dockerignore"] {
        let text = copy::read(context.as_fd(), Path::new(name), MOST_IGNORED)?;
        if text.is_some() {
            return Ok(text);
        }
    }
    Ok(None)
}

fn parse_ignore(text: Option<Vec<u8>>) -> Result<Ignore> {
    Ignore::new(&String::from_utf8_lossy(&text.unwrap_or_default())).map_err(|e| err!(".dockerignore: {e}"))
}

/// The instructions of each stage.
fn stages(instructions: &[Instruction]) -> Vec<&[Instruction]> {
    let starts: Vec<usize> =
        (0..instructions.len()).filter(|at| matches!(instructions[*at].kind, Kind::From { .. })).collect();
    let end = |n: usize| starts.get(n + 1).copied().unwrap_or(instructions.len());
    starts.iter().enumerate().map(|(n, start)| &instructions[*start..end(n)]).collect()
}

impl Builder<'_> {
    /// Reads ARG before the first FROM.
    fn read_globals(&mut self, instructions: &[Instruction]) -> Result<()> {
        let platform = Platform::host();
        for prefix in ["TARGET", "BUILD"] {
            let mut set =
                |name: &str, value: &str| self.globals.insert(format!("{prefix}{name}"), value.to_owned());
            // What of x86-64 a machine has is no variant in the names of images.
            let variant = platform.variant.as_deref().filter(|_| platform.architecture.starts_with("arm"));
            let variant = variant.unwrap_or_default();
            let slash = if variant.is_empty() { "" } else { "/" };
            set("PLATFORM", &format!("{}/{}{slash}{variant}", platform.os, platform.architecture));
            set("OS", &platform.os);
            set("ARCH", &platform.architecture);
            set("VARIANT", variant);
        }
        self.globals
            .insert("TARGETSTAGE".into(), self.options.target.clone().unwrap_or_else(|| "default".into()));
        for (name, value) in &self.options.arguments {
            if variables::is_proxy(name) {
                self.proxies.retain(|(known, _)| known != name);
                self.proxies.push((name.clone(), value.clone()));
                lock(&self.used).insert(name.clone());
            }
        }
        for instruction in instructions {
            let Kind::Arg(arguments) = &instruction.kind else { break };
            for (name, default) in arguments {
                let value = match (self.argument(name), default) {
                    (Some(value), _) => Some(value),
                    (None, Some(default)) => Some(
                        self.expand_globally(default)
                            .map_err(|e| e.context(format!("line {}", instruction.line)))?,
                    ),
                    (None, None) => None,
                };
                if let Some(value) = value {
                    self.globals.insert(name.clone(), value);
                }
            }
        }
        Ok(())
    }

    /// Reads which times the image is to have: --timestamp, else the argument SOURCE_DATE_EPOCH
    /// (https://reproducible-builds.org/specs/source-date-epoch/).
    fn read_times(&mut self) -> Result<()> {
        let epoch = self.argument(EPOCH).or_else(|| self.globals.get(EPOCH).cloned());
        let time = match (self.options.timestamp, epoch.filter(|text| !text.is_empty())) {
            (Some(time), _) => {
                self.times = Times::All(time);
                time
            }
            (None, Some(text)) => {
                let time = seconds(&text).ok_or_else(|| err!("{EPOCH}={text}: {NO_SECONDS}"))?;
                self.times = Times::NotAfter(time);
                time
            }
            (None, None) => return Ok(()),
        };
        let since = Duration::from_secs(time.unsigned_abs());
        self.created = Some(rt_sys::time::rfc3339(SystemTime::UNIX_EPOCH + since));
        Ok(())
    }

    fn expand_globally(&self, text: &str) -> Result<String> {
        words::expand(text, self.file.escape, &|name| self.globals.get(name).cloned()).map_err(Error::new)
    }

    /// The value of `--build-arg`.
    fn argument(&self, name: &str) -> Option<String> {
        let value = self
            .options
            .arguments
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.clone());
        if value.is_some() {
            lock(&self.used).insert(name.to_owned());
        }
        value
    }

    fn warn_of_arguments(&self) {
        let used = lock(&self.used);
        for (name, _) in self.options.arguments.iter().filter(|(name, _)| !used.contains(name)) {
            log::warn!("--build-arg {name}: no ARG of the stages that were built has this name");
        }
    }

    fn tell(&self, text: &str) {
        if !self.options.quiet {
            crate::progress::say(text);
        }
    }

    /// Which stage is asked for.
    fn target(&self) -> Result<usize> {
        let Some(target) = &self.options.target else { return Ok(self.stages.len() - 1) };
        let by_number = || target.parse().ok().filter(|number| *number < self.stages.len());
        self.named(target, self.stages.len())
            .or_else(by_number)
            .ok_or_else(|| err!("--target {target}: no stage has this name"))
    }

    /// The last stage of that name before stage `before`.
    fn named(&self, name: &str, before: usize) -> Option<usize> {
        let wanted = name.to_ascii_lowercase();
        (0..before).rev().find(
            |at| matches!(&self.stages[*at][0].kind, Kind::From { name: Some(name), .. } if *name == wanted),
        )
    }

    /// Builds a stage, or takes it as it was built before. What it needs is built when it is asked for, so a stage that
    /// nobody needs is not.
    fn stage(&self, number: usize) -> Result<Stage> {
        let mut built = lock(&self.built[number]);
        if let Some(stage) = &*built {
            return Ok(stage.clone());
        }
        self.interrupt.check()?;
        let stage = self.make_stage(number).map_err(|e| self.failed(e))?;
        *built = Some(stage.clone());
        Ok(stage)
    }

    /// Notes what went wrong, where it is the first thing, and stops all that is done meanwhile. Returns the error of those who were
    /// stopped, so that one line names one cause.
    fn failed(&self, e: Error) -> Error {
        if is_interrupted(&e) {
            return e;
        }
        lock(&self.failure).get_or_insert(e);
        self.interrupt.stop();
        interrupted()
    }

    /// An error of an instruction, with its line.
    fn at(&self, instruction: &Instruction, e: Error) -> Error {
        match is_interrupted(&e) {
            true => e,
            false => {
                let text = shown(&instruction.text);
                e.context(format!("line {}: {text}", instruction.line))
            }
        }
    }

    fn make_stage(&self, number: usize) -> Result<Stage> {
        let [from, rest @ ..] = self.stages[number] else { bail!("stage {number} is empty") };
        let at = |instruction| move |e| self.at(instruction, e);
        let mut stage = self.begin(number, from).map_err(at(from))?;
        let (name, count) = (stage.shown.clone(), rest.len());
        let triggers = stage.take_triggers();
        for (n, trigger) in triggers.iter().enumerate() {
            self.interrupt.check()?;
            stage.shown = format!("{name}ONBUILD {}/{}", n + 1, triggers.len());
            let parsed = dockerfile::parse_instruction(trigger);
            let applied = parsed
                .map_err(|e| Error::new(e.text))
                .and_then(|instruction| stage.apply(self, &instruction));
            applied.map_err(|e| e.context(format!("ONBUILD {}", shown(trigger)))).map_err(at(from))?;
        }
        for (n, instruction) in rest.iter().enumerate() {
            self.interrupt.check()?;
            stage.shown = format!("{name}{}/{count}", n + 1);
            stage.apply(self, instruction).map_err(at(instruction))?;
        }
        stage.shown = name;
        Ok(stage)
    }

    /// What FROM names, for stage `number`.
    fn base(&self, number: usize, from: &Instruction) -> Result<From> {
        let Kind::From { image, .. } = &from.kind else { bail!("not a FROM") };
        let image = self.expand_globally(image)?;
        if image.is_empty() {
            bail!("no image: a variable of it is empty");
        }
        if image == "scratch" {
            return Ok(From::Scratch);
        }
        match self.named_context(&image) {
            Some(Named::Image(other)) => return Ok(From::Image(other.clone())),
            Some(Named::Files(_)) => {
                bail!("FROM {image}: --build-context says that it is files, and not an image")
            }
            None => {}
        }
        Ok(self.named(&image, number).map_or(From::Image(image), From::Stage))
    }

    /// The stage whose base is the lowest layer of stage `number`; none where what FROM says has an error in it.
    fn lowest_of(&self, mut number: usize) -> Option<usize> {
        while let Ok(From::Stage(earlier)) = self.base(number, &self.stages[number][0]) {
            number = earlier;
        }
        Some(number)
    }

    /// What `--from` names, in stage `number`.
    fn named_source(&self, from: &str, number: usize) -> Result<From> {
        match self.named_context(from) {
            Some(Named::Image(image)) => return Ok(From::Image(image.clone())),
            Some(Named::Files(_)) => return Ok(From::Files(from.to_owned())),
            None => {}
        }
        if let Some(earlier) = self.named(from, number) {
            return Ok(From::Stage(earlier));
        }
        if self.named(from, number + 1).is_some() {
            bail!("--from={from}: this stage itself");
        }
        match from.parse() {
            Ok(earlier) if earlier < number => Ok(From::Stage(earlier)),
            Ok(_) => bail!("--from={from}: no stage before this one has this number"),
            Err(_) => Ok(From::Image(from.to_owned())),
        }
    }

    /// What --build-context says of a name.
    fn named_context(&self, name: &str) -> Option<&Named> {
        self.options
            .named
            .iter()
            .rev()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, named)| named)
    }

    /// The files of a context of that name, which is opened once.
    fn files_named(&self, name: &str) -> Result<Arc<Local>> {
        let mut others = lock(&self.others);
        if let Some(known) = others.get(name) {
            return Ok(known.clone());
        }
        let shown = format!("the context {name}");
        let Some(Named::Files(context)) = self.named_context(name) else { bail!("{shown}: no files") };
        let Opened::Files(root) = context::open(context, &self.fetcher())? else {
            bail!("{shown}: no archive")
        };
        let ignore = parse_ignore(own_ignore(&root)?)?;
        let local = Arc::new(Local { root, ignore, shown });
        others.insert(name.to_owned(), local.clone());
        Ok(local)
    }

    fn fetcher(&self) -> Fetcher<'_> {
        fetcher(self.options, &self.session, self.interrupt)
    }

    /// The bundle of an image, which is fetched once and stays in use until the build ends.
    fn image(&self, name: &str, what_for: Use) -> Result<PathBuf> {
        let mut images = lock(&self.images);
        let key = (name.to_owned(), what_for);
        if let Some((path, _)) = images.get(&key) {
            return Ok(path.clone());
        }
        let path = (self.fetch)(name, what_for, self.interrupt)?;
        let kept = mount::keep_in_use(bundle::open(&path)?.as_fd(), &self.mount_point()?);
        let kept = kept.map_err(|e| e.context(format_args!("image {name}")))?;
        images.insert(key, (path.clone(), kept));
        Ok(path)
    }

    /// True where layers of builds before may be taken for stage `number`.
    fn uses_cache(&self, number: usize) -> bool {
        let name = match &self.stages[number][0].kind {
            Kind::From { name: Some(name), .. } => name.to_ascii_lowercase(),
            _ => number.to_string(),
        };
        !self.options.no_cache && !self.options.no_cache_for.contains(&name)
    }

    /// What keeps others from making the layer of this key.
    fn maker(&self, key: &str) -> Arc<Mutex<()>> {
        lock(&self.making).entry(key.to_owned()).or_default().clone()
    }

    fn check_platform_of(&self, from: &Instruction) -> Result<()> {
        let platform = from.flag("platform").map(|platform| self.expand_globally(platform)).transpose()?;
        platform.map_or(Ok(()), |platform| check_platform("FROM --platform", &platform))
    }

    /// What FROM says.
    fn begin(&self, number: usize, from: &Instruction) -> Result<Stage> {
        let Kind::From { name, .. } = &from.kind else { bail!("not a FROM") };
        self.check_platform_of(from)?;
        let shown = match name {
            Some(name) => format!("{name} "),
            None if self.stages.len() > 1 => format!("stage-{number} "),
            None => String::new(),
        };
        match self.base(number, from)? {
            From::Scratch => {
                let platform = Platform::host();
                let nothing = json!({ "architecture": platform.architecture, "os": "linux" });
                Ok(Stage::new(number, shown, self.chain(Base::Scratch), nothing))
            }
            From::Stage(earlier) => Ok(self.stage(earlier)?.continued(number, shown)),
            From::Image(image) => {
                let path = self.image(&image, Use::Base)?;
                let (root, config) = stored(&path)?;
                let is_ours = is_ours(&path, &root)?;
                let id = id_of_bundle(&path, is_ours)?;
                let stage = Stage::new(number, shown, self.chain(Base::Bundle { path, id, is_ours }), config);
                if self.lowest == Some(number) {
                    *lock(&self.measuring) = output::Measuring::begin(self, &stage)?;
                }
                Ok(stage)
            }
            From::Files(name) => bail!("{name}: not an image"),
        }
    }

    /// What COPY or a mount of stage `number` takes files from: the context, a stage before it, or an image.
    fn source(&self, number: usize, from: Option<&str>) -> Result<Source> {
        let Some(from) = from else {
            return Ok(Source::of_files(self.context.clone()));
        };
        match self.named_source(from, number)? {
            From::Stage(earlier) => {
                let stage = self.stage(earlier)?;
                let mounted = self.readable(&stage.chain)?;
                let root = mounted.root()?;
                let shown = format!("stage {from}");
                // The layers above its base are in the caller's own directory.
                let is_ours = !matches!(stage.chain.base, Base::Bundle { is_ours: false, .. });
                Ok(Source { shown, files: Files::Tree(root, Some(mounted)), is_ours })
            }
            From::Image(image) => {
                let path = self.image(&image, Use::Files)?;
                let (root, _) = stored(&path)?;
                let is_ours = is_ours(&path, &root)?;
                Ok(Source { shown: format!("the image {from}"), files: Files::Tree(root, None), is_ours })
            }
            From::Files(name) => Ok(Source::of_files(self.files_named(&name)?)),
            From::Scratch => bail!("--from={from}: nothing is in it"),
        }
    }

    /// A chain without layers.
    fn chain(&self, base: Base) -> Chain {
        Chain::new(base, self.caches.len())
    }

    /// The trees of a chain, the lowest first.
    fn trees(&self, chain: &Chain) -> Result<Vec<OwnedFd>> {
        let mut all = Vec::new();
        match &chain.base {
            Base::Bundle { path, .. } => all.push(stored(path)?.0),
            Base::Scratch => {
                let empty = self.memory.path().join("empty");
                // The root of the image gets its mode.
                let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&empty);
                made.context(|| format!("make {}", empty.display()))?;
                all.push(disk::open_root(&empty)?);
            }
        }
        for layer in &chain.layers {
            all.push(self.place.upper(&layer.id)?);
        }
        Ok(all)
    }

    /// The root of a stage, with a new layer over it.
    fn writable(&self, chain: &Chain) -> Result<(PathBuf, Mounted)> {
        let trees = self.trees(chain)?;
        let mode = trees.last().map_or(Ok(0o755), disk::mode)?;
        let draft = self.session.draft(mode & 0o7777)?;
        let mounted = mount::overlay(&trees, Some(&draft), &self.mount_point()?)?;
        Ok((draft, mounted))
    }

    /// The root of a stage, to be read.
    fn readable(&self, chain: &Chain) -> Result<Mounted> {
        let mut trees = self.trees(chain)?;
        if trees.len() == 1 {
            trees.splice(0..0, self.trees(&Chain::new(Base::Scratch, 0))?);
        }
        mount::overlay(&trees, None, &self.mount_point()?)
    }

    fn mount_point(&self) -> Result<PathBuf> {
        let at = self.memory.path().join(rt_sys::unique::name());
        std::fs::create_dir(&at).context(|| format!("make {}", at.display()))?;
        Ok(at)
    }
}

/// What stands for the content of the bundle `path`: its name, which has the digest of its image. What others can have changed is
/// what no name says, so what is made of it stands for nothing later.
fn id_of_bundle(path: &Path, is_ours: bool) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| err!("{}: no name", path.display()))?;
    Ok(if is_ours { name.to_owned() } else { format!("{name}-{}", rt_sys::unique::name()) })
}

/// True for a bundle that nobody but root and the caller can change.
fn is_ours(path: &Path, root: &OwnedFd) -> Result<bool> {
    Ok(changeable_by_others(path)?.is_none()
        && disk::only_ours(&bundle::open(path)?)?
        && disk::only_ours(root)?)
}

/// The root of a bundle of the store.
fn root_of(path: &Path) -> Result<OwnedFd> {
    disk::open_dir(bundle::open(path)?.as_fd(), rt_image_store::ROOT.as_bytes())
}

/// The same, and the config of its image.
fn stored(path: &Path) -> Result<(OwnedFd, Value)> {
    let (dir, word) = bundle::look(path)?;
    let root = disk::open_dir(dir.as_fd(), rt_image_store::ROOT.as_bytes())?;
    let config = match bundle::image_config(dir.as_fd(), word)? {
        Some(config) => config,
        None => {
            // Nor by a link, where others can write in the store: they would choose which file is shown.
            let text = disk::read_if_there(dir.as_fd(), b"config.json", 8 << 20)?;
            let text = text.ok_or_else(|| err!("{}: no bundle", path.display()))?;
            let config: Value =
                serde_json::from_slice(&text).map_err(|e| err!("{}/config.json: {e}", path.display()))?;
            save::without_image(&config)
        }
    };
    Ok((root, config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn no_link_in_a_stored_bundle_is_followed() {
        let dir = std::env::temp_dir().join(format!("rt-stored-{}", std::process::id()));
        let bundle = dir.join("bundles").join(format!("sha256-{}", "ab".repeat(32)));
        std::fs::create_dir_all(bundle.join("rootfs")).unwrap();
        std::fs::write(dir.join("private"), r#"{"process":{"env":["TOKEN=secret"]}}"#).unwrap();
        symlink(dir.join("private"), bundle.join("config.json")).unwrap();
        assert!(stored(&bundle).unwrap_err().is(libc::ELOOP));
        std::fs::rename(dir.join("private"), bundle.join("config.json")).unwrap();
        assert!(stored(&bundle).is_ok());
        std::fs::rename(&bundle, dir.join("elsewhere")).unwrap();
        symlink(dir.join("elsewhere"), &bundle).unwrap();
        assert!(stored(&bundle).unwrap_err().is(libc::ELOOP));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
