//! The descriptions of the commands about images. `rt` parses these commands, so that help and errors need no second
//! program, and then executes `rt-pull`, which parses the same words and acts.
#![allow(missing_docs, reason = "each flag says in its help what it is for")]

use crate::command::{Command, ONE_ID, Rest};
use crate::flag::{Flag, switch, value};

// How to talk to a registry.
pub static AUTHFILE: Flag = value("authfile", "FILE", "read credentials from FILE, in docker's format");
pub static CREDS: Flag = value("creds", "USER:PASSWORD", "credentials for this call");
pub static INSECURE: Flag = switch("insecure", "do not check certificates, and use HTTP if HTTPS fails");
pub static PLAIN_HTTP: Flag = switch("plain-http", "use HTTP instead of HTTPS");
pub static RETRIES: Flag = value("retries", "N", "repeat a failed request up to N times; 6 by default");

// Where blobs are kept.
pub static CACHE_DIR: Flag = value("cache", "DIR", "keep blobs in DIR; overrides RT_CACHE");
pub static NO_CACHE: Flag = switch("no-cache", "keep no blobs in the cache");

pub static PLATFORM: Flag =
    value("platform", "OS/ARCH[/VARIANT]", "take the image for another platform than this one");
pub static JSON: Flag = switch("json", "print one JSON document");
pub static PINNED: Flag =
    switch("pinned", "print the name with the digest that it has now, and nothing else");
pub static SILENT: Flag = switch("quiet", "print only the result and what is wrong").short('q');

// What a bundle is to be like.
pub static PROFILE: Flag = value("profile", "hpc|isolated", "how the container is to run; hpc by default");
pub static BUNDLE_USER: Flag = value(
    "user-map",
    "caller|root|config",
    "which user the process is inside; root also emulates what installers need",
);
pub static WRITABLE: Flag = switch("writable", "make the root writable in the hpc profile too");
pub static HOME: Flag = switch("home", "mount the home directory of the user who runs the bundle");
pub static PRIVATE: Flag =
    switch("private", "keep the image's file modes, and hide the bundle from other users");
pub static COMPRESS: Flag =
    value("compress", "zstd[:N]|lz4|gzip[:N]|none", "how an image file is compressed; zstd:3 by default");
pub static RUN_FILE: Flag =
    value("runfile", "FILE", "make FILE, a program that runs the image in it on hosts without rt");
pub static IMAGE_FILE: Flag =
    switch("image-file", "make an image file whatever its name, in place of a link or an empty file, too")
        .hidden();
pub static WHOLE: Flag = value(
    "whole",
    "DIR",
    "fail where files of DIR are removed meanwhile, which is a layer of the bundle's root",
)
.hidden();
pub static OVER: Flag =
    value("overlay", "DIR", "add what rt run --overlay DIR has kept, over the image that it was run with");
pub static REPLACE: Flag = switch("force", "replace an existing bundle or image file").short('f');
pub static REPLACE_IMAGE: Flag = switch("force", "replace an existing image").short('f');
pub static SYNC: Flag =
    switch("sync", "write the bundle to disk before returning, so that it survives a crash");
pub static VERIFY: Flag = switch("verify", "check the digests of the uncompressed layers too");
pub static CONNECTIONS: Flag = value("connections", "N", "fetch N blobs at once; 4 by default");
pub static MAX_SIZE: Flag = value("max-size", "BYTES", "refuse images that unpack to more, such as 20G");

// How a file with an image becomes a directory.
pub static EXTRACT: Flag =
    switch("extract", "unpack image files into memory instead of mounting them, which needs /dev/fuse");

pub static AS_BUNDLE: Flag =
    switch("bundle", "make DIR a bundle, with the image in rootfs and a config.json of what it says");

pub static USERNAME: Flag = value("username", "USER", "name of the user").short('u');
pub static PASSWORD: Flag =
    value("password", "PASSWORD", "password; other users may see it in the output of ps").short('p');
pub static PASSWORD_STDIN: Flag = switch("password-stdin", "read the password from stdin");

pub static OLDER_THAN: Flag = value("older-than", "DAYS", "prune blobs that were not used for DAYS days");
pub static KEEP_SIZE: Flag =
    value("max-size", "BYTES", "prune the least recently used blobs until the rest fits");

// The store of images.
pub static STORE: Flag =
    switch("store", "pull into the store of images, where rt run finds it, instead of into BUNDLE");
