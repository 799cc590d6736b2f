//! The story of a pull into an image file (squashfs), which is written as the layers arrive: no tree is made anywhere.
//!
//! Layers are worked on one after the other, from the top, so that what an upper layer hides is known when a lower one
//! comes, and so that the same image gives the same bytes. The file has the bundle's config in [`CONFIG_DIR`], by which
//! `rt run` knows as much of it as of a bundle.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, PipeReader, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread::{Scope, ScopedJoinHandle};

use serde_json::{Value, json};

use super::bundle::PulledImage;
use super::cache::CacheLocation;
use super::disk_full;
use super::draft::{self, Draft};
use super::limits::Limits;
use super::profile::{self, BundledImage, MountPoint};
use super::progress::Style;
use super::pull::{self, Phases, PullOptions, Pulled, Summary};
use super::run_file;
use super::save::{self, LayerTree, SourceBundle, Times, TreeKind, Watch, What, Whole};
use super::source::Opened;
use super::squashfs_target::ImageTarget;
use oci_content::interrupt::Interrupt;
use oci_content::meter::Meter;
use oci_layer::decode::Expected;
use oci_layer::merge::{DeferredLink, LayerNumber, MergedTree};
use oci_layer::unpack::{self, Counts, UnpackContext};
use rt_image_store::image_file::ImageKind;
use rt_image_store::run_file::{Part, RunFile};
use rt_spec::{ANNOTATION_CMD, ANNOTATION_ENTRYPOINT, ANNOTATION_RESOLVED};
use rt_sys::error::{Context, Error, Result};
use rt_sys::{disk, err};
use squashfs::{Body, FilePart, Filesystem};
use squashfs_write::{Compression, Options, Written};

/// The name in the draft.
const FILE: &[u8] = b"image";
/// Where the config of the bundle and that of the image are in an image file.
const CONFIG_DIR: &str = ".rt";
const CONFIG: &str = "config.json";
const IMAGE_CONFIG: &str = "image.json";
/// No config is longer, which has some lines for each mount and variable.
const CONFIG_LIMIT: usize = 64 << 20;

/// What kind of file is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    /// How it is compressed.
    pub compression: Compression,
    /// The file is to be a program.
    pub runs: bool,
    /// The user has named the file to a program that writes nothing else: a link or an empty file of that name, as mktemp(1)
    /// makes one, is replaced, too.
    pub whatever_name: bool,
}

/// Pulls into the file `options.target`.
pub(super) fn pull(options: &PullOptions, form: Form, interrupt: &Interrupt) -> Result<Summary> {
    let mut phases = Phases::start();
    let target = &options.target;
    check_name(target, form)?;
    // A program has rt in it, too, which may be another one by now.
    if !options.force && !form.runs && exists(target)? {
        let have = pulled(target)?;
        let (cache, _scratch) = options.cache.open(None)?;
        let opened = Opened::open(&options.source, options.connect.clone(), &cache, interrupt)?;
        let head = opened.head()?;
        return pull::unchanged(options, have, opened, head, &cache, interrupt, phases);
    }
    let old = replaceable(target, options.force, form)?;
    let draft = Draft::beside(target)?;
    let scratch = match options.cache == CacheLocation::Scratch {
        true => Some(disk::make_own_dir(draft.dir(), b"scratch")?),
        false => None,
    };
    let (cache, _scratch) = options.cache.open(scratch)?;
    let opened = Opened::open(&options.source, options.connect.clone(), &cache, interrupt)?;
    let head = opened.head()?;
    let image = opened.resolve(head, &options.platform, &cache, interrupt)?;
    phases.end("resolve");

    let counts = Counts::default();
    let new = NewImageFile::create(&draft, form, &counts, options.connections)?;
    let context = new.context(&counts, interrupt, options.max_bytes);
    let fetched = pull::layers(&image, &context, &cache, new.limits, options)?;
    let directories = new.tree.finish_dirs()?;
    phases.end("layers");

    let bundled = BundledImage::of(&image, &options.image);
    let mut config = profile::config(&bundled, None, &options.choices)?;
    new.finish(&mut config, Some(&image.config_text), options.sync).map_err(|e| options.without_room(e))?;
    if form.runs {
        run_file::wrap(&draft, FILE, options.sync, interrupt)?;
    }
    let published = match &old {
        Some(old) => draft.replace(FILE, old),
        None => draft.publish(FILE),
    };
    let have = || match form.runs {
        false => pulled(target),
        // What runs by itself is a program, of which nobody asks from which image it is.
        true => Err(err!("{}: a program", target.display())),
    };
    Pulled { image: &image, fetched, directories, counts, phases }.end(options, published, have)
}

