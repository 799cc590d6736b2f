//! Hard links that could not be made while layers were applied.

use std::collections::HashMap;
use std::io::Read;

use super::{Content, LayerTarget, UnpackContext, Unpacker, add, with_entries};
use crate::decode::{Expected, PipeReader};
use crate::merge::{DeferredLink, LayerNumber, Outcome, clean};
use crate::tar::{EntryKind, Header, Reader};
use rt_sys::bail;
use rt_sys::error::Result;

/// Hard links to hard links are followed that far.
const MAX_LINKS_OF_LINKS: usize = 8;

/// Hard links to files that a higher layer hides, or that lie in lower layers: linked where the
/// file is in the tree, else read once more from the layers. `open` opens layer `n` again.
pub fn finish_links<'a, T: LayerTarget, R: Read + Send>(
    context: &UnpackContext<T>,
    deferred: Vec<DeferredLink>,
    open: impl Fn(LayerNumber) -> (R, Expected<'a>),
) -> Result<()> {
    let mut waiting = Vec::new();
    for link in deferred {
        if let Outcome::Done(false) = context.tree.link_deferred(&link)? {
            waiting.push(link);
        }
    }
    let Some(mut layer) = waiting.iter().map(|link| link.layer).max() else { return Ok(()) };
    // From the top: each layer gives what the links of its own and of higher layers still miss.
    while layer >= 1 && !waiting.is_empty() {
        let (mut now, later): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|link| link.layer >= layer);
        // A link to a link says in one pass what the next has to look for.
        for _ in 0..MAX_LINKS_OF_LINKS {
            if now.is_empty() || !find_in_layer(context, layer, &mut now, open(layer))? {
                break;
            }
        }
        waiting = Vec::new();
        for link in now.into_iter().chain(later) {
            if let Outcome::Done(false) = context.tree.link_deferred(&link)? {
                waiting.push(link);
            }
        }
        layer -= 1;
    }
    match waiting.first() {
        None => Ok(()),
        Some(link) => bail!(
            "{}: a hard link to {}, which no layer has",
            String::from_utf8_lossy(&link.path),
            String::from_utf8_lossy(&link.target)
        ),
    }
}

/// Takes from `links` those whose target this layer has; true if it found links to links.
fn find_in_layer<T: LayerTarget>(
    context: &UnpackContext<T>,
    layer: LayerNumber,
    links: &mut Vec<DeferredLink>,
    source: (impl Read + Send, Expected),
) -> Result<bool> {
    let mut indirect = false;
    let mut wanted: HashMap<Vec<u8>, Vec<DeferredLink>> = HashMap::new();
    for link in links.drain(..) {
        wanted.entry(link.target.clone()).or_default().push(link);
    }
    let unpacker = Unpacker { context, writer: context.tree.writer(layer), since_check: 0 };
    with_entries(context, source, u64::MAX, |reader| {
        while let Some(entry) = reader.next()? {
            context.interrupt.check()?;
            let path = clean(&entry.path)?.into_owned();
            let Some(links) = wanted.remove(&path) else { continue };
            match entry.kind {
                EntryKind::File | EntryKind::Symlink => unpacker.recover(reader, &entry, links)?,
                EntryKind::Hardlink => {
                    indirect = true;
                    let next = clean(&entry.link)?.into_owned();
                    let moved = links.into_iter().map(|link| DeferredLink {
                        target: next.clone(),
                        target_layer: layer,
                        ..link
                    });
                    wanted.entry(next.clone()).or_default().extend(moved);
                }
                EntryKind::Directory => {
                    bail!("a hard link to the directory {}", String::from_utf8_lossy(&path))
                }
                _ => {}
            }
        }
        Ok(reader.drain()?)
    })?;
    links.extend(wanted.into_values().flatten());
    Ok(indirect)
}

impl<T: LayerTarget> Unpacker<'_, T> {
    /// Writes the entry at the first link, and links the others to that.
    fn recover(
        &self,
        reader: &mut Reader<PipeReader>,
        entry: &Header,
        links: Vec<DeferredLink>,
    ) -> Result<()> {
        let tree = self.context.tree;
        let mut first: Option<DeferredLink> = None;
        for link in links {
            if let Some(first) = &first {
                let again = DeferredLink { target: first.path.clone(), ..link };
                // The first may belong to a higher layer than this one.
                tree.link_deferred_to(&again)?;
                continue;
            }
            let target = &tree.target;
            let made = tree.make_deferred(&link, |dir, name| {
                if entry.kind == EntryKind::Symlink {
                    return target.special(dir, name, entry);
                }
                let file = target.create(dir, name, entry)?;
                target.write(file, entry, Content::new(reader, entry, self.context.interrupt))?;
                add(&self.context.counts.files, 1);
                add(&self.context.counts.bytes, entry.stored());
                Ok(())
            })?;
            if let Outcome::Done(()) = made {
                first = Some(link);
            }
        }
        Ok(())
    }
}
