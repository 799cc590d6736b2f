//! Reads a command line by a program's table of commands and flags.
//!
//! Flags are `--long V`, `--long=V`, `-s V`, `-sV`, `-abc`, and, as Go's flag package has them,
//! `-long V` and `-long=V`. A switch takes `=true` and `=false`. The last occurrence wins. Values
//! are never copied and need not be UTF-8.

use crate::command::{Command, Program, Rest};
use crate::flag::{Flag, GLOBALS, HELP, VERSION};
use crate::{habits, wrong};
use rt_sys::error::{Context, Error, Result};
use rt_sys::{bail, err};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The flags that were given, in order.
#[derive(Debug, Default)]
pub struct Flags<'a>(Vec<(&'static Flag, &'a OsStr)>);

/// A parsed command line.
#[derive(Debug)]
pub struct Call<'a> {
    /// The flags before the command.
    pub globals: Flags<'a>,
    /// The command's own flags.
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

/// Where on the command line a flag stands, which decides what flags there are.
#[derive(Clone, Copy)]
enum Place<'p> {
    BeforeCommand(&'p Program),
    Behind(&'static Command),
}

/// Reads the global flags and the command's name. The flags that were understood are kept also
/// where there is an error, because they say where errors are logged.
pub fn globals<'a>(program: &Program, words: &'a [OsString], flags: &mut Flags<'a>) -> Result<Request<'a>> {
    let mut words = words;
    while let Some(len) = flags.take(Place::BeforeCommand(program), words)? {
        words = &words[len..];
    }
    if flags.switch(&VERSION) == Some(true) {
        return Ok(Request::Version);
    }
    if flags.switch(&HELP) == Some(true) {
        return Ok(Request::Help(None));
    }
    let Some((name, rest)) = words.split_first() else { return Ok(Request::Nothing) };
    let find = |name: &OsStr| match name.to_str().and_then(|name| program.command(name)) {
        Some(command) => Ok(command),
        None => {
            let known = program.shown().map(|command| command.name);
            let habit = habits::of_command(name);
            Err(wrong::unknown_command(name, habit, known, "rt --help lists the commands"))
        }
    };
    match name.to_str() {
        Some("help") => Ok(Request::Help(rest.first().map(|name| find(name)).transpose()?)),
        _ => {
            let command = find(name)?;
            let (form, rest) = command.form(rest).context(|| command.name)?;
            Ok(Request::Command(form, rest))
        }
    }
}

/// Reads the words behind the command's name. `None` is a request for help.
pub fn call<'a>(
    command: &'static Command,
    globals: Flags<'a>,
    words: &'a [OsString],
) -> Result<Option<Call<'a>>> {
    let mut call = Call { globals, flags: Flags::default(), operands: Vec::new(), rest: &[] };
    let (least, most) = (*command.operands.start(), *command.operands.end());
    let mut words = words;
    let mut dashes = false;
    loop {
        if command.rest == Rest::Verbatim && call.operands.len() == most {
            // `exec ID -- sh` means `exec ID sh`.
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
        } else if let Some(len) = call.flags.take(Place::Behind(command), words)? {
            words = &words[len..];
        } else {
            call.operands.push(word);
            words = behind;
        }
    }
    if call.flags.switch(&HELP) == Some(true) {
        return Ok(None);
    }
    if call.operands.len() < least {
        return Err(missing_operand(command));
    }
    if let Some(extra) = call.operands.get(most) {
        let error = err!("extra operand {extra:?}; usage: {}", usage(command));
        return Err(match command.rest {
            Rest::AfterDashes => error.hint("the program's arguments come after --"),
            _ => hinted(error, command.name, habits::OPERAND_EXTRA),
        });
    }
    Ok(Some(call))
}

/// `error` with what people who know another program probably meant by `word` behind `command`.
/// The error for a command line that lacks an operand of `command`, where its flags ask for one more.
pub fn missing_operand(command: &Command) -> Error {
    let error = err!("missing operand; usage: {}", usage(command));
    hinted(error, command.name, habits::OPERAND_MISSING)
}

/// The forms of `command` in one line.
fn usage(command: &Command) -> String {
    let forms: Vec<_> = command.usage.iter().map(|form| format!("rt {} {form}", command.name)).collect();
    forms.join(", or ").trim_end().to_owned()
}

fn hinted(error: Error, command: &str, word: impl AsRef<OsStr>) -> Error {
    let habit = habits::of_word(command, word.as_ref());
    wrong::meant(&error, habit, || None).unwrap_or(error)
}

