//! The prompt of a shell that somebody opens in a container: it says that one is inside, as Apptainer's does.

use rt_spec::asked_mounts::IMAGE_ENDINGS;
use rt_spec::{ANNOTATION_NAME, Process, Spec};
use rt_sys::tty;
use std::path::Path;

/// Shells whose prompt is PS1 as it stands; what zsh expands in it is another language.
const SHELLS: [&str; 4] = ["sh", "bash", "dash", "ash"];
/// Flags with which a shell still reads commands from its terminal.
const INTERACTIVE: [&str; 5] = ["-i", "-l", "-il", "-li", "--login"];

/// Gives a shell that reads commands from a terminal a prompt with the image's name, `rt:debian$ `, where the image, the
/// config and the caller have none. Debian's own prompt, which its start files set, shows `debian_chroot` in front. No
/// script is started with them.
pub(super) fn set(spec: &mut Spec) {
    let annotations = spec.annotations().as_ref();
    let name = annotations.and_then(|all| all.get(ANNOTATION_NAME)).map_or("", |name| short_name(name));
    let label = if name.is_empty() { "rt".to_owned() } else { format!("rt:{name}") };
    let Some(process) = spec.process_mut().as_mut().filter(|process| is_shell_on_terminal(process)) else {
        return;
    };
    let mut env = process.env().clone().unwrap_or_default();
    for (variable, value) in [("PS1=", format!("{label}$ ")), ("debian_chroot=", label)] {
        if !env.iter().any(|known| known.starts_with(variable)) {
            env.push(format!("{variable}{value}"));
        }
    }
    process.set_env(Some(env));
}

fn is_shell_on_terminal(process: &Process) -> bool {
    let Some((program, flags)) = process.args().as_deref().and_then(<[String]>::split_first) else {
        return false;
    };
    let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let on_terminal = || match process.terminal() {
        Some(true) => true,
        _ => tty::is_terminal(std::io::stdin()) && tty::is_terminal(std::io::stdout()),
    };
    SHELLS.contains(&name) && flags.iter().all(|flag| INTERACTIVE.contains(&flag.as_str())) && on_terminal()
}

/// What people call an image: the last part of its name without tag, digest and file name's end. Signs that a shell expands
/// in a prompt end it.
fn short_name(name: &str) -> &str {
    let last = name.rsplit('/').next().unwrap_or_default();
    let end = last.find([':', '@']).unwrap_or(last.len());
    let last = IMAGE_ENDINGS.iter().fold(&last[..end], |n, e| n.strip_suffix(e).unwrap_or(n));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
    &last[..last.find(|c| !is_plain(c)).unwrap_or(last.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_called_by_their_last_part() {
        for (name, short) in [
            ("debian:12", "debian"),
            ("nvcr.io/nvidia/pytorch:24.01-py3", "pytorch"),
            ("reg.example:5000/a/b", "b"),
            ("r.example/x@sha256:12", "x"),
            ("/data/images/tool.sqsh", "tool"),
            ("oci:image:t", "oci"),
            ("x$(touch pwned)", "x"),
            ("", ""),
        ] {
            assert_eq!(short_name(name), short, "{name}");
        }
    }
}