pub static PULL_POLICY: Flag =
    value("pull", "always|missing|never", "when to ask the registry for an image that is to be in the store");
pub static NO_PROGRESS: Flag = switch("quiet", "show no progress of a pull").short('q');
pub static DIGESTS_ONLY: Flag = switch("quiet", "print only the digests").short('q');
pub static UNTAG: Flag = switch("force", "remove the name also if a container uses the image").short('f');
pub static ALL_IMAGES: Flag = switch("all", "remove images that have a name too").short('a');
pub static OLDER: Flag =
    value("older", "DURATION", "only images that were not used for so long, such as 30d or 12h");
pub static HIGH: Flag =
    value("high", "PERCENT", "only if more of the file system is used; then named images go too");
pub static LOW: Flag =
    value("low", "PERCENT", "stop when less of the file system is used; 10 below --high by default");
pub static DRY_RUN: Flag = switch("dry-run", "print what would be removed, and remove nothing").short('n');

/// `--tag`
pub static TAG: Flag =
    value("tag", "NAME[:TAG]", "a name that the image gets in the store").short('t').repeats();
/// `--file`
pub static BUILD_FILE: Flag =
    value("file", "FILE", "read this file in place of the context's; - is standard input").short('f');
/// `--target`
pub static TARGET: Flag =
    value("target", "STAGE", "build this stage and what it needs; the last one by default");
/// `--build-arg`
pub static BUILD_ARG: Flag =
    value("build-arg", "NAME[=VALUE]", "the value of an ARG; NAME alone takes the caller's variable")
        .repeats();
/// `--label`
pub static LABEL: Flag = value("label", "NAME=VALUE", "add a label to the image").repeats();
/// `--annotation`
pub static ANNOTATION: Flag =
    value("annotation", "NAME=VALUE", "add an annotation to the image's manifest").repeats();
/// `--secret`
pub static SECRET: Flag = value(
    "secret",
    "id=ID,src=FILE",
    "a file for RUN --mount=type=secret, in no layer and no cache; id=ID,env=NAME takes a variable",
)
.repeats();
/// `--ssh`
pub static SSH: Flag = value(
    "ssh",
    "default|ID[=SOCKET]",
    "an agent for RUN --mount=type=ssh and for git by ssh; without SOCKET that of SSH_AUTH_SOCK",
)
.repeats();
/// `--build-context`
pub static BUILD_CONTEXT: Flag = value(
    "build-context",
    "NAME=DIR|URL|docker-image://IMAGE",
    "what NAME stands for in --from, and in FROM where it is an image; in place of a stage or image of that name",
)
.repeats();
/// `--cache-from`
pub static CACHE_FROM: Flag = value(
    "cache-from",
    "type=registry,ref=NAME",
    "take layers from what --cache-to has written there; whoever can write there decides what is built",
)
.repeats();
/// `--cache-to`
pub static CACHE_TO: Flag = value(
    "cache-to",
    "type=registry,ref=NAME",
    "write all layers of the build there, for --cache-from on another machine",
)
.repeats();
/// `--root-emulation`
pub static BUILD_ROOT_EMULATION: Flag = value(
    "root-emulation",
    "full|fast|off",
    "what becomes of the owners and devices that root sets in RUN: full records them and tells programs, fast only records",
);
/// `--no-cache`, of a build
pub static NO_BUILD_CACHE: Flag = switch("no-cache", "use no layers of builds before");
/// `--no-cache-filter`
pub static NO_CACHE_FILTER: Flag =
    value("no-cache-filter", "STAGE[,STAGE]", "use no layers of builds before for these stages").repeats();
/// `--jobs`
pub static JOBS: Flag =
    value("jobs", "N", "build at most N stages at once; 0, and by default, as many as there are processors");
/// `--pull`, of a build
pub static PULL_BASE: Flag = value(
    "pull",
    "always|missing|never",
    "when to ask the registry for the images of FROM; without a word always, by default for those that the store lacks",
)
.optional();
/// `--add-host`
pub static ADD_HOST: Flag =
    value("add-host", "NAME:ADDRESS", "a line for /etc/hosts while RUN runs; it is in no layer").repeats();
/// `--format`, of a build
pub static BUILD_FORMAT: Flag = value("format", "oci", "podman's flag: rt makes images of no other form");
/// `--isolation`
pub static ISOLATION: Flag =
    value("isolation", "default|oci|rootless", "podman's flag: each RUN is a container of rt all the same");
