//! The removal of a bundle that nobody uses.
//!
//! The bundle first loses its name, so that no new start finds it. Then marks and processes are looked at. A start leaves
//! its mark first, and looks for the bundle after that: so either the start finds no bundle, or the mark is found here.

use rt_image_store::{BUNDLES, is_bundle_name};
use rt_sys::error::Result;
use rt_sys::{disk, err, tree};

use super::super::lease;
use super::super::reference::Source;
use super::names::{self, NamedImage};
use super::users::{self, BundleUser, STARTING};
use super::{OwnStore, Turn};
use oci_content::interrupt::Interrupt;

/// What stands behind the name of a bundle that is being removed.
const REMOVED: &str = ".removed-";

/// What came of a removal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// It is gone.
    Done,
    /// Somebody uses it; nothing has changed.
    Used(Vec<BundleUser>),
    /// Another process makes or removes it.
    Busy,
}

impl OwnStore {
    /// Removes a bundle and its names, unless somebody uses it.
    pub(crate) fn remove(&self, bundle: &str) -> Result<Removal> {
        let Some(_lease) = lease::acquire(&self.leases, bundle)? else { return Ok(Removal::Busy) };
        self.remove_alone(bundle)
    }

    /// Removes a bundle and its names, unless somebody uses it. This process has the bundle's lease.
    fn remove_alone(&self, bundle: &str) -> Result<Removal> {
        let users = self.users(bundle)?;
        if !users.is_empty() {
            return Ok(Removal::Used(users));
        }
        let owner = disk::owner_at(self.bundles(), bundle.as_bytes())?;
        if ![0, owner].contains(&disk::caller().uid) {
            return Err(err!("{}: belongs to uid {owner}", self.path(bundle).display()));
        }
        self.require_marks()?;
        let aside = format!("{bundle}{REMOVED}{}", rt_sys::unique::name());
        disk::rename_new(self.bundles(), bundle.as_bytes(), self.bundles(), aside.as_bytes())?;
        let users = self.users(bundle);
        if !matches!(&users, Ok(users) if users.is_empty()) {
            disk::rename_new(self.bundles(), aside.as_bytes(), self.bundles(), bundle.as_bytes())?;
            return users.map(Removal::Used);
        }
        self.finish(bundle, &aside)?;
        Ok(Removal::Done)
    }

    /// Removes what is left of a bundle that was renamed to `aside`: its names, unless they are those of a new one, and then
    /// itself, so that what a process leaves that dies here is found again.
    fn finish(&self, bundle: &str, aside: &str) -> Result<()> {
        if self.store.has(bundle)? {
            return self.delete(aside);
        }
        self.forget(self.all_names()?.iter().filter(|name| name.bundle == bundle))?;
        self.delete(aside)?;
        for aged in self.marks()?.iter().filter(|aged| aged.mark.bundle == bundle) {
            // In a sticky directory those of other users stay.
            let _ = disk::unlink(self.uses(), aged.mark.file_name().as_bytes());
        }
        Ok(())
    }

    /// Refuses to remove what others may use without a mark: nobody but root sees their processes.
    fn require_marks(&self) -> Result<()> {
        let all_mark = disk::mode(self.uses())? & 0o003 == 0o003;
        if !self.shared || all_mark || users::sees_all() {
            return Ok(());
        }
        let uses = self.store.path().join(rt_image_store::USES);
        Err(err!("other users can run images of this store, and cannot mark which in {}", uses.display())
            .hint("chmod 1777 that directory, or let root remove images"))
    }

    fn delete(&self, aside: &str) -> Result<()> {
        tree::remove(self.bundles(), aside.as_bytes(), None)
    }

    /// Finishes what a process that died had begun to remove. What somebody uses by now comes back.
    pub(crate) fn sweep_removed(&self) -> Result<()> {
        for (file, _) in disk::entries(self.bundles())? {
            let Ok(aside) = String::from_utf8(file) else { continue };
            let Some((bundle, _)) = aside.split_once(REMOVED).filter(|(name, _)| is_bundle_name(name)) else {
                continue;
            };
            let Some(_lease) = lease::acquire(&self.leases, bundle)? else { continue };
            if self.store.open_bundle(&aside)?.is_none() {
                continue;
            }
            if self.users(bundle)?.is_empty() {
                match self.finish(bundle, &aside) {
                    // It may be another user's. ENOTEMPTY: a file in it is open on NFS.
                    Err(e)
                        if [libc::EACCES, libc::EPERM, libc::ENOTEMPTY].iter().any(|errno| e.is(*errno)) => {}
                    finished => finished?,
                }
            } else if !self.store.has(bundle)? {
                disk::rename_new(self.bundles(), aside.as_bytes(), self.bundles(), bundle.as_bytes())?;
            }
        }
        Ok(())
    }
}

