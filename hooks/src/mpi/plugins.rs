//! What the host's libraries open at run time: plugins and the files of their settings.

use crate::kit::edits::{Access, Edits};
use crate::kit::fit::LibrarySet;
use crate::kit::tree::Tree;
use std::path::{Path, PathBuf};

/// A library that opens plugins: how its name begins, where they are beside it, and how theirs begin.
struct Opener {
    name: &'static str,
    /// Below the directory of the library; a `*` ends the name of the last part.
    dirs: &'static [&'static str],
    begin: &'static str,
    /// The library looks beside itself, wherever it is; others look where they were built for.
    beside: bool,
}

const OPENERS: &[Opener] = &[
    Opener {
        name: "libopen-pal.so.",
        dirs: &["openmpi*", "openmpi/lib/openmpi*"],
        begin: "mca_",
        beside: false,
    },
    Opener { name: "libpmix.so.", dirs: &["pmix*", "pmix2/lib/pmix*"], begin: "pmix_mca_", beside: false },
    Opener { name: "libpmix.so.", dirs: &["pmix*"], begin: "mca_", beside: false },
    Opener { name: "libfabric.so.", dirs: &["libfabric"], begin: "lib", beside: false },
    Opener { name: "libucs.so.", dirs: &["ucx"], begin: "lib", beside: true },
];

/// Where the settings and messages of a library are, by how its name begins: below the prefix that it was built for.
const FILES: &[(&str, &[&str])] = &[
    ("libopen-pal.so.", &["share/openmpi", "etc/openmpi", "etc/openmpi-mca-params.conf"]),
    ("libpmix.so.", &["share/pmix", "etc/pmix", "etc/pmix-mca-params.conf"]),
];

/// A directory of plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plugins {
    pub dir: PathBuf,
    /// Where it goes in the container: beside its library, or where it is on the host.
    pub beside: bool,
    pub files: Vec<PathBuf>,
}

/// The plugins of the libraries in `set`.
pub(super) fn of(set: &LibrarySet, host: &Tree) -> Vec<Plugins> {
    let mut all: Vec<Plugins> = Vec::new();
    for (name, path) in set {
        for opener in OPENERS.iter().filter(|opener| name.starts_with(opener.name)) {
            let Some(beside) = host.real(path).and_then(|path| Some(path.parent()?.to_owned())) else {
                continue;
            };
            for dir in opener.dirs.iter().flat_map(|dir| named(host, &beside, dir)) {
                let names = host.list(&dir).into_iter();
                let is_plugin = |name: &String| name.starts_with(opener.begin) && name.contains(".so");
                let files: Vec<PathBuf> = names.filter(is_plugin).map(|name| dir.join(name)).collect();
                if !files.is_empty() && !all.iter().any(|plugins| plugins.dir == dir) {
                    all.push(Plugins { dir, beside: opener.beside, files });
                }
            }
        }
    }
    all
}

/// The directories below `base` that `pattern` stands for.
fn named(host: &Tree, base: &Path, pattern: &str) -> Vec<PathBuf> {
    let Some(begin) = pattern.strip_suffix('*') else {
        let dir = base.join(pattern);
        return if host.has_dir(&dir) { vec![dir] } else { Vec::new() };
    };
    let (dir, begin) = begin.rsplit_once('/').unwrap_or(("", begin));
    let dir = base.join(dir);
    let names = host.list(&dir).into_iter().filter(|name| name.starts_with(begin));
    names.map(|name| dir.join(name)).filter(|dir| host.has_dir(dir)).collect()
}

/// The files of the settings and messages of the libraries in `set`.
fn settings(set: &LibrarySet, host: &Tree) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for (name, path) in set {
        for (_, files) in FILES.iter().filter(|(begin, _)| name.starts_with(begin)) {
            let Some(prefix) = host.real(path).and_then(|path| prefix(&path)) else { continue };
            for file in *files {
                // What is below /usr has its settings in /etc.
                let path = match file.strip_prefix("etc/") {
                    Some(rest) if prefix == Path::new("/usr") => Path::new("/etc").join(rest),
                    _ => prefix.join(file),
                };
                if host.has(&path) {
                    all.push(path);
                }
            }
        }
    }
    all
}

/// The prefix of a library's path: what stands in front of `lib` or `lib64`.
fn prefix(path: &Path) -> Option<PathBuf> {
    let is_lib = |dir: &&Path| dir.file_name().is_some_and(|name| name == "lib" || name == "lib64");
    Some(path.ancestors().filter(is_lib).last()?.parent()?.to_owned())
}

/// Adds the plugins and settings; `own` is the directory of the libraries in the container.
pub(super) fn bring(edits: &mut Edits, plugins: &[Plugins], set: &LibrarySet, host: &Tree, own: &Path) {
    for found in plugins {
        let name = found.dir.file_name().unwrap_or_default();
        let place = if found.beside { own.join(name) } else { found.dir.clone() };
        edits.bind_at(&found.dir, place, Access::ReadOnly);
    }
    settings(set, host).into_iter().for_each(|path| edits.bind(path));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_at_the_first_lib() {
        for (path, expected) in [
            ("/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so.2", Some("/usr")),
            ("/opt/openmpi/lib/libopen-pal.so.80", Some("/opt/openmpi")),
            ("/opt/openmpi/lib64/libopen-pal.so.80", Some("/opt/openmpi")),
            ("/libopen-pal.so.80", None),
        ] {
            assert_eq!(prefix(Path::new(path)).as_deref(), expected.map(Path::new), "{path}");
        }
    }
}
