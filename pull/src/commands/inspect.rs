//! `rt inspect`: an image's manifest, config and sizes, without its layers; or what a bundle or an image file says.

use super::save::Origin;
use super::{cache_location, connect_options, operand, source};
use crate::archive::Store;
use crate::foreign;
use crate::image_file;
use crate::manifest::{Descriptor, ImageConfig, Manifest};
use crate::platform::Platform;
use crate::progress::size;
use crate::reference::Source;
use crate::save::{self, SourceBundle, What};
use crate::source::{Image, Opened};
use oci_content::interrupt::Interrupt;
use oci_registry::reference::Reference;
use rt_cli::image::*;
use rt_cli::parse::Call;
use rt_cli::{print, print_json};
use rt_spec::{ANNOTATION_DIGEST, ANNOTATION_NAME, ANNOTATION_RESOLVED};
use rt_sys::err;
use rt_sys::error::Result;
use rt_sys::log::one_line;
use serde_json::{Value, json};
use std::path::Path;

/// What is known of an image, wherever it is.
struct Described {
    /// The name of the image, as far as there is one.
    name: Option<String>,
    /// The name of the same bits at any later time.
    pinned: String,
    /// The digest of its manifest.
    digest: Option<String>,
    /// The digest that its name stood for.
    resolved: Option<String>,
    config: ImageConfig,
    /// None of what has no layers any more: a bundle, or an image file.
    manifest: Option<Manifest>,
}

/// Runs the command.
pub(super) fn run(call: &Call) -> Result<u8> {
    let described = match Origin::of(call)? {
        Origin::Bundle(path) => {
            let save::Parts { config, original, .. } =
                SourceBundle::open(What { bundle: path, overlay: None })?.into_parts();
            of_configs(path, &config, original)?
        }
        Origin::File(path, true) => match image_file::configs(path)? {
            Some((config, image)) => of_configs(path, &config, image)?,
            None => of_configs(path, &foreign::config(path)?, None)?,
        },
        Origin::File(path, false) if image_file::is_sif(path)? => {
            of_configs(path, &foreign::config(path)?, None)?
        }
        Origin::File(path, false) => of_source(call, archive(call, path)?)?,
        Origin::Layout(path) => of_source(call, Source::OciLayout { path: path.into(), select: None })?,
        // A directory with files of somebody's says nothing of an image that has its name.
        Origin::Image(_) | Origin::Data(_) => of_source(call, source(operand(call, 0)?)?)?,
    };
    if call.flags.has(&PINNED) {
        return print(described.pinned + "\n");
    }
    match call.flags.has(&JSON) {
        true => print_json(&format!("{:#}", as_json(&described))),
        false => print(as_text(&described)),
    }
}

/// What a source says of its image.
fn of_source(call: &Call, source: Source) -> Result<Described> {
    let name = operand(call, 0)?;
    let platform = call.flags.text(&PLATFORM)?.map_or_else(|| Ok(Platform::host()), str::parse)?;
    let interrupt = Interrupt::install();
    let (cache, _scratch) = cache_location(&call.flags)?.open(None)?;
    let opened = Opened::open(&source, connect_options(&call.flags)?, &cache, &interrupt)?;
    let head = opened.head()?;
    let image = opened.resolve(head, &platform, &cache, &interrupt)?;
    Ok(Described {
        name: Some(name.to_owned()),
        pinned: pinned(name, source, &image),
        digest: Some(image.digest.to_string()),
        resolved: Some(image.resolved.to_string()),
        config: image.config,
        manifest: Some(image.manifest),
    })
}

/// What the config of a bundle says, and that of the image from which it was pulled.
fn of_configs(path: &Path, bundle: &Value, image: Option<Value>) -> Result<Described> {
    let annotation = |key: &str| bundle["annotations"][key].as_str().map(str::to_owned);
    let config = image.unwrap_or_else(|| save::without_image(bundle));
    Ok(Described {
        name: annotation(ANNOTATION_NAME),
        pinned: path.display().to_string(),
        digest: annotation(ANNOTATION_DIGEST),
        resolved: annotation(ANNOTATION_RESOLVED),
        config: serde_json::from_value(config).map_err(|e| err!("{}: {e}", path.display()))?,
        manifest: None,
    })
}

