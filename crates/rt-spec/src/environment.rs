//! The caller's environment: which of its variables a container gets, and how the command line names some of them.

use rt_sys::error::Result;
use rt_sys::{bail, err};

/// Variables of the caller that no container inherits, by name; with `*` at the end all that begin so. The page rt(1)
/// names each.
///
/// What is here says where things are on the host, or belongs to one process of the host. Everything else is passed on,
/// as pyxis, Apptainer and Charliecloud do. Apptainer keeps PATH, HOME and LD_LIBRARY_PATH back, and Charliecloud
/// TMPDIR. enroot and pyxis, in which the image's value wins, have the image's PATH, and a home of their own.
pub const KEPT_BACK: &[&str] = &[
    // Where the host has its programs and libraries. An image without PATH has a default one in its config.
    "PATH",
    "LD_*",
    "GCONV_PATH",
    "LOCPATH",
    // The host's shell, which the image may lack, and what that shell reads at its start.
    "SHELL",
    "ENV",
    "BASH_ENV",
    "BASH_FUNC_*",
    // The home inside is that of the container's passwd(5).
    "HOME",
    // Directories of the host for temporary files and sockets. /tmp and /run inside are the container's own.
    "TMPDIR",
    "TMP",
    "TEMP",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    // What a shell says of itself.
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    // Environment Modules and Lmod: what they have loaded is on the host.
    "LOADEDMODULES",
    "MODULEPATH",
    "MODULEPATH_ROOT",
    "MODULESHOME",
    "MODULES_*",
    "LMOD_*",
    "_LMFILES_*",
    "_ModuleTable*",
    "__LMOD_*",
    "__MODULES_*",
    // For the one process whose service manager has set them (sd_listen_fds(3), sd_notify(3)).
    "LISTEN_*",
    "NOTIFY_SOCKET",
];

/// The terminal that a program with one has, where nobody says another (docker's).
pub const DEFAULT_TERM: &str = "TERM=xterm";

/// True where `pattern`, which may have a `*` at its end, means `name`.
pub fn means(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

/// True for a variable of the caller that a container inherits where its config asks for the caller's environment.
pub fn is_inherited(name: &str) -> bool {
    !KEPT_BACK.iter().any(|pattern| means(pattern, name))
}

/// The caller's variables. A config is JSON, so what is not UTF-8 cannot be passed on.
fn callers() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| match (name.into_string(), value.into_string()) {
        (Ok(name), Ok(value)) => Some((name, value)),
        _ => None,
    })
}

/// The caller's variables that a container inherits, `NAME=VALUE` each.
pub fn inherited() -> impl Iterator<Item = String> {
    callers().filter(|(name, _)| is_inherited(name)).map(|(name, value)| format!("{name}={value}"))
}

/// True where the word of `-e` asks for the variable `name`, or sets it.
pub fn asks_for(word: &str, name: &str) -> bool {
    // `*` asks for all that a container inherits.
    word != "*" && means(word.split_once('=').map_or(word, |(name, _)| name), name)
}

/// The locale of the caller, which an image rarely has. pyxis leaves out the same.
const LOCALE: [&str; 3] = ["LANG", "LANGUAGE", "LC_ALL"];

/// What the names of all variables begin with by which a step asks for its container. The program in it does not see them.
pub const REQUEST_PREFIX: &str = "RT_CONTAINER_";

/// True where the number `number` stands in `text`, with no other digit beside it.
pub fn names_number(text: &str, number: &str) -> bool {
    text.split(|c: char| !c.is_ascii_digit()).any(|found| found == number)
}

/// The caller's variables that a container of a step of the job `job` inherits where the caller is the task. TMPDIR is
/// among them where it is a directory of the job's own, which is shown in the container.
pub fn of_task(job: &str) -> impl Iterator<Item = String> {
    let passed = move |name: &str, value: &str| match name {
        "TMPDIR" => names_number(value, job),
        _ => is_inherited(name) && !LOCALE.contains(&name) && !name.starts_with(REQUEST_PREFIX),
    };
    callers().filter(move |(name, value)| passed(name, value)).map(|(name, value)| format!("{name}={value}"))
}

