//! A bundle that is there whole or not at all: written beside its place, then renamed into it.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use serde_json::Value;

use super::draft::{self, Draft};
use rt_image_store::{Word, others};
use rt_spec::host_files;
use rt_spec::{ANNOTATION_DIGEST, ANNOTATION_RESOLVED, SHARES_FILES};
use rt_sys::error::{Context, Error, Result};
use rt_sys::fd;
use rt_sys::{disk, err};

const BUNDLE: &[u8] = b"bundle";
const ROOTFS: &[u8] = b"rootfs";
const CONFIG: &[u8] = b"config.json";
/// The config of the image that the bundle was made from, as it was pulled. Only `rt save` reads it.
const IMAGE: &[u8] = b"image.json";
/// The file of a bundle by which it is known that owners which are not root's are recorded in its root, as far as they can be.
pub(crate) const RECORDED: &str = "records";
/// No config is longer.
pub(crate) const CONFIG_LIMIT: usize = 64 << 20;

/// How a bundle is put into its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Publish {
    /// Others may look into it.
    pub shared: bool,
    /// A bundle that is there is replaced.
    pub replace: bool,
    /// The bundle is on the disk when it appears.
    pub sync: bool,
}

/// A bundle in the making; dropped before it is published, it goes away.
pub(crate) struct NewBundle {
    draft: Draft,
    bundle: OwnedFd,
    rootfs: OwnedFd,
    trash: OwnedFd,
}

impl NewBundle {
    /// Makes one for `target`, with empty `rootfs` and `trash`.
    pub(crate) fn create(target: &Path) -> Result<NewBundle> {
        let draft = Draft::beside(target)?;
        let bundle = disk::make_own_dir(draft.dir(), BUNDLE)?;
        let rootfs = disk::make_own_dir(bundle.as_fd(), ROOTFS)?;
        let trash = disk::make_own_dir(draft.dir(), b"trash")?;
        Ok(NewBundle { draft, bundle, rootfs, trash })
    }

    /// The root file system.
    pub(crate) fn rootfs(&self) -> BorrowedFd<'_> {
        self.rootfs.as_fd()
    }

    /// What had to go while layers were merged.
    pub(crate) fn trash(&self) -> BorrowedFd<'_> {
        self.trash.as_fd()
    }

    /// Makes a directory for what is needed only meanwhile.
    pub(crate) fn scratch(&self) -> Result<OwnedFd> {
        disk::make_own_dir(self.draft.dir(), b"scratch")
    }

    /// Keeps the image's own config, for the way back to an image.
    pub(crate) fn write_image_config(&self, text: &[u8], shared: bool) -> Result<()> {
        self.write(IMAGE, text, shared)
    }

    /// Records what the image has at the places of host files, for starts that copy these into the root.
    pub(crate) fn write_host_files(&self, record: &[u8], shared: bool) -> Result<()> {
        self.write(host_files::RECORD.as_bytes(), record, shared)
    }

    /// Notes that owners are recorded in the root.
    pub(crate) fn note_owners(&self, shared: bool) -> Result<()> {
        self.write(RECORDED.as_bytes(), b"", shared)
    }

    /// Notes that it shares files.
    pub(crate) fn note_sharing(&self, shared: bool) -> Result<()> {
        self.write(SHARES_FILES.as_bytes(), b"", shared)
    }

    fn write(&self, name: &[u8], text: &[u8], shared: bool) -> Result<()> {
        let mut file = disk::create_own_file(self.bundle.as_fd(), name)?;
        file.write_all(text).context(|| format!("write {}", fd::shown(&file)))?;
        disk::set_mode(file.as_fd(), if shared { 0o644 } else { 0o600 })
    }

    /// Writes `config.json` and renames the bundle into its place.
    ///
    /// # Errors
    /// EEXIST where something is there that is not to be replaced.
    pub(crate) fn publish(self, target: &Path, config: &Value, how: Publish) -> Result<()> {
        let text = serde_json::to_vec_pretty(config).map_err(|e| err!("config.json: {e}"))?;
        let mut file = disk::create_own_file(self.bundle.as_fd(), CONFIG)?;
        file.write_all(&text).context(|| format!("write {}", fd::shown(&file)))?;
        disk::set_mode(file.as_fd(), if how.shared { 0o644 } else { 0o600 })?;
        disk::set_mode(self.bundle.as_fd(), if how.shared { 0o755 } else { 0o700 })?;
        if how.sync {
            disk::sync(&file)?;
        }
        if how.replace
            && let Some(old) = replaceable(target)?
        {
            return self.draft.replace(BUNDLE, &old);
        }
        self.draft.publish(BUNDLE)
    }
}

/// What is at `target`, if it may be replaced; none where nothing is.
///
/// # Errors
/// What is no bundle stays.
pub(crate) fn replaceable(target: &Path) -> Result<Option<OwnedFd>> {
    let (parent, name) = draft::place(target)?;
    if disk::mode_at(parent.as_fd(), &name)?.is_none() {
        return Ok(None);
    }
    let no_bundle = || err!("{}: exists, and is not a bundle; only bundles are replaced", target.display());
    let dir: OwnedFd = match disk::reopen_dir(parent.as_fd(), &name) {
        Err(e) if e.is(libc::ENOTDIR) || e.is(libc::ELOOP) => return Err(no_bundle()),
        opened => opened?.into(),
    };
    let kind = |name: &[u8]| disk::mode_at(dir.as_fd(), name).map(|mode| mode.map(|mode| mode & 0o170000));
    let bundle = kind(CONFIG)? == Some(0o100000) && kind(ROOTFS)? == Some(0o040000);
    if !bundle && !disk::entries(dir.as_fd())?.is_empty() {
        return Err(no_bundle());
    }
    Ok(Some(dir))
}

