//! `rt build`: a Containerfile becomes an image of the store.
//!
//! | file | what it knows |
//! |---|---|
//! | `mod.rs` | the story of a build: which stages, in which order; what they take files from |
//! | `stage.rs` | what each instruction does to a stage |
//! | `copy.rs` | COPY and ADD |
//! | `exec.rs` | RUN, as a container of `rt` |
//! | `mount.rs` | the build's namespaces and overlays |
//! | `place.rs` | layers by key, and what else stays between builds |
//! | `variables.rs` | what is taken of the caller's environment |
//! | `owners.rs` | whose the files are that the caller's one id has made |
//! | `output.rs` | a stage as an image: in the store, as an archive, a bundle or a file |
//!
//! The crate `dockerfile` reads the language.

mod copy;
mod exec;
mod mount;
mod output;
mod owners;
mod place;
mod stage;
pub(crate) mod variables;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use dockerfile::ignore::Ignore;
use dockerfile::{Dockerfile, Instruction, Kind, words};
use serde_json::{Value, json};

use self::mount::Mounted;
pub(crate) use self::output::Output;
pub(crate) use self::owners::record_owners;
pub(crate) use self::place::Place;
use self::place::Session;
use self::stage::{Base, Chain, Source, Stage};
use crate::platform::Platform;
use crate::{bundle, save};
use oci_content::digest::Digest;
use oci_content::interrupt::Interrupt;
use rt_image_store::word::changeable_by_others;
use rt_spec::emulation::RootEmulation;
use rt_sys::error::{Context, Error, Result};
use rt_sys::{bail, disk, err, fd};

/// No .dockerignore is longer.
const MOST_IGNORED: usize = 1 << 20;
/// No secret is longer (docker's bound).
const LONGEST_SECRET: usize = 500 << 10;

/// What the user asked for.
pub(crate) struct BuildOptions {
    /// The directory of the context.
    pub context: PathBuf,
    /// The file; by default that of the context.
    pub file: Option<PathBuf>,
    /// Which stage, by name or number.
    pub target: Option<String>,
    /// `--build-arg`, with their values.
    pub arguments: Vec<(String, String)>,
    /// `--label`
    pub labels: Vec<(String, String)>,
    /// `--secret`
    pub secrets: Vec<Secret>,
    /// Nothing that is kept is used.
    pub no_cache: bool,
    /// What becomes of the owners that root gives in RUN.
    pub emulation: RootEmulation,
    /// Nothing is said but errors, and what RUN says.
    pub quiet: bool,
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
    /// In a file.
    File(PathBuf),
    /// In a variable of the caller's.
    Variable(String),
}

impl Secret {
    fn read(&self) -> Result<Vec<u8>> {
        let shown = || format!("secret {:?}", self.id);
        match &self.from {
            SecretFrom::Variable(name) => variables::of_caller(name)
                .map(String::into_bytes)
                .ok_or_else(|| err!("{}: there is no variable {name}", shown())),
            SecretFrom::File(path) => fd::read_if_regular(path, LONGEST_SECRET)
                .context(shown)?
                .ok_or_else(|| err!("{}: {}: no such file", shown(), path.display())),
        }
    }
}

/// Gets an image into the store, and returns the path of its bundle.
pub(crate) type Fetch<'a> = dyn Fn(&str, &Interrupt) -> Result<PathBuf> + 'a;

