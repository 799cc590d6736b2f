//! hooks.d: hooks that a site, or a user, adds to containers by files (oci-hooks(5), schema 1.0.0).
//!
//! A file names a hook, its stages, and when it runs. Files are read from several directories; of files of the
//! same name the one in the later directory counts, and an empty one switches the hook off.

// Here, because it sees what is private to definitions.
#[path = "fuzz.rs"]
pub mod fuzz;

use super::run::{self, Stage};
use crate::pattern;
use oci_spec::runtime::{Hook, Hooks};
use rt_launch::launchers::HOOK_PREFIXES;
use rt_spec::caller_request::{
    ANNOTATION_ENV, ANNOTATION_MPI, CALLER_REQUEST, CallerRequest, MPI, PREFIXES, is_host_mpi,
};
use rt_spec::{Config, Spec, annotate, json_error};
use rt_sys::bail;
use rt_sys::caller;
use rt_sys::error::{Context, Result};
use rt_sys::mount::ATTR_RDONLY;
use rt_sys::owned::{self, Own, Owned};
use rustix::fd::OwnedFd;
use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The directories of the distribution and of the site.
const SYSTEM: [&str; 2] = ["/usr/share/rt/hooks.d", "/etc/rt/hooks.d"];
/// Reads a config on stdin and prints another; podman's kind, not the specification's.
const PRECREATE: &str = "precreate";

/// A file of hooks.d.
#[derive(Clone, Debug, Deserialize)]
pub struct Definition {
    version: String,
    hook: Hook,
    when: When,
    stages: Vec<String>,
}

/// All of these must hold, and at least one must be there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct When {
    always: Option<bool>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    commands: Vec<String>,
    has_bind_mounts: Option<bool>,
}

/// Adds the hooks of all directories, `more` among them, that are for the container of `config`; where devices or the host's
/// MPI are asked for also the ones that serve those. Out of line: mostly there is nothing to do.
#[inline(never)]
pub fn add_to(config: &mut Config, more: &[PathBuf], said: &CallerRequest, place: &Path) -> Result<()> {
    let mut definitions = load(&dirs(more))?;
    let create_runtime = Stage::CreateRuntime.as_str();
    if !said.devices.is_empty() {
        require(&mut definitions, "rt-hook-gpu", "--device", &[PRECREATE, create_runtime])?;
    }
    if settle_mpi(config, said)? {
        require(&mut definitions, "rt-hook-mpi", "the host's MPI", &[create_runtime])?;
    }
    if definitions.is_empty() { Ok(()) } else { inject(config, &definitions, said, place) }
}

/// The files that are found, each with the program of its hook.
pub(crate) fn programs() -> Result<Vec<(PathBuf, PathBuf)>> {
    let definitions = load(&dirs(&[]))?;
    Ok(definitions.into_iter().map(|(file, definition)| (file, definition.hook.path().clone())).collect())
}

/// Refuses directories of definitions that somebody else has written, or could have. For a call that goes on in a user
/// namespace of one id, where all who are not the caller look like one.
pub fn check_owners(dirs: &[PathBuf]) -> Result<()> {
    load(dirs).map(|_| ())
}

/// The system's directories, the user's, and `more`, in the order in which they count.
fn dirs(more: &[PathBuf]) -> Vec<PathBuf> {
    SYSTEM.into_iter().map(PathBuf::from).chain(user_dir(caller::path)).chain(more.iter().cloned()).collect()
}

/// The user's own directory, where there is a place for it among what `variable` says of the environment.
fn user_dir(variable: fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    caller::config_home(variable).map(|dir| dir.join("rt/hooks.d"))
}

/// The definitions in `dirs`, in the order of their names. A directory that is missing costs one call.
fn load(dirs: &[PathBuf]) -> Result<Vec<(PathBuf, Definition)>> {
    let mut opened = Vec::new();
    for path in dirs {
        let directory = Directory::open(path).context(|| format!("hooks directory {}", path.display()))?;
        opened.extend(directory);
    }
    let mut files: BTreeMap<String, (&Directory, String)> = BTreeMap::new();
    for directory in &opened {
        let names = directory.names().context(|| format!("hooks directory {}", directory.path.display()))?;
        // Podman's order: letters without regard to case.
        files.extend(names.into_iter().map(|name| (name.to_lowercase(), (directory, name))));
    }
    let mut all = Vec::with_capacity(files.len());
    for (directory, name) in files.into_values() {
        let path = directory.path.join(&name);
        let shown = || format!("hook {}", path.display());
        let text = directory.read(&name).context(shown)?;
        if text.is_empty() {
            continue;
        }
        let definition = parse(&text).context(shown)?;
        all.push((path, definition));
    }
    Ok(all)
}