/// `--network`, of a build
pub static BUILD_NETWORK: Flag =
    value("network", "default|host|none", "the network of each RUN that names none; the host's by default");
/// `--platform`, of a build
pub static BUILD_PLATFORM: Flag =
    value("platform", "OS/ARCH[/VARIANT]", "this machine's; rt builds for no other");
/// `--rm`, of a build
pub static RM_STEPS: Flag = switch("rm", "remove the containers of RUN; rt always does").ignored();
/// `--force-rm`
pub static FORCE_RM_STEPS: Flag =
    switch("force-rm", "remove them also after an error; rt always does").ignored();
/// `--layers`
pub static LAYERS: Flag = switch("layers", "keep layers for the next build; rt always does").ignored();
/// `--iidfile`
pub static IID_FILE: Flag = value("iidfile", "FILE", "write the digest of the image's manifest to FILE");
/// `--metadata-file`
pub static METADATA_FILE: Flag =
    value("metadata-file", "FILE", "write the digest of the image's manifest and its names to FILE, as JSON");
/// `--output`
pub static OUTPUT: Flag = value(
    "output",
    "FILE.sqsh|DIR|oci-archive:FILE",
    "make an image file, a bundle, or what rt save writes; it replaces one that is there. type=oci|docker,dest=FILE is docker's form",
)
.short('o');
/// `--timestamp`
pub static TIMESTAMP: Flag = value(
    "timestamp",
    "SECONDS",
    "the time of all files and of the image, since 1970: the same files make the same image then",
);
/// `--compression`
pub static COMPRESSION: Flag =
    value("compression", "gzip|zstd", "how the layers of oci: and oci-archive: are stored; gzip by default");
/// `--progress`
pub static PROGRESS: Flag = value("progress", "auto|plain", "how progress is shown; both are lines");

const ABOUT_PULL: &str = "\
IMAGE is an image in a registry, NAME[:TAG][@DIGEST], where docker.io is the default registry. Further
forms are docker://NAME and enroot's REGISTRY#IMAGE:TAG; oci:DIR[:TAG], oci-archive:FILE[:TAG] and
docker-archive:FILE[:NAME:TAG]; docker-daemon:NAME and podman:NAME.

BUNDLE is the directory to make. By default it is made in the current directory and named after the
image. It appears only when it is complete. Where a bundle of the same image is there already, nothing
is done. A bundle of another image is an error; --force replaces it.

With --store the bundle goes into the store of images, from which rt run IMAGE starts containers. It
has the profile hpc. By default the registry is asked whether the image has changed; with --pull
missing, only an image that the store does not have is pulled. See also rt-images(1).

A name that ends in .sqsh, .sqfs or .squashfs is a single file, a squashfs with everything as in the
image, which is written while the layers arrive. Nothing is unpacked.

With the profile hpc the container shares the host's network, processes and devices, runs as the user
who calls rt run, and has a read-only root. With the profile isolated the container has namespaces of
its own and runs as root inside.

Blobs are kept in a cache, which users and nodes can share. rt(1) says under ENVIRONMENT and FILES
where the cache is, and from which files credentials, mirrors and certificates are read.";

const ABOUT_SAVE: &str = "\
IMAGE is the name of one in the store. The image that is made has one layer, in which everything belongs to root.
What config.json says of the program, its arguments, variables and directory is what the image says; what the image
said that the bundle was pulled from is kept, such as its entrypoint, user, volumes, ports, labels and history. The
image's digest is printed; docker-archive has no manifest, so there it is the digest of the image's config, which
docker calls the image's id.

A name that ends in .sqsh, .sqfs or .squashfs is a single file, a squashfs with the bundle's config in
it; its path is printed. A directory that is no bundle becomes such a file of data, for rt run -v.

With --runfile the file is a program for this kind of machine: rt and the image behind each other. Called with
ARGS it runs the image as rt run does, for whoever calls it, on hosts without rt too; --rt-help says what else
it can do. An image file is taken as it is, and any other name is pulled as by rt pull.

With --overlay, BUNDLE may also be the name of an image, and what was written over it becomes a second layer: files
that were removed are removed by it. In a single file the two are merged. No container may write to DIR meanwhile.

The image is there whole or not at all. The same tree always gives the same digest.";

