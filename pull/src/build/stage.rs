//! A stage in the making: its config, its layers, and what each instruction does to them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use dockerfile::ignore::Ignore;
use dockerfile::{Chmod, Command, Healthcheck, Heredoc, Instruction, Kind, Mount, MountKind, Sharing, words};
use serde_json::{Map, Value, json};

use super::context::Local;
use super::copy::{self, Destination, NewDirs, Origin};
use super::exec::{self, Ended, Run};
use super::mount::{self, Mounted};
use super::owners;
use super::place::{self, Layer};
use super::registry_cache;
use super::remote::{self, Fetched, Remote};
use super::{Builder, Secret};
use crate::image_config::{self, User};
use crate::manifest::Execution;
use crate::profile;
use oci_content::digest::Digest;
use oci_layer::owner::{self, Owner};
use rt_spec::emulation::RootEmulation;
use rt_sys::error::{Context, Error, Result};
use rt_sys::rootfs::open_in;
use rt_sys::{bail, disk, err};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// What the lowest layer of a stage is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Base {
    /// Nothing.
    Scratch,
    /// The root of a bundle of the store.
    Bundle {
        /// The bundle.
        path: PathBuf,
        /// What stands for its content.
        id: String,
        /// True where nobody but root and the caller can change it.
        is_ours: bool,
    },
}

/// The layers of a stage.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    pub base: Base,
    pub layers: Vec<Layer>,
    /// What stands for its content in each cache of a registry; none where the cache does not have it.
    pub in_caches: Vec<Option<String>>,
}

impl Chain {
    /// Without layers, for a build with so many caches in registries.
    pub(super) fn new(base: Base, caches: usize) -> Chain {
        let mut chain = Chain { base, layers: Vec::new(), in_caches: Vec::new() };
        chain.in_caches = vec![Some(chain.id()); caches];
        chain
    }

    /// What stands for its content in keys.
    fn id(&self) -> String {
        match (self.layers.last(), &self.base) {
            (Some(layer), _) => format!("layer {}", layer.id),
            (None, Base::Scratch) => "scratch".to_owned(),
            (None, Base::Bundle { id, .. }) => format!("bundle {id}"),
        }
    }
}

/// A stage, as far as it was built.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    /// Its number in the file. Its instructions may name the stages before it.
    number: usize,
    /// What is said of it while it is built.
    pub shown: String,
    pub chain: Chain,
    /// The image's config: all of it but layers and history.
    pub image: Map<String, Value>,
    /// Its section `config`.
    pub config: Map<String, Value>,
    pub history: Vec<Value>,
    /// How many entries of it are the base's.
    pub inherited: usize,
    /// What ENV and ARG say, the later line before the earlier.
    env: BTreeMap<String, String>,
    /// What ARG says, in its order: it stands in the history and in the key of RUN.
    args: Vec<(String, String)>,
    /// CMD was in this file, so that an ENTRYPOINT leaves it as it is.
    has_cmd: bool,
}

impl Stage {
    /// A stage of an image with this config.
    pub(super) fn new(number: usize, shown: String, chain: Chain, image: Value) -> Stage {
        let mut image = match image {
            Value::Object(image) => image,
            _ => Map::new(),
        };
        let mut config = match image.remove("config") {
            Some(Value::Object(config)) => config,
            _ => Map::new(),
        };
        let history: Vec<Value> = match image.remove("history") {
            Some(Value::Array(history)) => history.into_iter().filter(Value::is_object).collect(),
            _ => Vec::new(),
        };
        let inherited = history.len();
        let mut env: Vec<String> = strings(&config, "Env");
        if !env.iter().any(|entry| entry.starts_with("PATH=")) {
            env.push(image_config::PATH.to_owned());
        }
        config.insert("Env".into(), json!(env));
        let pairs = env.iter().filter_map(|entry| entry.split_once('='));
        let env = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let args = Vec::new();
        Stage { number, shown, chain, image, config, history, inherited, env, args, has_cmd: false }
    }

    /// The same stage as the beginning of another.
    pub(super) fn continued(&self, number: usize, shown: String) -> Stage {
        Stage { number, shown, has_cmd: false, ..self.clone() }
    }

    /// The triggers of the base, which are run once.
    pub(super) fn take_triggers(&mut self) -> Vec<String> {
        let triggers = strings(&self.config, "OnBuild");
        self.config.remove("OnBuild");
        triggers
    }

    /// What variables stand for.
    fn values(&self) -> impl Fn(&str) -> Option<String> {
        |name| self.env.get(name).cloned()
    }

    /// A word with the values of its variables.
    fn expand(&self, builder: &Builder, text: &str) -> Result<String> {
        words::expand(text, builder.file.escape, &self.values()).map_err(Error::new)
    }

