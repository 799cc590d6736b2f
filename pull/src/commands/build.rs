//! `rt build`

use super::{image_file as form_of, operand, registry};
use crate::build::{self, BuildOptions, Caches, Made, Output, Secret, SecretFrom};
use crate::images::{self, StoreRequest, Stored, Watermarks};
use crate::progress::Style;
use crate::pull::{self, PullOptions};
use crate::push;
use crate::reference::Source;
use crate::save::{Compression, SaveTarget};
use oci_content::digest::Digest;
use oci_content::interrupt::{Interrupt, is_interrupted};
use oci_registry::reference::Reference;
use rt_cli::image::*;
use rt_cli::parse::Call;
use rt_cli::print;
use rt_image_store::{PullPolicy, Transport};
use rt_spec::emulation::{RootEmulation, parse_root_emulation};
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err, look, process};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Builds an image and prints the digest of its manifest.
pub(super) fn run(call: &Call) -> Result<u8> {
    let flags = &call.flags;
    if let Some(other) = flags.text(&PROGRESS)?.filter(|word| !["auto", "plain"].contains(word)) {
        bail!("--progress {other}: use auto or plain");
    }
    let options = BuildOptions {
        context: context(operand(call, 0)?)?,
        named: flags.texts(&BUILD_CONTEXT)?.iter().map(|text| named(text)).collect::<Result<_>>()?,
        agents: flags.texts(&SSH)?.iter().map(|text| agent(text)).collect::<Result<_>>()?,
        file: flags.path(&BUILD_FILE),
        target: flags.text(&TARGET)?.map(str::to_owned),
        arguments: arguments(&flags.texts(&BUILD_ARG)?),
        labels: flags.texts(&LABEL)?.iter().map(|text| pair(text)).collect(),
        secrets: flags.texts(&SECRET)?.iter().map(|text| secret(text)).collect::<Result<_>>()?,
        no_cache: flags.has(&NO_BUILD_CACHE),
        timestamp: flags.text(&TIMESTAMP)?.map(build::timestamp).transpose()?,
        compression: compression(flags.text(&COMPRESSION)?)?,
        caches: Caches {
            from: caches("--cache-from", &flags.texts(&CACHE_FROM)?)?,
            to: caches("--cache-to", &flags.texts(&CACHE_TO)?)?,
            connect: super::connect_options(flags)?,
        },
        emulation: match flags.text(&BUILD_ROOT_EMULATION)? {
            Some(word) => parse_root_emulation(word)?,
            None => RootEmulation::Full,
        },
        quiet: flags.has(&SILENT),
    };
    let names = flags.texts(&TAG)?;
    for name in &names {
        let Source::Registry(reference) = name.parse()? else {
            bail!("--tag {name}: not a name such as team/tool:1");
        };
        if reference.digest.is_some() {
            bail!("--tag {name}: a name with a tag, and no digest");
        }
    }
    let into = flags.text(&OUTPUT)?;
    let outputs = outputs(call, &names, into)?;
    let policy = if flags.has(&PULL_BASE) { PullPolicy::Always } else { PullPolicy::Missing };
    let fetch = |image: &str, interrupt: &Interrupt| base(call, image, policy, interrupt);
    let interrupt = Interrupt::install();
    let digest =
        build::build(&options, &outputs, &interrupt, &fetch).map_err(|e| match is_interrupted(&e) {
            true => err!("interrupted; the layers that were made are kept, the same command goes on"),
            false => e,
        })?;
    if let Some(path) = flags.path(&IID_FILE) {
        let mode = 0o666 & !process::clear_umask();
        let file = File::options().write(true).create(true).truncate(true).mode(mode).open(&path);
        let written = file.and_then(|mut file| file.write_all(digest.as_str().as_bytes()));
        written.context(|| format!("write {}", path.display()))?;
    }
    print(format!("{digest}\n"))
}

/// What the user named as a context.
fn context(word: &str) -> Result<build::Context> {
    if word == "-" {
        return Ok(build::Context::Stdin);
    }
    if build::is_url(word) {
        return Ok(build::Context::Url(word.to_owned()));
    }
    match look::is_dir(word)? {
        true => rt_sys::fd::absolute(word).map(build::Context::Directory),
        false => bail!("context {word}: no such directory"),
    }
}

