//! All GPUs together: what `rt-hook-gpu` does.

use super::cdi::{self, Registry};
use super::command::{self, Call, HookProgram, Subcommand};
use super::nvidia::request::{Request, Visible};
use super::{amd, intel, nvidia};
use crate::cdi::generate;
use crate::kit::bundle::Bundle;
use crate::kit::edits::Edits;
use crate::kit::libraries;
use crate::kit::tree::Tree;
use rt_spec::caller_request::{CALLER_REQUEST, CallerRequest};
use rt_spec::{Config, json_error};
use rt_sys::error::{Context, Result};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// What `bundle` gets of the GPUs on `host`.
pub fn edits(bundle: &Bundle, host: &Tree, container: &Tree) -> Result<Edits> {
    let mut edits = nvidia::edits(bundle, host, container)?;
    edits.merge(amd::edits(bundle, host, container)?);
    edits.merge(intel::edits(bundle, host)?);
    let names = cdi_names(bundle)?;
    if !names.is_empty() {
        let registry = Registry::load(host)?;
        edits.merge(cdi::edits(&registry.resolve(&names)?, bundle, host, container));
    }
    if !edits.is_empty() && edits.private.is_none() {
        edits.private = Some(libraries::private_dir(container, "gpu"));
    }
    libraries::announce(&mut edits, container)?;
    edits.warnings.extend(bundle.refused());
    for key in bundle.annotations.keys().filter(|key| key.starts_with(cdi::ANNOTATION)) {
        edits.note(format!("annotation {key} may be the image's word and is not heeded"));
    }
    Ok(edits)
}

/// The CDI devices that the caller names, by `--device` or the environment.
fn cdi_names(bundle: &Bundle) -> Result<Vec<String>> {
    let mut names = bundle.devices.clone();
    if let Visible::Cdi(list) = Request::of(bundle)?.visible {
        names.extend(list.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>());
    }
    Ok(names)
}

/// The variables that a precreate hook changes.
pub fn renumbered(bundle: &Bundle, host: &Tree) -> Result<Vec<String>> {
    let mut env = nvidia::renumbered(bundle, host)?;
    env.extend(amd::renumbered_env(bundle, host)?);
    env.extend(intel::renumbered_env(bundle, host)?);
    Ok(env)
}

/// Runs the command line of `rt-hook-gpu`; returns its exit status.
pub fn main() -> u8 {
    command::main(&HookProgram {
        name: "rt-hook-gpu",
        about: "Puts GPUs into a container: NVIDIA, AMD, Intel, and devices by their CDI names.",
        edits,
        precreate: Some(precreate),
        commands: &[
            Subcommand {
                name: "cdi",
                summary: "print a CDI spec of this node's NVIDIA GPUs",
                run: generate::run,
            },
            Subcommand {
                name: "ldcache",
                summary: "enter the libraries of such a spec in the container's ld.so.cache, as its hook",
                run: generate::ldcache,
            },
        ],
    })
}

/// The config with the variables, hooks and devices that cannot be added later.
fn precreate(call: &Call, config: &[u8]) -> Result<String> {
    let config = Config::parse(config.to_vec())?;
    let host = Tree::open(&call.root)?;
    let mut value: Value = serde_json::from_slice(&config.text()?).map_err(json_error)?;
    let said = value
        .get(CALLER_REQUEST)
        .map(CallerRequest::deserialize)
        .transpose()
        .map_err(json_error)
        .context(|| CALLER_REQUEST)?;
    let bundle = Bundle::from_spec(&config.spec, Path::new("/"))?.called_with(std::env::vars());
    let bundle = bundle.told(&said.unwrap_or_default());
    for variable in renumbered(&bundle, &host)? {
        cdi::set_variable(&mut value, &variable)?;
    }
    let names = cdi_names(&bundle)?;
    if !names.is_empty() && !bundle.annotations.contains_key(rt_spec::ANNOTATION_MERGED) {
        cdi::merge(&Registry::load(&host)?.resolve(&names)?, &mut value)?;
    }
    Ok(value.to_string())
}
