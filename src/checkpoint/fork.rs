//! `rt fork`: a container's program, as it is now, in new containers beside it.
//!
//! It is written once, to the state directory, which is in memory as a rule, and restored once for each of them, as many at a time as
//! there are processors. The new containers are made from the config that the first one was made from, with its hooks.

use super::aside;
use super::dump::{self, DumpOptions, Programs};
use super::restore::{self, Restore};
use crate::container::{self, CreateOptions, Lifetime, RootAccess};
use crate::store::{self, Scratch, Store};
use rt_spec::rootless::UserMap;
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err, mount, process};
use rustix::fs;
use std::path::{Path, PathBuf};

/// The config of all of them, beside the image.
const CONFIG: &str = "config.json";

/// What `fork` is asked to do.
#[derive(Debug, Clone)]
pub(crate) struct ForkOptions {
    /// The new containers.
    pub names: Vec<String>,
    /// The id that the first one's program has inside, where `run` was told it.
    pub user_map: Option<UserMap>,
    /// Each of the new containers has a layer, empty at first, in a directory of its name in this one.
    pub layers: Option<PathBuf>,
    /// Connections of TCP on the host's network are closed, for the new programs to notice.
    pub tcp_close: bool,
}

/// Makes a container for each name, with processes like those that container `id` has now.
///
/// # Errors
/// The first one of a container; the others are made.
pub(crate) fn fork(store: &Store, id: &str, options: &ForkOptions) -> Result<()> {
    // Where it executes this program anew, that is not to happen in a process beside this one.
    container::protect_binary()?;
    check_names(store, &options.names)?;
    refuse_layer(store, id)?;
    let programs = Programs::find()?;
    let scratch = Scratch::for_clones(store.path(), id)?;
    let made = fork_in(store, id, options, &programs, &scratch.dir);
    let removed = scratch.remove();
    made.and(removed)
}

fn check_names(store: &Store, names: &[String]) -> Result<()> {
    for (number, name) in names.iter().enumerate() {
        store::check_id(name)?;
        if store.holds(name)? {
            return Err(store::already_exists(name));
        }
        if names[..number].contains(name) {
            bail!("{name}: it is to be made twice");
        }
    }
    Ok(())
}

/// Refuses a container with a layer, in which its program may have files: no other one can have it, too.
fn refuse_layer(store: &Store, id: &str) -> Result<()> {
    let mounts = mount::table_in(Path::new(&format!("/proc/{}", store.load(id)?.pid)))?;
    let root = mounts.iter().rfind(|mount| mount.point == Path::new("/"));
    match root.is_some_and(|mount| mount.fstype == b"overlay" && mount.root == Path::new("/")) {
        true => {
            Err(err!("container {id} has a layer (--overlay, --writable), which no other one can have, too")
                .hint("start it without; rt fork --overlay DIR gives each new one a layer"))
        }
        false => Ok(()),
    }
}

fn fork_in(store: &Store, id: &str, options: &ForkOptions, programs: &Programs, dir: &Path) -> Result<()> {
    let image = dir.join("image");
    let dump = DumpOptions {
        image: image.clone(),
        leave_running: true,
        tcp_close: options.tcp_close,
        ..DumpOptions::default()
    };
    dump::dump(store, id, &dump, Some(programs))?;
    let config = dir.join(CONFIG);
    let text = serde_json::to_vec(&store.container(id)?.spec()?).map_err(|e| err!("{e}"))?;
    std::fs::write(&config, text).context(|| format!("write {}", config.display()))?;
    let bundle = store.load(id)?.bundle;
    let clone = |name: &String| {
        rustix::stdio::dup2_stdin(restore::open_null()?).context(|| "take standard input from /dev/null")?;
        let work = dir.join(format!("work-{name}"));
        fs::mkdir(&work, fs::Mode::RWXU).context(|| format!("make {}", work.display()))?;
        let mut restore = Restore::open_by(&image, Some(&work), Some(programs))?;
        restore.tcp_close = options.tcp_close;
        container::run(store, create_options(name, restore, options, &bundle, &config)).map(|_| ())
    };
    let mut made = Ok(());
    for names in options.names.chunks(process::affinity().max(1)) {
        let started: Vec<_> = names.iter().map(|name| (name, aside::start(|| clone(name)))).collect();
        for (name, started) in started {
            let ended = started.and_then(aside::Aside::finish).map_err(|e| e.context(name));
            made = made.and(ended);
        }
    }
    made
}

/// A container like the first one, with a host name of its own, by which its program knows that it is another one.
fn create_options(
    name: &str,
    restore: Restore,
    options: &ForkOptions,
    bundle: &Path,
    config: &Path,
) -> CreateOptions {
    let mut create = CreateOptions {
        id: name.to_owned(),
        bundle: bundle.to_owned(),
        config: Some(config.to_owned()),
        // The config has them already.
        no_hooks: true,
        user_map: options.user_map,
        lifetime: Lifetime::Detached,
        log: true,
        ..CreateOptions::default()
    };
    create.overrides.namespaces.hostname = Some(name.to_owned());
    if let Some(layers) = &options.layers {
        create.overrides.root = RootAccess::Overlay { dir: layers.join(name), readonly: false };
    }
    restore.make_in(&mut create);
    create
}