/// Opens the user's own directory; `None` where it is missing, or is not the caller's.
fn open_users(path: &Path) -> Result<Option<(OwnedFd, Owned)>> {
    match owned::open(path, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(Own::Opened(dir, owned)) => Ok(Some((dir, owned))),
        Ok(Own::Missing) => Ok(None),
        Ok(Own::Strangers(why)) => {
            log::warn!("hooks directory {}: {why}, and it is not read", path.display());
            Ok(None)
        }
        Err(e) if e.is(libc::EACCES) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Opens a directory of the site's, or one that it or the caller names; `None` where it is missing.
fn open_named(path: &Path) -> Result<Option<(OwnedFd, Owned)>> {
    let dir = match fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        dir => dir?,
    };
    let owned = Owned::of(&dir)?;
    Ok(Some((dir, owned)))
}

/// An open directory of definitions.
struct Directory {
    path: PathBuf,
    fd: OwnedFd,
    /// It is the distribution's or the site's.
    site: bool,
    /// It is where the user's environment says.
    users: bool,
}

impl Directory {
    /// `None` where there is no such directory, or the user's own place is somebody else's: HOME may be, after su or
    /// setpriv.
    fn open(path: &Path) -> Result<Option<Directory>> {
        let users = user_dir(caller::path).is_some_and(|dir| dir == path);
        let opened = if users { open_users(path)? } else { open_named(path)? };
        let Some((fd, owned)) = opened else { return Ok(None) };
        let site = SYSTEM.iter().any(|dir| Path::new(dir) == path);
        let directory = Directory { path: path.to_owned(), fd, site, users };
        directory.require_own(&directory.fd, &owned)?;
        Ok(Some(directory))
    }

    /// Refuses what somebody else than root and the caller has written, or could have: a definition has programs run as the
    /// caller. What is in the site's directories belongs to the host's root, who has no id in a user namespace; nor has the root to
    /// whom a directory belongs that the site's configuration or the command line names. Where the environment says the user's is, it
    /// can be anybody's: there nobody without an id is taken for root.
    fn require_own(&self, file: &OwnedFd, owned: &Owned) -> Result<()> {
        let uid = owned.stat.st_uid;
        if !(self.site || caller::is_trusted(uid) || !self.users && caller::may_be_hosts_root(uid)) {
            bail!("it belongs to uid {uid}, neither to root nor to the caller");
        }
        if owned.others_can_write(file, false)? {
            bail!("others than its owner may write it (chmod go-w)");
        }
        Ok(())
    }

    /// The text of a definition; none of a link to /dev/null, which switches one off.
    fn read(&self, name: &str) -> Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        // It may be a link.
        if self.users
            && let Some(place) = owned::strangers_place(&self.path.join(name))?
        {
            bail!("others than root and the caller can change {place}");
        }
        let file = fs::openat(&self.fd, name, flags, Mode::empty())?;
        let owned = Owned::of(&file)?;
        if FileType::from_raw_mode(owned.stat.st_mode) != FileType::RegularFile {
            return Ok(Vec::new());
        }
        self.require_own(&file, &owned)?;
        rt_sys::fd::read_all(file)
    }

    /// The names of the JSON files.
    fn names(&self) -> Result<Vec<String>> {
        let mut all = Vec::new();
        for entry in fs::Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if let Some(name) = name.to_str().filter(|name| name.ends_with(".json")) {
                all.push(name.to_owned());
            }
        }
        Ok(all)
    }
}

