//! What a command is, and a program of several.

use crate::flag::Flag;
use crate::parse::Call;
use crate::wrong;
use ::log::LevelFilter;
use rt_sys::error::Result;
use rt_sys::log;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;

/// A command.
#[derive(Debug)]
pub struct Command {
    /// The word that the user types.
    pub name: &'static str,
    /// One line for lists of commands, without a dot.
    pub summary: &'static str,
    /// The operands of each form, as help shows them.
    pub usage: &'static [&'static str],
    /// How many operands it takes: at least and at most.
    pub operands: RangeInclusive<usize>,
    /// What may follow the operands.
    pub rest: Rest,
    /// The flags, in the order in which help shows them.
    pub flags: &'static [&'static Flag],
    /// Commands of which the first operand names one, as `run` in `rt slurm run`: each has its own flags, operands and way to run.
    /// Their names have that of this one in front.
    pub forms: &'static [Command],
    /// Paragraphs for `--help` and the man page.
    pub about: &'static str,
    /// Examples: what each is for, and the command line.
    pub examples: &'static [(&'static str, &'static str)],
    /// The command is shown neither in help nor in man pages and completions.
    pub hidden: bool,
    /// The exit code of rt's own errors, which differs from the exit codes of the user's program where possible.
    pub failure: u8,
    /// Executes the command. The result is the exit code.
    pub run: fn(&Call<'_>) -> Result<u8>,
}

/// What a command does with the words behind its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// There are none.
    None,
    /// Everything behind the last required operand, untouched: another program's command line.
    Verbatim,
    /// Everything behind `--`, untouched.
    AfterDashes,
}

/// The defaults of commands, which most of them keep: one id, and flags anywhere.
pub const ONE_ID: Command = Command {
    name: "",
    summary: "",
    usage: &["ID"],
    operands: 1..=1,
    rest: Rest::None,
    flags: &[],
    forms: &[],
    about: "",
    examples: &[],
    hidden: false,
    failure: 1,
    run: |_| Ok(0),
};

impl Command {
    /// The last word of the name, which tells a form from the others.
    pub fn word(&self) -> &'static str {
        self.name.rsplit(' ').next().unwrap_or(self.name)
    }

    /// The form that `words` begin with, and what stands behind its name. A command without forms is its own, and so is one of
    /// which no form is named yet: its parser says what is missing.
    ///
    /// # Errors
    /// A word that names no form.
    pub fn form<'a>(&'static self, words: &'a [OsString]) -> Result<(&'static Self, &'a [OsString])> {
        let Some((word, behind)) = words.split_first().filter(|_| !self.forms.is_empty()) else {
            return Ok((self, words));
        };
        if word.as_bytes().starts_with(b"-") {
            return Ok((self, words));
        }
        let form = self.forms.iter().find(|form| *word == form.word());
        form.map(|form| (form, behind)).ok_or_else(|| {
            let listed = format!("rt {} --help lists what there is", self.name);
            wrong::unknown_command(word, None, self.forms.iter().map(Self::word), &listed)
        })
    }

    /// The command itself, or the forms that it has instead.
    pub fn callable(&'static self) -> impl Iterator<Item = &'static Self> {
        let own = self.forms.is_empty().then_some(self);
        own.into_iter().chain(self.forms)
    }

    /// The flags of the command and of its forms, each once.
    pub fn all_flags(&'static self) -> impl Iterator<Item = &'static Flag> {
        let mut seen = Vec::new();
        self.callable().flat_map(|command| command.flags).copied().filter(move |flag| {
            let new = !seen.contains(&flag.long);
            seen.push(flag.long);
            new
        })
    }
}

/// A program with this command line: `rt`, or `rt-pull`, which `rt` executes.
#[derive(Debug)]
pub struct Program {
    /// One line, no dot.
    pub summary: &'static str,
    /// The commands, those that people need first at the top.
    pub commands: &'static [Command],
    /// What `--version` prints.
    pub version: fn() -> String,
    /// The default format of the log.
    pub log_format: log::Format,
    /// The default level of the log.
    pub log_level: LevelFilter,
}

impl Program {
    /// The command of that name.
    pub fn command(&self, name: &str) -> Option<&'static Command> {
        self.commands.iter().find(|command| command.name == name)
    }

    /// The commands that help, man pages and completions show.
    pub fn shown(&self) -> impl Iterator<Item = &'static Command> {
        self.commands.iter().filter(|command| !command.hidden)
    }
}
