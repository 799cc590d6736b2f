//! A stage as an image.
//!
//! Its layers are the root of its base, as one layer, and what each instruction has changed. What each is as a tar archive is noted with
//! it. The store takes the trees themselves, files by further names; archives are written for all else.

use std::os::fd::AsFd;
use std::sync::Mutex;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use super::Builder;
use super::kept_image;
use super::owners;
use super::place::{Archive, Facts};
use super::stage::{Base, Stage};
use crate::bundle;
use crate::each::each;
use crate::limits::Limits;
use crate::progress::Style;
use crate::save;
use crate::save::{
    Built, Compression, LayerTree, SaveTarget, SourceBundle, Times, TreeKind, Watch, WrittenLayer,
};
use crate::source::Image;
use oci_content::digest::Digest;
use oci_content::interrupt::Interrupt;
use oci_content::meter::Meter;
use rt_image_store::bundle_name;
use rt_sys::disk;
use rt_sys::error::Result;

/// What there is of an image.
pub(crate) enum Made<'a> {
    /// Its digest.
    Digest(&'a Digest),
    /// It itself, with its layers as trees, the lowest first, and for each whether nobody writes into its files any more.
    Trees(&'a Image, &'a [(LayerTree, bool)]),
    /// Its digest, and the name of a layout with it.
    Layout(&'a Digest, &'a str),
}

/// Makes something of the image. False where it takes more than that: the next in the order of [`Made`], of which the last is enough.
pub(crate) type Import<'a> = dyn Fn(&Made, &Interrupt) -> Result<bool> + 'a;

