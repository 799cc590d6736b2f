//! Reads a command line by the table in [`args`](super::args).
//!
//! Flags are `--long V`, `--long=V`, `-s V`, `-sV`, `-abc`, and, as Go's flag package has them,
//! `-long V` and `-long=V`. A switch takes `=true` and `=false`. The last occurrence wins. Values
//! are never copied and need not be UTF-8.

use super::args::{Command, Flag, GLOBALS, HELP, Rest, VERSION, command};
use crate::bail;
use crate::error::Result;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The flags that were given, in order.
#[derive(Debug, Default)]
pub struct Flags<'a>(Vec<(&'static Flag, &'a OsStr)>);

/// A command line that means something.
#[derive(Debug)]
pub struct Call<'a> {
    pub globals: Flags<'a>,
    pub flags: Flags<'a>,
    /// The command's operands, as many as the table says.
    pub operands: Vec<&'a OsStr>,
    /// What stands behind the operands; see [`Rest`].
    pub rest: &'a [OsString],
}

/// What the words before the command ask for.
#[derive(Debug)]
pub enum Request<'a> {
    /// Run this command on these words.
    Command(&'static Command, &'a [OsString]),
    /// `--help`, `help`, or `help COMMAND`.
    Help(Option<&'static Command>),
    /// `--version`.
    Version,
    /// There is no command.
    Nothing,
}

/// Reads the global flags and the command's name. The flags that were understood are kept also
/// where there is an error, which is to be logged as they say.
pub fn globals<'a>(words: &'a [OsString], flags: &mut Flags<'a>) -> Result<Request<'a>> {
    let mut words = words;
    while let Some(len) = flags.take(GLOBALS, words)? {
        words = &words[len..];
    }
    if flags.switch(&VERSION) == Some(true) {
        return Ok(Request::Version);
    }
    if flags.switch(&HELP) == Some(true) {
        return Ok(Request::Help(None));
    }
    let Some((name, rest)) = words.split_first() else { return Ok(Request::Nothing) };
    let find = |name: &OsStr| match name.to_str().and_then(command) {
        Some(command) => Ok(command),
        None => bail!("unknown command {name:?} (rt --help lists them)"),
    };
    match name.to_str() {
        Some("help") => Ok(Request::Help(rest.first().map(|name| find(name)).transpose()?)),
        _ => Ok(Request::Command(find(name)?, rest)),
    }
}

/// Reads the words behind the command's name. `None` is a request for help.
pub fn call<'a>(
    command: &'static Command,
    globals: Flags<'a>,
    words: &'a [OsString],
) -> Result<Option<Call<'a>>> {
    let mut call = Call { globals, flags: Flags::default(), operands: Vec::new(), rest: &[] };
    let (least, most) = command.operands;
    let mut words = words;
    let mut dashes = false;
    loop {
        if command.rest == Rest::Verbatim && call.operands.len() == most {
            // `exec ID -- sh` reads as `exec ID sh`.
            call.rest = words.strip_prefix(&[OsString::from("--")]).unwrap_or(words);
            break;
        }
        let Some((word, behind)) = words.split_first() else { break };
        if dashes {
            call.operands.push(word);
            words = behind;
        } else if word == "--" {
            words = behind;
            if command.rest == Rest::AfterDashes {
                call.rest = words;
                break;
            }
            dashes = true;
        } else if let Some(len) = call.flags.take(command.flags, words)? {
            words = &words[len..];
        } else {
            call.operands.push(word);
            words = behind;
        }
    }
    if call.flags.switch(&HELP) == Some(true) {
        return Ok(None);
    }
    let usage = || {
        let forms: Vec<_> = command.usage.iter().map(|form| format!("rt {} {form}", command.name)).collect();
        forms.join(", or ").trim_end().to_owned()
    };
    if call.operands.len() < least {
        bail!("an operand is missing: {}", usage());
    }
    if let Some(extra) = call.operands.get(most) {
        let hint =
            if command.rest == Rest::AfterDashes { "; the program's arguments stand behind --" } else { "" };
        bail!("one operand too many, {extra:?}: {}{hint}", usage());
    }
    Ok(Some(call))
}

