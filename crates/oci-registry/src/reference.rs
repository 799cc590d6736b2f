//! Names of images in registries: the grammar of distribution's reference package, Docker Hub's short names, and enroot's
//! `user@registry#image:tag`.

use std::fmt;
use std::str::FromStr;

use oci_content::digest::Digest;
use rt_sys::err;
use rt_sys::error::{Error, Result};
use rt_sys::net::is_registry_host;

/// An image in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
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
    pub fn manifest_name(&self) -> &str {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.as_str(),
            (None, Some(tag)) => tag,
            (None, None) => "latest",
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A host such as `nas` would be read as a part of the repository. With enroot's `#` it is a host.
        let mark = if is_registry_host(&self.registry) { '/' } else { '#' };
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
        (None, Some((first, rest))) if is_registry_host(first) => (first, rest),
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
        match text.parse::<Reference>() {
            Ok(reference) => reference.to_string(),
            Err(e) => format!("error: {e}"),
        }
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
            "x/",
            "/x",
            "a___b",
            "x y",
            "evil.com:80@x/y",
        ] {
            assert!(parsed(bad).starts_with("error"), "{bad}: {}", parsed(bad));
        }
    }
}
