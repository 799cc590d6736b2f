//! A bundle that is there whole or not at all: written beside its place, then renamed into it.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::disk;
use super::lease::{self, Renewal};
use super::profile::{ANNOTATION_DIGEST, ANNOTATION_RESOLVED};
use crate::error::{Context, Result};
use crate::{bail, err};

/// A bundle in the making; dropped before it is published, it goes away.
pub struct Partial {
    path: PathBuf,
    target: PathBuf,
    /// While it lives, no other machine takes this for abandoned.
    _renewal: Renewal,
}

impl Partial {
    /// Makes `<target>.partial-<signature>` with empty `rootfs` and `trash`, and clears away what dead
    /// processes left beside `target`.
    pub fn create(target: &Path) -> Result<Partial> {
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let name = target.file_name().and_then(|n| n.to_str());
        let name = name.ok_or_else(|| err!("{}: not a name for a bundle", target.display()))?;
        sweep(&parent, name);
        let path = parent.join(format!("{name}.partial-{}", lease::signed()));
        let make = |path: &Path| {
            fs::DirBuilder::new().mode(0o700).create(path).context(|| format!("make {}", path.display()))
        };
        make(&path)?;
        let renewal = Renewal::start(&path);
        let partial = Partial { path, target: target.to_owned(), _renewal: renewal };
        make(&partial.rootfs())?;
        make(&partial.trash())?;
        Ok(partial)
    }

    /// The root file system.
    pub fn rootfs(&self) -> PathBuf {
        self.path.join("rootfs")
    }

    /// What had to go while layers were merged.
    pub fn trash(&self) -> PathBuf {
        self.path.join("trash")
    }

    /// A directory of this bundle's own, for what is needed only meanwhile.
    pub fn scratch(&self) -> PathBuf {
        self.path.join("scratch")
    }

    /// Writes `config.json` and renames the bundle into its place.
    ///
    /// # Errors
    /// EEXIST where something is there and `force` is not given.
    pub fn publish(mut self, config: &Value, shared: bool, force: bool, sync: bool) -> Result<()> {
        let text = serde_json::to_vec_pretty(config).map_err(|e| err!("config.json: {e}"))?;
        let file = self.path.join("config.json");
        fs::write(&file, text).context(|| format!("write {}", file.display()))?;
        let set = |path: &Path, mode: u32| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
                .context(|| format!("chmod {}", path.display()))
        };
        set(&file, if shared { 0o644 } else { 0o600 })?;
        for gone in [self.trash(), self.scratch()] {
            if gone.exists() {
                fs::remove_dir_all(&gone).context(|| format!("remove {}", gone.display()))?;
            }
        }
        set(&self.path, if shared { 0o755 } else { 0o700 })?;
        if sync {
            disk::sync(fs::File::open(&file).context(|| "open config.json")?)?;
        }
        if force && self.target.symlink_metadata().is_ok() {
            return self.replace();
        }
        disk::rename_new(&self.path, &self.target)
    }

    /// Puts the new bundle where the old one is; dropping removes the old one.
    fn replace(&mut self) -> Result<()> {
        check_replaceable(&self.target)?;
        if disk::exchange(&self.path, &self.target).is_ok() {
            return Ok(());
        }
        // Without RENAME_EXCHANGE (NFS) there is a moment without a bundle.
        let old = self.path.with_extension("old");
        fs::rename(&self.target, &old).context(|| format!("rename {}", self.target.display()))?;
        if let Err(e) = disk::rename_new(&self.path, &self.target) {
            let _ = disk::rename_new(&old, &self.target);
            return Err(e);
        }
        self.path = old;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.path.symlink_metadata().is_ok() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn sweep(parent: &Path, name: &str) {
    let prefix = format!("{name}.partial-");
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let signature = file.to_str().and_then(|file| file.strip_prefix(&prefix));
        if signature.is_some_and(|signature| lease::abandoned(&entry.path(), signature)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Refuses to replace what is no bundle.
pub fn check_replaceable(target: &Path) -> Result<()> {
    let metadata = target.symlink_metadata().context(|| format!("stat {}", target.display()))?;
    let bundle = metadata.is_dir() && target.join("config.json").is_file() && target.join("rootfs").is_dir();
    let empty = metadata.is_dir() && fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_none());
    if !bundle && !empty {
        bail!("{}: not a bundle, and --force replaces only bundles", target.display());
    }
    Ok(())
}

/// What a bundle was pulled from.
pub struct Pulled {
    /// The digest of the image's manifest.
    pub digest: String,
    /// The digest that the image's name stood for.
    pub resolved: String,
}

impl Pulled {
    /// What the config of `bundle` says; none where it is no pulled one.
    pub fn read(bundle: &Path) -> Option<Pulled> {
        let text = fs::read(bundle.join("config.json")).ok()?;
        let config: Value = serde_json::from_slice(&text).ok()?;
        let annotation = |name: &str| config["annotations"][name].as_str().map(str::to_owned);
        Some(Pulled { digest: annotation(ANNOTATION_DIGEST)?, resolved: annotation(ANNOTATION_RESOLVED)? })
    }
}
