//! An image into the store: looked up, or made by one process of all that want it.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rt_image_store::{PullPolicy, bundle_name};
use rt_sys::error::Result;
use rt_sys::{bail, err};

use super::super::bundle::{self, NewBundle};
use super::super::cache::{Cache, CacheLocation};
use super::super::draft;
use super::super::pull::{self, Contents, Phases, PullOptions, Summary};
use super::super::reference::Source;
use super::super::save::LayerTree;
use super::super::source::{Image, Opened};
use super::prune::{self, Watermarks};
use super::{OwnStore, Stores, Turn, names, stamp};
use oci_content::digest::Digest;
use oci_content::interrupt::Interrupt;
use oci_registry::reference::Reference;
use rt_image_store::ImageStore;
use rt_sys::caller::Caller;
use rt_sys::fd;

/// The options of a pull into the store.
pub(crate) struct StoreRequest {
    /// As for any pull; where the bundle is to be is decided here.
    pub options: PullOptions,
    /// When a registry is asked.
    pub policy: PullPolicy,
    /// The platform as it was given.
    pub platform: Option<String>,
    /// The names that it gets, where they are others than its own.
    pub names: Option<Vec<String>>,
    /// When others make room.
    pub watermarks: Option<Watermarks>,
    /// The files of the bundle have to be the caller's own, to be read and written over.
    pub own: bool,
}

/// An image that is in the store.
pub(crate) struct Stored {
    /// The bundle.
    pub path: PathBuf,
    /// What happened; none where the name was enough.
    pub summary: Option<Summary>,
}

/// Gets an image into the store.
pub(crate) fn fetch(request: StoreRequest) -> Result<Stored> {
    let cache = request.options.cache.clone();
    pull::interruptible(&cache, |interrupt| Fetch::new(request, interrupt)?.run())
}

/// Gets an image into the store, for a caller that has caught Ctrl-C already.
pub(crate) fn fetch_watched(request: StoreRequest, interrupt: &Interrupt) -> Result<Stored> {
    Fetch::new(request, interrupt)?.run()
}

/// The bundle of an image that is in a store by its name.
pub(crate) fn find(request: StoreRequest) -> Result<Option<PathBuf>> {
    let interrupt = Interrupt::default();
    let (fetch, stores) = (Fetch::new(request, &interrupt)?, Stores::open()?);
    Ok(fetch.find(&stores)?.map(|(store, bundle)| store.bundle(&bundle)))
}

/// Gives the image with a manifest of this digest names, which must be those of registries. False where it is not in the
/// caller's store.
pub(crate) fn name_stored(digest: &Digest, names: &[String], interrupt: &Interrupt) -> Result<bool> {
    let bundle = bundle_name(digest.algorithm(), digest.hex());
    let Some(own) = Stores::open()?.own()? else { return Ok(false) };
    // Whoever removes bundles must not be about to remove this one.
    let _lease = own.alone(&bundle, digest.as_str(), interrupt, || Ok(None::<()>))?;
    if !own.store.has(&bundle)? {
        return Ok(false);
    }
    own.name(&keys_of(names)?, &bundle)?;
    own.store.mark_use(&bundle)?;
    Ok(true)
}

/// Puts an image whose layers are trees into the caller's store by these names. False where only archives of the layers can say what is in them.
pub(crate) fn store_trees(
    image: &Image,
    trees: &[(LayerTree, bool)],
    names: &[String],
    mut options: PullOptions,
    interrupt: &Interrupt,
) -> Result<bool> {
    let own = Stores::open()?.own_or_new()?;
    draft::sweep_all(own.bundles());
    let bundle = bundle_name(image.digest.algorithm(), image.digest.hex());
    // As for a pull: until it has a name, nobody must take it for rubbish.
    let _lease = own.alone(&bundle, &options.image, interrupt, || Ok(None::<()>))?;
    if !own.store.has(&bundle)? {
        if let Some(marks) = Watermarks::from_environment()? {
            prune::make_room(&own, marks)?;
        }
        options.target = own.path(&bundle);
        options.store = Some(own.store.path().to_owned());
        options.shared = own.shared;
        let partial = NewBundle::create(&options.target)?;
        let made =
            pull::unpack(&options, image, partial, Contents::Trees(trees), interrupt, Phases::start())?;
        if made.is_none() {
            return Ok(false);
        }
    }
    own.name(&keys_of(names)?, &bundle)?;
    own.store.mark_use(&bundle)?;
    Ok(true)
}

