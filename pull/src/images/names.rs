//! The names of images in a store: links, each of which is replaced in one step.
//!
//! An image has several: as it was typed, as it reads in full, and as people know it. What begins with a comma is no name:
//! `,long-HEX` stands for one that is too long for a file, `,stamp-HEX` for the state of an archive ([`super::stamp`]),
//! and `,new-...` is about to become a name.

use std::path::Path;

use rt_image_store::{link_target, name};
use rt_sys::error::Result;

use super::super::reference::Source;
use super::OwnStore;
use oci_content::digest::Digest;
use rt_sys::disk;

/// A name in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedImage {
    /// The link.
    pub key: String,
    /// The name in full, and the suffix of its platform; none of what is no name.
    pub image: Option<(String, String)>,
    /// The bundle that it stands for.
    pub bundle: String,
}

impl NamedImage {
    /// The name in full, with a platform that was asked for.
    pub(crate) fn shown(&self) -> String {
        match &self.image {
            Some((name, suffix)) if *suffix == name::suffix(None) => name.clone(),
            Some((name, suffix)) => format!("{name} ({})", name::platform(suffix).unwrap_or_default()),
            None => self.key.clone(),
        }
    }
}

/// The file for the image `text`, however long that is.
pub(crate) fn key(text: &str, platform: Option<&str>) -> String {
    name::key(text, platform).unwrap_or_else(|| {
        let whole = name::key_of_any_length(text, platform);
        format!(",long-{}", Digest::of(whole.as_bytes()).hex())
    })
}

/// The name in full: what two spellings of one image have in common.
///
/// # Errors
/// The working directory, which a local image's path may begin in, cannot be looked up.
pub(crate) fn canonical(source: &Source) -> Result<String> {
    let local = |transport: &str, path: &Path, select: &Option<String>| -> Result<String> {
        let mark = select.as_deref().map_or("", |select| if select.starts_with("sha") { "@" } else { ":" });
        let select = select.as_deref().unwrap_or_default();
        Ok(format!("{transport}:{}{mark}{select}", rt_sys::fd::absolute(path)?.display()))
    };
    Ok(match source {
        Source::Registry(reference) => reference.to_string(),
        Source::OciLayout { path, select } => local("oci", path, select)?,
        Source::OciArchive { path, select } => local("oci-archive", path, select)?,
        Source::DockerArchive { path, select } => local("docker-archive", path, select)?,
        Source::Engine { program: "docker", image } => format!("docker-daemon:{image}"),
        Source::Engine { program, image } => format!("{program}:{image}"),
    })
}

/// All spellings under which the image `typed` is to be found. A local image is asked for each time, and its path says
/// something only in one directory, so only its full name counts.
pub(crate) fn spellings(typed: &str, source: &Source) -> Result<Vec<String>> {
    let full = canonical(source)?;
    let mut all = Vec::new();
    if let Source::Registry(_) = source {
        all.push(typed.strip_prefix("docker://").unwrap_or(typed).to_owned());
        if let Some(short) = full.strip_prefix("docker.io/") {
            let short = short.strip_prefix("library/").unwrap_or(short);
            all.push(short.to_owned());
            all.extend(short.strip_suffix(":latest").map(str::to_owned));
        }
    }
    all.push(full);
    all.sort();
    all.dedup();
    Ok(all)
}

/// The name in full that a key stands for.
pub(crate) fn in_full(key: &str) -> Option<(String, String)> {
    let (name, suffix) = name::parse(key)?;
    let source: Source = name.parse().ok()?;
    Some((canonical(&source).ok()?, suffix.to_owned()))
}

impl OwnStore {
    /// All names, and what else leads to a bundle.
    pub(crate) fn all_names(&self) -> Result<Vec<NamedImage>> {
        let mut all = Vec::new();
        for (file, _) in disk::entries(self.names())? {
            let Ok(key) = String::from_utf8(file) else { continue };
            if let Some(bundle) = self.bundle_of(&key)? {
                all.push(NamedImage { image: in_full(&key), key, bundle });
            }
        }
        all.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(all)
    }

    /// Has these keys, and all that mean the same image, stand for `bundle`.
    pub(super) fn name(&self, keys: &[String], bundle: &str) -> Result<()> {
        let meant: Vec<_> = keys.iter().filter_map(|key| in_full(key)).collect();
        let known = self.all_names()?;
        let moved =
            known.iter().filter(|name| name.image.as_ref().is_some_and(|image| meant.contains(image)));
        let moved = moved.filter(|name| name.bundle != bundle).map(|name| &name.key);
        let right = |key: &&String| !known.iter().any(|name| name.key == **key && name.bundle == bundle);
        for key in keys.iter().filter(right).chain(moved) {
            let new = format!(",new-{}", rt_sys::unique::name());
            disk::symlink(self.names(), new.as_bytes(), &link_target(bundle))?;
            let renamed = disk::rename(self.names(), new.as_bytes(), self.names(), key.as_bytes());
            if renamed.is_err() {
                let _ = disk::unlink(self.names(), new.as_bytes());
                return renamed;
            }
        }
        Ok(())
    }

    /// True where all these keys stand for `bundle`.
    pub(super) fn is_named(&self, keys: &[String], bundle: &str) -> Result<bool> {
        for key in keys {
            if self.bundle_of(key)?.as_deref() != Some(bundle) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The bundle that a key stands for. What leads elsewhere, or is no link (EINVAL), is no name of an image, and an error only
    /// to whoever asks for it.
    fn bundle_of(&self, key: &str) -> Result<Option<String>> {
        match self.store.link(self.names(), key) {
            Err(e) if e.errno().is_none() || e.is(libc::EINVAL) => Ok(None),
            found => found,
        }
    }

    /// Removes names.
    pub(super) fn forget<'a>(&self, names: impl IntoIterator<Item = &'a NamedImage>) -> Result<()> {
        names.into_iter().try_for_each(|name| disk::unlink(self.names(), name.key.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_image_are_one_image() {
        let spelled = |typed: &str| spellings(typed, &typed.parse().unwrap()).unwrap();
        assert_eq!(spelled("debian"), ["debian", "debian:latest", "docker.io/library/debian:latest"]);
        assert_eq!(spelled("docker://debian:12"), ["debian:12", "docker.io/library/debian:12"]);
        assert_eq!(spelled("me@ghcr.io#o/i:t"), ["ghcr.io/o/i:t", "me@ghcr.io#o/i:t"]);
        assert_eq!(spelled("oci:/a/b:t"), ["oci:/a/b:t"]);
        assert_eq!(spelled("podman://x"), ["podman:x"]);
        let digest = format!("sha256:{}", "a".repeat(64));
        assert_eq!(spelled(&format!("oci:/a@{digest}")), [format!("oci:/a@{digest}")]);
        for typed in ["debian", "docker.io/debian", "library/debian:latest"] {
            let full: Vec<_> = spelled(typed).iter().map(|n| in_full(&key(n, None)).unwrap().0).collect();
            assert!(full.iter().all(|name| name == "docker.io/library/debian:latest"), "{full:?}");
        }
        assert_ne!(in_full(&key("debian", Some("arm64"))), in_full(&key("debian", None)));
        assert!(key(&format!("oci:/{}", "x".repeat(300)), None).starts_with(",long-"));
    }
}
