//! What is in the stores.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use rt_image_store::ImageStore;
use rt_sys::error::{Context, Result};
use rt_sys::{fd, look};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::names::{NamedImage, in_full};
use super::removal::is_name;
use super::users::{BundleUser, Users};
use super::{OwnStore, Stores};
use rt_spec::{ANNOTATION_BYTES, ANNOTATION_DIGEST, ANNOTATION_NAME};

/// No config is longer.
const CONFIG_LIMIT: usize = 64 << 20;

/// An image in a store.
pub(crate) struct ListedImage {
    /// Its bundle.
    pub path: PathBuf,
    /// The bundle's name.
    pub bundle: String,
    /// Its names in full, each once; none once it has lost the last of them.
    pub names: Vec<String>,
    /// The digest of its manifest.
    pub digest: String,
    /// When it was built, as the image says.
    pub created: String,
    /// The bytes of its files.
    pub bytes: u64,
    /// How long ago it was pulled.
    pub age: Duration,
    /// How long ago it was used last.
    pub idle: Duration,
    /// Who uses it.
    pub users: Vec<BundleUser>,
    /// The caller can remove it.
    pub own: bool,
}

/// All images, of the first store first.
pub(crate) fn list() -> Result<Vec<ListedImage>> {
    let stores = Stores::open()?;
    let own = stores.own()?;
    let mut all = Vec::new();
    for store in &stores.open {
        match &own {
            Some(own) if own.store.path() == store.path() => all.extend(of_own(own)?),
            // Of a store that is only read, nobody here knows who uses it.
            _ => all.extend(of_other(store)?),
        }
    }
    Ok(all)
}

/// The images of the caller's own store.
pub(super) fn of_own(own: &OwnStore) -> Result<Vec<ListedImage>> {
    let (names, users, now) = (own.all_names()?, Users::look(own)?, own.now());
    let mut all = Vec::new();
    for bundle in own.bundle_names()? {
        let Some(mut image) = read(&own.store, &bundle, now)? else { continue };
        for name in names.iter().filter(|name| name.bundle == bundle && is_name(name)) {
            // A name that is too long for a file is in the bundle alone.
            let shown = if name.image.is_some() { name.shown() } else { image.1.clone() };
            image.0.names.push(shown);
        }
        image.0.names.sort();
        image.0.names.dedup();
        image.0.users = users.of(&bundle);
        image.0.idle = users.idle(&bundle).unwrap_or(image.0.age);
        image.0.own = true;
        all.push(image.0);
    }
    all.sort_by(|a, b| a.names.cmp(&b.names));
    Ok(all)
}

/// The images of another store. What its owner does not let the caller read is none of his.
fn of_other(store: &ImageStore) -> Result<Vec<ListedImage>> {
    let Some(names) = store.subdirectory(rt_image_store::NAMES)? else { return Ok(Vec::new()) };
    let mut named = Vec::new();
    for key in file_names(&store.path().join(rt_image_store::NAMES))? {
        match store.link(names.as_fd(), &key) {
            Ok(bundle) => named.extend(bundle.map(|bundle| NamedImage { image: in_full(&key), key, bundle })),
            // It leads to no bundle of the store.
            Err(e) if e.errno().is_none() || e.is(libc::EINVAL) => {}
            Err(e) => return Err(e),
        }
    }
    let mut all = Vec::new();
    for bundle in file_names(&store.path().join(rt_image_store::BUNDLES))? {
        if !rt_image_store::is_bundle_name(&bundle) {
            continue;
        }
        let mut image = match read(store, &bundle, SystemTime::now()) {
            Ok(Some((image, _))) => image,
            Ok(None) => continue,
            Err(e) if e.is(libc::EACCES) => continue,
            Err(e) => return Err(e),
        };
        let shown = named.iter().filter(|name| name.bundle == bundle && name.image.is_some());
        image.names = shown.map(|name| name.shown()).collect::<BTreeSet<_>>().into_iter().collect();
        all.push(image);
    }
    all.sort_by(|a, b| a.names.cmp(&b.names));
    Ok(all)
}

/// The names in a directory that are UTF-8, as all are that `rt-pull` makes.
fn file_names(dir: &Path) -> Result<Vec<String>> {
    let name = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_owned());
    Ok(look::entries(dir)?.iter().filter_map(name).collect())
}

/// What a bundle says of itself, and the name by which it was pulled; none where there is no bundle.
fn read(store: &ImageStore, bundle: &str, now: SystemTime) -> Result<Option<(ListedImage, String)>> {
    let Some(dir) = store.open_bundle(bundle)? else { return Ok(None) };
    let path = store.bundle(bundle);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let (config, pulled) = match fd::open_entry(&dir, "config.json", flags) {
        Ok(file) => {
            let stat = fd::stat(&file)?;
            let pulled = u64::try_from(stat.st_mtime).ok();
            (fd::read_regular(file, CONFIG_LIMIT)?, pulled)
        }
        // None, a link, a socket, or what somebody has mounted there.
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::XDEV) => (None, None),
        Err(e) => return Err(e).context(|| format!("read {}", path.join("config.json").display())),
    };
    let config: Value = config.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let text = |name: &str| config["annotations"][name].as_str().unwrap_or_default().to_owned();
    let pulled = pulled.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    let age = pulled.and_then(|time| now.duration_since(time).ok()).unwrap_or_default();
    let image = ListedImage {
        names: Vec::new(),
        digest: text(ANNOTATION_DIGEST),
        created: text("org.opencontainers.image.created"),
        bytes: text(ANNOTATION_BYTES).parse().unwrap_or(0),
        age,
        idle: age,
        users: Vec::new(),
        own: false,
        bundle: bundle.to_owned(),
        path,
    };
    Ok(Some((image, text(ANNOTATION_NAME))))
}
