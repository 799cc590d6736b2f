//! What the user types for an image: `docker://` names, Docker Hub's short names, enroot's
//! `registry#image:tag`, and the other transports. Grammar: distribution's reference package.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::digest::Digest;
use rt_image_store::Transport;
use rt_image_store::name::{in_registry, is_host};
use rt_image_store::word::is_archive;
use rt_spec::asked_mounts::is_image;
use rt_sys::error::{Error, Result};
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
        /// As above.
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

/// An image in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Host and optional port; `docker.io` for Docker Hub.
    pub registry: String,
    /// The repository's path.
    pub repository: String,
    /// The tag, `latest` when neither tag nor digest was given.
    pub tag: Option<String>,
    /// The digest, which wins over a tag.
    pub digest: Option<Digest>,
    /// The user in enroot's `user@registry#image`.
    pub user: Option<String>,
}

impl Reference {
    /// The manifest's name in the API: the digest, else the tag.
    pub(crate) fn manifest_name(&self) -> &str {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.as_str(),
            (None, Some(tag)) => tag,
            (None, None) => "latest",
        }
    }

    /// A directory name for the bundle when the user gives none: `debian-12`.
    pub(crate) fn bundle_name(&self) -> String {
        let base = self.repository.rsplit('/').next().unwrap_or("image");
        match (&self.tag, &self.digest) {
            (Some(tag), _) => format!("{base}-{tag}"),
            (None, Some(digest)) => format!("{base}-{}", digest.short()),
            (None, None) => base.to_owned(),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A host such as `nas` would be read as a part of the repository. With enroot's `#` it is a host.
        let mark = if is_host(&self.registry) { '/' } else { '#' };
        write!(f, "{}{mark}{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
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
            return Ok(Source::Registry(parse_enroot(rest)?));
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
            _ => Ok(Source::Registry(parse_enroot(text)?)),
        }
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Reference> {
        parse_enroot(text.strip_prefix("docker://").unwrap_or(text))
    }
}

/// `[USER@][REGISTRY#]IMAGE[:TAG]`, else the usual form.
fn parse_enroot(text: &str) -> Result<Reference> {
    let Some((host, image)) = text.split_once('#') else { return parse_name(text, None) };
    let (user, host) = match host.rsplit_once('@') {
        Some((user, host)) => (Some(user.to_owned()), host),
        None => (None, host),
    };
    let mut reference = parse_name(image, Some(host))?;
    reference.user = user.filter(|u| !u.is_empty());
    Ok(reference)
}

fn parse_name(text: &str, host: Option<&str>) -> Result<Reference> {
    let whole = text;
    let wrong = |why: &str| err!("image {whole:?}: {why}");
    let (text, digest) = match text.split_once('@') {
        Some((name, digest)) => (name, Some(digest.parse::<Digest>()?)),
        None => (text, None),
    };
    let (name, tag) = match text.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (text, None),
    };
    if let Some(tag) = tag
        && !valid_tag(tag)
    {
        return Err(wrong("a tag has letters, digits, '_', '.' and '-', at most 128"));
    }
    let (registry, path) = match (host, name.split_once('/')) {
        (Some(host), _) => (host, name),
        (None, Some((first, rest))) if is_host(first) => (first, rest),
        _ => ("docker.io", name),
    };
    if !valid_host(registry) {
        return Err(wrong("the registry is not a host name"));
    }
    let registry = match registry {
        "index.docker.io" | "registry-1.docker.io" | "registry.hub.docker.com" => "docker.io",
        other => other,
    };
    let repository = match path.contains('/') {
        false if registry == "docker.io" => format!("library/{path}"),
        _ => path.to_owned(),
    };
    if repository.len() > 255 || !repository.split('/').all(valid_component) {
        let lower = repository.bytes().any(|b| b.is_ascii_uppercase());
        return Err(wrong(if lower { "repository names are lower case" } else { "not a repository name" }));
    }
    let tag = match (tag, &digest) {
        (Some(tag), _) => Some(tag.to_owned()),
        (None, None) => Some("latest".to_owned()),
        (None, Some(_)) => None,
    };
    Ok(Reference { registry: registry.to_owned(), repository, tag, digest, user: None })
}