/// Parses and checks a definition.
pub fn parse(text: &[u8]) -> Result<Definition> {
    let definition: Definition = serde_json::from_slice(text).map_err(json_error)?;
    if definition.version != "1.0.0" {
        bail!("version {:?} is not 1.0.0", definition.version);
    }
    if !definition.hook.path().is_absolute() {
        bail!("hook.path {} is not absolute", definition.hook.path().display());
    }
    if definition.stages.is_empty() {
        bail!("stages is empty");
    }
    for stage in &definition.stages {
        if stage != PRECREATE && Stage::named(stage).is_none() {
            bail!("unknown stage {stage:?}");
        }
    }
    let when = &definition.when;
    let patterns = when.annotations.iter().flat_map(|(key, value)| [key, value]).chain(&when.commands);
    patterns.into_iter().try_for_each(|pattern| pattern::compile(pattern).map(|_| ()))?;
    Ok(definition)
}

impl Definition {
    /// True where the hook is for this container.
    fn matches(&self, spec: &Spec) -> Result<bool> {
        let when = &self.when;
        let mut asked = 0;
        for condition in [when.always, when.has_bind_mounts.map(|wanted| wanted && has_bind_mounts(spec))] {
            match condition {
                Some(false) => return Ok(false),
                Some(true) => asked += 1,
                None => {}
            }
        }
        let none = HashMap::new();
        let annotations = spec.annotations().as_ref().unwrap_or(&none);
        for (key, value) in &when.annotations {
            let (key, value) = (pattern::compile(key)?, pattern::compile(value)?);
            if !annotations.iter().any(|(k, v)| key.is_match(k) && value.is_match(v)) {
                return Ok(false);
            }
            asked += 1;
        }
        if !when.commands.is_empty() {
            let args = spec.process().as_ref().and_then(|p| p.args().as_deref()).unwrap_or_default();
            let Some(program) = args.first() else { bail!("process.args is empty") };
            let mut any = false;
            for pattern in &when.commands {
                any |= pattern::compile(pattern)?.is_match(program);
            }
            if !any {
                return Ok(false);
            }
            asked += 1;
        }
        Ok(asked > 0)
    }
}

/// True where somebody's files are bound into the container, beyond what belongs to any container.
fn has_bind_mounts(spec: &Spec) -> bool {
    spec.mounts().iter().flatten().any(|mount| {
        let words = mount.options().iter().flatten().map(String::as_str);
        let options = rt_spec::mounts::parse(words);
        let bind = options.bind || mount.typ().as_deref() == Some("bind");
        // What engines always bind: resolv.conf and the like, and parts of the kernel's own file systems.
        let usual = ["/etc", "/run", "/dev", "/proc", "/sys"];
        let usual = usual.iter().any(|dir| mount.destination().starts_with(dir));
        bind && !(usual && (options.attr.set & ATTR_RDONLY != 0 || !mount.destination().starts_with("/etc")))
    })
}

/// Adds the hooks that are for this container to its config, after it has been through those of the stage
/// precreate.
fn inject(
    config: &mut Config,
    definitions: &[(PathBuf, Definition)],
    said: &CallerRequest,
    place: &Path,
) -> Result<()> {
    let mut matching = Vec::new();
    for (path, definition) in definitions {
        if definition.matches(&config.spec).context(|| format!("hook {}", path.display()))? {
            matching.push((path, definition));
        }
    }
    for (path, definition) in &matching {
        if definition.stages.iter().any(|stage| stage == PRECREATE) {
            let text = run::filter(&definition.hook, &with_said(&config.text()?, said)?, place)?;
            let what = || format!("the config that hook {} returns", path.display());
            *config = Config::parse(text).context(what)?;
        }
    }
    if matching.is_empty() {
        return Ok(());
    }
    let mut hooks = config.spec.hooks().clone().unwrap_or_default();
    for (_, definition) in &matching {
        for stage in definition.stages.iter().filter_map(|stage| Stage::named(stage)) {
            add(&mut hooks, stage, &definition.hook);
        }
    }
    config.spec.set_hooks(Some(hooks));
    let env = config.spec.process().as_ref().and_then(|p| p.env().as_deref()).unwrap_or_default();
    let told: Vec<&String> = env.iter().filter(|variable| is_for_hooks(variable)).collect();
    let text = serde_json::to_string(&told).map_err(json_error)?;
    annotate(&mut config.spec, ANNOTATION_ENV, &text);
    config.changed();
    Ok(())
}

