//! The layers of an image of the store that a build has made, for a push: a registry gets them one by one, and none that it has.
//!
//! Each is a tree, of which the archive is written once and then kept beside it. In the place of a base that was pulled come
//! the layers that its registry has, where the cache has them all.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::place::{Archive, Facts, Packed, Part, Place};
use super::stage::{Base, Chain};
use crate::blob::Blob;
use crate::bundle::{self, PulledImage};
use crate::cache::Cache;
use crate::manifest::{self, Document, MANIFEST_LIMIT};
use crate::save::{self, Compression, LayerTree, Times, TreeKind, Watch, WrittenLayer};
use oci_content::digest::{Digest, Hasher};
use oci_content::interrupt::Interrupt;
use oci_layer::decode;
use rt_sys::error::{Kind, Result};
use rt_sys::{disk, look};
use rustix::fd::AsFd;

/// Images that were built on each other are taken apart so often.
const MOST_BASES: usize = 16;
/// Docker refuses an image with more layers.
const MOST_LAYERS: usize = 125;
/// What stands before the digest of a blob of the cache in the name of the note that says what it is when it is inflated.
const INFLATED: &str = "root-inflated-";
/// What the history says of a base whose layers were merged.
const MERGED: &str = "rt build";

/// The entry of a history for the layers of a base as one.
pub(super) fn merged() -> Value {
    json!({ "created_by": MERGED, "comment": "the layers before are merged into this one" })
}

/// What is noted of an image with the layers of `chain`, whose names are `ids`. None where a tree may become another.
pub(super) fn parts(chain: &Chain, ids: &[&str], times: Times) -> Option<Vec<Part>> {
    let mut base = match &chain.base {
        Base::Scratch => None,
        Base::Bundle { is_ours: false, .. } => return None,
        Base::Bundle { path, .. } => Some(path.to_str()?.to_owned()),
    };
    Some(ids.iter().map(|id| Part { id: (*id).to_owned(), times, base: base.take() }).collect())
}

/// An image in the form of layers.
pub(crate) struct KeptImage {
    place: Place,
    layers: Vec<KeptLayer>,
    /// Its history, one entry that is not empty for each layer; none where the base's was not so.
    pub history: Option<Vec<Value>>,
    /// The name of the image whose layers are the lowest ones.
    pub pulled_base: Option<String>,
}

enum KeptLayer {
    /// As a registry has it, in the cache.
    Stored {
        digest: Digest,
        size: u64,
        compression: Compression,
        file: Arc<File>,
    },
    Tree {
        id: String,
        facts: Facts,
        tree: LayerTree,
    },
}

/// The layers of an image and its history, and the name of the image whose layers are the lowest.
struct Apart {
    layers: Vec<KeptLayer>,
    history: Vec<Value>,
    pulled_base: Option<String>,
}

impl KeptImage {
    /// The layers of the image in `bundle`. None where no build has made it, or not all of them are there any more.
    pub(crate) fn open(bundle: &Path, cache: &Cache) -> Result<Option<KeptImage>> {
        let bundle = rt_sys::fd::absolute(bundle)?;
        if !rt_image_store::is_stored(&bundle) {
            return Ok(None);
        }
        let found = Place::open_kept().and_then(|place| {
            let Some(place) = place else { return Ok(None) };
            Ok(apart(&place, &bundle, cache, 0)?.map(|apart| (place, apart)))
        });
        let (place, Apart { layers, history, pulled_base }) = match found {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            // It is an image all the same, and is sent as one layer.
            Err(e) => {
                log::debug!("no layers of {}: {e}", bundle.display());
                return Ok(None);
            }
        };
        let count = history.iter().filter(|entry| entry["empty_layer"] != json!(true)).count();
        let history = (count == layers.len()).then_some(history);
        Ok(Some(KeptImage { place, layers, history, pulled_base }))
    }

    /// How many layers it has.
    pub(crate) fn len(&self) -> usize {
        self.layers.len()
    }

