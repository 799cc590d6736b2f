//! The cache in a registry: what instructions gave on one machine is used on another one.
//!
//! Such a cache is an image of a type of its own: its config lists which key gave which layer, and its layers are archives of them. A
//! key names the layer before by the name that this has in the cache, so a build follows its own layers and those of each cache
//! side by side. What comes from a cache is kept under a key of its own, with the cache's name in it: whoever can write
//! there decides what builds with `--cache-from` are made of, and no others.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::copy::Destination;
use super::place::Layer;
use super::stage::Chain;
use super::{Builder, lock};
use crate::save::{self, Compression, LayerTree, MANIFEST_TYPE, Times, TreeKind, Watch};
use oci_content::digest::{Digest, Hasher};
use oci_content::interrupt::Interrupt;
use oci_content::meter::Meter;
use oci_layer::decode;
use oci_registry::reference::Reference;
use oci_registry::registries_conf::Registries;
use oci_registry::registry::{ConnectOptions, LocalBlob, Registry};
use rt_sys::error::{Context, Error, Result};
use rt_sys::{bail, disk, err};

/// The type of the list.
const CONFIG_TYPE: &str = "application/vnd.rt.build.cache.v1+json";
/// The type of a layer.
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
/// No list is longer.
const MOST_LISTED: u64 = 4 << 20;

/// What one instruction gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The key, by the names of layers in this list.
    key: String,
    /// The layer's name.
    id: String,
    /// When it was made, in RFC 3339.
    created: String,
    /// The archive of it.
    digest: Digest,
    /// Its bytes.
    size: u64,
}

/// A cache that a build takes layers from.
pub(super) struct RegistryCache {
    reference: Reference,
    registry: Registry,
    records: HashMap<String, Record>,
}

/// The key of what an instruction gives on the layers that `before` names.
pub(super) fn key_of(before: &str, what: &Value) -> String {
    key_without_chain(&json!([before, what]))
}

/// Opens the caches that `--cache-from` names. One that cannot be read is no reason not to build.
pub(super) fn open(
    from: &[Reference],
    connect: &ConnectOptions,
    interrupt: &Interrupt,
) -> Result<Vec<RegistryCache>> {
    let mut caches = Vec::new();
    for reference in from {
        match RegistryCache::open(reference, connect, interrupt) {
            Ok(cache) => caches.push(cache),
            Err(e) => {
                interrupt.check()?;
                log::warn!("--cache-from {reference}: nothing is taken from it: {e}");
            }
        }
    }
    Ok(caches)
}

impl RegistryCache {
    fn open(reference: &Reference, connect: &ConnectOptions, interrupt: &Interrupt) -> Result<RegistryCache> {
        let registry =
            Registry::new(reference, &Registries::from_environment()?, connect.clone(), interrupt)?;
        let (_, manifest) = registry.manifest(reference.manifest_name())?;
        let manifest: Value = serde_json::from_slice(&manifest).map_err(|e| err!("its manifest: {e}"))?;
        let config = &manifest["config"];
        if config["mediaType"] != CONFIG_TYPE {
            bail!("an image, and no cache of builds");
        }
        let digest: Digest = config["digest"].as_str().unwrap_or_default().parse()?;
        let size = config["size"].as_u64().filter(|size| *size <= MOST_LISTED);
        let mut text = Vec::new();
        registry.blob(&digest, size.ok_or_else(|| err!("its list is too long"))?, 0, &mut |bytes| {
            text.extend_from_slice(bytes);
            Ok(())
        })?;
        digest.check(&text)?;
        let records: Vec<Record> = serde_json::from_slice(&text).map_err(|e| err!("its list: {e}"))?;
        let records = records.into_iter().map(|record| (record.key.clone(), record)).collect();
        Ok(RegistryCache { reference: reference.clone(), registry, records })
    }

    /// The name that the layer of `what` on the layer `before` has in the cache, and the record of it.
    fn find(&self, before: Option<&str>, what: &Value, is_on_chain: bool) -> Option<&Record> {
        let key = match is_on_chain {
            true => key_of(before?, what),
            false => key_without_chain(what),
        };
        self.records.get(&key)
    }

    /// The layer of a record, fetched if it is not there yet.
    fn layer(&self, builder: &Builder, record: &Record) -> Result<Layer> {
        let name = self.reference.to_string();
        let key = key_without_chain(&json!(["from", name, record.id, record.digest]));
        if let Some(layer) = builder.place.find(&key)? {
            return Ok(layer);
        }
        let file = session_file(builder)?;
        let mut hasher = Hasher::sha256();
        self.registry.blob(&record.digest, record.size, 0, &mut |bytes| {
            hasher.update(bytes);
            disk::Named(&file).write_all(bytes).context(|| "write a layer")
        })?;
        let got = hasher.finish();
        if got != record.digest {
            return Err(record.digest.mismatch(&got));
        }
        let draft = builder.session.draft(0o755)?;
        unpack(file, record.size, &draft, builder.interrupt)?;
        rt_sys::tree::remove_path(&draft.join("work"))?;
        builder.place.keep(&draft, &key, record.created.clone())
    }
}

