//! The commands about images, without what does them: `rt` parses them, so that help and errors need no second
//! program, and executes `rt-pull`, which parses the same words and acts.
#![allow(missing_docs, reason = "each flag says in its help what it is for")]

use crate::command::{Command, ONE_ID};
use crate::flag::{Flag, switch, value};

// How to talk to a registry.
pub static AUTHFILE: Flag = value("authfile", "FILE", "credentials, in docker's format");
pub static CREDS: Flag = value("creds", "USER:PASSWORD", "credentials for this call");
pub static INSECURE: Flag = switch("insecure", "do not check certificates, and try HTTP after HTTPS");
pub static PLAIN_HTTP: Flag = switch("plain-http", "use HTTP");
pub static RETRIES: Flag = value("retries", "N", "how often a failed request is made again; 6 by default");

// Where blobs are kept.
pub static CACHE_DIR: Flag = value("cache", "DIR", "the cache, over RT_CACHE");
pub static NO_CACHE: Flag = switch("no-cache", "keep no blobs");

pub static PLATFORM: Flag =
    value("platform", "OS/ARCH[/VARIANT]", "an image for another machine than this one");
pub static JSON: Flag = switch("json", "print one JSON document");
pub static SILENT: Flag = switch("quiet", "print nothing but the result and errors").short('q');

// What a bundle is to be like.
pub static PROFILE: Flag = value("profile", "hpc|isolated", "how the bundle is to run; hpc by default");
pub static BUNDLE_USER: Flag =
    value("user-map", "caller|root|config", "who the process is inside; root emulates what installers need");
pub static WRITABLE: Flag = switch("writable", "the root can be written in the hpc profile too");
pub static HOME: Flag = switch("home", "mount the home directory of whoever runs the bundle");
pub static PRIVATE: Flag = switch("private", "modes as in the image, and nobody else sees the bundle");
pub static REPLACE: Flag = switch("force", "replace a bundle that is there").short('f');
pub static SYNC: Flag = switch("sync", "once this returns, the bundle survives a crash of the machine");
pub static VERIFY: Flag =
    switch("verify", "compare the uncompressed layers, too, with what the image says of them");
pub static CONNECTIONS: Flag = value("connections", "N", "blobs fetched at once; 4 by default");
pub static MAX_SIZE: Flag = value("max-size", "BYTES", "refuse images that write more, such as 20G");

pub static USERNAME: Flag = value("username", "USER", "the user").short('u');
pub static PASSWORD: Flag =
    value("password", "PASSWORD", "the password, which others may see in ps").short('p');
pub static PASSWORD_STDIN: Flag = switch("password-stdin", "read the password from stdin");

pub static OLDER_THAN: Flag = value("older-than", "DAYS", "prune blobs that were not used for so long");
pub static KEEP_SIZE: Flag =
    value("max-size", "BYTES", "prune what was used longest ago until so much is left");

const ABOUT_PULL: &str = "\
IMAGE is NAME[:TAG][@DIGEST] or docker://... in a registry, docker.io where none is named, or enroot's
REGISTRY#IMAGE:TAG; oci:DIR[:TAG], oci-archive:FILE[:TAG] or docker-archive:FILE[:NAME:TAG]; or
docker-daemon:NAME or podman:NAME. BUNDLE is a directory that is made, by default in the current one,
named after the image. It is there whole or not at all. One that is there is replaced only with
--force; if it is of the same image, nothing is done.

With the profile hpc the container shares the host's network, processes and devices, and runs as
whoever calls rt run, with a root that is read-only. With isolated it has namespaces of its own and is
root inside.

Blobs are kept in the directory of --cache, RT_CACHE, $XDG_CACHE_HOME/rt or ~/.cache/rt, which users
and nodes can share. Credentials come from --creds, --authfile, $REGISTRY_AUTH_FILE and the files of
podman, docker and enroot. Mirrors and blocked registries come from registries.conf, certificates from
certs.d and $SSL_CERT_FILE.";

const IMAGES: &str = "For the forms of IMAGE see rt-pull(1).";

/// `rt pull`
pub const PULL: Command = Command {
    name: "pull",
    summary: "turn an image into a bundle",
    usage: &["IMAGE [BUNDLE]"],
    operands: 1..=2,
    flags: &[
        &PROFILE,
        &BUNDLE_USER,
        &WRITABLE,
        &HOME,
        &PRIVATE,
        &REPLACE,
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
        ("Debian from Docker Hub", "rt pull debian:12 && rt run ./debian-12 -- cat /etc/os-release"),
        ("a root to install things in", "rt pull --user-map root debian:12 build"),
        ("what `podman save` wrote", "rt pull docker-archive:image.tar mine"),
    ],
    ..ONE_ID
};

/// `rt inspect`
pub const INSPECT: Command = Command {
    name: "inspect",
    summary: "show an image without pulling its layers",
    usage: &["IMAGE"],
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
        &SILENT,
    ],
    about: IMAGES,
    ..ONE_ID
};

/// `rt save`
pub const SAVE: Command = Command {
    name: "save",
    summary: "write a bundle's root as an image that podman and skopeo load",
    usage: &["BUNDLE oci:DIR[:TAG]|oci-archive:FILE[:TAG]"],
    operands: 2..=2,
    flags: &[&SILENT],
    ..ONE_ID
};

/// `rt login`
pub const LOGIN: Command = Command {
    name: "login",
    summary: "keep credentials for a registry",
    usage: &["[REGISTRY]"],
    operands: 0..=1,
    flags: &[&USERNAME, &PASSWORD, &PASSWORD_STDIN, &AUTHFILE, &INSECURE, &PLAIN_HTTP, &RETRIES],
    about:
        "Tries the credentials, and keeps them where podman and skopeo find them too. REGISTRY is docker.io by
default.",
    ..ONE_ID
};

/// `rt logout`
pub const LOGOUT: Command = Command {
    name: "logout",
    summary: "forget credentials for a registry",
    usage: &["[REGISTRY]"],
    operands: 0..=1,
    flags: &[&AUTHFILE],
    ..ONE_ID
};

/// `rt cache`
pub const CACHE: Command = Command {
    name: "cache",
    summary: "look after the blobs that were fetched",
    usage: &["list|prune|verify"],
    flags: &[&OLDER_THAN, &KEEP_SIZE, &CACHE_DIR, &JSON],
    about: "\
prune removes all blobs, or with --older-than and --max-size those that these name. verify reads all of
them and removes what is damaged.",
    ..ONE_ID
};
