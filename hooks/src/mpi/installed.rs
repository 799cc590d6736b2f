//! The MPI libraries of the image and of the host: where they are, and of which ABI.

use super::family::{self, Abi, C, Name, Role};
use crate::kit::bundle::Bundle;
use crate::kit::fit::Fit;
use crate::kit::libraries::Libraries;
use crate::kit::tree::Tree;
use rt_sys::bail;
use rt_sys::error::Result;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The variable by which the caller or the site says where the host's library is.
pub(super) const LIBRARY: &str = "RT_MPI_LIBRARY";

/// Directories where MPI is found beside those of the loader. `*` stands for any one name.
const DIRECTORIES: &[&str] = &[
    "/usr/local/lib64",
    "/usr/local/*/lib",
    "/usr/lib64/openmpi/lib",
    "/usr/lib64/mpich/lib",
    "/usr/lib64/mpi/gcc/*/lib64",
    "/opt/*/lib",
    "/opt/*/lib64",
    "/opt/*/*/lib",
    "/opt/*/*/lib64",
];
/// The most directories that one pattern stands for: an image can have any number.
const MOST: usize = 256;

/// The libraries of one MPI.
#[derive(Clone, Debug)]
pub(super) struct Installation {
    pub abi: Abi,
    pub number: u32,
    /// By name; of each the files, first what the loader takes.
    pub libraries: BTreeMap<String, Vec<PathBuf>>,
}

impl Installation {
    /// The first name and file of a role.
    pub(super) fn of_role(&self, role: Role) -> Option<(&str, &Path)> {
        let of_role = |name: &str| Name::parse(name).is_some_and(|name| name.role == role);
        let (name, files) = self.libraries.iter().find(|(name, _)| of_role(name))?;
        Some((name, files.first()?))
    }
}

impl fmt::Display for Installation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.abi, self.of_role(C).map_or("", |(name, _)| name))
    }
}

/// All of the image's, with those in `dirs`.
pub(super) fn of_image(fit: &Fit<'_>, dirs: &[PathBuf]) -> Vec<Installation> {
    let tree = fit.container.tree();
    let dirs: Vec<PathBuf> = dirs.iter().cloned().chain(directories(tree)).collect();
    grouped(tree, everywhere(&fit.container, fit.flags, &dirs))
}

/// Those of the host that count: of the place that the caller names, else of the module that the caller has loaded, else of
/// the host's loader. With where they are, for errors.
pub(super) fn of_host(fit: &Fit<'_>, bundle: &Bundle) -> Result<(Vec<Installation>, String)> {
    let tree = fit.host.tree();
    if let Some(place) = bundle.caller(LIBRARY) {
        let path = Path::new(place);
        if !path.is_absolute() {
            bail!("{LIBRARY}={place}: not an absolute path");
        }
        let found = if tree.has_dir(path) {
            in_dir(tree, path, fit.flags)
        } else {
            let dir = path.parent().unwrap_or(Path::new("/"));
            let mut found = in_dir(tree, dir, fit.flags);
            found.retain(|one| {
                one.libraries.values().flatten().any(|file| tree.real(file) == tree.real(path))
            });
            found
        };
        if found.is_empty() {
            bail!("{LIBRARY}={place}: no MPI library of this machine is there");
        }
        return Ok((found, format!("{LIBRARY}={place}")));
    }
    for (dir, variable) in module_dirs(bundle) {
        let found = in_dir(tree, &dir, fit.flags);
        if !found.is_empty() {
            return Ok((found, format!("{variable} names {}", dir.display())));
        }
    }
    let found = grouped(tree, everywhere(&fit.host, fit.flags, &[]));
    Ok((found, "the host's loader finds it".to_owned()))
}

/// Where the host's libraries look first for what they need: beside the library that the caller names, and where the
/// caller's environment says. A site may have them there without RUNPATH.
pub(super) fn search_dirs(bundle: &Bundle, host: &Tree) -> Vec<PathBuf> {
    let named = bundle.caller(LIBRARY).map(PathBuf::from).filter(|path| path.is_absolute());
    let named = named.map(|path| match host.has_dir(&path) {
        true => path,
        false => path.parent().unwrap_or(Path::new("/")).to_owned(),
    });
    named.into_iter().chain(module_dirs(bundle).into_iter().map(|(dir, _)| dir)).collect()
}