    fn working_dir(&self) -> String {
        let dir = self.config.get("WorkingDir").and_then(Value::as_str).unwrap_or_default();
        if dir.starts_with('/') { dir.to_owned() } else { format!("/{dir}") }
    }

    fn absolute(&self, path: &str) -> String {
        below(&self.working_dir(), path)
    }

    fn shell(&self) -> Vec<String> {
        let shell = strings(&self.config, "Shell");
        if shell.is_empty() { vec!["/bin/sh".to_owned(), "-c".to_owned()] } else { shell }
    }

    fn command(&self, command: &Command) -> Vec<String> {
        match command {
            Command::Exec(words) => words.clone(),
            Command::Shell(text) => [self.shell(), vec![text.clone()]].concat(),
        }
    }

    fn note(&mut self, created_by: &str, layer: Option<&Layer>) {
        let mut entry = json!({ "created_by": created_by });
        match layer {
            Some(layer) => entry["created"] = json!(layer.facts.created),
            None => entry["empty_layer"] = json!(true),
        }
        self.history.push(entry);
    }

    /// Does what `instruction` says.
    pub(super) fn apply(&mut self, builder: &Builder, instruction: &Instruction) -> Result<()> {
        let expand = |text: &str| self.expand(builder, text);
        let all = |texts: &[String]| texts.iter().map(|text| expand(text)).collect::<Result<Vec<_>>>();
        match &instruction.kind {
            Kind::From { .. } => return Ok(()),
            Kind::Run(command) => return self.run(builder, instruction, command),
            Kind::Copy(paths) | Kind::Add(paths) => {
                let paths = all(paths)?;
                return self.copy(builder, instruction, &paths);
            }
            Kind::Workdir(dir) => {
                let dir = expand(dir)?;
                return self.workdir(builder, instruction, &dir);
            }
            Kind::Arg(arguments) => {
                let mut said = Vec::new();
                for (name, default) in arguments {
                    let value = match (builder.argument(name), default) {
                        (Some(value), _) => Some(value),
                        (None, Some(default)) => Some(expand(default)?),
                        (None, None) => builder.globals.get(name).cloned(),
                    };
                    said.push((name.clone(), value));
                }
                for (name, value) in said {
                    let Some(value) = value else { continue };
                    self.args.retain(|(known, _)| *known != name);
                    self.args.push((name.clone(), value.clone()));
                    self.env.insert(name, value);
                }
            }
            Kind::Env(pairs) => {
                // One instruction sees the values from before it.
                let pairs = pairs
                    .iter()
                    .map(|(name, value)| Ok((expand(name)?, expand(value)?)))
                    .collect::<Result<Vec<_>>>()?;
                let mut env = strings(&self.config, "Env");
                for (name, value) in pairs {
                    let entry = format!("{name}={value}");
                    match env.iter_mut().find(|known| known.split('=').next() == Some(&name)) {
                        Some(known) => *known = entry,
                        None => env.push(entry),
                    }
                    self.args.retain(|(known, _)| *known != name);
                    self.env.insert(name, value);
                }
                self.config.insert("Env".into(), json!(env));
            }
            Kind::Label(pairs) => {
                let pairs = pairs
                    .iter()
                    .map(|(name, value)| Ok((expand(name)?, expand(value)?)))
                    .collect::<Result<Vec<_>>>()?;
                let labels = object(&mut self.config, "Labels");
                labels.extend(pairs.into_iter().map(|(name, value)| (name, json!(value))));
            }
            Kind::User(user) => drop(self.config.insert("User".into(), json!(expand(user)?))),
            Kind::Volume(paths) => {
                let paths = all(paths)?;
                paths.iter().try_for_each(|path| profile::check_volume(path))?;
                object(&mut self.config, "Volumes").extend(paths.into_iter().map(|path| (path, json!({}))));
            }
            Kind::Expose(text) => {
                let ports = words::expand_words(text, builder.file.escape, &self.values());
                for port in ports.map_err(Error::new)? {
                    for port in ports_of(&port)? {
                        object(&mut self.config, "ExposedPorts").insert(port, json!({}));
                    }
                }
            }
            Kind::StopSignal(signal) => drop(self.config.insert("StopSignal".into(), json!(expand(signal)?))),
            Kind::Maintainer(author) => drop(self.image.insert("author".into(), json!(author))),
            Kind::Shell(words) => drop(self.config.insert("Shell".into(), json!(words))),
            Kind::Entrypoint(command) => {
                let words = self.command(command);
                self.config.insert("Entrypoint".into(), json!(words));
                if !self.has_cmd {
                    self.config.remove("Cmd");
                }
            }
            Kind::Cmd(command) => {
                let words = self.command(command);
                self.config.insert("Cmd".into(), json!(words));
                self.has_cmd = true;
            }
            Kind::Healthcheck(check) => {
                let check = healthcheck(check);
                self.config.insert("Healthcheck".into(), check);
            }
            Kind::Onbuild(text) => {
                let mut triggers = strings(&self.config, "OnBuild");
                triggers.push(with_heredocs(text, &instruction.heredocs));
                self.config.insert("OnBuild".into(), json!(triggers));
                return Ok(());
            }
        }
        self.note(&instruction.text, None);
        Ok(())
    }

