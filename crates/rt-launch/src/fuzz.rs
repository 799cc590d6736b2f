//! What the fuzz targets (`fuzz/` at the root of the sources) call, for they see only what is public. Each function
//! panics where a promise is broken.

use crate::request::{Image, StepContainer};
use crate::slurm::arguments::{MARK, decode, encode, of_pattern};
use crate::slurm::hostlist;
use oci_spec::runtime::Mount;
use rt_spec::environment::REQUEST_PREFIX;
use rt_spec::fuzz::stays_below;
use std::path::{Component, Path};

/// The first node of a list has the first place. Every node of a list that a plain reader takes apart has the place of that
/// reader, and no other node has one.
pub fn hostlist(list: &str) {
    if let Some(first) = hostlist::first(list) {
        assert_eq!(hostlist::position(list, &first), Some(0), "{first} in {list}");
    }
    let Some(nodes) = listed(list) else { return };
    assert_eq!(hostlist::first(list).as_ref(), nodes.first().filter(|node| !node.is_empty()), "{list}");
    for node in &nodes {
        let place = nodes.iter().position(|other| other == node);
        assert_eq!(hostlist::position(list, node), place, "{node} in {list}");
        for other in [format!("{node}0"), format!("0{node}"), node.replacen('0', "", 1)] {
            let place = nodes.iter().position(|node| *node == other);
            assert_eq!(hostlist::position(list, &other), place, "{other} in {list}");
        }
    }
}

/// The nodes of a list, each by its name. `None` for a form that is not read, and for a list of many.
fn listed(list: &str) -> Option<Vec<String>> {
    const MOST: usize = 300;
    let mut nodes = Vec::new();
    let mut rest = list;
    loop {
        let end = rest.find([',', '[', ']']).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        rest = match behind.strip_prefix('[') {
            None => {
                nodes.push(name.to_owned());
                behind
            }
            Some(inside) => {
                let (numbers, behind) = inside.split_once(']')?;
                for range in numbers.split(',') {
                    let (first, last) = range.split_once('-').unwrap_or((range, range));
                    if !(first.bytes().chain(last.bytes()).all(|c| c.is_ascii_digit())) {
                        return None;
                    }
                    let (low, high): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
                    if low > high || high - low > MOST {
                        return None;
                    }
                    nodes.extend((low..=high).map(|n| format!("{name}{n:0width$}", width = first.len())));
                }
                behind
            }
        };
        if nodes.len() > MOST {
            return None;
        }
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => return rest.is_empty().then_some(nodes),
        }
    }
}

/// Arguments are read as they were written, by Slurm in either way and by ourselves. `bytes` are the arguments, with a zero
/// behind each but the last, and a pattern and a word, too.
pub fn arguments(bytes: &[u8]) {
    let arguments: Vec<Vec<u8>> = bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    for quote in [&b"'\"'\"'"[..], b"'\"'\"''"] {
        let mut pattern = [b"exec rt slurm task 1.0.0", MARK].concat();
        for (n, argument) in arguments.iter().enumerate() {
            let parts: Vec<&[u8]> = argument.split(|byte| *byte == b'\'').collect();
            pattern.extend_from_slice(if n == 0 { b"'" } else { b" '" });
            pattern.extend_from_slice(&parts.join(quote));
            pattern.push(b'\'');
        }
        assert_eq!(of_pattern(&pattern).expect("what Slurm writes"), arguments);
    }
    let word = encode(&arguments);
    assert!(
        !word.contains([' ', '\'', '"', '$', '`', '\\', '\n', '*', '?', '~', '!', ';', '&', '|', '<', '>'])
    );
    let text: Option<Vec<String>> = arguments.into_iter().map(|a| String::from_utf8(a).ok()).collect();
    assert_eq!(decode(&word).ok(), text);
    let _ = of_pattern(&[MARK, bytes].concat());
    if let Some(read) = std::str::from_utf8(bytes).ok().and_then(|word| decode(word).ok()) {
        let bytes: Vec<Vec<u8>> = read.iter().map(|argument| argument.clone().into_bytes()).collect();
        assert_eq!(decode(&encode(&bytes)).expect("what was encoded"), read);
    }
}

