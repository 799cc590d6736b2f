//! The man pages of `rt` and its completions, written from the table of commands: what an installation has, and the runtime
//! does not need.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod completions;
mod man;

use std::path::Path;
use std::str::FromStr;

use man::{Item, Section, Texts, Topic};
use rt::cli::PROGRAM;
use rt_sys::err;
use rt_sys::error::{Context, Error, Result};

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Man pages, in directories as man(1) looks for them.
    Man,
    /// Completions of bash.
    Bash,
    /// Completions of zsh.
    Zsh,
    /// Completions of fish.
    Fish,
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(word: &str) -> Result<Kind> {
        match word {
            "man" => Ok(Kind::Man),
            "bash" => Ok(Kind::Bash),
            "zsh" => Ok(Kind::Zsh),
            "fish" => Ok(Kind::Fish),
            _ => Err(err!("{word:?} is none of man, bash, zsh, fish")),
        }
    }
}

/// Writes into the directory `dir`, under the names that man(1) and the shells look for.
///
/// # Errors
/// A file cannot be written.
pub fn write(kind: Kind, dir: &Path) -> Result<()> {
    match kind {
        Kind::Man => write_pages(dir),
        Kind::Bash => write_file(dir, "rt", completions::bash(&PROGRAM)),
        Kind::Zsh => write_file(dir, "_rt", completions::zsh(&PROGRAM)),
        Kind::Fish => write_file(dir, "rt.fish", completions::fish(&PROGRAM)),
    }
}

fn write_pages(dir: &Path) -> Result<()> {
    for section in ["man1", "man5", "man7"] {
        let path = dir.join(section);
        std::fs::create_dir_all(&path).context(|| format!("mkdir {}", path.display()))?;
    }
    let topics: Vec<_> = TOPICS.iter().map(|topic| format!("{}({})", topic.name, topic.section)).collect();
    let topics: Vec<_> = topics.iter().map(String::as_str).collect();
    write_file(dir, "man1/rt.1", man::of_program(&PROGRAM, &TEXTS, &topics))?;
    for command in PROGRAM.shown() {
        write_file(dir, &format!("man1/rt-{}.1", command.name), man::of_command(command))?;
    }
    for topic in TOPICS {
        write_file(dir, &format!("man{0}/{1}.{0}", topic.section, topic.name), man::of_topic(topic))?;
    }
    for (program, page) in OTHER_NAMES {
        write_file(dir, &format!("man1/{program}.1"), format!(".so {page}\n"))?;
    }
    Ok(())
}

fn write_file(dir: &Path, name: &str, text: String) -> Result<()> {
    let path = dir.join(name);
    std::fs::write(&path, text).context(|| format!("write {}", path.display()))
}

/// Programs that other pages describe.
const OTHER_NAMES: [(&str, &str); 5] = [
    ("rt-hook-gpu", "man7/rt-hooks.7"),
    ("rt-hook-mpi", "man7/rt-hooks.7"),
    ("rt-hook-rdma", "man7/rt-hooks.7"),
    ("rt-image", "man1/rt-mount.1"),
    ("rt-slurm-task", "man1/rt-slurm.1"),
];

