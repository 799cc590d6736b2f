//! `rt generate`: man pages and completions, which `make install` calls.

use super::{Call, PROGRAM};
use rt_cli::man::{Item, Section, Texts};
use rt_cli::{completions, man};
use rt_sys::bail;
use rt_sys::error::{Context, Result};
use std::path::Path;

/// Writes the man pages or a shell's completions into a directory, under the names that man(1) and
/// the shells look for.
pub(super) fn run(call: &Call) -> Result<u8> {
    let dir = Path::new(call.operands[1]);
    let write = |name: &str, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text).context(|| format!("write {}", path.display()))
    };
    match call.operands[0].to_str() {
        Some("man") => {
            write("rt.1", man::of_program(&PROGRAM, &TEXTS))?;
            for command in PROGRAM.shown() {
                write(&format!("rt-{}.1", command.name), man::of_command(command))?;
            }
        }
        Some("bash") => write("rt", completions::bash(&PROGRAM))?,
        Some("zsh") => write("_rt", completions::zsh(&PROGRAM))?,
        Some("fish") => write("rt.fish", completions::fish(&PROGRAM))?,
        _ => bail!("generate: {:?} is none of man, bash, zsh, fish", call.operands[0]),
    }
    Ok(0)
}

const TEXTS: Texts = Texts {
    description: DESCRIPTION,
    sections: &[
        Section { title: "EXIT STATUS", text: EXIT_STATUS, items: &[], rows: Vec::new },
        Section { title: "ERRORS AND LOG", text: LOG, items: &[], rows: Vec::new },
        Section { title: "ENVIRONMENT", text: ENVIRONMENT, items: VARIABLES, rows: Vec::new },
        Section { title: "FILES", text: FILES, items: PATHS, rows: Vec::new },
        Section { title: "CONFIGURATION", text: CONFIGURATION, items: &[], rows: keys },
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
LMOD_*, _LMFILES_*, _ModuleTable*, __LMOD_*, __MODULES_*. -e NAME passes any of them.

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
the home directory that a bundle with the annotation rt.home or rt.passwd shows. If root calls, files
are read only below a HOME, XDG_CONFIG_HOME or XDG_DATA_HOME that belongs to root.",
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
        name: "LISTEN_FDS, LISTEN_PID",
        text: "If LISTEN_PID is the process id of rt, so many sockets are passed to the container's program,
as sd_listen_fds(3) describes.",
    },
    Item {
        name: "SLURMD_NODENAME, PMIX_SERVER_TMPDIR",
        text: "Slurm's name of the node and directory of PMIx, which rt slurm reads. The other variables of
the task come from the config: SLURM_*, PMI_FD and TMPDIR. The directory above that of PMIx is also
mounted where rt run passes the caller's environment on.",
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
    Item { name: "RT_CACHE, XDG_CACHE_HOME", text: "Where the commands about images keep blobs; see FILES." },
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
$XDG_RUNTIME_DIR/rt, /run/user/UID/rt, /dev/shm/rt-UID and /tmp/rt-UID that can be used, or, for
root in a user namespace, /tmp/rt-0-of-HOSTUID.";

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
        name: "/etc/containers/seccomp.json, /usr/share/containers/seccomp.json",
        text: "The seccomp profile of bundles with the profile isolated.",
    },
];

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
caller.

An example:

[run]

mounts = [\"/scratch/$USER\", \"/opt/site:/opt/site:ro\", { source = \"/datasets\", optional = true }]

env = { SITE = \"alpha\" }";

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
            ("man", man::of_program(&PROGRAM, &TEXTS)),
            ("bash", completions::bash(&PROGRAM)),
            ("zsh", completions::zsh(&PROGRAM)),
            ("fish", completions::fish(&PROGRAM)),
        ];
        for (kind, text) in &texts {
            for command in PROGRAM.shown() {
                assert!(text.contains(command.name), "{kind}: {}", command.name);
            }
            assert!(!text.contains("generate"), "{kind}");
        }
        for command in PROGRAM.shown() {
            for flag in command.flags {
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
