//! Images that are files: which of them a container needs, and where they are mounted.
//!
//! A mount needs a process that serves it, which `rt-image` is ([`session`]). It has to be made in the user namespace in
//! which the mount is made, and outside of the mount namespace, so both come before anything of the container. This
//! process enters them, and goes on there as it would in the namespaces of a client.

mod session;

use crate::hooks::definitions;
use crate::store::Store;
use rt_sys::error::{Context, Result};
use rt_sys::mount::{self, Follow, Param, Recursive};
use rt_sys::{bail, err, look};
use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags, Stat};
use serde_json::{Value, json};
use session::{Image, Session};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(crate) use session::Way;

/// The images of a call.
#[derive(Debug, Default)]
pub(crate) struct ImageMounts {
    /// The images are unpacked and not mounted (`--extract`).
    extract: bool,
    /// The directory below which they are mounted.
    mounted: Option<PathBuf>,
    /// The session of an image without a bundle, whose server waits.
    begun: Option<Session>,
    /// The config that `rt-image` has made of what that image says.
    config: Option<Vec<u8>>,
}

impl ImageMounts {
    /// No image yet. With `extract` those to come are unpacked and not mounted.
    pub(crate) fn new(extract: bool) -> ImageMounts {
        ImageMounts { extract, ..ImageMounts::default() }
    }

    fn way(&self) -> Way {
        if self.extract { Way::Extract } else { Way::Mount }
    }

    /// Starts the server of the image `file`, which has no bundle, and gets its config from it: which other images are needed
    /// is not known before. First it looks whose the directories of hooks are that the request names, `hooks_dirs`: in a user
    /// namespace that cannot be told.
    pub(super) fn begin(&mut self, file: &Path, hooks_dirs: &[PathBuf]) -> Result<&[u8]> {
        definitions::check_owners(hooks_dirs)?;
        let mut session = Session::new(self.way());
        let config = session.add_with_config(Image::open(file)?)?;
        self.begun = Some(session);
        Ok(self.config.insert(config))
    }

    /// Mounts the image `file`, which has no bundle. Returns the bundle that is made, and where the image is.
    pub(super) fn mount_alone(&mut self, store: &Store, file: &Path) -> Result<(PathBuf, PathBuf)> {
        // No hook runs.
        self.begin(file, &[])?;
        let bundle = self.mount(store, &[])?.ok_or_else(|| err!("{}: no bundle", file.display()))?;
        Ok((bundle, ImageMounts::root_of(store, file)?))
    }

    /// The config of an image that has no bundle, as it was made.
    pub(super) fn image_config(&self) -> Option<&[u8]> {
        self.config.as_deref()
    }

    /// The directory where the image at `path`, where `found` is, is mounted as the container's root.
    pub(super) fn for_root(&self, path: &Path, found: &Stat) -> Result<PathBuf> {
        self.mounted_at(path, found, Used::Root)
    }

    /// The directory where the image at `path`, where `found` is, is mounted for a place of the container.
    pub(super) fn for_mount(&self, path: &Path, found: &Stat) -> Result<PathBuf> {
        self.mounted_at(path, found, Used::Mount)
    }

    fn mounted_at(&self, path: &Path, found: &Stat, used: Used) -> Result<PathBuf> {
        let dir = self.mounted.as_ref().map(|dir| dir.join(name_of(found, used)));
        let shown = || format!("image {}", path.display());
        match dir {
            Some(dir) if look::is_dir(&dir).context(shown)? => Ok(dir),
            _ => bail!("{}: it has become another file", shown()),
        }
    }

    /// Where the image `file` is mounted for the root of a container whose state is in `store`.
    pub(super) fn root_of(store: &Store, file: &Path) -> Result<PathBuf> {
        let found = fs::stat(file).context(|| file.display().to_string())?;
        Ok(store.mounted_images()?.join(name_of(&found, Used::Root)))
    }

