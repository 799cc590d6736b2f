//! Help, man pages and the shells' completions, from the table in [`args`](super::args).

use super::args::{COMMANDS, Command, Flag, GLOBALS, HELP};
use super::parse::Call;
use rt_sys::bail;
use rt_sys::error::{Context, Result};
use std::fmt::Write;
use std::path::Path;

/// Writes the man pages or a shell's completions into a directory, under the names that man(1) and
/// the shells look for.
pub fn run(call: &Call) -> Result<u8> {
    let dir = Path::new(call.operands[1]);
    let write = |name: &str, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text).context(|| format!("write {}", path.display()))
    };
    match call.operands[0].to_str() {
        Some("man") => {
            write("rt.1", man())?;
            for command in shown() {
                write(&format!("rt-{}.1", command.name), command_man(command))?;
            }
        }
        Some("bash") => write("rt", bash())?,
        Some("zsh") => write("_rt", zsh())?,
        Some("fish") => write("rt.fish", fish())?,
        _ => bail!("generate: {:?} is none of man, bash, zsh, fish", call.operands[0]),
    }
    Ok(0)
}

const SUMMARY: &str = "run OCI containers without root, with one user id, and without touching a cgroup";

fn shown() -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().filter(|command| !command.hidden)
}

/// The flags of a command or, with none, the global ones, and then `--help`, which all have.
fn flags(of: Option<&Command>) -> impl Iterator<Item = &'static Flag> {
    let own = of.map_or(GLOBALS, |command| command.flags);
    own.iter().copied().chain(of.map(|_| &HELP))
}

/// `-b, --bundle DIR`
fn names(flag: &Flag) -> String {
    let short = flag.short.map_or("    ".to_owned(), |short| format!("-{short}, "));
    let value = flag.value.map(|value| format!(" {value}")).unwrap_or_default();
    format!("{short}--{}{value}", flag.long)
}

fn remark(flag: &Flag) -> &'static str {
    match flag {
        Flag { ignored: true, .. } => " (accepted, without effect)",
        Flag { repeats: true, .. } => " (can be repeated)",
        _ => "",
    }
}

/// The usage lines of a command, without `rt NAME`.
fn usages(command: &'static Command) -> impl Iterator<Item = String> {
    let flags = if command.flags.is_empty() { "" } else { "[FLAGS] " };
    command.usage.iter().map(move |form| format!("{flags}{form}").trim_end().to_owned())
}

// --- help ---

/// The answer to `rt --help`.
pub fn help() -> String {
    let mut text = format!("rt: {SUMMARY}\n\nUsage: rt [FLAGS] COMMAND [FLAGS] ...\n\nCommands:\n");
    for command in shown() {
        let _ = writeln!(text, "  {:<10}{}", command.name, command.summary);
    }
    help_flags(&mut text, flags(None));
    text.push_str("\nrt COMMAND --help, or man rt-COMMAND, tells more.\n");
    text
}

/// The answer to `rt COMMAND --help`.
pub fn command_help(command: &'static Command) -> String {
    let mut text = format!("rt {}: {}\n\n", command.name, command.summary);
    for (i, usage) in usages(command).enumerate() {
        let label = if i == 0 { "Usage:" } else { "      " };
        let _ = writeln!(text, "{}", format!("{label} rt {} {usage}", command.name).trim_end());
    }
    if !command.about.is_empty() {
        let paragraphs = command.about.split("\n\n").map(|paragraph| wrapped(paragraph, 0));
        let _ = write!(text, "\n{}", paragraphs.collect::<Vec<_>>().join("\n"));
    }
    help_flags(&mut text, flags(Some(command)));
    if !command.examples.is_empty() {
        text.push_str("\nExamples:\n");
    }
    for (what, line) in command.examples {
        let _ = writeln!(text, "  # {what}\n  {line}");
    }
    text
}