    /// The layer of an instruction: the one that the cache has for `what`, or what `make` makes in the root of the stage. It depends
    /// on the layers before, unless `is_on_chain` is false. With `marks`, what comes from these is marked.
    fn layer(
        &mut self,
        builder: &Builder,
        instruction: &Instruction,
        (what, is_on_chain): (&Value, bool),
        marks: bool,
        make: impl FnOnce(&Rooted) -> Result<()>,
    ) -> Result<Layer> {
        let said = format!("[{}] {}", self.shown, super::shown(&instruction.text));
        let key = match is_on_chain {
            true => registry_cache::key_of(&self.chain.id(), what),
            false => registry_cache::key_without_chain(what),
        };
        let maker = builder.maker(&key);
        let _alone = super::lock(&maker);
        let use_cache = builder.uses_cache(self.number);
        let kept = if use_cache { builder.place.find(&key)? } else { None };
        let is_needed = use_cache && kept.is_none();
        let elsewhere = registry_cache::find(builder, &mut self.chain, what, is_on_chain, is_needed)?;
        if let Some(layer) = kept.or(elsewhere) {
            builder.tell(&format!("{said}: cached"));
            self.chain.layers.push(layer.clone());
            super::lock(&builder.layers).push((key, layer.clone()));
            return Ok(layer);
        }
        builder.tell(&said);
        if self.chain.layers.len() >= mount::MOST_LAYERS {
            bail!("a stage has at most {} layers", mount::MOST_LAYERS);
        }
        if marks {
            owners::mark_below(builder, &self.chain)?;
        }
        let (draft, mounted) = builder.writable(&self.chain)?;
        let (root, path) = (mounted.root()?, mounted.path().to_owned());
        let rooted = Rooted { root, path, draft: draft.clone(), below: &self.chain };
        let done = make(&rooted);
        drop(rooted);
        drop(mounted);
        done?;
        rt_sys::tree::remove_path(&draft.join("work"))?;
        let layer = builder.place.keep(&draft, &key, builder.now.clone())?;
        builder.made.fetch_add(1, Ordering::Relaxed);
        self.chain.layers.push(layer.clone());
        super::lock(&builder.layers).push((key, layer.clone()));
        Ok(layer)
    }

    fn workdir(&mut self, builder: &Builder, instruction: &Instruction, dir: &str) -> Result<()> {
        let dir = format!("/{}", dockerfile::ignore::clean(&self.absolute(dir)));
        let user = text_of(&self.config, "User");
        let what = json!(["workdir", dir, user]);
        let layer = self.layer(builder, instruction, (&what, true), false, |stage| {
            // Nobody is looked up for a directory that is there.
            let user = match open_in(stage.root.as_fd(), Path::new(&dir), OFlags::PATH) {
                Ok(_) => User::default(),
                Err(Errno::NOENT) => user_of(&user, &stage.root)?,
                Err(e) => return Err(e).context(|| dir.clone()),
            };
            let owner = Owner { uid: user.uid, gid: user.gid };
            copy::make_dirs(stage.root.as_fd(), &dir, NewDirs::of(owner)).map(drop)
        })?;
        self.config.insert("WorkingDir".into(), json!(dir));
        self.note(&format!("WORKDIR {dir}"), Some(&layer));
        Ok(())
    }