/// The pages about other things than commands.
const TOPICS: &[Topic] = &[
    Topic {
        name: "rt-config",
        section: 5,
        summary: "configuration of rt by the site and the user",
        texts: Texts {
            description: CONFIGURATION,
            sections: &[
                Section {
                    title: "KEYS",
                    text: "A key belongs into the table that its name begins with.",
                    items: &[],
                    rows: keys,
                },
                Section { title: "EXAMPLE", text: CONFIGURATION_EXAMPLE, items: &[], rows: Vec::new },
                Section {
                    title: "FILES",
                    text: "They are read in this order.",
                    items: CONFIGURATION_PATHS,
                    rows: Vec::new,
                },
            ],
        },
        document: || "",
        see_also: &["rt(1)", "rt-run(1)", "rt-config(1)"],
    },
    Topic {
        name: "rt-annotations",
        section: 7,
        summary: "annotations in a config.json that rt reads and writes",
        texts: Texts {
            description: ANNOTATIONS,
            sections: &[
                Section {
                    title: "WHAT A CONTAINER IS TO BE LIKE",
                    text: "A bundle or a client sets these.",
                    items: &[],
                    rows: || rows(rt_spec::annotations::READ),
                },
                Section {
                    title: "WHAT RT WRITES",
                    text: "rt pull writes those about the image into the bundle, and rt those for hooks.",
                    items: &[],
                    rows: || rows(rt_spec::annotations::WRITTEN),
                },
            ],
        },
        document: || "",
        see_also: &["rt(1)", "rt-run(1)", "rt-pull(1)", "rt-hooks(7)"],
    },
    Topic {
        name: "rt-hooks",
        section: 7,
        summary: "hooks of rt: definitions in hooks.d, and those for GPUs, RDMA devices and MPI",
        texts: Texts {
            description: HOOKS,
            sections: &[Section {
                title: "DEFINITIONS",
                text: DEFINITIONS,
                items: DEFINITION,
                rows: Vec::new,
            }],
        },
        // The tables of the document are what hooks/tests/table.rs compares with the hooks.
        document: || {
            let document = include_str!("../../../hooks/README.md");
            document.split_once("\n## What they cost").map_or(document, |(tables, _)| tables)
        },
        see_also: &["rt(1)", "rt-run(1)", "rt-annotations(7)", "oci-hooks(5)"],
    },
];

const TEXTS: Texts = Texts {
    description: DESCRIPTION,
    sections: &[
        Section { title: "EXIT STATUS", text: EXIT_STATUS, items: &[], rows: Vec::new },
        Section { title: "ERRORS AND LOG", text: LOG, items: &[], rows: Vec::new },
        Section { title: "ENVIRONMENT", text: ENVIRONMENT, items: VARIABLES, rows: Vec::new },
        Section { title: "FILES", text: FILES, items: PATHS, rows: Vec::new },
        Section { title: "CONFIGURATION", text: CONFIGURED, items: &[], rows: Vec::new },
    ],
};

const DESCRIPTION: &str = "\
rt runs containers from bundles. A bundle, as the OCI runtime specification defines it, is a directory
with a config.json and a root directory. rt has runc's command line, so that podman, containerd,
docker, CRI-O and Slurm can call it instead of runc.

The caller needs no privileges. The caller's user id and group id are mapped into the container, and
the supplementary groups stay. A container stays in the cgroup of its caller: rt never makes, joins or
changes a cgroup.

A config that was made for root can ask for what a single user id cannot have. rt adapts it: it adds a
user namespace, maps other users to the mapped one, mounts device nodes from the host and leaves out
limits. --debug logs each of these changes, and with --strict they are errors.";

const EXIT_STATUS: &str = "\
run and exec exit with the exit code of the program, or with 128 plus the number of the signal that
ended it. An error of rt itself is exit code 1, and 255 for exec. All other commands exit with 0 or 1.";

const LOG: &str = "\
An error is one line on stderr. It says what rt was doing, with what, and why that failed. A call that
succeeds writes nothing to stderr unless --debug or --log-level asks for it.

With --log, errors are also appended to that file, as a line of text, or as a line of JSON with the
keys level, msg and time. On stderr they then have no \"rt: \" in front. By default only errors are
logged: podman reads the whole file as one JSON object, and a warning in it would hide the error.
--log-level and --debug log more, to the file if there is one, or else to stderr. The file is opened
when there is something to write.";

const ENVIRONMENT: &str = "\
A container that rt run starts from a config with the annotation rt.environment=caller, which those of
the hpc profile and of rt spec --host have, gets the environment of rt. What the config sets comes
before it, and what -e and --env-file say before both. Any other container gets only the last two.
LISTEN_FDS and LISTEN_PID are set if sockets are passed to it.