impl Place<'_> {
    /// The flags that there are, but for `--help`.
    fn flags(self) -> &'static [&'static Flag] {
        match self {
            Place::BeforeCommand(_) => GLOBALS,
            Place::Behind(command) => command.flags,
        }
    }

    /// The error for a flag that is none of these: typed as `typed`, and called `name` without its dashes.
    fn unknown(self, typed: &OsStr, name: &[u8]) -> Error {
        let is_flag_of = |flags: &[&'static Flag]| match name {
            [byte] => short(flags, *byte).is_some(),
            _ => long(flags, name).is_some(),
        };
        // Somebody who means another flag does not mean a global one.
        let is_meant =
            |command: &Command| matches!(habits::of_word(command.name, typed), Some(habits::Hint::Meant(_)));
        match self {
            Place::Behind(command) if is_flag_of(GLOBALS) && !is_meant(command) => {
                let error = err!("flag {} must come before the command", typed.display());
                return hinted(error, command.name, typed);
            }
            Place::BeforeCommand(program)
                if program.shown().flat_map(Command::callable).any(|command| is_flag_of(command.flags)) =>
            {
                return err!("flag {} must come after the command", typed.display());
            }
            _ => {}
        }
        let known: Vec<String> = self
            .flags()
            .iter()
            .filter(|flag| !flag.hidden)
            .chain(&[&HELP])
            .map(|flag| format!("--{}", flag.long))
            .collect();
        let habit = match self {
            Place::Behind(command) => habits::of_word(command.name, typed),
            Place::BeforeCommand(_) => None,
        };
        wrong::unknown_flag(typed, habit, known.iter().map(String::as_str))
    }
}

impl<'a> Flags<'a> {
    /// Takes one word with flags from the front of `words`, with the value that the last of them
    /// may have in the next word, and returns how many words that was; `None` where there is no
    /// flag.
    fn take(&mut self, place: Place<'_>, words: &'a [OsString]) -> Result<Option<usize>> {
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
        // As it was typed, without a value: for errors.
        let typed = OsStr::from_bytes(&word.as_bytes()[..word.len() - (name.len() - end)]);
        if let Some(flag) = long(place.flags(), &name[..end]) {
            return self.push(flag, typed, attached, next).map(Some);
        }
        if double {
            return Err(place.unknown(typed, &name[..end]));
        }
        // A row of short switches, the last of which may be a flag with a value.
        for (i, &byte) in name.iter().enumerate() {
            let Some(flag) = short(place.flags(), byte) else {
                return Err(match i {
                    0 => place.unknown(typed, &name[..end]),
                    _ => err!("unknown flag -{} in {}", byte.escape_ascii(), word.display()),
                });
            };
            let rest = &name[i + 1..];
            let attached = match (flag.value, rest) {
                (_, []) => None,
                (_, [b'=', value @ ..]) | (Some(_), value) => Some(OsStr::from_bytes(value)),
                (None, _) => {
                    self.0.push((flag, OsStr::new("true")));
                    continue;
                }
            };
            let typed = OsString::from(format!("-{}", char::from(byte)));
            return self.push(flag, &typed, attached, next).map(Some);
        }
        // `-=x` has no name.
        Err(place.unknown(typed, &[]))
    }

    /// Notes `flag`, which was typed so, and returns how many words it took.
    fn push(
        &mut self,
        flag: &'static Flag,
        typed: &OsStr,
        attached: Option<&'a OsStr>,
        next: Option<&'a OsStr>,
    ) -> Result<usize> {
        let (value, len) = match (flag.value, attached, next) {
            (_, Some(value), _) => (value, 1),
            (None, None, _) => (OsStr::new("true"), 1),
            (Some(_), None, _) if flag.optional => (OsStr::new("true"), 1),
            (Some(_), None, Some(value)) => (value, 2),
            (Some(_), None, None) => return Err(wrong::without_value(typed)),
        };
        if flag.value.is_none() && go_bool(value).is_none() {
            return Err(wrong::invalid_value(typed, value, "true or false"));
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

    /// True where `flag` is on the command line, whatever its value is.
    pub fn given(&self, flag: &Flag) -> bool {
        self.value(flag).is_some()
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

    /// The value of the last `flag` as a number; 0 where there is none.
    pub fn number(&self, flag: &Flag) -> Result<u32> {
        match self.text(flag)? {
            Some(text) => {
                let typed = format!("--{}", flag.long);
                let takes = "a number, 0 or more";
                text.parse().map_err(|_| wrong::invalid_value(typed.as_ref(), text.as_ref(), takes))
            }
            None => Ok(0),
        }
    }

    /// The value of the last `flag` as a number; `None` where there is none.
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

/// `value` as text: states and configs are JSON, which holds only UTF-8.
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

/// Bytes, with a suffix in powers of 1000.
pub fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match text[digits.len()..].to_ascii_uppercase().trim_end_matches('B') {
        "" => 1,
        "K" => 1000,
        "M" => 1000_u64.pow(2),
        "G" => 1000_u64.pow(3),
        "T" => 1000_u64.pow(4),
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
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
    use super::*;

    #[test]
    fn sizes() {
        let all = ["20G", "20gb", "7", "7B", "1K"].map(bytes);
        assert_eq!(all, [Some(20_000_000_000), Some(20_000_000_000), Some(7), Some(7), Some(1000)]);
        assert_eq!(["", "G", "20X", "-1", "99999999999T"].map(bytes), [None; 5]);
    }
}
