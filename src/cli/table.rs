//! `rt`'s flags and commands, described once: the parser, `--help`, the man pages and the shells' completions
//! all read this table.

use super::*;
use rt_cli::command::{Command, ONE_ID, Rest};
use rt_cli::flag::{Flag, switch, value};

// Flags of commands.
pub(super) static BUNDLE: Flag =
    value("bundle", "DIR", "the bundle; the current directory by default").short('b');
pub(super) static CONFIG: Flag =
    value("config", "FILE", "another file than config.json in the bundle").short('f');
pub(super) static PID_FILE: Flag = value("pid-file", "FILE", "write the process id to FILE");
pub(super) static CONSOLE_SOCKET: Flag =
    value("console-socket", "SOCKET", "send the terminal's master side to this AF_UNIX socket");
pub(super) static PIDFD_SOCKET: Flag =
    value("pidfd-socket", "SOCKET", "send a pidfd of the process to this AF_UNIX socket");
pub(super) static PRESERVE_FDS: Flag =
    value("preserve-fds", "N", "pass N file descriptors more than 0, 1 and 2");
pub(super) static NO_PIVOT: Flag =
    switch("no-pivot", "use chroot instead of pivot_root, for a root on a ramfs");
pub(super) static NO_NEW_KEYRING: Flag = switch("no-new-keyring", "keep the caller's session keyring");
pub(super) static NO_SUBREAPER: Flag = switch("no-subreaper", "rt never is a subreaper").ignored();
pub(super) static STRICT: Flag = switch("strict", "refuse a config that would have to be adapted to one id");
pub(super) static USER_MAP: Flag =
    value("user-map", "caller|root|config", "who the caller is inside; over the annotation rt.user");
pub(super) static DETACH: Flag = switch("detach", "return once the process runs").short('d');
pub(super) static KEEP: Flag = switch("keep", "keep the state after the container has ended, until delete");
pub(super) static REMOVE: Flag =
    switch("rm", "remove the state afterwards, as a run in the foreground does anyway");
pub(super) static TTY: Flag =
    switch("tty", "give the process a terminal, or with --tty=false none").short('t');
pub(super) static INTERACTIVE: Flag = switch("interactive", "stdin is always passed").short('i').ignored();
pub(super) static ENV: Flag =
    value("env", "NAME[=VALUE]", "add a variable; a name alone takes the caller's value")
        .short('e')
        .repeats();
pub(super) static CWD: Flag = value("cwd", "DIR", "working directory inside").short('w').alias("workdir");
pub(super) static VOLUME: Flag =
    value("volume", "SRC:DST[:OPTIONS]", "bind mount SRC at DST; options as in a config's mounts")
        .short('v')
        .repeats();
pub(super) static SHARE: Flag =
    switch("share", "the tasks of a step share one container on a node; on unless --share=false");
pub(super) static CHDIR: Flag =
    value("chdir", "DIR", "start in DIR where the container has it; %Z in oci.conf since Slurm 26.05");
pub(super) static DEVICE: Flag =
    value("device", "VENDOR/CLASS=NAME", "add a device by its CDI name, with all that belongs to it")
        .repeats();
pub(super) static HOOKS_DIR: Flag =
    value("hooks-dir", "DIR", "read hook definitions there, too; they count over all others").repeats();
pub(super) static PROCESS: Flag =
    value("process", "FILE", "the OCI process to run; over every flag").short('p');
pub(super) static USER: Flag = value("user", "UID[:GID]", "run as this user").short('u');
pub(super) static ADDITIONAL_GIDS: Flag =
    value("additional-gids", "GID", "add a supplementary group").short('g').repeats();
pub(super) static CAP: Flag = value("cap", "CAP_NAME", "add a capability").short('c').repeats();
pub(super) static NO_NEW_PRIVS: Flag = switch("no-new-privs", "set no_new_privs whatever the config says");
pub(super) static IGNORE_PAUSED: Flag = switch("ignore-paused", "enter also a paused container");
pub(super) static APPARMOR: Flag = value("apparmor", "PROFILE", "AppArmor profile of the process");
pub(super) static PROCESS_LABEL: Flag = value("process-label", "LABEL", "SELinux label of the process");
pub(super) static CGROUP: Flag = value("cgroup", "PATH", "cgroups are never touched").repeats().ignored();
pub(super) static ALL: Flag = switch("all", "signal every process of the container").short('a');
pub(super) static REGEX: Flag =
    switch("regex", "ID is an extended regular expression; act on each container it matches").short('r');
