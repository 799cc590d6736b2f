//! What the fuzz targets (`fuzz/` at the root of the sources) call, for they see only what is public. Each function
//! panics where a promise is broken.

use crate::asked_mounts::{mount, tmpfs, volume};
use crate::mounts;
use oci_spec::runtime::Mount;
use std::path::{Component, Path};

/// A mount that `-v`, `--tmpfs` or `--mount` asks for is absolute, has only options that mean something, and is the same when
/// it was written in the same syntax and read again.
pub fn asked_mounts(text: &str) {
    // Arguments end at a zero.
    if text.contains('\0') {
        return;
    }
    if let Ok(read) = volume(text) {
        check(&read);
        let source = source(&read);
        // A bind has rbind in front in any case.
        let own = usize::from(read.typ().as_deref() == Some("bind"));
        let again = format!("{source}:{}:{}", destination(&read), options(&read)[own..].join(","));
        assert_eq!(volume(&again).expect("what was written is read again"), read, "{again}");
    }
    if let Ok(read) = tmpfs(text) {
        check(&read);
        let again = format!("{}:{}", destination(&read), options(&read)[2..].join(","));
        assert_eq!(tmpfs(&again).expect("what was written is read again"), read, "{again}");
    }
    if let Ok(read) = mount(text) {
        check(&read);
        let again = as_fields(&read);
        assert_eq!(mount(&again).expect("what was written is read again"), read, "{again}");
    }
}

fn check(mount: &Mount) {
    assert!(mount.destination().is_absolute(), "{mount:?}");
    let words = options(mount);
    let read = mounts::parse(words.iter().copied());
    assert_eq!(read.attr.set & read.attr.clear & !rt_sys::mount::ATTR_ATIME, 0);
    match mount.typ().as_deref() {
        Some("tmpfs") => assert!(words.starts_with(&["nosuid", "nodev"]) && source(mount) == "tmpfs"),
        kind => {
            assert!(read.data.is_empty() && !read.propagation.is_empty(), "{mount:?}");
            assert!(!source(mount).is_empty() && read.bind == (kind == Some("bind")), "{mount:?}");
        }
    }
}

fn source(mount: &Mount) -> &str {
    mount.source().as_ref().and_then(|source| source.to_str()).expect("a source")
}

fn destination(mount: &Mount) -> &str {
    mount.destination().to_str().expect("UTF-8")
}

fn options(mount: &Mount) -> Vec<&str> {
    mount.options().iter().flatten().map(String::as_str).collect()
}

/// The mount as `--mount` takes it, each field in quotes.
fn as_fields(mount: &Mount) -> String {
    let kind = mount.typ().as_deref().expect("a type");
    let mut fields = vec![format!("type={kind}"), format!("target={}", destination(mount))];
    let mut words = options(mount);
    if kind == "tmpfs" {
        words.drain(..2);
    } else {
        fields.push(format!("source={}", source(mount)));
    }
    for word in words {
        fields.push(match word {
            "rbind" => "bind-nonrecursive=0".to_owned(),
            "bind" => "bind-nonrecursive".to_owned(),
            "ro" => "readonly".to_owned(),
            "rw" => "ro=false".to_owned(),
            "rro" => "bind-recursive=readonly".to_owned(),
            word => match word.split_once('=') {
                Some((key, value)) => format!("tmpfs-{key}={value}"),
                None => format!("bind-propagation={word}"),
            },
        });
    }
    let quoted = fields.into_iter().map(|field| format!("\"{}\"", field.replace('"', "\"\"")));
    quoted.collect::<Vec<_>>().join(",")
}

/// A destination is absolute, is not the root, and does not lead up.
pub fn stays_below(path: &Path) {
    let mut parts = path.components();
    assert_eq!(parts.next(), Some(Component::RootDir), "{}", path.display());
    assert!(parts.clone().next().is_some(), "{}", path.display());
    assert!(parts.all(|part| matches!(part, Component::Normal(_))), "{}", path.display());
}

#[cfg(test)]
mod tests {
    /// The targets themselves work; their search is cargo-fuzz's.
    #[test]
    fn targets_run() {
        for text in ["/a:/b:ro", "/x.sqsh:/d", "/t:mode=700,size=1m", "src=/a,dst=/b,ro", "type=tmpfs,dst=/t"]
        {
            super::asked_mounts(text);
        }
    }
}