    fn run(&mut self, builder: &Builder, instruction: &Instruction, command: &Command) -> Result<()> {
        let no_network = match instruction.flag("network") {
            None | Some("default") => builder.options.no_network,
            Some("host") => false,
            Some("none") => true,
            Some(other) => bail!("RUN --network={other} is not supported: use host or none"),
        };
        for flag in ["security", "device"] {
            if let Some(value) = instruction.flag(flag) {
                bail!("RUN --{flag}={value} is not supported: a build has no more rights than its caller");
            }
        }
        let mut scripts = Vec::new();
        let args = match (command, &instruction.heredocs[..]) {
            (command, []) => self.command(command),
            (Command::Shell(text), [only])
                if dockerfile::is_heredoc(text) && only.content.starts_with("#!") =>
            {
                scripts.push(only.clone());
                vec![format!("{SCRIPTS}/{}", only.name)]
            }
            (Command::Shell(text), [only]) if dockerfile::is_heredoc(text) => {
                self.command(&Command::Shell(only.text()))
            }
            (Command::Shell(text), all) => self.command(&Command::Shell(with_heredocs(text, all))),
            (Command::Exec(_), _) => bail!("RUN in JSON form takes no heredoc"),
        };
        if args.is_empty() {
            bail!("RUN has no command");
        }
        let expand = |text: &str| words::expand(text, builder.file.escape, &self.values());
        let mounts = instruction
            .values("mount")
            .map(|text| Mount::parse(text, &expand).map_err(Error::new))
            .collect::<Result<Vec<_>>>()?;
        let cwd = self.working_dir();
        let mut env: Vec<String> = self.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut sources = Vec::new();
        let mut counted = Vec::new();
        for mount in &mounts {
            let source = self.mount_source(builder, mount)?;
            let count = source.as_ref().map(|(_, digest)| digest.as_str().to_owned());
            sources.push(source);
            counted.push(json!([format!("{:?}", mount), count]));
        }
        let user = text_of(&self.config, "User");
        let texts: Vec<&str> = scripts.iter().map(|heredoc: &Heredoc| heredoc.content.as_str()).collect();
        let emulation = builder.options.emulation;
        let mut what = vec![
            json!("run"),
            json!(args),
            json!(env),
            json!(cwd),
            json!(user),
            json!(no_network),
            json!(counted),
            json!(texts),
            json!(emulation.as_str()),
        ];
        // Their names count, and where they are does not.
        what.extend(builder.options.hosts.iter().map(|(name, _)| json!(["host", name])));
        let what = Value::Array(what);
        let shown = self.shown.clone();
        let marks =
            emulation != RootEmulation::Off && !["", "0", "root", "0:0", "root:root"].contains(&&*user);
        env.extend(builder.proxies.iter().map(|(name, value)| format!("{name}={value}")));
        let layer = self.layer(builder, instruction, (&what, true), marks, |stage| {
            let user = user_of(&user, &stage.root)?;
            if !env.iter().any(|entry| entry.starts_with("HOME=")) {
                env.push(image_config::home_of(&user));
            }
            let mut binds = Vec::new();
            let mut held = Vec::new();
            for (mount, source) in mounts.iter().zip(&sources) {
                mounted(builder, mount, source, &cwd, &mut binds, &mut held, &mut env)?;
            }
            if let [script] = &scripts[..] {
                let file = exec::private_file(builder.memory.path(), script.text().as_bytes(), 0o755)?;
                binds.push(exec::bind(&file, &format!("{SCRIPTS}/{}", script.name), true));
            }
            let run = Run {
                args: &args,
                env: env.clone(),
                cwd: &cwd,
                user: &user,
                no_network,
                hosts: builder.hosts.as_deref(),
                mounts: binds,
                emulation,
                prefix: builder.has_prefixes.then_some(&*shown),
            };
            match exec::run(&run, &stage.path, builder.memory.path(), builder.interrupt)? {
                Ended::Code(0) if emulation == RootEmulation::Off || user.uid == 0 && user.gid == 0 => Ok(()),
                Ended::Code(0) => {
                    let owner = Owner { uid: user.uid, gid: user.gid };
                    owners::give_new(&stage.draft.join("upper"), &builder.trees(stage.below)?, owner)
                }
                Ended::Failed(error) => Err(Error::new(error)),
                Ended::Code(code) => Err(Error::new(format!("exit code {code}"))),
                Ended::Signal => Err(Error::new("killed by a signal")),
            }
        })?;
        let count = if self.args.is_empty() {
            String::new()
        } else {
            let args: Vec<String> = self.args.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("|{} {} ", args.len(), args.join(" "))
        };
        self.note(&format!("RUN {count}{} # buildkit", args.join(" ")), Some(&layer));
        Ok(())
    }

    /// What a mount of RUN shows, and the digest of it, which counts in the key.
    fn mount_source(&self, builder: &Builder, mount: &Mount) -> Result<Option<(Source, Digest)>> {
        if !matches!(mount.kind, MountKind::Bind { .. }) {
            return Ok(None);
        }
        let source = builder.source(self.number, mount.from.as_deref())?;
        let origin = source.origin(builder, &builder.nothing);
        let found = origin.find(&plain(&mount.source), builder.interrupt)?;
        let digest = origin.digest(&found, builder.interrupt)?;
        Ok(Some((source, digest)))
    }

