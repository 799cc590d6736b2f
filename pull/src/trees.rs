//! A bundle's root of layers that lie on the disk as trees.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use super::each::each;
use super::limits::Limits;
use super::save::{self, LayerTree, Sink, Watch};
use oci_content::meter::Meter;
use oci_layer::merge::LayerNumber;
use oci_layer::tar::Header;
use oci_layer::unpack::{DirectoryTarget, TreeWriter, UnpackContext};
use rt_sys::err;
use rt_sys::error::{Context, Result};

/// Merges `trees`, the lowest first, several at a time. Where nothing will write into the root (`is_read_only`), files of those with
/// `true`, into which nothing writes either, get further names in place of copies. False where a hard link leads to what a higher
/// layer hides: only an archive can be read again for it.
pub(super) fn merge(
    trees: &[(LayerTree, bool)],
    context: &UnpackContext<DirectoryTarget>,
    limits: Limits,
    is_read_only: bool,
) -> Result<bool> {
    let is_whole = AtomicBool::new(true);
    // From the top: what a higher layer hides is not made first.
    let numbered: Vec<_> = trees.iter().enumerate().rev().collect();
    each(&numbered, limits.layers, context.interrupt, |(at, (tree, shares))| {
        let number = (at + 1) as LayerNumber;
        let meter = Meter::default();
        let watch = Watch { interrupt: context.interrupt, meter: &meter };
        let put = |batches: &mut dyn Iterator<Item = Vec<Item>>| -> Result<()> {
            let mut writer = TreeWriter::new(context, number, is_read_only && *shares);
            for item in batches.flatten() {
                if !item.put(&mut writer)? {
                    is_whole.store(false, Ordering::Relaxed);
                }
            }
            Ok(())
        };
        read_ahead(tree, watch, &put).context(|| format!("layer {number}"))
    })?;
    Ok(is_whole.into_inner())
}

/// How many entries are read before they are put: as many files are open.
const BATCH: usize = 32;

/// Reads a tree, and has `put` put its entries meanwhile, where there are many.
fn read_ahead(
    tree: &LayerTree,
    watch: Watch,
    put: &(impl Fn(&mut dyn Iterator<Item = Vec<Item>>) -> Result<()> + Sync),
) -> Result<()> {
    std::thread::scope(|scope| {
        let mut ahead = Ahead { scope, put, batch: Vec::new(), running: None };
        let read = save::read_tree(tree, &mut ahead, watch);
        let Ahead { batch, running, .. } = ahead;
        let Some((to, thread)) = running else {
            read?;
            return put(&mut std::iter::once(batch));
        };
        // The thread takes nothing more where it has failed.
        let _ = to.send(batch);
        drop(to);
        let put = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        put.and(read)
    })
}

/// A thread that takes batches.
type Running<'scope> = (SyncSender<Vec<Item>>, ScopedJoinHandle<'scope, Result<()>>);

/// What puts batches of entries into a directory, in a thread of its own once there is a whole one.
struct Ahead<'scope, 'env, P> {
    scope: &'scope Scope<'scope, 'env>,
    put: &'env P,
    batch: Vec<Item>,
    running: Option<Running<'scope>>,
}

impl<P: Fn(&mut dyn Iterator<Item = Vec<Item>>) -> Result<()> + Sync> Ahead<'_, '_, P> {
    fn push(&mut self, item: Item) -> Result<()> {
        self.batch.push(item);
        if self.batch.len() < BATCH {
            return Ok(());
        }
        if self.running.is_none() {
            let (to, from) = sync_channel(1);
            let put = self.put;
            let thread = std::thread::Builder::new().name("put".into());
            let thread = thread.spawn_scoped(self.scope, move || put(&mut from.into_iter()));
            self.running = Some((to, thread.context(|| "start a thread")?));
        }
        let batch = std::mem::take(&mut self.batch);
        let Some((to, _)) = &self.running else { return Ok(()) };
        // What the thread says of it is heard at the end.
        to.send(batch).map_err(|_| err!("what was read is not put any more"))
    }
}

/// An entry of a tree.
enum Item {
    Entry(Header),
    File(Header, File, bool),
    Name(Header, File),
}

impl Item {
    /// Puts it where `writer` writes. False where that takes more than it knows.
    fn put(self, writer: &mut TreeWriter) -> Result<bool> {
        let (Item::Entry(entry) | Item::File(entry, ..) | Item::Name(entry, _)) = &self;
        let put = match &self {
            Item::Entry(_) => writer.entry(entry).map(|()| true),
            Item::File(_, file, is_plain) => writer.file(entry, file, *is_plain).map(|()| true),
            Item::Name(_, file) => writer.name(entry, file),
        };
        put.context(|| String::from_utf8_lossy(&entry.path).into_owned())
    }
}

impl<P: Fn(&mut dyn Iterator<Item = Vec<Item>>) -> Result<()> + Sync> Sink for Ahead<'_, '_, P> {
    fn entry(&mut self, entry: &Header) -> Result<()> {
        self.push(Item::Entry(entry.clone()))
    }

    fn file(&mut self, entry: Header, file: File, is_plain: bool) -> Result<()> {
        self.push(Item::File(entry, file, is_plain))
    }

    fn name(&mut self, entry: Header, file: File) -> Result<()> {
        self.push(Item::Name(entry, file))
    }
}
