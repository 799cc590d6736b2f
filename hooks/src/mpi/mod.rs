//! The host's MPI library in the place of a container's, after a proof that it fits.
//!
//! The order is: who asks, which libraries the image has, which the host has for them, whether programs find all their
//! symbols (`proof`), and whether the host's libraries find all of theirs ([`crate::kit::fit`]). What does not hold is an
//! error, and nothing has been changed then.

mod family;
mod installed;
mod plugins;
mod proof;

use super::command::{self, HookProgram};
use crate::kit::bundle::Bundle;
use crate::kit::edits::{Access, Edits};
use crate::kit::fit::{self, Fit, LibrarySet, Rules};
use crate::kit::libraries::{self, LibC, NamedLibrary};
use crate::kit::tree::Tree;
use installed::Installation;
use plugins::Plugins;
use proof::Pair;
use rt_spec::caller_request::{ANNOTATION_MPI, MPI, is_host_mpi};
use rt_sys::bail;
use rt_sys::err;
use rt_sys::error::{Context, Result};
use std::path::{Path, PathBuf};

/// UCX's parts, which are of one release.
const UCX: [&str; 4] = ["libucp.so.", "libuct.so.", "libucs.so.", "libucm.so."];
/// What belongs to the drivers of GPUs, by the beginnings of names: the hook for GPUs brings it.
const DRIVERS: [&str; 7] =
    ["libcuda.so", "libnvidia-", "libcudart", "libhsa-runtime", "libamdhip", "librocm_smi", "libze_loader"];

/// The most MPIs of an image, by their binary interfaces.
const MOST_INTERFACES: usize = 64;

/// Runs the command line of `rt-hook-mpi`; returns its exit status.
pub fn main() -> u8 {
    command::main(&HookProgram {
        name: "rt-hook-mpi",
        about: "Puts the host's MPI library in the place of a container's, after a proof that it fits.",
        edits,
        precreate: None,
        commands: &[],
    })
}

/// What `bundle` gets of the host's MPI.
pub fn edits(bundle: &Bundle, host: &Tree, container: &Tree) -> Result<Edits> {
    if !asked(bundle)? {
        return Ok(Edits::default());
    }
    Tree::within_bounds([host, container], replace(bundle, host, container))
        .context(|| "the host's MPI cannot replace the image's")
        .map_err(|e| e.hint("--mpi image, or RT_MPI=image, runs the container with its own"))
}

/// True where somebody asks for the host's MPI: the caller, else the container's environment, else an annotation.
fn asked(bundle: &Bundle) -> Result<bool> {
    let annotation = bundle.annotations.get(ANNOTATION_MPI).map(String::as_str);
    let word = bundle.caller(MPI).or(bundle.env(MPI)).or(annotation);
    is_host_mpi(word.unwrap_or_default())
}

fn replace(bundle: &Bundle, host: &Tree, container: &Tree) -> Result<Edits> {
    let libc = LibC::of(container);
    // A process has one C library, and its loader takes no library that was linked with the other one.
    if libc.musl && !libc.glibc {
        bail!("the image's C library is musl, and the host's MPI needs glibc");
    }
    let mut fit = Fit::new(host, container);
    fit.rules =
        Rules { by_symbols: true, belongs, anothers: |name| DRIVERS.iter().any(|d| name.starts_with(d)) };
    fit.host_dirs = installed::search_dirs(bundle, host);
    let path = bundle.env("LD_LIBRARY_PATH").unwrap_or_default();
    fit.container_dirs = path.split(':').map(PathBuf::from).filter(|dir| dir.is_absolute()).collect();
    let refused = |why: String| err!("{why}");
    let mut dirs = proof::directories(&fit, bundle).map_err(refused)?;
    dirs.extend(fit.container_dirs.iter().cloned());
    let (pairs, others) = pairs(bundle, &fit, &dirs)?;
    let (set, plugins) = with_plugins(&fit, &pairs).map_err(refused)?;
    let proven = proof::prove(&fit, bundle, &pairs, &others, &set).map_err(refused)?;

    let mut edits = Edits::default();
    pairs.iter().for_each(|pair| edits.note(proof::shown(&fit, pair)));
    edits.note(proven);
    let private = libraries::private_dir(container, "mpi");
    dirs.extend(installed::directories(container));
    bring(&mut edits, &fit, &set, &dirs, &private.join("lib"));
    plugins::bring(&mut edits, &plugins, &set, host, &private.join("lib"));
    edits.private = Some(private);
    libraries::announce(&mut edits, container)?;
    Ok(edits)
}

