//! The man pages.

use crate::command::{Command, Program};
use crate::flag::Flag;
use crate::help::{flags, remark, usages};
use std::fmt::Write;

/// What the page of the program says besides its commands and flags. An empty line separates paragraphs.
#[derive(Debug)]
pub struct Texts {
    /// DESCRIPTION.
    pub description: &'static str,
    /// The sections behind the flags.
    pub sections: &'static [Section],
}

/// A section of the program's page.
#[derive(Debug)]
pub struct Section {
    /// Its head.
    pub title: &'static str,
    /// Its paragraphs.
    pub text: &'static str,
    /// The list below them.
    pub items: &'static [Item],
    /// Further entries of the list, which are made from a table: the keys of a file, and what each is for.
    pub rows: fn() -> Vec<(String, String)>,
}

/// An entry of a list: a variable, or a file.
#[derive(Debug)]
pub struct Item {
    /// What it is about.
    pub name: &'static str,
    /// What is said of it.
    pub text: &'static str,
}

/// `text` so that roff(7) prints it as it is.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    text.lines()
        .map(|line| if line.starts_with(['.', '\'']) { format!("\\&{line}\n") } else { format!("{line}\n") })
        .collect()
}

/// The same within a line.
fn inline(text: &str) -> String {
    roff(text).trim_end().to_owned()
}

fn paragraphs(text: &str) -> String {
    text.split("\n\n").map(|paragraph| format!(".PP\n{}", roff(paragraph))).collect()
}

fn man_head(name: &str, summary: &str) -> String {
    format!(
        ".TH {} 1 \"\" \"rt {}\" \"rt Manual\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n",
        inline(&name.to_uppercase()),
        crate::VERSION,
        inline(name),
        inline(summary)
    )
}

fn man_flags(title: &str, flags: impl Iterator<Item = &'static Flag>) -> String {
    let mut page = format!(".SH {title}\n");
    for flag in flags {
        let short = flag.short.map(|short| format!("\\fB\\-{short}\\fR, ")).unwrap_or_default();
        let alias = flag.alias.map(|alias| format!(", \\fB\\-\\-{}\\fR", inline(alias))).unwrap_or_default();
        let value = flag.value.map(|value| format!(" \\fI{}\\fR", inline(value))).unwrap_or_default();
        let help = inline(&format!("{}{}.", flag.help, remark(flag)));
        let _ = writeln!(page, ".TP\n{short}\\fB\\-\\-{}\\fR{alias}{value}\n{help}", inline(flag.long));
    }
    page
}

/// The page of a command.
pub fn of_command(command: &'static Command) -> String {
    let mut page = man_head(&format!("rt-{}", command.name), command.summary);
    for (i, usage) in usages(command).enumerate() {
        let gap = if i == 0 { "" } else { ".br\n" };
        let _ = writeln!(page, "{gap}\\fBrt {}\\fR {}", command.name, inline(&usage));
    }
    if !command.about.is_empty() {
        let _ = write!(page, ".SH DESCRIPTION\n{}", paragraphs(command.about));
    }
    page += &man_flags("FLAGS", flags(Some(command)));
    if !command.examples.is_empty() {
        page += ".SH EXAMPLES\n";
    }
    for (what, line) in command.examples {
        let _ = writeln!(page, ".TP\n{}:\n.nf\n{}\n.fi", inline(what), inline(line));
    }
    page += ".SH SEE ALSO\n\\fBrt\\fR(1)\n";
    page
}

/// rt(1): what all commands have in common.
pub fn of_program(program: &Program, texts: &Texts) -> String {
    let mut page = man_head("rt", program.summary);
    page += "\\fBrt\\fR [FLAGS] COMMAND [FLAGS] ...\n.SH DESCRIPTION\n";
    page += &paragraphs(texts.description);
    page += ".SH COMMANDS\n";
    for command in program.shown() {
        let _ = writeln!(page, ".TP\n\\fBrt\\-{}\\fR(1)\n{}.", command.name, inline(command.summary));
    }
    page += &man_flags("GLOBAL FLAGS", flags(None));
    page += &paragraphs(FLAG_RULES);
    for section in texts.sections {
        let _ = write!(page, ".SH {}\n{}", section.title, paragraphs(section.text));
        for item in section.items {
            let _ = write!(page, ".TP\n\\fB{}\\fR\n{}", inline(item.name), roff(item.text));
        }
        for (name, text) in (section.rows)() {
            let _ = write!(page, ".TP\n\\fB{}\\fR\n{}", inline(&name), roff(&text));
        }
    }
    let pages: Vec<_> = program.shown().map(|command| format!("\\fBrt\\-{}\\fR(1)", command.name)).collect();
    let _ = writeln!(page, ".SH SEE ALSO\n{}", pages.join(",\n"));
    page
}

const FLAG_RULES: &str = "\
Flags are written --flag VALUE, --flag=VALUE, -f VALUE or -fVALUE, and also -flag VALUE, as with Go's
flag package. A switch can be given as --flag=true or --flag=false. Short switches can be joined, as
in -it. Of a flag that is given several times the last one counts. Global flags come before the
command. The flags of a command can stand anywhere after it, but those of exec and ps must come before
the ID. -- ends the flags.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roff_prints_what_was_meant() {
        assert_eq!(roff(".x\n'y\na-b \\ c"), "\\&.x\n\\&'y\na\\-b \\e c\n");
    }
}
