//! The command line of `rt-pull`: one table from which parsing and help come.

use std::io::Write;
use std::process::ExitCode;

use super::command;
use crate::error::{Error, Result};
use crate::{bail, err};

/// An option of a command.
struct Flag {
    name: &'static str,
    short: Option<char>,
    /// The name of its value; none: it has none.
    value: Option<&'static str>,
    help: &'static str,
}

struct Command {
    name: &'static str,
    arguments: &'static str,
    summary: &'static str,
    flags: &'static [&'static [Flag]],
    run: fn(&Call) -> Result<()>,
}

/// A parsed command line.
#[derive(Debug, Default)]
pub struct Call {
    /// What is no option.
    pub arguments: Vec<String>,
    options: Vec<(&'static str, String)>,
}

const fn flag(name: &'static str, help: &'static str) -> Flag {
    Flag { name, short: None, value: None, help }
}

const fn value(name: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { name, short: None, value: Some(value), help }
}

const fn short(letter: char, flag: Flag) -> Flag {
    Flag { short: Some(letter), ..flag }
}

const REGISTRY: &[Flag] = &[
    value("authfile", "FILE", "credentials, in docker's format"),
    value("creds", "USER:PASSWORD", "credentials for this call"),
    flag("insecure", "do not check certificates, and try HTTP after HTTPS"),
    flag("plain-http", "use HTTP"),
    value("retries", "N", "how often a failed request is made again (6)"),
];
const CACHE: &[Flag] = &[
    value("cache", "DIR", "the cache (RT_CACHE, else XDG_CACHE_HOME/rt, else ~/.cache/rt)"),
    flag("no-cache", "keep no blobs"),
];
const IMAGE: &[Flag] = &[value("platform", "OS/ARCH[/VARIANT]", "an image for another machine")];
const OUTPUT: &[Flag] =
    &[flag("json", "one JSON document on standard output"), short('q', flag("quiet", "nothing but errors"))];
const PULL: &[Flag] = &[
    value(
        "profile",
        "hpc|isolated",
        "hpc (default): the host's network, processes and devices, as the caller",
    ),
    value(
        "user-map",
        "caller|root|config",
        "who the process is inside; root emulates what package managers need",
    ),
    flag("writable", "the root file system may be written (hpc)"),
    flag("home", "mount the caller's home directory"),
    flag("private", "modes exactly as in the image, and nobody else may look into the bundle"),
    short('f', flag("force", "replace a bundle that is there")),
    flag("sync", "the bundle survives a crash of the machine once the command returns"),
    value("connections", "N", "blobs fetched at once (4)"),
    value("max-size", "BYTES", "refuse images that write more (suffixes K, M, G, T)"),
];
const PRUNE: &[Flag] = &[
    value("older-than", "DAYS", "only blobs that were not used for so long"),
    value("max-size", "BYTES", "the least recently used, until so much is left"),
];
const LOGIN: &[Flag] = &[
    short('u', value("username", "USER", "the user")),
    short('p', value("password", "PASSWORD", "the password (others may see it in ps)")),
    flag("password-stdin", "read the password from standard input"),
];

const COMMANDS: &[Command] = &[
    Command {
        name: "pull",
        arguments: "IMAGE [BUNDLE]",
        summary: "turn an image into a bundle",
        flags: &[PULL, IMAGE, REGISTRY, CACHE, OUTPUT],
        run: command::pull::run,
    },
    Command {
        name: "inspect",
        arguments: "IMAGE",
        summary: "show an image without pulling its layers",
        flags: &[IMAGE, REGISTRY, CACHE, OUTPUT],
        run: command::inspect::run,
    },
    Command {
        name: "save",
        arguments: "BUNDLE oci:DIR[:TAG]|oci-archive:FILE[:TAG]",
        summary: "write a bundle's root file system as an image",
        flags: &[OUTPUT],
        run: command::save::run,
    },
    Command {
        name: "login",
        arguments: "[REGISTRY]",
        summary: "keep credentials for a registry",
        flags: &[LOGIN, REGISTRY],
        run: command::login::login,
    },
    Command {
        name: "logout",
        arguments: "[REGISTRY]",
        summary: "forget credentials",
        flags: &[REGISTRY],
        run: command::login::logout,
    },
    Command {
        name: "cache",
        arguments: "list|prune|verify",
        summary: "look after the blobs that were fetched",
        flags: &[PRUNE, CACHE, OUTPUT],
        run: command::cache::run,
    },
];

const IMAGES: &str = "\
Images: NAME[:TAG][@DIGEST] or docker://... in a registry (docker.io where none is named; also
enroot's REGISTRY#IMAGE:TAG), oci:DIR[:TAG], oci-archive:FILE[:TAG], docker-archive:FILE[:NAME:TAG],
docker-daemon:NAME, podman:NAME.
";

/// Runs the command that the process was called with.
pub fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "rt: {e}");
            ExitCode::FAILURE
        }
    }
}

/// What the code notes on its way (retries, mirrors that are down) goes to standard error.
struct Notes;

impl log::Log for Notes {
    fn enabled(&self, metadata: &log::Metadata) -> bool {
        metadata.level() <= log::Level::Info && metadata.target().starts_with("rt::")
    }

    fn log(&self, record: &log::Record) {
        if self.enabled(record.metadata()) {
            let _ = writeln!(std::io::stderr(), "rt: {}", record.args());
        }
    }

    fn flush(&self) {}
}