/// `NAME=DIR|URL|docker-image://IMAGE`
fn named(text: &str) -> Result<(String, build::Named)> {
    let wrong = || err!("--build-context {text}: use NAME=DIR, NAME=URL or NAME=docker-image://IMAGE");
    let (name, what) =
        text.split_once('=').filter(|(name, what)| !name.is_empty() && !what.is_empty()).ok_or_else(wrong)?;
    let named = match what.strip_prefix("docker-image://") {
        Some(image) => build::Named::Image(image.to_owned()),
        None if what == "-" => return Err(wrong()),
        None => build::Named::Files(context(what).context(|| "--build-context")?),
    };
    Ok((name.to_owned(), named))
}

/// `type=registry,ref=NAME`, or the name alone.
fn caches(flag: &str, texts: &[String]) -> Result<Vec<Reference>> {
    let one = |text: &String| {
        let mut name = None;
        for field in text.split(',') {
            match field.split_once('=') {
                Some(("type", "registry")) | Some(("mode", "max")) => {}
                Some(("ref", value)) => name = Some(value),
                None => name = Some(field),
                _ => bail!("{flag} {text}: use type=registry,ref=NAME"),
            }
        }
        let name = name.ok_or_else(|| err!("{flag} {text}: no ref=NAME"))?;
        push::target(name, registry()?).context(|| flag.to_owned())
    };
    texts.iter().map(one).collect()
}

/// `default` or `ID[=SOCKET]`
fn agent(text: &str) -> Result<(String, PathBuf)> {
    use std::os::unix::fs::FileTypeExt;
    let (id, socket) = match text.split_once('=') {
        Some((id, socket)) => (id, socket.to_owned()),
        None => (
            text,
            build::variables::of_caller("SSH_AUTH_SOCK").ok_or_else(|| {
                err!("--ssh {text}: there is no agent").hint("SSH_AUTH_SOCK names its socket")
            })?,
        ),
    };
    let found = std::fs::metadata(&socket).context(|| format!("--ssh {text}: {socket}"))?;
    if id.is_empty() || !found.file_type().is_socket() {
        return Err(
            err!("--ssh {text}: {socket} is no socket of an agent").hint("ssh-add gives a key to an agent")
        );
    }
    Ok((id.to_owned(), rt_sys::fd::absolute(socket)?))
}

/// `--build-arg`, behind what the caller's environment says of the time: as docker, which passes it on so.
fn arguments(texts: &[String]) -> Vec<(String, String)> {
    let texts = texts.iter().map(String::as_str);
    [build::EPOCH].into_iter().chain(texts).filter_map(argument).collect()
}

/// How the layers of a layout or an archive are stored.
fn compression(word: Option<&str>) -> Result<Compression> {
    match word {
        None | Some("gzip") => Ok(Compression::Gzip),
        Some("zstd") => Ok(Compression::Zstd),
        Some(other) => bail!("--compression {other}: use gzip or zstd"),
    }
}

/// `NAME=VALUE`, or `NAME` for the caller's value; none where that is not set.
fn argument(text: &str) -> Option<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) => Some((name.to_owned(), value.to_owned())),
        None => build::variables::of_caller(text).map(|value| (text.to_owned(), value)),
    }
}

fn pair(text: &str) -> (String, String) {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    (name.to_owned(), value.to_owned())
}

/// `id=ID,src=FILE` or `id=ID,env=NAME`
fn secret(text: &str) -> Result<Secret> {
    let (mut id, mut from) = (None, None);
    for field in text.split(',') {
        match field.split_once('=') {
            Some(("id", value)) => id = Some(value.to_owned()),
            Some(("src" | "source", value)) => from = Some(SecretFrom::File(value.into())),
            Some(("env", value)) => from = Some(SecretFrom::Variable(value.to_owned())),
            Some(("type", "file" | "env")) => {}
            _ => bail!("--secret {text}: use id=ID,src=FILE or id=ID,env=NAME"),
        }
    }
    let Some(id) = id.filter(|id| !id.is_empty() && !id.contains('/')) else {
        bail!("--secret {text}: no id")
    };
    Ok(Secret { from: from.unwrap_or_else(|| SecretFrom::Variable(id.clone())), id })
}