/// Writes the tree of a bundle, with what is over it, as root's, and its config into the file `target`. Nothing in the directory
/// `whole` may be removed meanwhile.
///
/// # Errors
/// Nothing of it is there then.
pub(crate) fn save(
    what: What<'_>,
    whole: Option<&Path>,
    target: &Path,
    replace: bool,
    form: Form,
    style: Style,
) -> Result<Written> {
    let whole = whole.map(Whole::of).transpose()?;
    let save::Parts { trees, mut config, original } = SourceBundle::open(what)?.into_parts();
    if let Some(annotations) = config["annotations"].as_object_mut() {
        // What was changed in the bundle is in the file, so no later pull may take the file for the image.
        annotations.remove(ANNOTATION_RESOLVED);
    }
    let image_config = original.map(|config| config.to_string().into_bytes());
    if form.runs {
        let runs = |key: &str| config["annotations"].get(key).is_some();
        if !runs(ANNOTATION_ENTRYPOINT) && !runs(ANNOTATION_CMD) && config["process"]["args"].is_array() {
            // What the program is called with is for what the bundle runs, and not instead of it.
            config["annotations"][ANNOTATION_ENTRYPOINT] = json!(config["process"]["args"].to_string());
        }
    }
    write_trees(&trees, target, replace, form, style, |new| {
        let written = new.finish(&mut config, image_config.as_deref(), true)?;
        whole.map_or(Ok(()), |whole| whole.check()).map(|()| written)
    })
}

/// Writes the directory `from`, as root's, into the file `target`: data, of which no container is made.
///
/// # Errors
/// Nothing of it is there then.
pub(crate) fn save_data(
    from: &Path,
    target: &Path,
    replace: bool,
    form: Form,
    style: Style,
) -> Result<Written> {
    let tree = LayerTree { kind: TreeKind::Root, times: Times::Own, root: disk::open_root(from)? };
    write_trees(&[tree], target, replace, form, style, |new| new.write(true, |_| Ok(())))
}

/// Writes trees, the lowest first, into the file `target`, which `finish` completes.
fn write_trees(
    trees: &[LayerTree],
    target: &Path,
    replace: bool,
    form: Form,
    style: Style,
    finish: impl FnOnce(NewImageFile) -> Result<Written>,
) -> Result<Written> {
    check_name(target, form)?;
    let interrupt = Interrupt::install();
    let old = replaceable(target, replace, form)?;
    rt_sys::process::raise_open_files();
    let draft = Draft::beside(target)?;
    let counts = Counts::default();
    let new = NewImageFile::create(&draft, form, &counts, None)?;
    let context = new.context(&counts, &interrupt, u64::MAX);
    let watch = Watch { interrupt: &interrupt, meter: &Meter::default() };
    let without_room = |e| disk_full::explain_target(e, target, None);
    style.show("save", watch.meter, || copy_trees(trees, &context, watch)).map_err(without_room)?;
    new.tree.finish_dirs()?;
    let mut written = finish(new).map_err(without_room)?;
    if form.runs {
        written.bytes = run_file::wrap(&draft, FILE, true, &interrupt)?;
    }
    put_in_place(&draft, target, replace, form, old)?;
    draft.sync_place()?;
    Ok(written)
}

/// Copies the squashfs in the file `source`, as it is. Returns how long what is made is.
pub(crate) fn copy(source: &Path, target: &Path, replace: bool, runs: bool) -> Result<u64> {
    let form = Form { compression: Compression::None, runs, whatever_name: false };
    check_name(target, form)?;
    let interrupt = Interrupt::install();
    let old = replaceable(target, replace, form)?;
    let mut from = disk::open_named(source)?;
    let size = disk::length(&from)?;
    let context = || format!("copy {}", source.display());
    let part = RunFile::of(&from).context(context)?.map_or(Part { offset: 0, size }, |parts| parts.image);
    from.seek(io::SeekFrom::Start(part.offset)).context(context)?;
    let mask = rt_sys::process::clear_umask();
    let draft = Draft::beside(target)?;
    let mut out = disk::create_own_file(draft.dir(), FILE)?;
    let mut written = run_file::copy(&mut from, part.size, &mut out, &interrupt).context(context)?;
    disk::set_mode(out.as_fd(), 0o666 & !mask)?;
    match runs {
        true => written = run_file::wrap(&draft, FILE, true, &interrupt)?,
        false => disk::sync_file(&out)?,
    }
    put_in_place(&draft, target, replace, form, old)?;
    draft.sync_place()?;
    Ok(written)
}

