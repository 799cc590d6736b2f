//! The annotations that `rt` reads: their names, and what each one says. Nothing else reads annotations by name.

use super::Spec;
use super::emulation::{RootEmulation, parse_root_emulation};
use super::user_map::{UserMap, parse_user_map};
use rt_sys::bail;
use rt_sys::error::{Context, Result};
use std::path::Path;

/// The annotation that says which id the process has inside: `caller`, `root` or `config`.
pub const ANNOTATION_USER: &str = "rt.user";
/// The annotation that says what becomes of the owners that root of one id gives: `full`, `fast` or `off`.
pub const ANNOTATION_ROOT_EMULATION: &str = "rt.root-emulation";
/// The annotation that asks, by `caller`, for lines of the caller in the container's passwd and group files.
pub const ANNOTATION_PASSWD: &str = "rt.passwd";
/// The annotation that asks, by `bind`, for the caller's home directory at its own path.
pub const ANNOTATION_HOME: &str = "rt.home";
/// The annotation that lists, separated by commas, destinations of binds that are left out where their source is
/// missing.
pub const ANNOTATION_OPTIONAL: &str = "rt.mounts.optional";
/// The annotation that lists, separated by commas, destinations of read-only binds of host files that are copied instead
/// where root inside may write the root: a bind would keep package managers from replacing the file.
pub const ANNOTATION_COPIED: &str = "rt.mounts.copied";
/// The annotation that asks, by `true`, for an init of `rt`'s own as the first process of a new PID namespace.
pub const ANNOTATION_INIT: &str = "rt.init";
/// The annotation in which `rt` tells hooks the variables that the command line and precreate hooks have set: the
/// bundle's config.json does not have them.
pub const ANNOTATION_ENV: &str = "rt.env";
/// The annotation that has the image's entrypoint, a JSON array of words, where `rt pull` made the bundle from an image with
/// one. `process.args` begins with these words.
pub const ANNOTATION_ENTRYPOINT: &str = "rt.image.entrypoint";
/// The annotation that has the image's default arguments, its Cmd, a JSON array of words. `process.args` ends with these
/// words.
pub const ANNOTATION_CMD: &str = "rt.image.cmd";
/// The annotation that names an image file, squashfs or SIF, which is the root instead of `root.path`.
pub const ANNOTATION_IMAGE_FILE: &str = "rt.image.file";
/// The annotation that asks, by `caller`, for the caller's environment below that of the config (`rt run`).
pub const ANNOTATION_ENVIRONMENT: &str = "rt.environment";
/// The annotation that asks, by `host`, for the host's MPI library.
pub const ANNOTATION_MPI: &str = "rt.mpi";
/// The annotation that has the image's name as it was pulled.
pub const ANNOTATION_NAME: &str = "rt.image.name";
/// The annotation that has the digest of the image's manifest.
pub const ANNOTATION_DIGEST: &str = "rt.image.digest";
/// The annotation that has the digest that the name stood for: the index's, where there is one.
pub const ANNOTATION_RESOLVED: &str = "rt.image.resolved";
/// The annotation that has the number of bytes of the files that were written.
pub const ANNOTATION_BYTES: &str = "rt.image.bytes";
/// The annotation that a hook of the stage precreate sets where it has put CDI devices into the config, so that the later
/// stage does not repeat it.
pub const ANNOTATION_MERGED: &str = "rt.cdi.merged";
/// The annotation by which podman names itself in every config. An image cannot take it away.
const MANAGER: &str = "io.container.manager";
/// crun's annotation for podman's `--group-add keep-groups`. Any value counts.
const KEEP_GROUPS: &str = "run.oci.keep_original_groups";

/// What decides an id, a group, a mount, or what is shown of the caller's: an image may say none of it.
const BUNDLES: [&str; 9] = [
    ANNOTATION_USER,
    ANNOTATION_ROOT_EMULATION,
    ANNOTATION_PASSWD,
    ANNOTATION_HOME,
    ANNOTATION_ENVIRONMENT,
    ANNOTATION_OPTIONAL,
    ANNOTATION_COPIED,
    ANNOTATION_IMAGE_FILE,
    KEEP_GROUPS,
];
/// What the names of the annotations begin with that the image-spec's conversion makes of an image's config. It makes
/// annotations of all labels, too.
const CONVERTED: &str = "org.opencontainers.image.";

/// An annotation, for rt-annotations(7).
#[derive(Debug)]
pub struct Annotation {
    /// Its name.
    pub name: &'static str,
    /// What its value can be.
    pub values: &'static str,
    /// What it says: sentences.
    pub help: &'static str,
}

const fn of(name: &'static str, values: &'static str, help: &'static str) -> Annotation {
    Annotation { name, values, help }
}