/// A build.
struct Builder<'a> {
    options: &'a BuildOptions,
    file: Dockerfile,
    /// The instructions of each stage, with its FROM as the first.
    stages: Vec<&'a [Instruction]>,
    context: OwnedFd,
    ignore: Ignore,
    /// What leaves nothing out.
    nothing: Ignore,
    /// ARG before the first FROM, and what is predefined.
    globals: BTreeMap<String, String>,
    /// What the caller's environment says of proxies: RUN has it, and no key and no history.
    proxies: Vec<(String, String)>,
    place: Place,
    // Before the session, in whose directory it is mounted: the fields go in this order.
    memory: Mounted,
    session: Session,
    interrupt: &'a Interrupt,
    fetch: &'a Fetch<'a>,
    /// When the build began.
    now: String,
    /// Stages that were built.
    built: RefCell<HashMap<usize, Stage>>,
    /// The stage that is being built, whose instructions may name the ones before it.
    current: Cell<usize>,
    used: RefCell<BTreeSet<String>>,
    /// An error has named its line.
    named_line: Cell<bool>,
    /// How many layers were made.
    made: Cell<usize>,
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
    let context = disk::open_root(&options.context).context(|| "context")?;
    let (name, text) = read_file(options, &context)?;
    let file = Dockerfile::parse(&text).map_err(|e| err!("{}: {e}", name.display()))?;
    let ignore = read_ignore(options, &context)?;
    disk::raise_open_files();
    mount::enter()?;
    disk::clear_umask();
    // What is opened before is of another mount namespace.
    let context = disk::open_root(&options.context).context(|| "context")?;
    let place = Place::open()?;
    let session = place.session()?;
    let memory = session.path.join("memory");
    std::fs::create_dir(&memory).context(|| format!("make {}", memory.display()))?;
    let memory = mount::memory(&memory)?;
    let instructions = file.instructions.clone();
    let mut builder = Builder {
        options,
        file,
        stages: stages(&instructions),
        context,
        ignore,
        nothing: Ignore::default(),
        globals: BTreeMap::new(),
        proxies: variables::proxies(),
        place,
        memory,
        session,
        interrupt,
        fetch,
        now: now(),
        built: RefCell::default(),
        current: Cell::new(0),
        used: RefCell::default(),
        named_line: Cell::new(false),
        made: Cell::new(0),
    };
    builder.read_globals(&instructions).map_err(|e| e.context(name.display()))?;
    let target = builder.target()?;
    let mut stage = builder.stage(target).map_err(|e| match oci_content::interrupt::is_interrupted(&e) {
        true => e,
        false => e.context(name.display()),
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
    if builder.made.get() > 0 {
        builder.place.bound()?;
    }
    Ok(digest)
}

/// The file, and how it is called in errors.
fn read_file(options: &BuildOptions, context: &OwnedFd) -> Result<(PathBuf, Vec<u8>)> {
    let most = dockerfile::MOST_BYTES;
    if let Some(path) = &options.file {
        let text = if path == Path::new("-") {
            let mut text = Vec::new();
            let stdin = std::io::stdin().lock();
            std::io::Read::read_to_end(&mut std::io::Read::take(stdin, most as u64 + 1), &mut text)
                .context(|| "read stdin")?;
            Some(text)
        } else {
            // It is the caller who names it: it may lie outside of the context.
            fd::read_if_regular(path, most)?
        };
        return text.map(|text| (path.clone(), text)).ok_or_else(|| err!("{}: no such file", path.display()));
    }
    for name in ["Containerfile", "Dockerfile"] {
        if let Some(text) = copy::read(context.as_fd(), Path::new(name), most)? {
            return Ok((PathBuf::from(name), text));
        }
    }
    Err(err!("{}: neither a Containerfile nor a Dockerfile is in it", options.context.display())
        .hint("-f names another"))
}

/// What is left out of the context: by FILE.dockerignore beside the file, else by the context's own.
fn read_ignore(options: &BuildOptions, context: &OwnedFd) -> Result<Ignore> {
    let mut text = None;
    if let Some(path) = options.file.as_ref().filter(|path| **path != Path::new("-")) {
        let mut beside = path.clone().into_os_string();
        beside.push(".dockerignore");
        text = fd::read_if_regular(Path::new(&beside), MOST_IGNORED)?;
    }
    for name in ["Containerfile.dockerignore", "Dockerfile.dockerignore"]
        .into_iter()
        .filter(|_| options.file.is_none())
    {
        if text.is_none() {
            text = copy::read(context.as_fd(), Path::new(name), MOST_IGNORED)?;
        }
    }
    for name in [".containerignore", ".dockerignore"] {
        if text.is_none() {
            text = copy::read(context.as_fd(), Path::new(name), MOST_IGNORED)?;
        }
    }
    Ignore::new(&String::from_utf8_lossy(&text.unwrap_or_default())).map_err(|e| err!(".dockerignore: {e}"))
}

/// The instructions of each stage.
fn stages(instructions: &[Instruction]) -> Vec<&[Instruction]> {
    let starts: Vec<usize> =
        (0..instructions.len()).filter(|at| matches!(instructions[*at].kind, Kind::From { .. })).collect();
    let end = |n: usize| starts.get(n + 1).copied().unwrap_or(instructions.len());
    starts.iter().enumerate().map(|(n, start)| &instructions[*start..end(n)]).collect()
}

/// The time, in RFC 3339.
fn now() -> String {
    rt_sys::time::rfc3339(rt_sys::time::now())
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
                self.used.borrow_mut().insert(name.clone());
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
            self.used.borrow_mut().insert(name.to_owned());
        }
        value
    }

    fn warn_of_arguments(&self) {
        let used = self.used.borrow();
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
        if let Some(stage) = self.built.borrow().get(&number) {
            return Ok(stage.clone());
        }
        let outer = self.current.replace(number);
        let [from, rest @ ..] = self.stages[number] else { bail!("stage {number} is empty") };
        let at = |instruction: &Instruction| {
            let (line, text) = (instruction.line, rt_sys::log::one_line(&instruction.text));
            // Where one stage needs another, the line that failed is named, and not those that led to it.
            move |e: Error| match oci_content::interrupt::is_interrupted(&e) || self.named_line.replace(true)
            {
                true => e,
                false => e.context(format!("line {line}: {text}")),
            }
        };
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
            applied
                .map_err(|e| e.context(format!("ONBUILD {}", rt_sys::log::one_line(trigger))))
                .map_err(at(from))?;
        }
        for (n, instruction) in rest.iter().enumerate() {
            self.interrupt.check()?;
            stage.shown = format!("{name}{}/{count}", n + 1);
            stage.apply(self, instruction).map_err(at(instruction))?;
        }
        stage.shown = name;
        self.current.set(outer);
        self.built.borrow_mut().insert(number, stage.clone());
        Ok(stage)
    }

    /// What FROM says.
    fn begin(&self, number: usize, from: &Instruction) -> Result<Stage> {
        let Kind::From { image, name } = &from.kind else { bail!("not a FROM") };
        if let Some(platform) = from.flag("platform") {
            let platform = self.expand_globally(platform)?;
            let (asked, host): (Platform, _) = (platform.parse()?, Platform::host());
            if (asked.os, asked.architecture) != (host.os, host.architecture) {
                bail!("FROM --platform={platform} is not supported: it is not this machine's");
            }
        }
        let shown = match name {
            Some(name) => format!("{name} "),
            None if self.stages.len() > 1 => format!("stage-{number} "),
            None => String::new(),
        };
        let image = self.expand_globally(image)?;
        if image.is_empty() {
            bail!("no image: a variable of it is empty");
        }
        if image == "scratch" {
            let platform = Platform::host();
            let nothing = json!({ "architecture": platform.architecture, "os": "linux" });
            return Ok(Stage::new(shown, Base::Scratch, nothing));
        }
        if let Some(earlier) = self.named(&image, number) {
            return Ok(self.stage(earlier)?.continued(shown));
        }
        let path = (self.fetch)(&image, self.interrupt)?;
        let (root, config) = stored(&path)?;
        let is_ours = is_ours(&path, &root)?;
        let id = id_of_bundle(&path, is_ours)?;
        Ok(Stage::new(shown, Base::Bundle { path, id, is_ours }, config))
    }

    /// What COPY or a mount takes files from: the context, a stage before this one, or an image.
    fn source(&self, from: Option<&str>) -> Result<Source> {
        let Some(from) = from else {
            return Ok(Source { shown: "the context".to_owned(), root: None, is_ours: false });
        };
        let before = self.current.get();
        let number = self.named(from, before).or_else(|| from.parse().ok().filter(|number| *number < before));
        if let Some(number) = number {
            let stage = self.stage(number)?;
            let mounted = self.readable(&stage.chain)?;
            let root = mounted.root()?;
            let shown = format!("stage {from}");
            // The layers above its base are in the caller's own directory.
            let is_ours = !matches!(stage.chain.base, Base::Bundle { is_ours: false, .. });
            return Ok(Source { shown, root: Some((root, Some(mounted))), is_ours });
        }
        if from.parse::<usize>().is_ok() {
            bail!("--from={from}: no stage before this one has this number");
        }
        let path = (self.fetch)(from, self.interrupt)?;
        let (root, _) = stored(&path)?;
        let is_ours = is_ours(&path, &root)?;
        Ok(Source { shown: format!("the image {from}"), root: Some((root, None)), is_ours })
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
        let mounted = mount::overlay(&source_of(chain), &trees, Some(&draft), &self.mount_point()?)?;
        Ok((draft, mounted))
    }

    /// The root of a stage, to be read.
    fn readable(&self, chain: &Chain) -> Result<Mounted> {
        let mut trees = self.trees(chain)?;
        if trees.len() == 1 {
            trees.splice(0..0, self.trees(&Chain { base: Base::Scratch, layers: Vec::new() })?);
        }
        mount::overlay(&source_of(chain), &trees, None, &self.mount_point()?)
    }

    fn mount_point(&self) -> Result<PathBuf> {
        let at = self.memory.path().join(rt_sys::unique::name());
        std::fs::create_dir(&at).context(|| format!("make {}", at.display()))?;
        Ok(at)
    }
}

/// The source of an overlay, by which others see who uses a bundle.
fn source_of(chain: &Chain) -> String {
    match &chain.base {
        Base::Bundle { path, .. } => path.to_string_lossy().into_owned(),
        Base::Scratch => "overlay".to_owned(),
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
        && disk::only_ours(&disk::open_root(path)?)?
        && disk::only_ours(root)?)
}

/// The root of a bundle of the store, and the config of its image.
fn stored(path: &Path) -> Result<(OwnedFd, Value)> {
    let dir = disk::open_root(path)?;
    let root = disk::open_dir(dir.as_fd(), rt_image_store::ROOT.as_bytes())?;
    let config = match bundle::image_config(dir.as_fd())? {
        Some(config) => config,
        None => {
            let text = fd::read_if_regular(&path.join("config.json"), 8 << 20)?;
            let text = text.ok_or_else(|| err!("{}: no bundle", path.display()))?;
            let config: Value =
                serde_json::from_slice(&text).map_err(|e| err!("{}/config.json: {e}", path.display()))?;
            save::without_image(&config)
        }
    };
    Ok((root, config))
}