    /// The value of a flag that is true or false.
    fn switch(&self, builder: &Builder, instruction: &Instruction, flag: &str) -> Result<Option<bool>> {
        let Some(text) = instruction.flag(flag) else { return Ok(None) };
        let text = self.expand(builder, text)?;
        text.parse().map(Some).map_err(|_| err!("--{flag}={text}: neither true nor false"))
    }

    fn copy(&mut self, builder: &Builder, instruction: &Instruction, paths: &[String]) -> Result<()> {
        let is_add = matches!(instruction.kind, Kind::Add(_));
        let name = if is_add { "ADD" } else { "COPY" };
        let chmod = instruction.flag("chmod").map(|text| self.expand(builder, text)).transpose()?;
        let mode = chmod.as_deref().map(Chmod::parse).transpose().map_err(Error::new)?;
        let owner = instruction.flag("chown").map(|text| self.expand(builder, text)).transpose()?;
        let keeps_parents = self.switch(builder, instruction, "parents")? == Some(true);
        let link = instruction.flag("link").is_some_and(|value| value != "false");
        let Some((to, sources)) = paths.split_last() else { bail!("no destination") };
        let (urls, sources): (Vec<&String>, Vec<&String>) =
            sources.iter().partition(|source| is_add && remote::is_url(source));
        let mut flags = Flags { unpacks: self.switch(builder, instruction, "unpack")?, ..Flags::default() };
        flags.keeps_git = self.switch(builder, instruction, "keep-git-dir")?.unwrap_or(false);
        flags.checksum = instruction.flag("checksum").map(|text| self.expand(builder, text)).transpose()?;
        if flags.checksum.is_some() && (urls.len() != 1 || !sources.is_empty()) {
            bail!("ADD --checksum: for one URL alone");
        }
        let remotes = urls.iter().map(|url| Added::new(url, &flags)).collect::<Result<Vec<_>>>()?;
        let excluded: Vec<String> =
            instruction.values("exclude").map(|text| self.expand(builder, text)).collect::<Result<_>>()?;
        let exclude = Ignore::of_patterns(&excluded).map_err(Error::new)?;
        // As a text, before any link counts.
        let is_named_directory = to.ends_with('/') || matches!(to.rsplit('/').next(), Some("." | ".."));
        let mut to = format!("/{}", dockerfile::ignore::clean(&self.absolute(to)));
        if is_named_directory && to != "/" {
            to.push('/');
        }
        let heredocs: Vec<(&Heredoc, String)> = instruction
            .heredocs
            .iter()
            .map(|heredoc| {
                let text = heredoc.text();
                let text = if heredoc.expands {
                    words::expand_content(&text, builder.file.escape, &self.values())
                } else {
                    Ok(text)
                };
                text.map(|text| (heredoc, text)).map_err(Error::new)
            })
            .collect::<Result<_>>()?;
        let source = builder.source(self.number, instruction.flag("from"))?;
        let origin = source.origin(builder, &exclude);
        let mut found = Vec::new();
        for file in &sources {
            found.extend(match keeps_parents {
                true => origin.find_with_parents(file, builder.interrupt)?,
                false => origin.find(file, builder.interrupt)?,
            });
        }
        if found.is_empty() && heredocs.is_empty() && remotes.is_empty() {
            // A pattern that stands for nothing is no error.
            log::warn!("line {}: {name}: there is nothing that it could copy", instruction.line);
        }
        let several = found.len() + heredocs.len() + remotes.len() > 1;
        if several && !remotes.is_empty() && !to.ends_with('/') {
            bail!("{to}: with more than one source the destination must be a directory and end in /");
        }
        if several
            && sources.iter().all(|source| dockerfile::glob::is_pattern(source))
            && sources.len() == 1
            && heredocs.is_empty()
            && !to.ends_with('/')
        {
            to.push('/');
        }
        let digest = origin.digest(&found, builder.interrupt)?;
        let texts: Vec<(&str, &str)> =
            heredocs.iter().map(|(heredoc, text)| (heredoc.name.as_str(), text.as_str())).collect();
        let what = json!([
            name,
            to,
            match &mode {
                Some(Chmod::Digits(mode)) => json!(mode),
                _ => json!(chmod),
            },
            owner,
            link,
            digest.as_str(),
            found.iter().map(|f| &f.path).collect::<Vec<_>>(),
            texts,
            remotes.iter().map(|remote| remote.key(builder, &exclude)).collect::<Result<Vec<_>>>()?,
            flags.unpacks,
        ]);
        // What a name stands for is said by the layers before.
        let named = owner.as_ref().is_some_and(|owner| owner.chars().any(char::is_alphabetic));
        let is_on_chain = !link || named;
        let layer = self.layer(builder, instruction, (&what, is_on_chain), false, |stage| {
            let owner = owner.as_deref().map(|owner| owner_of(owner, &stage.root)).transpose()?;
            let upper;
            let root = match link {
                true => {
                    upper = disk::open_root(&stage.draft.join("upper"))?;
                    upper.as_fd()
                }
                false => stage.root.as_fd(),
            };
            let to = Destination { root, path: &to, mode: mode.as_ref(), owner };
            for (heredoc, text) in &heredocs {
                to.write_text(&heredoc.name, text, !several)?;
            }
            for remote in &remotes {
                remote.copy(builder, &to, &exclude)?;
            }
            if found.is_empty() {
                return Ok(());
            }
            let unpacks = is_add && flags.unpacks != Some(false);
            to.copy(&origin, &found, unpacks, &digest, builder.interrupt)
        })?;
        self.note(&format!("{} # buildkit", instruction.text), Some(&layer));
        Ok(())
    }
}

