//! The language of Dockerfiles, as BuildKit reads it: what a file says, without building anything.
//!
//! [`Dockerfile::parse`] reads a file. Variables are expanded by whoever builds ([`words::expand`]), instruction by instruction, for
//! their values come from the ones before. [`ignore`] has the rules of .dockerignore, and [`glob`] and
//! [`include`] those of names in COPY.
//!
//! Every input may be hostile: nothing recurses without a bound, and no input takes longer than its length allows.
//!
//! ```
//! use dockerfile::{Command, Dockerfile, Kind};
//!
//! let file = Dockerfile::parse(b"FROM debian:12\nRUN apt-get update \\\n  && apt-get install -y gcc\n").unwrap();
//! let run = &file.instructions[1];
//! assert_eq!(run.line, 2);
//! assert_eq!(run.kind, Kind::Run(Command::Shell("apt-get update   && apt-get install -y gcc".into())));
//! ```

#![forbid(unsafe_code)]

mod chmod;
pub mod glob;
mod heredoc;
pub mod ignore;
pub mod include;
mod lines;
mod mount;
pub mod words;

pub use chmod::{Change, Chmod};
pub use lines::MOST_BYTES;
pub use mount::{Mount, MountKind, Sharing};

use std::fmt;

/// What is wrong with a file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The number of the line, from 1 on.
    pub line: usize,
    /// What is wrong with it.
    pub text: String,
}

impl Error {
    fn new(line: usize, text: impl Into<String>) -> Error {
        Error { line, text: text.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

impl std::error::Error for Error {}

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dockerfile {
    /// The character that escapes.
    pub escape: char,
    /// Its instructions.
    pub instructions: Vec<Instruction>,
}

/// An instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// The number of its first line in the file, from 1 on.
    pub line: usize,
    /// It as text, joined to one line.
    pub text: String,
    /// Its flags, `--NAME=VALUE`, in their order.
    pub flags: Vec<(String, Option<String>)>,
    /// What follows it.
    pub heredocs: Vec<Heredoc>,
    /// What it says.
    pub kind: Kind,
}

impl Instruction {
    /// The value of a flag; the last one, where it is there several times.
    pub fn flag(&self, name: &str) -> Option<&str> {
        self.flags
            .iter()
            .rev()
            .find(|(flag, _)| flag == name)
            .map(|(_, value)| value.as_deref().unwrap_or("true"))
    }

    /// All values of a flag.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.flags
            .iter()
            .filter(move |(flag, _)| flag == name)
            .map(|(_, value)| value.as_deref().unwrap_or(""))
    }
}

/// Text that follows an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heredoc {
    /// The line that ends it.
    pub name: String,
    /// Its lines.
    pub content: String,
    /// Variables in it are expanded: the name was not quoted.
    pub expands: bool,
    /// Tabs at the beginnings of its lines do not count.
    pub tabs: bool,
}

impl Heredoc {
    /// The text that is meant.
    pub fn text(&self) -> String {
        match self.tabs {
            true => self.content.split_inclusive('\n').map(|line| line.trim_start_matches('\t')).collect(),
            false => self.content.clone(),
        }
    }
}

/// A command: for a shell, or word by word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// The text for the shell.
    Shell(String),
    /// The words.
    Exec(Vec<String>),
}

/// What an instruction says. Texts are as they are written, with variables and quotes, but where a comment says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is named as its instruction")]
pub enum Kind {
    From {
        image: String,
        name: Option<String>,
    },
    Arg(Vec<(String, Option<String>)>),
    Env(Vec<(String, String)>),
    Label(Vec<(String, String)>),
    Run(Command),
    /// The sources but heredocs, and the destination at the end.
    Copy(Vec<String>),
    /// The sources but heredocs, and the destination at the end.
    Add(Vec<String>),
    Workdir(String),
    User(String),
    Volume(Vec<String>),
    Expose(String),
    StopSignal(String),
    Maintainer(String),
    Shell(Vec<String>),
    Entrypoint(Command),
    Cmd(Command),
    Healthcheck(Healthcheck),
    /// The text of the instruction.
    Onbuild(String),
}

/// What HEALTHCHECK says. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is named as its flag")]
pub struct Healthcheck {
    /// None for `NONE`.
    pub command: Option<Command>,
    pub interval: Option<i64>,
    pub timeout: Option<i64>,
    pub start_period: Option<i64>,
    pub start_interval: Option<i64>,
    pub retries: Option<i64>,
}

