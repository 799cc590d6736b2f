//! The images that `rt run` starts by name: from the store, into which `rt-pull` puts them.

use super::companion::with_companion;
use super::operand::is_local_image;
use crate::container;
use rt_cli::flag::{DEBUG, LOG, LOG_FORMAT, LOG_LEVEL};
use rt_cli::image::{NO_PROGRESS, PLATFORM, PULL_POLICY};
use rt_cli::parse::Call;
use rt_image_store::{ImageStore, Place, PullPolicy, bundle_of_digest, name, place};
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err, signal};
use std::ffi::OsStr;
use std::io::{ErrorKind, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Bundles that were removed between `rt-pull`'s answer and their use, so often in a row, are somebody's doing.
const ATTEMPTS: usize = 3;

/// The bundle of an image, from the store. Where `rt-pull` fails it says why, and this is none.
pub(super) fn bundle(call: &Call, image: &str) -> Result<Option<PathBuf>> {
    let policy = call.flags.text(&PULL_POLICY)?.map_or(Ok(PullPolicy::Missing), str::parse)?;
    let platform = call.flags.text(&PLATFORM)?;
    let shown = std::io::stderr().is_terminal() && !call.flags.has(&NO_PROGRESS);
    pulled(call, image, &Pull { policy, platform, shown })
}

/// How an image is pulled.
pub(super) struct Pull<'a> {
    /// When the registry is asked.
    pub policy: PullPolicy,
    /// Which of the images of an index.
    pub platform: Option<&'a str>,
    /// Somebody watches stderr.
    pub shown: bool,
}

/// The bundle of `image`, which is pulled as `how` says where no store has it; none where `rt-pull` has said why there is none.
pub(super) fn pulled(call: &Call, image: &str, how: &Pull<'_>) -> Result<Option<PathBuf>> {
    let Pull { policy, platform, .. } = *how;
    let configured = rt_config::Config::read(&rt_config::own_variable)?;
    let places = place::places(&configured.stores())?;
    if let Some(name) = bundle_of_digest(image) {
        let stored = mark_in(&places, |store| store.has(&name).map(|there| there.then(|| name.clone())))?;
        return match stored {
            Some(bundle) => Ok(Some(bundle)),
            None => Err(err!("{image}: not in the store of images").hint("rt images lists them")),
        };
    }
    // Images of this machine can change under their names, so rt-pull looks at them.
    if policy != PullPolicy::Always && !is_local_image(image) {
        let name = name::in_registry(image, configured.text(&rt_config::REGISTRY));
        if let Some(key) = name::key(&name, platform)
            && let Some(bundle) = look_up(&places, &key)?
        {
            return Ok(Some(bundle));
        }
    }
    // Before rt-pull is executed, since this process can be executed anew here.
    container::protect_binary()?;
    for _ in 0..ATTEMPTS {
        let Some(bundle) = pull(call, image, how)? else { return Ok(None) };
        if is_there(&places, &bundle)? {
            return Ok(Some(bundle));
        }
    }
    bail!("{image}: removed from the store each time before it could be run")
}

/// Looks for a name in the stores, and marks the bundle as used.
fn look_up(places: &[Place], key: &str) -> Result<Option<PathBuf>> {
    mark_in(places, |store| store.find(key))
}

/// Marks the bundle that `find` finds in one of the stores as used.
fn mark_in(
    places: &[Place],
    find: impl Fn(&ImageStore) -> Result<Option<String>>,
) -> Result<Option<PathBuf>> {
    for place in places {
        let Some(store) = ImageStore::open(place)? else { continue };
        if let Some(bundle) = find(&store)? {
            // Marked first and looked for afterwards: whoever removes it takes its name away first, and then looks for
            // marks.
            if !store.mark_use(&bundle)? || store.has(&bundle)? {
                return Ok(Some(store.bundle(&bundle)));
            }
        }
    }
    Ok(None)
}

