//! The store of images, what kinds of files images are, and what their own configs may say: what `rt`, which looks images up, and
//! `rt-pull` and `rt-image`, which fill the store and read the files, all know.
//!
//! ```text
//! bundles/sha256-HEX        the bundle of the image whose manifest has that digest
//! names/NAME,PLATFORM       a link to ../bundles/sha256-HEX
//! uses/sha256-HEX.BOOT...   who has used the bundle, and when; see [`mark`]
//! leases/...                who makes or removes a bundle just now; see `rt-pull`
//! ```
//!
//! A store can belong to somebody else, as a bundle can that a user runs. What it contains is up to its owner. This crate
//! sees to it that a name leads nowhere but into the store's own `bundles`, and that a store which everybody can write is
//! not used.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod fuzz;
pub mod image_file;
pub mod mark;
pub mod name;
pub mod others;
pub mod own_config;
pub mod place;
pub mod request;
pub mod run_file;
pub mod word;

pub use place::{Chosen, Place};
pub use request::{PullPolicy, Transport};

use rt_sys::error::{Context, Error, Result};
use rt_sys::owned::{self, Owned};
use rt_sys::{caller, err, fd, ns};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where the links are.
pub const NAMES: &str = "names";
/// Where the bundles are.
pub const BUNDLES: &str = "bundles";
/// Where the marks of use are.
pub const USES: &str = "uses";

/// What stands in a link in front of the bundle's name.
const TARGET: &[u8] = b"../bundles/";

/// An open store.
#[derive(Debug)]
pub struct ImageStore {
    path: PathBuf,
    dir: OwnedFd,
    owner: u32,
    /// Others than its owner can write in it, as in a team's.
    others_write: bool,
}

impl ImageStore {
    /// Opens the store at `place`; none where no directory is there.
    ///
    /// # Errors
    /// Everybody can change it, or it is neither the caller's nor root's and nobody has named it by its path.
    pub fn open(place: &Place) -> Result<Option<ImageStore>> {
        let path = &place.path;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A slash behind a link would have it followed.
        let opened: PathBuf = path.components().collect();
        let dir = match place.chosen {
            // Another user may have been first to make the directory or one above it, a link, or a mount that says whose it is.
            Chosen::ForCaller if rt_sys::mount::is_on_others_fuse(&opened)? => Err(Errno::XDEV),
            Chosen::ForCaller => rt_sys::fd::open_beside_others(&opened, flags),
            Chosen::ByCaller | Chosen::ByDefault => fs::open(&opened, flags, Mode::empty()),
        };
        let dir = match dir {
            Err(Errno::NOENT) => return Ok(None),
            dir => dir.context(|| format!("open the store of images {}", path.display()))?,
        };
        if let Some(server) = rt_sys::mount::others_server_at(&dir)? {
            return Err(err!(
                "the store of images {}: on a file system that {server} serves",
                path.display()
            ));
        }
        let owned = Owned::of(&dir)?;
        let stat = owned.stat;
        let wrong = |why: String| {
            Err(err!("the store of images {}: {why}", path.display()).hint("RT_IMAGES names another one"))
        };
        if stat.st_mode & 0o002 != 0 {
            return wrong("everybody can write in it".to_owned());
        }
        if !caller::is_trusted(stat.st_uid) {
            let why = format!("it belongs to uid {}", stat.st_uid);
            // Nobody but root chooses what root runs. In a user namespace a store of the real root is nobody's.
            if place.chosen != Chosen::ByCaller
                || caller::uid() == 0 && ns::own_maps().is_ok_and(|maps| ns::is_initial(&maps))
            {
                return wrong(why);
            }
        }
        if place.chosen == Chosen::ByDefault
            && let Some(place) = owned::strangers_place(&opened)?
        {
            return wrong(format!("others than root and the caller can change {place}"));
        }
        let others_write = owned.others_can_write(&dir, false)?;
        Ok(Some(ImageStore { path: path.clone(), dir, owner: stat.st_uid, others_write }))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its directory.
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Opens a directory of the store; none where it is not there.
    ///
    /// # Errors
    /// It is a link, or somebody else than the store's owner can change it.
    pub fn subdirectory(&self, name: &str) -> Result<Option<OwnedFd>> {
        let Some(dir) = self.open_subdirectory(name)? else { return Ok(None) };
        let stat = rt_sys::fd::stat(&dir)?;
        let known = stat.st_uid == self.owner || caller::is_trusted(stat.st_uid);
        if !known || stat.st_mode & 0o002 != 0 {
            let shown = self.path.join(name);
            return Err(err!("{}: others than the owner of the store can change it", shown.display()));
        }
        Ok(Some(dir))
    }

    /// A directory of the store that anybody may be able to change, as that of the marks ([`USES`]); `None` where it is missing.
    ///
    /// # Errors
    /// It is a link, or a file system that somebody who can write in the store has mounted.
    pub fn open_subdirectory(&self, name: &str) -> Result<Option<OwnedFd>> {
        let shown = || self.path.join(name).display().to_string();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = match self.others_write {
            // They can mount a file system there, which refuses everybody else or never answers.
            true => rt_sys::fd::open_entry(&self.dir, name, flags),
            false => fs::openat(&self.dir, name, flags, Mode::empty()),
        };
        match dir {
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::XDEV) => {
                let text = "a file system is mounted there, in a store that others can write";
                Err(err!("{}: {text}", shown()))
            }
            dir => Ok(Some(dir.context(|| format!("open {}", shown()))?)),
        }
    }

