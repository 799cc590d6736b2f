//! The command line that our hooks share.
//!
//! A runtime calls a hook without arguments and writes the container's state to its stdin. Everything else here is for
//! people, and for engines that prepare configs. The parser of `rt` serves programs that have commands; a hook mostly has
//! none, so it has a small parser of its own, with the same texts for what is wrong.

use crate::kit::apply;
use crate::kit::bundle::{Bundle, State, require_root};
use crate::kit::edits::Edits;
use crate::kit::tree::Tree;
use rt_cli::wrong;
use rt_sys::bail;
use rt_sys::error::{Context, Result};
use rt_sys::log::one_line;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// One of our hooks.
pub(crate) struct HookProgram {
    /// Its program's name.
    pub name: &'static str,
    /// What `--help` says of it.
    pub about: &'static str,
    /// The edits of a bundle: bundle, host, container.
    pub edits: fn(&Bundle, &Tree, &Tree) -> Result<Edits>,
    /// How it changes a config when it is called as a precreate hook.
    pub precreate: Option<Precreate>,
    /// Further commands.
    pub commands: &'static [Subcommand],
}

/// A command of a hook that no runtime calls.
pub(crate) struct Subcommand {
    /// What the user types.
    pub name: &'static str,
    /// One line for `--help`.
    pub summary: &'static str,
    /// Does it; the answer goes to stdout.
    pub run: fn(&Call) -> Result<String>,
}

/// Makes another config, as JSON, of the one that was on stdin.
pub(crate) type Precreate = fn(&Call, &[u8]) -> Result<String>;

/// A parsed command line.
#[derive(Debug)]
pub(crate) struct Call {
    /// The words that are no flags.
    pub words: Vec<String>,
    /// `--root`.
    pub root: PathBuf,
    /// `--bundle`.
    pub bundle: Option<PathBuf>,
    dry_run: bool,
    help: bool,
    version: bool,
}

/// Runs the command line of this process; returns its exit status.
pub(crate) fn main(hook: &HookProgram) -> u8 {
    match run(hook, std::env::args_os().skip(1).collect()) {
        Ok(answer) => {
            let _ = std::io::stdout().write_all(answer.as_bytes());
            0
        }
        Err(e) => {
            say(hook, &e.to_string());
            1
        }
    }
}

/// One line on stderr, which the runtime shows or logs.
fn say(hook: &HookProgram, text: &str) {
    let line = format!("{}: {}\n", hook.name, one_line(text));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn run(hook: &HookProgram, words: Vec<OsString>) -> Result<String> {
    let call = parse(words)?;
    if call.help {
        return Ok(help(hook));
    }
    if call.version {
        return Ok(format!("{} version {}\n", hook.name, env!("CARGO_PKG_VERSION")));
    }
    match call.words.first() {
        None => inject(hook, &call),
        Some(word) => match hook.commands.iter().find(|command| command.name == word) {
            Some(command) => (command.run)(&call),
            None => {
                let known = hook.commands.iter().map(|command| command.name);
                let hint = format!("{} --help lists the commands", hook.name);
                Err(wrong::unknown_command(word.as_ref(), None, known, &hint))
            }
        },
    }
}

/// The flags, for suggestions.
const FLAGS: [&str; 5] = ["--root", "--bundle", "--dry-run", "--help", "--version"];

fn parse(words: Vec<OsString>) -> Result<Call> {
    let mut call = Call {
        words: Vec::new(),
        root: "/".into(),
        bundle: None,
        dry_run: false,
        help: false,
        version: false,
    };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        let (flag, inline) = match text.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag, Some(value.to_owned())),
            _ => (text.as_str(), None),
        };
        let mut value = || match inline.clone().map(OsString::from).or_else(|| words.next()) {
            Some(value) => Ok(PathBuf::from(value)),
            None => Err(wrong::without_value(flag.as_ref())),
        };
        match flag {
            "--root" => call.root = std::path::absolute(value()?)?,
            "--bundle" | "-b" => call.bundle = Some(std::path::absolute(value()?)?),
            "--dry-run" => call.dry_run = true,
            "--help" | "-h" => call.help = true,
            "--version" | "-v" => call.version = true,
            flag if flag.starts_with('-') => return Err(wrong::unknown_flag(flag.as_ref(), None, FLAGS)),
            _ => call.words.push(text),
        }
    }
    Ok(call)
}

