//! `rt`'s flags and commands, described once: the parser, `--help`, the man pages and the shells' completions
//! all read this table.

use super::*;
use rt_cli::command::{Command, ONE_ID, Rest};
use rt_cli::flag::{Flag, switch, value};
use rt_cli::image::EXTRACT;

// Flags of commands.
pub(super) static BUNDLE: Flag =
    value("bundle", "DIR", "the bundle; the current directory by default").short('b');
pub(super) static CONFIG: Flag =
    value("config", "FILE", "read this config instead of the bundle's config.json").short('f');
pub(super) static PID_FILE: Flag = value("pid-file", "FILE", "write the process id to FILE");
pub(super) static CONSOLE_SOCKET: Flag =
    value("console-socket", "SOCKET", "send the master side of the terminal to this AF_UNIX socket");
pub(super) static PIDFD_SOCKET: Flag =
    value("pidfd-socket", "SOCKET", "send a pidfd of the process to this AF_UNIX socket");
pub(super) static PRESERVE_FDS: Flag =
    value("preserve-fds", "N", "pass N more file descriptors, from 3 on, to the process");
pub(super) static TRACE: Flag = value(
    "trace",
    "FILE",
    "append to FILE where the time of the start went, and who has said what, as a line of JSON",
);
pub(super) static NO_PIVOT: Flag =
    switch("no-pivot", "use chroot instead of pivot_root, which fails on a ramfs");
pub(super) static NO_NEW_KEYRING: Flag =
    switch("no-new-keyring", "keep the caller's session keyring instead of making one");
pub(super) static NO_SUBREAPER: Flag =
    switch("no-subreaper", "do not become a subreaper; rt never does").ignored();
pub(super) static STRICT: Flag =
    switch("strict", "fail where the config would have to be adapted to a single id");
pub(super) static USER_MAP: Flag = value(
    "user-map",
    "caller|root|config",
    "which user the caller is inside; overrides the annotation rt.user",
);
pub(super) static DETACH: Flag = switch("detach", "return as soon as the process runs").short('d');
pub(super) static NAME: Flag = value("name", "ID", "the container's id, in place of one that rt makes up");
pub(super) static FOLLOW: Flag =
    switch("follow", "go on with what is written until the container ends").short('f');
pub(super) static TIME: Flag =
    value("time", "SECONDS", "how long the program has to end by itself; 10 by default").short('t');
pub(super) static KEEP: Flag =
    switch("keep", "keep the state until rt delete, after the container has ended");
pub(super) static REMOVE: Flag =
    switch("rm", "remove the container afterwards, which is the default without --detach");
pub(super) static TTY: Flag = switch("tty", "give the process a terminal; --tty=false gives none").short('t');
pub(super) static INIT: Flag = switch(
    "init",
    "have a process of rt's pass signals on and reap, in a PID namespace; --init=false has none",
);
pub(super) static INTERACTIVE: Flag =
    switch("interactive", "pass stdin on; rt always does").short('i').ignored();
pub(super) static ENV: Flag = value(
    "env",
    "NAME[=VALUE]",
    "set a variable; NAME alone takes the caller's value, and PREFIX* all that begin so",
)
.short('e')
.repeats();
pub(super) static ENV_FILE: Flag =
    value("env-file", "FILE", "set the variables in FILE, one NAME[=VALUE] in each line").repeats();
pub(super) static CLEAR_ENV: Flag =
    switch("clear-env", "do not pass the caller's environment on; rt.environment asks for that")
        .alias("cleanenv");
pub(super) static ENTRYPOINT: Flag =
    value("entrypoint", "COMMAND", "run COMMAND instead of the image's entrypoint; an empty one is none");
pub(super) static CWD: Flag =
    value("cwd", "DIR", "working directory in the container").short('w').alias("workdir");
pub(super) static VOLUME: Flag =
    value("volume", "SRC:DST[:OPTIONS]", "bind mount SRC at DST, with mount options as in config.json")
        .short('v')
        .repeats();
pub(super) static MOUNT: Flag = value(
    "mount",
    "KEY=VALUE,...",
    "mount as docker's --mount: type=bind or tmpfs, source=, target=, readonly, bind-propagation=, tmpfs-size=, tmpfs-mode=",
)
.repeats();
pub(super) static TMPFS: Flag =
    value("tmpfs", "DIR[:OPTIONS]", "mount an empty file system in memory at DIR").repeats();