/// The configs in an image file at `path` that `rt` has written: of the bundle, and of the image that it was pulled from.
/// None in a file of another program.
pub(crate) fn configs(path: &Path) -> Result<Option<(Value, Option<Value>)>> {
    let shown = || path.display().to_string();
    let file = disk::open_named(path)?;
    let offset = RunFile::of(&file).context(shown)?.map_or(0, |parts| parts.image.offset);
    let part = FilePart::new(file, offset, None).context(shown)?;
    let image = Filesystem::open(part, 0).map_err(|e| err!("{}: {e}", shown()))?;
    let read = |name: &str| {
        let text = file_in(&image, &[CONFIG_DIR, name]).map_err(|e| err!("{}: {e}", shown()))?;
        let parsed = text.map(|text| serde_json::from_slice(&text)).transpose();
        parsed.map_err(|e| err!("{}: /{CONFIG_DIR}/{name}: {e}", shown()))
    };
    let Some(config) = read(CONFIG)? else { return Ok(None) };
    Ok(Some((config, read(IMAGE_CONFIG)?)))
}

/// True where the file at `path` is a SIF image.
pub(crate) fn is_sif(path: &Path) -> Result<bool> {
    let kind = ImageKind::of(&disk::open_named(path)?).context(|| path.display().to_string())?;
    Ok(kind == Some(ImageKind::Sif))
}

/// True for a file that begins as a squashfs, or is a program with one.
pub(crate) fn is_squashfs(file: &File) -> Result<bool> {
    Ok(matches!(ImageKind::of(file)?, Some(ImageKind::Squashfs | ImageKind::Program)))
}

fn check_name(target: &Path, form: Form) -> Result<()> {
    if form.runs { run_file::check_name(target) } else { Ok(()) }
}

/// Applies trees as if they were layers, the highest first: what it hides is not written.
fn copy_trees(trees: &[LayerTree], context: &UnpackContext<ImageTarget>, watch: Watch) -> Result<()> {
    let mut deferred = Vec::new();
    for (at, tree) in trees.iter().enumerate().rev() {
        deferred.extend(copy_tree(tree, (at + 1) as LayerNumber, context, watch)?);
    }
    // Files of which a higher tree hides the name that came first, and not the others.
    std::thread::scope(|scope| {
        let threads = RefCell::new(Vec::new());
        let again = |number: LayerNumber| -> (Box<dyn Read + Send>, Expected) {
            match archive(scope, &trees[usize::from(number) - 1], watch) {
                Ok((reader, thread)) => {
                    threads.borrow_mut().push(thread);
                    (Box::new(reader), Expected::Any)
                }
                Err(e) => (Box::new(Unread(Some(e))), Expected::Any),
            }
        };
        let finished = unpack::finish_links(context, deferred, again);
        let archived =
            threads.into_inner().into_iter().map(joined).find_map(|archived| archived.err().filter(is_cause));
        // Where all links were found, nobody needs the rest of the archives.
        finished.map_err(|e| archived.unwrap_or(e))
    })
}

/// What came of a thread that writes an archive.
fn joined(thread: ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().unwrap_or_else(|_| Err(err!("a thread that writes the archive has ended")))
}

/// False where the writing of an archive failed because the reading had ended. Where the writing fails for another reason, the
/// reading ends early for it.
fn is_cause(e: &Error) -> bool {
    !e.is(libc::EPIPE)
}

/// A stream that could not be opened.
struct Unread(Option<Error>);

impl Read for Unread {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), |e| Err(io::Error::other(e)))
    }
}

/// Applies a tree as if it were a layer: one thread writes the archive, and this one reads it. Returns the links that wait.
fn copy_tree(
    tree: &LayerTree,
    number: LayerNumber,
    context: &UnpackContext<ImageTarget>,
    watch: Watch,
) -> Result<Vec<DeferredLink>> {
    let (archived, applied) = std::thread::scope(|scope| {
        let (reader, thread) = archive(scope, tree, watch)?;
        let applied = unpack::apply(context, number, u64::MAX, (reader, Expected::Any));
        Ok::<_, Error>((joined(thread), applied))
    })?;
    match (archived, applied) {
        (Ok(()), applied) => applied,
        (Err(e), Ok(_)) => Err(e),
        (Err(e), Err(other)) => Err(if is_cause(&e) { e } else { other }),
    }
}