/// The archive at `path`, of one of two kinds. docker's own has both indexes since version 25, of which the OCI one is the better.
fn archive(call: &Call, path: &Path) -> Result<Source> {
    let (cache, _scratch) = cache_location(&call.flags)?.open(None)?;
    let is_oci = Store::open_tar(path, || cache.nameless())?.find("oci-layout").is_ok();
    let path = path.to_owned();
    Ok(match is_oci {
        true => Source::OciArchive { path, select: None },
        false => Source::DockerArchive { path, select: None },
    })
}

/// The name of the same bits at any later time: that of an image in a registry with the digest of its manifest or, where the
/// tag names an index, of that. Other sources have no such name.
fn pinned(name: &str, source: Source, image: &Image) -> String {
    match source {
        Source::Registry(reference) => {
            Reference { digest: Some(image.resolved.clone()), ..reference }.to_string()
        }
        _ => name.to_owned(),
    }
}

impl Described {
    fn layers(&self) -> &[Descriptor] {
        self.manifest.as_ref().map_or(&[], |manifest| &manifest.layers)
    }
}

fn as_json(image: &Described) -> Value {
    let execution = image.config.config.clone().unwrap_or_default();
    let layers: Vec<_> = image
        .layers()
        .iter()
        .map(|layer| json!({ "digest": layer.digest, "size": layer.size, "mediaType": layer.media_type }))
        .collect();
    json!({
        "name": image.name, "digest": image.digest, "resolved": image.resolved,
        "architecture": image.config.architecture, "os": image.config.os, "created": image.config.created,
        "author": image.config.author, "layers": layers, "layerBytes": image.manifest.as_ref().map(Manifest::layer_bytes),
        "annotations": image.manifest.as_ref().map(|manifest| &manifest.annotations),
        "config": {
            "User": execution.user, "Env": execution.env, "Entrypoint": execution.entrypoint,
            "Cmd": execution.cmd, "WorkingDir": execution.working_dir, "Volumes": execution.volumes,
            "Labels": execution.labels, "StopSignal": execution.stop_signal,
            "ExposedPorts": execution.exposed_ports,
        },
    })
}

fn as_text(image: &Described) -> String {
    let execution = image.config.config.clone().unwrap_or_default();
    let mut text = String::new();
    let mut line = |key: &str, value: &str| {
        if !value.is_empty() {
            // Nothing that an image says may steer the terminal.
            text.push_str(&format!("{key:<12} {}\n", one_line(value)));
        }
    };
    let join = |list: &Option<Vec<String>>| list.as_deref().unwrap_or_default().join(" ");
    line("name", image.name.as_deref().unwrap_or(""));
    line("digest", image.digest.as_deref().unwrap_or(""));
    if image.resolved != image.digest {
        line("index", image.resolved.as_deref().unwrap_or(""));
    }
    line("platform", &format!("{}/{}", image.config.os, image.config.architecture));
    line("created", image.config.created.as_deref().unwrap_or(""));
    line("author", image.config.author.as_deref().unwrap_or(""));
    line("user", execution.user.as_deref().unwrap_or(""));
    line("entrypoint", &join(&execution.entrypoint));
    line("cmd", &join(&execution.cmd));
    line("workdir", execution.working_dir.as_deref().unwrap_or(""));
    for variable in execution.env.iter().flatten() {
        line("env", variable);
    }
    for (key, value) in execution.labels.iter().flatten() {
        line("label", &format!("{key}={value}"));
    }
    for layer in image.layers() {
        line("layer", &format!("{:>9}  {}", size(layer.size), layer.digest));
    }
    if let Some(manifest) = &image.manifest {
        line("compressed", &size(manifest.layer_bytes()));
    }
    text
}
