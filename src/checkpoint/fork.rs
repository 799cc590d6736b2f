//! `rt fork`: a container's program, as it is now, in new containers beside it.
//!
//! It is written once, to the state directory, which is in memory as a rule, and restored once for each of them, as many at a time as
//! there are processors. The new containers are made from the config that the first one was made from, with its hooks.

use super::aside;
use super::dump::{self, DumpOptions, Programs};
use super::restore::{self, Restore};
use crate::container::{self, CreateOptions, Lifetime, RootAccess, SavedConfig};
use crate::store::{self, Scratch, Store};
use rt_spec::rootless::UserMap;
use rt_sys::error::{Context, Result};
use rt_sys::mount::{self, Mounted};
use rt_sys::{bail, err, fd, process};
use rustix::fd::OwnedFd;
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
    let root = root_of(store, id)?;
    refuse_layer(id, &root)?;
    let programs = Programs::find()?;
    let scratch = Scratch::for_clones(store.path(), id)?;
    let made = fork_in(store, id, options, &programs, &root, &scratch.dir);
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

/// What is mounted as the root of container `id`.
fn root_of(store: &Store, id: &str) -> Result<Mounted> {
    let record = store.load(id)?;
    dump::require_program(store, &record)?;
    let mounts = mount::table_in(Path::new(&format!("/proc/{}", record.pid)))?;
    let root = mounts.into_iter().rfind(|mount| mount.point == Path::new("/"));
    root.ok_or_else(|| err!("container {id} has no root"))
}

/// Refuses a container with a layer, in which its program may have files: no other one can have it, too.
fn refuse_layer(id: &str, root: &Mounted) -> Result<()> {
    match root.fstype == b"overlay" && root.root == Path::new("/") {
        true => {
            Err(err!("container {id} has a layer (--overlay, --writable), which no other one can have, too")
                .hint("start it without; rt fork --overlay DIR gives each new one a layer"))
        }
        false => Ok(()),
    }
}

fn fork_in(
    store: &Store,
    id: &str,
    options: &ForkOptions,
    programs: &Programs,
    root: &Mounted,
    dir: &Path,
) -> Result<()> {
    let image = dir.join("image");
    let dump = DumpOptions {
        image: image.clone(),
        leave_running: true,
        tcp_close: options.tcp_close,
        for_clones: true,
        ..DumpOptions::default()
    };
    let input = dump::input_of(store, id)?;
    dump::dump(store, id, &dump, Some(programs))?;
    let config = dir.join(CONFIG);
    let text = serde_json::to_vec(&store.container(id)?.spec()?).map_err(|e| err!("{e}"))?;
    std::fs::write(&config, text).context(|| format!("write {}", config.display()))?;
    let record = store.load(id)?;
    let (mut bundle, mut extract) = (record.bundle, false);
    if store.is_in_mounted(&bundle)? {
        // That of an image file is seen by its container alone. Its config has no path that begins there.
        bundle = dir.to_owned();
        extract = root.fstype == b"tmpfs";
    }
    let saved = SavedConfig {
        of_image: record.of_image,
        of_others: record.of_others,
        confinement: record.confinement,
    };
    let clone = |name: &String| {
        let work = dir.join(format!("work-{name}"));
        fs::mkdir(&work, fs::Mode::RWXU).context(|| format!("make {}", work.display()))?;
        let mut restore = Restore::open_by(&image, Some(&work), Some(programs))?;
        restore.tcp_close = options.tcp_close;
        take_input(&restore, input.as_ref())?;
        let mut create = create_options(name, restore, options);
        create.saved = Some(saved);
        (create.bundle, create.config, create.extract) = (bundle.clone(), Some(config.clone()), extract);
        container::run(store, create).map(|_| ())
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

/// Takes standard input from the file `input`, where the program was reading it, at a place of this process's own; else from the null
/// device.
fn take_input(restore: &Restore, input: Option<&OwnedFd>) -> Result<()> {
    let flags = fs::OFlags::RDONLY | fs::OFlags::CLOEXEC;
    let taken = match input {
        Some(file) if restore.had_input(file)? => fs::open(fd::link(file), flags, fs::Mode::empty())
            .context(|| "open the program's standard input")?,
        _ => restore::open_null()?,
    };
    rustix::stdio::dup2_stdin(taken).context(|| "take standard input")
}

/// A container like the first one, with a host name of its own, by which its program knows that it is another one.
fn create_options(name: &str, restore: Restore, options: &ForkOptions) -> CreateOptions {
    let mut create = CreateOptions {
        id: name.to_owned(),
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
