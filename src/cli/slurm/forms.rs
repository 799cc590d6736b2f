//! The table of what Slurm and the plugin call.

use super::{broadcast, end, prepare, query, run, save, task};
use crate::cli::table::*;
use rt_cli::command::{Command, ONE_ID, Rest};
use rt_cli::image::EXTRACT;

/// The flags of a form that runs a task: its own, and behind them those of every such form.
macro_rules! task_flags {
    ($($own:expr),+) => {
        &[
            $($own,)+
            &SHARE,
            &CHDIR,
            &USER_MAP,
            &ENV,
            &VOLUME,
            &DEVICE,
            &MPI,
            &HOOKS_DIR,
            &EXTRACT,
            &PRESERVE_FDS,
            &TRACE,
            &NO_NEW_KEYRING,
        ]
    };
}

/// All forms of `rt slurm`.
pub(in crate::cli) static FORMS: &[Command] = &[
    Command {
        name: "slurm run",
        summary: "run a task whose config Slurm has written",
        usage: &["--bundle DIR ID"],
        rest: Rest::AfterDashes,
        flags: task_flags![&BUNDLE],
        about: "\
A config that does not say which user to run as runs as the caller. Under PMIx every config does, and
the directories that PMIx needs are mounted. The descriptor that PMI_FD names stays open. A stopped
container of the same ID is replaced.",
        run: run::run_task,
        ..ONE_ID
    },
    Command {
        name: "slurm state",
        summary: "print the state of a task, or of all tasks of a step whose ID ends in -1",
        about: "It is one JSON object, and the command always succeeds.",
        run: query::state,
        ..ONE_ID
    },
    Command {
        name: "slurm kill",
        summary: "send a signal to a task, or to all tasks of a step whose ID ends in -1",
        usage: &["ID [SIGNAL]"],
        operands: 1..=2,
        run: query::kill,
        ..ONE_ID
    },
    Command {
        name: "slurm delete",
        summary: "remove the container of a task, a step or, for an epilog, of a job",
        usage: &["[--force] ID|JOBID"],
        flags: &[&FORCE],
        run: query::delete,
        ..ONE_ID
    },
    Command {
        name: "slurm begin",
        summary: "make the directory of --root for a job's user, in a prolog of root's",
        usage: &[""],
        operands: 0..=0,
        about: "\
The user is that of SLURM_JOB_USER, SLURM_JOB_UID and SLURM_JOB_GID. The directory above is closed to
others.",
        run: end::begin,
        ..ONE_ID
    },
    Command {
        name: "slurm prepare",
        summary: "check what a step asks for by variables, and have its image pulled",
        usage: &[""],
        operands: 0..=0,
        about: "It prints the bundle or the image file.",
        run: prepare::prepare,
        ..ONE_ID
    },
    Command {
        name: "slurm task",
        summary: "run a task's program in the container that its step asks for by variables",
        usage: &["[ID] [-- ARGS...]"],
        operands: 0..=1,
        rest: Rest::AfterDashes,
        flags: task_flags![&IMAGE_NAME, &ENVIRONMENT, &ARGUMENTS],
        about: "\
ARGS stand behind the program that RT_CONTAINER_ARGV0 names. The command is also called by the name
rt-slurm-task, with nothing but ARGS. With --environment it first takes over the variables in FILE in
place of its own. With ID, as oci.conf calls it, it starts in the job's directory if the container
has that.",
        run: task::task,
        ..ONE_ID
    },
    Command {
        name: "slurm arguments",
        summary: "print the arguments of a task, as oci.conf's line for it has them, for --arguments",
        usage: &[""],
        operands: 0..=0,
        about: "\
They stand behind #arguments in the command line of the shell that calls this, and are printed in
letters, digits and signs that a shell leaves alone: quotes in what Slurm writes for %@ are wrong.
share/rt/slurm/oci-images.conf has the whole line.",
        run: |_| task::arguments(),
        ..ONE_ID
    },
    Command {
        name: "slurm digest",
        summary: "print the name of an image with the digest that the registry has for it now",
        usage: &["IMAGE"],
        about: "IMAGE is as RT_CONTAINER_IMAGE has it. The path of a file is printed as it is.",
        run: prepare::digest,
        ..ONE_ID
    },
    Command {
        name: "slurm broadcast",
        summary: "copy the image, which must be a file, to TmpFS on all nodes of a job",
        usage: &["JOBID"],
        about: "sbcast(1) copies it, unless this node has its copy.",
        run: broadcast::run,
        ..ONE_ID
    },
    Command {
        name: "slurm end",
        summary: "end what is left of a step or, called by root in an epilog, of a job",
        usage: &[""],
        operands: 0..=0,
        about: "Copies of images for the job are removed, too. No hooks are run.",
        run: end::end,
        ..ONE_ID
    },
    Command {
        name: "slurm save",
        summary: "write the root of a container that has a name, or is to be saved, to an image file",
        usage: &["ID FILE"],
        operands: 2..=2,
        flags: &[&EXTRACT],
        run: save::save,
        ..ONE_ID
    },
];
