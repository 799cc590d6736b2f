//! The store of images, from which `rt run` starts containers: filled, listed and emptied.
//!
//! `crates/rt-image-store` has what `rt` knows of it too: where it is, how names are written, how a bundle is found, and how
//! its use is marked. docs/design/images.md has the rules by which processes on several nodes do not disturb each other.

mod fetch;
mod listing;
mod names;
mod prune;
mod removal;
mod stamp;
mod users;

pub(crate) use fetch::{
    StoreRequest, Stored, fetch, fetch_watched, find, is_callers, name_stored, pinned, store_trees,
};
pub(crate) use listing::{ListedImage, list};
pub(crate) use names::canonical;
pub(crate) use prune::{Prune, Watermarks, prune};
pub(crate) use removal::untag;
pub(crate) use users::{BundleUser, rough};

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

use rt_image_store::{BUNDLES, ImageStore, NAMES, Place, USES};
use rt_sys::error::{Context, Error, Result};
use rt_sys::{disk, err, look};

use super::cache;
use super::lease::{Lease, Moment, Wanted};
use oci_content::interrupt::Interrupt;

/// Who makes or removes a bundle just now.
const LEASES: &str = "leases";

/// The stores in which this process looks for images.
pub(crate) struct Stores {
    places: Vec<Place>,
    open: Vec<ImageStore>,
}

impl Stores {
    /// Opens those that are there.
    pub(crate) fn open() -> Result<Stores> {
        let configured = rt_config::Config::read(&rt_config::own_variable)?;
        let places = rt_image_store::place::places(&configured.stores())?;
        let mut open = Vec::new();
        for place in &places {
            open.extend(ImageStore::open(place)?);
        }
        Ok(Stores { places, open })
    }

    /// Where `bundle` is, in the first store that has it.
    pub(crate) fn bundle(&self, bundle: &str) -> Result<Option<PathBuf>> {
        for store in &self.open {
            if store.has(bundle)? {
                return Ok(Some(store.bundle(bundle)));
            }
        }
        Ok(None)
    }

    /// The first store that the caller may write, for reading and removing; none where there is none.
    pub(crate) fn own(&self) -> Result<Option<OwnStore>> {
        for place in &self.places {
            if let Some(store) = OwnStore::open(place)? {
                return Ok(Some(store));
            }
        }
        Ok(None)
    }

    /// The first store that the caller may write, which is made where it is missing.
    pub(crate) fn own_or_new(&mut self) -> Result<OwnStore> {
        let mut refused = None;
        for place in &self.places {
            // Where the kernel does not say, mkdir(2) says why.
            if !look::is_dir(&place.path).is_ok_and(|is| is) {
                let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&place.path);
                if let Err(e) = made {
                    let e = Error::from(e);
                    let elsewhere = [libc::EACCES, libc::EPERM, libc::EROFS].iter().any(|errno| e.is(*errno));
                    let e = e.context(format!("make the store of images {}", place.path.display()));
                    if !elsewhere {
                        return Err(e);
                    }
                    refused.get_or_insert(e);
                    continue;
                }
            }
            match OwnStore::open(place)? {
                Some(store) => {
                    self.open.clear();
                    for place in &self.places {
                        self.open.extend(ImageStore::open(place)?);
                    }
                    return Ok(store);
                }
                None => {
                    let e = Error::from_errno(libc::EACCES);
                    refused.get_or_insert(e.context(format!("write in {}", place.path.display())));
                }
            }
        }
        let refused = refused.unwrap_or_else(|| err!("RT_IMAGES names no directory"));
        Err(refused.hint("RT_IMAGES names the directories in which images are kept"))
    }
}

/// A store that the caller may write, with its directories.
pub(crate) struct OwnStore {
    /// What can be read of it.
    pub store: ImageStore,
    names: OwnedFd,
    bundles: OwnedFd,
    uses: OwnedFd,
    leases: Arc<OwnedFd>,
    /// Others may enter it, hence its bundles.
    pub shared: bool,
}

impl OwnStore {
    fn open(place: &Place) -> Result<Option<OwnStore>> {
        let Some(store) = ImageStore::open(place)? else { return Ok(None) };
        if !disk::may_write(store.dir())? {
            return Ok(None);
        }
        let root = disk::open_dir_again(store.dir())?;
        // The directories inside get the mode of the one that the user or the site made: a shared store stays shared.
        let mode = disk::mode(&root)?;
        let context = || format!("the store of images {}", store.path().display());
        let made = |name: &str| match store.open_subdirectory(name)? {
            Some(dir) => Ok(dir),
            None => cache::open_or_make(&root, name, mode),
        };
        let inside = |name: &str| -> Result<OwnedFd> {
            made(name)
                .and_then(|_| store.subdirectory(name))
                .and_then(|dir| dir.ok_or_else(|| Error::from_errno(libc::ENOENT)))
                .context(context)
        };
        // Everybody may write in the directory of marks, if the site wants to know who uses its images.
        let uses = made(USES).context(context)?;
        let (names, bundles, leases) = (inside(NAMES)?, inside(BUNDLES)?, Arc::new(inside(LEASES)?));
        let shared = mode & 0o055 != 0;
        Ok(Some(OwnStore { store, names, bundles, uses, leases, shared }))
    }

    fn names(&self) -> BorrowedFd<'_> {
        self.names.as_fd()
    }

    fn bundles(&self) -> BorrowedFd<'_> {
        self.bundles.as_fd()
    }

    fn uses(&self) -> BorrowedFd<'_> {
        self.uses.as_fd()
    }

    /// The directory of the bundle, as a path.
    pub(crate) fn path(&self, bundle: &str) -> PathBuf {
        self.store.bundle(bundle)
    }

    /// Removes the leases that processes have left that died.
    fn sweep_leases(&self) -> Result<()> {
        match Moment::of(self.leases.as_fd()) {
            // They are another user's.
            Err(e) if e.is(libc::EACCES) => Ok(()),
            moment => moment?.sweep(),
        }
    }

    /// Waits until this process alone makes or removes `what`, or until `done` has what was wanted. `shown` is what it is
    /// called where that is told.
    fn alone<T>(
        &self,
        what: &str,
        shown: &str,
        interrupt: &Interrupt,
        mut done: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Turn<T>> {
        let mut wanted = Wanted::new(&self.leases, what, shown);
        loop {
            if let Some(done) = done()? {
                return Ok(Turn::Done(done));
            }
            if let Some(lease) = wanted.acquire()? {
                // The last holder may have finished after the first look and before the lease was taken.
                disk::look_afresh(self.names.as_fd());
                disk::look_afresh(self.bundles.as_fd());
                return Ok(match done()? {
                    Some(done) => Turn::Done(done),
                    None => Turn::Mine(lease),
                });
            }
            wanted.wait(interrupt)?;
        }
    }
}

/// What came of waiting for a piece of work.
enum Turn<T> {
    /// Somebody else has done it.
    Done(T),
    /// It is this process's to do, as long as it holds the lease.
    Mine(Lease),
}
