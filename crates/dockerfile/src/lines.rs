//! From the bytes of a file to its instructions as text: directives, comments, continuations, heredocs.

use crate::heredoc::{self, Ends, Mark};
use crate::{Error, Heredoc};

/// No file is longer.
pub const MOST_BYTES: usize = 4 << 20;

/// An instruction as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// The number of its first line in the file, from 1 on.
    pub number: usize,
    /// Its pieces, joined.
    pub text: String,
    /// What follows it.
    pub heredocs: Vec<Heredoc>,
}

/// What the directives say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lines {
    pub escape: char,
    pub lines: Vec<Line>,
}

pub(crate) fn read(bytes: &[u8]) -> Result<Lines, Error> {
    if bytes.len() > MOST_BYTES {
        return Err(Error::new(1, format!("the file is longer than {MOST_BYTES} bytes")));
    }
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let raw: Vec<&str> = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    let escape = directives(&raw)?;
    let ends = Ends::new(&raw);
    let mut lines = Vec::new();
    let mut at = 0;
    while at < raw.len() {
        let first = at;
        let mut joined = String::new();
        let (piece, mut goes_on) = continued(raw[at].trim_start(), escape);
        at += 1;
        if is_comment(raw[first]) {
            continue;
        }
        joined.push_str(piece);
        while goes_on && at < raw.len() {
            let line = raw[at];
            at += 1;
            if is_comment(line) || line.trim().is_empty() {
                continue;
            }
            let (piece, more) = continued(line, escape);
            joined.push_str(piece);
            goes_on = more;
        }
        let text = joined.trim();
        if text.is_empty() {
            continue;
        }
        let mut heredocs = Vec::new();
        if takes_heredocs(text) && text.contains("<<") {
            for Mark { heredoc, has_blank } in
                heredoc::words(text).iter().filter_map(|word| heredoc::mark(word))
            {
                if has_blank && !ends.has(&heredoc, at) {
                    continue;
                }
                heredocs.push(filled(heredoc, &raw, first, &mut at)?);
            }
        }
        lines.push(Line { number: first + 1, text: text.to_owned(), heredocs });
    }
    Ok(Lines { escape, lines })
}