/// All spellings of these names, as they are in the store.
fn keys_of(names: &[String]) -> Result<Vec<String>> {
    let mut keys = Vec::new();
    for name in names {
        let spelled = names::spellings(name, &name.parse()?)?;
        keys.extend(spelled.iter().map(|name| names::key(name, None)));
    }
    Ok(keys)
}

/// The image of a bundle of a store, by its digest in the registry of `source`.
///
/// # Errors
/// A bundle whose name has a part of the digest alone.
pub(crate) fn pinned(bundle: &Path, source: &Source) -> Result<Source> {
    let Source::Registry(reference) = source else { bail!("not from a registry") };
    // It is called by the digest of its manifest.
    let name = bundle.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let digest = name.replacen('-', ":", 1).parse()?;
    Ok(Source::Registry(Reference { tag: None, digest: Some(digest), ..reference.clone() }))
}

/// True for a bundle whose files the caller can read and write over: his own. Root can do that with all.
pub(crate) fn is_callers(bundle: &Path) -> Result<bool> {
    is_callers_directory(&bundle::open(bundle)?)
}

fn is_callers_directory(dir: &OwnedFd) -> Result<bool> {
    let caller = Caller::current()?;
    Ok(caller.has_hosts_root_uid()? || fd::stat(dir)?.st_uid == caller.uid)
}

struct Fetch<'a> {
    request: StoreRequest,
    interrupt: &'a Interrupt,
    keys: Vec<String>,
}

