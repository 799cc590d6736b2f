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
    /// What the user types.
    pub name: &'static str,
    /// One line, no dot.
    pub summary: &'static str,
    /// The operands of each of its forms.
    pub usage: &'static [&'static str],
    /// How many operands it takes: at least and at most.
    pub operands: RangeInclusive<usize>,
    /// What stands behind the operands.
    pub rest: Rest,
    /// The flags, in the order of help.
    pub flags: &'static [&'static Flag],
    /// Paragraphs for `--help` and the man page.
    pub about: &'static str,
    /// `(what for, command line)` each.
    pub examples: &'static [(&'static str, &'static str)],
    /// Not shown.
    pub hidden: bool,
    /// The exit code of an error that is not the user's program's.
    pub failure: u8,
    /// What does it. The result is the exit code.
    pub run: fn(&Call<'_>) -> Result<u8>,
}

/// What a command does with words behind its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// There are none.
    None,
    /// Everything behind the last required operand, untouched: another program's command line.
    Verbatim,
    /// Everything behind `--`, untouched.
    AfterDashes,
}

/// What most commands are: one id, flags anywhere.
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
    /// The form of log lines, where no flag says.
    pub log_format: log::Format,
    /// What is logged, where no flag says.
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