/// Starts a thread that writes `tree` as an archive, which the returned pipe has.
fn archive<'scope>(
    scope: &'scope Scope<'scope, '_>,
    tree: &'scope LayerTree,
    watch: Watch<'scope>,
) -> Result<(PipeReader, ScopedJoinHandle<'scope, Result<()>>)> {
    let (reader, writer) = io::pipe().context(|| "make a pipe")?;
    let write = move || {
        let mut out = BufWriter::with_capacity(256 << 10, writer);
        save::write_archive(tree, &mut out, watch)?;
        out.flush().context(|| "write the archive")
    };
    let thread = std::thread::Builder::new().name("archive".into());
    Ok((reader, thread.spawn_scoped(scope, write).context(|| "start a thread")?))
}

/// An image file that is being written.
struct NewImageFile<'a> {
    out: File,
    tree: MergedTree<ImageTarget<'a>>,
    limits: Limits,
    mask: u32,
}

impl<'a> NewImageFile<'a> {
    fn create(
        draft: &Draft,
        form: Form,
        counts: &'a Counts,
        connections: Option<usize>,
    ) -> Result<NewImageFile<'a>> {
        let mask = rt_sys::process::clear_umask();
        let out = disk::create_own_file(draft.dir(), FILE)?;
        let limits = Limits { layers: 1, ..Limits::of_this_job(connections) };
        let (compression, threads) = (form.compression, limits.threads);
        let options = Options { compression, threads, ..Options::default() };
        let target = ImageTarget::new(out.try_clone().context(|| "dup")?, options, counts)?;
        Ok(NewImageFile { out, tree: MergedTree::new(target), limits, mask })
    }

    fn context<'b>(
        &'b self,
        counts: &'b Counts,
        interrupt: &'b Interrupt,
        max_bytes: u64,
    ) -> UnpackContext<'b, ImageTarget<'a>> {
        UnpackContext {
            tree: &self.tree,
            // What is written is compressed, and a write that finds no room says so.
            root: None,
            max_bytes,
            counts,
            interrupt,
            frame_threads: self.limits.frame_threads(1),
            pieces: self.limits.pieces(1),
        }
    }

    /// Adds the configs and what they need, and writes what is left.
    fn finish(self, config: &mut Value, image_config: Option<&[u8]>, sync: bool) -> Result<Written> {
        if let Some(linux) = config["linux"].as_object_mut() {
            // Whose ids are mapped is known when it runs.
            linux.remove("uidMappings");
            linux.remove("gidMappings");
        }
        config["root"] = json!({ "path": "rootfs", "readonly": true });
        self.write(sync, |target| add_files(target, config, image_config))
    }

    /// Adds what `add` does, and writes what is left.
    fn write(self, sync: bool, add: impl FnOnce(&ImageTarget) -> Result<()>) -> Result<Written> {
        let target = self.tree.into_target();
        add(&target)?;
        let written = target.finish()?;
        disk::set_mode(self.out.as_fd(), 0o666 & !self.mask)?;
        if sync {
            disk::sync_file(&self.out)?;
        }
        Ok(written)
    }
}

/// True where anything is at `target`.
fn exists(target: &Path) -> Result<bool> {
    let (parent, name) = draft::place(target)?;
    let exists = disk::mode_at(parent.as_fd(), &name)?.is_some();
    if exists {
        // What a killed command has left here goes also where nothing is made.
        draft::sweep_beside(parent.as_fd(), &name);
    }
    Ok(exists)
}

/// The image that a pull has written into the file at `target`.
///
/// # Errors
/// The file is none that a pull has written, or somebody else can change what it says.
fn pulled(target: &Path) -> Result<PulledImage> {
    let file = match disk::open_named(target) {
        // An error without errno: something else than a regular file.
        Err(e) if e.errno().is_none() => None,
        opened => Some(opened?),
    };
    let is_image = file.as_ref().map_or(Ok(false), is_squashfs).context(|| target.display().to_string())?;
    let no_pull = || {
        let e = err!("{}: exists, and is not an image file that rt pull made", target.display());
        if is_image { e.hint("use --force to replace it") } else { e }
    };
    let file = file.filter(|_| is_image).ok_or_else(no_pull)?;
    PulledImage::check_ours(&file, target)?;
    let shown = || target.display().to_string();
    let text = match config_in(FilePart::new(file, 0, None).context(shown)?) {
        Err(e) if matches!(e.kind(), squashfs::Kind::Io(_)) => {
            return Err(Error::from_parts(format!("{}: {e}", shown()), Some(e.errno())));
        }
        // A damaged squashfs has no config that could be trusted.
        Err(_) => None,
        Ok(text) => text,
    };
    text.and_then(|text| PulledImage::of_config(&text)).ok_or_else(no_pull)
}

