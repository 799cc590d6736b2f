//! The man pages.

use rt_cli::command::{Command, Program};
use rt_cli::flag::Flag;
use rt_cli::help::{behind, flags, remark, usages};
use std::fmt::Write;

/// What a page says that is not made from commands and flags. An empty line separates paragraphs.
#[derive(Debug)]
pub(crate) struct Texts {
    /// DESCRIPTION.
    pub description: &'static str,
    /// The sections behind it, and behind the flags.
    pub sections: &'static [Section],
}

/// A page about something else than a command.
#[derive(Debug)]
pub(crate) struct Topic {
    /// Its name, without its section of the manual.
    pub name: &'static str,
    /// The section of the manual: 5 for files, 7 for what is no file.
    pub section: u8,
    /// One line, no dot.
    pub summary: &'static str,
    /// What it says.
    pub texts: Texts,
    /// A document in Markdown that follows it; see [`markdown`].
    pub document: fn() -> &'static str,
    /// Other pages.
    pub see_also: &'static [&'static str],
}

/// A section of a page.
#[derive(Debug)]
pub(crate) struct Section {
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
pub(crate) struct Item {
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

/// `text` so that roff(7) prints it as it is, for the middle of a line.
fn inline(text: &str) -> String {
    roff(text).trim_end().to_owned()
}

fn paragraphs(text: &str) -> String {
    let page = |paragraph: &str| table(paragraph).unwrap_or_else(|| format!(".PP\n{}", roff(paragraph)));
    text.split("\n\n").map(page).collect()
}

/// A paragraph that is a table: a name and its text in each line, with two spaces between them at least, and lines that go
/// on with a text. `None` for another one.
fn table(paragraph: &str) -> Option<String> {
    let mut page = String::new();
    for line in paragraph.lines() {
        let (name, text) = line.split_once("  ")?;
        if !name.is_empty() {
            let _ = writeln!(page, ".TP\n\\fB{}\\fR", inline(name));
        }
        page += &roff(text.trim_start());
    }
    Some(page)
}

fn man_head(name: &str, section: u8, summary: &str) -> String {
    format!(
        ".TH {} {section} \"\" \"rt {}\" \"rt Manual\"\n.SH NAME\n{} \\- {}\n",
        inline(&name.to_uppercase()),
        rt_cli::VERSION,
        inline(name),
        inline(summary)
    )
}

fn sections(sections: &[Section]) -> String {
    let mut page = String::new();
    for section in sections {
        let _ = write!(page, ".SH {}\n{}", section.title, paragraphs(section.text));
        for item in section.items {
            let _ = write!(page, ".TP\n\\fB{}\\fR\n{}", inline(item.name), roff(item.text));
        }
        for (name, text) in (section.rows)() {
            let _ = write!(page, ".TP\n\\fB{}\\fR\n{}", inline(&name), roff(&text));
        }
    }
    page
}

/// `name(section)` in the form of references, from that text.
fn reference(page: &str) -> String {
    match page.split_once('(') {
        Some((name, section)) => format!("\\fB{}\\fR({section}", inline(name)),
        None => inline(page),
    }
}

/// The page of a topic.
pub(crate) fn of_topic(topic: &Topic) -> String {
    let mut page = man_head(topic.name, topic.section, topic.summary);
    let _ = write!(page, ".SH DESCRIPTION\n{}", paragraphs(topic.texts.description));
    page += &sections(topic.texts.sections);
    page += &markdown((topic.document)());
    let _ = writeln!(
        page,
        ".SH SEE ALSO\n{}",
        topic.see_also.iter().map(|p| reference(p)).collect::<Vec<_>>().join(",\n")
    );
    page
}

/// A document in Markdown as the sections of a page: heads from the second level on, paragraphs, tables and indented
/// examples. What stands before the first head is left out, and so are a table's columns with the head `test`. Of a row
/// the first column is the name of an entry.
pub(crate) fn markdown(document: &str) -> String {
    let mut page = String::new();
    let mut heads: Option<Vec<&str>> = None;
    let mut lines = document.lines().skip_while(|line| !line.starts_with("## ")).peekable();
    while let Some(line) = lines.next() {
        if let Some(head) = line.strip_prefix("## ") {
            let _ = writeln!(page, ".SH {}", inline(&head.to_uppercase()));
        } else if line.starts_with('|') {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            match &heads {
                None => heads = Some(cells),
                Some(_) if cells.iter().all(|cell| cell.bytes().all(|b| matches!(b, b'-' | b':'))) => {}
                Some(heads) => page += &markdown_row(heads, &cells),
            }
            if lines.peek().is_none_or(|next| !next.starts_with('|')) {
                heads = None;
            }
        } else if line.starts_with("    ") {
            let _ = writeln!(page, ".PP\n.nf\n{}", inline(line.trim_start()));
            while let Some(more) = lines.next_if(|next| next.starts_with("    ")) {
                let _ = writeln!(page, "{}", inline(more.trim_start()));
            }
            page += ".fi\n";
        } else if !line.is_empty() {
            let mut text = line.to_owned();
            while let Some(more) = lines.next_if(|next| !next.is_empty() && !next.starts_with(['|', '#'])) {
                text = text + "\n" + more;
            }
            let _ = write!(page, ".PP\n{}", marked(&text));
        }
    }
    page
}

fn markdown_row(heads: &[&str], cells: &[&str]) -> String {
    let shown = heads.iter().zip(cells).filter(|(head, _)| **head != "test");
    let mut entry = String::new();
    for (n, (head, cell)) in shown.enumerate() {
        let sentence = match (n, *head) {
            (0, _) => {
                let _ = write!(entry, ".TP\n\\fB{}\\fR\n", marked(&cell.replace('`', "")).trim_end());
                continue;
            }
            // What an entry is about needs no head.
            (_, "meaning" | "what is done") => cell.trim_end_matches('.').to_owned(),
            (_, head) => format!("{head}: {}", cell.trim_end_matches('.')),
        };
        entry += &marked(&capitalized(&sentence));
    }
    entry
}

/// `text`, which has no dot, as a sentence.
fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", letters.as_str())
}

/// Text of Markdown: `code` and **words** are bold, and of links the text remains. A name of a test in parentheses is left
/// out.
fn marked(text: &str) -> String {
    let mut text = text.to_owned();
    for suite in ["gpu", "rdma", "mpi", "it", "runs"] {
        for space in [" ", "\n"] {
            let Some(start) = text.find(&format!("({suite}{space}`")) else { continue };
            let end = text[start..].find(')').map_or(text.len(), |end| start + end + 1);
            let before = text[..start].trim_end().len();
            text.replace_range(before..end, "");
        }
    }
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some(start) = rest.find("](") {
        let end = rest[start..].find(')').map_or(rest.len(), |end| start + end + 1);
        plain += &rest[..start].replacen('[', "", usize::from(rest[..start].contains('[')));
        rest = &rest[end..];
    }
    let mut page = String::new();
    let mut bold = false;
    let text = roff(&(plain + rest).replace("**", "`"));
    for c in text.chars() {
        match c {
            '`' => {
                bold = !bold;
                page += if bold { "\\fB" } else { "\\fR" };
            }
            c => page.push(c),
        }
    }
    page
}

fn man_flags(flags: impl Iterator<Item = &'static Flag>) -> String {
    let mut page = String::new();
    for flag in flags {
        let short = flag.short.map(|short| format!("\\fB\\-{short}\\fR, ")).unwrap_or_default();
        let alias = flag.alias.map(|alias| format!(", \\fB\\-\\-{}\\fR", inline(alias))).unwrap_or_default();
        let value = flag.value.map(|value| behind(flag, &format!("\\fI{}\\fR", inline(value))));
        let value = value.unwrap_or_default();
        let help = inline(&format!("{}{}.", flag.help, remark(flag)));
        let _ = writeln!(page, ".TP\n{short}\\fB\\-\\-{}\\fR{alias}{value}\n{help}", inline(flag.long));
    }
    page
}

/// The page of a command.
pub(crate) fn of_command(command: &'static Command) -> String {
    let mut page = man_head(&format!("rt-{}", command.name), 1, command.summary) + ".SH SYNOPSIS\n";
    for (i, (name, usage)) in usages(command).enumerate() {
        let gap = if i == 0 { "" } else { ".br\n" };
        let _ = writeln!(page, "{gap}\\fBrt {name}\\fR{}", inline(&usage));
    }
    if !command.about.is_empty() {
        let _ = write!(page, ".SH DESCRIPTION\n{}", paragraphs(command.about));
    }
    if command.forms.is_empty() {
        page += ".SH FLAGS\n";
        page += &man_flags(flags(Some(command)));
    }
    for form in command.forms {
        let _ = writeln!(page, ".SH {}\n{}", form.word().to_uppercase(), inline(&capitalized(form.summary)));
        page += &paragraphs(form.about);
        page += &man_flags(form.flags.iter().copied());
    }
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
pub(crate) fn of_program(program: &Program, texts: &Texts, see_also: &[&str]) -> String {
    let mut page = man_head("rt", 1, program.summary);
    page += ".SH SYNOPSIS\n\\fBrt\\fR [FLAGS] COMMAND [FLAGS] ...\n.SH DESCRIPTION\n";
    page += &paragraphs(texts.description);
    page += ".SH COMMANDS\n";
    for command in program.shown() {
        let _ = writeln!(page, ".TP\n\\fBrt\\-{}\\fR(1)\n{}.", command.name, inline(command.summary));
    }
    page += ".SH GLOBAL FLAGS\n";
    page += &man_flags(flags(None));
    page += &paragraphs(FLAG_RULES);
    page += &sections(texts.sections);
    let commands = program.shown().map(|command| format!("\\fBrt\\-{}\\fR(1)", command.name));
    let pages: Vec<_> = commands.chain(see_also.iter().map(|page| reference(page))).collect();
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
        assert_eq!(reference("rt-config(5)"), "\\fBrt\\-config\\fR(5)");
        assert_eq!(roff(".x\n'y\na-b \\ c"), "\\&.x\n\\&'y\na\\-b \\e c\n");
    }

    #[test]
    fn a_table_stays_one() {
        let text = "Text:\n\nA_B   what it is,\n      and more\nC     another";
        let page = ".PP\nText:\n.TP\n\\fBA_B\\fR\nwhat it is,\nand more\n.TP\n\\fBC\\fR\nanother\n";
        assert_eq!(paragraphs(text), page);
    }

    #[test]
    fn a_document_becomes_sections() {
        let document = "# Title\n\nnot this\n\n## One two\n\nA `b-c` and [text](x.md),\nmore **bold** (it `a_test`).\n\n    rt run\n\n\
            | variable | who | meaning | test |\n|---|---|---|---|\n| `A`, `B` | any | what it is | t `x` |\n";
        let page = ".SH ONE TWO\n.PP\nA \\fBb\\-c\\fR and text,\nmore \\fBbold\\fR.\n.PP\n.nf\nrt run\n.fi\n\
            .TP\n\\fBA, B\\fR\nWho: any.\nWhat it is.\n";
        assert_eq!(markdown(document), page);
    }
}