/// What is made of the result.
pub(crate) enum Output<'a> {
    /// An image of the store.
    Store(Box<Import<'a>>),
    /// What else a pull makes of a layout: a bundle, an image file.
    Import(Box<Import<'a>>),
    /// A layout or an archive.
    Saved(SaveTarget),
}

/// Fields of a base's config that are about the base alone.
const STALE: [&str; 7] =
    ["id", "parent", "container", "container_config", "throwaway", "created", "docker_version"];

/// What the name of a base begins with whose owners are recorded.
const RECORDED_ROOT: &str = "root-recorded-";

struct Part {
    /// Its name among the layers.
    id: String,
    facts: Facts,
    tree: LayerTree,
}

/// Makes `outputs` of `stage`, and returns the digest of its manifest.
pub(super) fn write(builder: &Builder, stage: &Stage, outputs: &[Output]) -> Result<Digest> {
    let mut parts = parts_of(builder, stage)?;
    let kept = kept_image::parts(
        &stage.chain,
        &parts.iter().map(|part| &*part.id).collect::<Vec<_>>(),
        builder.times,
    );
    let is_for_store = outputs.iter().any(|output| matches!(output, Output::Store(_)));
    let interrupt = builder.interrupt;
    let mut left: Vec<&Output> = outputs.iter().collect();
    let mut digest = None;
    if is_for_store {
        measure(builder, &mut parts)?;
    }
    if let Some(layers) = known(&parts, builder.times) {
        let documents = image_of(builder, &parts, stage, Compression::None)?.documents(&layers, None)?;
        let named = Digest::of(&documents.manifest);
        let image = Image::of_trees(documents)?;
        let trees = shared_trees(stage, &parts)?;
        for made in [Made::Digest(&named), Made::Trees(&image, &trees)] {
            left = import(left, &made, interrupt)?;
        }
        digest = Some(named);
    }
    let digest = match (digest, left.is_empty()) {
        (Some(digest), true) => digest,
        _ => write_layout(builder, stage, parts, &left)?,
    };
    if let (true, Some(kept)) = (is_for_store, kept) {
        builder.place.note_image(&bundle_name(digest.algorithm(), digest.hex()), &kept)?;
    }
    Ok(digest)
}

/// Has `outputs` take what there is of the image, and returns those for which it is not enough.
fn import<'a, 'b>(
    outputs: Vec<&'a Output<'b>>,
    made: &Made,
    interrupt: &Interrupt,
) -> Result<Vec<&'a Output<'b>>> {
    let mut left = Vec::new();
    for output in outputs {
        let done = match output {
            Output::Store(import) | Output::Import(import) => import(made, interrupt)?,
            Output::Saved(_) => false,
        };
        if !done {
            left.push(output);
        }
    }
    Ok(left)
}

/// Makes `outputs` by way of a layout.
fn write_layout(
    builder: &Builder,
    stage: &Stage,
    mut parts: Vec<Part>,
    outputs: &[&Output],
) -> Result<Digest> {
    let layout = builder.session.path.join("image");
    let target = SaveTarget::layout(layout.clone());
    let (interrupt, meter) = (builder.interrupt, Meter::default());
    let watch = Watch { interrupt, meter: &meter };
    let style = style(builder);
    let made = image_of(builder, &parts, stage, Compression::None)?;
    let saved = save::write_bundle(&made, &target, false, style, watch)?;
    for (part, layer) in parts.iter_mut().zip(&saved.written) {
        note(builder, part, layer)?;
    }
    let name = format!("oci:{}:latest", layout.display());
    for output in outputs {
        match output {
            Output::Store(import) | Output::Import(import) => {
                import(&Made::Layout(&saved.digest, &name), interrupt)?;
            }
            Output::Saved(target) => {
                // Another may have been put there meanwhile.
                target.check_replaces_itself()?;
                let packed = image_of(builder, &parts, stage, builder.options.compression)?;
                save::write_bundle(&packed, target, true, style, watch)?;
            }
        }
    }
    Ok(saved.digest)
}

fn style(builder: &Builder) -> Style {
    if builder.options.quiet { Style::Quiet } else { Style::Lines }
}

/// Notes what a part is as an archive.
fn note(builder: &Builder, part: &mut Part, layer: &WrittenLayer) -> Result<()> {
    let (diff_id, length) = (layer.diff_id.clone(), layer.plain);
    part.facts.archive = Some(Archive { times: builder.times, diff_id, length });
    builder.place.note(&part.id, &part.facts)
}

/// A thread that finds out what a base is as an archive, while instructions are done.
pub(super) struct Measuring {
    id: String,
    thread: JoinHandle<Result<WrittenLayer>>,
}

impl Measuring {
    /// Begins with the base of `stage`. None where that is known, or no thread can be had.
    pub(super) fn begin(builder: &Builder, stage: &Stage) -> Result<Option<Measuring>> {
        let unknown = |part: &Part| written(&part.facts, builder.times).is_none();
        let Some(Part { id, tree, .. }) = parts_of(builder, stage)?.pop().filter(unknown) else {
            return Ok(None);
        };
        let interrupt = builder.interrupt.clone();
        let measure = move || save::measure(&tree, Watch { interrupt: &interrupt, meter: &Meter::default() });
        let thread = std::thread::Builder::new().name("base".into()).spawn(measure);
        Ok(thread.ok().map(|thread| Measuring { id, thread }))
    }

    /// Notes what it has found out; what keeps it from that says [`measure`].
    fn end(self, builder: &Builder, parts: &mut [Part]) -> Result<()> {
        let measured = self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (measured, parts.iter_mut().find(|part| part.id == self.id)) {
            (Ok(layer), Some(part)) => note(builder, part, &layer),
            _ => Ok(()),
        }
    }
}

/// Finds out what the parts are as archives of which that is not noted, several at a time.
fn measure(builder: &Builder, parts: &mut [Part]) -> Result<()> {
    if let Some(measuring) = super::lock(&builder.measuring).take() {
        measuring.end(builder, parts)?;
    }
    let unknown: Vec<Mutex<&mut Part>> = parts
        .iter_mut()
        .filter(|part| written(&part.facts, builder.times).is_none())
        .map(Mutex::new)
        .collect();
    let (interrupt, meter) = (builder.interrupt, Meter::default());
    let watch = Watch { interrupt, meter: &meter };
    style(builder).show("layers", &meter, || {
        each(&unknown, Limits::of_this_job(None).threads, interrupt, |part| {
            let mut part = super::lock(part);
            let layer = save::measure(&part.tree, watch)?;
            note(builder, &mut part, &layer)
        })
    })
}

/// What all parts are as archives, where that is known.
fn known(parts: &[Part], times: Times) -> Option<Vec<WrittenLayer>> {
    parts.iter().map(|part| written(&part.facts, times)).collect()
}

/// The trees of the parts, and of which an image may share the files: of layers, and of a base that only the caller can change, whose
/// own containers cannot, and whose owners, if they are recorded at all, are recorded already.
fn shared_trees(stage: &Stage, parts: &[Part]) -> Result<Vec<(LayerTree, bool)>> {
    let shares = |part: &Part| -> Result<bool> {
        match (&stage.chain.base, part.tree.kind) {
            (Base::Bundle { path, is_ours, .. }, TreeKind::Root) => {
                let is_still = *is_ours && part.id.starts_with(RECORDED_ROOT) && bundle::is_read_only(path)?;
                // Its config may be changed later.
                Ok(is_still && bundle::note_sharing(path)?)
            }
            _ => Ok(true),
        }
    };
    parts.iter().map(|part| Ok((again(&part.tree)?, shares(part)?))).collect()
}

fn again(of: &LayerTree) -> Result<LayerTree> {
    Ok(LayerTree { kind: of.kind, times: of.times, root: disk::open_dir_again(of.root.as_fd())? })
}

/// The layers of the image, the lowest first.
fn parts_of(builder: &Builder, stage: &Stage) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    if let Base::Bundle { path, id, .. } = &stage.chain.base {
        // What it is as an archive depends on whether its owners are known.
        let kind = if owners::is_recorded(path)? { RECORDED_ROOT } else { "root-" };
        let id = format!("{kind}{id}");
        let created = created_of(stage).unwrap_or_else(|| builder.now.clone());
        let facts = builder.place.facts(&id)?.unwrap_or(Facts { created, ..Facts::default() });
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
    Some(WrittenLayer::plain(archive.diff_id.clone(), archive.length))
}

/// The image in the form in which it is written.
fn image_of(
    builder: &Builder,
    parts: &[Part],
    stage: &Stage,
    compression: Compression,
) -> Result<SourceBundle> {
    let trees = parts.iter().map(|part| again(&part.tree)).collect::<Result<Vec<_>>>()?;
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
    let first = stage.chain.layers.first().map(|layer| &layer.facts.created);
    let empty_created = builder.created.as_ref().or(first).or(created.as_ref()).cloned();
    for stale in STALE {
        image.remove(stale);
    }
    if let Some(created) = created {
        image.insert("created".into(), json!(created));
    }
    image.insert("config".into(), Value::Object(stage.config.clone()));
    let history = history(stage, builder.created.as_deref(), empty_created.as_deref());
    image.insert("history".into(), Value::Array(history));
    let annotations = builder.options.annotations.iter().map(|(name, value)| (name.clone(), json!(value)));
    let annotations = annotations.collect();
    Ok(SourceBundle::built(trees, Built { config: Value::Object(image), annotations, compression }))
}

/// The history, which has as many entries that are not empty as there are layers: those of the base are one layer now. Those of this
/// build were made at `created`, where the caller has said when, and those without a layer at `empty_created`.
fn history(stage: &Stage, created: Option<&str>, empty_created: Option<&str>) -> Vec<Value> {
    let has_base = matches!(stage.chain.base, Base::Bundle { .. });
    let mut entries = stage.history.clone();
    let begin = stage.inherited;
    for entry in entries[begin..].iter_mut().filter(|entry| entry.get("created").is_none()) {
        entry["created"] = json!(empty_created);
    }
    for entry in &mut entries[begin..] {
        if let (Some(created), Some(_)) = (created, entry.get("created")) {
            entry["created"] = json!(created);
        }
    }
    if has_base {
        for entry in &mut entries[..begin] {
            entry["empty_layer"] = json!(true);
        }
        let mut merged = kept_image::merged();
        if let Some(created) = created_of(stage) {
            merged["created"] = json!(created);
        }
        entries.insert(begin, merged);
    }
    entries
}