/// True for a variable, `NAME=VALUE`, that says something to our hooks.
pub(crate) fn is_for_hooks(variable: &str) -> bool {
    PREFIXES.iter().chain(&HOOK_PREFIXES).any(|prefix| variable.starts_with(prefix))
}

/// The config as hooks of the stage precreate get it.
fn with_said<'a>(config: &'a [u8], said: &CallerRequest) -> Result<Cow<'a, [u8]>> {
    if said.is_empty() {
        return Ok(config.into());
    }
    let mut value: serde_json::Value = serde_json::from_slice(config).map_err(json_error)?;
    value[CALLER_REQUEST] = serde_json::to_value(said).map_err(json_error)?;
    Ok(value.to_string().into_bytes().into())
}

fn add(hooks: &mut Hooks, stage: Stage, hook: &Hook) {
    #[allow(deprecated, reason = "definitions still name prestart")]
    let list = match stage {
        Stage::Prestart => hooks.prestart_mut(),
        Stage::CreateRuntime => hooks.create_runtime_mut(),
        Stage::CreateContainer => hooks.create_container_mut(),
        Stage::StartContainer => hooks.start_container_mut(),
        Stage::Poststart => hooks.poststart_mut(),
        Stage::Poststop => hooks.poststop_mut(),
    };
    list.get_or_insert_default().push(hook.clone());
}

/// Adds the hook called `name`, which serves `asked`, where no file has named it: beside this program, else by PATH.
fn require(
    definitions: &mut Vec<(PathBuf, Definition)>,
    name: &str,
    asked: &str,
    stages: &[&str],
) -> Result<()> {
    if definitions.iter().any(|(_, d)| d.hook.path().ends_with(name)) {
        return Ok(());
    }
    let mut found = None;
    for path in rt_sys::start::companions(name)?.into_iter().filter(|path| path.is_absolute()) {
        match fs::access(&path, fs::Access::EXEC_OK) {
            Ok(()) => {
                found = Some(path);
                break;
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG) => {}
            Err(e) => return Err(e).context(|| format!("look whether {} can be executed", path.display())),
        }
    }
    let Some(path) = found else {
        bail!("{asked} needs {name}, which is neither beside rt nor in PATH (make install installs both)");
    };
    let hook: Hook = serde_json::from_value(serde_json::json!({ "path": path })).map_err(json_error)?;
    let stages = stages.iter().map(|stage| (*stage).to_owned()).collect();
    let when = When { always: Some(true), ..When::default() };
    definitions.push((path, Definition { version: "1.0.0".to_owned(), hook, when, stages }));
    Ok(())
}