/// The config of the image that `bundle` was made from; none where there is none, as in a bundle of `rt spec`.
///
/// # Errors
/// There is one and it cannot be read: what only it says would be lost. Or another user has put it there.
pub(crate) fn image_config(bundle: BorrowedFd, word: Word) -> Result<Option<Value>> {
    let Some(text) = read(bundle, IMAGE, word)? else { return Ok(None) };
    match serde_json::from_slice(&text) {
        Ok(Value::Object(config)) => Ok(Some(Value::Object(config))),
        Ok(_) => Err(err!("image.json: not an object")),
        Err(e) => Err(err!("image.json: {e}")),
    }
}

/// Opens the directory of a bundle, and says whose word its config is.
pub(crate) fn look(bundle: &Path) -> Result<(OwnedFd, Word)> {
    rt_image_store::open_bundle(bundle)
        .map_err(|e| e.context(format_args!("open {}", fd::shown_path(bundle))))
}

/// What the config of the bundle `dir` says, which [`look`] has opened.
///
/// # Errors
/// It is missing, or too long, or another user has put it there since.
pub(crate) fn config_text(dir: &OwnedFd, word: Word) -> Result<Vec<u8>> {
    read(dir.as_fd(), CONFIG, word)?.ok_or_else(|| Error::from_errno(libc::ENOENT).context("config.json"))
}

/// What is in the file `name` of a bundle, if it is there.
fn read(bundle: BorrowedFd, name: &[u8], word: Word) -> Result<Option<Vec<u8>>> {
    if word != Word::Owners {
        return disk::read_if_there(bundle, name, CONFIG_LIMIT);
    }
    match others::open_own(bundle, &String::from_utf8_lossy(name)) {
        Err(e) if e.is(libc::ENOENT) => Ok(None),
        file => match fd::read_regular(file?, CONFIG_LIMIT)? {
            None => Err(err!("{}: more than {CONFIG_LIMIT} bytes", String::from_utf8_lossy(name))),
            text => Ok(text),
        },
    }
}

/// Opens the directory of a bundle, as [`look`] does.
pub(crate) fn open(bundle: &Path) -> Result<OwnedFd> {
    Ok(look(bundle)?.0)
}

/// True where no container of `bundle` writes into its root: what its config says.
pub(crate) fn is_read_only(bundle: &Path) -> Result<bool> {
    let dir = open(bundle)?;
    let text = disk::read_if_there(dir.as_fd(), CONFIG, CONFIG_LIMIT)?;
    let config: Option<Value> = text.and_then(|text| serde_json::from_slice(&text).ok());
    Ok(config.is_some_and(|config| config["root"]["readonly"] == true))
}

/// Notes of a bundle that is there that it shares files; false where the caller cannot write there.
pub(crate) fn note_sharing(bundle: &Path) -> Result<bool> {
    let dir = open(bundle)?;
    match disk::create_file(dir.as_fd(), SHARES_FILES.as_bytes(), 0o644) {
        Err(e) if e.is(libc::EACCES) || e.is(libc::EROFS) => Ok(false),
        Err(e) if !e.is(libc::EEXIST) => Err(e),
        _ => Ok(true),
    }
}

/// What a bundle or an image file was pulled from.
pub(crate) struct PulledImage {
    /// The digest of the image's manifest.
    pub digest: String,
    /// The digest that the image's name stood for.
    pub resolved: String,
}

impl PulledImage {
    /// What the config of `bundle` says.
    ///
    /// # Errors
    /// The bundle is none that a pull has made, or somebody else can change what it says.
    pub(crate) fn of_bundle(bundle: &Path) -> Result<PulledImage> {
        let dir = open(bundle)?;
        let (parent, name) = draft::place(bundle)?;
        // What a killed command has left here goes also where nothing is made.
        draft::sweep_beside(parent.as_fd(), &name);
        PulledImage::check_ours(&dir, bundle)?;
        let text = match disk::read_if_there(dir.as_fd(), CONFIG, CONFIG_LIMIT) {
            // An error without errno, or ELOOP: the config is no regular file, or too long.
            Err(e) if e.errno().is_none() || e.is(libc::ELOOP) => None,
            read => read.context(|| bundle.display().to_string())?,
        };
        let image = text.and_then(|text| PulledImage::of_config(&text));
        image.ok_or_else(|| err!("{}: exists, and is not a bundle that rt pull made", bundle.display()))
    }

    /// What the text of a config says.
    pub(crate) fn of_config(text: &[u8]) -> Option<PulledImage> {
        let config: Value = serde_json::from_slice(text).ok()?;
        let annotation = |name: &str| config["annotations"][name].as_str().map(str::to_owned);
        Some(PulledImage {
            digest: annotation(ANNOTATION_DIGEST)?,
            resolved: annotation(ANNOTATION_RESOLVED)?,
        })
    }

    /// Refuses what somebody else can make say anything.
    pub(crate) fn check_ours(file: &impl AsFd, shown: &Path) -> Result<()> {
        match disk::only_ours(file)? {
            true => Ok(()),
            false => Err(err!("{}: exists, and others can change it", shown.display())
                .hint("pull to another place, or use --force to replace it")),
        }
    }
}