/// A heredoc with its text, which begins at line `at`, and of which that is behind it afterwards.
fn filled(mut heredoc: Heredoc, lines: &[&str], first: usize, at: &mut usize) -> Result<Heredoc, Error> {
    loop {
        let Some(line) = lines.get(*at) else {
            return Err(Error::new(first + 1, format!("the heredoc {:?} does not end", heredoc.name)));
        };
        *at += 1;
        if heredoc::ends(&heredoc, line) {
            return Ok(heredoc);
        }
        heredoc.content.push_str(line);
        heredoc.content.push('\n');
    }
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// The line without the escape at its end, and whether there was one. Two of them are a character.
fn continued(line: &str, escape: char) -> (&str, bool) {
    let end = line.trim_end_matches([' ', '\t']);
    match end.strip_suffix(escape) {
        Some(rest) if !rest.ends_with(escape) => (rest, true),
        _ => (line, false),
    }
}

fn directives(lines: &[&str]) -> Result<char, Error> {
    let (mut escape, mut seen) = ('\\', Vec::new());
    for (at, line) in lines.iter().enumerate() {
        let Some((key, value)) = line.trim_start().strip_prefix('#').and_then(|rest| rest.split_once('='))
        else {
            break;
        };
        let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
        if !["syntax", "escape", "check"].contains(&key.as_str()) || value.is_empty() {
            break;
        }
        if seen.contains(&key) {
            return Err(Error::new(at + 1, format!("the directive {key} is there twice")));
        }
        if key == "escape" {
            escape = match value {
                "\\" => '\\',
                "`" => '`',
                _ => {
                    return Err(Error::new(
                        at + 1,
                        format!("escape={value}: must be a backslash or a backquote"),
                    ));
                }
            };
        }
        seen.push(key);
    }
    Ok(escape)
}

fn takes_heredocs(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let mut first = words.next();
    if first.is_some_and(|word| word.eq_ignore_ascii_case("ONBUILD")) {
        first = words.next();
    }
    first.is_some_and(|word| ["RUN", "COPY", "ADD"].iter().any(|known| word.eq_ignore_ascii_case(known)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(file: &str) -> Vec<(usize, String)> {
        read(file.as_bytes()).unwrap().lines.into_iter().map(|line| (line.number, line.text)).collect()
    }

    #[track_caller]
    fn check(file: &str, wanted: &[(usize, &str)]) {
        let wanted: Vec<_> = wanted.iter().map(|(n, text)| (*n, (*text).to_owned())).collect();
        assert_eq!(texts(file), wanted);
    }

    #[test]
    fn lines_are_joined_without_what_is_between() {
        check("RUN a \\\n  # comment\n\n  b\\\nc\n", &[(1, "RUN a   bc")]);
        check("RUN a \\  \n b\r\n# x\n  RUN c", &[(1, "RUN a  b"), (4, "RUN c")]);
        check("RUN a \\\\\nRUN b\n", &[(1, "RUN a \\\\"), (2, "RUN b")]);
        check("\u{feff}RUN a \\", &[(1, "RUN a")]);
        check("\\\nRUN a\n", &[(1, "RUN a")]);
    }

    #[test]
    fn directives_come_first() {
        check("# escape=`\nRUN a `\nb c:\\\n", &[(2, "RUN a b c:\\")]);
        check(
            "# Syntax = docker/dockerfile:1\n#escape=`\nRUN a\\\nRUN b`\nc",
            &[(3, "RUN a\\"), (4, "RUN bc")],
        );
        check("# a comment\n# escape=`\nRUN a\\\nb", &[(3, "RUN ab")]);
        check("\n# escape=`\nRUN a\\\nb", &[(3, "RUN ab")]);
        check("# unknown=x\n# escape=`\nRUN a\\\nb", &[(3, "RUN ab")]);
        for bad in ["# escape=x\n", "# escape=`\n# escape=`\n"] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    fn heredocs(file: &str) -> Vec<(String, String, bool)> {
        let lines = read(file.as_bytes()).unwrap().lines;
        lines[0].heredocs.iter().map(|h| (h.name.clone(), h.text(), h.expands)).collect()
    }

    #[test]
    fn heredocs_follow_their_line() {
        let doc = |name: &str, text: &str, expands| (name.to_owned(), text.to_owned(), expands);
        assert_eq!(heredocs("RUN <<EOF\na\\\n# b\n\nEOF\nRUN x"), [doc("EOF", "a\\\n# b\n\n", true)]);
        assert_eq!(heredocs("RUN cat <<'A b' >/f\nx\nA b\n"), [doc("A b", "x\n", false)]);
        assert_eq!(
            heredocs("COPY <<\"a\" 3<<-b /d/\nx\na\n\t\ty\n\tb\n"),
            [doc("a", "x\n", false), doc("b", "y\n", true)]
        );
        assert_eq!(heredocs("RUN cat \\\n <<EOF | sh\nRUN y\nEOF\n"), [doc("EOF", "RUN y\n", true)]);
        for none in ["RUN a <<<b\n", "RUN 'a <<b'\n", "ENV a <<b\n", "RUN x=<<b\n", "RUN a << b\n"] {
            assert_eq!(heredocs(none), [], "{none}");
        }
        check("ONBUILD RUN <<E\nx\nE\nRUN b", &[(1, "ONBUILD RUN <<E"), (4, "RUN b")]);
        assert_eq!(read(b"A\nRUN << 'E' cat\nRUN b\n").unwrap().lines.len(), 3);
        assert_eq!(read(b"A\nRUN <<E\nx\n").unwrap_err().line, 2);
    }

    /// The cases that BuildKit's tests of heredocs have, and some of shells: the instruction, what ends its text, and whether variables
    /// in it are expanded.
    #[test]
    fn each_way_to_write_a_heredoc() {
        for (line, name, expands) in [
            ("RUN <<E", "E", true),
            ("RUN 3<<E", "E", true),
            ("RUN <<-E", "E", true),
            ("RUN <<- E", "E", true),
            ("RUN << E", "E", true),
            ("RUN <<\t E  >/f", "E", true),
            ("RUN << -E", "-E", true),
            ("RUN <<-'E'", "E", false),
            ("RUN <<'E'", "E", false),
            ("RUN << 'E' >/f", "E", false),
            ("RUN <<\"E\"", "E", false),
            ("RUN <<E\"F\"", "EF", false),
            ("RUN <<e'f'", "ef", false),
            (r"RUN <<e\'f", "e'f", true),
            (r"RUN <<'d'e\'f", "de'f", false),
            (r#"RUN <<"e\"\f""#, r#"e"\f"#, false),
            ("RUN <<'one two'", "one two", false),
            ("RUN cat <<'one two' | sh", "one two", false),
            ("RUN <<$E", "$E", true),
            ("RUN <<${E:-f}", "${E:-f}", true),
            ("RUN <<E python3", "E", true),
            ("RUN --mount=type=cache,target=/c <<E", "E", true),
            ("COPY << file.txt /d/", "file.txt", true),
            ("ADD <<file.txt /d/", "file.txt", true),
            ("onbuild run <<E", "E", true),
        ] {
            let file = format!("{line}\n\ttext $v\n{name}\nRUN next\n");
            let doc = (name.to_owned(), "\ttext $v\n".to_owned(), expands);
            let read = read(file.as_bytes()).unwrap().lines;
            let content = |h: &Heredoc| (h.name.clone(), h.content.clone(), h.expands);
            assert_eq!(read[0].heredocs.iter().map(content).collect::<Vec<_>>(), [doc], "{line}");
            assert_eq!(read.len(), 2, "{line}: {read:?}");
        }
        let two = heredocs("COPY <<X << 'Y' /d/\nY\nX\nX\nY\n");
        assert_eq!(two, [("X".into(), "Y\n".into(), true), ("Y".into(), "X\n".into(), false)]);
    }

    /// Of these none announces a text, though a line that could end one follows.
    #[test]
    fn what_announces_no_heredoc() {
        for line in [
            "RUN E",
            "RUN <<",
            "RUN <<-",
            "RUN <E",
            "RUN <<<E",
            "RUN <<< E",
            "RUN '<<E'",
            "RUN \"<< E\"",
            "RUN \"a << E\"",
            r"RUN \<<E",
            "RUN x<<E",
            "RUN x<< E",
            "RUN <<'E",
            "RUN <<\"E",
            "RUN <<E'",
            "RUN [\"<<E\"]",
            "RUN [\"<<'E'\", \"x\"]",
            "USER <<E",
            "ENV a=b << E",
        ] {
            let read = read(format!("{line}\nE\n").as_bytes()).unwrap().lines;
            assert_eq!((read.len(), &read[0].heredocs[..]), (2, &[][..]), "{line}");
        }
        // A shift of the shell's, behind which no line ends a text.
        assert_eq!(heredocs("RUN echo $((1 << 2)) $((x << y ))\nRUN y\n"), []);
        assert_eq!(read(b"RUN <<E\nx\n").unwrap_err().line, 1);
    }

    #[test]
    fn no_number_of_shifts_takes_for_ever() {
        let file = "RUN : << a\n".repeat(100_000);
        assert_eq!(read(file.as_bytes()).unwrap().lines.len(), 100_000);
    }
}