fn dispatch(arguments: &[String]) -> Result<()> {
    let Some((name, rest)) = arguments.split_first() else {
        let _ = std::io::Write::write_all(&mut std::io::stdout(), overview().as_bytes());
        return Err(err!("give a command"));
    };
    if matches!(name.as_str(), "--help" | "-h" | "help") {
        let _ = std::io::Write::write_all(&mut std::io::stdout(), overview().as_bytes());
        return Ok(());
    }
    if matches!(name.as_str(), "--version" | "-V") {
        say!("rt-pull {}\n", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    let command = COMMANDS.iter().find(|command| command.name == name);
    let command =
        command.ok_or_else(|| err!("{name}: not a command of rt-pull").hint("rt-pull --help lists them"))?;
    if rest.iter().take_while(|a| *a != "--").any(|a| a == "--help" || a == "-h") {
        say!("{}", help(command));
        return Ok(());
    }
    let call = parse(command, rest).map_err(|e| usage(command, e))?;
    if !call.has("quiet") && log::set_logger(&Notes).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
    (command.run)(&call)
}

fn parse(command: &Command, arguments: &[String]) -> Result<Call> {
    let mut call = Call::default();
    let mut rest = arguments.iter();
    let mut only_arguments = false;
    while let Some(argument) = rest.next() {
        if only_arguments || !argument.starts_with('-') || argument == "-" {
            call.arguments.push(argument.clone());
            continue;
        }
        if argument == "--" {
            only_arguments = true;
            continue;
        }
        let (name, attached) = match argument.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (argument.as_str(), None),
        };
        let known = command.flags.iter().copied().flatten().find(|flag| match name.strip_prefix("--") {
            Some(long) => flag.name == long,
            None => flag.short.is_some_and(|letter| name[1..] == *letter.encode_utf8(&mut [0; 4])),
        });
        let known = known.ok_or_else(|| err!("unknown option {name}"))?;
        let value = match (known.value, attached) {
            (None, None) => String::new(),
            (None, Some(_)) => bail!("--{} takes no value", known.name),
            (Some(_), Some(value)) => value,
            (Some(what), None) => {
                rest.next().cloned().ok_or_else(|| err!("--{} needs {what}", known.name))?
            }
        };
        call.options.push((known.name, value));
    }
    Ok(call)
}

impl Call {
    /// The last value of an option.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Whether an option was given.
    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// A whole number.
    pub fn number(&self, name: &str) -> Result<Option<u64>> {
        let Some(text) = self.value(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| err!("--{name} {text}: not a number"))
    }

    /// Bytes, with a suffix in powers of 1000.
    pub fn bytes(&self, name: &str) -> Result<Option<u64>> {
        let Some(text) = self.value(name) else { return Ok(None) };
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let factor = match text[digits.len()..].to_ascii_uppercase().as_str() {
            "" | "B" => Some(1),
            "K" | "KB" => Some(1000),
            "M" | "MB" => Some(1000_u64.pow(2)),
            "G" | "GB" => Some(1000_u64.pow(3)),
            "T" | "TB" => Some(1000_u64.pow(4)),
            _ => None,
        };
        let number: Option<u64> = digits.parse().ok();
        let bytes = number.zip(factor).and_then(|(n, f)| n.checked_mul(f));
        bytes.map(Some).ok_or_else(|| err!("--{name} {text}: not a size such as 20G"))
    }
}

fn usage(command: &Command, e: Error) -> Error {
    e.context(command.name).hint(format!("usage: rt {} [options] {}", command.name, command.arguments))
}

fn overview() -> String {
    let mut text = String::from("rt-pull: images to bundles\n\n");
    for command in COMMANDS {
        text.push_str(&format!("  {:<9}{}\n", command.name, command.summary));
    }
    text.push_str("\nrt COMMAND --help describes a command.\n");
    text
}

fn help(command: &Command) -> String {
    let mut text =
        format!("rt {} [options] {}\n\n{}\n\n", command.name, command.arguments, capital(command.summary));
    for flag in command.flags.iter().copied().flatten() {
        let short = flag.short.map_or("    ".to_owned(), |letter| format!("-{letter}, "));
        let name = format!("{short}--{}{}", flag.name, flag.value.map_or(String::new(), |v| format!(" {v}")));
        text.push_str(&format!("  {name:<34} {}\n", flag.help));
    }
    if command.arguments.contains("IMAGE") {
        text.push('\n');
        text.push_str(IMAGES);
    }
    text
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or(String::new(), |c| c.to_uppercase().chain(characters).chain(['.']).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &str) -> Result<Call> {
        parse(&COMMANDS[0], &line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_and_arguments() {
        let parsed = call("-q --profile=isolated debian --max-size 20G -- -x").unwrap();
        assert!(parsed.has("quiet") && !parsed.has("force"));
        assert_eq!(parsed.value("profile"), Some("isolated"));
        assert_eq!(parsed.bytes("max-size").unwrap(), Some(20_000_000_000));
        assert_eq!(parsed.arguments, ["debian", "-x"]);
        for bad in ["--nothing", "--quiet=yes", "--profile", "-z"] {
            assert!(call(bad).is_err(), "{bad}");
        }
        assert!(call("--max-size 20X").unwrap().bytes("max-size").is_err());
    }

    #[test]
    fn every_command_has_help_and_no_option_twice() {
        for command in COMMANDS {
            let text = help(command);
            let mut names: Vec<_> = command.flags.iter().copied().flatten().map(|flag| flag.name).collect();
            assert!(names.iter().all(|name| text.contains(&format!("--{name}"))));
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{}: an option twice", command.name);
        }
    }
}