These variables are not passed on, because they name places of the host or belong to one process:
PATH, HOME, SHELL, ENV, BASH_ENV, BASH_FUNC_*, PWD, OLDPWD, SHLVL, _, LD_*, GCONV_PATH, LOCPATH,
TMPDIR, TMP, TEMP, XDG_RUNTIME_DIR, DBUS_SESSION_BUS_ADDRESS, LISTEN_*, NOTIFY_SOCKET, and those of
Environment Modules and Lmod: LOADEDMODULES, MODULEPATH, MODULEPATH_ROOT, MODULESHOME, MODULES_*,
LMOD_*, _LMFILES_*, _ModuleTable*, __LMOD_*, __MODULES_*. SSH_AUTH_SOCK, XAUTHORITY, KRB5CCNAME and
WAYLAND_DISPLAY are passed on where the file that they name is mounted at its own place, as by -v. --home
mounts it there, and the socket of DISPLAY on this host, if it belongs to the caller (a socket may be
root's), no link is in its path, and no other bind covers the place. A name in WAYLAND_DISPLAY is passed on
as the path of its socket, so that XDG_RUNTIME_DIR is not needed. -e NAME passes any of them.

A hook for which the config sets no
environment gets that of rt, or of the container if it is a startContainer hook.";

/// What the environment can say. A test compares it with the variables that the sources read.
const VARIABLES: &[Item] = &[
    Item {
        name: "XDG_RUNTIME_DIR",
        text: "States are kept in the directory rt below it, and credentials for registries in
containers/auth.json; see FILES.",
    },
    Item {
        name: "XDG_CONFIG_HOME",
        text: "The user's configuration files are below it; see FILES. The default is $HOME/.config.",
    },
    Item {
        name: "HOME",
        text: "The default for the directories of XDG_CONFIG_HOME, XDG_CACHE_HOME and XDG_DATA_HOME. It is also
the home directory that a bundle with the annotation rt.home or rt.passwd shows. Files are read
only below directories and links of root's or the caller's.",
    },
    Item {
        name: "USER, LOGNAME",
        text: "The name of the caller in the container's passwd(5), if the annotation rt.passwd asks for it.",
    },
    Item {
        name: "PATH",
        text: "Where rt looks for ps(1), for rt-pull, rt-hook-gpu and rt-hook-mpi. The last three are first looked for
beside rt.",
    },
    Item {
        name: "SSH_AUTH_SOCK, XAUTHORITY, KRB5CCNAME, WAYLAND_DISPLAY, DISPLAY",
        text: "Sockets and credentials of the caller's session, which rt run --home mounts, as said above.",
    },
    Item {
        name: "LISTEN_FDS, LISTEN_PID",
        text: "If LISTEN_PID is the process id of rt, so many sockets are passed to the container's program,
as sd_listen_fds(3) describes.",
    },
    Item {
        name: "SLURMD_NODENAME, PMIX_SERVER_TMPDIR, SLURM_MPI_TYPE",
        text: "Slurm's name of the node, directory of PMIx and kind of MPI, which rt slurm reads. The other variables of
the task come from the config: SLURM_*, PMI_FD and TMPDIR. What the bundle's own config.json, beside
root.path, sets does not count as the job's. The directory above that of PMIx is also mounted where
rt run passes the caller's environment on.",
    },
    Item {
        name: "SLURM_SUBMIT_DIR",
        text: "Where relative paths in RT_CONTAINER_MOUNTS of a job start, for rt slurm run.",
    },
    Item {
        name: "SLURM_JOB_ID, SLURM_ARRAY_JOB_ID, SLURM_STEP_ID, SLURM_LOCALID, SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_JOB_USER, SLURM_JOB_UID, SLURM_JOB_GID",
        text: "Which task of which step rt slurm task, prepare and end are about, and whose it is.",
    },
    Item {
        name: "SLURM_RESTART_COUNT",
        text: "That the job was requeued: rt run --checkpoint says where the program begins anew then.",
    },
    Item {
        name: "RT_CONTAINER_IMAGE, RT_CONTAINER_RESOLVED, RT_CONTAINER_MOUNTS, RT_CONTAINER_WORKDIR, RT_CONTAINER_NAME, \
RT_CONTAINER_SAVE, RT_CONTAINER_MOUNT_HOME, RT_CONTAINER_REMAP_ROOT, RT_CONTAINER_ENTRYPOINT, \
RT_CONTAINER_ENTRYPOINT_LOG, RT_CONTAINER_WRITABLE, RT_CONTAINER_ENV, RT_CONTAINER_UNSHARE, RT_CONTAINER_CACHE, \
RT_CONTAINER_BROADCAST, RT_CONTAINER_CHECKPOINT, RT_CONTAINER_SCOPE, RT_CONTAINER_SUBMIT_DIR, RT_CONTAINER_ARGV0, RT_CONTAINER_STEPID, RT_CONTAINER_TASKS, RT_CONTAINER_MEMORY, RT_CONTAINER_SAVED_BY_PARENT, RT_CONTAINER_TMPFS, RT_CONTAINER_LAYERS, RT_CONTAINER_IN_JOBS_OWN",
        text: "The container that a step of Slurm asks for; see rt-slurm(1).",
    },
    Item {
        name: "SLURM_RT_NOT_BROADCAST, SBCAST_FORCE",
        text: "Why Slurm's plugin could not have an image copied to the nodes. sbcast(1) is not told the second one: a
container may run from a copy that is there.",
    },
    Item {
        name: "RT_MPI",
        text: "host asks for the host's MPI library in the container, as --mpi host does; image for that of the
image.",
    },
    Item {
        name: "RT_EMULATE_ROOT",
        text: "1 asks for the emulation of root in the containers of a client, such as podman build, that has one
user id and is root in its user namespace, as the annotation rt.user: root does. It is for package
managers in builds; elsewhere it has no effect.",
    },
    Item {
        name: "PMI_FD",
        text: "The descriptor of the connection to the scheduler. It stays open where rt run passes the
caller's environment on.",
    },
    Item {
        name: "TMPDIR",
        text: "Where the layer of rt run --writable=disk is, before /tmp and /var/tmp, if that is on a local disk.",
    },
    Item { name: "SHELL", text: "The program that rt mount runs where none is named." },
    Item {
        name: "TERM",
        text: "The terminal of a program that rt exec -t starts, if the container has no TERM.",
    },
    Item {
        name: "RT_IMAGES, XDG_DATA_HOME",
        text: "Where rt run and the commands about images find the store of images; see FILES. RT_IMAGES can be a
list, A:B. All stores in it are read, in this order. New images go into the first one that the caller
can write.",
    },
    Item {
        name: "RT_IMAGES_HIGH, RT_IMAGES_LOW",
        text: "Percentages of the file system of the store. If more than RT_IMAGES_HIGH is in use, pulling into
the store first removes the least recently used images, until less than RT_IMAGES_LOW is in use. It is
10 less than RT_IMAGES_HIGH by default.",
    },
    Item { name: "SLURM_CONF", text: "rt doctor looks for oci.conf beside the file that it names." },
    Item {
        name: "RT_MOUNTS, RT_ENV, RT_WRITABLE",
        text: "Further binds, SOURCE[:TARGET[:OPTIONS]] each and separated by commas; variables of the
container, NAME=VALUE or NAME each and separated by commas; and 1 for a root that can be written. rt
run without --bundle and rt slurm run read them; see CONFIGURATION.",
    },
    Item {
        name: "RT_SHARE",
        text: "With which other calls rt run shares the container, as its --share: auto, never or a name. By
default those are the calls that one launcher has started, which is known by what launchers say to their ranks in
OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK, PALS_RANKID, FLUX_TASK_RANK, JSM_NAMESPACE_RANK, TORCHELASTIC_RUN_ID,
MV2_COMM_WORLD_RANK or SLURM_STEP_ID, and what names the run.",
    },
    Item {
        name: "RT_CRIU",
        text: "The criu(8) that rt checkpoint, rt restore and rt run --checkpoint execute, in place of the first in
PATH. It may lie in the root of another distribution, from which its loader and libraries are taken.",
    },
    Item {
        name: "RT_CUDA_CHECKPOINT, LD_LIBRARY_PATH",
        text: "The cuda-checkpoint of NVIDIA that parts programs from their GPUs for a checkpoint, in place of the first
in PATH. LD_LIBRARY_PATH says where it finds the driver's library.",
    },
    Item { name: "RT_CACHE, XDG_CACHE_HOME", text: "Where the commands about images keep blobs; see FILES." },
    Item {
        name: "RT_BUILD_DIR",
        text: "Where rt build keeps layers, in a directory of the caller's on a local file system; see FILES.",
    },
    Item {
        name: "REGISTRY_AUTH_FILE, DOCKER_CONFIG, ENROOT_CONFIG_PATH",
        text: "The file with credentials for registries, and the directories in which docker and enroot keep
theirs.",
    },
    Item { name: "CONTAINERS_REGISTRIES_CONF", text: "The file to read instead of registries.conf." },
    Item {
        name: "SSL_CERT_FILE, SSL_CERT_DIR",
        text: "Certificates of authorities that registries are checked with, instead of and besides the
system's.",
    },
    Item {
        name: "https_proxy, http_proxy, all_proxy, no_proxy",
        text: "Proxies for registries, as curl(1) reads them. All but http_proxy can be in upper case.",
    },
    Item { name: "TERM", text: "rt pull draws no progress bar on a terminal of the type dumb." },
];

const FILES: &str = "\
The state of each container is a directory in the directory of --root. The default for root is
/run/rt. For all other callers, and for root in a user namespace, the default is the first of
$XDG_RUNTIME_DIR/rt, /run/user/UID/rt and /tmp/rt-UID (/dev/shm/rt-UID where /tmp cannot be
written) that can be used, or, for root in a user namespace, /tmp/rt-0-of-HOSTUID. A bind that shows the directory to a container has an empty one in
its place.";

const PATHS: &[Item] = &[
    Item {
        name: "/run/rt-slurm/USER",
        text: "Where exec, state, ps, kill, delete, pause, resume and events also look for the container of
a Slurm job, if there is no --root.",
    },
    Item {
        name: "/usr/share/rt/hooks.d, /etc/rt/hooks.d, $XDG_CONFIG_HOME/rt/hooks.d",
        text:
            "Definitions of hooks (oci-hooks(5)) from the distribution, the site and the user. Of files with
the same name the one in the later directory counts, and --hooks-dir comes last.",
    },
    Item {
        name: "$RT_IMAGES, $XDG_DATA_HOME/rt/images, $HOME/.local/share/rt/images",
        text:
            "The store of images: the first of these whose variable is set. A store that everybody can write
is not used. Root uses only stores that belong to root.",
    },
    Item {
        name: "/etc/rt/config.toml, $XDG_CONFIG_HOME/rt/config.toml",
        text: "What the site and the user have configured; see CONFIGURATION.",
    },
    Item {
        name: "$RT_CACHE, $XDG_CACHE_HOME/rt, $HOME/.cache/rt, /tmp/rt-cache-UID",
        text: "The cache of blobs: the first of these whose variable is set. --cache comes before all of
them.",
    },
    Item {
        name: "$RT_BUILD_DIR, $XDG_CACHE_HOME/rt/build, $HOME/.cache/rt/build",
        text: "Layers of rt build: the first of these whose variable is set.",
    },
    Item {
        name: "$XDG_CONFIG_HOME/containers/registries.conf, /etc/containers/registries.conf",
        text: "Mirrors, blocked and insecure registries (containers-registries.conf(5)): the user's file or
else the system's, and then the files in registries.conf.d of both directories.",
    },
    Item {
        name: "$XDG_RUNTIME_DIR/containers/auth.json, $XDG_CONFIG_HOME/containers/auth.json, \
               $HOME/.docker/config.json, $XDG_CONFIG_HOME/enroot/.credentials",
        text: "Credentials for registries. --creds, --authfile and $REGISTRY_AUTH_FILE come before them.
Without XDG_RUNTIME_DIR the first one is /run/containers/UID/auth.json. rt login writes the second one.",
    },
    Item {
        name: "/etc/docker/certs.d, /etc/containers/certs.d, $HOME/.config/containers/certs.d",
        text: "Certificates of authorities and clients for single registries (containers-certs.d(5)).",
    },
    Item {
        name: "/etc/ssl/certs/ca-certificates.crt, /etc/pki/tls/certs/ca-bundle.crt, /etc/ssl/ca-bundle.pem, \
               /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem, /etc/ssl/cert.pem",
        text: "The system's certificates of authorities, the first of these that is there, unless SSL_CERT_FILE names
others.",
    },
    Item {
        name: "/etc/slurm/oci.conf, /etc/slurm-llnl/oci.conf, /usr/local/etc/oci.conf",
        text: "Where rt doctor looks for Slurm's use of rt, if SLURM_CONF is not set.",
    },
    Item {
        name: "/etc/containers/seccomp.json, /usr/share/containers/seccomp.json",
        text: "The seccomp profile of bundles with the profile isolated.",
    },
];

const CONFIGURED: &str = "\
The site and the user set default mounts, variables, stores of images and more in config.toml; see
rt-config(5). rt config prints what counts, and where it comes from.";

const CONFIGURATION: &str = "\
/etc/rt/config.toml is the site's file, and $XDG_CONFIG_HOME/rt/config.toml the user's. Both are TOML.
A key of the user's file counts more than the same key of the site's. A variable of the environment
counts more than both, and a flag counts most. Lists add up. rt config prints the result.

The files count for rt run without --bundle, for rt slurm run, and for the commands about images.
They change nothing for clients, which call rt create or rt run --bundle. Under Slurm the variables
are those of the job.

The site's file must belong to root, and the user's to the user or root. Nobody else may have the right to write
them. An unknown key or a wrong value is an error.

A mount is a text SOURCE[:TARGET[:OPTIONS]] or a table { source, target, options, optional }. Without
a target, it is the path of the source. A mount that is optional, by that key or by that word among
the options, is left out where its source is missing. $NAME and ${NAME} in a path are variables of the
caller.";

const CONFIGURATION_EXAMPLE: &str = "\
[run]

mounts = [\"/scratch/$USER\", \"/opt/site:/opt/site:ro\", { source = \"/datasets\", optional = true }]

env = { SITE = \"alpha\" }";

const CONFIGURATION_PATHS: &[Item] = &[
    Item { name: "/etc/rt/config.toml", text: "What the site has configured." },
    Item {
        name: "$XDG_CONFIG_HOME/rt/config.toml, $HOME/.config/rt/config.toml",
        text: "What the user has configured: the first of these whose variable is set.",
    },
];

const ANNOTATIONS: &str = "\
A config.json can have annotations, names and values of text, beside what the OCI runtime specification
defines. rt pull and rt spec write some that leave to the start what depends on the caller, so that a
bundle can be moved and shared. An image cannot choose them: rt pull leaves out its labels of these names.

All annotations are passed to hooks, whose definitions can have conditions on them; see rt-hooks(7).";

/// What the table of annotations says of each.
fn rows(annotations: &[rt_spec::annotations::Annotation]) -> Vec<(String, String)> {
    let row = |annotation: &rt_spec::annotations::Annotation| {
        (format!("{}={}", annotation.name, annotation.values), annotation.help.to_owned())
    };
    annotations.iter().map(row).collect()
}

const HOOKS: &str = "\
A hook is a program that is run at a stage of a container's life. The config of a container can name
hooks. rt run and rt create add those that files in hooks.d define for this container.

rt-hook-gpu, rt-hook-rdma and rt-hook-mpi are hooks that come with rt. They work under other runtimes
and without root, too. They look at the node, decide, and change only the container's own mount
namespace, before its program runs. On a node without such hardware nothing is done. Their definitions
are in the directory share/rt/hooks of the installation; the site copies them to /etc/rt/hooks.d. For rt
run --device and --mpi host no definition is needed.

rt-hook-gpu --dry-run --bundle DIR prints as JSON what would be done. rt-hook-gpu cdi prints a CDI
specification of the node's GPUs for other engines. With --root DIR the node's files are taken from
another tree.

A container's environment and annotations may be its image's. So they only choose among what any
container may have: GPUs, parts of the driver, sets of libraries. What is said below to be the caller's
word is what rt run -e, --device and the hook's own environment say.";

const DEFINITIONS: &str = "\
Definitions are files in JSON whose names end in .json, in /usr/share/rt/hooks.d, /etc/rt/hooks.d,
$XDG_CONFIG_HOME/rt/hooks.d and the directories of --hooks-dir. Of files with the same name the one in the later
directory counts, and an empty file switches the hook off. The format is that of oci-hooks(5). A definition and
its directory must belong to root or the caller, and nobody else may have the right to write them.";

const DEFINITION: &[Item] = &[
    Item { name: "version", text: "1.0.0." },
    Item { name: "hook", text: "The path of the program, and its args, env and timeout in seconds, as in config.json." },
    Item {
        name: "when",
        text: "The conditions, all of which must hold, at least one: always, hasBindMounts, annotations (expressions
for the names and values of annotations) and commands (expressions for the path of the program).",
    },
    Item {
        name: "stages",
        text: "prestart, createRuntime, createContainer, startContainer, poststart, poststop; and precreate, whose
hooks read the config on stdin and print another.",
    },
];

/// The keys of the configuration's files.
fn keys() -> Vec<(String, String)> {
    let all = rt_config::KEYS.iter().map(|key| {
        let variable = key.variable.map(|name| format!(" Variable: {name}.")).unwrap_or_default();
        let mut help = key.help.to_owned();
        help[..1].make_ascii_uppercase();
        (key.full_name(), format!("{help}; {}.{variable}", key.kind.takes()))
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt_cli::help;

    #[test]
    fn every_command_and_flag_is_everywhere() {
        let texts = [
            ("help", help::of_program(&PROGRAM)),
            ("man", man::of_program(&PROGRAM, &TEXTS, &[])),
            ("bash", completions::bash(&PROGRAM)),
            ("zsh", completions::zsh(&PROGRAM)),
            ("fish", completions::fish(&PROGRAM)),
        ];
        for (kind, text) in &texts {
            for command in PROGRAM.shown() {
                assert!(text.contains(command.name), "{kind}: {}", command.name);
            }
        }
        for command in PROGRAM.shown() {
            for flag in command.flags.iter().filter(|flag| !flag.hidden) {
                for text in [help::of_command(command), man::of_command(command).replace("\\-", "-")] {
                    assert!(text.contains(&format!("--{}", flag.long)), "{} --{}", command.name, flag.long);
                }
                for (kind, text) in &texts[2..] {
                    assert!(text.contains(flag.long), "{kind}: --{}", flag.long);
                }
            }
        }
    }

    #[test]
    fn every_variable_that_is_kept_back_is_named() {
        let words: Vec<&str> = ENVIRONMENT.split([' ', '\n', ',', ':', '.']).collect();
        for pattern in rt_spec::environment::KEPT_BACK {
            assert!(words.contains(pattern), "{pattern}");
        }
    }

    #[test]
    fn help_fits_a_terminal() {
        for text in PROGRAM.commands.iter().map(help::of_command).chain([help::of_program(&PROGRAM)]) {
            for line in text.lines() {
                assert!(line.chars().count() <= 100 && !line.ends_with(' '), "{line:?}");
            }
        }
    }
}
