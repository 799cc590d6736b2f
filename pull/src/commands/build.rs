//! `rt build`

use super::build_words::{self, Into};
use super::id_file::IdFile;
use super::{image_file as form_of, operand, registry};
use crate::build::{self, BuildOptions, Caches, Made, Output, Secret, SecretFrom, Use};
use crate::bundle;
use crate::image_file;
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
use rt_sys::{bail, err, look};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Builds an image and prints the digest of its manifest.
pub(super) fn run(call: &Call) -> Result<u8> {
    let flags = &call.flags;
    if let Some(other) = flags.text(&PROGRESS)?.filter(|word| !["auto", "plain"].contains(word)) {
        bail!("--progress {other}: use auto or plain");
    }
    if let Some(platform) = flags.text(&BUILD_PLATFORM)? {
        build::check_platform("--platform", platform)?;
    }
    build_words::check_form(flags.text(&BUILD_FORMAT)?, flags.text(&ISOLATION)?)?;
    let options = options(call)?;
    let names = flags.texts(&TAG)?;
    for name in &names {
        let Source::Registry(reference) = name.parse()? else {
            bail!("--tag {name}: not a name such as team/tool:1");
        };
        if reference.digest.is_some() {
            bail!("--tag {name}: a name with a tag, and no digest");
        }
    }
    let into = flags.text(&OUTPUT)?.map(build_words::output).transpose()?;
    let outputs = outputs(call, &names, into.as_ref())?;
    let policy = build_words::policy(flags.text(&PULL_BASE)?)?;
    let fetch = |image: &str, what_for, interrupt: &Interrupt| base(call, image, what_for, policy, interrupt);
    let file = |flag| flags.path(flag).map(|path| IdFile::at(flag.long, path)).transpose();
    let (id_file, metadata_file) = (file(&IID_FILE)?, file(&METADATA_FILE)?);
    let interrupt = Interrupt::install();
    let digest =
        build::build(&options, &outputs, &interrupt, &fetch).map_err(|e| match is_interrupted(&e) {
            true => err!("interrupted; the layers that were made are kept, the same command goes on"),
            false => e,
        })?;
    let written = id_file.map_or(Ok(()), |file| file.write(digest.as_str()));
    let noted = metadata_file.map_or(Ok(()), |file| file.write(&metadata(&digest, &names)));
    // Also where it could not be written: the image is there.
    let code = print(format!("{digest}\n"))?;
    written.and(noted).map(|()| code)
}

/// What of the image programs look for in the file of --metadata-file.
fn metadata(digest: &Digest, names: &[String]) -> String {
    let mut metadata = json!({ "containerimage.digest": digest });
    if !names.is_empty() {
        metadata["image.name"] = json!(names.join(","));
    }
    format!("{metadata:#}\n")
}

/// What the flags ask for, but for what becomes of the image.
fn options(call: &Call) -> Result<BuildOptions> {
    let flags = &call.flags;
    Ok(BuildOptions {
        context: context(operand(call, 0)?)?,
        named: flags.texts(&BUILD_CONTEXT)?.iter().map(|text| named(text)).collect::<Result<_>>()?,
        agents: flags.texts(&SSH)?.iter().map(|text| agent(text)).collect::<Result<_>>()?,
        file: flags.path(&BUILD_FILE),
        target: flags.text(&TARGET)?.map(str::to_owned),
        arguments: arguments(&flags.texts(&BUILD_ARG)?),
        labels: flags.texts(&LABEL)?.iter().map(|text| pair(text)).collect(),
        annotations: flags
            .texts(&ANNOTATION)?
            .iter()
            .map(|text| build_words::annotation(text))
            .collect::<Result<_>>()?,
        secrets: flags.texts(&SECRET)?.iter().map(|text| secret(text)).collect::<Result<_>>()?,
        no_cache: flags.has(&NO_BUILD_CACHE),
        no_cache_for: flags
            .texts(&NO_CACHE_FILTER)?
            .iter()
            .flat_map(|text| text.split(','))
            .map(str::to_ascii_lowercase)
            .collect(),
        jobs: build_words::jobs(flags.given_number(&JOBS)?),
        timestamp: flags.text(&TIMESTAMP)?.map(build::timestamp).transpose()?,
        compression: compression(flags.text(&COMPRESSION)?)?,
        caches: Caches {
            from: caches("--cache-from", &flags.texts(&CACHE_FROM)?)?,
            to: caches("--cache-to", &flags.texts(&CACHE_TO)?)?,
            connect: super::connect_options(flags)?,
        },
        no_network: match flags.text(&BUILD_NETWORK)? {
            None | Some("default" | "host") => false,
            Some("none") => true,
            Some(other) => bail!("--network {other} is not supported: use host or none"),
        },
        hosts: flags.texts(&ADD_HOST)?.iter().map(|text| build_words::host(text)).collect::<Result<_>>()?,
        emulation: match flags.text(&BUILD_ROOT_EMULATION)? {
            Some(word) => parse_root_emulation(word)?,
            None => RootEmulation::Full,
        },
        quiet: flags.has(&SILENT),
    })
}