/// What became of an image that `rt rmi` was asked to remove.
#[derive(Debug, Default)]
pub(crate) struct Untagged {
    /// Names that are gone.
    pub names: Vec<String>,
    /// The bundle that is gone with the last of them.
    pub bundle: Option<String>,
}

/// Removes the image `operand`: its name, and with the last name the bundle. The operand is a name, or at least four
/// digits of the manifest's digest, which stand for all names. `registry` is that of names that name none. With `force` the
/// names go even where a container keeps the bundle, or where the digest has several names.
pub(crate) fn untag(
    own: &OwnStore,
    operand: &str,
    registry: Option<&str>,
    platform: Option<&str>,
    force: bool,
    interrupt: &Interrupt,
) -> Result<Untagged> {
    let all = own.all_names()?;
    let (bundle, gone): (String, Vec<NamedImage>) = match by_digest(own, operand)? {
        Some(bundle) => {
            let names: Vec<NamedImage> = all.iter().filter(|name| name.bundle == bundle).cloned().collect();
            let images = distinct(&names);
            if images.len() > 1 && !force {
                let text = format!("{operand}: has several names: {}", images.join(", "));
                return Err(err!("{text}").hint("remove them by name, or all with --force"));
            }
            (bundle, names)
        }
        None => {
            let source = Source::named(operand, registry)?;
            let wanted = (names::canonical(&source)?, rt_image_store::name::suffix(platform));
            let long = names::key(&wanted.0, platform);
            let named = |name: &&NamedImage| name.image.as_ref() == Some(&wanted) || name.key == long;
            let names: Vec<NamedImage> = all.iter().filter(named).cloned().collect();
            let bundle = names.first().map(|name| name.bundle.clone());
            let missing = || {
                let place = own.store.path().display();
                err!("{operand}: no such image in {place}").hint("rt images lists them")
            };
            (bundle.ok_or_else(missing)?, names)
        }
    };
    let mut untagged = Untagged { names: distinct(&gone), bundle: None };
    let left: Vec<&NamedImage> =
        all.iter().filter(|name| name.bundle == bundle && !gone.contains(name)).collect();
    if left.iter().any(|name| is_name(name)) {
        own.forget(&gone)?;
        return Ok(untagged);
    }
    let Turn::Mine(_lease) = own.alone(&bundle, operand, interrupt, || Ok(None::<()>))? else {
        return Ok(untagged);
    };
    if !own.store.has(&bundle)? {
        own.forget(gone.iter().chain(left))?;
        return Ok(untagged);
    }
    let mut removal = own.remove_alone(&bundle)?;
    if removal == Removal::Used(vec![BundleUser::Starting]) {
        interrupt.sleep(STARTING)?;
        removal = own.remove_alone(&bundle)?;
    }
    match removal {
        Removal::Used(_) if force => own.forget(gone.iter().chain(left))?,
        Removal::Used(users) => {
            let users: Vec<String> = users.iter().map(BundleUser::to_string).collect();
            let text = format!("{operand}: in use {}", users.join("; "));
            return Err(err!("{text}").hint("--force removes the name only"));
        }
        Removal::Done | Removal::Busy => untagged.bundle = Some(bundle),
    }
    Ok(untagged)
}

/// True for what people call a name, and not for a stamp.
pub(super) fn is_name(name: &NamedImage) -> bool {
    name.image.is_some() || name.key.starts_with(",long-")
}

/// The names in full, each once.
fn distinct(names: &[NamedImage]) -> Vec<String> {
    let mut all: Vec<String> = names.iter().filter(|n| is_name(n)).map(NamedImage::shown).collect();
    all.sort();
    all.dedup();
    all
}

/// The bundle that a digest or its beginning names.
fn by_digest(own: &OwnStore, operand: &str) -> Result<Option<String>> {
    let (algorithm, hex) = operand.split_once(':').unwrap_or(("sha256", operand));
    let is_hex = hex.len() >= 4 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !["sha256", "sha512"].contains(&algorithm) || !is_hex {
        return Ok(None);
    }
    let start = format!("{algorithm}-{}", &hex[..hex.len().min(64)]);
    let mut found = own.bundle_names()?;
    found.retain(|name| name.starts_with(&start));
    match &found[..] {
        // A short name can look like a digest.
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        _ => Err(err!("{operand}: {} images have digests that begin so", found.len())),
    }
}

impl OwnStore {
    /// The bundles.
    pub(crate) fn bundle_names(&self) -> Result<Vec<String>> {
        let files = disk::entries(self.bundles()).map_err(|e| e.context(format!("read {BUNDLES}")))?;
        let names = files.into_iter().filter_map(|(name, _)| String::from_utf8(name).ok());
        Ok(names.filter(|name| is_bundle_name(name)).collect())
    }
}