pub(super) static NET: Flag =
    value("net", "host|none", "the caller's network, or loopback alone").alias("network");
pub(super) static PID: Flag = value("pid", "host|private", "the caller's processes, or the container's own");
pub(super) static IPC: Flag =
    value("ipc", "host|private", "the caller's shared memory and message queues, or the container's own");
pub(super) static HOSTNAME: Flag = value("hostname", "NAME", "host name inside");
pub(super) static RUN_USER: Flag = value(
    "user",
    "UID[:GID]",
    "which id the caller has inside: 0 for root, or any other; a plain user has one id",
)
.short('u');
pub(super) static WRITABLE: Flag = value(
    "writable",
    "memory|disk",
    "let the program write to the root; what it writes is in memory, or on a local disk, and is thrown away",
)
.optional();
pub(super) static OVERLAY: Flag =
    value("overlay", "DIR", "let the program write to the root, and keep what it writes in DIR");
pub(super) static READ_ONLY: Flag = switch("read-only", "make the root read-only");
pub(super) static HOME: Flag = switch(
    "home",
    "mount the caller's home directory at its own path, and what SSH_AUTH_SOCK, DISPLAY, XAUTHORITY, WAYLAND_DISPLAY and KRB5CCNAME name",
);
pub(super) static AS_ROOT: Flag = switch(
    "as-root",
    "be root inside (--user-map root), with a root that can be written, as with --writable",
);
pub(super) static ROOT_EMULATION: Flag = value(
    "root-emulation",
    "full|fast|off",
    "with --as-root and --overlay, record the owners and devices that root sets, for rt save: full tells programs what is recorded, fast does not",
);
pub(super) static SHARE: Flag =
    switch("share", "run the tasks of a step on a node in one container; --share=false gives each its own");
pub(super) static RUN_SHARE: Flag = value(
    "share",
    "auto|never|NAME",
    "with which other calls the container is shared: auto, the ranks that one launcher has started here; NAME, all that say it",
);
pub(super) static CHDIR: Flag =
    value("chdir", "DIR", "start in DIR if the container has it; oci.conf names it %Z since Slurm 26.05");
pub(super) static IMAGE_NAME: Flag =
    value("image", "NAME", "the image, the image file or the bundle, in place of RT_CONTAINER_IMAGE");
pub(super) static ENVIRONMENT: Flag =
    value("environment", "FILE", "the task's variables, each ended by a zero byte; oci.conf names it %e");
pub(super) static ARGUMENTS: Flag =
    value("arguments", "TEXT", "the program and its arguments, as rt slurm arguments prints them");
pub(super) static DEVICE: Flag =
    value("device", "VENDOR/CLASS=NAME", "add the CDI device of this name with its libraries and mounts")
        .repeats();
pub(super) static MPI: Flag =
    value("mpi", "host|image", "run with the host's MPI library if it is proven to fit, or with the image's");
pub(super) static HOOKS_DIR: Flag =
    value("hooks-dir", "DIR", "read hook definitions from DIR too; they override all others").repeats();
/// Of rt build, whose end may not leave a command running that nobody knows of.
pub(super) static END_WITH: Flag =
    value("end-with", "PID", "end when the caller, which is PID, ends").hidden();
pub(super) static NO_HOOKS: Flag = switch("no-hooks", "read no hook definitions");
pub(super) static PROCESS: Flag =
    value("process", "FILE", "run the process that this OCI JSON describes, instead of flags and COMMAND")
        .short('p');
pub(super) static USER: Flag = value("user", "UID[:GID]", "run as this user").short('u');
pub(super) static ADDITIONAL_GIDS: Flag =
    value("additional-gids", "GID", "add a supplementary group").short('g').repeats();
pub(super) static CAP: Flag = value("cap", "CAP_NAME", "add a capability").short('c').repeats();
pub(super) static NO_NEW_PRIVS: Flag = switch("no-new-privs", "set no_new_privs, whatever the config says");
pub(super) static IGNORE_PAUSED: Flag =
    switch("ignore-paused", "run the process even if the container is paused");