/// What the user named as a context.
fn context(word: &str) -> Result<build::Context> {
    if word == "-" {
        return Ok(build::Context::Stdin);
    }
    if build::is_url(word) {
        return Ok(build::Context::Url(word.to_owned()));
    }
    match look::kind_unserved(word)? {
        Some(rustix::fs::FileType::Directory) => rt_sys::fd::absolute(word).map(build::Context::Directory),
        _ => bail!("context {word}: no such directory"),
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

/// `id=ID,src=FILE` or `id=ID,env=NAME`. A file is read here, where a signal still ends the process that waits for a pipe.
fn secret(text: &str) -> Result<Secret> {
    let (mut id, mut file, mut variable) = (None, None, None);
    for field in text.split(',') {
        match field.split_once('=') {
            Some(("id", value)) => id = Some(value.to_owned()),
            Some(("src" | "source", value)) => file = Some(value),
            Some(("env", value)) => variable = Some(value.to_owned()),
            Some(("type", "file" | "env")) => {}
            _ => bail!("--secret {text}: use id=ID,src=FILE or id=ID,env=NAME"),
        }
    }
    let Some(id) = id.filter(|id| !id.is_empty() && !id.contains('/')) else {
        bail!("--secret {text}: no id")
    };
    match file {
        Some(file) => Secret::from_file(id, Path::new(file)),
        None => Ok(Secret { from: SecretFrom::Variable(variable.unwrap_or_else(|| id.clone())), id }),
    }
}

/// The image of a FROM or a --from. A file names images of registries and of the store, and no file of the host.
fn base(
    call: &Call,
    image: &str,
    what_for: Use,
    policy: PullPolicy,
    interrupt: &Interrupt,
) -> Result<PathBuf> {
    let source = Source::named(image, registry()?)?;
    if !matches!(source, Source::Registry(_)) {
        bail!("{image}: not the name of an image in a registry or in the store");
    }
    let options = |source: &Source, name: &str| -> Result<PullOptions> {
        let options = super::pull::pull_options(call, name.to_owned(), source.clone(), PathBuf::new())?;
        Ok(PullOptions { owners: true, ..options })
    };
    let fetch = |source: &Source, name: &str, policy, own| -> Result<PathBuf> {
        let (options, watermarks) = (options(source, name)?, Watermarks::from_environment()?);
        let request = StoreRequest { options, policy, platform: None, names: None, watermarks, own };
        Ok(images::fetch_watched(request, interrupt)?.path)
    };
    let mut path = fetch(&source, image, policy, false)?;
    if !images::is_callers(&path)? {
        if what_for == Use::Files {
            return Ok(path);
        }
        // The same image, and not what its name means in the registry.
        let own = images::pinned(&path, &source)
            .and_then(|pinned| fetch(&pinned, &images::canonical(&pinned)?, PullPolicy::Missing, true));
        path = match own {
            Err(e) if is_interrupted(&e) => return Err(e),
            Err(e) => {
                let owners =
                    if build::is_recorded(&path)? { "" } else { ", which belong to root in what is built" };
                log::warn!(
                    "{image}: that of another user's store is taken, not all of whose files may be read or changed{owners}: {e}"
                );
                return Ok(path);
            }
            Ok(own) => own,
        };
    }
    // It came before any image was built on it.
    if let Err(e) = build::record_owners(&path, &options(&source, image)?, interrupt) {
        if is_interrupted(&e) {
            return Err(e);
        }
        log::warn!("{image}: all of it belongs to root in what is built: {e}");
    }
    Ok(path)
}

/// What is made of the image. Without a word it goes into the store.
fn outputs<'a>(call: &'a Call, names: &'a [String], into: Option<&'a Into>) -> Result<Vec<Output<'a>>> {
    let mut all = Vec::new();
    if !names.is_empty() || matches!(into, None | Some(Into::Store)) {
        all.push(Output::Store(Box::new(move |made, interrupt| store(call, names, made, interrupt))));
    }
    let Some(Into::Target(text)) = into else { return Ok(all) };
    if Transport::split(text).is_some() {
        let target = SaveTarget::parse(text)?;
        target.check_replaces_itself().context(|| "--output")?;
        all.push(Output::Saved(target));
        return Ok(all);
    }
    // Other programs' word for standard output, as of rt save.
    if text == "-" {
        return Err(
            err!("--output -: no image is written to standard output").hint("./- is a file of that name")
        );
    }
    let target = rt_sys::fd::absolute(text)?;
    // What cannot be replaced is told before the build.
    match form_of(&call.flags, &target)? {
        Some(form) => image_file::replaceable(&target, true, form)?,
        None => bundle::replaceable(&target)?,
    };
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
            let request = StoreRequest {
                options,
                policy: PullPolicy::Always,
                platform: None,
                names,
                watermarks,
                own: false,
            };
            let Stored { .. } = images::fetch_watched(request, interrupt)?;
            Ok(true)
        }
    }
}
