//! The completions of bash, zsh and fish.

use crate::command::{Command, Program};
use crate::flag::Flag;
use crate::help::flags;
use std::fmt::Write;

/// What completions offer for the value of a flag.
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

/// The script for bash.
pub fn bash(program: &Program) -> String {
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
    for (name, flag) in program
        .shown()
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
    let all: Vec<_> = program.shown().map(|command| command.name).collect();
    let _ = writeln!(
        script,
        "        :*) mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$cur\") ;;",
        all.join(" ")
    );
    for command in program.shown() {
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

/// `text` for use within single quotes, with the characters escaped that zsh's `_arguments` interprets.
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

/// The script for zsh.
pub fn zsh(program: &Program) -> String {
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
    for command in program.shown() {
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
    for command in program.shown() {
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

/// The script for fish.
pub fn fish(program: &Program) -> String {
    let mut script = String::from("# fish completion for rt\ncomplete -c rt -f\n");
    let none = "__fish_use_subcommand";
    fish_flags(&mut script, none, flags(None));
    for command in program.shown() {
        let summary = command.summary.replace('\'', "\\'");
        let _ = writeln!(script, "complete -c rt -n '{none}' -a {} -d '{summary}'", command.name);
    }
    for command in program.shown() {
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
