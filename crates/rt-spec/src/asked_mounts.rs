//! Mounts as the command line asks for them: `-v`, `--mount` and `--tmpfs`, in the syntax of docker and podman.

use crate::mounts;
use oci_spec::runtime::{Mount, MountBuilder};
use rt_sys::error::{Error, Result};
use rt_sys::nearest::nearest;
use rt_sys::{bail, err};
use std::path::Path;

/// `SRC[:DST[:OPTIONS]]`, options separated by commas, as podman's `-v`. SRC is a path of the host; that of an image file is
/// mounted at DST. Without DST it is shown at its own place, as Apptainer does.
pub fn volume(volume: &str) -> Result<Mount> {
    let mut parts = volume.splitn(3, ':');
    let (source, destination) = match (parts.next(), parts.next()) {
        (Some(source), Some(destination)) if !source.is_empty() => (source, destination),
        (Some(source), None) if source.starts_with('/') => (source, source),
        _ => bail!("volume {volume:?} is not SRC:DST[:OPTIONS], nor an absolute path"),
    };
    let what = || format!("volume {volume:?}");
    // podman's words for labels, ownership and overlays have no meaning here.
    let words = parts.next().unwrap_or("").split(',').filter(|w| !matches!(*w, "" | "z" | "Z" | "U" | "O"));
    path(source, destination, words.map(str::to_owned).collect()).map_err(|e| e.context(what()))
}

/// The path `source` of the host at `destination`, with `options`. Without one that says how deep, mounts below it are
/// shown too.
pub fn path(source: &str, destination: &str, mut options: Vec<String>) -> Result<Mount> {
    if !options.iter().any(|word| word == "bind" || word == "rbind") {
        options.insert(0, "rbind".to_owned());
    }
    Ok(of_path(bind(source, destination, options)?, source, destination))
}

/// The mount of what is in an image file, where the source of a bind is one.
fn of_path(mount: Mount, source: &str, destination: &str) -> Mount {
    if is_image(source) && !is_image(destination) { of_image(mount) } else { mount }
}

/// How the names of images end that are one file.
pub const IMAGE_ENDINGS: [&str; 4] = [".sqsh", ".squashfs", ".sqfs", ".sif"];

/// True for the name of an image file. Where it is bound under a name of that kind, the file itself is asked for.
pub fn is_image(path: &str) -> bool {
    IMAGE_ENDINGS.iter().any(|ending| path.ends_with(ending))
}

/// The bind of an image file as the mount of what is in it.
fn of_image(mut mount: Mount) -> Mount {
    let options =
        mount.options().iter().flatten().filter(|word| !matches!(word.as_str(), "rbind" | "bind" | "rro"));
    let options = options.cloned().collect();
    mount.set_typ(Some("squashfs".to_owned())).set_options(Some(options));
    mount
}

/// `DIR[:OPTIONS]`, options separated by commas.
pub fn tmpfs(asked: &str) -> Result<Mount> {
    let (destination, words) = asked.split_once(':').unwrap_or((asked, ""));
    let words = words.split(',').filter(|word| !word.is_empty()).map(str::to_owned);
    new_tmpfs(destination, words).map_err(|e| e.context(format!("tmpfs {asked:?}")))
}

/// `type=bind|tmpfs|squashfs,source=...,target=...` and the other keys of docker's `--mount`.
pub fn mount(asked: &str) -> Result<Mount> {
    parse_mount(asked).map_err(|e| e.context(format!("mount {asked:?}")))
}

/// The keys of `--mount`, for suggestions.
const KEYS: [&str; 11] = [
    "type",
    "source",
    "src",
    "target",
    "destination",
    "dst",
    "readonly",
    "bind-propagation",
    "bind-recursive",
    "tmpfs-size",
    "tmpfs-mode",
];