impl<'a> Flags<'a> {
    /// Takes one word with flags from the front of `words`, with the value that the last of them
    /// may have in the next word, and returns how many words that was; `None` where there is no
    /// flag.
    fn take(&mut self, known: &[&'static Flag], words: &'a [OsString]) -> Result<Option<usize>> {
        let Some(word) = words.first() else { return Ok(None) };
        let Some(name) = word.as_bytes().strip_prefix(b"-").filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let (name, double) = match name.strip_prefix(b"-") {
            Some(b"") => return Ok(None),
            Some(name) => (name, true),
            None => (name, false),
        };
        let next = words.get(1).map(OsString::as_os_str);
        let end = name.iter().position(|&b| b == b'=').unwrap_or(name.len());
        let attached = name.get(end + 1..).map(OsStr::from_bytes);
        if let Some(flag) = long(known, &name[..end]) {
            return self.push(flag, word, attached, next).map(Some);
        }
        if double {
            return unknown(word);
        }
        // A row of short switches, the last of which may be a flag with a value.
        for (i, &byte) in name.iter().enumerate() {
            let Some(flag) = short(known, byte) else { return unknown(word) };
            let rest = &name[i + 1..];
            let attached = match (flag.value, rest) {
                (_, []) => None,
                (_, [b'=', value @ ..]) | (Some(_), value) => Some(OsStr::from_bytes(value)),
                (None, _) => {
                    self.0.push((flag, OsStr::new("true")));
                    continue;
                }
            };
            return self.push(flag, word, attached, next).map(Some);
        }
        unknown(word)
    }

    /// Notes `flag` and returns how many words it took.
    fn push(
        &mut self,
        flag: &'static Flag,
        word: &OsStr,
        attached: Option<&'a OsStr>,
        next: Option<&'a OsStr>,
    ) -> Result<usize> {
        let (value, len) = match (flag.value, attached, next) {
            (_, Some(value), _) => (value, 1),
            (None, None, _) => (OsStr::new("true"), 1),
            (Some(_), None, Some(value)) => (value, 2),
            (Some(metavar), None, None) => bail!("flag {word:?} stands without its value {metavar}"),
        };
        if flag.value.is_none() && go_bool(value).is_none() {
            bail!("flag {word:?} is true or false");
        }
        self.0.push((flag, value));
        Ok(len)
    }

    /// The value of the last `flag`.
    pub fn value(&self, flag: &Flag) -> Option<&'a OsStr> {
        self.values(flag).last()
    }

    /// The values of every `flag`, in order.
    pub fn values<'f>(&'f self, flag: &'f Flag) -> impl Iterator<Item = &'a OsStr> + 'f {
        self.0.iter().filter(move |(given, _)| std::ptr::eq(*given, flag)).map(|(_, value)| *value)
    }

    /// What the last `flag`, a switch, says.
    pub fn switch(&self, flag: &Flag) -> Option<bool> {
        self.value(flag).and_then(go_bool)
    }

    /// True where the switch `flag` is set.
    pub fn has(&self, flag: &Flag) -> bool {
        self.switch(flag) == Some(true)
    }

    /// The value of the last `flag` as a path. Empty counts as absent, as with runc.
    pub fn path(&self, flag: &Flag) -> Option<PathBuf> {
        self.value(flag).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// The values of every `flag` as paths; an empty one is none.
    pub fn paths(&self, flag: &Flag) -> Vec<PathBuf> {
        self.values(flag).filter(|value| !value.is_empty()).map(PathBuf::from).collect()
    }

    /// The value of the last `flag` as text.
    pub fn text(&self, flag: &Flag) -> Result<Option<&'a str>> {
        self.value(flag).map(|value| text(flag.long, value)).transpose()
    }

    /// The values of every `flag` as text.
    pub fn texts(&self, flag: &Flag) -> Result<Vec<String>> {
        self.values(flag).map(|value| text(flag.long, value).map(str::to_owned)).collect()
    }

    /// The value of the last `flag` as a number that is not negative; 0 where there is none.
    pub fn number(&self, flag: &Flag) -> Result<u32> {
        match self.text(flag)? {
            Some(text) => {
                text.parse().or_else(|_| bail!("--{}: {text:?} is not a number from 0 up", flag.long))
            }
            None => Ok(0),
        }
    }

    /// The same as [`Flags::number`]; `None` where there is none.
    pub fn given_number(&self, flag: &Flag) -> Result<Option<u32>> {
        self.value(flag).map(|_| self.number(flag)).transpose()
    }

    /// Every flag that was given, with its value.
    pub fn iter(&self) -> impl Iterator<Item = &(&'static Flag, &'a OsStr)> {
        self.0.iter()
    }
}