    /// The bundle that a name stands for. `key` is made by [`name::key`].
    ///
    /// # Errors
    /// The name leads elsewhere than into the store's bundles.
    pub fn find(&self, key: &str) -> Result<Option<String>> {
        let Some(names) = self.subdirectory(NAMES)? else { return Ok(None) };
        let Some(bundle) = self.link(names.as_fd(), key)? else { return Ok(None) };
        Ok(if self.has(&bundle)? { Some(bundle) } else { None })
    }

    /// The bundle's name in the link `key`, whether or not the bundle is there.
    pub fn link(&self, names: BorrowedFd<'_>, key: &str) -> Result<Option<String>> {
        let shown = || format!("the name {}", self.path.join(NAMES).join(key).display());
        let target = match fs::readlinkat(names, key, Vec::with_capacity(128)) {
            Err(Errno::NOENT) => return Ok(None),
            target => target.context(shown)?,
        };
        let bundle = target.as_bytes().strip_prefix(TARGET).and_then(|name| std::str::from_utf8(name).ok());
        match bundle.filter(|name| is_bundle_name(name)) {
            Some(bundle) => Ok(Some(bundle.to_owned())),
            None => Err(err!("{}: leads to no bundle of the store", shown())),
        }
    }

    /// Opens a bundle's directory, as a place in the tree (O_PATH); none where there is none. What somebody has mounted on one
    /// of his is no bundle, and is not asked.
    pub fn open_bundle(&self, bundle: &str) -> Result<Option<OwnedFd>> {
        let Some(bundles) = self.subdirectory(BUNDLES)? else { return Ok(None) };
        match rt_sys::fd::open_entry(&bundles, bundle, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(dir) => Ok(Some(dir)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV) => Ok(None),
            Err(e) => Err(e).context(|| format!("look for {}", self.bundle(bundle).display())),
        }
    }

    /// True where the bundle is there.
    pub fn has(&self, bundle: &str) -> Result<bool> {
        Ok(self.open_bundle(bundle)?.is_some())
    }

    /// Where the bundle is.
    pub fn bundle(&self, bundle: &str) -> PathBuf {
        self.path.join(BUNDLES).join(bundle)
    }
}

/// The target of a link to `bundle`.
pub fn link_target(bundle: &str) -> Vec<u8> {
    [TARGET, bundle.as_bytes()].concat()
}

/// The name of the bundle of the image whose manifest has this digest. Half of a longer digest still names one image, and
/// leaves room for what stands behind it in the name of a mark.
pub fn bundle_name(algorithm: &str, hex: &str) -> String {
    format!("{algorithm}-{}", &hex[..hex.len().min(64)])
}

/// The name of the bundle that the digest of a manifest, as `rt images -q` prints it, stands for. None for every other text: what
/// looks so is no name that a registry has.
pub fn bundle_of_digest(text: &str) -> Option<String> {
    let (algorithm, hex) = text.split_once(':')?;
    let length = match algorithm {
        "sha256" => 64,
        "sha512" => 128,
        _ => return None,
    };
    let name = (hex.len() == length && hex.is_ascii()).then(|| bundle_name(algorithm, hex))?;
    is_bundle_name(&name).then_some(name)
}