/// The instructions, and the flags that each may have.
const INSTRUCTIONS: [(&str, &[&str]); 18] = [
    ("ADD", &["chown", "chmod", "link", "keep-git-dir", "checksum", "exclude", "unpack"]),
    ("ARG", &[]),
    ("CMD", &[]),
    ("COPY", &["chown", "chmod", "link", "parents", "exclude", "from"]),
    ("ENTRYPOINT", &[]),
    ("ENV", &[]),
    ("EXPOSE", &[]),
    ("FROM", &["platform"]),
    ("HEALTHCHECK", &["interval", "timeout", "start-period", "start-interval", "retries"]),
    ("LABEL", &[]),
    ("MAINTAINER", &[]),
    ("ONBUILD", &[]),
    ("RUN", &["mount", "network", "security", "device"]),
    ("SHELL", &[]),
    ("STOPSIGNAL", &[]),
    ("USER", &[]),
    ("VOLUME", &[]),
    ("WORKDIR", &[]),
];

impl Dockerfile {
    /// Reads a file.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Dockerfile, Error> {
        let lines::Lines { escape, lines } = lines::read(bytes)?;
        let mut instructions = Vec::new();
        for line in lines {
            let number = line.number;
            let parsed = instruction(line, escape).map_err(|text| Error::new(number, text))?;
            let before_from = !instructions.iter().any(|i: &Instruction| matches!(i.kind, Kind::From { .. }));
            if before_from && !matches!(parsed.kind, Kind::From { .. } | Kind::Arg(_)) {
                return Err(Error::new(number, "no build stage: the first instruction but ARG must be FROM"));
            }
            instructions.push(parsed);
        }
        if !instructions.iter().any(|i| matches!(i.kind, Kind::From { .. })) {
            return Err(Error::new(1, "the file has no instructions that build an image: no FROM"));
        }
        Ok(Dockerfile { escape, instructions })
    }
}

/// Reads one instruction, as an image has them for ONBUILD.
///
/// # Errors
/// What is wrong with it.
pub fn parse_instruction(text: &str) -> Result<Instruction, Error> {
    let lines::Lines { escape, lines } = lines::read(text.as_bytes())?;
    let [line] = <[lines::Line; 1]>::try_from(lines).map_err(|_| Error::new(1, "not one instruction"))?;
    instruction(line, escape).map_err(|text| Error::new(1, text))
}

fn instruction(line: lines::Line, escape: char) -> Result<Instruction, String> {
    let lines::Line { number, text, heredocs } = line;
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((&text, ""));
    let name = word.to_ascii_uppercase();
    let Some((_, known)) = INSTRUCTIONS.iter().find(|(known, _)| *known == name) else {
        return Err(format!("unknown instruction: {word}"));
    };
    let (flags, rest) = flags(rest.trim_start(), escape)?;
    for (flag, _) in &flags {
        if !known.contains(&flag.as_str()) {
            return Err(format!("{name}: unknown flag: --{flag}"));
        }
    }
    if rest.is_empty() {
        return Err(format!("{name} requires an argument"));
    }
    let words = || -> Vec<String> { rest.split_whitespace().map(str::to_owned).collect() };
    let one = || rest.to_owned();
    let kind = match name.as_str() {
        "FROM" => from(&words())?,
        "ARG" => Kind::Arg(words::split(rest, escape).into_iter().map(argument).collect::<Result<_, _>>()?),
        "ENV" => Kind::Env(pairs(&name, rest, escape)?),
        "LABEL" => Kind::Label(pairs(&name, rest, escape)?),
        "RUN" => Kind::Run(command(rest)),
        "COPY" | "ADD" => {
            let mut paths = json(rest).unwrap_or_else(|| match heredocs.is_empty() {
                true => words(),
                false => heredoc::words(rest),
            });
            if paths.len() < 2 {
                return Err(format!("{name} requires at least two arguments, a source and the destination"));
            }
            let announced = |word: &str| {
                heredoc::mark(word).is_some_and(|mark| heredocs.iter().any(|h| h.name == mark.heredoc.name))
            };
            if paths.last().is_some_and(|to| announced(to)) {
                return Err(format!("{name}: a heredoc is no destination"));
            }
            paths.retain(|path| !announced(path));
            if name == "COPY" { Kind::Copy(paths) } else { Kind::Add(paths) }
        }
        "WORKDIR" => Kind::Workdir(one()),
        "USER" => Kind::User(one()),
        "VOLUME" => Kind::Volume(json(rest).unwrap_or_else(words)),
        "EXPOSE" => Kind::Expose(one()),
        "STOPSIGNAL" => Kind::StopSignal(one()),
        "MAINTAINER" => Kind::Maintainer(one()),
        "SHELL" => match json(rest) {
            Some(words) if !words.is_empty() => Kind::Shell(words),
            _ => return Err("SHELL requires the arguments to be in JSON form".to_owned()),
        },
        "ENTRYPOINT" => Kind::Entrypoint(command(rest)),
        "CMD" => Kind::Cmd(command(rest)),
        "HEALTHCHECK" => Kind::Healthcheck(healthcheck(rest, &flags)?),
        _ => onbuild(rest)?,
    };
    let rest_of_line = |flag: &str| flags.iter().any(|(known, _)| known == flag);
    if rest_of_line("from") && !heredocs.is_empty() {
        return Err(format!("{name}: --from and a heredoc exclude each other"));
    }
    Ok(Instruction { line: number, text, flags, heredocs, kind })
}