const ABOUT_PUSH: &str = "\
IMAGE is the name of one in the store. What is sent is what rt save writes: one layer in which everything belongs to
root, with what config.json and the image say that the bundle was pulled from. Of an image on disk for several
platforms the one for this machine is sent, or that of --platform.

What the registry has already is not sent again. An upload goes on after a broken connection. The layer of a bundle
is written to the cache's file system first. The digest of the manifest is printed. --overlay is as for rt-save(1).

Credentials, certificates and registries.conf are as for rt-pull(1). Mirrors are not written to.";

/// `rt pull`
pub const PULL: Command = Command {
    name: "pull",
    summary: "turn an image into a bundle",
    usage: &["IMAGE [BUNDLE]", "--store IMAGE"],
    operands: 1..=2,
    flags: &[
        &STORE,
        &PULL_POLICY,
        &PROFILE,
        &BUNDLE_USER,
        &WRITABLE,
        &HOME,
        &PRIVATE,
        &REPLACE,
        &COMPRESS,
        &SYNC,
        &VERIFY,
        &PLATFORM,
        &CACHE_DIR,
        &NO_CACHE,
        &CONNECTIONS,
        &MAX_SIZE,
        &AUTHFILE,
        &CREDS,
        &INSECURE,
        &PLAIN_HTTP,
        &RETRIES,
        &JSON,
        &SILENT,
    ],
    about: ABOUT_PULL,
    examples: &[
        ("run Debian from Docker Hub", "rt pull debian:12 && rt run ./debian-12 -- cat /etc/os-release"),
        ("a root in which to install software", "rt pull --user-map root debian:12 build"),
        ("from the output of podman save", "rt pull docker-archive:image.tar mine"),
    ],
    ..ONE_ID
};

/// `rt images`
pub const IMAGES_COMMAND: Command = Command {
    name: "images",
    summary: "list the images in the store",
    usage: &[""],
    operands: 0..=0,
    flags: &[&JSON, &DIGESTS_ONLY],
    about: "\
The store has the images that rt run IMAGE and rt pull --store have pulled. It is in the directory of
RT_IMAGES, else in $XDG_DATA_HOME/rt/images or ~/.local/share/rt/images. RT_IMAGES can be a list,
A:B. All of them are read, in this order, and new images go into the first one that the caller can
write.

USED is the time since a container was last started from the image. IN USE counts the processes on
this machine that have the image, and names other hosts on which containers were started from it in
the last 7 days: whether these still run cannot be seen from here.",
    examples: &[(
        "the store of a site, and one's own before it",
        "RT_IMAGES=$HOME/images:/opt/images rt images",
    )],
    ..ONE_ID
};

/// `rt rmi`
pub const RMI: Command = Command {
    name: "rmi",
    summary: "remove images from the store",
    usage: &["IMAGE..."],
    operands: 1..=4096,
    flags: &[&UNTAG, &PLATFORM],
    about: "\
IMAGE is a name, or the first digits of a digest, at least 4. The bundle is removed with the last name
of the image. An image that a container uses is not removed; with --force it loses its name, and rt
prune removes it later. Containers on other machines count for 7 days after their start.",
    ..ONE_ID
};

/// `rt prune`
pub const PRUNE: Command = Command {
    name: "prune",
    summary: "remove images that nobody uses from the store",
    usage: &[""],
    operands: 0..=0,
    flags: &[&ALL_IMAGES, &OLDER, &HIGH, &LOW, &DRY_RUN, &JSON],
    about: "\
Without flags, images that have no name any more are removed. No image goes that a container on this
machine uses, or that was used on another machine in the last 7 days.

With --high nothing is removed unless more than that of the file system is in use. Then images go, those
without a name first and then the least recently used, until less than --low is in use. If
RT_IMAGES_HIGH is set, every pull into the store does this first, and RT_IMAGES_LOW is its --low.

With --all, layers of rt build go too. The cache of blobs has a command of its own, rt cache prune.",
    examples: &[
        ("what was not used for a month", "rt prune --all --older 30d"),
        ("in a cron job of a site", "RT_IMAGES=/local/images rt prune --high 80 --low 60"),
    ],
    ..ONE_ID
};