fn parse_mount(asked: &str) -> Result<Mount> {
    let fields = fields(asked)?;
    let (mut kind, mut source, mut target) = ("bind", None, None);
    let mut options = Vec::new();
    let mut recursive = true;
    let mut below_writable = false;
    for field in &fields {
        let (key, value) = field.split_once('=').map_or((field.as_str(), None), |(k, v)| (k, Some(v)));
        let text = || value.filter(|v| !v.is_empty()).ok_or_else(|| err!("{key} needs a value"));
        match key {
            "type" => kind = text()?,
            "source" | "src" => source = Some(text()?),
            "target" | "destination" | "dst" => target = Some(text()?),
            "readonly" | "ro" => options.push(if is_set(key, value)? { "ro" } else { "rw" }.to_owned()),
            "bind-propagation" => {
                let word = text()?;
                mounts::propagation(word)
                    .ok_or_else(|| err!("bind-propagation={word} is no propagation type"))?;
                options.push(word.to_owned());
            }
            "bind-nonrecursive" => recursive = !is_set(key, value)?,
            "bind-recursive" => match text()? {
                "enabled" => {}
                "writable" => below_writable = true,
                "disabled" => recursive = false,
                "readonly" => options.push("rro".to_owned()),
                word => bail!("bind-recursive={word} is none of enabled, disabled, writable and readonly"),
            },
            "tmpfs-size" => options.push(format!("size={}", text()?)),
            "tmpfs-mode" => options.push(format!("mode={}", text()?)),
            // Docker's word for file sharing on other systems; it ignores it on Linux as well.
            "consistency" => {}
            _ if value.is_none() && key.starts_with(['/', '.', '~']) => {
                return Err(
                    err!("{key:?} is no key").hint("SRC:DST is for -v; here it is source=SRC,target=DST")
                );
            }
            _ => match nearest(key.as_ref(), KEYS) {
                Some(near) => bail!("unknown key {key:?}; did you mean {near}?"),
                None => bail!("unknown key {key:?}"),
            },
        }
    }
    let target = target.ok_or_else(|| err!("target is missing"))?;
    let is_of = |prefix: &str| fields.iter().find(|field| field.starts_with(prefix));
    match kind {
        "bind" | "squashfs" => {
            if let Some(field) = is_of("tmpfs-") {
                bail!("{field}: that is for type=tmpfs");
            }
            let source = source.ok_or_else(|| err!("source is missing"))?;
            options.insert(0, if recursive { "rbind" } else { "bind" }.to_owned());
            let bind = if below_writable { bind_as_said } else { bind };
            let mount = bind(source, target, options)?;
            Ok(if kind == "squashfs" { of_image(mount) } else { of_path(mount, source, target) })
        }
        "tmpfs" => {
            if let Some(field) = is_of("bind-") {
                bail!("{field}: that is for type=bind");
            }
            if source.is_some() {
                bail!("a tmpfs has no source");
            }
            new_tmpfs(target, options.into_iter())
        }
        "volume" => Err(Error::new("rt keeps no volumes").hint("bind a directory: type=bind")),
        _ => bail!("type {kind:?} is neither bind, tmpfs nor squashfs"),
    }
}

/// What a switch among the fields says.
fn is_set(key: &str, value: Option<&str>) -> Result<bool> {
    match value {
        None | Some("true" | "1") => Ok(true),
        Some("false" | "0") => Ok(false),
        Some(other) => bail!("{key}={other} is neither true nor false"),
    }
}

/// The fields of one line of CSV (RFC 4180), as docker reads it: a field in quotes may have commas, and a doubled quote
/// stands for one.
fn fields(line: &str) -> Result<Vec<String>> {
    let mut all = Vec::new();
    let mut rest = line;
    loop {
        let mut field = String::new();
        match rest.strip_prefix('"') {
            Some(quoted) => {
                let mut at = quoted;
                loop {
                    let (before, after) = at.split_once('"').ok_or_else(|| err!("a quote is not closed"))?;
                    field.push_str(before);
                    match after.strip_prefix('"') {
                        Some(more) => {
                            field.push('"');
                            at = more;
                        }
                        None => {
                            rest = after;
                            break;
                        }
                    }
                }
                if !rest.is_empty() && !rest.starts_with(',') {
                    bail!("text behind a closed quote");
                }
            }
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                field.push_str(&rest[..end]);
                rest = &rest[end..];
                if field.contains('"') {
                    bail!("a quote within a field (quote the whole field)");
                }
            }
        }
        if field.is_empty() {
            bail!("a field is empty");
        }
        all.push(field);
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Ok(all),
        }
    }
}

fn require_absolute(destination: &str) -> Result<()> {
    if !destination.starts_with('/') {
        bail!("destination {destination:?} is not an absolute path");
    }
    Ok(())
}

/// A bind that shows the host's later mounts only where `options` ask for that. Where it is read-only, so is all that is
/// mounted below it, as with docker since 25: whoever asks for `ro` means what is seen there.
pub fn bind(source: &str, destination: &str, mut options: Vec<String>) -> Result<Mount> {
    let last = |words: [&str; 2]| options.iter().rev().find(|word| words.contains(&word.as_str())).cloned();
    let readonly = last(["ro", "rw"]).is_some_and(|word| word == "ro");
    if readonly
        && last(["bind", "rbind"]).is_some_and(|word| word == "rbind")
        && last(["rro", "rrw"]).is_none()
    {
        options.push("rro".to_owned());
    }
    bind_as_said(source, destination, options)
}

/// A bind with these options alone.
fn bind_as_said(source: &str, destination: &str, mut options: Vec<String>) -> Result<Mount> {
    require_absolute(destination)?;
    options.iter().try_for_each(|word| mounts::check_option(word))?;
    if mounts::parse(options.iter().map(String::as_str)).propagation.is_empty() {
        options.push("rprivate".to_owned());
    }
    let source = Path::new(source);
    build(MountBuilder::default().destination(destination).source(source).typ("bind").options(options))
}

/// A tmpfs, for everybody unless `words` say otherwise, as docker's.
fn new_tmpfs(destination: &str, words: impl Iterator<Item = String>) -> Result<Mount> {
    require_absolute(destination)?;
    let mut options: Vec<String> = ["nosuid", "nodev"].map(str::to_owned).into();
    options.extend(words);
    if !options.iter().any(|word| word.starts_with("mode=")) {
        options.push("mode=1777".to_owned());
    }
    build(MountBuilder::default().destination(destination).source("tmpfs").typ("tmpfs").options(options))
}