/// The flags at the beginning, and what follows them.
#[allow(clippy::type_complexity, reason = "the name and the value of each, and the rest")]
fn flags(mut rest: &str, escape: char) -> Result<(Vec<(String, Option<String>)>, &str), String> {
    let mut flags = Vec::new();
    while let Some(word) = rest.strip_prefix("--") {
        let (mut text, mut quote, mut end) = (String::new(), None, word.len());
        let mut chars = word.char_indices();
        while let Some((at, c)) = chars.next() {
            match quote {
                None if c.is_whitespace() => {
                    end = at;
                    break;
                }
                None if c == '\'' || c == '"' => quote = Some(c),
                Some(q) if c == q => quote = None,
                _ if c == escape && quote != Some('\'') => text.extend(chars.next().map(|(_, c)| c)),
                _ => text.push(c),
            }
        }
        rest = word[end..].trim_start();
        if text.is_empty() {
            break;
        }
        flags.push(match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (text, None),
        });
    }
    Ok((flags, rest))
}

/// A JSON array of texts; none for everything else, which is then the shell form.
fn json(text: &str) -> Option<Vec<String>> {
    if !text.starts_with('[') {
        return None;
    }
    serde_json::from_str(text).ok()
}

fn command(text: &str) -> Command {
    match json(text) {
        Some(words) if !words.is_empty() => Command::Exec(words),
        Some(_) => Command::Exec(Vec::new()),
        None => Command::Shell(text.to_owned()),
    }
}

fn from(words: &[String]) -> Result<Kind, String> {
    match words {
        [image] => Ok(Kind::From { image: image.clone(), name: None }),
        [image, word, name] if word.eq_ignore_ascii_case("as") => {
            let mut chars = name.chars();
            let good = chars.next().is_some_and(|c| c.is_ascii_alphabetic())
                && chars.all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
            match good {
                true => Ok(Kind::From { image: image.clone(), name: Some(name.to_ascii_lowercase()) }),
                false => Err(format!("invalid name for a build stage: {name:?}")),
            }
        }
        _ => Err("FROM requires either one argument, or three: FROM IMAGE AS NAME".to_owned()),
    }
}

fn argument(word: String) -> Result<(String, Option<String>), String> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (&*word, None),
    };
    match name.is_empty() {
        true => Err(format!("ARG {word}: no name")),
        false => Ok((name.to_owned(), value)),
    }
}

/// `NAME=VALUE ...`, or `NAME VALUE` with the rest of the line.
fn pairs(instruction: &str, rest: &str, escape: char) -> Result<Vec<(String, String)>, String> {
    let words = words::split(rest, escape);
    if !words.first().is_some_and(|word| word.contains('=')) {
        let Some((name, value)) = rest.split_once(char::is_whitespace) else {
            return Err(format!("{instruction} must have two arguments"));
        };
        return Ok(vec![(name.to_owned(), value.trim_start().to_owned())]);
    }
    let pair = |word: &String| match word.split_once('=') {
        Some(("", _)) => Err(format!("{instruction} names can not be blank")),
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(format!("{instruction}: no = in {word:?}, which must be of the form NAME=VALUE")),
    };
    words.iter().map(pair).collect()
}

