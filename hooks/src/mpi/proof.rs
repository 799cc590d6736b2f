//! Whether the programs of a container run with the host's libraries: by the symbols that they take.
//!
//! What the container's program takes is read of the program itself and of the libraries that it is linked to. Where that
//! shows nothing (a script, an interpreter), the host's libraries must have all that the image's have for programs.

use super::family::{self, C, Name};
use super::installed::Installation;
use crate::kit::bundle::Bundle;
use crate::kit::fit::Fit;
use crate::kit::libraries::search_dirs;
use ld_so_cache::symbols::{Symbols, Taken};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The variable that names the files which use MPI, where the container's program does not show it.
pub(super) const PROGRAMS: &str = "RT_MPI_PROGRAMS";

/// An MPI of the image, and that of the host which takes its place.
pub(super) struct Pair {
    pub image: Installation,
    pub host: Installation,
    pub replaced: Vec<Replaced>,
}

/// A library of the image, and the one of the host that takes its place.
pub(super) struct Replaced {
    /// What programs ask for.
    pub name: String,
    /// The image's file of that name that its loader finds first.
    pub image: PathBuf,
    /// The host's.
    pub host: PathBuf,
}

impl Pair {
    /// The libraries of `image` that have a counterpart of their role in `host`.
    pub(super) fn new(image: Installation, host: Installation) -> Pair {
        let counterpart = |name: &str| {
            let same = host.libraries.get(name).and_then(|files| files.first());
            same.map(PathBuf::as_path)
                .or_else(|| Some(host.of_role(Name::parse(name)?.role)?.1))
                .map(Path::to_owned)
        };
        let replaced = image.libraries.iter().filter_map(|(name, files)| {
            let image = files.first()?.clone();
            Some(Replaced { name: name.clone(), image, host: counterpart(name)? })
        });
        let replaced = replaced.collect();
        Pair { image, host, replaced }
    }

    /// The image's libraries without a counterpart.
    fn left(&self) -> impl Iterator<Item = &str> {
        let names = self.image.libraries.keys().map(String::as_str);
        names.filter(|name| !self.replaced.iter().any(|replaced| replaced.name == *name))
    }
}

/// What a container's program is linked to, as far as it matters here.
struct Uses {
    /// The program and its libraries, but for those that are replaced.
    objects: Vec<PathBuf>,
    /// The names of MPI's libraries that they ask for.
    names: BTreeSet<String>,
}

/// Proves that what runs in the container runs with the host's libraries; else why not. `others` are MPIs of the image for
/// which the host has none.
pub(super) fn prove(
    fit: &Fit<'_>,
    bundle: &Bundle,
    pairs: &[Pair],
    others: &[Installation],
) -> Result<String, String> {
    let files = programs(fit, bundle)?;
    let uses = linked(fit, &files, pairs);
    let shown = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
    if uses.names.is_empty() {
        let Some(gap) = first_gap(fit, pairs, others) else {
            return Ok("the host's libraries have all symbols that programs of the image can take".to_owned());
        };
        return Err(format!(
            "{gap}; {shown} does not show whether that matters, because it is not linked to MPI ({PROGRAMS}=FILE[:FILE] \
             names what is)"
        ));
    }
    for name in &uses.names {
        if let Some(other) = others.iter().find(|other| other.libraries.contains_key(name)) {
            return Err(format!("{shown} needs {name} of {}, and the host has none of that ABI", other.abi));
        }
        if pairs.iter().any(|pair| pair.left().any(|left| left == name)) || is_left_behind(name, pairs) {
            return Err(format!("{shown} needs {name}, and the host's MPI has no such library"));
        }
    }
    for pair in pairs {
        let of = |replaced: &&Replaced| uses.names.contains(&replaced.name);
        let used: Vec<&Replaced> = pair.replaced.iter().filter(of).collect();
        uses.objects.iter().try_for_each(|object| takes_no_more(fit, object, &used))?;
    }
    Ok(format!("the host's libraries have all symbols that {shown} takes"))
}

/// True for what belongs to an MPI that is replaced, and is not replaced itself: it would not fit the rest.
fn is_left_behind(name: &str, pairs: &[Pair]) -> bool {
    family::is_internal(name) && !pairs.is_empty()
}

/// The files that are looked at: those that are named, else the container's program.
fn programs(fit: &Fit<'_>, bundle: &Bundle) -> Result<Vec<PathBuf>, String> {
    let tree = fit.container.tree();
    if let Some(list) = bundle.env(PROGRAMS).filter(|list| !list.is_empty()) {
        let files: Vec<PathBuf> = list.split(':').map(|file| bundle.cwd.join(file)).collect();
        return match files.iter().find(|file| tree.file(file).is_none()) {
            Some(file) => Err(format!("{PROGRAMS}: the container has no file {}", file.display())),
            None => Ok(files),
        };
    }
    let Some(name) = bundle.args.first() else { return Ok(Vec::new()) };
    if name.contains('/') {
        return Ok(vec![bundle.cwd.join(name)]);
    }
    let path = bundle.env("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin");
    let found = path.split(':').map(|dir| Path::new(dir).join(name)).find(|file| tree.file(file).is_some());
    Ok(vec![found.unwrap_or_else(|| PathBuf::from(name))])
}