/// Whether the host's MPI library is asked for: by the caller, else by the container's environment, else by an annotation.
/// The annotation then says the same, because definitions are chosen by it.
fn settle_mpi(config: &mut Config, said: &CallerRequest) -> Result<bool> {
    let spec = &mut *config.spec;
    let annotated = rt_spec::asks_for_mpi(spec);
    let value = |variable: &String| variable.strip_prefix(MPI)?.strip_prefix('=').map(str::to_owned);
    let env = spec.process().as_ref().and_then(|p| p.env().as_deref()).unwrap_or_default();
    let word = said.env.iter().rev().find_map(value).or_else(|| env.iter().rev().find_map(value));
    let Some(word) = word else { return Ok(annotated) };
    let asked = is_host_mpi(&word).context(|| MPI)?;
    if asked != annotated {
        annotate(spec, ANNOTATION_MPI, if asked { "host" } else { "image" });
        config.changed();
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(extra: &str) -> Spec {
        let text = format!(
            r#"{{"ociVersion":"1.0.0","root":{{"path":"r"}},"process":{{"cwd":"/","user":{{"uid":0,"gid":0}},
                "args":["/usr/bin/python3","x"]}}{extra}}}"#
        );
        *Config::parse(text.into()).unwrap().spec
    }

    fn definition(when: &str) -> Result<Definition> {
        let text = format!(
            r#"{{"version":"1.0.0","hook":{{"path":"/h"}},"when":{when},"stages":["createRuntime"]}}"#
        );
        parse(text.as_bytes())
    }

    #[test]
    fn all_conditions_must_hold() {
        let plain = spec("");
        let annotated = spec(r#","annotations":{"com.example.gpu":"yes","other":"no"}"#);
        let bound = spec(r#","mounts":[{"destination":"/data","source":"/d","type":"bind"}]"#);
        let usual =
            spec(r#","mounts":[{"destination":"/etc/hosts","source":"/d","type":"bind","options":["ro"]}]"#);
        for (when, spec, expected) in [
            (r#"{"always":true}"#, &plain, true),
            (r#"{"always":false}"#, &plain, false),
            (r#"{}"#, &plain, false),
            (r#"{"commands":["python[0-9]+$"]}"#, &plain, true),
            (r#"{"commands":["^python"]}"#, &plain, false),
            (r#"{"commands":["nope","/usr/"]}"#, &plain, true),
            (r#"{"annotations":{"\\.gpu$":"^yes$"}}"#, &annotated, true),
            (r#"{"annotations":{"\\.gpu$":"^no$"}}"#, &annotated, false),
            (r#"{"annotations":{".*":"no"},"commands":["nope"]}"#, &annotated, false),
            (r#"{"annotations":{".*":".*"}}"#, &plain, false),
            (r#"{"hasBindMounts":true}"#, &bound, true),
            (r#"{"hasBindMounts":true}"#, &plain, false),
            (r#"{"hasBindMounts":true}"#, &usual, false),
            (r#"{"always":true,"hasBindMounts":true}"#, &plain, false),
        ] {
            assert_eq!(definition(when).unwrap().matches(spec).unwrap(), expected, "{when}");
        }
    }

    #[test]
    fn patterns_have_bounds() {
        let nested = format!("{}x{}", "(".repeat(100_000), ")".repeat(100_000));
        for pattern in [nested.as_str(), "((((a{1000}){1000}){1000}){1000})", "(?:){4294967295}"] {
            let when = serde_json::json!({ "commands": [pattern] }).to_string();
            assert!(definition(&when).is_err(), "{:.20}", pattern);
        }
        let spec = spec(&format!(r#","annotations":{{"a":"{}"}}"#, "a".repeat(100_000)));
        let slow = definition(r#"{"annotations":{"a":"^(a|a)*(a*)*b$"}}"#).unwrap();
        assert!(!slow.matches(&spec).unwrap(), "no backtracking");
    }

    #[test]
    fn wrong_files_are_refused() {
        let good = r#"{"version":"1.0.0","hook":{"path":"/h"},"when":{"always":true},"stages":["precreate","poststop"]}"#;
        parse(good.as_bytes()).unwrap();
        for (from, to) in [
            ("1.0.0", "0.1.0"),
            ("/h", "h"),
            ("poststop", "after"),
            (r#""precreate","poststop""#, ""),
            (r#"{"always":true}"#, r#"{"allways":true}"#),
            (r#"{"always":true}"#, r#"{"commands":["("]}"#),
            (r#""when""#, r#""what""#),
        ] {
            assert!(parse(good.replacen(from, to, 1).as_bytes()).is_err(), "{from} as {to}");
        }
    }

    #[test]
    fn later_directories_replace_and_switch_off() {
        let base = std::env::temp_dir().join(format!("rt-hooks-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&base);
        let write = |dir: &str, name: &str, text: &str| {
            std::fs::create_dir_all(base.join(dir)).unwrap();
            std::fs::write(base.join(dir).join(name), text).unwrap();
        };
        let hook = |path: &str| {
            format!(
                r#"{{"version":"1.0.0","hook":{{"path":"{path}"}},"when":{{"always":true}},"stages":["poststop"]}}"#
            )
        };
        write("a", "B.json", &hook("/a/b"));
        write("a", "a.json", &hook("/a/a"));
        write("a", "c.json", &hook("/a/c"));
        write("a", "notes.txt", "no hook");
        write("b", "b.json", &hook("/b/b"));
        write("b", "c.json", "");
        let dirs = ["a", "missing", "b"].map(|dir| base.join(dir));
        let all = load(&dirs).unwrap();
        let paths: Vec<_> = all.iter().map(|(_, d)| d.hook.path().to_str().unwrap()).collect();
        assert_eq!(paths, ["/a/a", "/b/b"]);
        write("b", "d.json", "{");
        let error = load(&dirs).unwrap_err().to_string();
        assert!(error.contains("b/d.json: EOF"), "{error}");
        std::fs::remove_dir_all(base).unwrap();
    }
}