/// Where the caller's environment says that libraries are, with the variable that does. A hook in the container's
/// namespaces has no caller's environment, see [`Bundle::caller`].
fn module_dirs(bundle: &Bundle) -> Vec<(PathBuf, &'static str)> {
    let path = bundle.caller("LD_LIBRARY_PATH").unwrap_or_default();
    let mut all: Vec<(PathBuf, &str)> =
        path.split(':').map(|dir| (PathBuf::from(dir), "LD_LIBRARY_PATH")).collect();
    for (name, dirs) in [("MPI_HOME", ["lib", "lib64"]), ("I_MPI_ROOT", ["lib", "lib/release"])] {
        let home = bundle.caller(name).map(Path::new);
        all.extend(home.into_iter().flat_map(|home| dirs.map(|dir| (home.join(dir), name))));
    }
    all.retain(|(dir, _)| dir.is_absolute());
    all
}

/// The files of all names of MPI that a loader of `libraries` may find.
fn everywhere(libraries: &Libraries<'_>, flags: i32, dirs: &[PathBuf]) -> BTreeMap<String, Vec<PathBuf>> {
    let tree = libraries.tree();
    let near = dirs.iter().take_while(|_| !tree.is_used_up());
    let mut names: Vec<String> = near.flat_map(|dir| names_in(tree, dir)).collect();
    for stem in family::stems() {
        let found = libraries.named(&format!("{stem}.so")).into_iter().filter(|found| found.flags == flags);
        names.extend(found.flat_map(|found| found.names).filter(|name| Name::parse(name).is_some()));
    }
    names.sort_unstable();
    names.dedup();
    let files = names.into_iter().take_while(|_| !tree.is_used_up()).map(|name| {
        let files = libraries.all(&name, flags, dirs);
        (name, files)
    });
    files.filter(|(_, files)| !files.is_empty()).collect()
}

/// What is in one directory.
fn in_dir(tree: &Tree, dir: &Path, flags: i32) -> Vec<Installation> {
    let files = names_in(tree, dir).into_iter().map(|name| {
        let path = dir.join(&name);
        (name, vec![path])
    });
    let fits = |path: &Path| tree.elf(path).is_some_and(|elf| elf.cache_flags() == Some(flags));
    grouped(tree, files.filter(|(_, files)| files.iter().all(|path| fits(path))).collect())
}

/// The names of MPI's libraries in a directory.
fn names_in(tree: &Tree, dir: &Path) -> Vec<String> {
    tree.list(dir).into_iter().filter(|name| Name::parse(name).is_some()).collect()
}

/// The libraries by ABI and number. Of each the one that has MPI itself tells the ABI; without it, the others are nothing.
fn grouped(tree: &Tree, files: BTreeMap<String, Vec<PathBuf>>) -> Vec<Installation> {
    let mut all: BTreeMap<(Abi, u32), Installation> = BTreeMap::new();
    for (name, paths) in &files {
        let Some(read) = Name::parse(name).filter(|read| read.role == C) else { continue };
        for path in paths {
            let Some(symbols) = tree.symbols(path) else { continue };
            let Some(abi) = family::abi_of(&read, &symbols) else { continue };
            let number = read.number;
            let new = || Installation { abi, number, libraries: BTreeMap::new() };
            let found = all.entry((abi, number)).or_insert_with(new);
            found.libraries.entry(name.clone()).or_default().push(path.clone());
        }
    }
    for (name, paths) in files {
        let Some(read) = Name::parse(&name).filter(|read| read.role != C) else { continue };
        if let Some(found) = read.abi.and_then(|abi| all.get_mut(&(abi, read.number))) {
            found.libraries.insert(name, paths);
        }
    }
    all.into_values().collect()
}

/// The directories of [`DIRECTORIES`] that are there.
pub(super) fn directories(tree: &Tree) -> Vec<PathBuf> {
    let expand = |pattern: &&str| {
        let mut found = vec![PathBuf::from("/")];
        for part in pattern.split('/').filter(|part| !part.is_empty()) {
            found = match part {
                "*" => found
                    .iter()
                    .flat_map(|dir| tree.list(dir).into_iter().map(|name| dir.join(name)))
                    .take(MOST)
                    .collect(),
                _ => found.into_iter().map(|dir| dir.join(part)).collect(),
            };
        }
        found.retain(|dir| tree.has_dir(dir));
        found
    };
    DIRECTORIES.iter().flat_map(expand).collect()
}
