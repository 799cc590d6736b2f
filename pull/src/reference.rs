//! What the user types for an image: a name in a registry ([`Reference`]), or one with another transport.

use std::path::PathBuf;
use std::str::FromStr;

use oci_registry::reference::Reference;
use rt_image_store::Transport;
use rt_image_store::name::in_registry;
use rt_image_store::word::is_archive;
use rt_spec::asked_mounts::is_image;
use rt_sys::error::{Error, Result};
use rt_sys::net::is_registry_host;
use rt_sys::{bail, err};

/// Where an image comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// A registry.
    Registry(Reference),
    /// `oci:DIR[:TAG]`, an image-spec layout directory.
    OciLayout {
        /// The directory.
        path: PathBuf,
        /// The tag (`org.opencontainers.image.ref.name`) or digest, where the layout has several images.
        select: Option<String>,
    },
    /// `oci-archive:FILE[:TAG]`, a tar of such a directory.
    OciArchive {
        /// The file.
        path: PathBuf,
        /// The tag or digest, where the layout has several images.
        select: Option<String>,
    },
    /// `docker-archive:FILE[:NAME:TAG]`, what `docker save` writes.
    DockerArchive {
        /// The file.
        path: PathBuf,
        /// The name as `docker save` was given it.
        select: Option<String>,
    },
    /// `docker-daemon:NAME` and `podman:NAME`, exported by that program.
    Engine {
        /// `docker` or `podman`.
        program: &'static str,
        /// The name, handed to the program as it is.
        image: String,
    },
}

impl Source {
    /// The image that `text` names. A name of an image in a registry that says no registry is one of `registry`, which is
    /// Docker Hub by default.
    pub(crate) fn named(text: &str, registry: Option<&str>) -> Result<Source> {
        let source: Source = text.parse()?;
        match (&source, registry) {
            (Source::Registry(_), Some(_)) => in_registry(text, registry).parse(),
            _ => Ok(source),
        }
    }
}

impl FromStr for Source {
    type Err = Error;

    fn from_str(text: &str) -> Result<Source> {
        let path = |rest: &str| -> Result<(PathBuf, Option<String>)> {
            let cut = rest.find("@sha").or_else(|| rest.find(':'));
            let (path, select) = match cut {
                Some(at) => (&rest[..at], Some(rest[at + 1..].to_owned())),
                None => (rest, None),
            };
            if path.is_empty() {
                bail!("image {text:?}: no path");
            }
            Ok((PathBuf::from(path), select.filter(|s| !s.is_empty())))
        };
        let engine = |program: &'static str, image: &str| -> Result<Source> {
            if image.is_empty() || image.starts_with('-') {
                bail!("image {text:?}: no image name");
            }
            Ok(Source::Engine { program, image: image.to_owned() })
        };
        if let Some(rest) = text.strip_prefix("docker://") {
            return Ok(Source::Registry(rest.parse()?));
        }
        if let Some((transport, rest)) = Transport::split(text) {
            return match transport {
                Transport::OciLayout => path(rest).map(|(path, select)| Source::OciLayout { path, select }),
                Transport::OciArchive => path(rest).map(|(path, select)| Source::OciArchive { path, select }),
                Transport::DockerArchive => {
                    path(rest).map(|(path, select)| Source::DockerArchive { path, select })
                }
                Transport::Docker => engine("docker", rest.trim_start_matches('/')),
                Transport::Podman => engine("podman", rest.trim_start_matches('/')),
            };
        }
        let (scheme, rest) = text.split_once(':').unwrap_or(("", text));
        match scheme {
            "instance" => {
                let id = rest.trim_start_matches('/');
                Err(err!("image {text:?}: a container that runs").hint(format!("rt exec {id} COMMAND")))
            }
            _ if text.contains("://") => bail!(
                "image {text:?}: unknown transport {scheme:?} (use docker://, oci:, oci-archive:, docker-archive:, \
                 docker-daemon: or podman:)"
            ),
            _ => Ok(Source::Registry(text.parse()?)),
        }
    }
}

/// True for the name of an image that says where the image is, and so can be nothing else.
pub(crate) fn is_with_transport(name: &str) -> bool {
    name.contains("://") || !matches!(name.parse(), Ok(Source::Registry(_)) | Err(_))
}

/// True for a name that means a file on this machine: it says no registry, and ends as files with images do.
pub(crate) fn means_a_file(name: &str) -> bool {
    let says_registry = name.contains([':', '#', '@'])
        || name.split_once('/').is_some_and(|(first, _)| is_registry_host(first) && !first.starts_with('.'));
    (is_image(name) || is_archive(name) || name.ends_with(".img")) && !says_registry
}

/// A directory's name for the bundle of an image whose user gives none: `debian-12`.
pub(crate) fn bundle_name(reference: &Reference) -> String {
    let base = reference.repository.rsplit('/').next().unwrap_or("image");
    match (&reference.tag, &reference.digest) {
        (Some(tag), _) => format!("{base}-{tag}"),
        (None, Some(digest)) => format!("{base}-{}", digest.short()),
        (None, None) => base.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_registry_is_of_the_configured_one() {
        let named = |text: &str| match Source::named(text, Some("registry.site:5000")).unwrap() {
            Source::Registry(reference) => reference.to_string(),
            other => panic!("{other:?}"),
        };
        for (text, expected) in [
            ("debian:12", "registry.site:5000/debian:12"),
            ("docker://group/tool", "registry.site:5000/group/tool:latest"),
            ("docker.io/debian", "docker.io/library/debian:latest"),
            ("localhost/x", "localhost/x:latest"),
            ("nas#x/y", "nas#x/y:latest"),
        ] {
            assert_eq!(named(text), expected);
        }
        assert!(matches!(Source::named("oci:/x", Some("r.site")).unwrap(), Source::OciLayout { .. }));
    }

    #[test]
    fn transports() {
        assert_eq!(
            "oci:/a/b:tag".parse::<Source>().unwrap(),
            Source::OciLayout { path: "/a/b".into(), select: Some("tag".into()) }
        );
        assert_eq!(
            "docker-archive:x.tar:debian:12".parse::<Source>().unwrap(),
            Source::DockerArchive { path: "x.tar".into(), select: Some("debian:12".into()) }
        );
        assert_eq!(
            "podman://debian".parse::<Source>().unwrap(),
            Source::Engine { program: "podman", image: "debian".into() }
        );
    }

    #[test]
    fn refusals() {
        for bad in ["", "ftp://x/y", "oci:", "podman:", "podman:--root", "instance://x"] {
            assert!(bad.parse::<Source>().is_err(), "{bad}");
        }
    }
}