/// A text with its heredocs behind it, as they are written.
fn with_heredocs(text: &str, heredocs: &[Heredoc]) -> String {
    let texts = heredocs.iter().map(|heredoc| format!("\n{}{}", heredoc.content, heredoc.name));
    [text.to_owned()].into_iter().chain(texts).collect()
}

/// The flags of ADD.
#[derive(Default)]
struct Flags {
    unpacks: Option<bool>,
    keeps_git: bool,
    checksum: Option<String>,
}

/// What ADD takes from a URL.
struct Added<'a> {
    remote: Remote,
    flags: &'a Flags,
    /// It, and its digest, once it was fetched.
    fetched: OnceLock<(Fetched, Digest)>,
}

impl Added<'_> {
    fn new<'a>(url: &str, flags: &'a Flags) -> Result<Added<'a>> {
        Ok(Added { remote: Remote::parse(url, false)?, flags, fetched: OnceLock::new() })
    }

    /// What stands for it in a key: its checksum, with which nothing is fetched that was fetched before; else its digest.
    fn key(&self, builder: &Builder, exclude: &Ignore) -> Result<Value> {
        let name = self.remote.shown().rsplit('/').next();
        match (&self.remote, &self.flags.checksum) {
            (Remote::File(_), Some(checksum)) => Ok(json!([name, checksum])),
            _ => Ok(json!([name, self.fetched(builder, exclude)?.1.as_str(), self.flags.keeps_git])),
        }
    }

    fn fetched(&self, builder: &Builder, exclude: &Ignore) -> Result<&(Fetched, Digest)> {
        if let Some(fetched) = self.fetched.get() {
            return Ok(fetched);
        }
        let checksum = self.flags.checksum.as_deref();
        let fetched = builder.fetcher().fetch(&self.remote, checksum, self.flags.keeps_git)?;
        let digest =
            origin_of(&fetched, exclude).digest(std::slice::from_ref(&fetched.found), builder.interrupt)?;
        Ok(self.fetched.get_or_init(|| (fetched, digest)))
    }

    fn copy(&self, builder: &Builder, to: &Destination, exclude: &Ignore) -> Result<()> {
        let (fetched, digest) = self.fetched(builder, exclude)?;
        if to.path.ends_with('/') && fetched.found.path == remote::UNNAMED {
            bail!("{}: it has no name that a file in {} could have", self.remote.shown(), to.path);
        }
        let unpacks = self.flags.unpacks == Some(true);
        let found = std::slice::from_ref(&fetched.found);
        to.copy(&origin_of(fetched, exclude), found, unpacks, digest, builder.interrupt)
    }
}

fn origin_of<'a>(fetched: &'a Fetched, exclude: &'a Ignore) -> Origin<'a> {
    let Local { root, ignore, shown } = &fetched.local;
    Origin { root: root.as_fd(), is_one_mount: false, ignore, exclude, shown, keeps_owners: false }
}

/// The owner of --chown: a number alone is that of the group, too.
fn owner_of(text: &str, root: &OwnedFd) -> Result<Owner> {
    let text = match text.parse::<u32>() {
        Ok(number) => format!("{number}:{number}"),
        Err(_) => text.to_owned(),
    };
    user_of(&text, root).map(|user| Owner { uid: user.uid, gid: user.gid })
}

/// What `USER` or --chown says, by the passwd(5) and group(5) of the stage.
fn user_of(text: &str, root: &OwnedFd) -> Result<User> {
    image_config::user(&Execution { user: Some(text.to_owned()), ..Execution::default() }, root)
}

/// Where scripts of RUN are shown.
const SCRIPTS: &str = "/dev/pipes";

/// The root of a stage in which an instruction is done.
struct Rooted<'a> {
    root: OwnedFd,
    path: PathBuf,
    draft: PathBuf,
    /// What is below the new layer.
    below: &'a Chain,
}

