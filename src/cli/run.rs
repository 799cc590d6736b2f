//! `rt run`

use super::operand::{self, Operand};
use super::table::*;
use super::{Call, PROGRAM, create, image};
use crate::checkpoint::{self, Restore};
use crate::container::{
    self, Choice, Entrypoint, Ids, Lifetime, NamespaceChoices, Overrides, RootAccess, Run,
};
use crate::store::{Scratch, already_exists, check_id};
use oci_spec::runtime::Mount;
use rt_cli::flag::Flag;
use rt_cli::image::{PLATFORM, PULL_POLICY};
use rt_cli::parse::Flags;
use rt_cli::wrong;
use rt_launch::launchers;
use rt_spec::asked_mounts;
use rt_spec::emulation::{RootEmulation, parse_root_emulation};
use rt_spec::rootless::UserMap;
use rt_sys::error::Result;
use rt_sys::{bail, caller, err, look};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Creates a container, starts it and, unless it is detached, waits for its end and removes it.
pub(super) fn run(call: &Call) -> Result<u8> {
    let flags = &call.flags;
    // Before an image is pulled.
    if flags.has(&REMOVE) && (flags.has(&DETACH) || flags.has(&KEEP)) {
        bail!("run: --rm cannot be kept with --detach or --keep (rt delete removes the container)");
    }
    if let Some(caller) = flags.text(&END_WITH)? {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // The caller may have ended before this process asked for the signal.
        if rustix::process::getppid().is_none_or(|pid| pid.to_string() != caller) {
            bail!("run: the caller has ended");
        }
    }
    let asked = overrides(call)?;
    let Some(source) = source(call)? else {
        return Ok(PROGRAM.command("run").map_or(1, |command| command.failure));
    };
    let own_form = source.own_form;
    let (run, apart) = shared_run(call, own_form)?;
    let mut options = create::options(call, source.id, source.bundle)?;
    options.run = run;
    options.apart = apart;
    options.image_file = source.image;
    options.lifetime = match (flags.has(&DETACH), flags.has(&KEEP)) {
        // The state of a detached container is kept in any case.
        (true, _) => Lifetime::Detached,
        (false, true) => Lifetime::ForegroundKept,
        (false, false) => Lifetime::Foreground,
    };
    options.user_map = user_map(call, options.user_map, asked.user)?;
    // With --bundle it is a client that calls, and the bundle's config says it all.
    options.configured = call.flags.path(&BUNDLE).is_none();
    options.callers_umask = options.configured;
    options.inherit_env = !flags.has(&CLEAR_ENV);
    options.mpi = create::mpi(call)?;
    options.overrides = asked;
    if let Some(dir) = flags.path(&CHECKPOINT) {
        if flags.has(&DETACH) {
            bail!("run: --checkpoint and --detach exclude each other: nobody would take the signals");
        }
        let every = flags.number(&CHECKPOINT_EVERY)?;
        let layer = match &options.overrides.root {
            RootAccess::InMemory | RootAccess::Writable => {
                return Err(err!("run: --checkpoint and a root in memory exclude each other: what the program writes there would be gone")
                    .hint("--overlay DIR keeps it"));
            }
            RootAccess::Overlay { dir, .. } => Some(dir.as_path()),
            RootAccess::AsConfigured | RootAccess::ReadOnly => None,
        };
        let restore = Restore::last_of(&dir, every, checkpoint::own_job(), &rt_config::own_variable)?;
        options.keep(Box::new(restore.with_layer(layer)?));
    }
    let scratch = match writable(call)? {
        Some(Writable::OnDisk) => Some(Scratch::make(&options.id)?),
        _ => None,
    };
    if let Some(scratch) = &scratch {
        options.overrides.root = RootAccess::Overlay { dir: scratch.dir.clone(), readonly: false };
        options.removes_layer = true;
    }
    // runc prints nothing, and neither do its forms.
    options.log = own_form && flags.has(&DETACH);
    let shown = options.log.then(|| format!("{}\n", options.id));
    let ended = super::new_store(call).and_then(|store| match &options.run {
        Some(_) => container::run_rank(&store, options),
        None => container::run(&store, options),
    });
    // What the container says comes first.
    let removed = scratch.map_or(Ok(()), |scratch| scratch.remove());
    match ended.and_then(|code| removed.map(|()| code))? {
        0 => shown.map_or(Ok(0), rt_cli::print),
        code => Ok(code),
    }
}

/// Flags of a container that is the caller's alone. The supervisor of `--root-emulation` answers no calls of who joins.
static ALONE: [&Flag; 10] = [
    &CHECKPOINT,
    &ROOT_EMULATION,
    &DETACH,
    &KEEP,
    &NAME,
    &PID_FILE,
    &CONSOLE_SOCKET,
    &PIDFD_SOCKET,
    &STRICT,
    &TRACE,
];

