//! Shared libraries: which the host has, and how the container's dynamic loader comes to find them.

use super::apply;
use super::edits::Edits;
use super::tree::Tree;
use ld_so_cache::elf::Elf;
use ld_so_cache::{Cache, CacheEntry, CacheReader, LD_CACHE, NameMatch};
use rt_sys::error::Result;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Directories that are searched where there is no ld.so.cache.
const DIRECTORIES: &[&str] = &[
    "/lib64",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/usr/lib/i386-linux-gnu",
    "/usr/lib/i386-linux-gnu/nvidia/current",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
    // ROCm's own packages do not enter it in ld.so.conf.
    "/opt/rocm/lib",
];

/// The most libraries of one name that are looked at.
const MOST: usize = 1024;

/// The entries of an ld.so.cache that are scanned for a short name in the time of one look at a path.
const ENTRIES_A_LOOK: usize = 256;

/// The bytes of a name that are compared in the time of one entry.
const BYTES_AN_ENTRY: usize = 64;

/// A library of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLibrary {
    /// What programs ask for: SONAME and links.
    pub names: Vec<String>,
    /// The file itself, no link.
    pub path: PathBuf,
    /// Machine and ABI, as in ld.so.cache.
    pub flags: i32,
}

impl FoundLibrary {
    /// The file's own name.
    pub fn file_name(&self) -> &str {
        self.path.file_name().and_then(|n| n.to_str()).unwrap_or_default()
    }
}

/// A library by the name that programs ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLibrary {
    /// The SONAME, or a name that dlopen(3) is called with.
    pub name: String,
    /// Where it is in its tree.
    pub path: PathBuf,
}

/// The libraries that a tree's dynamic loader finds.
#[derive(Debug)]
pub struct Libraries<'a> {
    tree: &'a Tree,
    known: Known<'a>,
}

/// The libraries that are known by name.
#[derive(Debug)]
enum Known<'a> {
    /// Those of the tree's ld.so.cache.
    Cache(CacheReader<'a>),
    /// Those of the library directories, in the form of such a cache.
    Listed(Cache<'static>),
}

impl Known<'_> {
    /// How many there are, of any name.
    fn count(&self) -> usize {
        match self {
            Known::Cache(reader) => reader.count(),
            Known::Listed(cache) => cache.entries.len(),
        }
    }
}