pub(super) static FORCE: Flag =
    switch("force", "kill it first where it runs; no error where there is none").short('f');
pub(super) static FORMAT: Flag = value("format", "table|json", "table by default").short('f');
pub(super) static QUIET: Flag = switch("quiet", "print the ids only").short('q');
pub(super) static STATS: Flag = switch("stats", "print one sample and exit");
pub(super) static INTERVAL: Flag =
    value("interval", "DURATION", "time between samples, such as 500ms; 5s by default");
pub(super) static HOST: Flag = switch("host", "the root is the host's own userland, read-only");
pub(super) static SPEC_ROOTLESS: Flag = switch("rootless", "with a user namespace also where root calls");
pub(super) static SPEC_USER_MAP: Flag = value("user-map", "caller|root", "who the caller is inside");
pub(super) static RESOURCES: Flag =
    value("resources", "FILE", "the limits asked for, as JSON; - is stdin").short('r');

/// The commands, those that people need first at the top.
pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "run",
        summary: "create and start a container, wait for it and remove it",
        usage: &["BUNDLE [-- ARGS...]", "[-b BUNDLE] ID [-- ARGS...]"],
        rest: Rest::AfterDashes,
        flags: &[
            &BUNDLE,
            &TTY,
            &INTERACTIVE,
            &ENV,
            &CWD,
            &VOLUME,
            &DEVICE,
            &HOOKS_DIR,
            &USER_MAP,
            &STRICT,
            &DETACH,
            &KEEP,
            &REMOVE,
            &PID_FILE,
            &PRESERVE_FDS,
            &CONSOLE_SOCKET,
            &PIDFD_SOCKET,
            &CONFIG,
            &NO_PIVOT,
            &NO_NEW_KEYRING,
            &NO_SUBREAPER,
        ],
        about: "\
The operand is a bundle where it contains a slash, or is a directory that holds a config.json, and
no -b is given; the id is then made up. Else it is the id, and the bundle is that of -b or the
current directory.

ARGS replace the arguments of the config's process.