/// True for what [`bundle_name`] gives.
pub fn is_bundle_name(name: &str) -> bool {
    name.split_once('-').is_some_and(|(algorithm, hex)| {
        ["sha256", "sha512"].contains(&algorithm)
            && hex.len() == 64
            && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// True for the path of a bundle in a store. Its root is the directory [`ROOT`] in it, whatever its config says: a name chose
/// it, and others may have written that config.
pub fn is_stored(bundle: &Path) -> bool {
    in_store(bundle).is_some()
}

/// The store that a bundle is in, by the path of the bundle alone, and the bundle's path from there.
fn in_store(bundle: &Path) -> Option<(&Path, PathBuf)> {
    let name = bundle.file_name().filter(|name| is_bundle_of(name))?;
    let bundles = bundle.parent().filter(|dir| dir.file_name() == Some(OsStr::new(BUNDLES)))?;
    let store = bundles.parent().filter(|store| !store.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some((store, Path::new(BUNDLES).join(name)))
}

/// The bundle of a store that `path` names, by the way that the caller has named and by what links on it say: what has the place of
/// a bundle is not followed, nor what has that of the directory of the bundles, nor a link in a bundle that others can change. The
/// store's own path has no link. `None` where the path leads to no store, or to nothing.
///
/// # Errors
/// The kernel does not say; ELOOP for more links than it follows.
pub fn find_stored(path: &Path) -> Result<Option<PathBuf>> {
    Ok(entered_on_way(path)?.filter(|(_, below)| below.as_os_str().is_empty()).map(|(bundle, _)| bundle))
}

/// The bundle of a store at which the way ends, or the first on it that others can change, from which no link leads on; and the way
/// that is left.
fn entered_on_way(path: &Path) -> Result<Option<(PathBuf, PathBuf)>> {
    stored_on_way(path, |bundle, is_end| Ok(is_end || others::who_changes(bundle)?.is_some()))
}

/// The first bundle of a store on the way that `is_wanted`, which is also told whether the way ends there; and the way that is left.
fn stored_on_way(
    path: &Path,
    mut is_wanted: impl FnMut(&Path, bool) -> Result<bool>,
) -> Result<Option<(PathBuf, PathBuf)>> {
    let parts = |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect();
    // Where the way is, without a link, and what is still to be gone, the next part last.
    let (mut at, mut rest): (PathBuf, Vec<OsString>) = (PathBuf::new(), parts(&fd::absolute(path)?));
    // So many the kernel follows, too (path_resolution(7)).
    let mut links = 40;
    while let Some(part) = rest.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        let is_of_bundles = part == BUNDLES && rest.last().is_some_and(|name| is_bundle_of(name));
        let is_bundle = is_bundle_of(&part) && at.ends_with(BUNDLES);
        if is_bundle && is_wanted(&next, rest.is_empty())? {
            return Ok(Some((next, rest.iter().rev().collect())));
        }
        if is_of_bundles || is_bundle {
            at = next;
            continue;
        }
        match fs::readlink(&next, Vec::new()) {
            Ok(target) => {
                if links == 0 {
                    return Err(Errno::LOOP).context(|| path.display());
                }
                links -= 1;
                rest.append(&mut parts(Path::new(OsStr::from_bytes(target.as_bytes()))));
            }
            // No link.
            Err(Errno::INVAL) => at = next,
            // What the caller may not look at he reaches by a descriptor alone, as by /dev/stdin.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(None),
            Err(e) => return Err(e).context(|| format!("look at {}", next.display())),
        }
    }
    Ok(None)
}

fn is_bundle_of(name: &OsStr) -> bool {
    name.to_str().is_some_and(is_bundle_name)
}

/// Whose word the config of a bundle is, by the way that the caller has named it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// The caller's, whoever owns it: by its whole path, or by a name in a directory of his own.
    Callers,
    /// That of whoever owns the config at the time at which that is read: others may put another one there.
    Owners,
    /// It counts as one of a store.
    Stores,
}

/// Opens the bundle `path` as a place in the tree (O_PATH), and says whose word its config is. It counts as one of a store where it was named
/// as such, or by a way through one that others can change; then by no link, and by none from that bundle on. Or the way begins at a
/// directory that is open, whose name others may have changed since, and leads to what is theirs.
///
/// # Errors
/// Those of openat2(2); ELOOP for a link in a store. The way leads out of such a bundle.
pub fn open_bundle(path: &Path) -> Result<(OwnedFd, Word)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let is_here = path == Path::new(".");
    // The usual way, which is not looked at twice. A relative one may begin in a bundle. The working directory is what it is, whatever
    // has its name by now.
    let may_be_stored = fd::absolute(path)?.iter().any(is_bundle_of);
    if is_here || !may_be_stored {
        match fs::openat2(fs::CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Ok(dir) => {
                let is_stored = may_be_stored && others::first_on_way(path)?.is_some();
                let word = if is_stored { Word::Stores } else { others::word_of(path, &dir)? };
                return Ok((dir, word));
            }
            Err(Errno::LOOP) => {}
            Err(e) => return Err(e.into()),
        }
    }
    let Some((bundle, below)) = entered_on_way(path)? else {
        let (dir, is_by_descriptor) =
            match fs::openat2(fs::CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
                // As /proc/self/cwd.
                Err(Errno::LOOP) => (fs::open(path, flags, Mode::empty())?, true),
                dir => (dir?, false),
            };
        let word = match is_by_descriptor {
            true => others::word_by_owner(&dir)?,
            false => others::word_of(path, &dir)?,
        };
        return Ok((dir, word));
    };
    let opened = open_stored(&bundle)?;
    if below.as_os_str().is_empty() {
        return Ok((opened, Word::Stores));
    }
    let dir = others::open_inside(opened, &below, flags).map_err(|e| match e {
        Errno::XDEV => err!("a path through {} leads out of it again, or to a mount", bundle.display()),
        e => e.into(),
    })?;
    Ok((dir, Word::Stores))
}

/// Opens a bundle at a path that [`is_stored`] is true for and that has no link, as a place in the tree (O_PATH). Who can write in the
/// store may have put a link to a bundle of his in its place, or in that of the directory of the bundles, or mounted a file system
/// that never answers.
///
/// # Errors
/// Those of openat2(2); ELOOP for a link, EXDEV for a file system of another user's.
pub fn open_stored(bundle: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let (store, below) = in_store(bundle).ok_or(Errno::INVAL)?;
    let store = fs::openat2(fs::CWD, store, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    // Each is judged once it is open, since who can write in the store can exchange the names.
    let opened = match rt_sys::mount::others_server_at(&store)? {
        Some(_) => Err(Errno::XDEV),
        None => below.iter().try_fold(store, |dir, name| {
            fd::open_unserved(&dir, name, flags, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
        }),
    };
    opened.map_err(|e| match e {
        Errno::XDEV => fd::unserved_error(e),
        Errno::LOOP => {
            Error::from(e).hint("in a store no link leads to a bundle: the store itself can be one")
        }
        e => e.into(),
    })
}

/// The root of a bundle of a store.
pub const ROOT: &str = "rootfs";

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn what_has_the_place_of_a_bundle_is_not_followed() {
        let path = std::env::temp_dir().join(format!("rt-ways-{}", std::process::id()));
        let name = bundle_name("sha256", &"ab".repeat(32));
        let bundle = path.join("store").join(BUNDLES).join(&name);
        std::fs::create_dir_all(bundle.join("rootfs/x")).unwrap();
        let set_mode =
            |mode| std::fs::set_permissions(&bundle, std::fs::Permissions::from_mode(mode)).unwrap();
        set_mode(0o777);
        symlink(&bundle, path.join("tool")).unwrap();
        symlink("store/bundles", path.join("all")).unwrap();
        symlink("tool", path.join("again")).unwrap();
        symlink("turn", path.join("turn")).unwrap();
        // As many links as the kernel follows, and one more.
        symlink(&bundle, path.join("1")).unwrap();
        (2..42).for_each(|n| symlink((n - 1).to_string(), path.join(n.to_string())).unwrap());
        let ways = [
            "tool",
            "again",
            "tool/.",
            "all/../bundles/NAME",
            "all/NAME",
            "store/bundles/NAME",
            "store/../tool/",
            "40",
        ];
        let ways = ways.map(|way| path.join(way.replace("NAME", &name)));
        for way in &ways {
            assert_eq!(find_stored(way).unwrap(), Some(bundle.clone()), "{}", way.display());
            assert!(open_bundle(way).unwrap().1 == Word::Stores, "{}", way.display());
        }
        for way in ["", "store", "all", "tool/rootfs", "none/x", "tool/.."] {
            assert_eq!(find_stored(&path.join(way)).unwrap(), None, "{way}");
        }
        for way in ["turn", "41"] {
            assert!(std::fs::metadata(path.join(way)).is_err(), "{way}");
            assert!(find_stored(&path.join(way)).unwrap_err().is(Errno::LOOP.raw_os_error()), "{way}");
        }
        let below = path.join("tool/rootfs/x");
        let first = others::first_on_way(&below).unwrap().map(|(bundle, way, _)| (bundle, way));
        assert_eq!(first, Some((bundle.clone(), "rootfs/x".into())));
        symlink("tool/rootfs/..", path.join("up")).unwrap();
        let through = ["tool/rootfs/x", "tool/rootfs/..", "up", "store/bundles/NAME/rootfs/x/../.."];
        let through = through.map(|way| path.join(way.replace("NAME", &name)));
        for way in &through {
            assert!(open_bundle(way).unwrap().1 == Word::Stores, "{}", way.display());
        }
        // Out of a bundle that others can change nothing leads, not even into another one.
        for way in ["tool/rootfs/../../..", "tool/../NAME", "tool/inner"] {
            symlink("../NAME".replace("NAME", &name), bundle.join("inner")).unwrap_or_default();
            let way = path.join(way.replace("NAME", &name));
            assert_eq!(find_stored(&way).unwrap(), None, "{}", way.display());
            assert!(open_bundle(&way).is_err(), "{}", way.display());
        }
        symlink("/", bundle.join("rootfs/out")).unwrap();
        assert!(open_bundle(&path.join("tool/rootfs/out")).unwrap_err().is(Errno::LOOP.raw_os_error()));
        // Nobody but the caller has said where that leads.
        set_mode(0o755);
        for way in ["tool/rootfs/../../..", "tool/rootfs/out", "tool/rootfs/x"] {
            assert!(open_bundle(&path.join(way)).unwrap().1 == Word::Callers, "{way}");
        }
        set_mode(0o777);
        // As when somebody has put a link there.
        for place in [bundle.clone(), path.join("store").join(BUNDLES)] {
            std::fs::rename(&place, path.join("elsewhere")).unwrap();
            symlink("/", &place).unwrap();
            for way in ways.iter().chain(&through) {
                let all = way.starts_with(path.join("all")) && place != bundle;
                let opened = open_bundle(way).unwrap_err();
                let is = |errno: Errno| opened.is(errno.raw_os_error());
                assert!(is(Errno::LOOP) || all && is(Errno::NOENT), "{}: {opened}", way.display());
            }
            std::fs::remove_file(&place).unwrap();
            std::fs::rename(path.join("elsewhere"), &place).unwrap();
        }
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_name_leads_to_a_bundle_of_the_store_or_nowhere() {
        let path = std::env::temp_dir().join(format!("rt-images-{}", std::process::id()));
        let bundle = bundle_name("sha256", &"ab".repeat(32));
        std::fs::create_dir_all(path.join(BUNDLES).join(&bundle)).unwrap();
        std::fs::create_dir(path.join(NAMES)).unwrap();
        let place = Place { path: path.clone(), chosen: Chosen::ByCaller };
        let store = ImageStore::open(&place).unwrap().unwrap();
        let link = |key: &str, target: &str| symlink(target, path.join(NAMES).join(key)).unwrap();
        link("good", &format!("../bundles/{bundle}"));
        link("gone", &format!("../bundles/{}", bundle_name("sha256", &"cd".repeat(32))));
        assert_eq!(store.find("good").unwrap(), Some(bundle.clone()));
        assert_eq!((store.find("gone").unwrap(), store.find("none").unwrap()), (None, None));
        for (n, target) in ["/", "../bundles", "../bundles/..", "../bundles/x/../../y", "../../elsewhere"]
            .into_iter()
            .enumerate()
        {
            link(&n.to_string(), target);
            assert!(store.find(&n.to_string()).is_err(), "{target}");
        }
        // A link in the place of the bundle is none.
        std::fs::remove_dir(path.join(BUNDLES).join(&bundle)).unwrap();
        symlink("/", path.join(BUNDLES).join(&bundle)).unwrap();
        assert_eq!(store.find("good").unwrap(), None);
        for dir in [path.join(NAMES), path.clone()] {
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
            let found = ImageStore::open(&place).and_then(|store| store.unwrap().find("good"));
            assert!(found.is_err(), "{}", dir.display());
        }
        std::fs::remove_dir_all(&path).unwrap();
    }
}