    /// Layer `at` as a blob in a file: as it was kept, or written now and kept then.
    pub(crate) fn blob(&self, at: usize, watch: Watch) -> Result<(WrittenLayer, Arc<File>)> {
        let (id, facts, tree) = match &self.layers[at] {
            KeptLayer::Stored { digest, size, compression, file } => {
                let Archive { diff_id, length, .. } =
                    self.inflated(&Blob::new(digest.clone(), *size), *compression, file, watch)?;
                let (compression, digest) = (*compression, digest.clone());
                return Ok((
                    WrittenLayer { compression, digest, diff_id, size: *size, plain: length },
                    file.clone(),
                ));
            }
            KeptLayer::Tree { id, facts, tree } => (id, facts, tree),
        };
        let packed = facts.packed.as_ref().filter(|packed| packed.archive.times == tree.times);
        if let Some(packed) = packed
            && let Some(file) = self.place.blob(id, &packed.digest, packed.size)?
        {
            watch.meter.add(packed.archive.length);
            return Ok((written(packed), Arc::new(file)));
        }
        let new = self.place.new_blob(id)?;
        let layer = save::write_layer(tree, &new.file, Compression::Gzip, watch)?;
        let file = Arc::new(new.keep(&layer.digest)?);
        let archive = Archive { times: tree.times, diff_id: layer.diff_id.clone(), length: layer.plain };
        let packed = Packed { archive, digest: layer.digest.clone(), size: layer.size };
        // A build may have noted something of it since.
        let facts = self.place.facts(id)?.unwrap_or_else(|| facts.clone());
        self.place.note(id, &Facts { packed: Some(packed), ..facts })?;
        Ok((layer, file))
    }

    /// What a blob of the cache is when it is inflated, as nobody but the config of its image has said: who pushes it vouches for it,
    /// and other clients refuse what is another. It is noted.
    fn inflated(
        &self,
        blob: &Arc<Blob>,
        compression: Compression,
        file: &Arc<File>,
        watch: Watch,
    ) -> Result<Archive> {
        let times = Times::Own;
        if compression == Compression::None {
            return Ok(Archive { times, diff_id: blob.digest.clone(), length: blob.size });
        }
        let id = format!("{INFLATED}{}", blob.digest.hex());
        if let Some(Facts { archive: Some(archive), .. }) = self.place.facts(&id)? {
            return Ok(archive);
        }
        blob.available(file, 0, blob.size);
        let hashed = hash(BufReader::new(blob.reader()), decode::bomb_limit(blob.size), watch);
        let (diff_id, length) = hashed.map_err(|e| match e.kind() {
            Kind::Interrupted => e,
            // The blob may be so, which its digest tells.
            _ => e.of_kind(Kind::Damaged).context(format!("inflate blob {}", blob.digest)),
        })?;
        let archive = Archive { times, diff_id, length };
        self.place.note(&id, &Facts { archive: Some(archive.clone()), ..Facts::default() })?;
        Ok(archive)
    }

    /// Removes what was kept, or is in the cache, and is not as its digest says: a power cut may have emptied it. True where there
    /// was such.
    pub(crate) fn remove_damaged(&self, cache: &Cache, interrupt: &Interrupt) -> Result<bool> {
        let is_damaged = |digest: &Digest, size, file: &Arc<File>| match Blob::new(digest.clone(), size)
            .verify(file, 0, interrupt)
        {
            Err(e) if e.kind() == Kind::Damaged => Ok(true),
            verified => verified.map(|()| false),
        };
        let mut removed = false;
        for layer in &self.layers {
            match layer {
                KeptLayer::Stored { digest, size, file, .. } => {
                    removed |= is_damaged(digest, *size, file)? && cache.remove(digest)?.is_some();
                }
                KeptLayer::Tree { id, .. } => {
                    let facts = self.place.facts(id)?;
                    let Some(packed) = facts.and_then(|facts| facts.packed) else { continue };
                    let Some(file) = self.place.blob(id, &packed.digest, packed.size)? else { continue };
                    if is_damaged(&packed.digest, packed.size, &Arc::new(file))? {
                        self.place.remove_blob(id, &packed.digest)?;
                        removed = true;
                    }
                }
            }
        }
        Ok(removed)
    }
}