/// `rt inspect`
pub const INSPECT: Command = Command {
    name: "inspect",
    summary: "show an image without pulling its layers",
    usage: &["IMAGE|BUNDLE|FILE"],
    flags: &[
        &PLATFORM,
        &CACHE_DIR,
        &NO_CACHE,
        &AUTHFILE,
        &CREDS,
        &INSECURE,
        &PLAIN_HTTP,
        &RETRIES,
        &JSON,
        &PINNED,
        &SILENT,
    ],
    about: "\
rt-pull(1) lists the forms of IMAGE. Of a BUNDLE, and of a FILE with an image - a squashfs, a SIF image or an
archive - the same is printed, but no layers where there are none any more.",
    ..ONE_ID
};

/// `rt save`
pub const SAVE: Command = Command {
    name: "save",
    summary: "write a bundle's root as an image that podman, docker and skopeo load",
    usage: &[
        "BUNDLE|IMAGE oci:DIR[:TAG]|oci-archive:FILE[:TAG]",
        "BUNDLE|IMAGE docker-archive:FILE[:NAME:TAG]",
        "BUNDLE|IMAGE FILE.sqsh",
        "--runfile FILE BUNDLE|FILE.sqsh|IMAGE",
    ],
    operands: 1..=2,
    flags: &[&OVER, &RUN_FILE, &COMPRESS, &REPLACE_IMAGE, &IMAGE_FILE, &WHOLE, &SILENT],
    about: ABOUT_SAVE,
    examples: &[
        ("for podman load, skopeo and rt pull", "rt save ./mine oci-archive:mine.tar:v1"),
        ("a single file", "rt save ./mine mine.sqsh"),
        ("a program", "rt save --runfile mine ./mine && ./mine --rt-help"),
        ("for docker load", "rt save ./mine docker-archive:mine.tar:team/mine:v1"),
        ("what was installed over an image", "rt save --overlay ./layer debian:12 oci-archive:mine.tar:v1"),
    ],
    ..ONE_ID
};

/// `rt convert`
pub const CONVERT: Command = Command {
    name: "convert",
    summary: "make another form of an image: bundle, image file, layout, archive or program",
    usage: &["FROM TO", "--runfile FILE FROM"],
    operands: 1..=2,
    flags: &[&OVER, &RUN_FILE, &COMPRESS, &REPLACE, &SILENT],
    about: "\
FROM is a bundle, a directory of data (which becomes a FILE.sqsh for rt run -v), an image file (squashfs, SIF, or a
program of rt save --runfile) or the name of an image, as oci:DIR[:TAG], docker-archive:FILE or a name in a registry:
rt-pull(1) lists the forms.

TO is FILE.sqsh, oci:DIR[:TAG], oci-archive:FILE[:TAG] or docker-archive:FILE[:NAME:TAG]; everything else is the
directory of a bundle. With --runfile FILE it is a program.

A squashfs becomes another file as it is, unless --compress says how it is to be compressed. For all else an image
file is mounted, which needs /dev/fuse. In what is made of it everything belongs to root then, and files that
its owner may not read are an error. With --overlay, as for rt-save(1), no bundle is made.",
    examples: &[
        ("what enroot or Apptainer has made, for podman", "rt convert tool.sif oci-archive:tool.tar:v1"),
        ("an archive of docker save as one file", "rt convert docker-archive:tool.tar tool.sqsh"),
    ],
    ..ONE_ID
};

/// `rt push`
pub const PUSH: Command = Command {
    name: "push",
    summary: "send a bundle's root, or an image on disk, to a registry",
    usage: &["BUNDLE|IMAGE|oci:DIR[:TAG]|oci-archive:FILE[:TAG] REGISTRY/NAME[:TAG]"],
    operands: 2..=2,
    flags: &[
        &OVER,
        &PLATFORM,
        &CACHE_DIR,
        &NO_CACHE,
        &AUTHFILE,
        &CREDS,
        &INSECURE,
        &PLAIN_HTTP,
        &RETRIES,
        &JSON,
        &SILENT,
    ],
    about: ABOUT_PUSH,
    examples: &[("share what was installed", "rt login ghcr.io && rt push ./build ghcr.io/me/tool:1")],
    ..ONE_ID
};

