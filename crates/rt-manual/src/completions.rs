//! The completions of bash, zsh and fish. What can stand where is read from the table of commands: the values of flags
//! from their metavariables, and operands from the usage lines.

use rt_cli::command::{Command, Program, Rest};
use rt_cli::flag::Flag;
use rt_cli::help::flags;
use rt_cli::signals;
use std::fmt::Write;

/// What completions offer for a word.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Values {
    Dirs,
    /// Directories, and images that are one file.
    Bundles,
    Files,
    /// A path, up to the colon behind it.
    Binds,
    /// Variables of the environment.
    Variables,
    /// Names in the store.
    Images,
    /// Containers.
    Ids,
    Signals,
    Words(Vec<&'static str>),
}

/// What an operand or a flag's value can be that is called so; nothing where nobody can tell.
fn values(metavar: &'static str) -> Vec<Values> {
    let known = |name: &str| {
        Some(match name {
            "DIR" => Values::Dirs,
            "BUNDLE" => Values::Bundles,
            "FILE" | "FILE.sqsh" | "SOCKET" => Values::Files,
            "SRC:DST[:OPTIONS]" => Values::Binds,
            "NAME[=VALUE]" => Values::Variables,
            "IMAGE" => Values::Images,
            "ID" => Values::Ids,
            "SIGNAL" => Values::Signals,
            _ => return None,
        })
    };
    let is_word = |name: &&str| name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.contains(':');
    let names = || metavar.split('|');
    let mut all: Vec<Values> = names().filter_map(known).collect();
    let words: Vec<_> = names().filter(is_word).collect();
    if !words.is_empty() {
        all.push(Values::Words(words));
    }
    all
}

/// The operands of a command, in order: what can stand there, and whether the last of them repeats.
#[derive(Debug, Default, PartialEq, Eq)]
struct Operands {
    kinds: Vec<Vec<Values>>,
    repeats: bool,
}

/// Reads the operands from the usage lines.
fn operands(command: &'static Command) -> Operands {
    let mut all = Operands::default();
    let lines =
        command.callable().flat_map(|callable| callable.usage.iter().map(move |line| (callable, line)));
    for (callable, line) in lines {
        let mut position = 0;
        // The name of a form is the first operand.
        let form = (!command.forms.is_empty()).then(|| callable.word());
        let mut words = form
            .into_iter()
            .chain(line.split(' ').map(|word| word.trim_start_matches('[').trim_end_matches(']')));
        while let Some(word) = words.next() {
            if word == "--" {
                break;
            }
            if let Some(name) = word.strip_prefix('-') {
                let name = name.strip_prefix('-').unwrap_or(name);
                let is =
                    |flag: &&&Flag| flag.long == name || flag.short.is_some_and(|c| name == c.to_string());
                if callable.flags.iter().find(is).is_some_and(|flag| flag.value.is_some()) {
                    words.next();
                }
                continue;
            }
            let name = word.strip_suffix("...").unwrap_or(word);
            if name.is_empty() {
                continue;
            }
            all.repeats |= name != word && callable.rest == Rest::None;
            if all.kinds.len() == position {
                all.kinds.push(Vec::new());
            }
            for kind in values(name) {
                // These make a container, whose id is new.
                let new = kind == Values::Ids && matches!(command.name, "create" | "run");
                merge(&mut all.kinds[position], kind, new);
            }
            position += 1;
        }
    }
    all
}

/// Adds a kind to those that an earlier usage line has for the same operand.
fn merge(kinds: &mut Vec<Values>, kind: Values, new: bool) {
    if let Values::Words(more) = &kind
        && let Some(Values::Words(words)) = kinds.iter_mut().find(|known| matches!(known, Values::Words(_)))
    {
        words.extend(more);
    } else if !new && !kinds.contains(&kind) {
        kinds.push(kind);
    }
}

/// Every command with its flags, and without a name the flags before it.
fn all_flags(program: &Program) -> impl Iterator<Item = (&'static str, &'static Flag)> {
    let of_commands =
        program.shown().flat_map(|command| flags(Some(command)).map(|flag| (command.name, flag)));
    flags(None).map(|flag| ("", flag)).chain(of_commands)
}

/// The ways to write a flag behind a command: patterns of a `case`.
fn patterns(command: &str, flag: &Flag) -> Vec<String> {
    let longs = [Some(flag.long), flag.alias].into_iter().flatten().map(|name| format!("{command}:--{name}"));
    longs.chain(flag.short.map(|name| format!("{command}:-{name}"))).collect()
}