/// Does what a runtime calls the hook for, or with `--dry-run` prints what would be done.
fn inject(hook: &HookProgram, call: &Call) -> Result<String> {
    let input = if call.bundle.is_some() { Vec::new() } else { stdin()? };
    // Engines call a hook with the same command line in every stage: its input tells whether this is precreate.
    if let Some(precreate) = hook.precreate
        && is_config(&input)
    {
        return precreate(call, &input);
    }
    let state = match &call.bundle {
        Some(_) => None,
        None => Some(State::parse(&input)?),
    };
    let dir = match (&call.bundle, &state) {
        (Some(dir), _) => dir.clone(),
        (None, Some(state)) => state.bundle.clone(),
        (None, None) => bail!("no bundle"),
    };
    let bundle = Bundle::load(&dir, state.as_ref()).context(|| format!("bundle {}", dir.display()))?;
    require_root(&bundle)?;
    if call.dry_run {
        let edits = compute(hook, &bundle, &call.root)?;
        return Ok(edits.to_json() + "\n");
    }
    let Some(state) = state else {
        bail!("--bundle without --dry-run: only a runtime has a container to change")
    };
    apply::enter(&state, &bundle)?;
    let edits = compute(hook, &bundle, &call.root)?;
    apply::apply(&edits, &bundle, &call.root)?;
    edits.warnings.iter().for_each(|warning| say(hook, &format!("warning: {warning}")));
    Ok(String::new())
}

/// True for a config.json, which has no bundle; a state has one.
fn is_config(input: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Either {
        bundle: Option<serde::de::IgnoredAny>,
        root: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_slice::<Either>(input).is_ok_and(|it| it.bundle.is_none() && it.root.is_some())
}

fn compute(hook: &HookProgram, bundle: &Bundle, root: &Path) -> Result<Edits> {
    let host = Tree::open(root)?;
    let container = Tree::of(bundle.open_root()?, &bundle.rootfs);
    Tree::within_bounds([&host, &container], (hook.edits)(bundle, &host, &container))
}

/// Reads all of standard input.
pub(crate) fn stdin() -> Result<Vec<u8>> {
    // States have hundreds of bytes and configs thousands: nearly all of them fit without growing the buffer.
    let mut text = Vec::with_capacity(16 << 10);
    std::io::stdin().lock().read_to_end(&mut text).context(|| "read stdin")?;
    Ok(text)
}

fn help(hook: &HookProgram) -> String {
    let mut text = format!(
        "{about}\n\nUsage: {name} [--root DIR]            as an OCI hook: the container's state on stdin\n       \
         {name} --dry-run --bundle DIR [--root DIR]\n",
        about = hook.about,
        name = hook.name
    );
    for command in hook.commands {
        text.push_str(&format!("       {} {} [--root DIR]\n", hook.name, command.name));
    }
    text.push_str(
        "\nFlags:\n  --dry-run     print what would be done, as JSON\n  --bundle DIR  look at the bundle in DIR\n  \
         --root DIR    look for the host's files below DIR, such as a driver container\n",
    );
    if !hook.commands.is_empty() {
        text.push_str("\nCommands:\n");
    }
    for command in hook.commands {
        text.push_str(&format!("  {:<12}  {}\n", command.name, command.summary));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read() {
        let call = |words: &[&str]| parse(words.iter().map(OsString::from).collect());
        let parsed = call(&["--root=/r", "cdi", "--bundle", "/b", "--dry-run"]).unwrap();
        assert_eq!(
            (parsed.root.as_path(), parsed.bundle.as_deref()),
            (Path::new("/r"), Some(Path::new("/b")))
        );
        assert!(parsed.dry_run && parsed.words == ["cdi"]);
        for (words, text) in [
            (&["--root"][..], "flag --root needs a value"),
            (&["-b"], "flag -b needs a value"),
            (&["--fly"], "unknown flag --fly"),
            (&["--rot=/r"], "unknown flag --rot; did you mean --root?"),
        ] {
            assert_eq!(call(words).unwrap_err().to_string(), text);
        }
    }
}