/// Marks a bundle that was resolved before, and looks whether it is there. What is in no store is its owner's to keep.
pub(super) fn mark(bundle: &Path) -> Result<bool> {
    let name = bundle.file_name().and_then(OsStr::to_str);
    if !name.is_some_and(rt_image_store::is_bundle_name) {
        return Ok(true);
    }
    let configured = rt_config::Config::read(&rt_config::own_variable)?;
    let places = place::places(&configured.stores())?;
    match bundle.parent().and_then(Path::parent) {
        Some(root) if places.iter().any(|place| place.path == root) => is_there(&places, bundle),
        _ => Ok(true),
    }
}

/// Marks a bundle that `rt-pull` has named. False where it has gone meanwhile.
fn is_there(places: &[Place], bundle: &Path) -> Result<bool> {
    let (Some(name), Some(root)) =
        (bundle.file_name().and_then(OsStr::to_str), bundle.parent().and_then(Path::parent))
    else {
        bail!("rt-pull: {}: not a bundle of a store", bundle.display());
    };
    let Some(place) = places.iter().find(|place| place.path == root) else {
        bail!("rt-pull: {}: not in a store of images that rt knows", bundle.display());
    };
    match ImageStore::open(place)? {
        Some(store) => {
            store.mark_use(name)?;
            store.has(name)
        }
        None => Ok(false),
    }
}

/// Has `rt-pull` put an image into the store. Returns the bundle, or none where `rt-pull` has said what went wrong.
fn pull(call: &Call, image: &str, how: &Pull<'_>) -> Result<Option<PathBuf>> {
    let mut started = None;
    let mut failed = Ok(());
    // A caller may have left SIGCHLD ignored, which block_all undoes. rt-pull inherits what is blocked, so nothing is.
    signal::block_all();
    signal::reset(0);
    with_companion("rt-pull", |program| {
        let mut attempt = Command::new(program);
        let globals = &call.globals;
        for flag in [&LOG, &LOG_FORMAT, &LOG_LEVEL] {
            if let Some(value) = globals.path(flag) {
                attempt.arg(format!("--{}", flag.long)).arg(value);
            }
        }
        if globals.has(&DEBUG) {
            attempt.arg("--debug");
        } else if !globals.given(&LOG_LEVEL) && globals.given(&LOG) {
            // Clients take every line of the log for an error.
            attempt.args(["--log-level", "error"]);
        }
        attempt.args(["pull", "--store", "--pull", how.policy.word()]);
        // Where nobody watches, a call that succeeds writes nothing to stderr.
        if !how.shown {
            attempt.arg("--quiet");
        }
        if let Some(platform) = how.platform {
            attempt.args(["--platform", platform]);
        }
        attempt.args(["--", image]).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        match attempt.spawn() {
            Ok(child) => started = Some(child),
            Err(e) if e.kind() == ErrorKind::NotFound => return false,
            Err(e) => failed = Err(e).context(|| format!("execute {}", program.display())),
        }
        true
    })?;
    failed?;
    let Some(mut child) = started else { bail!("rt-pull was not started") };
    signal::block_all();
    let status = attend(&mut child)?;
    signal::reset(0);
    if !status.success() {
        if let Some(signal) = status.signal() {
            bail!("rt-pull was ended by signal {signal}");
        }
        return Ok(None);
    }
    let mut path = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut path).context(|| "read rt-pull's answer")?;
    }
    let path = path.strip_suffix(b"\n").unwrap_or(&path);
    if path.is_empty() {
        bail!("rt-pull has named no bundle for {image}");
    }
    Ok(Some(OsStr::from_bytes(path).into()))
}

/// Waits for `rt-pull`, passing signals on. It and the programs that it runs are a process group of their own, or Ctrl-C
/// would come to it twice, and the second one ends it before it has tidied up. Its answer is a path, which a pipe holds.
fn attend(child: &mut Child) -> Result<ExitStatus> {
    let group = -(child.id() as i32);
    loop {
        if let Some(status) = child.try_wait().context(|| "wait for rt-pull")? {
            return Ok(status);
        }
        // The child may have ended just now, and that is no error.
        let _ = match signal::take().number {
            libc::SIGCHLD => Ok(()),
            libc::SIGTSTP => signal::send(group, libc::SIGSTOP)
                .and_then(|()| signal::send(std::process::id() as i32, libc::SIGSTOP))
                .and_then(|()| signal::send(group, libc::SIGCONT)),
            signal => signal::send(group, signal),
        };
    }
}