/// The run that the container is shared with: the one that is named, or that of the launcher whose rank this process is. The
/// caller says it by the flag or by its environment, and no image. Or what keeps a rank from the container of the others.
fn shared_run(call: &Call, own_form: bool) -> Result<(Option<Run>, Option<String>)> {
    let flags = &call.flags;
    let flag = flags.text(&RUN_SHARE)?;
    let word = flag.map(str::to_owned).or_else(|| caller::said("RT_SHARE"));
    let name = match word.as_deref() {
        Some("never") => return Ok((None, apart_by("share never")?)),
        Some("auto") | None => None,
        Some(name) => Some(name),
    };
    if let Some(name) = name {
        check_id(name).map_err(|e| e.context("--share or RT_SHARE"))?;
        if name.len() > LONGEST_NAME {
            bail!("--share {name}: more than {LONGEST_NAME} characters");
        }
    }
    let on_disk = flags.text(&WRITABLE)? == Some("disk");
    let alone = ALONE.iter().find(|flag| flags.given(flag)).map(|flag| flag.long);
    if let Some(alone) = alone.or(on_disk.then_some("writable=disk")).or((!own_form).then_some("bundle")) {
        match flag {
            Some(name) if name != "auto" => bail!("run: --share {name} and --{alone} exclude each other"),
            _ => return Ok((None, apart_by(alone)?)),
        }
    }
    let rank = launchers::rank()?;
    if name.is_none() && rank.is_none() {
        return Ok((None, None));
    }
    let (number, step) = rank.as_ref().map_or((None, None), |rank| (Some(rank.number), rank.step.clone()));
    // Who shares by hand has no launcher that anybody else's program is of.
    let known = rank.as_ref().filter(|_| name.is_none());
    let (launcher, ranks) = known.map_or((None, None), |rank| (rank.launcher, rank.ranks));
    let of_launcher = || rank.map(|rank| (rank.run, rank.key)).unwrap_or_default();
    let (named, explicit) = (name.is_some(), word.is_some());
    let step = step.filter(|_| !named);
    let (name, key) = name.map_or_else(of_launcher, |name| (name.to_owned(), name.to_owned()));
    let run =
        Run { name, key, pid: std::process::id(), rank: number, step, named, explicit, launcher, ranks };
    Ok((Some(run), None))
}

/// The flag that keeps this process from the container of others, where it is a rank.
fn apart_by(flag: &str) -> Result<Option<String>> {
    Ok(launchers::rank()?.map(|_| format!("--{flag}")))
}

/// How long a name of `--share` may be: an id has more behind it.
const LONGEST_NAME: usize = 100;

/// What the flags change in the config.
fn overrides(call: &Call) -> Result<Overrides> {
    let flags = &call.flags;
    Ok(Overrides {
        args: call.rest()?,
        entrypoint: match flags.text(&ENTRYPOINT)? {
            None => Entrypoint::OfImage,
            Some(command) => Entrypoint::Command(Some(command.to_owned()).filter(|c| !c.is_empty())),
        },
        env: super::environment(call)?,
        root: root_access(call)?,
        home: flags.has(&HOME).then_some(true),
        unmounted: Vec::new(),
        cwd: working_directory(flags)?,
        terminal: flags.switch(&TTY),
        init: flags.switch(&INIT),
        volumes: flags.texts(&VOLUME)?,
        mounts: mounts(call)?,
        devices: flags.texts(&DEVICE)?,
        defaults: Vec::new(),
        unset_env: Vec::new(),
        namespaces: NamespaceChoices {
            net: choice(call, &NET)?,
            pid: choice(call, &PID)?,
            ipc: choice(call, &IPC)?,
            hostname: flags.text(&HOSTNAME)?.filter(|name| !name.is_empty()).map(str::to_owned),
        },
        user: user(call)?,
        root_emulation: root_emulation(call)?,
    })
}

/// The directory of `--cwd`, looked at before an image is pulled: behind Apptainer's `-w` stands one.
fn working_directory(flags: &Flags) -> Result<Option<PathBuf>> {
    match flags.path(&CWD) {
        Some(dir) if !dir.is_absolute() => {
            Err(err!("run: working directory {} is not an absolute path", dir.display())
                .hint("a layer to write to is --writable"))
        }
        dir => Ok(dir),
    }
}

/// The ids of `--user`.
fn user(call: &Call) -> Result<Option<Ids>> {
    let Some(text) = call.flags.text(&RUN_USER)?.filter(|user| !user.is_empty()) else { return Ok(None) };
    Ids::parse(text).map(Some).map_err(|e| {
        e.hint("without root there is one id inside, the caller's: --as-root for root, --user-map caller for its own")
    })
}