/// The image of a FROM or a --from. A file names images of registries and of the store, and no file of the host.
fn base(call: &Call, image: &str, policy: PullPolicy, interrupt: &Interrupt) -> Result<PathBuf> {
    let source = Source::named(image, registry()?)?;
    if !matches!(source, Source::Registry(_)) {
        bail!("{image}: not the name of an image in a registry or in the store");
    }
    let options = |source: Source| -> Result<PullOptions> {
        let options = super::pull::pull_options(call, image.to_owned(), source, PathBuf::new())?;
        Ok(PullOptions { owners: true, ..options })
    };
    let watermarks = Watermarks::from_environment()?;
    let pull_options = options(source.clone())?;
    let request = StoreRequest { options: pull_options, policy, platform: None, names: None, watermarks };
    let path = images::fetch_watched(request, interrupt)?.path;
    // It came before any image was built on it.
    if let Err(e) = build::record_owners(&path, &options(source)?, interrupt) {
        if is_interrupted(&e) {
            return Err(e);
        }
        log::warn!("{image}: all of it belongs to root in what is built: {e}");
    }
    Ok(path)
}

/// What is made of the image. Without a word it goes into the store.
fn outputs<'a>(call: &'a Call, names: &'a [String], into: Option<&'a str>) -> Result<Vec<Output<'a>>> {
    let mut all = Vec::new();
    if !names.is_empty() || into.is_none() {
        all.push(Output::Store(Box::new(move |made, interrupt| store(call, names, made, interrupt))));
    }
    let Some(text) = into else { return Ok(all) };
    let text = text.strip_prefix("dest=").unwrap_or(text);
    if Transport::split(text).is_some() {
        all.push(Output::Saved(SaveTarget::parse(text)?));
        return Ok(all);
    }
    if text.contains("type=") {
        return Err(err!("--output {text}: not supported")
            .hint("use FILE.sqsh, DIR, oci:DIR, oci-archive:FILE or docker-archive:FILE"));
    }
    let target = rt_sys::fd::absolute(text)?;
    form_of(&call.flags, &target)?;
    all.push(Output::Import(Box::new(move |made, interrupt| {
        let Made::Layout(_, layout) = *made else { return Ok(false) };
        let mut options =
            super::pull::pull_options(call, layout.to_owned(), layout.parse()?, target.clone())?;
        options.image = names.first().cloned().unwrap_or_else(|| "built".to_owned());
        options.force = true;
        options.owners = true;
        pull::run_watched(&options, interrupt)?;
        Ok(true)
    })));
    Ok(all)
}

/// Puts the image into the store, as far as what there is of it is enough.
fn store(call: &Call, names: &[String], made: &Made, interrupt: &Interrupt) -> Result<bool> {
    let options = |digest: &Digest, source: Source| -> Result<PullOptions> {
        let image = names.first().cloned().unwrap_or_else(|| digest.to_string());
        let options = super::pull::pull_options(call, image, source, PathBuf::new())?;
        // Its layers have been told of while they were built.
        Ok(PullOptions { style: Style::Quiet, owners: true, ..options })
    };
    match *made {
        Made::Digest(digest) => images::name_stored(digest, names, interrupt),
        Made::Trees(image, trees) => {
            let nowhere = Source::OciLayout { path: PathBuf::new(), select: None };
            images::store_trees(image, trees, names, options(&image.digest, nowhere)?, interrupt)
        }
        Made::Layout(digest, layout) => {
            let (options, names) = (options(digest, layout.parse()?)?, Some(names.to_vec()));
            let watermarks = Watermarks::from_environment()?;
            let request =
                StoreRequest { options, policy: PullPolicy::Always, platform: None, names, watermarks };
            let Stored { .. } = images::fetch_watched(request, interrupt)?;
            Ok(true)
        }
    }
}
