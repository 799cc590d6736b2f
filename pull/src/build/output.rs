//! A stage as an image.
//!
//! Its layers are the root of its base, as one layer, and what each instruction has changed. As tar archives they are
//! written only where an image is made that was not made before: what they are is noted with each.

use std::os::fd::{AsFd, OwnedFd};

use serde_json::{Value, json};

use super::Builder;
use super::owners;
use super::place::{Archive, Facts};
use super::stage::{Base, Stage};
use crate::progress::Style;
use crate::save;
use crate::save::{
    Built, Compression, LayerTree, SaveTarget, SourceBundle, Times, TreeKind, Watch, WrittenLayer,
};
use oci_content::digest::Digest;
use oci_content::meter::Meter;
use rt_sys::disk;
use rt_sys::error::Result;

/// Makes something of the image in a layout at a path, of this digest. True where it needs none, since it was made before.
pub(crate) type Import<'a> =
    dyn Fn(&Digest, Option<&str>, &oci_content::interrupt::Interrupt) -> Result<bool> + 'a;

/// What is made of the result.
pub(crate) enum Output<'a> {
    /// What a pull makes of a layout: an image of the store, a bundle, an image file.
    Import(Box<Import<'a>>),
    /// A layout or an archive.
    Saved(SaveTarget),
}

/// Fields of a base's config that are about the base alone.
const STALE: [&str; 7] =
    ["id", "parent", "container", "container_config", "throwaway", "created", "docker_version"];

struct Part {
    /// Its name among the layers.
    id: String,
    facts: Facts,
    tree: LayerTree,
}

/// Makes `outputs` of `stage`, and returns the digest of its manifest.
pub(super) fn write(builder: &Builder, stage: &Stage, outputs: &[Output]) -> Result<Digest> {
    let mut parts = parts(builder, stage)?;
    let known: Option<Vec<WrittenLayer>> =
        parts.iter().map(|part| written(&part.facts, builder.times)).collect();
    if let Some(layers) = known {
        let digest =
            Digest::of(&bundle(builder, &parts, stage, Compression::None)?.documents(&layers)?.manifest);
        let mut all = true;
        for output in outputs {
            all &= match output {
                Output::Import(import) => import(&digest, None, builder.interrupt)?,
                Output::Saved(_) => false,
            };
        }
        if all {
            return Ok(digest);
        }
    }
    let layout = builder.session.path.join("image");
    let target = SaveTarget::layout(layout.clone());
    let (interrupt, meter) = (builder.interrupt, Meter::default());
    let watch = Watch { interrupt, meter: &meter };
    let style = if builder.options.quiet { Style::Quiet } else { Style::Lines };
    let made = bundle(builder, &parts, stage, Compression::None)?;
    let saved = save::write_bundle(&made, &target, false, style, watch)?;
    for (part, layer) in parts.iter_mut().zip(&saved.written) {
        part.facts.archive =
            Some(Archive { times: builder.times, diff_id: layer.diff_id.clone(), length: layer.plain });
        builder.place.note(&part.id, &part.facts)?;
    }
    let name = format!("oci:{}:latest", layout.display());
    for output in outputs {
        match output {
            Output::Import(import) => drop(import(&saved.digest, Some(&name), interrupt)?),
            Output::Saved(target) => {
                let packed = bundle(builder, &parts, stage, builder.options.compression)?;
                save::write_bundle(&packed, target, true, style, watch)?;
            }
        }
    }
    Ok(saved.digest)
}

/// The layers of the image, the lowest first.
fn parts(builder: &Builder, stage: &Stage) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    if let Base::Bundle { path, id, .. } = &stage.chain.base {
        // What it is as an archive depends on whether its owners are known.
        let kind = if owners::is_recorded(path)? { "root-owned" } else { "root" };
        let id = format!("{kind}-{id}");
        let created = created_of(stage).unwrap_or_else(|| builder.now.clone());
        let facts = builder.place.facts(&id)?.unwrap_or(Facts { created, archive: None });
        parts.push(Part {
            id,
            facts,
            tree: LayerTree { kind: TreeKind::Root, times: builder.times, root: super::stored(path)?.0 },
        });
    }
    for layer in &stage.chain.layers {
        // Another output may have been made of it since it was found.
        let facts = builder.place.facts(&layer.id)?.unwrap_or_else(|| layer.facts.clone());
        let root = builder.place.upper(&layer.id)?;
        let tree = LayerTree { kind: TreeKind::Upper, times: builder.times, root };
        parts.push(Part { id: layer.id.clone(), facts, tree });
    }
    Ok(parts)
}

fn created_of(stage: &Stage) -> Option<String> {
    stage.image.get("created").and_then(Value::as_str).map(str::to_owned)
}

fn written(facts: &Facts, times: Times) -> Option<WrittenLayer> {
    let archive = facts.archive.as_ref().filter(|archive| archive.times == times)?;
    let (diff_id, plain) = (archive.diff_id.clone(), archive.length);
    Some(WrittenLayer { digest: diff_id.clone(), diff_id, size: plain, plain })
}

/// The image in the form in which it is written.
fn bundle(
    builder: &Builder,
    parts: &[Part],
    stage: &Stage,
    compression: Compression,
) -> Result<SourceBundle> {
    let again = |root: &OwnedFd| disk::open_dir_again(root.as_fd());
    let tree = |of: &LayerTree| Ok(LayerTree { kind: of.kind, times: of.times, root: again(&of.root)? });
    let trees = parts.iter().map(|part| tree(&part.tree));
    let trees = trees.collect::<Result<Vec<_>>>()?;
    let mut image = stage.image.clone();
    // The image is as old as its youngest layer, so that the same layers always make the same image.
    let created = stage
        .chain
        .layers
        .iter()
        .map(|layer| &layer.facts.created)
        .max()
        .cloned()
        .or_else(|| created_of(stage));
    let created = builder.created.clone().or(created);
    for stale in STALE {
        image.remove(stale);
    }
    if let Some(created) = created {
        image.insert("created".into(), json!(created));
    }
    image.insert("config".into(), Value::Object(stage.config.clone()));
    image.insert("history".into(), Value::Array(history(stage, parts, builder.created.as_deref())));
    Ok(SourceBundle::built(trees, Built { config: Value::Object(image), compression }))
}

/// The history, which has as many entries that are not empty as there are layers: those of the base are one layer now. Those of this
/// build were made at `created`, where the caller has said when.
fn history(stage: &Stage, parts: &[Part], created: Option<&str>) -> Vec<Value> {
    let has_base = matches!(stage.chain.base, Base::Bundle { .. });
    let own = parts.len() - usize::from(has_base);
    let mut entries = stage.history.clone();
    // From the end on, as many entries with a layer as there are layers of this build are its own.
    let mut left = own;
    let begin = entries.iter().rposition(|entry| {
        let layer = entry["empty_layer"] != json!(true);
        left = left.saturating_sub(usize::from(layer));
        layer && left == 0
    });
    let begin = if own == 0 { entries.len() } else { begin.unwrap_or(0) };
    for entry in &mut entries[begin..] {
        if let (Some(created), Some(_)) = (created, entry.get("created")) {
            entry["created"] = json!(created);
        }
    }
    if has_base {
        for entry in &mut entries[..begin] {
            entry["empty_layer"] = json!(true);
        }
        let merged =
            json!({ "created_by": "rt build", "comment": "the layers before are merged into this one" });
        entries.insert(begin, merged);
    }
    entries
}
