//! `rt inspect`: an image's manifest, config and sizes, without its layers.

use super::{cache_location, connect_options, operand, source};
use crate::interrupt::Interrupt;
use crate::platform::Platform;
use crate::progress::size;
use crate::reference::{Reference, Source};
use crate::source::{Image, Opened};
use rt_cli::image::*;
use rt_cli::parse::Call;
use rt_cli::{print, print_json};
use rt_sys::error::Result;
use rt_sys::log::one_line;
use serde_json::{Value, json};

/// Runs the command.
pub(super) fn run(call: &Call) -> Result<u8> {
    let name = operand(call, 0)?;
    let source = source(name)?;
    let platform = call.flags.text(&PLATFORM)?.map_or_else(|| Ok(Platform::host()), str::parse)?;
    let interrupt = Interrupt::install();
    let (cache, _scratch) = cache_location(&call.flags)?.open(None)?;
    let opened = Opened::open(&source, connect_options(&call.flags)?, &cache, &interrupt)?;
    let head = opened.head()?;
    let image = opened.resolve(head, &platform, &cache, &interrupt)?;
    if call.flags.has(&PINNED) {
        return print(pinned(name, source, &image) + "\n");
    }
    match call.flags.has(&JSON) {
        true => print_json(&format!("{:#}", as_json(name, &image))),
        false => print(as_text(name, &image)),
    }
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

fn as_json(name: &str, image: &Image) -> Value {
    let execution = image.config.config.clone().unwrap_or_default();
    let layers: Vec<_> = image
        .manifest
        .layers
        .iter()
        .map(|layer| json!({ "digest": layer.digest, "size": layer.size, "mediaType": layer.media_type }))
        .collect();
    json!({
        "name": name, "digest": image.digest, "resolved": image.resolved,
        "architecture": image.config.architecture, "os": image.config.os, "created": image.config.created,
        "author": image.config.author, "layers": layers, "layerBytes": image.layer_bytes(),
        "annotations": image.manifest.annotations,
        "config": {
            "User": execution.user, "Env": execution.env, "Entrypoint": execution.entrypoint,
            "Cmd": execution.cmd, "WorkingDir": execution.working_dir, "Volumes": execution.volumes,
            "Labels": execution.labels, "StopSignal": execution.stop_signal,
            "ExposedPorts": execution.exposed_ports,
        },
    })
}

fn as_text(name: &str, image: &Image) -> String {
    let execution = image.config.config.clone().unwrap_or_default();
    let mut text = String::new();
    let mut line = |key: &str, value: &str| {
        if !value.is_empty() {
            // Nothing that an image says may steer the terminal.
            text.push_str(&format!("{key:<12} {}\n", one_line(value)));
        }
    };
    let join = |list: &Option<Vec<String>>| list.as_deref().unwrap_or_default().join(" ");
    line("name", name);
    line("digest", image.digest.as_str());
    if image.resolved != image.digest {
        line("index", image.resolved.as_str());
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
    for layer in &image.manifest.layers {
        line("layer", &format!("{:>9}  {}", size(layer.size), layer.digest));
    }
    line("compressed", &size(image.layer_bytes()));
    text
}