fn healthcheck(rest: &str, flags: &[(String, Option<String>)]) -> Result<Healthcheck, String> {
    let value =
        |name: &str| flags.iter().find(|(flag, _)| flag == name).and_then(|(_, value)| value.as_deref());
    let time = |name: &str| -> Result<Option<i64>, String> {
        let Some(text) = value(name) else { return Ok(None) };
        let time =
            duration(text).ok_or_else(|| format!("HEALTHCHECK --{name}={text}: not a time such as 1m30s"))?;
        match time {
            0 | 1_000_000.. => Ok(Some(time)),
            _ => Err(format!("HEALTHCHECK --{name}={text}: less than a millisecond")),
        }
    };
    let retries = value("retries").map(|text| text.parse::<i64>().ok().filter(|n| *n >= 0).ok_or(text));
    let retries =
        retries.transpose().map_err(|text| format!("HEALTHCHECK --retries={text}: not a number"))?;
    let (kind, words) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let command = match kind.to_ascii_uppercase().as_str() {
        "NONE" if words.trim().is_empty() && flags.is_empty() => None,
        "NONE" => return Err("HEALTHCHECK NONE takes no arguments".to_owned()),
        "CMD" if !words.trim().is_empty() => Some(command(words.trim())),
        "CMD" => return Err("HEALTHCHECK CMD: the command is missing".to_owned()),
        _ => return Err(format!("HEALTHCHECK {kind}: use CMD or NONE")),
    };
    Ok(Healthcheck {
        command,
        interval: time("interval")?,
        timeout: time("timeout")?,
        start_period: time("start-period")?,
        start_interval: time("start-interval")?,
        retries,
    })
}

/// A time as Go writes it, in nanoseconds.
fn duration(text: &str) -> Option<i64> {
    const UNITS: [(&str, f64); 7] =
        [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 6e10), ("h", 3.6e12)];
    if text == "0" {
        return Some(0);
    }
    let (mut rest, mut sum) = (text, 0.0);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let (_, unit) = UNITS.iter().find(|(unit, _)| *unit == &rest[..end])?;
        sum += number * unit;
        rest = &rest[end..];
    }
    (!text.is_empty() && sum < i64::MAX as f64).then_some(sum as i64)
}

fn onbuild(rest: &str) -> Result<Kind, String> {
    let word = rest.split_whitespace().next().unwrap_or_default().to_ascii_uppercase();
    if ["ONBUILD", "FROM", "MAINTAINER"].contains(&word.as_str()) {
        return Err(format!("ONBUILD {word} is not allowed"));
    }
    // Its heredocs stay with the line; the words are read again when they are run.
    let first = lines::Line { number: 1, text: rest.to_owned(), heredocs: Vec::new() };
    instruction(first, '\\')?;
    Ok(Kind::Onbuild(rest.to_owned()))
}

/// True for a word that is a whole heredoc mark, such as `<<EOF`.
pub fn is_heredoc(word: &str) -> bool {
    heredoc::mark(word).is_some()
}

/// What the fuzz target calls: no file makes the parser panic, and what it read is what it reads again.
pub fn fuzz(bytes: &[u8]) {
    let value = |name: &str| (name.len() < 3).then(|| "a b/c".to_owned());
    if let Ok(file) = Dockerfile::parse(bytes) {
        for instruction in &file.instructions {
            let _ = words::expand(&instruction.text, file.escape, &value);
            let _ = words::expand_words(&instruction.text, file.escape, &value);
            for mount in instruction.values("mount") {
                let _ = Mount::parse(mount, &|text| words::expand(text, file.escape, &value));
            }
        }
    }
    let text = String::from_utf8_lossy(bytes);
    if let Ok(chmod) = Chmod::parse(&text) {
        assert!(chmod.apply(0o644, true) <= 0o7777);
    }
    if let Ok(ignore) = ignore::Ignore::new(&text) {
        let _ = ignore.excludes("a/b/c.txt");
    }
    if let Ok(include) = include::Include::new(&ignore::clean(&text)) {
        let _ = include.takes("a/b/c.txt") || include.leads_through("a/b");
    }
}