/// The variables that `words` of `-e` ask for, `NAME=VALUE` each. A name alone takes the caller's value, and is left out
/// where there is none. A name with `*` at its end takes all of the caller's variables that begin so; `*` alone those that
/// a container inherits.
pub fn expand(words: &[String]) -> Vec<String> {
    let mut all = Vec::with_capacity(words.len());
    for word in words {
        if word.contains('=') {
            all.push(word.clone());
        } else if word == "*" {
            all.extend(inherited());
        } else if word.ends_with('*') {
            let meant = callers().filter(|(name, _)| means(word, name));
            all.extend(meant.map(|(name, value)| format!("{name}={value}")));
        } else if let Ok(value) = std::env::var(word) {
            all.push(format!("{word}={value}"));
        }
    }
    all
}

/// Checks a word of `-e`.
pub fn check(word: &str) -> Result<()> {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    if name.is_empty() {
        bail!("--env: {word:?} has no name");
    }
    if !word.contains('=') && name[..name.len() - 1].contains('*') {
        bail!("--env: {word:?}: only the last character of a name can be *");
    }
    // An image, which takes the place of a name behind Apptainer's -e.
    if !word.contains('=') && name.contains([':', '/']) {
        return Err(err!("--env: {word:?} is no name of a variable")
            .hint("-e takes NAME or NAME=VALUE; what Apptainer calls so is --clear-env"));
    }
    Ok(())
}

/// The variables in the text of a file of `--env-file`, as words of `-e`. The format is docker's: a variable in each
/// line, whose value is everything behind the first `=`, quotes too; lines that are empty or begin with `#` do not count.
pub fn of_file(text: &[u8]) -> Result<Vec<String>> {
    let text = std::str::from_utf8(text).map_err(|e| err!("{e}"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut all = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, has_value) = line.split_once('=').map_or((line, false), |(name, _)| (name, true));
        let name = if has_value { name } else { name.trim_end() };
        if name.is_empty() || name.contains(char::is_whitespace) {
            bail!("line {}: {name:?} is no name of a variable", n + 1);
        }
        all.push(if has_value { line.to_owned() } else { name.to_owned() });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_the_host_is_kept_back() {
        let kept = ["PATH", "HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "TMPDIR", "PWD", "_", "BASH_FUNC_ml%%"];
        assert!(
            kept.iter().chain(&["LMOD_CMD", "_ModuleTable001_", "XDG_RUNTIME_DIR"]).all(|n| !is_inherited(n))
        );
        let passed = ["TERM", "LANG", "TZ", "JOB_RANK", "OMP_NUM_THREADS", "http_proxy"];
        assert!(
            passed.iter().chain(&["PATHS", "LDFLAGS", "HOMES", "DISPLAY", "__X"]).all(|n| is_inherited(n))
        );
    }

    #[test]
    fn words_are_checked() {
        for good in ["A", "A=", "A=b*c*", "OMP_*", "*"] {
            check(good).unwrap();
        }
        for bad in ["", "=x", "A*B", "**", "*A"] {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert!(asks_for("SSH_AUTH_SOCK", "SSH_AUTH_SOCK") && asks_for("SSH_*", "SSH_AUTH_SOCK"));
        assert!(asks_for("XAUTHORITY=/x", "XAUTHORITY") && !asks_for("*", "XAUTHORITY"));
    }

    #[test]
    fn files_are_dockers() {
        let text = "\u{feff}A=1\n# no\n\n  B= \"two\" words # all \nC\nD=\r\n";
        assert_eq!(of_file(text.as_bytes()).unwrap(), ["A=1", "B= \"two\" words # all ", "C", "D="]);
        for bad in ["A=1\nB C=2", "=x", "A B", "\u{0}\u{ff}=\n \u{a0}=1"] {
            assert!(of_file(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(of_file(b"A=\xff").is_err());
    }
}
