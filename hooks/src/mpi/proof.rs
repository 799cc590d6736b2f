//! Whether the programs of a container run with the host's libraries: by the symbols that they take.
//!
//! What the container's program takes is read of the program itself and of the libraries that it is linked to. Where that
//! shows nothing (a script, an interpreter), the host's libraries must have all that the image's have for programs.

use super::family::{self, C, Name};
use super::installed::Installation;
use crate::kit::bundle::Bundle;
use crate::kit::fit::{Fit, LibrarySet};
use crate::kit::libraries::search_dirs;
use crate::kit::tree::Tree;
use ld_so_cache::symbols::{Defined, Symbols, Taken};
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
    /// The image's files of that name, first what its loader finds.
    pub images: Vec<PathBuf>,
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
            Some(Replaced { name: name.clone(), images: files.clone(), host: counterpart(name)? })
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

/// The symbols that are looked up in the time of one look at a path.
const SYMBOLS_A_LOOK: usize = 128;

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
    set: &LibrarySet,
) -> Result<String, String> {
    let files = programs(fit, bundle)?;
    let uses = linked(fit, &files, set);
    let shown = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
    if uses.names.is_empty() {
        let Some(gap) = first_gap(fit, pairs, others)? else {
            return Ok("the host's libraries have all symbols that programs of the image can take".to_owned());
        };
        return Err(format!(
            "{gap}; {shown} does not show whether that matters, because it is not there or not linked to MPI ({PROGRAMS}=FILE[:FILE] \
             names what is)"
        ));
    }
    for name in &uses.names {
        if let Some(other) = others.iter().find(|other| other.libraries.contains_key(name)) {
            return Err(format!("{shown} needs {name} of {}, and the host has none of that ABI", other.abi));
        }
        if !set.contains_key(name) {
            return Err(format!("{shown} needs {name}, and the host's MPI has no such library"));
        }
    }
    for pair in pairs {
        let of = |replaced: &&Replaced| uses.names.contains(&replaced.name);
        let used = symbolic(fit, &pair.replaced.iter().filter(of).collect::<Vec<_>>())?;
        uses.objects.iter().try_for_each(|object| takes_no_more(fit, object, &used))?;
    }
    Ok(format!("the host's libraries have all symbols that {shown} takes"))
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

/// The directories in which the container's programs and what they are linked to look for libraries by themselves.
pub(super) fn directories(fit: &Fit<'_>, bundle: &Bundle) -> Result<Vec<PathBuf>, String> {
    let objects = linked(fit, &programs(fit, bundle)?, &LibrarySet::new()).objects;
    let mut all: Vec<PathBuf> = objects.iter().flat_map(|path| dirs_of(fit, path)).collect();
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// The directories that the container's file at `path` names, each of which is paid for.
fn dirs_of(fit: &Fit<'_>, path: &Path) -> Vec<PathBuf> {
    let Some(elf) = fit.container.elf(path) else { return Vec::new() };
    let dirs = search_dirs(&elf, path, &[]);
    fit.container.tree().pay(dirs.len());
    dirs
}

/// The files and everything that they are linked to, but for `replaced`.
fn linked(fit: &Fit<'_>, files: &[PathBuf], replaced: &LibrarySet) -> Uses {
    let mut uses = Uses { objects: Vec::new(), names: BTreeSet::new() };
    let mut seen = BTreeSet::new();
    let mut todo: Vec<PathBuf> = files.to_vec();
    // DT_RPATH of a program is for its libraries, too.
    let of_files = files.iter().flat_map(|file| dirs_of(fit, file));
    let inherited: Vec<PathBuf> = of_files.chain(fit.container_dirs.clone()).collect();
    while let Some(file) = todo.pop() {
        let Some(elf) = fit.container.elf(&file) else { continue };
        let dirs = search_dirs(&elf, &file, &inherited);
        if !fit.container.tree().pay(dirs.len()) {
            break;
        }
        for name in &elf.needed {
            if Name::parse(name).is_some() || family::is_internal(name) {
                uses.names.insert(name.clone());
            }
            if !replaced.contains_key(name)
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

/// A replaced library with the symbols of one of the image's files and of the host's.
struct Symbolic<'p> {
    name: &'p str,
    image: &'p Path,
    host: &'p Path,
    of_image: Rc<Symbols>,
    of_host: Rc<Symbols>,
}

/// The libraries with their symbols, for every file of the image: a program may be linked to any of them by its path.
fn symbolic<'p>(fit: &Fit<'_>, all: &[&'p Replaced]) -> Result<Vec<Symbolic<'p>>, String> {
    let mut found = Vec::new();
    for replaced in all {
        for image in &replaced.images {
            let (name, host) = (replaced.name.as_str(), replaced.host.as_path());
            let of_image = fit.container.tree().symbols(image);
            let of_host = fit.host.tree().symbols(host);
            let (Some(of_image), Some(of_host)) = (of_image, of_host) else {
                return Err(format!("the symbols of {} cannot be read", versions(fit, host, image)));
            };
            found.push(Symbolic { name, image, host, of_image, of_host });
        }
    }
    Ok(found)
}

/// What the host's libraries define as `symbol` in the place of `library`'s: the one that takes its place, else another,
/// because releases differ in where a symbol is.
fn defined(fit: &Fit<'_>, all: &[Symbolic<'_>], library: &Symbolic<'_>, symbol: &str) -> Option<Defined> {
    let elsewhere = || {
        pay_symbols(fit, all.len()).ok()?;
        all.iter().find_map(|other| other.of_host.defines.get(symbol))
    };
    library.of_host.defines.get(symbol).or_else(elsewhere).copied()
}

/// Pays for that many lookups of symbols; an error where nothing is left.
fn pay_symbols(fit: &Fit<'_>, lookups: usize) -> Result<(), String> {
    match fit.container.tree().pay(lookups.div_ceil(SYMBOLS_A_LOOK)) {
        true => Ok(()),
        false => Err("nothing is left to compare symbols with".to_owned()),
    }
}

/// An error where `object` takes a symbol of the replaced libraries that those of the host lack, or have in another size.
fn takes_no_more(fit: &Fit<'_>, object: &Path, all: &[Symbolic<'_>]) -> Result<(), String> {
    let Some(own) = fit.container.tree().symbols(object) else {
        return Err(format!("the symbols of {} cannot be read", object.display()));
    };
    pay_symbols(fit, own.takes.len().saturating_mul(all.len()))?;
    for (symbol, taken) in &own.takes {
        for library in all.iter().filter(|library| library.of_image.defines.contains_key(symbol)) {
            let object = object.display();
            let versions = || versions(fit, library.host, library.image);
            match (defined(fit, all, library, symbol), taken) {
                (None, _) => return Err(format!("{object} needs {symbol}, which {} lacks", versions())),
                (Some(new), Taken::Copy(size))
                    if new.size != *size && takes_size(fit, all, library, symbol, *size) =>
                {
                    return Err(format!(
                        "{object} has {size} bytes for {symbol}, which has {} in {}",
                        new.size,
                        versions()
                    ));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// True where a copy of that size can be one of `library`'s, and not of another library that has the symbol, too; also
/// where nothing is left to find that out.
fn takes_size(fit: &Fit<'_>, all: &[Symbolic<'_>], library: &Symbolic<'_>, symbol: &str, size: u64) -> bool {
    let has_size =
        |library: &Symbolic<'_>| library.of_image.defines.get(symbol).is_some_and(|d| d.size == size);
    let of_another = || all.iter().any(|other| other.name != library.name && has_size(other));
    has_size(library) || pay_symbols(fit, all.len()).is_err() || !of_another()
}

/// Why some program of the image might not run with the host's libraries.
fn first_gap(fit: &Fit<'_>, pairs: &[Pair], others: &[Installation]) -> Result<Option<String>, String> {
    if let Some(other) = others.first() {
        return Ok(Some(format!("the image has {other}, too, and the host has none of that ABI")));
    }
    for pair in pairs {
        if let Some(left) = pair.left().next() {
            return Ok(Some(format!("the host's MPI has no {left}, which the image has")));
        }
        let all = symbolic(fit, &pair.replaced.iter().collect::<Vec<_>>())?;
        for library in &all {
            pay_symbols(fit, library.of_image.defines.len())?;
            let versions = || versions(fit, library.host, library.image);
            let public = library.of_image.defines.iter().filter(|(symbol, _)| family::is_public(symbol));
            for (symbol, old) in public {
                match defined(fit, &all, library, symbol) {
                    None => return Ok(Some(format!("{} lacks {symbol}", versions()))),
                    Some(new) if old.is_data && new.size != old.size => {
                        let (new, old) = (new.size, old.size);
                        return Ok(Some(format!(
                            "{symbol} has {new} bytes in {}, instead of {old}",
                            versions()
                        )));
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(None)
}

/// A library of the host's beside the image's, by the names of their files, which have the version.
fn versions(fit: &Fit<'_>, host: &Path, image: &Path) -> String {
    let file = |tree: &Tree, path: &Path| {
        tree.real(path)
            .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .unwrap_or_default()
    };
    let (host, image) = (file(fit.host.tree(), host), file(fit.container.tree(), image));
    format!("the host's {host} (the image's is {image})")
}

/// The pair's own line for people.
pub(super) fn shown(fit: &Fit<'_>, pair: &Pair) -> String {
    let of_c = pair.replaced.iter().find(|r| Name::parse(&r.name).is_some_and(|name| name.role == C));
    let versions = of_c.and_then(|replaced| Some(versions(fit, &replaced.host, replaced.images.first()?)));
    format!("{}: {}", pair.host.abi, versions.unwrap_or_default())
}