impl<'a> Libraries<'a> {
    /// Reads the tree's ld.so.cache; where it has none, lists its library directories.
    pub fn of(tree: &'a Tree) -> Libraries<'a> {
        let reader = tree.ld_cache().and_then(|bytes| CacheReader::parse(bytes).ok());
        Libraries {
            tree,
            known: reader.map_or_else(|| Known::Listed(listed(tree, DIRECTORIES)), Known::Cache),
        }
    }

    /// The libraries in these directories of a tree, whatever its dynamic loader knows.
    pub fn in_dirs(tree: &'a Tree, dirs: &[&str]) -> Libraries<'a> {
        Libraries { tree, known: Known::Listed(listed(tree, dirs)) }
    }

    /// The libraries of that name in the order of the loader. Their number is bounded, and the scan is paid for, because the
    /// cache of an image can have any number of entries.
    fn entries(&self, name: NameMatch<'_>) -> Vec<CacheEntry<'_>> {
        let (NameMatch::Exact(text) | NameMatch::AnyVersion(text)) = name;
        let work = self.known.count().saturating_mul(1 + text.len() / BYTES_AN_ENTRY);
        if !self.tree.pay(work / ENTRIES_A_LOOK) {
            return Vec::new();
        }
        match &self.known {
            Known::Cache(reader) => reader.named(name).take(MOST).collect(),
            Known::Listed(cache) => {
                let found = cache.entries.iter().filter(|entry| name.matches(&entry.name));
                found.take(MOST).cloned().collect()
            }
        }
    }

    /// Those of [`Libraries::entries`] that run on every processor.
    fn plain(&self, name: NameMatch<'_>) -> Vec<CacheEntry<'_>> {
        let mut all = self.entries(name);
        all.retain(|e| e.subdirectory.is_none());
        all
    }

    /// What the loader takes for `name`.
    pub fn find(&self, name: &str, flags: i32) -> Option<PathBuf> {
        let listed = self.plain(NameMatch::Exact(name)).into_iter().find(|e| e.flags == flags);
        let listed = listed.map(|e| PathBuf::from(&*e.path)).filter(|path| self.tree.has(path));
        listed.or_else(|| self.in_directories(name, flags))
    }

    /// What the loader takes for `name` where it searches `dirs` first.
    pub fn find_with(&self, name: &str, flags: i32, dirs: &[PathBuf]) -> Option<PathBuf> {
        let mut paths = dirs.iter().take_while(|_| !self.tree.is_used_up()).map(|dir| dir.join(name));
        let near = paths.find(|path| self.elf(path).is_some_and(|elf| elf.cache_flags() == Some(flags)));
        near.or_else(|| self.find(name, flags))
    }

    /// Every file that a loader of the tree may take for `name`, each once and without links: those of the cache, for any
    /// processor, and those in the default directories and in `dirs`. An image may name any number of them, so that number is
    /// bounded.
    pub fn all(&self, name: &str, flags: i32, dirs: &[PathBuf]) -> Vec<PathBuf> {
        let entries = self.entries(NameMatch::Exact(name));
        let listed = entries.iter().filter(|e| e.flags == flags).map(|e| PathBuf::from(&*e.path));
        let near = DIRECTORIES.iter().map(Path::new).chain(dirs.iter().map(PathBuf::as_path));
        let (mut all, mut seen) = (Vec::new(), HashSet::new());
        for path in listed.chain(near.take(MOST).map(|dir| dir.join(name))) {
            if self.tree.is_used_up() {
                break;
            }
            let Some(real) = self.tree.real(&path) else { continue };
            let is_new = seen.insert(real.clone());
            if is_new && self.elf(&real).is_some_and(|elf| elf.cache_flags() == Some(flags)) {
                all.push(real);
            }
        }
        all
    }

    /// The loader searches its default directories after the cache: a library may be newer than the last run of ldconfig.
    fn in_directories(&self, name: &str, flags: i32) -> Option<PathBuf> {
        let paths = DIRECTORIES.iter().map(|dir| Path::new(dir).join(name));
        paths.into_iter().find(|path| self.elf(path).is_some_and(|elf| elf.cache_flags() == Some(flags)))
    }

    /// The tree that they are in.
    pub fn tree(&self) -> &'a Tree {
        self.tree
    }

    /// What the loader sees of the library at `path`.
    pub fn elf(&self, path: impl AsRef<Path>) -> Option<Rc<Elf>> {
        self.tree.elf(path)
    }

    /// All libraries called `stem` or `stem.…` (`libcuda.so`), each file once, with all names it goes by.
    pub fn named(&self, stem: &str) -> Vec<FoundLibrary> {
        let mut all: Vec<FoundLibrary> = Vec::new();
        for entry in self.plain(NameMatch::AnyVersion(stem)) {
            let Some(name) = entry.name.to_str() else { continue };
            let Some(path) = self.tree.real(&*entry.path) else { continue };
            match all.iter_mut().find(|f| f.path == path) {
                Some(found) if found.names.iter().any(|n| n == name) => {}
                Some(found) => found.names.push(name.to_owned()),
                None => all.push(FoundLibrary { names: vec![name.to_owned()], path, flags: entry.flags }),
            }
        }
        all
    }

    /// The newest library `stem.…` of an ABI, by its SONAME: of those that the loader finds, else of those in the library
    /// directories.
    pub fn newest(&self, stem: &str, flags: i32) -> Option<NamedLibrary> {
        let found = self.named(stem).into_iter().filter(|found| found.flags == flags);
        let mut paths: Vec<PathBuf> = found.map(|found| found.path).collect();
        if paths.is_empty() {
            let begins = |name: &String| name.strip_prefix(stem).is_some_and(|rest| rest.starts_with('.'));
            let in_dir = |dir: &&str| -> Vec<PathBuf> {
                let names = self.tree.list(dir).into_iter().filter(begins);
                names.map(|name| Path::new(dir).join(name)).collect()
            };
            paths = DIRECTORIES.iter().map(in_dir).find(|found| !found.is_empty())?;
        }
        let named = paths.into_iter().filter_map(|path| {
            let elf = self.elf(&path).filter(|elf| elf.cache_flags() == Some(flags))?;
            Some(NamedLibrary { name: elf.soname.clone()?, path })
        });
        named.max_by(|a, b| ld_so_cache::compare(a.name.as_ref(), b.name.as_ref()))
    }
}

/// The directories that a library or program at `path` has searched for what it needs, in the order of ld.so(8), with
/// `first` (those of LD_LIBRARY_PATH) at their place.
pub fn search_dirs(elf: &Elf, path: &Path, first: &[PathBuf]) -> Vec<PathBuf> {
    let origin = path.parent().unwrap_or(Path::new("/")).display().to_string();
    let expand = |dir: &String| PathBuf::from(dir.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin));
    // Where there is a DT_RUNPATH, DT_RPATH does not count.
    let before = elf.rpath.iter().filter(|_| elf.runpath.is_empty()).map(expand);
    let all = before.chain(first.iter().cloned()).chain(elf.runpath.iter().map(expand));
    all.filter(|dir| dir.is_absolute()).collect()
}

/// Library directories in the form of a cache, as ldconfig would make one.
fn listed(tree: &Tree, dirs: &[&str]) -> Cache<'static> {
    let mut cache = Cache::default();
    let mut seen = HashSet::new();
    for dir in dirs {
        let Some(real) = tree.real(dir) else { continue };
        if !seen.insert(real.clone()) {
            continue;
        }
        let names = tree.list(&real);
        for name in names.iter().filter(|n| n.starts_with("lib") && n.contains(".so")) {
            let path = real.join(name);
            let Some(elf) = tree.elf(&path) else { continue };
            let Some(flags) = elf.cache_flags() else { continue };
            for name in elf.soname.iter().filter(|soname| *soname != name).chain([name]) {
                cache.entries.push(CacheEntry::owned(name, &path, flags));
            }
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
        ];
        let glibc = tree.ld_cache().is_some() || loaders.iter().any(|path| tree.has(path));
        LibC { glibc, musl: tree.has(musl_loader()) }
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
        let mut cache = match container.ld_cache() {
            Some(bytes) => Cache::parse(bytes).unwrap_or_else(|e| {
                edits.notes.push(format!("the container's {LD_CACHE} is replaced: {e}"));
                listed(container, DIRECTORIES)
            }),
            None => listed(container, DIRECTORIES),
        };
        cache.add_first(edits.libraries.iter().map(|l| CacheEntry::new(&l.name, &l.path, l.flags)).collect());
        let bytes = cache.to_bytes();
        edits.file(LD_CACHE, bytes);
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

/// The directory of a hook in the container. It is below /run, which every image has, and in which no image keeps files; where something
/// is bound there, as with `-v /run:/run`, in which a hook makes nothing, below another directory that images leave to their users. Where
/// none of them will do, it cannot be made, which is an error that says what to do.
pub fn private_dir(container: &Tree, hook: &str) -> PathBuf {
    let places = ["/run", "/dev", "/tmp", "/mnt", "/media", "/srv", "/opt"];
    let dirs = places.map(|place| Path::new(place).join("rt").join(hook));
    // Below the place, too, something may be bound.
    let is_own = |dir: &Path| apply::is_own(container, dir) || !container.has(dir);
    let fits = |dir: &&PathBuf| {
        let [_, rt, place] = [0, 1, 2].map(|n| dir.ancestors().nth(n).unwrap_or(dir));
        apply::is_own(container, place) && is_own(rt) && is_own(dir)
    };
    dirs.iter().find(fits).unwrap_or(&dirs[0]).clone()
}

/// The directory for programs: one of the container's PATH, if possible one with few entries. Each entry of a directory
/// that is covered by a tmpfs costs a mount.
pub fn program_dir(container: &Tree, path: Option<&str>) -> PathBuf {
    let path = path.unwrap_or("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let dirs: Vec<&str> = path.split(':').filter(|dir| dir.starts_with('/')).collect();
    let preferred = ["/usr/local/sbin", "/usr/local/bin"].into_iter().filter(|dir| dirs.contains(dir));
    let chosen = preferred.chain(dirs.iter().copied()).find(|dir| container.has_dir(dir));
    PathBuf::from(chosen.unwrap_or("/usr/bin"))
}