    /// Mounts `files` in namespaces of this process's own. Where the image has no bundle, one is made, and returned.
    #[cold]
    pub(super) fn mount(&mut self, store: &Store, files: &[PathBuf]) -> Result<Option<PathBuf>> {
        let at = store.mounted_images()?;
        let mut session = self.begun.take().unwrap_or_else(|| Session::new(self.way()));
        for path in files {
            session.add(Image::open(path)?)?;
        }
        let session = session.enter()?;
        make_scratch(&at)?;
        for key in session.mount(|image| Ok((make_mount_point(&at.join(image.key()))?, image.key())))? {
            // What is the container's root is covered by it. Who mounts the same image in it needs another mount.
            let source = at.join(&key);
            let tree = mount::clone_path(&source, Recursive::No, Follow::Not)
                .context(|| format!("bind {}", source.display()))?;
            mount::attach(&tree, make_mount_point(&at.join(key + ROOT))?)?;
        }
        let bundle = self.config.as_ref().map(|config| {
            let bundle = at.join("bundle");
            let written = std::fs::create_dir(&bundle)
                .and_then(|()| std::fs::write(bundle.join("config.json"), config))
                .context(|| format!("make the bundle {}", bundle.display()));
            written.map(|()| bundle)
        });
        self.mounted = Some(at);
        session::give_up()?;
        bundle.transpose()
    }
}

/// What an image is used for. Each has its own mount of it: that of the root is covered by the container's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Used {
    /// As the container's root.
    Root,
    /// At a place of the container.
    Mount,
}

/// What the name of an image's directory ends in where it is for a container's root.
const ROOT: &str = "-root";

/// The name of an image's directory.
fn name_of(found: &Stat, used: Used) -> String {
    session::key(found) + if used == Used::Root { ROOT } else { "" }
}

/// A tmpfs at `at` for mount points and a config.
fn make_scratch(at: &Path) -> Result<()> {
    let context = || format!("mount a tmpfs on {}", at.display());
    let params =
        [("mode", "0755"), ("size", "1m")].map(|(key, value)| Param::Value(key.to_owned(), value.to_owned()));
    let attr = mount::ATTR_NOSUID | mount::ATTR_NODEV;
    let tmpfs = mount::new_fs("tmpfs", "rt-image", &params, attr).context(context)?;
    mount::attach(&tmpfs, mount_point(at)?).context(context)
}

fn make_mount_point(path: &Path) -> Result<OwnedFd> {
    std::fs::create_dir(path).context(|| format!("make {}", path.display()))?;
    mount_point(path)
}

/// Opens the directory at `path` to mount on it.
fn mount_point(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::empty()).context(|| format!("mount point {}", path.display()))
}

/// `rt mount`: becomes `command`, which alone sees the image `file` at `dir`, or in a bundle there. Returns only the error.
pub(crate) fn mount_for(
    file: &Path,
    dir: &Path,
    way: Way,
    as_bundle: bool,
    command: &[OsString],
) -> Result<u8> {
    let image = Image::open(&rt_sys::fd::absolute(file)?)?;
    // Before anything is made.
    mount_point(dir)?;
    let mut session = Session::new(way);
    match as_bundle {
        false => {
            session.add(image)?;
            session.enter()?.mount(|_| Ok((mount_point(dir)?, ())))?;
        }
        true => {
            let config = session.add_with_config(image)?;
            let session = session.enter()?;
            make_scratch(dir)?;
            write_config(dir, &config)?;
            session.mount(|_| Ok((make_mount_point(&dir.join("rootfs"))?, ())))?;
        }
    }
    let Some((program, words)) = command.split_first() else { return Err(err!("no program to execute")) };
    let e = std::os::unix::process::CommandExt::exec(std::process::Command::new(program).args(words));
    Err(e).context(|| format!("execute {}", Path::new(program).display()))
}

/// Writes the config of an image into a bundle that has it in rootfs.
fn write_config(bundle: &Path, config: &[u8]) -> Result<()> {
    let context = || format!("write {}/config.json", bundle.display());
    let mut config: Value = serde_json::from_slice(config).map_err(|e| err!("{e}")).context(context)?;
    config["root"]["path"] = json!("rootfs");
    let text = serde_json::to_vec_pretty(&config).map_err(|e| err!("{e}")).context(context)?;
    std::fs::write(bundle.join("config.json"), text).context(context)
}