/// The digest and the length of what `compressed` is when it is inflated, at most `most` bytes.
fn hash(compressed: impl BufRead + Send, most: u64, watch: Watch) -> Result<(Digest, u64)> {
    let mut plain = decode::plain(compressed)?;
    let (mut hasher, mut length) = (Hasher::sha256(), 0);
    let mut buffer = vec![0; 256 << 10];
    loop {
        watch.interrupt.check()?;
        let n = plain.read(&mut buffer)?;
        if n == 0 {
            return Ok((hasher.finish(), length));
        }
        hasher.update(&buffer[..n]);
        length += n as u64;
        watch.meter.add(n as u64);
        if length > most {
            return Err(decode::bomb().into());
        }
    }
}

fn written(packed: &Packed) -> WrittenLayer {
    WrittenLayer {
        compression: Compression::Gzip,
        digest: packed.digest.clone(),
        diff_id: packed.archive.diff_id.clone(),
        size: packed.size,
        plain: packed.archive.length,
    }
}

/// The blob in the cache, where nobody else can have changed it.
fn own_blob(cache: &Cache, digest: &Digest, size: u64) -> Option<Arc<File>> {
    cache.find(digest, Some(size)).filter(|file| disk::only_ours(&**file).unwrap_or(false))
}

/// Takes the image in `bundle` apart, on whose layers `above` images were built.
fn apart(place: &Place, bundle: &Path, cache: &Cache, above: usize) -> Result<Option<Apart>> {
    // What a container has written into its root is in no layer, and a bundle that others can change is not what its name says:
    // they could call any bundle as one that the caller has built, and have him send the layers of that.
    if above == MOST_BASES
        || !bundle::is_read_only(bundle)?
        || !super::is_ours(bundle, &super::root_of(bundle)?)?
    {
        return Ok(None);
    }
    let name = bundle.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(parts) = place.image(name)? else {
        return if above == 0 { Ok(None) } else { pulled(bundle, cache) };
    };
    let mut history = history_of(bundle)?;
    let mut layers = Vec::new();
    let mut pulled_base = None;
    for part in parts {
        let Some(facts) = place.facts(&part.id)? else { return Ok(None) };
        let (kind, root) = match &part.base {
            None => (TreeKind::Upper, place.upper(&part.id)?),
            Some(base) => {
                let base = PathBuf::from(base);
                if !look::exists(&base)? {
                    return Ok(None);
                }
                if let Some(below) =
                    apart(place, &base, cache, above + 1)?.filter(|below| below.layers.len() < MOST_LAYERS)
                {
                    (layers, pulled_base) = (below.layers, below.pulled_base);
                    let own = history.iter().rposition(|entry| entry["created_by"] == MERGED);
                    history =
                        [&below.history[..], &history[own.map_or(history.len(), |at| at + 1)..]].concat();
                    continue;
                }
                (TreeKind::Root, super::root_of(&base)?)
            }
        };
        layers.push(KeptLayer::Tree {
            id: part.id,
            facts,
            tree: LayerTree { kind, times: part.times, root },
        });
    }
    Ok(Some(Apart { layers, history, pulled_base }))
}

/// The entries of the history in the config of the image in `bundle`.
fn history_of(bundle: &Path) -> Result<Vec<Value>> {
    let (dir, word) = bundle::look(bundle)?;
    let mut config = bundle::image_config(dir.as_fd(), word)?;
    match config.as_mut().map(|config| config["history"].take()) {
        Some(Value::Array(entries)) => Ok(entries),
        _ => Ok(Vec::new()),
    }
}

/// The layers of an image that was pulled, where the cache has them all.
fn pulled(bundle: &Path, cache: &Cache) -> Result<Option<Apart>> {
    // Others could have written anything into what they can change.
    let Ok(image) = PulledImage::of_bundle(bundle) else { return Ok(None) };
    let manifest = image.digest.parse().ok().and_then(|digest| cache.read(&digest, MANIFEST_LIMIT));
    let Some(Document::Manifest(manifest)) = manifest.and_then(|text| manifest::parse(&text).ok()) else {
        return Ok(None);
    };
    let stored = manifest.layers.into_iter().map(|layer| {
        let compression = Compression::of_media_type(&layer.media_type)?;
        let file = own_blob(cache, &layer.digest, layer.size)?;
        Some(KeptLayer::Stored { digest: layer.digest, size: layer.size, compression, file })
    });
    let Some(layers) = stored.collect() else { return Ok(None) };
    let pulled_base = save::pulled_from(bundle)?;
    Ok(Some(Apart { layers, history: history_of(bundle)?, pulled_base }))
}