/// What a step asks for stays below the container's root, has absolute paths, does not depend on the order of the variables,
/// and is the same when it was written and read again in another directory. Each line of `text` is a variable without
/// `RT_CONTAINER_`.
pub fn request(text: &str) {
    let variables: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let find = |name: &str| {
        let short = name.strip_prefix(REQUEST_PREFIX)?;
        variables.iter().find(|(known, _)| *known == short).map(|(_, value)| (*value).to_owned())
    };
    let Ok(asked) = StepContainer::read(&find, Path::new("/work/dir")) else { return };
    for (n, mount) in asked.mounts.iter().enumerate() {
        stays_below(mount.destination());
        assert!(!asked.mounts[..n].contains(mount), "{mount:?} twice");
        let source = mount.source().as_ref().expect("a source");
        let is_tmpfs = mount.typ().as_deref() == Some("tmpfs");
        assert!(if is_tmpfs { source == Path::new("tmpfs") } else { source.is_absolute() }, "{mount:?}");
    }
    asked.unmounted.iter().for_each(|path| stays_below(path));
    for path in asked.workdir.iter().chain(&asked.save).chain(&asked.tmpfs).chain(&asked.layers) {
        assert!(path.is_absolute(), "{}", path.display());
    }
    match &asked.image {
        Some(Image::Path(path)) => assert!(path.is_absolute(), "{}", path.display()),
        Some(Image::Name(name)) => {
            assert!(!name.is_empty() && !name.contains(char::is_whitespace), "{name:?}")
        }
        None => {}
    }
    if let Some(name) = &asked.name {
        assert!(
            Path::new(&name.name).components().all(|part| matches!(part, Component::Normal(_))),
            "{name:?}"
        );
        assert!(!name.name.contains('/'));
    }
    // The directory of the submission may have signs that separate mounts and their parts.
    let is_plain =
        |mount: &Mount| !mount.source().iter().any(|source| source.to_string_lossy().contains([',', ':']));
    if !asked.mounts.iter().all(is_plain) {
        return;
    }
    let written = written(&asked);
    let find = |name: &str| {
        let short = name.strip_prefix(REQUEST_PREFIX)?;
        match short {
            "IMAGE" if !matches!(asked.image, Some(Image::Path(_))) => find(name),
            "MOUNTS" | "WORKDIR" | "SAVE" | "IMAGE" => {
                written.iter().find(|(known, _)| *known == short).map(|(_, value)| value.clone())
            }
            "SUBMIT_DIR" => None,
            _ => find(name),
        }
    };
    let again = StepContainer::read(&find, Path::new("/elsewhere")).expect("what was written is read again");
    assert_eq!(again, asked);
}

/// The variables with paths, as they stand in what was read.
fn written(asked: &StepContainer) -> Vec<(&'static str, String)> {
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let mut all = Vec::new();
    all.extend(asked.workdir.as_deref().map(|path| ("WORKDIR", text(path))));
    all.extend(asked.save.as_deref().map(|path| ("SAVE", text(path))));
    all.extend(asked.checkpoint.as_deref().map(|path| ("CHECKPOINT", text(path))));
    if let Some(Image::Path(path)) = &asked.image {
        all.push(("IMAGE", text(path)));
    }
    let mounts = asked.mounts.iter().map(|mount| {
        let options = mount.options().as_deref().unwrap_or_default();
        // A tmpfs has nosuid and nodev in front in any case.
        let own = if mount.typ().as_deref() == Some("tmpfs") { 2 } else { 0 };
        let source = mount.source().as_deref().unwrap_or(Path::new(""));
        format!("{}:{}:{}", text(source), text(mount.destination()), options[own..].join("+"))
    });
    let mounts: Vec<String> =
        mounts.chain(asked.unmounted.iter().map(|path| format!("umount:{}", text(path)))).collect();
    if !mounts.is_empty() {
        all.push(("MOUNTS", mounts.join(",")));
    }
    all
}

#[cfg(test)]
mod tests {
    /// The targets themselves work; their search is cargo-fuzz's.
    #[test]
    fn targets_run() {
        for list in ["n[08-11,7],m", "a,b", "n[1", ""] {
            super::hostlist(list);
        }
        super::arguments(b"it's\0'a b'\0%41");
        super::request("IMAGE=./x\nMOUNTS=/a:/b:ro,tmpfs:/t:mode=700,umount:/c,./d\nWORKDIR=..\nNAME=x:exec");
    }
}