/// What COPY and mounts take files from.
pub(super) struct Source {
    /// What it is, for errors.
    pub shown: String,
    /// They themselves.
    pub files: Files,
    /// True where nobody but root and the caller can change it while it is used.
    pub is_ours: bool,
}

/// The files of a source.
pub(super) enum Files {
    /// Those of an image or of a stage, which is mounted as long.
    Tree(OwnedFd, #[allow(dead_code, reason = "it is unmounted with the value")] Option<Mounted>),
    /// Those of a context.
    Local(Arc<Local>),
}

impl Source {
    /// The files of a context.
    pub(super) fn of_files(local: Arc<Local>) -> Source {
        Source { shown: local.shown.clone(), files: Files::Local(local), is_ours: false }
    }

    /// What can be found in it, less what is left out.
    fn origin<'a>(&'a self, builder: &'a Builder, exclude: &'a Ignore) -> Origin<'a> {
        // Of contexts alone something is left out, and whose files these are says nothing.
        let (root, ignore, keeps_owners) = match &self.files {
            Files::Tree(root, _) => (root, &builder.nothing, true),
            Files::Local(local) => (&local.root, &local.ignore, false),
        };
        // In an image others can have mounted what never answers.
        let is_one_mount = keeps_owners && !self.is_ours;
        Origin { root: root.as_fd(), is_one_mount, ignore, exclude, shown: &self.shown, keeps_owners }
    }
}

/// `path`, which is below `cwd` where it is not absolute.
fn below(cwd: &str, path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", cwd.trim_end_matches('/')) }
}

/// A path as a source of a mount: without patterns.
fn plain(path: &str) -> String {
    path.chars().flat_map(|c| "*?[\\".contains(c).then_some('\\').into_iter().chain([c])).collect()
}

/// Makes what a mount of RUN shows, and says how.
fn mounted(
    builder: &Builder,
    mount: &Mount,
    source: &Option<(Source, Digest)>,
    cwd: &str,
    binds: &mut Vec<Value>,
    held: &mut Vec<Box<dyn std::any::Any>>,
    env: &mut Vec<String>,
) -> Result<()> {
    let target = below(cwd, &mount.target);
    if dockerfile::ignore::clean(&target).is_empty() && !mount.target.is_empty() {
        bail!("--mount: the target cannot be /");
    }
    match &mount.kind {
        MountKind::Tmpfs { size } => {
            let mut options = vec!["nosuid".to_owned(), "nodev".to_owned(), "mode=0755".to_owned()];
            options.extend(size.map(|size| format!("size={size}")));
            binds.push(
                json!({ "destination": target, "type": "tmpfs", "source": "tmpfs", "options": options }),
            );
        }
        MountKind::Cache { id, mode, uid, gid, readonly, sharing } => {
            let id = id.clone().unwrap_or_else(|| dockerfile::ignore::clean(&target));
            let owner = Owner { uid: *uid, gid: *gid };
            let dir = match sharing {
                Sharing::Private => {
                    let (dir, lock) = builder.place.private_cache(&id, *mode, owner)?;
                    held.push(Box::new(lock));
                    dir
                }
                Sharing::Shared | Sharing::Locked => builder.place.cache(&id, *mode, owner)?,
            };
            if *sharing == Sharing::Locked {
                held.push(Box::new(place::alone_in(&dir, builder.interrupt)?));
            }
            binds.push(exec::bind(&dir, &target, *readonly));
        }
        MountKind::Secret { id, mode, uid, gid, required, variable } => {
            let Some(secret) = builder.options.secrets.iter().find(|secret| secret.id == *id) else {
                if *required {
                    return Err(err!("--mount=type=secret: no secret {id:?}")
                        .hint(format!("--secret id={id},src=FILE gives it")));
                }
                return Ok(());
            };
            let value = Secret::read(secret)?;
            if let Some(variable) = variable {
                let text = String::from_utf8(value.clone()).map_err(|_| err!("secret {id:?}: not UTF-8"))?;
                env.retain(|entry| entry.split('=').next() != Some(variable));
                env.push(format!("{variable}={text}"));
            }
            if variable.is_none() || !mount.target.is_empty() {
                let file = exec::private_file(builder.memory.path(), &value, *mode)?;
                let open = std::fs::File::open(&file).context(|| format!("open {}", file.display()))?;
                owner::record_of_mode(open.as_fd(), Owner { uid: *uid, gid: *gid }, *mode, None)?;
                let target = if mount.target.is_empty() { format!("/run/secrets/{id}") } else { target };
                let mut bind = exec::bind(&file, &target, true);
                bind["options"] = json!(["bind", "ro", "nosuid", "nodev", "noexec"]);
                binds.push(bind);
                held.push(Box::new(Gone(file)));
            }
        }
        MountKind::Ssh { id, required } => {
            let agents = &builder.options.agents;
            let Some((_, socket)) = agents.iter().find(|(known, _)| known == id) else {
                if *required {
                    return Err(
                        err!("--mount=type=ssh: no agent {id:?}").hint(format!("--ssh {id} gives it"))
                    );
                }
                return Ok(());
            };
            let target = match mount.target.is_empty() {
                true => format!("/run/buildkit/ssh_agent.{}", binds.len()),
                false => target,
            };
            env.retain(|entry| !entry.starts_with("SSH_AUTH_SOCK="));
            env.push(format!("SSH_AUTH_SOCK={target}"));
            binds.push(exec::bind(socket, &target, true));
        }
        MountKind::Bind { writable } => {
            let Some((source, digest)) = source else { return Ok(()) };
            let origin = source.origin(builder, &builder.nothing);
            let at = builder.memory.path().join(rt_sys::unique::name());
            let path = plain(&mount.source);
            let found = origin.find(&path, builder.interrupt)?;
            let Some(one) = found.first() else { bail!("{:?}: not found in {}", mount.source, source.shown) };
            // What is written is thrown away. Of the context only what .dockerignore leaves in is shown; and whoever can write
            // there or in a store could exchange it while the command runs, and back, so that the layer would stand for what it
            // is not.
            let shown = if *writable || !source.is_ours {
                let draft = builder.session.draft(0o755)?;
                let copy = draft.join("upper");
                let root = disk::open_root(&copy)?;
                let to = Destination {
                    root: root.as_fd(),
                    path: if one.is_dir { "/" } else { "/file" },
                    mode: None,
                    owner: None,
                };
                to.copy(&origin, &found, false, digest, builder.interrupt)?;
                let inside = if one.is_dir { copy } else { copy.join("file") };
                held.push(Box::new(Draft(draft)));
                rustix::fs::open(
                    &inside,
                    rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
                    rustix::fs::Mode::empty(),
                )?
            } else {
                rt_sys::rootfs::open_in(origin.root, Path::new(&one.path), rustix::fs::OFlags::PATH)
                    .context(|| format!("{:?} in {}", mount.source, source.shown))?
            };
            match one.is_dir {
                true => std::fs::create_dir(&at).context(|| format!("make {}", at.display()))?,
                false => std::fs::write(&at, "").context(|| format!("make {}", at.display()))?,
            }
            held.push(Box::new(mount::bind(shown.as_fd(), &at)?));
            binds.push(exec::bind(&at, &target, !writable));
        }
    }
    Ok(())
}