The exit code is the program's, or 128 and the number of the signal that ended it; 1 where the
container could not be run.",
        examples: &[
            ("run what the bundle's config says", "rt run ./debian"),
            ("run a shell with a terminal", "rt run -t ./debian -- bash -l"),
            ("with a directory of the host's", "rt run -v /scratch/data:/data:ro ./debian -- ls /data"),
            ("as Slurm's oci.conf calls it", "rt run --bundle '%b' %n.%j.%s.%t"),
        ],
        run: run::run,
        ..ONE_ID
    },
    Command {
        name: "exec",
        summary: "run another program in a running container",
        usage: &["ID COMMAND [ARGS...]", "-p FILE ID", "JOBID[.STEP[.TASK]] COMMAND [ARGS...]"],
        rest: Rest::Verbatim,
        flags: &[
            &TTY,
            &INTERACTIVE,
            &ENV,
            &CWD,
            &USER,
            &DETACH,
            &PROCESS,
            &PID_FILE,
            &PRESERVE_FDS,
            &CONSOLE_SOCKET,
            &PIDFD_SOCKET,
            &ADDITIONAL_GIDS,
            &CAP,
            &NO_NEW_PRIVS,
            &IGNORE_PAUSED,
            &APPARMOR,
            &PROCESS_LABEL,
            &CGROUP,
        ],
        about: "\
Flags stand before ID: everything behind it belongs to COMMAND.

JOBID names the container of a Slurm job on this node, and of a step where the job has several here;
281_1 is a job of an array. With TASK the program gets the environment of that task. state, ps, kill,
delete, pause, resume and events take such names too.

The exit code is the program's, or 128 and the number of the signal that ended it; 255 where the
program could not be run.",
        examples: &[("a shell in the container", "rt exec -t web sh")],
        // As with runc: it keeps exec's own failures apart from most programs' exit codes.
        failure: 255,
        run: exec::run,
        ..ONE_ID
    },
    Command {
        name: "list",
        summary: "list the containers",
        usage: &[""],
        operands: 0..=0,
        flags: &[&FORMAT, &QUIET],
        examples: &[("remove all that have ended", "rt delete --regex '.*'")],
        run: list::run,
        ..ONE_ID
    },
    Command {
        name: "state",
        summary: "print the state of a container as JSON",
        about: "\
The status is creating, created, running, paused or stopped. The pid is 0 where it has stopped.",
        run: state::run,
        ..ONE_ID
    },
    Command {
        name: "ps",
        summary: "list the processes of a container",
        usage: &["ID [PS-ARGS...]"],
        rest: Rest::Verbatim,
        flags: &[&FORMAT],
        about: "\
The table is what ps(1) prints for PS-ARGS, -ef by default, less the processes of others. JSON is
the list of the process ids, as the caller sees them.",
        run: ps::run,
        ..ONE_ID
    },
    Command {
        name: "kill",
        summary: "send a signal to a container",
        usage: &["ID [SIGNAL]", "JOBID[.STEP[.TASK]] [SIGNAL]"],
        operands: 1..=2,
        flags: &[&ALL, &REGEX],
        about: "\
SIGNAL is a number or a name with or without SIG, TERM by default. It goes to the container's first
process; KILL without a PID namespace, and any with --all, to every process.",
        run: kill::run,
        ..ONE_ID
    },
    Command {
        name: "delete",
        summary: "remove a container that has stopped",
        usage: &["ID", "JOBID[.STEP[.TASK]]"],
        flags: &[&FORCE, &REGEX],
        about: "\
A container that was created and never started is ended. With --regex and no --force, those that run
are left.",
        run: delete::run,
        ..ONE_ID
    },
    Command {
        name: "create",
        summary: "create a container whose program waits for start",
        flags: &[
            &BUNDLE,
            &PID_FILE,
            &CONSOLE_SOCKET,
            &PIDFD_SOCKET,
            &PRESERVE_FDS,
            &HOOKS_DIR,
            &USER_MAP,
            &STRICT,
            &CONFIG,
            &NO_PIVOT,
            &NO_NEW_KEYRING,
            &NO_SUBREAPER,
        ],
        run: create::run,
        ..ONE_ID
    },
    Command { name: "start", summary: "start a created container", run: start::run, ..ONE_ID },
    Command {
        name: "pause",
        summary: "stop every process of a container until resume",
        about: "The processes get SIGSTOP: there is no cgroup to freeze.",
        run: pause::run,
        ..ONE_ID
    },
    Command { name: "resume", summary: "continue a paused container", run: resume::run, ..ONE_ID },
    Command {
        name: "spec",
        summary: "write a config.json to start from",
        usage: &[""],
        operands: 0..=0,
        flags: &[&BUNDLE, &HOST, &SPEC_USER_MAP, &SPEC_ROOTLESS],
        about: "\
The config runs without root: a user namespace maps the caller to root, or with --user-map caller to
its own id. Root gets no user namespace unless --rootless is given. The process has a terminal where
this call's stdin and stdout are terminals. A config.json that exists is not overwritten.

With --host the root needs no image: the host's /usr, /bin, /sbin, /lib*, /etc and /opt are mounted
read-only in the directory rootfs, which is made in the bundle; /tmp, /var/tmp and /run are private.
The caller keeps its own id unless --user-map root is given.",
        examples: &[(
            "a container with no image",
            "rt spec --host -b demo && rt run ./demo -- cat /etc/os-release",
        )],
        run: spec::run,
        ..ONE_ID
    },
    Command {
        name: "features",
        summary: "print what this runtime can do as JSON",
        usage: &[""],
        operands: 0..=0,
        about: "The form is that of features.md in the OCI runtime specification.",
        run: features::run,
        ..ONE_ID
    },
    Command {
        name: "events",
        summary: "print what a container uses as JSON, one line per sample",
        flags: &[&STATS, &INTERVAL],
        about: "\
The figures are those of the cgroup that the container's first process is in. rt makes no cgroup, so
in a batch job they are the job's. They are read, never written. A line of type oom follows where
the kernel has killed a process of that cgroup for memory since the sample before.",
        run: events::run,
        ..ONE_ID
    },
    Command {
        name: "update",
        summary: "refuse to change limits: they are the scheduler's",
        flags: &[
            &RESOURCES,
            &value("memory", "BYTES", "memory"),
            &value("memory-reservation", "BYTES", "soft limit of memory"),
            &value("memory-swap", "BYTES", "memory and swap"),
            &value("kernel-memory", "BYTES", "kernel memory"),
            &value("kernel-memory-tcp", "BYTES", "kernel memory for TCP buffers"),
            &value("cpu-period", "USEC", "CFS period"),
            &value("cpu-quota", "USEC", "CFS quota"),
            &value("cpu-burst", "USEC", "CFS burst"),
            &value("cpu-share", "N", "weight").alias("cpu-shares"),
            &value("cpu-rt-period", "USEC", "realtime period"),
            &value("cpu-rt-runtime", "USEC", "realtime quota"),
            &value("cpu-idle", "N", "SCHED_IDLE"),
            &value("cpuset-cpus", "LIST", "CPUs"),
            &value("cpuset-mems", "LIST", "memory nodes"),
            &value("pids-limit", "N", "processes"),
            &value("blkio-weight", "N", "weight"),
            &value("l3-cache-schema", "SCHEMA", "cache allocation"),
            &value("mem-bw-schema", "SCHEMA", "memory bandwidth"),
        ],
        about: "\
rt never writes to a cgroup. An update that asks for nothing succeeds; any other is an error and
changes nothing.",
        run: update::run,
        ..ONE_ID
    },
    Command {
        name: "slurm",
        summary: "what Slurm's oci.conf calls",
        usage: &["run --bundle DIR ID", "state ID", "kill ID [SIGNAL]", "delete [--force] ID|JOBID"],
        operands: 2..=3,
        rest: Rest::AfterDashes,
        flags: &[
            &BUNDLE,
            &FORCE,
            &SHARE,
            &CHDIR,
            &USER_MAP,
            &ENV,
            &VOLUME,
            &DEVICE,
            &HOOKS_DIR,
            &PRESERVE_FDS,
            &NO_NEW_KEYRING,
        ],
        about: "\
ID ends in %j.%s.%t, job, step and task. The tasks of a step on a node run in one container: the first
makes it, the others join it, each with its own program, environment and descriptors; it ends with the
last of them. They keep the host's PID, network and UTS namespaces and its /dev/shm.

A config that says nothing about ids runs as the caller. Under PMIx every config does, and the
directories that PMIx needs are bound; the descriptor of PMI_FD stays open.

state prints one JSON object and succeeds whatever happens. An id that ends in -1 stands for every
task of the step; delete takes a JOBID too, for an epilog. Called by root, state, kill and delete first
become the owner of the directory that --root names, and run no hook of his. A dead container of the
same id is replaced.",
        examples: &[
            ("RunTimeRun", "exec rt '--root=/run/rt-slurm/%u' slurm run --bundle '%b' %n.%j.%s.%t"),
            ("RunTimeQuery", "exec rt '--root=/run/rt-slurm/%u' slurm state %n.%j.%s.%t"),
        ],
        run: slurm::run,
        ..ONE_ID
    },
    Command { run: image::execute, ..rt_cli::image::PULL },
    Command { run: image::execute, ..rt_cli::image::INSPECT },
    Command { run: image::execute, ..rt_cli::image::SAVE },
    Command { run: image::execute, ..rt_cli::image::LOGIN },
    Command { run: image::execute, ..rt_cli::image::LOGOUT },
    Command { run: image::execute, ..rt_cli::image::CACHE },
    Command {
        name: "generate",
        summary: "write the man pages or a shell's completions into a directory",
        usage: &["man|bash|zsh|fish DIR"],
        operands: 2..=2,
        hidden: true,
        run: generate::run,
        ..ONE_ID
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use rt_cli::flag::{GLOBALS, HELP};

    #[test]
    fn names_are_unique_and_texts_have_no_dot() {
        for (name, flags) in COMMANDS.iter().map(|c| (c.name, c.flags)).chain([("rt", GLOBALS)]) {
            let mut seen = vec!["help", "h"].into_iter().map(String::from).collect::<Vec<_>>();
            for flag in flags.iter().filter(|f| !std::ptr::eq(**f, &HELP)) {
                let names =
                    [Some(flag.long.to_owned()), flag.alias.map(String::from), flag.short.map(String::from)];
                for n in names.into_iter().flatten() {
                    assert!(!seen.contains(&n), "{name}: --{n} twice");
                    seen.push(n);
                }
                assert!(!flag.help.is_empty() && !flag.help.ends_with('.'), "{name} --{}", flag.long);
            }
        }
        for command in COMMANDS {
            assert!(!command.summary.ends_with('.'), "{}", command.name);
        }
    }

    #[test]
    fn checkpoint_and_restore_do_not_exist() {
        assert!(PROGRAM.command("checkpoint").is_none() && PROGRAM.command("restore").is_none());
    }
}
