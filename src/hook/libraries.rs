//! Shared libraries: which the host has, and how the container's dynamic loader comes to find them.

use super::edits::Edits;
use super::elf::Elf;
use super::ldcache::{Cache, Entry};
use super::tree::Tree;
use crate::error::Result;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Where glibc keeps what it knows.
pub const LD_CACHE: &str = "/etc/ld.so.cache";

/// Directories that are looked through where there is no ld.so.cache.
const DIRECTORIES: &[&str] = &[
    "/lib64",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/i386-linux-gnu",
    "/usr/lib/i386-linux-gnu/nvidia/current",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];

/// A library of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What programs ask for: SONAME and links.
    pub names: Vec<String>,
    /// The file itself, no link.
    pub path: PathBuf,
    /// Machine and ABI, as in ld.so.cache.
    pub flags: i32,
}

impl Found {
    /// The file's own name.
    pub fn file_name(&self) -> &str {
        self.path.file_name().and_then(|n| n.to_str()).unwrap_or_default()
    }
}

/// The libraries that a tree's dynamic loader finds.
#[derive(Debug)]
pub struct Libraries<'a> {
    tree: &'a Tree,
    cache: Cache,
}

impl<'a> Libraries<'a> {
    /// Reads the tree's ld.so.cache; where it has none, lists its library directories.
    pub fn of(tree: &'a Tree) -> Libraries<'a> {
        let cache = tree.read(LD_CACHE).and_then(|bytes| Cache::parse(&bytes).ok());
        Libraries { tree, cache: cache.unwrap_or_else(|| listed(tree)) }
    }

    /// What the loader takes for `name`.
    pub fn find(&self, name: &str, flags: i32) -> Option<PathBuf> {
        let listed = self.cache.find(name, flags).filter(|path| self.tree.has(path));
        listed.map(PathBuf::from).or_else(|| self.in_directories(name, flags))
    }

    /// The directories come after the cache: what was installed since ldconfig ran.
    fn in_directories(&self, name: &str, flags: i32) -> Option<PathBuf> {
        let paths = DIRECTORIES.iter().map(|dir| Path::new(dir).join(name));
        paths.into_iter().find(|path| self.elf(path).is_some_and(|elf| elf.cache_flags() == Some(flags)))
    }

    /// What the loader sees of the library at `path`.
    pub fn elf(&self, path: impl AsRef<Path>) -> Option<Elf> {
        Elf::read(&self.tree.file(path)?).ok()
    }

    /// All libraries called `stem` or `stem.…` (`libcuda.so`), each file once, with all names it goes by.
    pub fn named(&self, stem: &str) -> Vec<Found> {
        let mut all: Vec<Found> = Vec::new();
        for entry in self.cache.entries.iter().filter(|e| e.subdirectory.is_none()) {
            let Some(name) = entry.name.to_str() else { continue };
            if !name.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) {
                continue;
            }
            let Some(path) = self.tree.real(&entry.path) else { continue };
            match all.iter_mut().find(|f| f.path == path) {
                Some(found) if found.names.iter().any(|n| n == name) => {}
                Some(found) => found.names.push(name.to_owned()),
                None => all.push(Found { names: vec![name.to_owned()], path, flags: entry.flags }),
            }
        }
        all
    }
}

/// The library directories as a cache: without reading the files, a library's name is its file's.
fn listed(tree: &Tree) -> Cache {
    let mut cache = Cache::default();
    let mut seen = HashSet::new();
    for dir in DIRECTORIES {
        let Some(real) = tree.real(dir) else { continue };
        if !seen.insert(real.clone()) {
            continue;
        }
        let names = tree.list(&real);
        for name in names.iter().filter(|n| n.starts_with("lib") && n.contains(".so")) {
            let path = real.join(name);
            let elf = tree.file(&path).and_then(|file| Elf::read(&file).ok());
            let Some((elf, flags)) = elf.and_then(|elf| Some((elf.cache_flags()?, elf)).map(|(f, e)| (e, f)))
            else {
                continue;
            };
            if let Some(soname) = elf.soname.filter(|soname| soname != name) {
                cache.entries.push(Entry::new(soname, &path, flags));
            }
            cache.entries.push(Entry::new(name, &path, flags));
        }
    }
    cache
}