/// Which id the caller has inside, by `--user-map` (`asked`), `--as-root` and `--user`.
fn user_map(call: &Call, asked: Option<UserMap>, user: Option<Ids>) -> Result<Option<UserMap>> {
    let as_root = call.flags.has(&AS_ROOT);
    let root = as_root.then_some((UserMap::Root, "--as-root"));
    let of_user = user.map(|ids| (if ids.uid == 0 { UserMap::Root } else { UserMap::Config }, "--user"));
    let by_flag = match (root, of_user) {
        (Some((first, _)), Some((second, _))) if first != second => {
            bail!(
                "run: --as-root and --user {} exclude each other",
                call.flags.text(&RUN_USER)?.unwrap_or("")
            )
        }
        (first, second) => first.or(second),
    };
    match (by_flag, asked) {
        (Some((map, flag)), Some(asked)) if map != asked => {
            bail!("run: {flag} and --user-map {} exclude each other", asked.as_str())
        }
        (by_flag, asked) => Ok(by_flag.map(|(map, _)| map).or(asked)),
    }
}

/// What becomes of the owners that root gives. They are recorded in a layer that stays.
fn root_emulation(call: &Call) -> Result<Option<RootEmulation>> {
    let Some(word) = call.flags.text(&ROOT_EMULATION)? else { return Ok(None) };
    if !call.flags.has(&AS_ROOT) || call.flags.path(&OVERLAY).is_none() {
        bail!("run: --root-emulation needs --as-root and --overlay");
    }
    parse_root_emulation(word).map(Some)
}

/// The mounts of `--mount` and `--tmpfs`.
fn mounts(call: &Call) -> Result<Vec<Mount>> {
    let (long, tmpfs) = (call.flags.texts(&MOUNT)?, call.flags.texts(&TMPFS)?);
    let long = long.iter().map(|text| asked_mounts::mount(text));
    long.chain(tmpfs.iter().map(|text| asked_mounts::tmpfs(text))).collect()
}

/// The namespace that `flag`, one of `--net`, `--pid` and `--ipc`, chooses.
fn choice(call: &Call, flag: &Flag) -> Result<Option<Choice>> {
    let Some(word) = call.flags.text(flag)? else { return Ok(None) };
    let own = if std::ptr::eq(flag, &NET) { "none" } else { "private" };
    match word {
        "host" => Ok(Some(Choice::Host)),
        word if word == own => Ok(Some(Choice::Private)),
        _ => {
            let typed = format!("--{}", flag.long);
            Err(wrong::invalid_value(typed.as_ref(), word.as_ref(), &format!("host or {own}")))
        }
    }
}

/// Where a layer is that is gone with the container.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writable {
    InMemory,
    OnDisk,
}

/// What `--writable` says.
fn writable(call: &Call) -> Result<Option<Writable>> {
    let flags = &call.flags;
    match (flags.text(&WRITABLE)?, flags.switch(&WRITABLE)) {
        (Some("disk"), _) if flags.has(&DETACH) => {
            Err(err!("run: --writable=disk and --detach exclude each other")
                .hint("--overlay DIR names a directory that stays"))
        }
        (Some("disk"), _) => Ok(Some(Writable::OnDisk)),
        (Some("memory"), _) | (_, Some(true)) => Ok(Some(Writable::InMemory)),
        (None, _) | (_, Some(false)) => Ok(None),
        (Some(word), None) => {
            Err(wrong::invalid_value("--writable".as_ref(), word.as_ref(), "memory or disk"))
        }
    }
}

/// Whether the root can be written, and where to.
fn root_access(call: &Call) -> Result<RootAccess> {
    let flags = &call.flags;
    let (writable, readonly) = (writable(call)?.is_some(), flags.has(&READ_ONLY));
    Ok(match flags.path(&OVERLAY) {
        Some(_) if writable => bail!("run: --writable and --overlay exclude each other"),
        // Apptainer's word for a layer that is only read.
        Some(dir) if dir.as_os_str().as_bytes().ends_with(b":ro") && !look::exists(&dir)? => {
            return Err(err!("run: --overlay {}: no such directory", dir.display())
                .hint("--overlay DIR --read-only only reads a layer"));
        }
        Some(dir) => RootAccess::Overlay { dir, readonly },
        None if writable && readonly => bail!("run: --writable and --read-only exclude each other"),
        None if writable => RootAccess::InMemory,
        None if readonly => RootAccess::ReadOnly,
        None if flags.has(&AS_ROOT) => RootAccess::Writable,
        None => RootAccess::AsConfigured,
    })
}

/// What the operand stands for.
struct Source {
    id: String,
    bundle: PathBuf,
    /// A file with an image, which has no bundle.
    image: Option<PathBuf>,
    /// The operand is not the id, as with runc.
    own_form: bool,
}

