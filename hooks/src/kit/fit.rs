//! Whether libraries of the host run in a container: by their symbol versions, before anything is injected.

use super::edits::{Access, Edits};
use super::libraries::{Libraries, NamedLibrary, search_dirs};
use super::tree::Tree;
use ld_so_cache::elf::{self, Class, Elf};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The parts of the C library. They belong together, and a container keeps its own: its loader is of the same release.
const LIBC: &[&str] = &[
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libresolv.so.2",
    "libutil.so.1",
];

/// Libraries of the host that go into a container together, by the names that they are asked for.
pub(crate) type LibrarySet = BTreeMap<String, PathBuf>;

/// Which libraries come from the host for another reason than that the container lacks them.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// Symbols count beside versions: the libraries in question have none.
    pub by_symbols: bool,
    /// True for a library that belongs to those of the set, and comes with them whatever the container has.
    pub belongs: fn(&str, &LibrarySet) -> bool,
    /// True for a library that never comes from here: another hook brings it.
    pub anothers: fn(&str) -> bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { by_symbols: false, belongs: |_, _| false, anothers: |_| false }
    }
}

/// Compares the libraries that may be brought with those that are there.
pub(crate) struct Fit<'a> {
    /// The host's.
    pub host: Libraries<'a>,
    /// The container's.
    pub container: Libraries<'a>,
    /// Machine and ABI, as in ld.so.cache.
    pub flags: i32,
    /// What goes beyond versions.
    pub rules: Rules,
    /// Where the host's loader looks first: LD_LIBRARY_PATH.
    pub host_dirs: Vec<PathBuf>,
    /// Where the container's loader looks first.
    pub container_dirs: Vec<PathBuf>,
}

/// A library or plugin whose needs are to be met.
struct Dependent {
    name: String,
    path: PathBuf,
    /// What it is linked to may be missing on the host, which then does without it.
    is_plugin: bool,
}

/// Why a library of the host's is brought, for the error if it cannot be.
type Reasons = BTreeMap<String, String>;