/// Which C library a container has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LibC {
    /// glibc's loader or its cache is there.
    pub glibc: bool,
    /// musl's loader is there.
    pub musl: bool,
}

impl LibC {
    /// Looks for the loaders.
    pub fn of(tree: &Tree) -> LibC {
        let loaders = [
            "/lib64/ld-linux-x86-64.so.2",
            "/lib/ld-linux-x86-64.so.2",
            "/lib/ld-linux-aarch64.so.1",
            "/lib/ld-linux.so.2",
            LD_CACHE,
        ];
        LibC { glibc: loaders.iter().any(|path| tree.has(path)), musl: tree.has(musl_loader()) }
    }
}

fn musl_loader() -> String {
    format!("/lib/ld-musl-{}.so.1", std::env::consts::ARCH)
}

/// Makes the container's loader find the libraries of `edits`: a new ld.so.cache, or musl's list of directories.
pub fn announce(edits: &mut Edits, container: &Tree) -> Result<()> {
    if edits.libraries.is_empty() {
        return Ok(());
    }
    let libc = LibC::of(container);
    if libc.glibc || !libc.musl {
        let old = match container.read(LD_CACHE) {
            Some(bytes) => Cache::parse(&bytes).unwrap_or_else(|e| {
                edits.notes.push(format!("the container's {LD_CACHE} is replaced: {e}"));
                listed(container)
            }),
            None => listed(container),
        };
        let mut cache = old;
        let new = edits.libraries.iter();
        cache.add_first(new.map(|l| Entry::new(&l.name, &l.path, l.flags)).collect());
        edits.file(LD_CACHE, cache.to_bytes());
    }
    if libc.musl {
        let path = format!("/etc/ld-musl-{}.path", std::env::consts::ARCH);
        // musl's own defaults, which such a file replaces.
        let old = container.text(&path).unwrap_or_else(|| "/lib\n/usr/local/lib\n/usr/lib".to_owned());
        let old: Vec<&str> = old.split(['\n', ':']).filter(|dir| !dir.is_empty()).collect();
        let mut dirs: Vec<String> = Vec::new();
        for library in &edits.libraries {
            let dir = library.path.parent().unwrap_or(Path::new("/")).display().to_string();
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
        let rest = old.into_iter().filter(|dir| !dirs.iter().any(|d| d == dir)).map(str::to_owned);
        let lines: Vec<String> = dirs.iter().cloned().chain(rest).collect();
        edits.file(path, lines.join("\n") + "\n");
    }
    Ok(())
}

/// The directory of a hook in the container: below /run, which every image has and nobody keeps anything in.
pub fn private_dir(container: &Tree, hook: &str) -> PathBuf {
    let place = ["/run", "/dev", "/tmp"].into_iter().find(|dir| container.has_dir(dir)).unwrap_or("/run");
    Path::new(place).join("rt").join(hook)
}

/// Where programs go: the first directory of the container's PATH that holds little, so that covering it is
/// cheap.
pub fn program_dir(container: &Tree, path: Option<&str>) -> PathBuf {
    let path = path.unwrap_or("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let dirs: Vec<&str> = path.split(':').filter(|dir| dir.starts_with('/')).collect();
    let preferred = ["/usr/local/sbin", "/usr/local/bin"].into_iter().filter(|dir| dirs.contains(dir));
    let chosen = preferred.chain(dirs.iter().copied()).find(|dir| container.has_dir(dir));
    PathBuf::from(chosen.unwrap_or("/usr/bin"))
}