pub(super) static APPARMOR: Flag = value("apparmor", "PROFILE", "AppArmor profile of the process");
pub(super) static PROCESS_LABEL: Flag = value("process-label", "LABEL", "SELinux label of the process");
pub(super) static CGROUP: Flag =
    value("cgroup", "PATH", "cgroup of the process; rt changes none").repeats().ignored();
pub(super) static ALL: Flag = switch("all", "signal every process of the container").short('a');
pub(super) static REGEX: Flag =
    switch("regex", "take ID as a regular expression, for every container that it matches").short('r');
pub(super) static FORCE: Flag =
    switch("force", "kill it first if it runs; no error if it does not exist").short('f');
pub(super) static FORMAT: Flag =
    value("format", "table|json", "format of the output; table by default").short('f');
pub(super) static QUIET: Flag = switch("quiet", "print only the ids").short('q');
pub(super) static STATS: Flag = switch("stats", "print one sample, then exit");
pub(super) static INTERVAL: Flag =
    value("interval", "DURATION", "time between samples, such as 500ms; 5s by default");
pub(super) static HOST: Flag = switch("host", "use the host's own userland, read-only, as the root");
pub(super) static SPEC_ROOTLESS: Flag = switch("rootless", "add a user namespace even if root calls");
pub(super) static SPEC_USER_MAP: Flag = value("user-map", "caller|root", "which user the caller is inside");
pub(super) static RESOURCES: Flag =
    value("resources", "FILE", "read the limits from FILE as JSON; - is stdin").short('r');

pub(super) static CHECKPOINT: Flag = value(
    "checkpoint",
    "DIR",
    "go on from the checkpoint DIR/last if it is there; on USR1 and TERM write it, end the program, and exit with 75",
);
pub(super) static CHECKPOINT_EVERY: Flag = value(
    "checkpoint-every",
    "SECONDS",
    "write DIR/last every so many seconds, too, while the program goes on",
);
pub(super) static IMAGE_PATH: Flag =
    value("image-path", "DIR", "the directory of the image; ./checkpoint by default");
pub(super) static WORK_PATH: Flag =
    value("work-path", "DIR", "the directory in which criu writes its log; that of the image by default");
pub(super) static PARENT_PATH: Flag =
    value("parent-path", "DIR", "an image that this one builds on; refused, see --pre-dump");
pub(super) static LEAVE_RUNNING: Flag = switch("leave-running", "let the program go on");
pub(super) static TCP_ESTABLISHED: Flag =
    switch("tcp-established", "keep TCP connections, as rt always does in a network of the container's own")
        .ignored();
pub(super) static TCP_CLOSE: Flag = switch("tcp-close", "close TCP connections on the host's network");
pub(super) static TCP_SKIP_IN_FLIGHT: Flag =
    switch("tcp-skip-in-flight", "leave out connections that are being made; rt refuses them").ignored();
pub(super) static LINK_REMAP: Flag =
    switch("link-remap", "give open files that were removed, and have another name, a name beside that");
pub(super) static EXT_UNIX_SK: Flag =
    switch("ext-unix-sk", "allow unix sockets that lead out of the container; criu refuses those of streams")
        .ignored();
pub(super) static SHELL_JOB: Flag =
    switch("shell-job", "allow sessions from outside; rt always does").ignored();
pub(super) static FILE_LOCKS: Flag = switch("file-locks", "keep file locks; rt always does").ignored();
pub(super) static MANAGE_CGROUPS: Flag = value(
    "manage-cgroups-mode",
    "soft|full|strict|ignore",
    "what becomes of cgroups; rt leaves them to the scheduler: ignore",
);
pub(super) static EMPTY_NS: Flag =
    value("empty-ns", "TYPE", "leave a namespace empty; rt makes all of them from the config")
        .repeats()
        .ignored();
pub(super) static AUTO_DEDUP: Flag =
    switch("auto-dedup", "remove what an image repeats; there is no other one").ignored();
pub(super) static LAZY_PAGES: Flag =
    switch("lazy-pages", "restore memory when it is used; refused without root");
pub(super) static PRE_DUMP: Flag = switch("pre-dump", "dump the memory alone; refused without root");
pub(super) static PAGE_SERVER: Flag =
    value("page-server", "ADDRESS:PORT", "send the memory to a server; refused");