/// The example of the README works.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Kind {
        parse_instruction(text).unwrap().kind
    }

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn each_instruction() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let shell = |text: &str| Command::Shell(text.to_owned());
        assert_eq!(kind("from a:$T As B.c"), Kind::From { image: "a:$T".into(), name: Some("b.c".into()) });
        assert_eq!(
            kind("ARG a b= c='d e'"),
            Kind::Arg(vec![
                ("a".into(), None),
                ("b".into(), Some("".into())),
                ("c".into(), Some("'d e'".into()))
            ])
        );
        assert_eq!(kind(r#"ENV a="b c" d=e\ f"#), Kind::Env(vec![pair("a", r#""b c""#), pair("d", r"e\ f")]));
        assert_eq!(kind("ENV a  b c=d  e"), Kind::Env(vec![pair("a", "b c=d  e")]));
        assert_eq!(kind("LABEL a.b=c"), Kind::Label(vec![pair("a.b", "c")]));
        assert_eq!(kind("RUN [\"a\", \"b c\"]"), Kind::Run(Command::Exec(strings(&["a", "b c"]))));
        assert_eq!(kind("RUN ['a']"), Kind::Run(shell("['a']")));
        assert_eq!(kind("RUN [\"a\",]"), Kind::Run(shell("[\"a\",]")));
        assert_eq!(kind("COPY a b /c/"), Kind::Copy(strings(&["a", "b", "/c/"])));
        assert_eq!(kind("COPY a << 'b c' <<d /e/\nx\nb c\nd"), Kind::Copy(strings(&["a", "/e/"])));
        assert_eq!(kind("ADD [\"a b\", \"c\"]"), Kind::Add(strings(&["a b", "c"])));
        assert_eq!(kind("VOLUME /a /b"), Kind::Volume(strings(&["/a", "/b"])));
        assert_eq!(kind("EXPOSE 80 $P/udp"), Kind::Expose("80 $P/udp".into()));
        assert_eq!(kind("WORKDIR /a b"), Kind::Workdir("/a b".into()));
        assert_eq!(kind("SHELL [\"/bin/bash\",\"-c\"]"), Kind::Shell(strings(&["/bin/bash", "-c"])));
        assert_eq!(kind("CMD a b"), Kind::Cmd(shell("a b")));
        assert_eq!(kind("ENTRYPOINT []"), Kind::Entrypoint(Command::Exec(Vec::new())));
        assert_eq!(kind("ONBUILD COPY . /src"), Kind::Onbuild("COPY . /src".into()));
        let Kind::Healthcheck(check) =
            kind("HEALTHCHECK --interval=1m30s --timeout=0.5s --retries=3 CMD curl x")
        else {
            panic!()
        };
        assert_eq!(
            (check.interval, check.timeout, check.retries),
            (Some(90_000_000_000), Some(500_000_000), Some(3))
        );
        assert_eq!(check.command, Some(shell("curl x")));
    }

    #[test]
    fn flags_come_first() {
        let read =
            parse_instruction("COPY --chown=a:b --link --exclude='x y' --exclude=z a --from=b c").unwrap();
        assert_eq!(
            (read.flag("chown"), read.flag("link"), read.flag("from")),
            (Some("a:b"), Some("true"), None)
        );
        assert_eq!(read.values("exclude").collect::<Vec<_>>(), ["x y", "z"]);
        assert_eq!(read.kind, Kind::Copy(strings(&["a", "--from=b", "c"])));
    }

    #[test]
    fn what_is_no_file() {
        for (file, line) in [
            ("", 1),
            ("# only\n", 1),
            ("ARG a\n", 1),
            ("ARG a\nRUN x\nFROM a", 2),
            ("FROM a\nFOO b", 2),
            ("FROM a\nRUN", 2),
            ("FROM a\nCOPY --x=y a b", 2),
            ("FROM a\nCOPY a", 2),
            ("FROM a b", 1),
            ("FROM a as 1b", 1),
            ("FROM a\nENV a", 2),
            ("FROM a\nENV a=b c", 2),
            ("FROM a\nENV =b", 2),
            ("FROM a\nARG =b", 2),
            ("FROM a\nSHELL /bin/sh", 2),
            ("FROM a\nHEALTHCHECK foo", 2),
            ("FROM a\nHEALTHCHECK --interval=x CMD a", 2),
            ("FROM a\n\nONBUILD ONBUILD RUN x", 3),
            ("FROM a\nONBUILD FROM x", 2),
            ("FROM a\nRUN <<E\nx", 2),
            ("FROM a\nCOPY b <<E\nE", 2),
        ] {
            assert_eq!(Dockerfile::parse(file.as_bytes()).map_err(|e| e.line), Err(line), "{file:?}");
        }
    }

    #[test]
    fn the_fuzz_target_runs() {
        fuzz(b"FROM a\nRUN --mount=type=cache,target=/x <<E\n$a\nE\nCOPY a b\n");
        fuzz(&[0xff; 100]);
    }
}