/// A file that goes with the instruction that needs it.
struct Gone(PathBuf);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A directory that goes so.
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = rt_sys::tree::remove_path(&self.0);
    }
}

fn text_of(config: &Map<String, Value>, key: &str) -> String {
    config.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn strings(config: &Map<String, Value>, key: &str) -> Vec<String> {
    let all = config.get(key).and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn object<'a>(config: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let value = config.entry(key).or_insert_with(|| json!({}));
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(object) => object,
        _ => unreachable!("an object was just put there"),
    }
}

/// The ports that a word of EXPOSE stands for, each with its protocol.
fn ports_of(word: &str) -> Result<Vec<String>> {
    let bad = || err!("EXPOSE {word}: not a port, such as 80, 80/udp or 8000-8010");
    let (ports, protocol) = word.split_once('/').unwrap_or((word, "tcp"));
    let protocol = protocol.to_ascii_lowercase();
    if !["tcp", "udp", "sctp"].contains(&protocol.as_str()) {
        return Err(bad());
    }
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let (first, last): (u16, u16) = (first.parse().map_err(|_| bad())?, last.parse().map_err(|_| bad())?);
    if first > last {
        return Err(bad());
    }
    Ok((first..=last).map(|port| format!("{port}/{protocol}")).collect())
}

fn healthcheck(check: &Healthcheck) -> Value {
    let mut out = Map::new();
    let test = match &check.command {
        None => json!(["NONE"]),
        Some(Command::Shell(text)) => json!(["CMD-SHELL", text]),
        Some(Command::Exec(words)) => json!([&["CMD".to_owned()][..], words].concat()),
    };
    out.insert("Test".into(), test);
    let times = [
        ("Interval", check.interval),
        ("Timeout", check.timeout),
        ("StartPeriod", check.start_period),
        ("StartInterval", check.start_interval),
        ("Retries", check.retries),
    ];
    out.extend(times.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?)))));
    Value::Object(out)
}
