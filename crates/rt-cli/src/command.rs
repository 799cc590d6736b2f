//! What a command is, and a program of several.

use crate::flag::Flag;
use crate::parse::Call;
use ::log::LevelFilter;
use rt_sys::error::Result;
use rt_sys::log;
use std::ops::RangeInclusive;

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
    about: "",
    examples: &[],
    hidden: false,
    failure: 1,
    run: |_| Ok(0),
};

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
