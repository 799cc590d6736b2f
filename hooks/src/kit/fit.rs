//! Whether libraries of the host run in a container: by their symbol versions, before anything is injected.

use super::edits::{Access, Edits};
use super::libraries::{Libraries, NamedLibrary};
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

/// Compares the libraries that may be brought with those that are there.
pub(crate) struct Fit<'a> {
    /// The host's.
    pub host: Libraries<'a>,
    /// The container's.
    pub container: Libraries<'a>,
    /// Machine and ABI, as in ld.so.cache.
    pub flags: i32,
}

impl<'a> Fit<'a> {
    /// The libraries of both trees, of this program's machine.
    pub(crate) fn new(host: &'a Tree, container: &'a Tree) -> Fit<'a> {
        let machine =
            if cfg!(target_arch = "aarch64") { elf::machine::AARCH64 } else { elf::machine::X86_64 };
        let flags = elf::cache_flags(machine, Class::Elf64).unwrap_or_default();
        Fit { host: Libraries::of(host), container: Libraries::of(container), flags }
    }

    /// `wanted` of the host and everything of the host's that it needs and the container lacks; else why it would
    /// not run there.
    pub(crate) fn set(&self, wanted: &[NamedLibrary]) -> Result<LibrarySet, String> {
        let mut set: LibrarySet = wanted.iter().map(|l| (l.name.clone(), l.path.clone())).collect();
        let mut todo = wanted.to_vec();
        while let Some(NamedLibrary { name, path }) = todo.pop() {
            let Some(elf) = self.host.elf(&path) else {
                return Err(format!("the host's {} is no library", path.display()));
            };
            for need in self.needs(&elf, &name, &set)? {
                if !set.contains_key(&need) {
                    let path = self.host.find(&need, self.flags);
                    let path = path.ok_or_else(|| {
                        format!("neither container nor host has {need}, which {name} needs")
                    })?;
                    set.insert(need.clone(), path.clone());
                    todo.push(NamedLibrary { name: need, path });
                }
            }
        }
        set.iter().try_for_each(|(name, path)| self.replaces(name, path))?;
        Ok(set)
    }

    /// The libraries that `elf` needs and the container has not, or has in a version that is too old.
    fn needs(&self, elf: &Elf, name: &str, set: &LibrarySet) -> Result<Vec<String>, String> {
        let mut missing = Vec::new();
        for library in elf.needed.iter().filter(|library| !set.contains_key(*library)) {
            let there = self.container.find(library, self.flags).and_then(|path| self.container.elf(path));
            let versions =
                elf.requires.iter().filter(|need| need.library == *library).map(|need| &need.version);
            let lacking =
                versions.into_iter().find(|v| there.as_ref().is_none_or(|elf| !elf.defines.contains(v)));
            let is_libc = LIBC.contains(&library.as_str()) || library.starts_with("ld-linux");
            match (&there, lacking) {
                (Some(_), None) => {}
                (None, _) if is_libc => {
                    return Err(format!("{name} needs {library}, which the container has not"));
                }
                (Some(elf), Some(version)) if is_libc => {
                    let newest = newest(&elf.defines).unwrap_or("no versions");
                    return Err(format!(
                        "{name} needs {version} of {library}, and the container's has {newest}"
                    ));
                }
                _ => missing.push(library.clone()),
            }
        }
        Ok(missing)
    }

    /// An error where the host's library lacks versions that the container's one of this name has: programs of the
    /// container may need them.
    fn replaces(&self, name: &str, path: &Path) -> Result<(), String> {
        let Some(old) = self.container.find(name, self.flags).and_then(|path| self.container.elf(path))
        else {
            return Ok(());
        };
        let new = self.host.elf(path);
        let defines = |v| new.as_ref().is_some_and(|new| new.defines.contains(v));
        // Only libraries of the same release use each other's private versions, and these come together.
        let lost = old.defines.iter().find(|v| !v.contains("PRIVATE") && !defines(v));
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
