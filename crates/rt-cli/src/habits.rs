//! What people type who know docker, podman, Apptainer, enroot, pyxis or Charliecloud, and what it is here: one table, in
//! which the errors about unknown words look. docs/flags.md is its longer form.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// What an error says of a word of another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// What does the same here: "did you mean ...?".
    Meant(&'static str),
    /// Why there is no such word, or why nothing needs to be said.
    Because(&'static str),
}

use Hint::{Because, Meant};

/// The command of rows about commands, which stand behind none.
const NO_COMMAND: &str = "";

/// The word of rows about a command line that lacks an operand.
pub const OPERAND_MISSING: &str = "(no operand)";

/// The word of rows about a command line with an operand too many.
pub const OPERAND_EXTRA: &str = "(another operand)";

const CGROUPS: Hint =
    Because("limits are the scheduler's, as srun --mem and --cpus-per-task: rt writes to no cgroup");
const NETWORK: Hint =
    Because("the network is the host's: a port that the program listens on is open without a flag");
const OWN: Hint = Because(
    "/tmp and /run are private, and the home directory is not mounted; rt pull --profile isolated does more",
);
const RIGHTS: Hint = Because(
    "nobody gets rights that he does not have on the host; --as-root is root inside, with one user id",
);
const CONFIGURED: Hint = Because("config.json of a bundle says it, which rt pull IMAGE DIR writes");
const SERVICE: Hint = Because("that is a service manager's work, as systemd's");
const SIGNATURES: Hint = Because("rt checks digests, and no signatures");
const STARTS: Hint = Meant("rt run, which starts images");
const REGISTRIES: Hint =
    Because("insecure = true for the registry in registries.conf counts for every command");
const LOGIN: Hint = Because("rt login keeps the name and the password of a registry");
const SHOWS_ALL: Hint = Because("rt inspect prints all that an image says of itself");
const NO_QUESTION: Hint = Because("rt cache prune asks no question");
const BUILD_VOLUME: Hint = Meant("RUN --mount=type=bind in the file, with --build-context NAME=DIR");
const NVIDIA: Hint = Meant("-e NVIDIA_VISIBLE_DEVICES=all");

/// The command of `rt` (or [`NO_COMMAND`]), the word behind it that it does not have, and what is said of that.
pub const HABITS: &[(&str, &str, Hint)] = &[
    (NO_COMMAND, "attach", Meant("rt exec -t ID sh")),
    (NO_COMMAND, "batch", Meant("rt run FILE")),
    (NO_COMMAND, "bundle", Meant("rt save --runfile FILE, or rt mount --bundle")),
    (NO_COMMAND, "commit", Meant("rt save --overlay")),
    (NO_COMMAND, "capability", RIGHTS),
    (NO_COMMAND, "container", Meant("rt list, or rt run, exec, kill and delete")),
    (NO_COMMAND, "cp", Because("bind a directory with rt run -v, or use rt exec ID cat FILE >COPY")),
    (NO_COMMAND, "diff", Because("what rt run --overlay DIR has kept is in DIR/upper")),
    (NO_COMMAND, "digest", Meant("rt inspect IMAGE")),
    (NO_COMMAND, "export", Meant("rt save")),
    (NO_COMMAND, "history", Meant("rt inspect IMAGE")),
    (NO_COMMAND, "image", Meant("rt images, or rt pull, inspect, rmi and prune")),
    (NO_COMMAND, "import", Meant("rt pull")),
    (NO_COMMAND, "info", Meant("rt doctor")),
    (NO_COMMAND, "instance", Meant("rt run -d --name, rt exec or rt stop")),
    (NO_COMMAND, "key", SIGNATURES),
    (NO_COMMAND, "load", Meant("rt run docker-archive:FILE, or rt convert")),
    (NO_COMMAND, "ls", Meant("rt list")),
    (NO_COMMAND, "network", NETWORK),
    (NO_COMMAND, "overlay", Because("rt run --overlay DIR makes the directory")),
    (NO_COMMAND, "plugin", Because("hooks add to containers: rt-hooks(7)")),
    (NO_COMMAND, "port", NETWORK),
    (NO_COMMAND, "registry", Meant("rt login")),
    (NO_COMMAND, "remote", Meant("rt login")),
    (NO_COMMAND, "remove", Meant("rt rmi IMAGE or rt delete ID")),
    (NO_COMMAND, "rename", Because("rt run --name chooses the name")),
    (NO_COMMAND, "restart", Meant("rt stop, rt rm, and rt run -d again")),
    (NO_COMMAND, "search", Because("the page of the registry lists its images")),
    (NO_COMMAND, "shell", Meant("rt run -t IMAGE -- sh")),
    (NO_COMMAND, "sif", Meant("rt inspect FILE")),
    (NO_COMMAND, "sign", SIGNATURES),
    (NO_COMMAND, "stats", Meant("rt events ID")),
    (NO_COMMAND, "system", Meant("rt prune or rt doctor")),
    (NO_COMMAND, "tag", Because("rt push IMAGE REGISTRY/NAME:TAG gives another name")),
    (NO_COMMAND, "test", Because("rt run IMAGE PROGRAM names the program")),
    (NO_COMMAND, "top", Meant("rt ps ID")),
    (NO_COMMAND, "umount", Because("what rt mount mounts ends with its program")),
    (NO_COMMAND, "unpause", Meant("rt resume")),
    (NO_COMMAND, "verify", SIGNATURES),
    (NO_COMMAND, "version", Meant("rt --version")),
    (NO_COMMAND, "volume", Because("there are none: bind a directory with rt run -v")),
    (NO_COMMAND, "wait", Because("rt logs -f ID prints until the container ends")),
    ("run", "--app", Because("rt run IMAGE PROGRAM names the program")),
    ("run", "--rc", Meant("--entrypoint")),
    ("run", "--conf", Meant("--env-file, --mount, or config.toml")),
    ("run", "--attach", Because("the program has the caller's standard streams")),
    ("run", "-a", Because("the program has the caller's standard streams")),
    ("run", "--cidfile", Because("rt run -d prints the id, and --name chooses it")),
    ("run", "--label", Because("a container has a name, by --name, and no labels")),
    ("run", "-l", Because("a container has a name, by --name, and no labels")),
    ("run", "--replace", Meant("rt rm -f NAME before it")),
    ("run", "--fusemount", Because("mount it on the host, and bind the directory with -v")),
    ("run", "--no-mount", Because("rt config lists the mounts; --mount of config.toml and -v add to them")),
    ("run", "--root", Because("root inside is --as-root")),
    ("run", "--bind", Meant("--volume")),
    ("run", "-B", Meant("-v")),
    ("run", "-m", Because("enroot's -m SRC:DST is -v here; docker's limits of memory are the scheduler's")),
    ("run", "--scratch", Meant("--tmpfs DIR")),
    ("run", "-S", Meant("--tmpfs DIR")),
    ("run", "--shm-size", Meant("--ipc private --tmpfs /dev/shm:size=SIZE")),
    ("run", "--volumes-from", Meant("--volume")),
    ("run", "--fakeroot", Meant("--as-root")),
    ("run", "-r", Meant("--as-root")),
    ("run", "--rw", Meant("--writable")),
    ("run", "--write", Meant("--writable")),
    ("run", "--write-fake", Meant("--writable")),
    ("run", "--writable-tmpfs", Meant("--writable")),
    ("run", "--nv", NVIDIA),
    ("run", "--nvccli", NVIDIA),
    ("run", "--gpus", NVIDIA),
    ("run", "--rocm", Meant("-e AMD_VISIBLE_DEVICES=all")),
    ("run", "--pwd", Meant("--cwd")),
    ("run", "--cd", Meant("--cwd")),
    ("run", "-H", Meant("--home, or -v SRC:DST")),
    ("run", "--no-home", Because("the home directory is not mounted unless --home asks for it")),
    ("run", "--contain", OWN),
    ("run", "-c", OWN),
    ("run", "--containall", OWN),
    ("run", "-C", OWN),
    ("run", "--compat", OWN),
    ("run", "--privileged", RIGHTS),
    ("run", "--keep-privs", RIGHTS),
    ("run", "--no-privs", RIGHTS),
    ("run", "--userns", RIGHTS),
    ("run", "--cap-add", CONFIGURED),
    ("run", "--cap-drop", CONFIGURED),
    ("run", "--add-caps", CONFIGURED),
    ("run", "--drop-caps", CONFIGURED),
    ("run", "--security", CONFIGURED),
    ("run", "--security-opt", CONFIGURED),
    ("run", "--sysctl", CONFIGURED),
    ("run", "--memory", CGROUPS),
    ("run", "--cpus", CGROUPS),
    ("run", "--cpuset-cpus", CGROUPS),
    ("run", "--pids-limit", CGROUPS),
    ("run", "--ulimit", Because("the limits of the calling shell are kept: ulimit sets them")),
    ("run", "-p", NETWORK),
    ("run", "--publish", NETWORK),
    ("run", "-P", NETWORK),
    ("run", "--link", NETWORK),
    ("run", "--plain-http", REGISTRIES),
    ("run", "--insecure", REGISTRIES),
    ("run", "--no-https", REGISTRIES),
    ("run", "--tls-verify", REGISTRIES),
    ("run", "--creds", LOGIN),
    ("run", "--authfile", LOGIN),
    ("run", "--docker-login", LOGIN),
    ("run", "--expose", NETWORK),
    ("run", "--dns", NETWORK),
    ("run", "--add-host", NETWORK),
    ("run", "--uts", Meant("--hostname NAME")),
    ("run", "--env-host", Because("the caller's variables are passed on unless --clear-env is given")),
    ("run", "--set-env", Meant("--env")),
    ("run", "--group-add", Because("the caller's groups are kept")),
    ("run", "--arch", Meant("--platform linux/ARCH")),
    ("run", "--unsquash", Meant("--extract")),
    ("run", "--restart", SERVICE),
    ("run", "--health-cmd", SERVICE),
    ("run", "--log-driver", SERVICE),
    (
        "run",
        "--container-image",
        Because("an option of srun, with rt's plugin: here the image is the operand"),
    ),
    ("run", "--container-mounts", Meant("--volume")),
    ("exec", "--bind", STARTS),
    ("exec", "-B", STARTS),
    ("exec", "--nv", STARTS),
    ("exec", "--rocm", STARTS),
    ("exec", "--fakeroot", STARTS),
    ("exec", "--privileged", RIGHTS),
    ("exec", "--home", STARTS),
    ("exec", "--overlay", STARTS),
    ("exec", "--writable-tmpfs", STARTS),
    ("exec", "--cleanenv", STARTS),
    ("build", "--load", Because("what is built is in the store, where rt run finds it")),
    ("build", "--push", Meant("rt push NAME after it")),
    (
        "build",
        "--squash",
        Because("rt build -o FILE.sqsh, and rt save of a bundle, make an image of one layer"),
    ),
    ("build", "-v", BUILD_VOLUME),
    ("build", "--volume", BUILD_VOLUME),
    ("build", "--sandbox", Meant("rt pull IMAGE DIR")),
    ("build", "--fakeroot", Because("RUN is root inside, with one user id")),
    (
        "build",
        OPERAND_EXTRA,
        Because("rt pull IMAGE FILE.sqsh makes a file of an image, and rt save DIR FILE.sqsh of a bundle"),
    ),
    ("convert", "--plain-http", REGISTRIES),
    ("convert", "--insecure", REGISTRIES),
    ("pull", "--arch", Meant("--platform linux/ARCH")),
    ("pull", "-F", Meant("--force")),
    ("pull", "-o", Meant("rt pull IMAGE FILE.sqsh")),
    ("pull", "--output", Meant("rt pull IMAGE FILE.sqsh")),
    ("pull", "--disable-cache", Meant("--no-cache")),
    ("pull", "--no-https", Meant("--plain-http")),
    ("pull", "--tls-verify", Meant("--insecure")),
    ("save", "-o", Meant("rt save BUNDLE FILE.sqsh or docker-archive:FILE")),
    ("save", "--output", Meant("rt save BUNDLE FILE.sqsh or docker-archive:FILE")),
    ("push", "--tls-verify", Meant("--insecure")),
    ("login", "--tls-verify", Meant("--insecure")),
    ("inspect", "--format", Meant("--json")),
    ("inspect", "-f", Meant("--json")),
    ("inspect", "--deffile", SHOWS_ALL),
    ("inspect", "-d", SHOWS_ALL),
    ("inspect", "--environment", SHOWS_ALL),
    ("inspect", "-e", SHOWS_ALL),
    ("inspect", "--labels", SHOWS_ALL),
    ("inspect", "-l", SHOWS_ALL),
    ("inspect", "--runscript", SHOWS_ALL),
    ("inspect", "-r", SHOWS_ALL),
    ("images", OPERAND_EXTRA, Because("all images are listed; rt rmi IMAGE removes one")),
    ("images", "-a", Because("all images are listed")),
    ("images", "--all", Because("all images are listed")),
    ("list", "-a", Because("all containers are listed, stopped ones too")),
    ("list", "--all", Because("all containers are listed, stopped ones too")),
    ("ps", "-a", Meant("rt list")),
    ("ps", "--all", Meant("rt list")),
    ("ps", "-q", Meant("rt list -q")),
    ("ps", OPERAND_MISSING, Because("rt list lists the containers")),
    ("cache", "-f", NO_QUESTION),
    ("cache", "--force", NO_QUESTION),
    ("create", "--name", STARTS),
    ("create", "-n", STARTS),
    ("start", "-c", STARTS),
    ("start", "--rw", STARTS),
    ("start", "--root", STARTS),
    ("start", "-m", STARTS),
    ("start", "--mount", STARTS),
    ("start", "-e", STARTS),
    ("start", "--env", STARTS),
    ("start", OPERAND_EXTRA, Because("rt run starts images, with a program and its arguments")),
    ("logs", "--tail", Meant("rt logs ID | tail")),
    ("logs", "-n", Meant("rt logs ID | tail")),
    ("logs", "--timestamps", Because("the log is what the program has printed, without times")),
    ("logs", "-t", Because("the log is what the program has printed, without times")),
    ("logs", "--since", Because("the log is what the program has printed, without times")),
    ("rmi", "--all", Meant("rt prune --all")),
    ("rmi", "-a", Meant("rt prune --all")),
    ("stop", "--signal", Meant("rt kill ID SIGNAL")),
    ("stop", "-s", Meant("rt kill ID SIGNAL")),
    ("kill", "-s", Meant("rt kill ID SIGNAL")),
    ("kill", "--signal", Meant("rt kill ID SIGNAL")),
    ("prune", "-f", Because("rt prune asks no question; --dry-run only shows")),
    ("prune", "--force", Because("rt prune asks no question; --dry-run only shows")),
];

/// What is said of the command `name`, which does not exist.
pub fn of_command(name: &OsStr) -> Option<Hint> {
    find(NO_COMMAND, name)
}

/// What is said of a word that `command` does not take: a flag with its dashes and without a value behind `=`, or
/// [`OPERAND_MISSING`] or [`OPERAND_EXTRA`].
pub fn of_word(command: &str, word: &OsStr) -> Option<Hint> {
    // Go's programs take -bind for --bind, and all of them take a value right behind the letter of a flag.
    let with_dashes = [OsStr::new("-"), word].join(OsStr::new(""));
    let letter = word.as_bytes().get(..2).map(OsStr::from_bytes);
    find(command, word)
        .or_else(|| find(command, &with_dashes))
        .or_else(|| letter.and_then(|letter| find(command, letter)))
}

fn find(command: &str, word: &OsStr) -> Option<Hint> {
    HABITS.iter().find(|(of, theirs, _)| *of == command && word == *theirs).map(|(.., hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_found_however_it_is_typed() {
        for word in ["-B", "-B/data:/data", "--bind", "-scratch"] {
            assert!(of_word("run", OsStr::new(word)).is_some(), "{word}");
        }
        for (command, word) in [("run", "--binds"), ("run", "--B"), ("state", "--bind"), ("run", "")] {
            assert_eq!(of_word(command, OsStr::new(word)), None, "{command} {word}");
        }
        assert_eq!(of_command(OsStr::new("--bind")), None);
    }

    #[test]
    fn a_word_has_one_row() {
        for (n, (command, word, _)) in HABITS.iter().enumerate() {
            let again = HABITS[..n].iter().any(|(of, theirs, _)| of == command && theirs == word);
            assert!(!again, "{command} {word} twice");
        }
    }
}