fn longs(flags: impl Iterator<Item = &'static Flag>) -> String {
    flags.map(|flag| format!("--{}", flag.long)).collect::<Vec<_>>().join(" ")
}

/// The script for bash.
pub(crate) fn bash(program: &Program) -> String {
    let offers = |kinds: &[Values]| {
        let offer = |kind: &Values| match kind {
            Values::Dirs => "_rt_paths -d".to_owned(),
            Values::Bundles => "_rt_bundles".to_owned(),
            Values::Files => "_rt_paths -f".to_owned(),
            Values::Binds => "_rt_binds".to_owned(),
            Values::Variables => "_rt_words \"$(compgen -e)\"".to_owned(),
            Values::Images => "_rt_names \"$(_rt_images)\"".to_owned(),
            Values::Ids => "_rt_words \"$(rt list -q 2>/dev/null)\"".to_owned(),
            Values::Signals => format!("_rt_words '{}'", signals::NAMES.join(" ")),
            Values::Words(words) => format!("_rt_words '{}'", words.join(" ")),
        };
        // The first that has something: images before directories.
        kinds.iter().map(offer).collect::<Vec<_>>().join(" || ")
    };
    let mut valued = String::new();
    let mut of_flags = String::new();
    for (command, flag) in all_flags(program) {
        let Some(metavar) = flag.value else { continue };
        let patterns = patterns(command, flag).join(" | ");
        if !flag.optional {
            let _ = writeln!(valued, "        {patterns}) flag=$word ;;");
        }
        let kinds = values(metavar);
        if !kinds.is_empty() {
            let _ = writeln!(of_flags, "        {patterns}) {} ;;", offers(&kinds));
        }
    }
    let mut of_words = format!("        :*:-*) _rt_words '{}' ;;\n", longs(flags(None)));
    let commands: Vec<_> = program.shown().map(|command| command.name).collect();
    let _ = writeln!(of_words, "        :*) _rt_words '{}' ;;", commands.join(" "));
    for command in program.shown() {
        let _ = writeln!(
            of_words,
            "        {}:*:-*) _rt_words '{}' ;;",
            command.name,
            longs(flags(Some(command)))
        );
        let Operands { kinds, repeats } = operands(command);
        for (n, kinds) in kinds.iter().enumerate().filter(|(_, kinds)| !kinds.is_empty()) {
            let n = if repeats { "*".to_owned() } else { n.to_string() };
            let _ = writeln!(of_words, "        {}:{n}:*) {} ;;", command.name, offers(kinds));
        }
    }
    let verbatim: Vec<_> = program.shown().filter(|command| command.rest == Rest::Verbatim).collect();
    let verbatim: Vec<_> = verbatim.iter().map(|c| format!("{}:{}", c.name, c.operands.end())).collect();
    BASH.replace("@VERBATIM@", &verbatim.join(" | "))
        .replace("@VALUED@\n", &valued)
        .replace("@FLAGS@\n", &of_flags)
        .replace("@WORDS@\n", &of_words)
}

/// Bash splits words at : and =, too, which are in names of images and in binds; and it replaces only what is behind them.
const BASH: &str = r#"# bash completion for rt
_rt_images() {
    rt images 2>/dev/null | sed -e 1d -e '/^</d' -e 's/ .*//'
}