/// The key of what does not depend on the layers before.
pub(super) fn key_without_chain(what: &Value) -> String {
    Digest::of(what.to_string().as_bytes()).hex().to_owned()
}

/// Makes an upper layer of its archive.
fn unpack(mut file: File, size: u64, draft: &Path, interrupt: &Interrupt) -> Result<()> {
    std::io::Seek::rewind(&mut file).context(|| "go back to the beginning")?;
    let upper = disk::open_root(&draft.join("upper"))?;
    let plain = decode::plain(BufReader::with_capacity(128 << 10, file)).context(|| "inflate")?;
    let plain = std::io::Read::take(plain, decode::bomb_limit(size));
    let to = Destination { root: upper.as_fd(), path: "/", mode: None, owner: None };
    to.unpack_layer(BufReader::with_capacity(128 << 10, plain), interrupt)
}

/// Looks for the layer of `what` on the layers of `chain` in the caches, and follows them. Returns the first that has it.
pub(super) fn find(
    builder: &Builder,
    chain: &mut Chain,
    what: &Value,
    is_on_chain: bool,
    is_needed: bool,
) -> Result<Option<Layer>> {
    let mut found = None;
    for (cache, before) in builder.caches.iter().zip(&mut chain.in_caches) {
        let record = cache.find(before.as_deref(), what, is_on_chain);
        *before = record.map(|record| format!("layer {}", record.id));
        if let (Some(record), true) = (record, is_needed && found.is_none()) {
            match cache.layer(builder, record) {
                Ok(layer) => found = Some(layer),
                Err(e) => {
                    builder.interrupt.check()?;
                    log::warn!("--cache-from {}: {e}", cache.reference);
                }
            }
        }
    }
    Ok(found)
}

/// Writes all layers that the build has used to the cache `target`.
pub(super) fn write(builder: &Builder, target: &Reference, connect: &ConnectOptions) -> Result<()> {
    let interrupt = builder.interrupt;
    let before = RegistryCache::open(target, connect, interrupt).ok();
    interrupt.check()?;
    let there: HashMap<&str, &Record> =
        before.iter().flat_map(|cache| cache.records.values()).map(|record| (&*record.id, record)).collect();
    let registry =
        Registry::new(target, &Registries::from_environment()?, connect.clone(), interrupt)?.for_push(None);
    let meter = Meter::default();
    let mut records: Vec<Record> = Vec::new();
    for (key, layer) in lock(&builder.layers).iter() {
        if records.iter().any(|record| record.key == *key) {
            continue;
        }
        let (digest, size) = match there.get(&*layer.id) {
            Some(record) => (record.digest.clone(), record.size),
            None => send(builder, &registry, layer, &meter)?,
        };
        records.push(Record {
            key: key.clone(),
            id: layer.id.clone(),
            created: layer.facts.created.clone(),
            digest,
            size,
        });
    }
    records.sort_by(|a, b| a.key.cmp(&b.key));
    let list = serde_json::to_vec(&records).map_err(|e| err!("{e}"))?;
    let mut layers: Vec<Value> = Vec::new();
    for record in &records {
        let layer = json!({ "mediaType": LAYER_TYPE, "digest": record.digest, "size": record.size });
        if !layers.contains(&layer) {
            layers.push(layer);
        }
    }
    let mut file = session_file(builder)?;
    file.write_all(&list).context(|| "write the list")?;
    let digest = Digest::of(&list);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": { "mediaType": CONFIG_TYPE, "digest": digest, "size": list.len() },
        "layers": layers,
    });
    upload(
        &registry,
        LocalBlob { digest, size: list.len() as u64, file: Arc::new(file), offset: 0 },
        &meter,
    )?;
    registry.put_manifest(MANIFEST_TYPE, manifest.to_string().as_bytes())
}

fn session_file(builder: &Builder) -> Result<File> {
    let root = disk::open_root(&builder.session.path)?;
    disk::create_own_file(root.as_fd(), rt_sys::unique::name().as_bytes())
}

fn send(builder: &Builder, registry: &Registry, layer: &Layer, meter: &Meter) -> Result<(Digest, u64)> {
    let tree = LayerTree { kind: TreeKind::Upper, times: Times::Own, root: builder.place.upper(&layer.id)? };
    let file = session_file(builder)?;
    let watch = Watch { interrupt: builder.interrupt, meter: &Meter::default() };
    let written = save::write_layer(&tree, &file, Compression::Zstd, watch)?;
    let (digest, size) = (written.digest, written.size);
    upload(registry, LocalBlob { digest: digest.clone(), size, file: Arc::new(file), offset: 0 }, meter)?;
    Ok((digest, size))
}

fn upload(registry: &Registry, blob: LocalBlob, meter: &Meter) -> Result<(), Error> {
    registry.upload(&blob, None, meter).map(drop)
}