impl<'a> Call<'a> {
    /// The first operand, which the commands of one container call ID.
    pub fn id(&self) -> Result<&'a str> {
        self.operand(0, "the id")
    }

    /// Operand `n`, which the table says must be there; an error calls it `what`.
    pub fn operand(&self, n: usize, what: &str) -> Result<&'a str> {
        text(what, self.operands[n])
    }

    /// The words behind the operands as text.
    pub fn rest(&self) -> Result<Vec<String>> {
        self.rest.iter().map(|word| text("an argument", word).map(str::to_owned)).collect()
    }
}

/// JSON, in which all of this ends, cannot hold anything else.
fn text<'a>(what: &str, value: &'a OsStr) -> Result<&'a str> {
    match value.to_str() {
        Some(text) => Ok(text),
        None => bail!("{what}: {value:?} is not UTF-8"),
    }
}

fn long(known: &[&'static Flag], name: &[u8]) -> Option<&'static Flag> {
    let is = |flag: &Flag| flag.long.as_bytes() == name || flag.alias.is_some_and(|a| a.as_bytes() == name);
    known.iter().chain(&[&HELP]).find(|flag| is(flag)).copied()
}

fn short(known: &[&'static Flag], byte: u8) -> Option<&'static Flag> {
    known.iter().chain(&[&HELP]).find(|flag| flag.short == Some(char::from(byte))).copied()
}

fn unknown<T>(word: &OsStr) -> Result<T> {
    let bytes = word.as_bytes();
    let name = bytes.strip_prefix(b"--").unwrap_or(&bytes[1..]);
    let end = name.iter().position(|&b| b == b'=').unwrap_or(name.len());
    match long(GLOBALS, &name[..end]) {
        Some(_) => bail!("flag {word:?} stands before the command"),
        None => bail!("unknown flag {word:?}"),
    }
}

/// The words that Go's flag package takes for a switch.
fn go_bool(value: &OsStr) -> Option<bool> {
    match value.as_bytes() {
        b"1" | b"t" | b"T" | b"true" | b"TRUE" | b"True" => Some(true),
        b"0" | b"f" | b"F" | b"false" | b"FALSE" | b"False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::*;
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    /// Parses `line`, split at blanks, and prints it: the command, its flags, operands and rest.
    /// Global flags come first.
    fn parse(line: &str) -> Result<String> {
        let words: Vec<OsString> = line.split(' ').filter(|w| !w.is_empty()).map(OsString::from).collect();
        let mut flags = Flags::default();
        let (command, words) = match globals(&words, &mut flags)? {
            Request::Command(command, words) => (command, words),
            other => return Ok(format!("{other:?}")),
        };
        let Some(call) = call(command, flags, words)? else { return Ok(format!("help {}", command.name)) };
        let mut out = String::new();
        let print = |out: &mut String, flags: &Flags| {
            for (flag, value) in flags.iter() {
                *out += &format!("{}={} ", flag.long, value.to_str().unwrap());
            }
        };
        print(&mut out, &call.globals);
        out += &format!("{}: ", command.name);
        print(&mut out, &call.flags);
        out += &format!("{:?} {:?}", call.operands, call.rest);
        Ok(out)
    }

    #[test]
    fn real_callers() {
        // Every command line of the table "The contract in one page" of the clients' survey.
        for (line, read) in [
            // podman through conmon
            (
                "--log-format=json --log /l --cgroup-manager disabled create --bundle /b --pid-file /p --no-pivot \
                 --no-new-keyring --preserve-fds 2 --console-socket /s c1",
                r#"log-format=json log=/l cgroup-manager=disabled create: bundle=/b pid-file=/p no-pivot=true no-new-keyring=true preserve-fds=2 console-socket=/s ["c1"] []"#,
            ),
            ("create --bundle /b --pid-file /p c1", r#"create: bundle=/b pid-file=/p ["c1"] []"#),
            // conmon exec, before and since 2.2.1
            (
                "--log /l --log-format=json exec --pid-file /p --process /f --detach --tty --preserve-fds 1 \
                 --console-socket /s c1",
                r#"log=/l log-format=json exec: pid-file=/p process=/f detach=true tty=true preserve-fds=1 console-socket=/s ["c1"] []"#,
            ),
            (
                "exec --pid-file /p --process /f --detach c1",
                r#"exec: pid-file=/p process=/f detach=true ["c1"] []"#,
            ),
            // podman
            ("start c1", r#"start: ["c1"] []"#),
            ("kill c1 15", r#"kill: ["c1", "15"] []"#),
            ("kill --all c1 9", r#"kill: all=true ["c1", "9"] []"#),
            ("delete --force c1", r#"delete: force=true ["c1"] []"#),
            ("pause c1", r#"pause: ["c1"] []"#),
            ("resume c1", r#"resume: ["c1"] []"#),
            ("state c1", r#"state: ["c1"] []"#),
            ("update --resources=/f c1", r#"update: resources=/f ["c1"] []"#),
            ("--version", "Version"),
            (
                "--debug --cgroup-manager=cgroupfs state c1",
                r#"debug=true cgroup-manager=cgroupfs state: ["c1"] []"#,
            ),
            ("--systemd-cgroup create -b /b c1", r#"systemd-cgroup=true create: bundle=/b ["c1"] []"#),
            // buildah
            (
                "create --bundle /b --pid-file /p --no-pivot --no-new-keyring --console-socket /s c1",
                r#"create: bundle=/b pid-file=/p no-pivot=true no-new-keyring=true console-socket=/s ["c1"] []"#,
            ),
            ("kill c1", r#"kill: ["c1"] []"#),
            ("kill c1 SIGKILL", r#"kill: ["c1", "SIGKILL"] []"#),
            ("delete c1", r#"delete: ["c1"] []"#),
            // containerd's shim, docker, nerdctl
            (
                "--root /r/ns --log /b/log.json --log-format json --systemd-cgroup create --bundle /b \
                 --pid-file /b/init.pid --console-socket /s --no-pivot --no-new-keyring c1",
                r#"root=/r/ns log=/b/log.json log-format=json systemd-cgroup=true create: bundle=/b pid-file=/b/init.pid console-socket=/s no-pivot=true no-new-keyring=true ["c1"] []"#,
            ),
            (
                "--root /r exec --process /f --console-socket /s --detach --pid-file /p c1",
                r#"root=/r exec: process=/f console-socket=/s detach=true pid-file=/p ["c1"] []"#,
            ),
            ("ps --format json c1", r#"ps: format=json ["c1"] []"#),
            ("update --resources - c1", r#"update: resources=- ["c1"] []"#),
            ("update --resources=- c1", r#"update: resources=- ["c1"] []"#),
            ("features", "features: [] []"),
            (
                "create --pidfd-socket /s -no-subreaper c1",
                r#"create: pidfd-socket=/s no-subreaper=true ["c1"] []"#,
            ),
            // CRI-O
            ("--root=/r --systemd-cgroup state c1", r#"root=/r systemd-cgroup=true state: ["c1"] []"#),
            ("kill c1 KILL", r#"kill: ["c1", "KILL"] []"#),
            ("--root /r exec --process /f c1", r#"root=/r exec: process=/f ["c1"] []"#),
            // conmon-rs repeats its global options
            (
                "--root=/r --root=/r --systemd-cgroup --systemd-cgroup create --bundle /b --pid-file /p \
                 --console-socket=/s c1",
                r#"root=/r root=/r systemd-cgroup=true systemd-cgroup=true create: bundle=/b pid-file=/p console-socket=/s ["c1"] []"#,
            ),
            (
                "exec -d --console-socket=/s --tty --pid-file=/p c1 sh -c true",
                r#"exec: detach=true console-socket=/s tty=true pid-file=/p ["c1"] ["sh", "-c", "true"]"#,
            ),
            // Slurm's oci.conf
            ("run --bundle /b n.u.1.0.0", r#"run: bundle=/b ["n.u.1.0.0"] []"#),
        ] {
            assert_eq!(parse(line).unwrap(), read, "{line}");
        }
    }

    #[test]
    fn every_way_to_write_a_flag() {
        for (line, read) in [
            ("run -b /b c1", r#"run: bundle=/b ["c1"] []"#),
            ("run -b/b c1", r#"run: bundle=/b ["c1"] []"#),
            ("run -b=/b c1", r#"run: bundle=/b ["c1"] []"#),
            ("run -bundle /b c1", r#"run: bundle=/b ["c1"] []"#),
            ("run -bundle=/b c1", r#"run: bundle=/b ["c1"] []"#),
            ("-root /r run c1 -b /b", r#"root=/r run: bundle=/b ["c1"] []"#),
            ("run -it c1", r#"run: interactive=true tty=true ["c1"] []"#),
            ("run -itb /b c1", r#"run: interactive=true tty=true bundle=/b ["c1"] []"#),
            ("run -itb/b c1", r#"run: interactive=true tty=true bundle=/b ["c1"] []"#),
            ("run --tty=false -t=true c1", r#"run: tty=false tty=true ["c1"] []"#),
            ("run --env A=1 -eB=2 -e C c1", r#"run: env=A=1 env=B=2 env=C ["c1"] []"#),
            ("run --env=A=1 c1", r#"run: env=A=1 ["c1"] []"#),
            ("run --workdir /w c1", r#"run: cwd=/w ["c1"] []"#),
            ("run --bundle= c1", r#"run: bundle= ["c1"] []"#),
            ("run ./b -- sh -c true --", r#"run: ["./b"] ["sh", "-c", "true", "--"]"#),
            ("run ./b -t -- sh", r#"run: tty=true ["./b"] ["sh"]"#),
            ("kill c1 -a", r#"kill: all=true ["c1"] []"#),
            ("kill c1 9 -a", r#"kill: all=true ["c1", "9"] []"#),
            ("kill -- c1 -a", r#"kill: ["c1", "-a"] []"#),
            ("exec c1 echo -l --zz", r#"exec: ["c1"] ["echo", "-l", "--zz"]"#),
            ("exec c1 -- -x --", r#"exec: ["c1"] ["-x", "--"]"#),
            ("exec -- c1 -x", r#"exec: ["c1"] ["-x"]"#),
            ("ps c1 -aux", r#"ps: ["c1"] ["-aux"]"#),
            ("ps -f json c1", r#"ps: format=json ["c1"] []"#),
            ("list -qf json", "list: quiet=true format=json [] []"),
            ("pull --help x", "help pull"),
            ("pull -q x y", r#"pull: quiet=true ["x", "y"] []"#),
            ("state -", r#"state: ["-"] []"#),
            ("kill --help", "help kill"),
            ("run c1 -h", "help run"),
            ("-h", "Help(None)"),
            ("--debug --help=false", "Nothing"),
            ("-v", "Version"),
            ("", "Nothing"),
        ] {
            assert_eq!(parse(line).unwrap(), read, "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, error) in [
            ("checkpoint --help", r#"unknown command "checkpoint" (rt --help lists them)"#),
            ("help restore", r#"unknown command "restore" (rt --help lists them)"#),
            ("--foo state c1", r#"unknown flag "--foo""#),
            ("state --foo=1 c1", r#"unknown flag "--foo=1""#),
            ("state -x c1", r#"unknown flag "-x""#),
            ("run -itx c1", r#"unknown flag "-itx""#),
            ("state --root /r c1", r#"flag "--root" stands before the command"#),
            ("state -root=/r c1", r#"flag "-root=/r" stands before the command"#),
            ("--root", r#"flag "--root" stands without its value DIR"#),
            ("run c1 -b", r#"flag "-b" stands without its value DIR"#),
            ("delete --force=maybe c1", r#"flag "--force=maybe" is true or false"#),
            ("state", "an operand is missing: rt state ID"),
            (
                "run",
                "an operand is missing: rt run BUNDLE [-- ARGS...], or rt run [-b BUNDLE] ID [-- ARGS...]",
            ),
            ("state c1 c2", r#"one operand too many, "c2": rt state ID"#),
            ("list c1", r#"one operand too many, "c1": rt list"#),
        ] {
            assert_eq!(parse(line).unwrap_err().to_string(), error, "{line}");
        }
        let text = parse("run ./b ls").unwrap_err().to_string();
        assert!(text.ends_with("; the program's arguments stand behind --"), "{text}");
    }

    #[test]
    fn the_last_one_wins_and_bytes_survive() {
        let path = OsString::from_vec(b"/b\xff".to_vec());
        let mut long = OsString::from("--pid-file=");
        long.push(&path);
        let words =
            ["--bundle", "/a", "-b"].map(OsString::from).into_iter().chain([path.clone(), long, "c1".into()]);
        let words: Vec<OsString> = words.collect();
        let call = call(command("create").unwrap(), Flags::default(), &words).unwrap().unwrap();
        assert_eq!(call.flags.path(&BUNDLE), Some(path.clone().into()));
        assert_eq!(call.flags.path(&PID_FILE), Some(path.into()));
        assert_eq!(call.flags.number(&PRESERVE_FDS).unwrap(), 0);
        assert!(call.flags.text(&PID_FILE).unwrap_err().to_string().contains("not UTF-8"));
    }

    #[test]
    fn a_call_costs_next_to_nothing() {
        let line =
            "--root /r/ns --log /b/log.json --log-format json create --bundle /b --pid-file /b/init.pid c1";
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let best = (0..200)
            .map(|_| {
                let start = std::time::Instant::now();
                let mut flags = Flags::default();
                let Ok(Request::Command(command, rest)) = globals(&words, &mut flags) else { panic!() };
                assert!(call(command, flags, rest).unwrap().is_some());
                start.elapsed()
            })
            .min();
        assert!(best.unwrap().as_micros() < 15, "{best:?}");
    }
}