# Each of these offers something for $cur, or fails.
_rt_words() {
    # Not by compgen -W, which executes what is in $(): the names of images can be anybody's. Quoted, they stay names.
    local words word
    read -r -d '' -a words <<<"$1"
    for word in "${words[@]}"; do
        [[ $word != "$cur"* ]] || COMPREPLY+=("$(printf %q "$word")")
    done
    ((${#COMPREPLY[@]}))
}
# Also by the last part of a name, where no name begins so: what is before it is a registry and a path.
_rt_names() {
    local words word
    ! _rt_words "$1" || return 0
    [[ $cur == [a-zA-Z0-9]* && $cur != *[:=/]* ]] || return
    read -r -d '' -a words <<<"$1"
    for word in "${words[@]}"; do
        [[ ${word##*/} != "$cur"* ]] || COMPREPLY+=("$(printf %q "$word")")
    done
    ((${#COMPREPLY[@]}))
}
_rt_bundles() {
    local ending
    mapfile -t COMPREPLY < <(
        compgen -d -- "$cur"
        for ending in sif sqfs sqsh squashfs; do compgen -f -X "!*.$ending" -- "$cur"; done
    )
    if [[ ${#COMPREPLY[@]} == 1 && -f ${COMPREPLY[0]}/config.json ]]; then
        # The word ends here: what is in a bundle is no operand.
        COMPREPLY=("$(printf %q "${COMPREPLY[0]}")")
        return
    fi
    compopt -o filenames
    ((${#COMPREPLY[@]}))
}
_rt_paths() {
    mapfile -t COMPREPLY < <(compgen "$1" -- "$cur")
    compopt -o filenames
    ((${#COMPREPLY[@]}))
}
_rt_binds() {
    [[ $cur != *:* ]] || return
    _rt_paths -f && compopt -o nospace
}

_rt() {
    local line=${COMP_LINE:0:COMP_POINT} blank=$' \t' words=() word cur flag= command= operands=0 i
    # The words as they were typed, the last one up to the cursor.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        ((i < COMP_CWORD)) || word=${line#"${line%%[!$blank]*}"}
        if ((i == 0)) || [[ $line == [$blank]* ]]; then
            line=${line#"${line%%[!$blank]*}"}
            words+=("$word")
        else
            words[${#words[@]} - 1]+=$word
        fi
        line=${line#"$word"}
    done
    cur=${words[${#words[@]} - 1]}
    COMPREPLY=()
    for ((i = 1; i < ${#words[@]} - 1; i++)); do
        word=${words[i]}
        if [[ $flag ]]; then
            flag=
            continue
        fi
        case $command:$operands in
        @VERBATIM@) break ;;
        esac
        case $command:$word in
@VALUED@
        ?*:--) compopt -o bashdefault -o default; return ;;
        *:-*) ;;
        :*) command=$word ;;
        *) ((operands++)) ;;
        esac
    done
    case $command:$operands in
    @VERBATIM@) compopt -o bashdefault -o default; return ;;
    esac
    if [[ ! $flag && $cur == --*=* ]]; then
        flag=${cur%%=*} cur=${cur#*=}
    fi
    if [[ $flag ]]; then
        case $command:$flag in
@FLAGS@
        esac
    else
        case $command:$operands:$cur in
@WORDS@
        esac
    fi
    local cut=${cur%"${cur##*[:=]}"}
    [[ ! $cut || $COMP_WORDBREAKS != *[:=]* ]] || COMPREPLY=("${COMPREPLY[@]#"$cut"}")
}
complete -F _rt rt
"#;

/// `text` for use within single quotes, with the characters escaped that zsh's `_arguments` interprets.
fn zsh_text(text: &str) -> String {
    text.replace('\'', "'\\''").replace('[', "\\[").replace(']', "\\]").replace(':', "\\:")
}

fn zsh_action(kinds: &[Values]) -> String {
    let action = |kind: &Values| match kind {
        Values::Dirs => "_files -/".to_owned(),
        Values::Bundles => "_files -g \"*.(sqsh|squashfs|sqfs|sif)\"".to_owned(),
        Values::Files => "_files".to_owned(),
        Values::Binds => "_rt_binds".to_owned(),
        Values::Variables => "_rt_variables".to_owned(),
        Values::Images => "_rt_images".to_owned(),
        Values::Ids => "_rt_ids".to_owned(),
        Values::Signals => format!("({})", signals::NAMES.join(" ")),
        Values::Words(words) => format!("({})", words.join(" ")),
    };
    match kinds {
        [] => String::new(),
        [kind] => action(kind),
        kinds => {
            let functions = kinds.iter().map(|kind| match kind {
                Values::Words(words) => format!("compadd {}", words.join(" ")),
                Values::Signals => format!("compadd {}", signals::NAMES.join(" ")),
                kind => action(kind),
            });
            format!("{{ {} }}", functions.collect::<Vec<_>>().join(" || "))
        }
    }
}

fn zsh_flags(script: &mut String, flags: impl Iterator<Item = &'static Flag>) {
    for flag in flags {
        let help = zsh_text(flag.help);
        let (equals, plus, action) = match flag.value {
            None => ("", "", String::new()),
            Some(metavar) if flag.optional => {
                ("=-", "", format!("::{}:{}", zsh_text(metavar), zsh_action(&values(metavar))))
            }
            Some(metavar) => ("=", "+", format!(":{}:{}", zsh_text(metavar), zsh_action(&values(metavar)))),
        };
        let repeats = if flag.repeats { "*" } else { "" };
        let long =
            [Some(flag.long), flag.alias].into_iter().flatten().map(|name| format!("--{name}{equals}"));
        for name in long.chain(flag.short.map(|name| format!("-{name}{plus}"))) {
            let _ = writeln!(script, "                '{repeats}{name}[{help}]{action}' \\");
        }
    }
}

/// The script for zsh.
pub(crate) fn zsh(program: &Program) -> String {
    let mut script = String::from(
        r#"#compdef rt
_rt_ids() {
    local -a ids
    ids=(${(f)"$(rt list -q 2>/dev/null)"})
    _wanted containers expl container compadd -a ids
}
_rt_images() {
    local -a images
    images=(${(f)"$(rt images 2>/dev/null | sed -e 1d -e '/^</d' -e 's/ .*//')"})
    _wanted images expl image compadd -a images
}
_rt_binds() {
    if compset -P '*:'; then
        _message 'path in the container'
    else
        _files -S ''
    fi
}
_rt_variables() {
    _parameters -g '*export*'
}
_rt_commands() {
    local -a commands=(
"#,
    );
    for command in program.shown() {
        let summary = command.summary.replace('\'', "'\\''").replace(':', "\\:");
        let _ = writeln!(script, "        '{}:{summary}'", command.name);
    }
    script.push_str(
        "    )
    _describe command commands
}
_rt() {
    local curcontext=$curcontext state line expl
    typeset -A opt_args
    # Flags behind the command are the command's.
    _arguments -C -A '-*' \\
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
        let Operands { kinds, repeats } = operands(command);
        let mut specs = Vec::new();
        for (n, kinds) in kinds.iter().enumerate() {
            // What a container's program is given is not rt's to know.
            if command.rest == Rest::Verbatim && n >= *command.operands.end() {
                break;
            }
            let n = if repeats { "*".to_owned() } else { (n + 1).to_string() };
            specs.push(format!("'{n}:operand:{}'", zsh_action(kinds)));
        }
        if command.rest != Rest::None {
            specs.push("'*::argument:_normal'".to_owned());
        }
        let _ = writeln!(script, "                {} ;;", specs.join(" "));
    }
    script.push_str("    esac\n}\n_rt \"$@\"\n");
    script
}

fn fish_offer(kinds: &[Values]) -> String {
    let offer = |kind: &Values| match kind {
        Values::Dirs => "(__fish_complete_directories (__rt_value))".to_owned(),
        Values::Bundles => "(__rt_bundles)".to_owned(),
        Values::Files => "(__fish_complete_path (__rt_value))".to_owned(),
        Values::Binds => "(__rt_binds)".to_owned(),
        Values::Variables => "(set -x --names)".to_owned(),
        Values::Images => "(__rt_images)".to_owned(),
        Values::Ids => "(rt list -q 2>/dev/null)".to_owned(),
        Values::Signals => signals::NAMES.join(" "),
        Values::Words(words) => words.join(" "),
    };
    kinds.iter().map(offer).collect::<Vec<_>>().join(" ")
}

fn fish_flags(script: &mut String, condition: &str, flags: impl Iterator<Item = &'static Flag>) {
    for flag in flags {
        let short = flag.short.map(|short| format!(" -s {short}")).unwrap_or_default();
        let alias = flag.alias.map(|alias| format!(" -l {alias}")).unwrap_or_default();
        let value = match flag.value.filter(|_| !flag.optional).map(values) {
            None => String::new(),
            Some(kinds) if kinds.is_empty() => " -x".to_owned(),
            Some(kinds) => format!(" -x -a '{}'", fish_offer(&kinds)),
        };
        let help = flag.help.replace('\\', "\\\\").replace('\'', "\\'");
        let long = flag.long;
        let _ =
            writeln!(script, "complete -c rt -n '{condition}' -l {long}{alias}{short}{value} -d '{help}'");
    }
}

/// The script for fish.
pub(crate) fn fish(program: &Program) -> String {
    let mut valued = String::new();
    for (command, flag) in all_flags(program).filter(|(_, flag)| flag.value.is_some() && !flag.optional) {
        let patterns: Vec<_> = patterns(command, flag).iter().map(|pattern| format!("'{pattern}'")).collect();
        let _ = writeln!(valued, "            case {}\n                set value yes", patterns.join(" "));
    }
    let mut script = FISH.replace("@VALUED@\n", &valued);
    fish_flags(&mut script, "__rt_at \"\"", flags(None));
    for command in program.shown() {
        let (name, summary) = (command.name, command.summary.replace('\'', "\\'"));
        let _ = writeln!(script, "complete -c rt -n '__rt_at \"\"' -a {name} -d '{summary}'");
    }
    for command in program.shown() {
        let name = command.name;
        fish_flags(&mut script, &format!("__rt_at {name}"), flags(Some(command)));
        let Operands { kinds, repeats } = operands(command);
        for (n, kinds) in kinds.iter().enumerate().filter(|(_, kinds)| !kinds.is_empty()) {
            let n = if repeats { String::new() } else { format!(" {n}") };
            let offer = fish_offer(kinds);
            let _ = writeln!(script, "complete -c rt -n '__rt_at {name}{n}' -a '{offer}'");
        }
        if command.rest != Rest::None {
            let _ = writeln!(script, "complete -c rt -n '__rt_behind {name}' -F");
        }
    }
    script
}

const FISH: &str = r#"# fish completion for rt
complete -c rt -f

# Sets command and operands to what stands before the word that is completed, and behind where it is the program's.
function __rt_words --no-scope-shadowing
    set command ''
    set operands 0
    set behind no
    set -l value no
    for word in (commandline -opc)[2..]
        if test $value = yes
            set value no
            continue
        end
        switch "$command:$word"
@VALUED@
            case ':--'
            case '*:--'
                set behind yes
            case '*:-*'
            case ':*'
                set command $word
            case '*'
                set operands (math $operands + 1)
        end
    end
    if contains -- "$command" exec ps; and test $operands -gt 0
        set behind yes
    end
end

# Is this the command, and is it at this operand?
function __rt_at
    set -l command
    set -l operands
    set -l behind
    __rt_words
    test "$command" = "$argv[1]" -a $behind = no; or return
    not set -q argv[2]; or test $operands = $argv[2]
end
function __rt_behind
    set -l command
    set -l operands
    set -l behind
    __rt_words
    test "$command" = "$argv[1]" -a $behind = yes
end

function __rt_images
    rt images 2>/dev/null | sed -e 1d -e '/^</d' -e 's/ .*//'
end
# What is typed of an operand, or of a flag's value.
function __rt_value
    string replace -r '^--[^=]*=' '' -- (commandline -ct)
end
function __rt_bundles
    __fish_complete_path (__rt_value) | string match -r '^[^\t]*(?:/|\.sqsh|\.squashfs|\.sqfs|\.sif)(?:\t.*)?$'
end
function __rt_binds
    set -l value (__rt_value)
    string match -q '*:*' -- $value; or __fish_complete_path $value
end

"#;

#[cfg(test)]
mod tests {
    use super::*;
    use rt_cli::command::ONE_ID;
    use rt_cli::flag::{switch, value};

    static BUNDLE: Flag = value("bundle", "DIR", "").short('b');
    static FORCE: Flag = switch("force", "");

    fn of(usage: &'static [&'static str], name: &'static str) -> Operands {
        static FLAGS: &[&Flag] = &[&BUNDLE, &FORCE];
        operands(Box::leak(Box::new(Command { usage, name, flags: FLAGS, ..ONE_ID })))
    }

    #[test]
    fn operands_are_read_from_usage_lines() {
        let ids = || vec![Values::Ids];
        static FORMS: [Command; 3] = [
            Command { name: "slurm run", usage: &["--bundle DIR ID"], flags: &[&BUNDLE], ..ONE_ID },
            Command { name: "slurm kill", usage: &["ID [SIGNAL]"], ..ONE_ID },
            Command { name: "slurm delete", usage: &["[--force] ID|JOBID"], flags: &[&FORCE], ..ONE_ID },
        ];
        static SLURM: Command = Command { name: "slurm", forms: &FORMS, ..ONE_ID };
        let words = Values::Words(vec!["run", "kill", "delete"]);
        assert_eq!(operands(&SLURM).kinds, [vec![words], ids(), vec![Values::Signals]]);
        let images = vec![Values::Images, Values::Bundles];
        assert_eq!(of(&["IMAGE|BUNDLE [-- ARGS...]", "[-b BUNDLE] ID [-- ARGS...]"], "run").kinds, [images]);
        assert_eq!(of(&["ID"], "create").kinds, [vec![]]);
        assert_eq!(of(&["IMAGE..."], "rmi"), Operands { kinds: vec![vec![Values::Images]], repeats: true });
        assert_eq!(of(&["ID", "JOBID[.STEP[.TASK]]"], "delete").kinds, [ids()]);
        assert_eq!(of(&[""], "list").kinds, Vec::<Vec<Values>>::new());
    }

    #[test]
    fn values_are_read_from_metavariables() {
        assert_eq!(values("always|missing|never"), [Values::Words(vec!["always", "missing", "never"])]);
        assert_eq!(values("SRC:DST[:OPTIONS]"), [Values::Binds]);
        assert!(values("N").is_empty() && values("VENDOR/CLASS=NAME").is_empty());
    }
}