fn help_flags(text: &mut String, flags: impl Iterator<Item = &'static Flag>) {
    for (i, flag) in flags.enumerate() {
        text.push_str(if i == 0 { "\nFlags:\n" } else { "" });
        let names = format!("  {}", names(flag));
        let help = wrapped(&format!("{}{}", flag.help, remark(flag)), 30);
        // A long name has a line of its own.
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

// --- man pages ---

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
        super::PROGRAM_VERSION,
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

fn command_man(command: &'static Command) -> String {
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
fn man() -> String {
    let mut page = man_head("rt", SUMMARY);
    page += "\\fBrt\\fR [FLAGS] COMMAND [FLAGS] ...\n.SH DESCRIPTION\n";
    page += &paragraphs(DESCRIPTION);
    page += ".SH COMMANDS\n";
    for command in shown() {
        let _ = writeln!(page, ".TP\n\\fBrt\\-{}\\fR(1)\n{}.", command.name, inline(command.summary));
    }
    page += &man_flags("GLOBAL FLAGS", flags(None));
    page += &paragraphs(FLAG_RULES);
    for (title, text) in [
        ("EXIT STATUS", EXIT_STATUS),
        ("ERRORS AND LOG", LOG),
        ("ENVIRONMENT", ENVIRONMENT),
        ("FILES", FILES),
    ] {
        let _ = write!(page, ".SH {title}\n{}", paragraphs(text));
    }
    let pages: Vec<_> = shown().map(|command| format!("\\fBrt\\-{}\\fR(1)", command.name)).collect();
    let _ = writeln!(page, ".SH SEE ALSO\n{}", pages.join(",\n"));
    page
}

const DESCRIPTION: &str = "\
rt runs containers from bundles, as the OCI runtime specification has them: a directory with a
config.json and a root directory. It has runc's command line, so that podman, containerd, docker,
CRI-O and Slurm can call it in runc's place.

The caller needs no privilege. Its one user id and one group id are mapped into the container; the
supplementary groups stay. A container stays in the cgroup of its caller: rt never makes, joins or
changes one.

What a config made for root asks for and one id cannot give is adapted: a user namespace is added,
other users become the mapped one, device nodes become bind mounts, limits are left out. --debug logs
each of these; --strict refuses them.";

const FLAG_RULES: &str = "\
Flags are written --flag VALUE, --flag=VALUE, -f VALUE, -fVALUE, and -flag VALUE as with Go's flag
package. A switch can be --flag=true or --flag=false, and short ones can be joined, as in -it. The
last occurrence wins. Global flags stand before the command; a command's stand anywhere behind it,
but for exec and ps before the ID. -- ends the flags.";

const EXIT_STATUS: &str = "\
run and exec exit as the program does, or with 128 and the number of the signal that ended it.
Errors of rt itself are 1, and 255 from exec. All other commands exit with 0 or 1.";

const LOG: &str = "\
An error is one line on stderr: what was being done, to what, and why it failed. Nothing else is
written to stderr unless --debug or --log-level asks for it.

With --log, the error is appended to that file as well, as one line of text, or of JSON with the
keys level, msg and time; on stderr it then stands without \"rt: \" in front. By default errors are
all that is logged: podman reads the whole file as one JSON object, so that a warning in it would
hide the error. --log-level and --debug add what is less severe, to the file where there is one,
else to stderr. The file is opened when there is something to write.";

const ENVIRONMENT: &str = "\
XDG_RUNTIME_DIR is where states are kept. PATH is where ps(1) and rt-pull are looked for. No other
variable is read, and none reaches the container but by -e.";

const FILES: &str = "\
States are kept in the directory of --root, else in /run/rt for root. For everybody else, and for
root in a user namespace, it is the first that can be used of $XDG_RUNTIME_DIR/rt, /run/user/UID/rt
and /tmp/rt-UID.";

// --- completions ---

/// What can stand for a flag's value, as far as the table tells.
enum Values {
    Dir,
    File,
    Words(Vec<&'static str>),
    Any,
}

fn values(metavar: &'static str) -> Values {
    match metavar {
        "DIR" => Values::Dir,
        "FILE" | "SOCKET" => Values::File,
        _ if metavar.contains('|') => Values::Words(metavar.split('|').collect()),
        _ => Values::Any,
    }
}

/// True where the command's first operand is the id of a container that exists.
fn takes_id(command: &Command) -> bool {
    command.usage[0].starts_with("ID") && command.name != "create"
}

fn longs(flags: impl Iterator<Item = &'static Flag>) -> String {
    flags.map(|flag| format!("--{}", flag.long)).collect::<Vec<_>>().join(" ")
}

fn bash() -> String {
    let mut script = String::from(
        "# bash completion for rt
_rt() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
",
    );
    let valued = || flags(None).filter(|flag| flag.value.is_some());
    let names: Vec<_> = valued().map(|flag| format!("--{}", flag.long)).collect();
    let _ = write!(
        script,
        "            {}) ((i++)) ;;
            -*) ;;
            *) command=${{COMP_WORDS[i]}}; break ;;
        esac
    done
    COMPREPLY=()
    case $command:$prev in
",
        names.join("|")
    );
    // After a flag, its values.
    for (name, flag) in shown()
        .flat_map(|command| flags(Some(command)).map(|flag| (command.name, flag)))
        .chain(flags(None).map(|flag| ("", flag)))
    {
        let Some(metavar) = flag.value else { continue };
        let reply = match values(metavar) {
            Values::Dir => {
                "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$cur\"); ".to_owned()
            }
            Values::File => {
                "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); ".to_owned()
            }
            Values::Words(words) => {
                format!("mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$cur\"); ", words.join(" "))
            }
            Values::Any => String::new(),
        };
        let short = flag.short.map(|short| format!("|{name}:-{short}")).unwrap_or_default();
        let _ = writeln!(script, "        {name}:--{}{short}) {reply}return ;;", flag.long);
    }
    script.push_str("    esac\n    case $command:$cur in\n");
    let _ = writeln!(
        script,
        "        :-*) mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$cur\") ;;",
        longs(flags(None))
    );
    let all: Vec<_> = shown().map(|command| command.name).collect();
    let _ = writeln!(
        script,
        "        :*) mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$cur\") ;;",
        all.join(" ")
    );
    for command in shown() {
        let (name, flags) = (command.name, longs(flags(Some(command))));
        let _ = writeln!(
            script,
            "        {name}:-*) mapfile -t COMPREPLY < <(compgen -W '{flags}' -- \"$cur\") ;;"
        );
        if takes_id(command) {
            let _ = writeln!(
                script,
                "        {name}:*) mapfile -t COMPREPLY < <(compgen -W \"$(rt list -q 2>/dev/null)\" -- \"$cur\") ;;"
            );
        }
    }
    script.push_str(
        "        run:*) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$cur\") ;;
    esac
}
complete -F _rt rt
",
    );
    script
}

/// `text` within single quotes, of which zsh's `_arguments` takes brackets and colons to mean something.
fn zsh_text(text: &str) -> String {
    text.replace('\'', "'\\''").replace('[', "\\[").replace(']', "\\]").replace(':', "\\:")
}

fn zsh_flags(script: &mut String, flags: impl Iterator<Item = &'static Flag>) {
    for flag in flags {
        let help = zsh_text(flag.help);
        let (equals, action) = match flag.value {
            None => ("", String::new()),
            Some(metavar) => {
                let action = match values(metavar) {
                    Values::Dir => "_files -/".to_owned(),
                    Values::File => "_files".to_owned(),
                    Values::Words(words) => format!("({})", words.join(" ")),
                    Values::Any => String::new(),
                };
                ("=", format!(":{}:{action}", zsh_text(metavar)))
            }
        };
        let repeats = if flag.repeats { "*" } else { "" };
        let _ = writeln!(script, "                '{repeats}--{}{equals}[{help}]{action}' \\", flag.long);
        if let Some(short) = flag.short {
            let plus = if flag.value.is_some() { "+" } else { "" };
            let _ = writeln!(script, "                '{repeats}-{short}{plus}[{help}]{action}' \\");
        }
    }
}

fn zsh() -> String {
    let mut script = String::from(
        "#compdef rt
_rt_ids() {
    local -a ids
    ids=(${(f)\"$(rt list -q 2>/dev/null)\"})
    _describe container ids
}
_rt_commands() {
    local -a commands=(
",
    );
    for command in shown() {
        let _ = writeln!(
            script,
            "        '{}:{}'",
            command.name,
            command.summary.replace('\'', "'\\''").replace(':', "\\:")
        );
    }
    script.push_str(
        "    )
    _describe command commands
}
_rt() {
    local curcontext=$curcontext state line
    typeset -A opt_args
    _arguments -C \\
",
    );
    zsh_flags(&mut script, flags(None));
    script.push_str(
        "                '1:command:_rt_commands' '*::argument:->command'
    [[ $state == command ]] || return
    case $line[1] in
",
    );
    for command in shown() {
        let _ = writeln!(script, "        {})\n            _arguments \\", command.name);
        zsh_flags(&mut script, flags(Some(command)));
        let operands = match command.name {
            "run" => "'1:bundle or id:_files -/' '*::argument:_normal'",
            "exec" => "'1:id:_rt_ids' '*::argument:_normal'",
            _ if takes_id(command) => "'1:id:_rt_ids'",
            _ => "",
        };
        let _ = writeln!(script, "                {operands} ;;");
    }
    script.push_str("    esac\n}\n_rt \"$@\"\n");
    script
}

fn fish_flags(script: &mut String, condition: &str, flags: impl Iterator<Item = &'static Flag>) {
    for flag in flags {
        let short = flag.short.map(|short| format!(" -s {short}")).unwrap_or_default();
        let value = match flag.value.map(values) {
            None => String::new(),
            Some(Values::Dir) => " -x -a '(__fish_complete_directories)'".to_owned(),
            Some(Values::File) => " -r -F".to_owned(),
            Some(Values::Words(words)) => format!(" -x -a '{}'", words.join(" ")),
            Some(Values::Any) => " -x".to_owned(),
        };
        let help = flag.help.replace('\\', "\\\\").replace('\'', "\\'");
        let _ =
            writeln!(script, "complete -c rt -n '{condition}' -l {}{short}{value} -d '{help}'", flag.long);
    }
}

fn fish() -> String {
    let mut script = String::from("# fish completion for rt\ncomplete -c rt -f\n");
    let none = "__fish_use_subcommand";
    fish_flags(&mut script, none, flags(None));
    for command in shown() {
        let summary = command.summary.replace('\'', "\\'");
        let _ = writeln!(script, "complete -c rt -n '{none}' -a {} -d '{summary}'", command.name);
    }
    for command in shown() {
        let condition = format!("__fish_seen_subcommand_from {}", command.name);
        fish_flags(&mut script, &condition, flags(Some(command)));
        if takes_id(command) {
            let _ = writeln!(script, "complete -c rt -n '{condition}' -a '(rt list -q 2>/dev/null)'");
        }
        if command.name == "run" {
            let _ = writeln!(script, "complete -c rt -n '{condition}' -a '(__fish_complete_directories)'");
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_flag_is_everywhere() {
        let texts = [("help", help()), ("man", man()), ("bash", bash()), ("zsh", zsh()), ("fish", fish())];
        for (kind, text) in &texts {
            for command in shown() {
                assert!(text.contains(command.name), "{kind}: {}", command.name);
            }
            assert!(!text.contains("generate"), "{kind}");
        }
        for command in shown() {
            for flag in command.flags {
                for text in [command_help(command), command_man(command).replace("\\-", "-")] {
                    assert!(text.contains(&format!("--{}", flag.long)), "{} --{}", command.name, flag.long);
                }
                for (kind, text) in &texts[2..] {
                    assert!(text.contains(flag.long), "{kind}: --{}", flag.long);
                }
            }
        }
    }

    #[test]
    fn help_fits_a_terminal() {
        for text in COMMANDS.iter().map(command_help).chain([help()]) {
            for line in text.lines() {
                assert!(line.chars().count() <= 100 && !line.ends_with(' '), "{line:?}");
            }
        }
    }

    #[test]
    fn roff_prints_what_was_meant() {
        assert_eq!(roff(".x\n'y\na-b \\ c"), "\\&.x\n\\&'y\na\\-b \\e c\n");
    }
}
