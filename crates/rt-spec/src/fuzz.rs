//! What the fuzz targets (`fuzz/` at the root of the sources) call, for they see only what is public. Each function
//! panics where a promise is broken.

use crate::asked_mounts::{mount, tmpfs, volume};
use crate::hostlist;
use crate::mounts;
use crate::run_file::RunFile;
use crate::slurm_arguments::{MARK, decode, encode, of_pattern};
use crate::step_container::{Image, StepContainer};
use oci_spec::runtime::Mount;
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

/// The parts of a run file are within it, in front of its trailer, which is written as it was read.
pub fn run_file(bytes: &[u8]) {
    let Some(file) = RunFile::of_bytes(bytes) else { return };
    let trailer = file.trailer();
    let end = (bytes.len() - trailer.len()) as u64;
    for part in [file.runtime, file.image] {
        assert!(part.offset <= end && part.size <= end - part.offset, "{file:?} of {end}");
    }
    assert!(bytes.ends_with(&trailer));
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
pub fn step_container(text: &str) {
    let variables: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let find = |name: &str| {
        let short = name.strip_prefix(crate::step_container::PREFIX)?;
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
    for path in asked.workdir.iter().chain(&asked.save).chain(&asked.tmpfs) {
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
    let is_plain = |mount: &Mount| !source(mount).contains([',', ':']);
    if !asked.mounts.iter().all(is_plain) {
        return;
    }
    let written = written(&asked);
    let find = |name: &str| {
        let short = name.strip_prefix(crate::step_container::PREFIX)?;
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

/// A destination is absolute, is not the root, and does not lead up.
fn stays_below(path: &Path) {
    let mut parts = path.components();
    assert_eq!(parts.next(), Some(Component::RootDir), "{}", path.display());
    assert!(parts.clone().next().is_some(), "{}", path.display());
    assert!(parts.all(|part| matches!(part, Component::Normal(_))), "{}", path.display());
}

/// The variables with paths, as they stand in what was read.
fn written(asked: &StepContainer) -> Vec<(&'static str, String)> {
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let mut all = Vec::new();
    all.extend(asked.workdir.as_deref().map(|path| ("WORKDIR", text(path))));
    all.extend(asked.save.as_deref().map(|path| ("SAVE", text(path))));
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
        for text in ["/a:/b:ro", "/x.sqsh:/d", "/t:mode=700,size=1m", "src=/a,dst=/b,ro", "type=tmpfs,dst=/t"]
        {
            super::asked_mounts(text);
        }
        super::run_file(&[0; 100]);
        super::arguments(b"it's\0'a b'\0%41");
        super::step_container(
            "IMAGE=./x\nMOUNTS=/a:/b:ro,tmpfs:/t:mode=700,umount:/c,./d\nWORKDIR=..\nNAME=x:exec",
        );
    }
}