/// What the operand stands for; none where `rt-pull` has said why there is no bundle.
fn source(call: &Call) -> Result<Option<Source>> {
    let flags = &call.flags;
    let (config, named) = (flags.path(&CONFIG), flags.path(&BUNDLE));
    let config = config.unwrap_or_else(|| PathBuf::from("config.json"));
    let operand = match named {
        Some(_) => Operand::Id(call.id()?.to_owned()),
        None => operand::classify(call.operands[0], &config)?,
    };
    if let Some(flag) = [&PULL_POLICY, &PLATFORM].into_iter().find(|flag| flags.given(flag))
        && !matches!(operand, Operand::Image(_))
    {
        bail!("run: --{} is for images only", flag.long);
    }
    let own_form = !matches!(operand, Operand::Id(_));
    let name = flags.text(&NAME)?;
    if let Some(name) = name {
        if !own_form {
            bail!("run: the operand is the id, so --name {name} names the container twice");
        }
        check_id(name)?;
        // Before an image is pulled.
        if super::store(call)?.load_if_there(name)?.is_some() {
            return Err(already_exists(name).hint(format!("rt rm {name} removes it")));
        }
    }
    let id = || name.map_or_else(made_up_id, str::to_owned);
    let (id, bundle, image) = match operand {
        Operand::Bundle(dir) => {
            // Nothing that is in a store is asked before it is entered, as by `operand::classify`.
            if !flags.given(&CONFIG)
                && !rt_image_store::is_stored(&dir)
                && !look::is_file_unserved(dir.join(&config))?
            {
                require_bundle(&dir, &config, flags)?;
            }
            (id(), dir, None)
        }
        Operand::Id(id) => (id, named.unwrap_or_else(|| PathBuf::from(".")), None),
        Operand::File(path) => {
            operand::check_image_file(&path)?;
            (id(), PathBuf::from("."), Some(rt_sys::fd::absolute(path)?))
        }
        Operand::Image(word)
            if flags.text(&WRITABLE)? == Some("true") && ["disk", "memory"].contains(&&*word) =>
        {
            return Err(
                err!("run: image {word:?} is not what --writable takes").hint(format!("--writable={word}"))
            );
        }
        Operand::Image(name) => match image::bundle(call, &name)? {
            Some(bundle) => (id(), bundle, None),
            None => return Ok(None),
        },
    };
    Ok(Some(Source { id, bundle, image, own_form }))
}

/// Refuses `dir`, which has no `config`, with what was probably meant. Where nothing is there, whoever opens it says so.
fn require_bundle(dir: &Path, config: &Path, flags: &Flags) -> Result<()> {
    if flags.has(&HOME) {
        return Err(err!("run: {}: no bundle", dir.display())
            .hint("--home takes no directory: -v DIR:PLACE shows another one"));
    }
    if look::is_dir(dir)? { Err(operand::without_config(dir, config)?) } else { Ok(()) }
}

/// Twelve random hexadecimal digits, as podman's short ids. That no other container has it is for
/// the store to see.
fn made_up_id() -> String {
    // std seeds each hasher from getrandom(2), so the hash of nothing is a random number.
    format!("{:012x}", RandomState::new().build_hasher().finish() >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt_cli::parse::{self, Flags};
    use std::ffi::OsString;

    fn read(words: &[&str]) -> (String, PathBuf) {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let call = parse::call(PROGRAM.command("run").unwrap(), Flags::default(), &words).unwrap().unwrap();
        let source = source(&call).unwrap().unwrap();
        (source.id, source.bundle)
    }

    #[test]
    fn the_operand_is_an_id_or_a_bundle() {
        let dir = std::env::temp_dir().join(format!("rt-run-{}", made_up_id()));
        std::fs::create_dir(&dir).unwrap();
        let name = dir.to_str().unwrap();
        std::fs::write(dir.join("config.json"), "{}").unwrap();
        // A path is a bundle also where nothing is there: the error is then about the bundle.
        let (id, bundle) = read(&[name]);
        assert!(id.len() == 12 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        assert_eq!(bundle, dir);
        assert_eq!(read(&["./not/there"]).1, Path::new("./not/there"));
        assert_eq!(read(&["-b", name, "c1"]), ("c1".into(), dir.clone()));
        let config = dir.join("c.json");
        std::fs::write(&config, r#"{"ociVersion":"1.0.0","root":{}}"#).unwrap();
        // crun's form, and a bundle with the config of another place.
        assert_eq!(read(&["-f", config.to_str().unwrap(), "c1"]), ("c1".into(), ".".into()));
        assert_eq!(read(&["-f", config.to_str().unwrap(), "src"]).1, Path::new("src"));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn made_up_ids_differ() {
        let ids: std::collections::BTreeSet<_> = (0..1000).map(|_| made_up_id()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