impl<'a> Fit<'a> {
    /// The libraries of both trees, of this program's machine.
    pub(crate) fn new(host: &'a Tree, container: &'a Tree) -> Fit<'a> {
        let machine =
            if cfg!(target_arch = "aarch64") { elf::machine::AARCH64 } else { elf::machine::X86_64 };
        let flags = elf::cache_flags(machine, Class::Elf64).unwrap_or_default();
        let (host, container) = (Libraries::of(host), Libraries::of(container));
        let (host_dirs, container_dirs) = (Vec::new(), Vec::new());
        Fit { host, container, flags, rules: Rules::default(), host_dirs, container_dirs }
    }

    /// `wanted` of the host and everything of the host's that it needs and the container lacks; else why it would
    /// not run there.
    pub(crate) fn set(&self, wanted: &[NamedLibrary]) -> Result<LibrarySet, String> {
        self.set_with(wanted, &[])
    }

    /// The libraries of [`Fit::set`], and what `plugins` need, which are libraries of the host that are opened by their paths.
    pub(crate) fn set_with(
        &self,
        wanted: &[NamedLibrary],
        plugins: &[PathBuf],
    ) -> Result<LibrarySet, String> {
        let mut set: LibrarySet = wanted.iter().map(|l| (l.name.clone(), l.path.clone())).collect();
        let mut reasons = Reasons::new();
        let plugin = |path: &PathBuf| Dependent {
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            path: path.clone(),
            is_plugin: true,
        };
        let library = |name: &String, path: &PathBuf| Dependent {
            name: name.clone(),
            path: path.clone(),
            is_plugin: false,
        };
        loop {
            let of_set = set.iter().map(|(name, path)| library(name, path));
            let todo: Vec<Dependent> = plugins.iter().map(plugin).chain(of_set).collect();
            let before = set.len();
            for dependent in &todo {
                self.add_needs(dependent, &mut set, &mut reasons)?;
            }
            // What has been added needs others, and what belongs to it comes along.
            if set.len() == before {
                break;
            }
        }
        set.iter().try_for_each(|(name, path)| {
            if (self.rules.belongs)(name, &set) {
                return Ok(());
            }
            self.replaces(name, path).map_err(|why| match reasons.get(name) {
                Some(reason) => format!("{reason}, and {why}"),
                None => why,
            })
        })?;
        Ok(set)
    }

    /// Adds what `dependent` needs of the host's.
    fn add_needs(
        &self,
        dependent: &Dependent,
        set: &mut LibrarySet,
        reasons: &mut Reasons,
    ) -> Result<(), String> {
        let Some(elf) = self.host.elf(&dependent.path) else {
            return Err(format!("the host's {} is no library", dependent.path.display()));
        };
        if self.container.tree().is_used_up() {
            return Err("nothing is left to search with".to_owned());
        }
        for need in self.needs(&elf, dependent, set, reasons)? {
            match self.on_host(&need, &elf, &dependent.path) {
                Some(path) => {
                    set.insert(need, path);
                }
                None if dependent.is_plugin => {}
                None => {
                    let name = &dependent.name;
                    return Err(format!("neither container nor host has {need}, which {name} needs"));
                }
            }
        }
        Ok(())
    }

    /// What the host's loader takes for `library`, which the host's `elf` at `path` needs.
    fn on_host(&self, library: &str, elf: &Elf, path: &Path) -> Option<PathBuf> {
        let dirs = search_dirs(elf, path, &self.host_dirs);
        self.host.find_with(library, self.flags, &dirs)
    }

    /// The libraries that `elf` needs and the container has not, or has in a version that is too old.
    fn needs(
        &self,
        elf: &Elf,
        dependent: &Dependent,
        set: &LibrarySet,
        reasons: &mut Reasons,
    ) -> Result<Vec<String>, String> {
        let name = &dependent.name;
        let mut missing = Vec::new();
        let dirs = search_dirs(elf, &dependent.path, &self.container_dirs);
        for library in elf.needed.iter().filter(|library| !set.contains_key(*library)) {
            let place = self.container.find_with(library, self.flags, &dirs);
            let there = place.as_ref().and_then(|path| self.container.elf(path));
            let versions =
                elf.requires.iter().filter(|need| need.library == *library).map(|need| &need.version);
            let lacking =
                versions.into_iter().find(|v| there.as_ref().is_none_or(|elf| !elf.defines.contains(v)));
            let is_libc = LIBC.contains(&library.as_str()) || library.starts_with("ld-linux");
            match (&there, lacking) {
                (None, _) if (self.rules.anothers)(library) && dependent.is_plugin => {}
                (_, _) if (self.rules.belongs)(library, set) => missing.push(library.clone()),
                (None, _) if is_libc => {
                    return Err(format!("{name} needs {library}, which the container has not"));
                }
                (Some(elf), Some(version)) if is_libc => {
                    let newest = newest(&elf.defines).unwrap_or("no versions");
                    return Err(format!(
                        "{name} needs {version} of {library}, and the container's has {newest}"
                    ));
                }
                (Some(_), None) if is_libc || !self.rules.by_symbols => {}
                (Some(_), None) => {
                    if let Some(symbol) = self.lost_symbol(elf, dependent, library, place.as_deref()) {
                        let reason = format!("{name} needs {symbol}, which the container's {library} lacks");
                        reasons.insert(library.clone(), reason);
                        missing.push(library.clone());
                    }
                }
                (_, lacking) => {
                    if let Some(version) = lacking.filter(|_| there.is_some()) {
                        let reason = format!("{name} needs {version}, which the container's {library} lacks");
                        reasons.insert(library.clone(), reason);
                    }
                    missing.push(library.clone());
                }
            }
        }
        Ok(missing)
    }

    /// A symbol that the host's `dependent` takes from the host's `library`, and the container's, at `place`, lacks.
    fn lost_symbol(
        &self,
        elf: &Elf,
        dependent: &Dependent,
        library: &str,
        place: Option<&Path>,
    ) -> Option<String> {
        let host = self.host.tree();
        let there = self.container.tree().symbols(place?)?;
        let own = host.symbols(&dependent.path)?;
        let of_host = host.symbols(self.on_host(library, elf, &dependent.path)?)?;
        let lost = |name: &&String| of_host.defines.contains_key(*name) && !there.defines.contains_key(*name);
        own.takes.keys().find(lost).cloned()
    }

    /// An error where the host's library lacks versions or symbols that the container's one of this name has: programs of
    /// the container may need them.
    fn replaces(&self, name: &str, path: &Path) -> Result<(), String> {
        let found = self.container.find_with(name, self.flags, &self.container_dirs);
        let Some((place, old)) = found.and_then(|path| Some((path.clone(), self.container.elf(path)?)))
        else {
            return Ok(());
        };
        let new = self.host.elf(path);
        let defines = |v| new.as_ref().is_some_and(|new| new.defines.contains(v));
        // Only libraries of the same release use each other's private versions, and these come together.
        let mut lost = old.defines.iter().find(|v| !v.contains("PRIVATE") && !defines(v)).cloned();
        if self.rules.by_symbols && old.defines.is_empty() && lost.is_none() {
            let (old, new) = (self.container.tree().symbols(place), self.host.tree().symbols(path));
            if let (Some(old), Some(new)) = (old, new) {
                lost = old.defines.keys().find(|name| !new.defines.contains_key(*name)).cloned();
            }
        }
        match lost {
            None => Ok(()),
            Some(version) => Err(format!("the container's {name} has {version}, and the host's has not")),
        }
    }
}

/// `GLIBC_2.31` and the like: the last by number.
fn newest(versions: &[String]) -> Option<&str> {
    let public = versions.iter().filter(|v| !v.contains("PRIVATE"));
    public.max_by(|a, b| ld_so_cache::compare(a.as_ref(), b.as_ref())).map(String::as_str)
}

/// Binds the libraries of `set` into `dir`, by the names that programs ask for.
pub(crate) fn bring(edits: &mut Edits, set: &LibrarySet, dir: &Path, flags: i32, host: &Tree) {
    for (name, path) in set {
        let source = host.real(path).unwrap_or_else(|| path.clone());
        edits.bind_at(source, dir.join(name), Access::ReadOnly);
        edits.library(name, dir.join(name), flags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let list = |all: &[&str]| all.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>();
        let found = list(&["GLIBC_2.9", "GLIBC_2.31", "GLIBC_2.4", "GLIBC_PRIVATE"]);
        assert_eq!(newest(&found), Some("GLIBC_2.31"));
        assert_eq!(newest(&[]), None);
    }
}