/// True for what comes with MPI's libraries whatever the container has: they are of one release.
fn belongs(name: &str, set: &LibrarySet) -> bool {
    let is_ucx = |name: &str| UCX.iter().any(|part| name.starts_with(part));
    family::Name::parse(name).is_some()
        || family::is_internal(name)
        || (is_ucx(name) && set.keys().any(|other| is_ucx(other)))
}

/// The MPIs of the image with those of the host for them, and those for which it has none.
fn pairs(bundle: &Bundle, fit: &Fit<'_>, dirs: &[PathBuf]) -> Result<(Vec<Pair>, Vec<Installation>)> {
    let image = installed::of_image(fit, dirs);
    if image.is_empty() {
        bail!(
            "the image has no shared MPI library where its loader looks, or in /usr/local or /opt (its programs may be \
             linked to it statically)"
        );
    }
    if image.len() > MOST_INTERFACES {
        let number = image.len();
        bail!("the image has MPI libraries of {number} interfaces, which is more than {MOST_INTERFACES}");
    }
    let (host, place) = installed::of_host(fit, bundle)?;
    if host.is_empty() {
        bail!("the host has none ({}=DIR says where it is)", installed::LIBRARY);
    }
    let listed = |all: &[Installation]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    let (all_of_image, all_of_host) = (listed(&image), listed(&host));
    let mut pairs = Vec::new();
    let mut others = Vec::new();
    for image in image {
        // A program has the layout of its MPI's handles compiled in, so only the same interface can take the library's place.
        match host.iter().find(|host| (host.abi, host.number) == (image.abi, image.number)) {
            Some(host) => pairs.push(Pair::new(image, host.clone())),
            None => others.push(image),
        }
    }
    if pairs.is_empty() {
        bail!(
            "the image has {all_of_image}, and the host has {all_of_host}: another binary interface ({place})"
        );
    }
    Ok((pairs, others))
}

/// The libraries that come from the host, with the directories of their plugins. A plugin may need a library that has
/// plugins of its own.
fn with_plugins(fit: &Fit<'_>, pairs: &[Pair]) -> Result<(LibrarySet, Vec<Plugins>), String> {
    let mut wanted: Vec<NamedLibrary> = Vec::new();
    for replaced in pairs.iter().flat_map(|pair| &pair.replaced) {
        let path = &replaced.host;
        // The host's own libraries ask for each other by the names that they have there.
        let own = fit.host.elf(path).and_then(|elf| elf.soname.clone());
        for name in [Some(replaced.name.clone()), own].into_iter().flatten() {
            if !wanted.iter().any(|library| library.name == name) {
                wanted.push(NamedLibrary { name, path: path.clone() });
            }
        }
    }
    let mut plugins = Vec::new();
    loop {
        let files: Vec<PathBuf> = plugins.iter().flat_map(|found: &Plugins| found.files.clone()).collect();
        let set = fit.set_with(&wanted, &files)?;
        let found = plugins::of(&set, fit.host.tree());
        if found == plugins {
            return Ok((set, plugins));
        }
        plugins = found;
    }
}

/// Adds the libraries: in `own`, where the loader finds them, and over every file of the image that a program may be linked
/// to by its path, in `dirs` and wherever the loader looks.
fn bring(edits: &mut Edits, fit: &Fit<'_>, set: &LibrarySet, dirs: &[PathBuf], own: &Path) {
    let host = fit.host.tree();
    fit::bring(edits, set, own, fit.flags, host);
    for (name, path) in set {
        let source = host.real(path).unwrap_or_else(|| path.clone());
        let elf = host.elf(path);
        let mut near = elf.map(|elf| libraries::search_dirs(&elf, path, &[])).unwrap_or_default();
        near.extend_from_slice(dirs);
        for place in fit.container.all(name, fit.flags, &near) {
            edits.bind_at(&source, place, Access::ReadOnly);
        }
    }
}
