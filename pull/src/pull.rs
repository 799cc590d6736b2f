//! The story of a pull, from name to bundle.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::blob::Blob;
use super::bundle::{self, NewBundle, Publish, PulledImage};
use super::cache::{Cache, CacheLocation};
use super::disk_full;
use super::image_file;
use super::limits::Limits;
use super::platform::Platform;
use super::profile::{self, BundledImage, Choices, Profile};
use super::progress::{self, Style, size};
use super::reference::Source;
use super::save::LayerTree;
use super::source::{self, Image, Opened};
use super::trees;
use oci_content::digest::Digest;
use oci_content::interrupt::{Interrupt, interrupted, is_interrupted};
use oci_layer::merge::{LayerNumber, MergedTree};
use oci_layer::unpack::{self, Counts, DirectoryTarget, LayerTarget, UnpackContext};
use oci_registry::registry::ConnectOptions;
use rt_spec::rootless::UserMap;
use rt_sys::error::{Context, Error, Result};
use rt_sys::{disk, err};

/// The options of a pull.
pub(crate) struct PullOptions {
    /// The image's name as it was given.
    pub image: String,
    /// What it means.
    pub source: Source,
    /// Where the bundle, or the image file, is to be.
    pub target: PathBuf,
    /// The store of images, where the bundle goes into one.
    pub store: Option<PathBuf>,
    /// What kind of image file is made; none where a bundle is made.
    pub image_file: Option<image_file::Form>,
    /// Which image of an index.
    pub platform: Platform,
    /// What the bundle is to be like.
    pub choices: Choices,
    /// Others may look into the bundle.
    pub shared: bool,
    /// Owners that are not root's are recorded: an image is to be built on it, or pushed.
    pub owners: bool,
    /// Replace a bundle that is there.
    pub force: bool,
    /// Flush the bundle to the disk.
    pub sync: bool,
    /// Compare the uncompressed layers with what the config says.
    pub verify: bool,
    /// The most that an image may write.
    pub max_bytes: u64,
    /// Blobs fetched at once.
    pub connections: Option<usize>,
    /// How to connect.
    pub connect: ConnectOptions,
    /// Where blobs are kept.
    pub cache: CacheLocation,
    /// What is shown meanwhile.
    pub style: Style,
}

impl PullOptions {
    /// The error of writing the image, with what is to be done where its place is full.
    pub(crate) fn without_room(&self, error: Error) -> Error {
        disk_full::explain_target(error, &self.target, self.store.as_deref())
    }

    /// The error of a layer, with what is to be done where the place is full or the image is larger than is allowed.
    fn of_layer(&self, error: Error, counts: &Counts) -> Error {
        match counts.bytes.load(Ordering::Relaxed) > self.max_bytes {
            true => error.hint("rt pull --max-size and pull.max-size in config.toml allow more"),
            false => self.without_room(error),
        }
    }
}

/// Pulls.
///
/// # Errors
/// Whatever keeps the bundle from being complete. Nothing of it is there then; blobs stay in the cache.
pub(crate) fn run(options: &PullOptions) -> Result<Summary> {
    interruptible(&options.cache, |interrupt| run_watched(options, interrupt))
}

/// Pulls, for a caller that has caught Ctrl-C already.
pub(crate) fn run_watched(options: &PullOptions, interrupt: &Interrupt) -> Result<Summary> {
    match options.image_file {
        None => pull(options, interrupt),
        Some(form) => image_file::pull(options, form, interrupt),
    }
}

/// Does the work of a pull, which Ctrl-C ends. An error for want of room says where `cache` is.
pub(crate) fn interruptible<T>(
    cache: &CacheLocation,
    work: impl FnOnce(&Interrupt) -> Result<T>,
) -> Result<T> {
    let interrupt = Interrupt::install();
    rt_sys::process::raise_open_files();
    work(&interrupt).map_err(|e| match is_interrupted(&e) {
        true => err!("interrupted; what was fetched is kept, the same command goes on"),
        false => disk_full::explain(e, cache.path()),
    })
}

