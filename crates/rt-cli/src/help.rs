//! The answers to `--help`.

use crate::command::{Command, Program};
use crate::flag::{Flag, GLOBALS, HELP};
use std::fmt::Write;

/// The answer to `rt --help`.
pub fn of_program(program: &Program) -> String {
    let mut text = format!("rt: {}\n\nUsage: rt [FLAGS] COMMAND [FLAGS] ...\n\nCommands:\n", program.summary);
    for command in program.shown() {
        let _ = writeln!(text, "  {:<12}{}", command.name, command.summary);
    }
    help_flags(&mut text, flags(None));
    text.push_str("\nMore about a command: rt COMMAND --help, or man rt-COMMAND.\n");
    text
}

/// The answer to `rt COMMAND --help`.
pub fn of_command(command: &'static Command) -> String {
    let mut text = format!("rt {}: {}\n\n", command.name, command.summary);
    for (i, (name, usage)) in usages(command).enumerate() {
        let label = if i == 0 { "Usage:" } else { "      " };
        let _ = writeln!(text, "{label} rt {name}{usage}");
    }
    if !command.about.is_empty() {
        let paragraphs = command.about.split("\n\n").map(|paragraph| wrapped(paragraph, 0));
        let _ = write!(text, "\n{}", paragraphs.collect::<Vec<_>>().join("\n"));
    }
    if command.forms.is_empty() {
        help_flags(&mut text, flags(Some(command)));
    }
    if !command.examples.is_empty() {
        text.push_str("\nExamples:\n");
    }
    for (what, line) in command.examples {
        let _ = writeln!(text, "  # {what}\n  {line}");
    }
    if !command.forms.is_empty() {
        let _ = writeln!(text, "\nMore about each: rt {} {} --help", command.name, command.forms[0].word());
    }
    text
}

fn help_flags(text: &mut String, flags: impl Iterator<Item = &'static Flag>) {
    for (i, flag) in flags.enumerate() {
        text.push_str(if i == 0 { "\nFlags:\n" } else { "" });
        let names = format!("  {}", names(flag));
        let help = wrapped(&format!("{}{}", flag.help, remark(flag)), 30);
        // A name that does not fit into its column gets a line of its own.
        if names.len() > 28 {
            let _ = write!(text, "{names}\n{help}");
        } else {
            let _ = write!(text, "{names:<30}{}", &help[30..]);
        }
    }
}

/// `text` in lines of at most eighty columns, indented.
fn wrapped(text: &str, indent: usize) -> String {
    let margin = " ".repeat(indent);
    let (mut lines, mut line) = (String::new(), margin.clone());
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > 80 {
            lines = lines + &line + "\n";
            line.clone_from(&margin);
        }
        if line.len() > indent {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line + "\n"
}

/// The flags of a command and of its forms or, with none, the global ones, and then `--help`, which all have.
pub fn flags(of: Option<&'static Command>) -> impl Iterator<Item = &'static Flag> {
    let globals = if of.is_none() { GLOBALS } else { &[] };
    let all = globals.iter().copied().chain(of.into_iter().flat_map(Command::all_flags));
    all.filter(|flag| !flag.hidden).chain(of.map(|_| &HELP))
}

/// `-b, --bundle DIR`
fn names(flag: &Flag) -> String {
    let short = flag.short.map_or("    ".to_owned(), |short| format!("-{short}, "));
    let value = flag.value.map(|value| behind(flag, value)).unwrap_or_default();
    format!("{short}--{}{value}", flag.long)
}

/// How `value` stands behind the name of `flag`.
pub fn behind(flag: &Flag, value: &str) -> String {
    if flag.optional { format!("[={value}]") } else { format!(" {value}") }
}

/// What help adds to the text of a flag: that it may be repeated, or does nothing.
pub fn remark(flag: &Flag) -> &'static str {
    match flag {
        Flag { ignored: true, .. } => " (accepted; has no effect)",
        Flag { repeats: true, .. } => " (can be repeated)",
        _ => "",
    }
}

/// The usage lines of a command, or of its forms, without `rt`: the name, and what follows it.
pub fn usages(command: &'static Command) -> impl Iterator<Item = (&'static str, String)> {
    command.callable().flat_map(|command| {
        let flags = if command.flags.is_empty() { "" } else { " [FLAGS]" };
        let line = move |usage: &&str| (command.name, format!("{flags} {usage}").trim_end().to_owned());
        command.usage.iter().map(line)
    })
}