pub(super) static STATUS_FD: Flag =
    value("status-fd", "N", "say when pages can be asked for; refused, see --lazy-pages");
pub(super) static LSM_PROFILE: Flag =
    value("lsm-profile", "TYPE:NAME", "AppArmor or SELinux label; rt takes that of the config").ignored();
pub(super) static LSM_MOUNT_CONTEXT: Flag =
    value("lsm-mount-context", "CONTEXT", "SELinux context of mounts; rt takes that of the config").ignored();

/// The commands, those that people need first at the top.
pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "run",
        summary: "create and start a container, wait for it and remove it",
        usage: &["IMAGE|BUNDLE [ARGS...]", "[-b BUNDLE] ID [ARGS...]"],
        rest: Rest::Verbatim,
        flags: &[
            &BUNDLE,
            &TTY,
            &INTERACTIVE,
            &INIT,
            &ENTRYPOINT,
            &ENV,
            &ENV_FILE,
            &CLEAR_ENV,
            &CWD,
            &VOLUME,
            &MOUNT,
            &TMPFS,
            &DEVICE,
            &MPI,
            &HOOKS_DIR,
            &NO_HOOKS,
            &END_WITH,
            &EXTRACT,
            &WRITABLE,
            &OVERLAY,
            &READ_ONLY,
            &HOME,
            &AS_ROOT,
            &ROOT_EMULATION,
            &USER_MAP,
            &RUN_USER,
            &NET,
            &PID,
            &IPC,
            &HOSTNAME,
            &STRICT,
            &DETACH,
            &RUN_SHARE,
            &NAME,
            &KEEP,
            &REMOVE,
            &PID_FILE,
            &PRESERVE_FDS,
            &CONSOLE_SOCKET,
            &PIDFD_SOCKET,
            &rt_cli::image::PULL_POLICY,
            &rt_cli::image::PLATFORM,
            &rt_cli::image::NO_PROGRESS,
            &CHECKPOINT,
            &CHECKPOINT_EVERY,
            &CONFIG,
            &TRACE,
            &NO_PIVOT,
            &NO_NEW_KEYRING,
            &NO_SUBREAPER,
        ],
        about: "\
Flags must come before the operand. Everything after it belongs to the program; a -- in between is left
out.

With -b the operand is the ID of the new container. Without -b it is a BUNDLE if it begins with /, ./
or ../, is . or .., or names a directory with a config.json that has an ociVersion and a root. In such a
directory it is an ID, if it can be one, and the bundle is the current directory. Everything else is an
IMAGE, in one of the forms that rt-pull(1) lists. For a bundle or an image rt makes up an id.

An image is pulled into the store of images, and its bundle is run. Later starts find it there by its
name, and ask no registry; --pull always asks each time, and --pull never fails instead. Images that
are not in a registry are looked at each time, and unpacked again if they have changed. rt-images(1)
says where the store is.

ARGS follow the entrypoint of the image that rt pull has noted in the config; without one they are the
whole command, in place of the config's. --entrypoint replaces the entrypoint, and drops the image's
default arguments.

The program has the environment of rt below that of the config where the config asks for that, as those
of rt pull with the profile hpc do; see rt(1), ENVIRONMENT, and --clear-env. An interactive sh or bash gets
a prompt with the image's name where neither the image nor the caller has one (PS1).

--writable and --overlay put an overlay over the image, which stays as it is. --writable=disk has the changes
in a directory of TMPDIR, /tmp or /var/tmp, the first that is on a local disk. DIR/upper has those of --overlay.
One container writes to DIR at a time, or many see what is in it with --read-only. To be written to, DIR
cannot be on a file system that nodes share. A directory of the image cannot be renamed: mv copies it.

Ranks that mpirun, srun or another launcher has started on this node share one container where they ask for the
same image, ids, mounts and namespaces, and that has no PID namespace. Each has its own program, environment, limits,
filter and exit code. --share never gives each its own, as -d, --keep, --name, --pid-file, --writable=disk, --strict,
--trace and the sockets do; --share NAME shares by hand. RT_SHARE says the same. rt exec RUN[.RANK] enters.

