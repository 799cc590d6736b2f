//! What announces a heredoc, and the line that ends it.

use crate::Heredoc;
use std::cell::OnceCell;
use std::collections::HashMap;

/// What a word announces.
pub(crate) struct Mark {
    /// It, still empty.
    pub heredoc: Heredoc,
    /// A blank stands before its name. A shell's `$((1 << 2))` looks the same.
    pub has_blank: bool,
}

/// The words of a line, of which a blank behind `<<` separates none.
pub(crate) fn words(text: &str) -> Vec<String> {
    crate::words::split_where(text, '\\', |chars, word| {
        if word.ends_with('<') && chars.next_if_eq(&'<').is_some() {
            word.push('<');
            word.extend(chars.next_if_eq(&'-'));
            while let Some(blank) = chars.next_if(|c| c.is_whitespace()) {
                word.push(blank);
            }
        }
    })
}

/// What a word announces: `<<EOF`, `<<-EOF`, `3<< 'EOF'`.
pub(crate) fn mark(word: &str) -> Option<Mark> {
    let rest = word.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix("<<")?;
    let (tabs, rest) = match rest.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let name = rest.trim_start();
    let has_blank = name.len() < rest.len();
    if name.contains('<') {
        return None;
    }
    let (name, is_quoted) = unquoted(name)?;
    let heredoc = Heredoc { name, content: String::new(), expands: !is_quoted, tabs };
    Some(Mark { heredoc, has_blank })
}

/// A word without its quotes and escapes, and whether it had quotes. None where it is no word, or more than one.
fn unquoted(word: &str) -> Option<(String, bool)> {
    let (mut text, mut is_quoted) = (String::new(), false);
    let mut chars = word.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => {
                is_quoted = true;
                loop {
                    match chars.next()? {
                        end if end == c => break,
                        '\\' if c == '"' => match chars.next()? {
                            next @ ('"' | '$' | '\\') => text.push(next),
                            next => text.extend(['\\', next]),
                        },
                        inner => text.push(inner),
                    }
                }
            }
            '\\' => text.extend(chars.next()),
            c if c.is_whitespace() => return None,
            c => text.push(c),
        }
    }
    (!text.is_empty()).then_some((text, is_quoted))
}

/// Whether a line ends this heredoc.
pub(crate) fn ends(heredoc: &Heredoc, line: &str) -> bool {
    without_tabs(line, heredoc.tabs) == heredoc.name
}

fn without_tabs(line: &str, tabs: bool) -> &str {
    if tabs { line.trim_start_matches('\t') } else { line }
}

/// Which lines a file has, to be asked for any number of heredocs.
pub(crate) struct Ends<'a> {
    lines: &'a [&'a str],
    last: OnceCell<HashMap<(bool, &'a str), usize>>,
}

impl<'a> Ends<'a> {
    pub(crate) fn new(lines: &'a [&'a str]) -> Ends<'a> {
        Ends { lines, last: OnceCell::new() }
    }

    /// True where a line from number `at` on ends `heredoc`.
    pub(crate) fn has(&self, heredoc: &Heredoc, at: usize) -> bool {
        let last = self.last.get_or_init(|| {
            let both = |(at, line)| [false, true].map(|tabs| ((tabs, without_tabs(line, tabs)), at));
            self.lines.iter().copied().enumerate().flat_map(both).collect()
        });
        last.get(&(heredoc.tabs, heredoc.name.as_str())).is_some_and(|last| *last >= at)
    }
}