impl Fetch<'_> {
    fn new(request: StoreRequest, interrupt: &Interrupt) -> Result<Fetch<'_>> {
        if let Some(names) = &request.names {
            let keys = keys_of(names)?;
            return Ok(Fetch { request, interrupt, keys });
        }
        let platform = request.platform.as_deref();
        let spellings = names::spellings(&request.options.image, &request.options.source)?;
        let keys = spellings.iter().map(|name| names::key(name, platform)).collect();
        Ok(Fetch { request, interrupt, keys })
    }

    fn run(mut self) -> Result<Stored> {
        let mut stores = Stores::open()?;
        let image = &self.request.options.image;
        let local = !matches!(self.request.options.source, Source::Registry(_));
        let by_name = match self.request.policy {
            PullPolicy::Always => false,
            PullPolicy::Missing => !local,
            PullPolicy::Never => true,
        };
        if by_name && let Some((store, bundle)) = self.find(&stores)? {
            let found = Stored { path: store.bundle(&bundle), summary: None };
            // So that rt finds this spelling by itself. The store can be one that the caller cannot write.
            if let Some(own) = stores.own()?.filter(|own| own.path(&bundle) == found.path) {
                let _ = own.name(&self.keys, &bundle);
            }
            return Ok(found);
        }
        if self.request.policy == PullPolicy::Never {
            return Err(err!("{image}: not in the store of images").hint("rt pull --store gets it"));
        }
        let own = stores.own_or_new()?;
        draft::sweep_all(own.bundles());
        if by_name {
            // Of many processes that want a name, one asks the registry.
            let turn = own.alone(&self.lease_of_name()?, image, self.interrupt, || {
                Ok(self.find(&stores)?.map(|(store, bundle)| store.bundle(&bundle)))
            })?;
            return match turn {
                Turn::Done(path) => Ok(Stored { path, summary: None }),
                Turn::Mine(_lease) => self.resolve(&stores, &own),
            };
        }
        self.resolve(&stores, &own)
    }

    /// The first of the names that is in a store, of what may be taken there.
    fn find<'s>(&self, stores: &'s Stores) -> Result<Option<(&'s ImageStore, String)>> {
        for store in &stores.open {
            for key in &self.keys {
                if let Some(bundle) = store.find(key)?
                    && self.may_take(store, &bundle)?
                {
                    return Ok(Some((store, bundle)));
                }
            }
        }
        Ok(None)
    }

    /// True where the store has the bundle, and its files are whose they have to be.
    fn may_take(&self, store: &ImageStore, bundle: &str) -> Result<bool> {
        let Some(dir) = store.open_bundle(bundle)? else { return Ok(false) };
        Ok(!self.request.own || is_callers_directory(&dir)?)
    }

    /// The lease on a name, which can be longer than a file's.
    fn lease_of_name(&self) -> Result<String> {
        let name = names::canonical(&self.request.options.source)?;
        let platform = self.request.platform.as_deref().unwrap_or_default();
        Ok(Digest::of(format!("{name}\n{platform}").as_bytes()).hex().to_owned())
    }

    /// Asks what the name stands for now.
    fn resolve(&mut self, stores: &Stores, own: &OwnStore) -> Result<Stored> {
        let mut phases = Phases::start();
        let options = &self.request.options;
        // What gets a name of its own is no archive that may change.
        let stamp = stamp::key(&options.source, &options.platform).filter(|_| self.request.names.is_none());
        if let Some(stamp) = &stamp
            && let Some(bundle) = own.store.find(stamp)?
            && own.is_named(&self.keys, &bundle)?
        {
            return Ok(Stored { path: own.path(&bundle), summary: None });
        }
        // An engine that was asked has got the signal as well.
        self.interrupt.check()?;
        let scratch = match options.cache {
            CacheLocation::Scratch => Some(NewBundle::create(&own.path("scratch"))?),
            CacheLocation::Lasting(_) => None,
        };
        let place = scratch.as_ref().map(NewBundle::scratch).transpose()?;
        let (cache, _scratch) = options.cache.open(place)?;
        let opened = Opened::open(&options.source, options.connect.clone(), &cache, self.interrupt)?;
        let head = opened.head()?;
        let image = opened.resolve(head, &options.platform, &cache, self.interrupt)?;
        phases.end("resolve");
        let bundle = bundle_name(image.digest.algorithm(), image.digest.hex());
        // An archive that was replaced meanwhile is another one than that which was read.
        if let Some(stamp) = stamp.filter(|s| self.stamp_now().as_ref() == Some(s)) {
            self.keys.push(stamp);
        }
        for store in &stores.open {
            let mine = store.path() == own.store.path();
            if self.may_take(store, &bundle)? && (!mine || own.is_named(&self.keys, &bundle)?) {
                let summary = Some(Summary::unchanged(image.digest.to_string(), phases));
                return Ok(Stored { path: store.bundle(&bundle), summary });
            }
        }
        // Until the bundle has its name, whoever removes bundles without one must not find it.
        let none = || Ok(None::<()>);
        let _lease = own.alone(&bundle, &options.image, self.interrupt, none)?;
        let summary = match self.may_take(&own.store, &bundle)? {
            true => Summary { by_another_name: true, ..Summary::unchanged(image.digest.to_string(), phases) },
            false if own.store.has(&bundle)? => {
                return Err(err!("{}: its files belong to another user", own.path(&bundle).display())
                    .hint("RT_IMAGES names a store of your own before this one"));
            }
            false => self.make(own, &image, &cache, &bundle, phases)?,
        };
        own.name(&self.keys, &bundle)?;
        own.store.mark_use(&bundle)?;
        Ok(Stored { path: own.path(&bundle), summary: Some(summary) })
    }

    fn stamp_now(&self) -> Option<String> {
        let PullOptions { source, platform, .. } = &self.request.options;
        stamp::key(source, platform)
    }

    /// Unpacks the image. The caller holds the bundle's lease.
    fn make(
        &mut self,
        own: &OwnStore,
        image: &Image,
        cache: &Cache,
        bundle: &str,
        phases: Phases,
    ) -> Result<Summary> {
        if let Some(marks) = self.request.watermarks {
            prune::make_room(own, marks)?;
        }
        self.request.options.target = own.path(bundle);
        self.request.options.store = Some(own.store.path().to_owned());
        self.request.options.shared = own.shared;
        let partial = NewBundle::create(&self.request.options.target)?;
        pull::unpack_layers(&self.request.options, image, partial, cache, self.interrupt, phases)
    }
}