fn build(mount: MountBuilder) -> Result<Mount> {
    mount.build().map_err(|e| err!("{e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Destination, source and options.
    fn shown(mount: &Mount) -> [String; 3] {
        let source = mount.source().as_ref().map(|source| source.display().to_string());
        let options = mount.options().as_deref().unwrap().join(",");
        [mount.destination().display().to_string(), source.unwrap_or_default(), options]
    }

    #[test]
    fn volumes_become_binds() {
        let mount = volume("/a:/b:ro,z").unwrap();
        assert_eq!(shown(&mount), ["/b", "/a", "rbind,ro,rro,rprivate"]);
        assert_eq!(shown(&volume("/a").unwrap()), ["/a", "/a", "rbind,rprivate"]);
        assert_eq!(shown(&volume("/a:/b:bind,ro").unwrap())[2], "bind,ro,rprivate");
        for bad in ["a", "", "/a:b", ":/b", "/a:/b:fly"] {
            assert!(volume(bad).is_err(), "{bad}");
        }
        let image = volume("/d/x.sqsh:/data:noexec").unwrap();
        assert_eq!(image.typ().as_deref(), Some("squashfs"));
        assert_eq!(shown(&image), ["/data", "/d/x.sqsh", "noexec,rprivate"]);
        assert_eq!(volume("/d/x.sqsh:/x.sqsh").unwrap().typ().as_deref(), Some("bind"));
    }

    #[test]
    fn tmpfs_are_for_everybody() {
        let options = |text: &str| tmpfs(text).map(|mount| shown(&mount)[2].clone());
        assert_eq!(options("/t").unwrap(), "nosuid,nodev,mode=1777");
        assert_eq!(options("/t:size=1m,mode=700,noexec").unwrap(), "nosuid,nodev,size=1m,mode=700,noexec");
        assert!(options("t").is_err() && options("").is_err());
    }

    #[test]
    fn long_forms_become_mounts() {
        let read = |text: &str| mount(text).map(|mount| shown(&mount));
        assert_eq!(read("type=bind,source=/a,target=/b").unwrap(), ["/b", "/a", "rbind,rprivate"]);
        assert_eq!(read("src=/a,dst=/b,ro").unwrap()[2], "rbind,ro,rro,rprivate");
        assert_eq!(read("src=/a,dst=/b,ro,bind-nonrecursive").unwrap()[2], "bind,ro,rprivate");
        assert_eq!(read("src=/a,dst=/b,ro,bind-recursive=writable").unwrap()[2], "rbind,ro,rprivate");
        assert_eq!(read("src=/a,dst=/b,readonly=false").unwrap()[2], "rbind,rw,rprivate");
        assert_eq!(read("src=/a,destination=/b,bind-propagation=rslave").unwrap()[2], "rbind,rslave");
        assert_eq!(read("src=/a,dst=/b,bind-nonrecursive").unwrap()[2], "bind,rprivate");
        assert_eq!(read("src=/a,dst=/b,bind-recursive=readonly,ro").unwrap()[2], "rbind,rro,ro,rprivate");
        for image in ["type=squashfs,src=/x,dst=/b", "src=/x.sqsh,dst=/b"] {
            assert_eq!(mount(image).unwrap().typ().as_deref(), Some("squashfs"), "{image}");
            assert_eq!(read(image).unwrap()[2], "rprivate");
        }
        let quoted = mount(r#"type=bind,"source=/a,""b",target=/b"#).unwrap();
        assert_eq!(quoted.source().as_deref(), Some(Path::new("/a,\"b")));
        let tmpfs = read("type=tmpfs,target=/t,tmpfs-size=1m,tmpfs-mode=700").unwrap();
        assert_eq!(tmpfs[2], "nosuid,nodev,size=1m,mode=700");
    }

    #[test]
    fn wrong_long_forms_are_refused() {
        for (text, why) in [
            ("", "empty"),
            ("src=/a,", "empty"),
            ("src=/a", "target is missing"),
            ("dst=/b", "source is missing"),
            ("type=volume,src=a,dst=/b", "volumes"),
            ("type=npipe,src=/a,dst=/b", "neither bind, tmpfs nor squashfs"),
            ("src=/a,dst=b", "absolute"),
            ("src=/a,dst=/b,fly", "unknown key \"fly\""),
            ("src=/a,dst=/b,ro=maybe", "neither true nor false"),
            ("src=/a,dst=/b,bind-propagation=up", "propagation"),
            ("src=/a,dst=/b,tmpfs-size=1", "type=tmpfs"),
            ("type=tmpfs,src=/a,dst=/b", "no source"),
            ("type=tmpfs,dst=/b,bind-propagation=slave", "type=bind"),
            ("src=,dst=/b", "needs a value"),
            ("\"src=/a,dst=/b", "not closed"),
            ("\"src=/a\"x,dst=/b", "behind"),
            ("src=\"/a\",dst=/b", "within a field"),
        ] {
            let error = mount(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