/// What happened, for people and scripts.
pub(crate) struct Summary {
    /// Digest of the image's manifest.
    pub digest: String,
    /// The bundle was there.
    pub unchanged: bool,
    /// It was, but not by this name, which is new or meant another image before.
    pub by_another_name: bool,
    /// Bytes from the network.
    pub fetched: u64,
    /// Bytes of all layers, compressed.
    pub layer_bytes: u64,
    /// Directories of the tree.
    pub directories: u64,
    /// The rest of the tree.
    pub counts: Counts,
    /// Times of the steps.
    pub phases: Vec<(&'static str, Duration)>,
}

impl Summary {
    /// The summary for an image that was there already.
    pub(crate) fn unchanged(digest: String, phases: Phases) -> Summary {
        Summary {
            digest,
            unchanged: true,
            by_another_name: false,
            fetched: 0,
            layer_bytes: 0,
            directories: 0,
            counts: Counts::default(),
            phases: phases.ended,
        }
    }
}

fn pull(options: &PullOptions, interrupt: &Interrupt) -> Result<Summary> {
    let mut phases = Phases::start();
    let force = options.force;
    let exists = options.target.symlink_metadata().is_ok();
    if exists && force {
        bundle::replaceable(&options.target)?;
    }
    // A scratch cache is in the directory in which the bundle is made, so that is made first.
    let mut partial = None;
    let scratch = match options.cache == CacheLocation::Scratch && (force || !exists) {
        true => Some(partial.insert(NewBundle::create(&options.target)?).scratch()?),
        false => None,
    };
    let (cache, _scratch) = options.cache.open(scratch)?;
    let opened = Opened::open(&options.source, options.connect.clone(), &cache, interrupt)?;
    let head = opened.head()?;
    if exists && !force {
        let have = PulledImage::of_bundle(&options.target)?;
        return unchanged(options, have, opened, head, &cache, interrupt, phases);
    }
    let image = opened.resolve(head, &options.platform, &cache, interrupt)?;
    phases.end("resolve");
    let partial = match partial {
        Some(partial) => partial,
        None => NewBundle::create(&options.target)?,
    };
    unpack_layers(options, &image, partial, &cache, interrupt, phases)
}

/// What is in the layers of an image.
#[derive(Clone, Copy)]
pub(crate) enum Contents<'a> {
    /// Archives, to be had from the image's source by way of this cache.
    Layers(&'a Cache),
    /// Trees on the disk, the lowest first. True where their files may have further names.
    Trees(&'a [(LayerTree, bool)]),
}

/// Makes the bundle of an image that was resolved, of the archives of its layers.
pub(crate) fn unpack_layers(
    options: &PullOptions,
    image: &Image,
    partial: NewBundle,
    cache: &Cache,
    interrupt: &Interrupt,
    phases: Phases,
) -> Result<Summary> {
    let made = unpack(options, image, partial, Contents::Layers(cache), interrupt, phases)?;
    made.ok_or_else(|| err!("{}: its layers are not whole", options.image))
}

/// Makes the bundle of an image that was resolved. None where the layers are trees with something that only archives can say.
pub(crate) fn unpack(
    options: &PullOptions,
    image: &Image,
    partial: NewBundle,
    contents: Contents,
    interrupt: &Interrupt,
    mut phases: Phases,
) -> Result<Option<Summary>> {
    let root = disk::open_dir_again(partial.rootfs())?;
    if let Contents::Layers(cache) = contents {
        check_space(&root, image, cache).map_err(|e| options.without_room(e))?;
    }

    let counts = Counts::default();
    let (below, trash) = (disk::open_dir_again(root.as_fd())?, disk::open_dir_again(partial.trash())?);
    let tree = MergedTree::new(DirectoryTarget::new(below, trash, options.shared, options.owners, &counts));
    let mask = rt_sys::process::clear_umask();
    let limits = Limits::of_this_job(options.connections);
    let layers_of_image = image.manifest.layers.len();
    let context = UnpackContext {
        tree: &tree,
        root: Some(&root),
        max_bytes: options.max_bytes,
        counts: &counts,
        interrupt,
        frame_threads: limits.frame_threads(layers_of_image),
        pieces: limits.pieces(layers_of_image),
    };
    let fetched = match contents {
        Contents::Layers(cache) => layers(image, &context, cache, limits, options)?,
        Contents::Trees(trees) => {
            let is_read_only = options.choices.is_read_only();
            if is_read_only && trees.iter().any(|(_, shares)| *shares) {
                partial.note_sharing(options.shared && mask & 0o005 == 0)?;
            }
            match trees::merge(trees, &context, limits, is_read_only) {
                Ok(true) => 0,
                Ok(false) => return Ok(None),
                Err(e) => return Err(options.of_layer(e, context.counts)),
            }
        }
    };
    phases.end("layers");

    let bundled = BundledImage::of(image, &options.image);
    let mut config = profile::config(&bundled, Some(&root), &options.choices)?;
    config["annotations"][rt_spec::ANNOTATION_BYTES] =
        counts.bytes.load(Ordering::Relaxed).to_string().into();
    profile::prepare_mount_points(&root, &config)?;
    // Any bundle of the hpc profile may be run with --user-map root later.
    if options.choices.profile == Profile::Hpc || options.choices.user == Some(UserMap::Root) {
        profile::prepare_package_managers(&root)?;
    }
    let host_files = profile::host_files_record(&root)?;
    let directories = tree.finish_dirs()?;
    let shared = options.shared && mask & 0o005 == 0;
    partial.write_image_config(&image.config_text, shared)?;
    if options.choices.profile == Profile::Hpc && !host_files.is_empty() {
        partial.write_host_files(&host_files, shared)?;
    }
    if options.owners {
        partial.note_owners(shared)?;
    }
    let published = partial.publish(
        &options.target,
        &config,
        Publish { shared, replace: options.force, sync: options.sync },
    );
    let have = || PulledImage::of_bundle(&options.target);
    Pulled { image, fetched, directories, counts, phases }.end(options, published, have).map(Some)
}

/// What a pull has made of an image.
pub(super) struct Pulled<'a> {
    /// The image.
    pub image: &'a Image,
    /// Bytes from the network.
    pub fetched: u64,
    /// Directories of the tree.
    pub directories: u64,
    /// The rest of the tree.
    pub counts: Counts,
    /// The steps so far.
    pub phases: Phases,
}

impl Pulled<'_> {
    /// Ends a pull. `published` says whether what was made has its name. Another process may have made something there meanwhile:
    /// if `have` says that it is of the same image, this pull has succeeded as well.
    ///
    /// # Errors
    /// It has not its name, or another image came to that name.
    pub(super) fn end(
        mut self,
        options: &PullOptions,
        published: Result<()>,
        have: impl FnOnce() -> Result<PulledImage>,
    ) -> Result<Summary> {
        // ENOENT: with --force on both sides, the other one is just about to rename.
        let outrun = |e: &Error| came_meanwhile(e) || e.is(libc::ENOENT);
        let same = || have().is_ok_and(|have| have.digest == self.image.digest.as_str());
        let unchanged = published.as_ref().is_err_and(outrun) && same();
        if !unchanged {
            published.map_err(|e| in_the_way(e, options))?;
        }
        self.phases.end("finish");
        Ok(Summary {
            digest: self.image.digest.to_string(),
            unchanged,
            by_another_name: false,
            fetched: self.fetched,
            layer_bytes: self.image.layer_bytes(),
            directories: self.directories,
            counts: self.counts,
            phases: self.phases.ended,
        })
    }
}