/// The annotations that say how a container is to run.
pub static READ: &[Annotation] = &[
    of(
        ANNOTATION_USER,
        "caller, root or config",
        "Which user the caller is inside: the same id, root, or the user of the config. --user-map comes before it. In a \
         config of podman's only root counts, and only for a process that is root in any case.",
    ),
    of(
        ANNOTATION_ROOT_EMULATION,
        "full, fast or off",
        "What becomes of the owners and devices of root where one id is mapped, as with --root-emulation.",
    ),
    of(ANNOTATION_PASSWD, "caller", "The caller has lines in the container's passwd(5) and group(5)."),
    of(ANNOTATION_HOME, "bind", "The caller's home directory is mounted at its own path."),
    of(
        ANNOTATION_ENVIRONMENT,
        "caller",
        "rt run passes the caller's environment on, below that of the config; see ENVIRONMENT in rt(1).",
    ),
    of(
        ANNOTATION_INIT,
        "true or false",
        "An init of rt's own is the first process of a new PID namespace, as with --init.",
    ),
    of(
        ANNOTATION_OPTIONAL,
        "destinations, separated by commas",
        "These bind mounts are left out where their source is missing.",
    ),
    of(
        ANNOTATION_COPIED,
        "destinations, separated by commas",
        "Where root inside may write the root, these files of the host are copied instead of bound read-only, so that \
         package managers can replace them.",
    ),
    of(ANNOTATION_IMAGE_FILE, "a path", "An image file, squashfs or SIF, is the root instead of root.path."),
    of(ANNOTATION_MPI, "host", "The host's MPI library is brought, as with --mpi host; see rt-hooks(7)."),
    of(KEEP_GROUPS, "any", "The process keeps the caller's supplementary groups."),
    of(
        MANAGER,
        "any",
        "The config is podman's, in which annotations of the image's manifest can be annotations of the container: those \
         that decide ids, groups or mounts, or show a container something of the caller's, do not count.",
    ),
    of(
        "org.opencontainers.image.*",
        "any",
        "The config was converted from an image's, whose labels are annotations then. The same ones do not count, unless the \
         bundle has the file image.json of rt pull.",
    ),
];

/// The annotations that rt, rt pull and the hooks write.
pub static WRITTEN: &[Annotation] = &[
    of(ANNOTATION_NAME, "a name", "The image's name, as it was pulled."),
    of(ANNOTATION_DIGEST, "a digest", "The digest of the image's manifest."),
    of(
        ANNOTATION_RESOLVED,
        "a digest",
        "The digest that the name stood for: that of the index, where the image has several platforms.",
    ),
    of(ANNOTATION_BYTES, "a number", "The bytes of the files that were written."),
    of(
        ANNOTATION_ENTRYPOINT,
        "a JSON array of words",
        "The image's entrypoint. process.args begins with it, and what follows -- on the command line of rt run comes \
         behind it.",
    ),
    of(
        ANNOTATION_CMD,
        "a JSON array of words",
        "The image's default arguments, with which process.args ends.",
    ),
    of(
        ANNOTATION_ENV,
        "a JSON array of NAME=VALUE",
        "In the state that hooks of hooks.d read: the variables that the command line and hooks of the stage precreate \
         have set, and config.json does not have.",
    ),
    of(ANNOTATION_MERGED, "any", "A hook of the stage precreate has put the CDI devices into the config."),
];

/// The value of an annotation.
fn annotation<'a>(spec: &'a Spec, name: &str) -> Option<&'a str> {
    spec.annotations().as_ref()?.get(name).map(String::as_str)
}

/// True where an annotation may be the image's word: podman makes annotations of an image's manifest annotations of the
/// container.
pub fn may_be_the_images(spec: &Spec) -> bool {
    annotation(spec, MANAGER).is_some()
}

/// The value of an annotation that decides an id, a group, a mount, or what is shown of the caller's. It does not count where
/// it may be the image's word.
fn bundles_annotation<'a>(spec: &'a Spec, name: &str) -> Option<&'a str> {
    annotation(spec, name).filter(|_| !may_be_the_images(spec))
}

/// True where annotations that count may be labels of the image, as in what umoci makes: the config is a conversion of an
/// image's. podman's configs have annotations of the conversion, too, and [`may_be_the_images`] says what counts in them.
pub fn may_be_labels(spec: &Spec) -> bool {
    let annotations = spec.annotations().as_ref().filter(|_| !may_be_the_images(spec));
    annotations.is_some_and(|all| {
        all.keys().any(|name| name.starts_with(CONVERTED))
            && BUNDLES.iter().any(|name| all.contains_key(*name))
    })
}

/// Takes the annotations away that may be labels of the image, and returns their names.
pub fn forget_labels(spec: &mut Spec) -> Vec<&'static str> {
    let Some(all) = spec.annotations_mut() else { return Vec::new() };
    BUNDLES.into_iter().filter(|name| all.remove(*name).is_some()).collect()
}

/// Gives an annotation a value, whatever it had.
pub fn annotate(spec: &mut Spec, name: &str, value: &str) {
    let mut annotations = spec.annotations().clone().unwrap_or_default();
    annotations.insert(name.to_owned(), value.to_owned());
    spec.set_annotations(Some(annotations));
}