/// The config of the bundle in an image file; none where it has none.
fn config_in(file: FilePart) -> squashfs::Result<Option<Vec<u8>>> {
    file_in(&Filesystem::open(file, 0)?, &[CONFIG_DIR, CONFIG])
}

/// What is in the file at `path` in an image; none where there is none.
fn file_in(image: &Filesystem<FilePart>, path: &[&str]) -> squashfs::Result<Option<Vec<u8>>> {
    let mut at = image.inode(image.root())?;
    for name in path {
        let Body::Directory(directory) = &at.body else { return Ok(None) };
        let Some(found) = image.find(directory, name.as_bytes())? else { return Ok(None) };
        at = image.inode(found)?;
    }
    image.contents(&at, CONFIG_LIMIT)
}

/// Gives what was made in the draft its name, in the place of `old`. Where another image has come there meanwhile, as of a step that saves
/// under the same name, the later one stays; what was there may have been removed, too.
fn put_in_place(
    draft: &Draft,
    target: &Path,
    replace: bool,
    form: Form,
    mut old: Option<OwnedFd>,
) -> Result<()> {
    const TRIES: u32 = 19;
    let mut failed = Ok(());
    for _ in 0..TRIES {
        match old.map_or_else(|| draft.publish(FILE), |old| draft.replace(FILE, &old)) {
            // ENOENT: what was there, or the draft.
            Err(e) if replace && (e.is(libc::EEXIST) || e.is(libc::ENOENT)) => failed = Err(e),
            put => return put,
        }
        old = replaceable(target, replace, form)?;
    }
    failed.context(|| format!("{}: others write there, too", target.display()))
}

/// What is at `target`, which is to be replaced; none where nothing is.
///
/// # Errors
/// The file is not to be replaced, or is no image file.
pub(crate) fn replaceable(target: &Path, replace: bool, form: Form) -> Result<Option<OwnedFd>> {
    let (parent, name) = draft::place(target)?;
    let Some(mode) = disk::mode_at(parent.as_fd(), &name)? else { return Ok(None) };
    if !replace {
        // Nothing else would remove what a killed command has left here, as long as the file is here.
        draft::sweep_beside(parent.as_fd(), &name);
        return Err(err!("{}: exists", target.display()).hint("use --force to replace it"));
    }
    if form.whatever_name && mode & 0o170000 == 0o120000 {
        // The link itself, as rename(2) does: what it leads to stays.
        return Ok(Some(disk::open_any(parent.as_fd(), &name)?.into()));
    }
    let file = disk::open_if_file(parent.as_fd(), &name)?;
    let fits =
        |file: &File| Ok::<_, Error>(is_squashfs(file)? || form.whatever_name && disk::length(file)? == 0);
    let image = |file: File| Ok::<_, Error>(fits(&file)?.then_some(file));
    match file.map(image).transpose().context(|| target.display().to_string())?.flatten() {
        Some(file) => Ok(Some(file.into())),
        None if form.whatever_name => Err(err!("{}: not an image file, and stays", target.display())),
        None => Err(err!("{}: exists, and is not an image file; only these are replaced", target.display())),
    }
}

/// Adds what the config mounts on and the image lacks, since nothing can be made in the file later, and the configs.
fn add_files(image: &ImageTarget, config: &Value, image_config: Option<&[u8]>) -> Result<()> {
    for (path, what) in profile::mount_points(config) {
        match what {
            MountPoint::Directory => drop(image.directory(path)?),
            MountPoint::File => image.file_mount_point(path)?,
        }
    }
    if let Some(dir) = image.existing_directory(profile::APT_DIR) {
        image.add_file(dir, profile::APT_CONFIG, profile::APT_SAYS)?;
    }
    let Some(dir) = image.directory(CONFIG_DIR)? else {
        return Err(err!("the image has a file /{CONFIG_DIR}, where an image file has its config"));
    };
    let text = serde_json::to_vec_pretty(config).map_err(|e| err!("config.json: {e}"))?;
    image.add_file(dir, CONFIG, &text)?;
    image_config.map_or(Ok(()), |text| image.add_file(dir, IMAGE_CONFIG, text))
}
