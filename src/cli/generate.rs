//! `rt generate`: man pages and completions, which `make install` calls.

use super::{Call, PROGRAM};
use rt_cli::man::Texts;
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
        ("EXIT STATUS", EXIT_STATUS),
        ("ERRORS AND LOG", LOG),
        ("ENVIRONMENT", ENVIRONMENT),
        ("FILES", FILES),
    ],
};

const DESCRIPTION: &str = "\
rt runs containers from bundles, as the OCI runtime specification has them: a directory with a
config.json and a root directory. It has runc's command line, so that podman, containerd, docker,
CRI-O and Slurm can call it in runc's place.

The caller needs no privilege. Its one user id and one group id are mapped into the container; the
supplementary groups stay. A container stays in the cgroup of its caller: rt never makes, joins or
changes one.

What a config made for root asks for and one id cannot give is adapted: a user namespace is added,
other users become the mapped one, device nodes become bind mounts, limits are left out. --debug logs
each of these; --strict refuses them.";

const EXIT_STATUS: &str = "\
run and exec exit as the program does, or with 128 and the number of the signal that ended it.
Errors of rt itself are 1, and 255 from exec. All other commands exit with 0 or 1.";

const LOG: &str = "\
An error is one line on stderr: what was being done, to what, and why it failed. Nothing else is
written to stderr unless --debug or --log-level asks for it.

With --log, the error is appended to that file as well, as one line of text, or of JSON with the
keys level, msg and time; on stderr it then stands without \"rt: \" in front. By default errors are
all that is logged: podman reads the whole file as one JSON object, so that a warning in it would
hide the error. --log-level and --debug add what is less severe, to the file where there is one,
else to stderr. The file is opened when there is something to write.";

const ENVIRONMENT: &str = "\
XDG_RUNTIME_DIR is where states are kept. PATH is where ps(1) and rt-pull are looked for. No other
variable is read, and none reaches the container but by -e.";

const FILES: &str = "\
States are kept in the directory of --root, else in /run/rt for root. For everybody else, and for
root in a user namespace, it is the first that can be used of $XDG_RUNTIME_DIR/rt, /run/user/UID/rt
and /tmp/rt-UID.";

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
    fn help_fits_a_terminal() {
        for text in PROGRAM.commands.iter().map(help::of_command).chain([help::of_program(&PROGRAM)]) {
            for line in text.lines() {
                assert!(line.chars().count() <= 100 && !line.ends_with(' '), "{line:?}");
            }
        }
    }
}