/// The image `have` is at the target: fine if it is what would be pulled.
pub(super) fn unchanged(
    options: &PullOptions,
    have: PulledImage,
    opened: Opened,
    head: Option<Digest>,
    cache: &Cache,
    interrupt: &Interrupt,
    mut phases: Phases,
) -> Result<Summary> {
    let now = match head {
        Some(head) => head,
        None => opened.resolve(None, &options.platform, cache, interrupt)?.resolved,
    };
    // The digest of an index is the same for all its platforms, so the bundle's own manifest is compared as well.
    let chosen = source::chosen(cache, &now, &options.platform);
    if have.resolved != now.as_str() || chosen.is_some_and(|chosen| have.digest != chosen.as_str()) {
        return Err(err!("{}: exists, with another image", options.target.display())
            .hint("use --force to replace it"));
    }
    phases.end("resolve");
    Ok(Summary::unchanged(now.to_string(), phases))
}

/// True where something came to the target while the bundle was made. ENOTEMPTY is what rename(2) says instead of EEXIST
/// where there is no RENAME_NOREPLACE (NFS).
fn came_meanwhile(e: &Error) -> bool {
    e.is(libc::EEXIST) || e.is(libc::ENOTEMPTY)
}

fn in_the_way(e: Error, options: &PullOptions) -> Error {
    match !options.force && came_meanwhile(&e) {
        true => {
            let e = err!("{}: appeared while the image was pulled", options.target.display());
            // In a store nobody has named the place, and nothing there is replaced.
            if options.store.is_some() { e } else { e.hint("use --force to replace it") }
        }
        false => e,
    }
}