/// True for the name of an image that says where the image is, and so can be nothing else.
pub(crate) fn is_with_transport(name: &str) -> bool {
    name.contains("://") || !matches!(name.parse(), Ok(Source::Registry(_)) | Err(_))
}

/// True for a name that means a file on this machine: it says no registry, and ends as files with images do.
pub(crate) fn means_a_file(name: &str) -> bool {
    let says_registry = name.contains([':', '#', '@'])
        || name.split_once('/').is_some_and(|(first, _)| is_host(first) && !first.starts_with('.'));
    (is_image(name) || is_archive(name) || name.ends_with(".img")) && !says_registry
}

fn valid_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let mut bytes = tag.bytes();
    bytes.next().is_some_and(word) && tag.len() <= 128 && bytes.all(|b| word(b) || b == b'.' || b == b'-')
}

/// Lower-case letters and digits, separated by one '.', one or two '_', or any number of '-'.
fn valid_component(component: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = component.as_bytes();
    let (Some(&first), Some(&last)) = (bytes.first(), bytes.last()) else { return false };
    if !alphanumeric(first) || !alphanumeric(last) {
        return false;
    }
    component
        .split(|c: char| c.is_ascii() && alphanumeric(c as u8))
        .all(|separator| matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|b| b == b'-'))
}

fn valid_host(host: &str) -> bool {
    let (name, port) = if host.starts_with('[') {
        match host.split_once(']') {
            Some((address, "")) => (&address[1..], None),
            Some((address, port)) if port.starts_with(':') => (&address[1..], Some(&port[1..])),
            _ => return false,
        }
    } else {
        match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        }
    };
    let six = host.starts_with('[');
    let port_ok = port.is_none_or(|p| p.parse::<u16>().is_ok());
    let character =
        |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.' || b == b'_' || (six && b == b':');
    port_ok && !name.is_empty() && name.bytes().all(character) && !name.starts_with(['-', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> String {
        match text.parse::<Source>() {
            Ok(Source::Registry(r)) => r.to_string(),
            Ok(other) => format!("{other:?}"),
            Err(e) => format!("error: {e}"),
        }
    }

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
    fn names() {
        for (text, want) in [
            ("debian", "docker.io/library/debian:latest"),
            ("nas#team/x:1", "nas#team/x:1"),
            ("localhost#x", "localhost/x:latest"),
            ("docker://debian:12", "docker.io/library/debian:12"),
            ("index.docker.io/debian", "docker.io/library/debian:latest"),
            ("a/b", "docker.io/a/b:latest"),
            ("localhost/b", "localhost/b:latest"),
            ("localhost:5000/a__b/c--d.e:T_1", "localhost:5000/a__b/c--d.e:T_1"),
            ("nvcr.io#nvidia/pytorch:24.01-py3", "nvcr.io/nvidia/pytorch:24.01-py3"),
            ("docker://me@ghcr.io#o/i:t", "ghcr.io/o/i:t"),
            ("[::1]:5000/x", "[::1]:5000/x:latest"),
        ] {
            assert_eq!(parsed(text), want, "{text}");
        }
        let digest = "a".repeat(64);
        assert_eq!(parsed(&format!("q.io/x@sha256:{digest}")), format!("q.io/x@sha256:{digest}"));
        assert_eq!(parsed(&format!("q.io/x:1@sha256:{digest}")), format!("q.io/x:1@sha256:{digest}"));
        let enroot: Reference = "docker://me@ghcr.io#o/i:t".parse().unwrap();
        assert_eq!(enroot.user.as_deref(), Some("me"));
    }

    #[test]
    fn refusals() {
        for bad in [
            "",
            "Debian",
            "a//b",
            "a/../b",
            "-x",
            "x:",
            "x:-t",
            "x@sha256:12",
            "x@",
            "host:99999/x",
            "ftp://x/y",
            "x/",
            "/x",
            "a___b",
            "x y",
            "oci:",
            "podman:",
            "podman:--root",
            "evil.com:80@x/y",
        ] {
            assert!(parsed(bad).starts_with("error"), "{bad}: {}", parsed(bad));
        }
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
}