With --detach the id is printed, unless it is the operand. What the program writes to a terminal or a pipe
goes to a log that rt logs prints, and its input is empty where stdin is a terminal. A file that stdout is
gets the output. The log is in the state directory, has no bound, and goes with rt delete.

The exit code is that of the program, or 128 plus the number of the signal that ended it. It is 1 if
the container could not be run.",
        examples: &[
            ("run an image from a registry", "rt run debian:12 -- cat /etc/os-release"),
            ("run what the bundle's config says", "rt run ./debian"),
            ("run a shell with a terminal", "rt run -t ./debian -- bash -l"),
            ("with a directory of the host's", "rt run -v /scratch/data:/data:ro ./debian -- ls /data"),
            (
                "install a package over an image that others use too",
                "rt run --as-root --overlay tools ./debian -- apt-get install -y hello",
            ),
            ("in the background", "rt run -d --name web ./debian -- sleep 60 && rt logs -f web"),
            ("as Slurm's oci.conf calls it", "rt run --bundle '%b' %n.%j.%s.%t"),
        ],
        run: run::run,
        ..ONE_ID
    },
    Command {
        name: "exec",
        summary: "run another program in a running container",
        usage: &[
            "ID COMMAND [ARGS...]",
            "-p FILE ID",
            "JOBID[.STEP[.TASK]] COMMAND [ARGS...]",
            "RUN[.RANK] COMMAND [ARGS...]",
        ],
        rest: Rest::Verbatim,
        flags: &[
            &TTY,
            &INTERACTIVE,
            &ENV,
            &ENV_FILE,
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
Flags must come before ID. Everything after ID belongs to COMMAND.

JOBID names the container of a Slurm job on this node. Where the job has several containers here,
STEP says which. 281_1 is a job of an array. With TASK the program gets the environment of that task.
RUN is the run of ranks that share a container, or that container's id: rt list shows both, as RUN-DIGITS. With
RANK the program gets the environment of that rank. The commands state, ps, kill, delete, pause, resume and events
take such names too.

The exit code is that of the program, or 128 plus the number of the signal that ended it. It is 255
if the program could not be run.",
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
        about: "\
On a terminal each row has the name of the image, the name of the owner, and the time of the start in UTC. Elsewhere,
and with --format, everything is whole and in runc's columns.",
        examples: &[("remove all containers that have stopped", "rt delete --regex '.*'")],
        run: list::run,
        ..ONE_ID
    },
    Command {
        name: "state",
        summary: "print the state of a container as JSON",
        about: "\
The status is creating, created, running, paused or stopped. The pid of a stopped container is 0.",
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
The table is the output of ps(1) with PS-ARGS, -ef by default, without the lines of processes outside
the container. The JSON is the list of process ids, as the caller sees them.",
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
SIGNAL is a number, or a name with or without SIG. The default is TERM. The signal goes to the
container's first process. With --all it goes to every process, and so does KILL to a container
without a PID namespace.",
        run: kill::run,
        ..ONE_ID
    },
    Command {
        name: "logs",
        summary: "print what a detached container has written",
        flags: &[&FOLLOW],
        about: "Only a container of rt run --detach whose output went to no file has a log.",
        run: logs::run,
        ..ONE_ID
    },
    Command {
        name: "stop",
        usage: &["ID..."],
        operands: 1..=4096,
        summary: "end containers: by TERM, and by KILL what still runs after 10 s",
        flags: &[&TIME],
        about: "\
The signals go to the container's first process, and KILL to all where it has no PID namespace. What is known
of the container stays until rt delete. A container that has ended is no error.",
        run: stop::run,
        ..ONE_ID
    },
    Command {
        name: "rm",
        usage: &["ID..."],
        operands: 1..=4096,
        summary: "remove containers, as delete removes one",
        flags: &[&FORCE, &REGEX],
        run: delete::run,
        ..ONE_ID
    },
    Command {
        name: "delete",
        summary: "remove a container that has stopped",
        usage: &["ID", "JOBID[.STEP[.TASK]]"],
        flags: &[&FORCE, &REGEX],
        about: "\
A container that was created and never started is ended first. A container that runs is an error;
with --regex it is skipped. --force kills it first.",
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
            &EXTRACT,
            &USER_MAP,
            &STRICT,
            &CONFIG,
            &TRACE,
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
        summary: "stop all processes of a container until rt resume",
        about: "The processes get SIGSTOP, because rt has no cgroup to freeze.",
        run: pause::run,
        ..ONE_ID
    },
    Command {
        name: "checkpoint",
        summary: "write the memory of a container's processes to an image, and end it",
        flags: &[
            &IMAGE_PATH,
            &WORK_PATH,
            &LEAVE_RUNNING,
            &TCP_CLOSE,
            &LINK_REMAP,
            &MANAGE_CGROUPS,
            &TCP_ESTABLISHED,
            &TCP_SKIP_IN_FLIGHT,
            &EXT_UNIX_SK,
            &SHELL_JOB,
            &FILE_LOCKS,
            &EMPTY_NS,
            &AUTO_DEDUP,
            &LAZY_PAGES,
            &STATUS_FD,
            &PAGE_SERVER,
            &PRE_DUMP,
            &PARENT_PATH,
        ],
        about: "\
criu(8) of the host does it, 4.2 or later: the first in PATH, or that of RT_CRIU or checkpoint.criu in config.toml. It needs
no root. GPUs of NVIDIA take NVIDIA's cuda-checkpoint, which is found in the same way (RT_CUDA_CHECKPOINT, checkpoint.cuda). What
cannot be kept is said with the process and what of it is in the way, and the program goes on.

The image is a directory for its owner alone: it holds what the program has in memory, keys too. It is put on the disk, and an
older one at its place goes only then; anything else there is no place for one. The container is ended and removed afterwards, unless --leave-running is given.",
        examples: &[("keep what a container does, and go on with it later", "rt checkpoint --image-path ck job1")],
        run: checkpoint::run,
        ..ONE_ID
    },
    Command {
        name: "restore",
        summary: "make a container, and its processes from an image",
        flags: &[
            &IMAGE_PATH,
            &WORK_PATH,
            &BUNDLE,
            &DETACH,
            &PID_FILE,
            &TCP_CLOSE,
            &MANAGE_CGROUPS,
            &USER_MAP,
            &HOOKS_DIR,
            &NO_PIVOT,
            &NO_NEW_KEYRING,
            &NO_SUBREAPER,
            &CONSOLE_SOCKET,
            &TCP_ESTABLISHED,
            &EXT_UNIX_SK,
            &SHELL_JOB,
            &FILE_LOCKS,
            &EMPTY_NS,
            &AUTO_DEDUP,
            &LSM_PROFILE,
            &LSM_MOUNT_CONTEXT,
            &LAZY_PAGES,
        ],
        about: "\
The container is made from the bundle's config as by rt run: mounts, devices, namespaces and hooks come from there, and
nothing of them from the image. It has a PID namespace, and an init of rt's own unless the program was process 1. Files that were open are at the same paths, with
the same size. Standard streams that were the caller's become those of this call.

No process goes on that has more capabilities than the config gives, or lacks its no_new_privs. The exit code is the program's.",
        examples: &[("go on", "rt restore -b ./debian --image-path ck job1")],
        run: restore::run,
        ..ONE_ID
    },
    Command {
        name: "fork",
        summary: "make new containers with processes like those of one that runs",
        usage: &["ID NEW..."],
        operands: 2..=4096,
        flags: &[&OVERLAY, &TCP_CLOSE, &USER_MAP],
        about: "\
The program is written once, goes on, and is restored in each new container, as by rt checkpoint and rt restore. These
are made from the config of the first one, hooks included, and are detached. Each has its name as host name, by which its program
knows which it is, a PID namespace, and what the first one had in memory file systems. What it prints is in its log (rt logs); its
standard input is empty. With --overlay DIR what it writes to the root is kept in DIR/NEW.",
        examples: &[("four workers that have their modules loaded", "rt fork warm w1 w2 w3 w4")],
        run: fork::run,
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
The config needs no privileges: a user namespace maps the caller to root, or with --user-map caller
to the caller's own id. For root there is no user namespace unless --rootless is given. The process
gets a terminal if stdin and stdout of this call are terminals. An existing config.json is not
overwritten.

With --host no image is needed: the host's /usr, /bin, /sbin, /lib*, /etc and /opt are mounted
read-only in the directory rootfs, which is made in the bundle. /tmp, /var/tmp and /run are private.
The caller keeps its own id unless --user-map root is given.",
        examples: &[(
            "a container with no image",
            "rt spec --host -b demo && rt run ./demo -- cat /etc/os-release",
        )],
        run: spec::run,
        ..ONE_ID
    },
    Command {
        name: "config",
        summary: "print what the site and the user have configured, and where",
        usage: &[""],
        operands: 0..=0,
        flags: &[&rt_cli::image::JSON],
        about: "\
Each line is a key, its value, and the file and line or the variable that the value comes from. A list
has a line for each entry. rt-config(5) describes the keys.",
        run: config::run,
        ..ONE_ID
    },
    Command {
        name: "doctor",
        summary: "find out what keeps containers from starting here",
        usage: &[""],
        operands: 0..=0,
        flags: &[&rt_cli::image::JSON],
        about: "\
Each line is a check and begins with ok, note or PROBLEM. A note says what some containers lack, and a
problem what keeps all of them from starting. The remedy stands below it. What can be tried is tried:
namespaces and mounts are made, and a container of the host's own userland is run. Nothing is kept, and
the network is not used.

The exit code is 1 if there is a problem.",
        run: doctor::run,
        ..ONE_ID
    },
    Command {
        name: "features",
        summary: "print what this runtime can do as JSON",
        usage: &[""],
        operands: 0..=0,
        about: "The format is described in features.md of the OCI runtime specification.",
        run: features::run,
        ..ONE_ID
    },
    Command {
        name: "events",
        summary: "print the resources that a container uses as JSON lines",
        flags: &[&STATS, &INTERVAL],
        about: "\
Each line is a sample. Its figures are those of the cgroup in which the container's first process is.
rt makes no cgroup, so in a batch job they are the figures of the job. A line of type oom follows if
the kernel has killed a process of that cgroup for lack of memory since the last sample.",
        run: events::run,
        ..ONE_ID
    },
    Command {
        name: "update",
        summary: "refuse to change limits, which belong to the scheduler",
        flags: &[
            &RESOURCES,
            &value("memory", "BYTES", "limit of memory"),
            &value("memory-reservation", "BYTES", "soft limit of memory"),
            &value("memory-swap", "BYTES", "limit of memory and swap"),
            &value("kernel-memory", "BYTES", "limit of kernel memory"),
            &value("kernel-memory-tcp", "BYTES", "limit of kernel memory for TCP buffers"),
            &value("cpu-period", "USEC", "period of the CPU quota"),
            &value("cpu-quota", "USEC", "CPU time in each period"),
            &value("cpu-burst", "USEC", "CPU time above the quota"),
            &value("cpu-share", "N", "CPU weight").alias("cpu-shares"),
            &value("cpu-rt-period", "USEC", "period of the realtime quota"),
            &value("cpu-rt-runtime", "USEC", "realtime CPU time in each period"),
            &value("cpu-idle", "N", "1 runs all processes as SCHED_IDLE"),
            &value("cpuset-cpus", "LIST", "CPUs to use"),
            &value("cpuset-mems", "LIST", "memory nodes to use"),
            &value("pids-limit", "N", "limit of processes"),
            &value("blkio-weight", "N", "block I/O weight"),
            &value("l3-cache-schema", "SCHEMA", "L3 cache allocation (resctrl)"),
            &value("mem-bw-schema", "SCHEMA", "memory bandwidth allocation (resctrl)"),
        ],
        about: "\
rt never writes to a cgroup. An update without limits succeeds. Any other is an error and changes
nothing.",
        run: update::run,
        ..ONE_ID
    },
    Command {
        name: "slurm",
        summary: "run tasks of Slurm, as its oci.conf calls rt",
        usage: &["FORM"],
        rest: Rest::AfterDashes,
        forms: slurm::FORMS,
        about: "\
ID ends in %j.%s.%t: job, step and task. The tasks of a step on a node run in one container. The first
task makes it and the others join it, each with its own program, environment and file descriptors.
The container ends with its last task. The tasks keep the host's PID, network and UTS namespaces and
its /dev/shm.

run, state, kill and delete are for oci.conf. If root calls state, kill or delete, rt first becomes
the owner of the directory of --root, and runs none of the owner's hooks. prepare, task and end are
for a step that asks for its container by variables; Slurm's plugin calls them. The variables have the values of
the options of pyxis:

RT_CONTAINER_IMAGE        [USER@][REGISTRY#]IMAGE[:TAG], another name of rt-pull(1), or the path of an
                          image file or a bundle; a path begins with / or ./
RT_CONTAINER_MOUNTS       SRC[:DST[:FLAG+FLAG...]],... where SRC is a path, tmpfs, or umount
RT_CONTAINER_WORKDIR      the directory to start in; by default that of the image
RT_CONTAINER_NAME         NAME[:auto|create|exec|no_exec|job|global[+...]], a container that outlives
                          the step, made from one image; JOB.STEP without an image, that of a step that runs
RT_CONTAINER_SAVE         the image file that the container is written to at its end
RT_CONTAINER_MOUNT_HOME   1 mounts the home directory, also where REMAP_ROOT makes it that of root
RT_CONTAINER_REMAP_ROOT   1 for root inside, 0 for the caller's own ids
RT_CONTAINER_ENTRYPOINT   1 runs the entrypoint of the image once, before the first program;
                          RT_CONTAINER_ENTRYPOINT_LOG=1 shows what it prints
RT_CONTAINER_WRITABLE     0 for a root that cannot be written. By default an image can be written to, in
                          a layer in memory, and a bundle says it itself
RT_CONTAINER_ENV          NAME,... of variables that keep their values whatever the image says
RT_CONTAINER_UNSHARE      net, ipc and uts, with commas between them: namespaces of the container's own
RT_CONTAINER_CACHE        0 asks the registry also where the store has the image
RT_CONTAINER_BROADCAST    1 starts from the copy of an image file that broadcast has made on the node
RT_CONTAINER_CHECKPOINT   the directory of checkpoints, as run --checkpoint has it, of a batch script or a
                          step of one task, whose own is in it by the number of the step. %j is the number of
                          the job. The root of an image cannot be written then unless WRITABLE says so
RT_CONTAINER_SCOPE        job or global: until when a container with a name is there, by default job
RT_CONTAINER_SUBMIT_DIR   where relative paths begin; by default the working directory

The program has the job's environment, without what belongs to the host (see rt(1), ENVIRONMENT, and
--clear-env) and without LANG, LANGUAGE and LC_ALL. What the image sets counts more.",
        examples: &[
            ("RunTimeRun", "exec rt '--root=/run/rt-slurm/%u' slurm run --bundle '%b' %n.%j.%s.%t"),
            ("RunTimeQuery", "exec rt '--root=/run/rt-slurm/%u' slurm state %n.%j.%s.%t"),
        ],
        ..ONE_ID
    },
    Command { run: companion::execute, ..rt_cli::image::PULL },
    Command { run: companion::execute, ..rt_cli::image::IMAGES_COMMAND },
    Command { run: companion::execute, ..rt_cli::image::RMI },
    Command { run: companion::execute, ..rt_cli::image::PRUNE },
    Command { run: companion::inspect, ..rt_cli::image::INSPECT },
    Command { run: companion::execute, ..rt_cli::image::SAVE },
    Command { run: companion::execute, ..rt_cli::image::CONVERT },
    Command { run: companion::execute, ..rt_cli::image::PUSH },
    Command { run: companion::execute, ..rt_cli::image::BUILD },
    Command { run: companion::execute, ..rt_cli::image::LOGIN },
    Command { run: companion::execute, ..rt_cli::image::LOGOUT },
    Command { run: companion::execute, ..rt_cli::image::CACHE },
    Command { run: mount::run, ..rt_cli::image::MOUNT },
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
    fn the_page_for_newcomers_names_every_flag_of_run() {
        let page = include_str!("../../docs/flags.md");
        for flag in PROGRAM.command("run").unwrap().flags.iter().filter(|flag| !flag.hidden) {
            let short = flag.short.is_some_and(|short| page.contains(&format!("`-{short}")));
            assert!(short || page.contains(&format!("--{}", flag.long)), "docs/flags.md: no --{}", flag.long);
        }
    }
}