/// The files and everything that they are linked to, up to MPI.
fn linked(fit: &Fit<'_>, files: &[PathBuf], pairs: &[Pair]) -> Uses {
    let mut uses = Uses { objects: Vec::new(), names: BTreeSet::new() };
    let mut seen = BTreeSet::new();
    let mut todo: Vec<PathBuf> = files.to_vec();
    // DT_RPATH of a program is for its libraries, too.
    let of_files =
        |file: &PathBuf| fit.container.elf(file).map(|elf| search_dirs(&elf, file, &[])).unwrap_or_default();
    let inherited: Vec<PathBuf> = files.iter().flat_map(of_files).chain(fit.container_dirs.clone()).collect();
    while let Some(file) = todo.pop() {
        let Some(elf) = fit.container.elf(&file) else { continue };
        let dirs = search_dirs(&elf, &file, &inherited);
        for name in &elf.needed {
            if Name::parse(name).is_some() || family::is_internal(name) {
                uses.names.insert(name.clone());
            }
            let is_replaced = pairs.iter().any(|pair| pair.replaced.iter().any(|r| r.name == *name));
            if !is_replaced
                && seen.insert(name.clone())
                && let Some(path) = fit.container.find_with(name, fit.flags, &dirs)
            {
                todo.push(path);
            }
        }
        uses.objects.push(file);
    }
    uses
}

/// An error where `object` takes a symbol of the replaced libraries that those of the host lack, or have in another size.
fn takes_no_more(fit: &Fit<'_>, object: &Path, used: &[&Replaced]) -> Result<(), String> {
    let container = fit.container.tree();
    let Some(own) = container.symbols(object) else { return Ok(()) };
    let pairs: Vec<(&Replaced, Rc<Symbols>, Rc<Symbols>)> = used
        .iter()
        .filter_map(|r| Some((*r, container.symbols(&r.image)?, fit.host.tree().symbols(&r.host)?)))
        .collect();
    for (symbol, taken) in &own.takes {
        let Some((replaced, ..)) = pairs.iter().find(|(_, image, _)| image.defines.contains_key(symbol))
        else {
            continue;
        };
        let found = pairs.iter().find_map(|(_, _, host)| host.defines.get(symbol));
        let object = object.display();
        match (found, taken) {
            (None, _) => {
                return Err(format!("{object} needs {symbol}, which {} lacks", versions(fit, replaced)));
            }
            (Some(defined), Taken::Copy(size)) if defined.size != *size => {
                return Err(format!(
                    "{object} has {size} bytes for {symbol}, which has {} in {}",
                    defined.size,
                    versions(fit, replaced)
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Why some program of the image might not run with the host's libraries.
fn first_gap(fit: &Fit<'_>, pairs: &[Pair], others: &[Installation]) -> Option<String> {
    if let Some(other) = others.first() {
        return Some(format!("the image has {other}, too, and the host has none of that ABI"));
    }
    for pair in pairs {
        if let Some(left) = pair.left().next() {
            return Some(format!("the host's MPI has no {left}, which the image has"));
        }
        let host: Vec<Rc<Symbols>> =
            pair.replaced.iter().filter_map(|r| fit.host.tree().symbols(&r.host)).collect();
        for replaced in &pair.replaced {
            let image = fit.container.tree().symbols(&replaced.image)?;
            for (symbol, old) in image.defines.iter().filter(|(symbol, _)| family::is_public(symbol)) {
                match host.iter().find_map(|host| host.defines.get(symbol)) {
                    None => return Some(format!("{} lacks {symbol}", versions(fit, replaced))),
                    Some(new) if old.is_data && new.size != old.size => {
                        return Some(format!(
                            "{symbol} has {} bytes in {}, instead of {}",
                            new.size,
                            versions(fit, replaced),
                            old.size
                        ));
                    }
                    _ => {}
                }
            }
        }
    }
    None
}

/// A library of the host's beside the image's, by the names of their files, which have the version.
pub(super) fn versions(fit: &Fit<'_>, replaced: &Replaced) -> String {
    let file = |path: Option<PathBuf>| {
        path.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())).unwrap_or_default()
    };
    let host = file(fit.host.tree().real(&replaced.host));
    let image = file(fit.container.tree().real(&replaced.image));
    format!("the host's {host} (the image's is {image})")
}

/// The pair's own line for people.
pub(super) fn shown(fit: &Fit<'_>, pair: &Pair) -> String {
    let of_c = pair.replaced.iter().find(|r| Name::parse(&r.name).is_some_and(|name| name.role == C));
    of_c.map(|replaced| format!("{}: {}", pair.host.abi, versions(fit, replaced))).unwrap_or_default()
}
