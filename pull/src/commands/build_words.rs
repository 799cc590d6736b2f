//! Words of docker's and podman's users for `rt build`.

use rt_image_store::PullPolicy;
use rt_sys::error::Result;
use rt_sys::{bail, err};
use std::net::IpAddr;

/// What --output asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Into {
    /// An image of the store.
    Store,
    /// What `rt save` and `rt pull` write to.
    Target(String),
}

/// The value of --output: rt's own words, or docker's `type=TYPE,dest=PATH`.
pub(super) fn output(text: &str) -> Result<Into> {
    if !text.split(',').any(|field| field.starts_with("type=")) {
        return Ok(Into::Target(text.strip_prefix("dest=").unwrap_or(text).to_owned()));
    }
    let (mut kind, mut path, mut is_archive) = ("", None, true);
    for field in text.split(',') {
        match field.split_once('=') {
            Some(("type", value)) => kind = value,
            Some(("dest", value)) if !value.is_empty() => path = Some(value),
            Some(("tar", value)) if kind == "oci" => {
                is_archive =
                    value.parse().map_err(|_| err!("--output {text}: tar={value}: use true or false"))?;
            }
            Some(("name", _)) => bail!("--output {text}: no name= is supported: -t NAME names the image"),
            Some(("push", "true")) => return Err(pushes(text)),
            _ => bail!("--output {text}: {field:?} is not supported"),
        }
    }
    let to =
        |form: &str| match path {
            Some("-") | None => Err(err!("--output {text}: no image is written to standard output")
                .hint("dest=FILE names a file")),
            Some(path) => Ok(Into::Target(format!("{form}:{path}"))),
        };
    match kind {
        "oci" if is_archive => to("oci-archive"),
        "oci" => to("oci"),
        "docker" if path.is_some() => to("docker-archive"),
        "docker" | "image" => Ok(Into::Store),
        "registry" => Err(pushes(text)),
        "local" | "tar" => Err(err!("--output {text}: not supported")
            .hint("-o DIR makes a bundle, whose files are in DIR/rootfs, and -o FILE.sqsh an image file")),
        _ => bail!("--output {text}: use type=oci, type=docker or type=image"),
    }
}

fn pushes(text: &str) -> rt_sys::error::Error {
    err!("--output {text}: not supported").hint("rt push NAME sends what was built")
}

/// The value of --pull; none where there is no flag.
pub(super) fn policy(word: Option<&str>) -> Result<PullPolicy> {
    match word {
        None | Some("missing" | "false") => Ok(PullPolicy::Missing),
        // A registry is asked for the digest alone, so that what is not newer is not fetched.
        Some("always" | "true" | "newer" | "ifnewer") => Ok(PullPolicy::Always),
        Some("never") => Ok(PullPolicy::Never),
        Some(other) => bail!("--pull={other}: use always, missing or never"),
    }
}

/// `NAME:ADDRESS` or `NAME=ADDRESS`, with an address of IPv6 in brackets or without.
pub(super) fn host(text: &str) -> Result<(String, IpAddr)> {
    let wrong = || err!("--add-host {text}: use NAME:ADDRESS, such as db:192.0.2.7");
    let (name, address) = text.split_once('=').or_else(|| text.split_once(':')).ok_or_else(wrong)?;
    let address = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    if address == "host-gateway" {
        return Err(err!("--add-host {text}: not supported")
            .hint("RUN has the host's network: localhost is the host"));
    }
    match (is_name, address.parse()) {
        (true, Ok(address)) => Ok((name.to_owned(), address)),
        _ => Err(wrong()),
    }
}

/// `[manifest:]NAME=VALUE`
pub(super) fn annotation(text: &str) -> Result<(String, String)> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| err!("--annotation {text}: use NAME=VALUE"))?;
    match name.split_once(':') {
        None => Ok((name.to_owned(), value.to_owned())),
        Some(("manifest", name)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) => bail!("--annotation {text}: only those of the manifest are supported, as NAME=VALUE"),
    }
}

/// Refuses what --format and --isolation ask for where it is not what rt does.
pub(super) fn check_form(format: Option<&str>, isolation: Option<&str>) -> Result<()> {
    match format {
        None | Some("oci") => {}
        Some("docker") => {
            return Err(err!(
                "--format docker is not supported: the image is OCI's, with HEALTHCHECK and SHELL"
            )
            .hint("-o docker-archive:FILE writes docker's form"));
        }
        Some(other) => bail!("--format {other}: use oci"),
    }
    match isolation {
        None | Some("default" | "oci" | "rootless") => Ok(()),
        Some(other) => bail!("--isolation {other} is not supported: each RUN is a container of rt"),
    }
}

/// The value of --jobs: how many stages at once; none without a bound.
pub(super) fn jobs(number: Option<u32>) -> Option<usize> {
    number.filter(|number| *number > 0).map(|number| number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_in_dockers_words() {
        let target = |text: &str| Into::Target(text.to_owned());
        for (text, wanted) in [
            ("a.sqsh", target("a.sqsh")),
            ("dest=a", target("a")),
            ("type=oci,dest=a.tar", target("oci-archive:a.tar")),
            ("type=oci,tar=false,dest=a", target("oci:a")),
            ("type=docker,dest=a.tar", target("docker-archive:a.tar")),
            ("type=docker", Into::Store),
            ("type=image", Into::Store),
        ] {
            assert_eq!(output(text).unwrap(), wanted, "{text}");
        }
        for bad in [
            "type=local,dest=a",
            "type=tar,dest=a",
            "type=oci",
            "type=oci,dest=-",
            "type=image,name=a",
            "type=image,push=true",
            "type=registry",
            "type=oci,dest=",
            "type=oci,tar=maybe,dest=a",
            "type=x",
        ] {
            assert!(output(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn hosts_of_both_families() {
        for (text, name, address) in [
            ("db:192.0.2.7", "db", "192.0.2.7"),
            ("db=192.0.2.7", "db", "192.0.2.7"),
            ("a.b:2001:db8::1", "a.b", "2001:db8::1"),
            ("db:[::1]", "db", "::1"),
        ] {
            assert_eq!(host(text).unwrap(), (name.to_owned(), address.parse().unwrap()), "{text}");
        }
        for bad in ["db", ":1.2.3.4", "a b:1.2.3.4", "a\nb:1.2.3.4", "db:x", "db:host-gateway"] {
            assert!(host(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn annotations_of_the_manifest() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(annotation("a.b=c=d").unwrap(), pair("a.b", "c=d"));
        assert_eq!(annotation("manifest:a=").unwrap(), pair("a", ""));
        for bad in ["a", "=b", "index:a=b", "manifest:=b", "manifest[linux/amd64]:a=b"] {
            assert!(annotation(bad).is_err(), "{bad}");
        }
    }
}