/// What is sure not to fit is not begun. What layers replace of each other is counted twice only where their plain
/// sizes are known, so half of it counts then.
pub(super) fn check_space(root: &OwnedFd, image: &Image, cache: &Cache) -> Result<()> {
    let least = image.least_space(cache);
    let beside = if disk::same_file_system(root, cache.root())? { least.cache } else { 0 };
    let needed = image.layer_bytes().max(least.tree / 2).saturating_add(beside);
    let free = disk::free_space(root)?.bytes;
    if free < needed {
        let text = format!("the image needs more than {}: no space left on device", size(needed));
        return Err(Error::from_parts(text, Some(libc::ENOSPC)));
    }
    Ok(())
}

/// Obtains and applies all layers, several at a time, from the top. Returns bytes from the network.
pub(super) fn layers<T: LayerTarget>(
    image: &Image,
    context: &UnpackContext<T>,
    cache: &Cache,
    limits: Limits,
    options: &PullOptions,
) -> Result<u64> {
    let interrupt = context.interrupt;
    // Layers can be the same (empty ones often are); their blob is fetched once.
    let mut blobs: Vec<Arc<Blob>> = Vec::new();
    for layer in &image.manifest.layers {
        let known = blobs.iter().find(|blob| blob.digest == layer.digest && blob.size == layer.size).cloned();
        blobs.push(known.unwrap_or_else(|| Blob::new(layer.digest.clone(), layer.size)));
    }
    let source = |at: usize| (blobs[at].reader(), image.expected(at, options.verify));
    let order_of_work: Vec<usize> = (0..blobs.len()).rev().collect();
    let mut unique: Vec<usize> = order_of_work.clone();
    unique.retain(|&at| blobs.iter().position(|blob| Arc::ptr_eq(blob, &blobs[at])) == Some(at));

    let failures: Mutex<Vec<(Stage, Error)>> = Mutex::default();
    let fail = |stage, e: Error| {
        interrupt.stop();
        failures.lock().unwrap_or_else(|e| e.into_inner()).push((stage, e));
    };
    let fetched = Mutex::new(0u64);
    let deferred = Mutex::new(Vec::new());
    let (next_fetch, next_layer) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        // Nothing is shown where no thread can be had for it.
        let show = thread("show").spawn_scoped(scope, || progress::show(options.style, &blobs, &done)).ok();
        let mut threads = Vec::new();
        for _ in 0..limits.downloads.min(unique.len()) {
            let fetch = || {
                while let Some(&at) = unique.get(next_fetch.fetch_add(1, Ordering::Relaxed)) {
                    let blob = &blobs[at];
                    let result = interrupt.check().and_then(|()| image.obtain(at, blob, cache, interrupt));
                    if let Ok(true) = result {
                        *fetched.lock().unwrap_or_else(|e| e.into_inner()) += blob.size;
                    }
                    blob.finish(result.as_ref().map(drop).map_err(Error::clone));
                    if let Err(e) = result {
                        fail(Stage::Obtain, e);
                    }
                }
            };
            match thread("fetch").spawn_scoped(scope, fetch).context(|| "start a thread") {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    fail(Stage::Obtain, e);
                    break;
                }
            }
        }
        if threads.is_empty() {
            // Nobody else tells the readers that nothing will come.
            unique.iter().for_each(|&at| blobs[at].finish(Err(interrupted())));
        }
        for _ in 0..limits.layers.min(blobs.len()) {
            let unpack = || {
                while let Some(&at) = order_of_work.get(next_layer.fetch_add(1, Ordering::Relaxed)) {
                    let number = (at + 1) as LayerNumber;
                    let applied = interrupt
                        .check()
                        .and_then(|()| unpack::apply(context, number, blobs[at].size, source(at)));
                    match applied {
                        Ok(links) => {
                            blobs[at].set_unpacked();
                            deferred.lock().unwrap_or_else(|e| e.into_inner()).extend(links);
                        }
                        Err(e) => {
                            let layer = format!("layer {} ({})", number, blobs[at].digest.short());
                            fail(Stage::Unpack, options.of_layer(e.context(layer), context.counts));
                        }
                    }
                }
            };
            match thread("unpack").spawn_scoped(scope, unpack).context(|| "start a thread") {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    fail(Stage::Unpack, e);
                    break;
                }
            }
        }
        for thread in threads {
            let _ = thread.join();
        }
        done.store(true, Ordering::Release);
        let _ = show.map(|show| show.join());
    });
    if let Some(e) = cause(failures.into_inner().unwrap_or_else(|e| e.into_inner())) {
        return Err(e);
    }
    let mut deferred = deferred.into_inner().unwrap_or_else(|e| e.into_inner());
    deferred.sort_by_key(|link| link.layer);
    unpack::finish_links(context, deferred, |number| source(usize::from(number) - 1))
        .map_err(|e| options.of_layer(e, context.counts))?;
    Ok(fetched.into_inner().unwrap_or_else(|e| e.into_inner()))
}