/// Takes an annotation away.
pub fn forget(spec: &mut Spec, name: &str) {
    if let Some(annotations) = spec.annotations_mut() {
        annotations.remove(name);
    }
}

/// Which id the process has inside; `None` where the config does not say it.
pub fn user_map(spec: &Spec) -> Result<Option<UserMap>> {
    if may_be_the_images(spec) {
        let agrees =
            annotation(spec, ANNOTATION_USER) == Some(UserMap::Root.as_str()) && is_listed_root(spec);
        return Ok(agrees.then_some(UserMap::Root));
    }
    annotation(spec, ANNOTATION_USER).map(parse_user_map).transpose()
}

/// What becomes of owners where root is emulated.
pub fn root_emulation(spec: &Spec) -> Result<RootEmulation> {
    let said = annotation(spec, ANNOTATION_ROOT_EMULATION).filter(|_| !may_be_the_images(spec));
    said.map_or(Ok(RootEmulation::Off), parse_root_emulation)
}

/// True where the process is root in any case, with capabilities that the config lists: `root` then asks for nothing but
/// answers to what root of one id cannot do.
fn is_listed_root(spec: &Spec) -> bool {
    let process = spec.process().as_ref();
    process.is_some_and(|process| {
        process.user().uid() == 0 && process.user().gid() == 0 && process.capabilities().is_some()
    })
}

/// True where the config says which id the process has inside, readable or not.
pub fn has_user_map(spec: &Spec) -> bool {
    user_map(spec).map_or(true, |map| map.is_some())
}

/// True where the caller is to have lines in passwd and group.
pub fn asks_for_account(spec: &Spec) -> Result<bool> {
    is_word(bundles_annotation(spec, ANNOTATION_PASSWD), ANNOTATION_PASSWD, "caller")
}

/// True where the caller's home directory is to be bound.
pub fn asks_for_home(spec: &Spec) -> Result<bool> {
    is_word(bundles_annotation(spec, ANNOTATION_HOME), ANNOTATION_HOME, "bind")
}

/// True where the program is to have the caller's environment.
pub fn asks_for_environment(spec: &Spec) -> Result<bool> {
    let word = bundles_annotation(spec, ANNOTATION_ENVIRONMENT);
    is_word(word, ANNOTATION_ENVIRONMENT, "caller")
}

/// True for a config that `rt pull` or `rt build` has made of an image, and no client.
pub fn is_of_image(spec: &Spec) -> bool {
    bundles_annotation(spec, ANNOTATION_NAME).is_some()
}

/// The image's entrypoint; empty where it has none, or the config says nothing about it.
pub fn entrypoint(spec: &Spec) -> Result<Vec<String>> {
    let Some(text) = annotation(spec, ANNOTATION_ENTRYPOINT) else { return Ok(Vec::new()) };
    let context = || format!("annotation {ANNOTATION_ENTRYPOINT}");
    serde_json::from_str(text).map_err(super::json_error).context(context)
}

/// The image file that is the root, where it is not what `root.path` names.
pub fn image_file(spec: &Spec) -> Option<&Path> {
    bundles_annotation(spec, ANNOTATION_IMAGE_FILE).map(Path::new)
}

/// The destinations of binds that are left out where their source is missing, separated by commas.
pub fn optional_mounts(spec: &Spec) -> Option<&str> {
    bundles_annotation(spec, ANNOTATION_OPTIONAL)
}

/// The destinations of binds of host files that are copied where root inside may write the root, separated by commas.
pub fn copied_mounts(spec: &Spec) -> Option<&str> {
    bundles_annotation(spec, ANNOTATION_COPIED)
}

/// True where `list`, an annotation, names `destination`.
pub fn names(list: &str, destination: &Path) -> bool {
    list.split(',').any(|path| Path::new(path.trim()) == destination)
}

/// True where a process of `rt`'s own is to be the first one of a new PID namespace.
pub fn asks_for_init(spec: &Spec) -> Result<bool> {
    match annotation(spec, ANNOTATION_INIT) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => bail!("annotation {ANNOTATION_INIT}: {other:?} is neither true nor false"),
    }
}

/// True where the host's MPI library is asked for.
pub fn asks_for_mpi(spec: &Spec) -> bool {
    annotation(spec, ANNOTATION_MPI) == Some("host")
}

/// True where the process keeps the caller's groups. In a user namespace that a client has made (`is_clients`) the word counts
/// beside podman's, too: `--group-add keep-groups` has no other, and what an image could gain by it are groups of a plain user.
pub fn keeps_groups(spec: &Spec, is_clients: bool) -> bool {
    annotation(spec, KEEP_GROUPS).is_some_and(|_| is_clients || !may_be_the_images(spec))
}

/// True where `value`, of the annotation `name`, is `word`, which is the only one that it may be.
fn is_word(value: Option<&str>, name: &str, word: &str) -> Result<bool> {
    match value {
        None => Ok(false),
        Some(found) if found == word => Ok(true),
        Some(other) => bail!("annotation {name}: {other:?} is not {word:?}"),
    }
}