const ABOUT_BUILD: &str = "\
CONTEXT is a directory; - for an archive or a Containerfile on standard input; or a URL of an archive, of a Containerfile, or of a
repository of git, as URL.git[#REF[:DIR]]. The file is its Containerfile, else its Dockerfile, else that of --file. The language is that of the
Dockerfile reference; rt names the line of what it does not do. The image is kept in the store under its names, so that
rt run NAME runs it and rt push NAME sends it, and the digest of its manifest is printed.

A build needs neither root nor subordinate ids. RUN is a container of rt with the network of the host, whose user has one id:
owners and devices that root sets are kept, as --root-emulation says, and what else needs other ids is answered with success.

What an instruction makes is kept as a layer in RT_BUILD_DIR, and found again while nothing changes that it depends on.
Layers that were not used for 30 days go by themselves, and rt prune --all removes them. The directory must be on a local
file system, and can be removed when no build runs.

Names in FROM and --from are those of stages, of the store and of registries. A file reaches nothing of the host but the
context, less what .dockerignore leaves out, and the network.";

/// `rt build`
pub const BUILD: Command = Command {
    name: "build",
    summary: "build an image from a Containerfile",
    usage: &["[-t NAME[:TAG]] CONTEXT"],
    flags: &[
        &TAG,
        &BUILD_FILE,
        &TARGET,
        &BUILD_ARG,
        &LABEL,
        &ANNOTATION,
        &SECRET,
        &SSH,
        &BUILD_CONTEXT,
        &NO_BUILD_CACHE,
        &NO_CACHE_FILTER,
        &CACHE_FROM,
        &CACHE_TO,
        &BUILD_ROOT_EMULATION,
        &PULL_BASE,
        &BUILD_NETWORK,
        &ADD_HOST,
        &BUILD_PLATFORM,
        &JOBS,
        &BUILD_FORMAT,
        &ISOLATION,
        &RM_STEPS,
        &FORCE_RM_STEPS,
        &LAYERS,
        &IID_FILE,
        &METADATA_FILE,
        &OUTPUT,
        &TIMESTAMP,
        &COMPRESSION,
        &PROGRESS,
        &CACHE_DIR,
        &AUTHFILE,
        &CREDS,
        &INSECURE,
        &PLAIN_HTTP,
        &RETRIES,
        &SILENT,
    ],
    about: ABOUT_BUILD,
    examples: &[
        ("build, and run what was built", "rt build -t tool . && rt run tool"),
        ("a file for another machine", "rt build -o tool.sqsh ."),
        ("with a secret that is in no layer", "rt build --secret id=token,src=$HOME/.token -t tool ."),
    ],
    ..ONE_ID
};

/// `rt login`
pub const LOGIN: Command = Command {
    name: "login",
    summary: "store credentials for a registry",
    usage: &["[REGISTRY]"],
    operands: 0..=1,
    flags: &[&USERNAME, &PASSWORD, &PASSWORD_STDIN, &AUTHFILE, &INSECURE, &PLAIN_HTTP, &RETRIES],
    about:
        "The credentials are tried, and then stored where podman and skopeo find them too. REGISTRY is docker.io
by default. What registries.conf says of its host, as insecure = true, counts.",
    ..ONE_ID
};

/// `rt logout`
pub const LOGOUT: Command = Command {
    name: "logout",
    summary: "remove the credentials for a registry",
    usage: &["[REGISTRY]"],
    operands: 0..=1,
    flags: &[&AUTHFILE],
    ..ONE_ID
};

/// `rt cache`
pub const CACHE: Command = Command {
    name: "cache",
    summary: "list, prune or verify the cache of blobs",
    usage: &["list|prune|verify"],
    flags: &[&OLDER_THAN, &KEEP_SIZE, &CACHE_DIR, &JSON],
    about: "\
list prints the blobs in the cache. prune removes all blobs, or only those that --older-than and
--max-size choose. verify reads all blobs and removes those that are damaged.",
    ..ONE_ID
};

/// `rt mount`
pub const MOUNT: Command = Command {
    name: "mount",
    summary: "run a program that sees an image file at a directory",
    usage: &["FILE DIR [-- COMMAND [ARGS...]]"],
    operands: 2..=2,
    rest: Rest::AfterDashes,
    flags: &[&AS_BUNDLE, &EXTRACT],
    about: "\
FILE is a squashfs or SIF image. It is mounted read-only at DIR, an existing directory, for COMMAND and the
programs that it starts. No other process sees the mount, and it ends with the last of them. COMMAND
runs on the host as the user who calls, with no further rights. It is the user's shell by default.

With --bundle DIR is a bundle: rootfs in it is the image, and config.json says how rt run would run it.

The kernel's device /dev/fuse is needed, and neither root nor any other program.

The exit code is that of COMMAND.",
    examples: &[("list what is in an image", "rt mount data.sqsh /mnt -- find /mnt")],
    ..ONE_ID
};