/// The stage of the pull in which a thread failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// It obtained a blob.
    Obtain,
    /// It unpacked a layer.
    Unpack,
}

/// The failure to show: that of a blob before that of what its bytes did, since the readers of a blob fail with it.
/// "interrupted" only where there is nothing else.
fn cause(failures: Vec<(Stage, Error)>) -> Option<Error> {
    failures.into_iter().min_by_key(|(stage, e)| (is_interrupted(e), *stage)).map(|(_, e)| {
        match is_interrupted(&e) {
            // The layer in which it happened to be noticed says nothing.
            true => interrupted(),
            false => e,
        }
    })
}

/// How long the steps took.
pub(crate) struct Phases {
    since: Instant,
    pub ended: Vec<(&'static str, Duration)>,
}

impl Phases {
    /// Starts the clock of the first step.
    pub(crate) fn start() -> Phases {
        Phases { since: Instant::now(), ended: Vec::new() }
    }

    /// Ends a step, and begins the next one.
    pub(crate) fn end(&mut self, name: &'static str) {
        self.ended.push((name, self.since.elapsed()));
        self.since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt_sys::error::Kind;

    #[test]
    fn the_cause_is_shown() {
        let layer = |e: Error| (Stage::Unpack, e.context("layer 1"));
        let lost = || err!("connection lost");
        let shown = |failures: Vec<(Stage, Error)>| cause(failures).map(|e| (e.kind(), e.to_string()));
        let other = |text: &str| Some((Kind::Other, text.to_owned()));
        assert_eq!(shown(vec![]), None);
        // A reader of a blob fails with its error, and other layers are asked to stop.
        let failures = vec![layer(interrupted()), layer(lost()), (Stage::Obtain, lost())];
        assert_eq!(shown(failures), other("connection lost"));
        assert_eq!(shown(vec![(Stage::Obtain, interrupted()), layer(err!("tar"))]), other("layer 1: tar"));
        let signal = shown(vec![layer(interrupted()), (Stage::Obtain, interrupted())]);
        assert_eq!(signal, Some((Kind::Interrupted, "interrupted".to_owned())));
        // Not everything that calls itself so is.
        assert_eq!(shown(vec![layer(err!("interrupted"))]), other("layer 1: interrupted"));
    }
}
