//! Words of a line and the expansion of variables in them, as BuildKit's `shell` package has them.

use crate::glob::{Pattern, Rules};
use std::iter::Peekable;
use std::str::Chars;

/// So deep may `${a:-${b:-...}}` go.
const MOST_NESTED: usize = 64;
/// So long may a text become by its variables.
const LONGEST: usize = 4 << 20;

/// The value of a variable, where it has one.
pub type Values<'a> = &'a dyn Fn(&str) -> Option<String>;

/// `text` with its variables expanded and its quotes removed, as one word.
///
/// # Errors
/// A quote or a brace does not end, a form of expansion is none, or `${v:?}` finds no value.
pub fn expand(text: &str, escape: char, values: Values) -> Result<String, String> {
    Lexer::new(text, escape, values).all().map(|(text, _)| text)
}

/// `text` with its variables expanded and its quotes as they are, as the content of a heredoc is expanded.
///
/// # Errors
/// As for [`expand`].
pub fn expand_content(text: &str, escape: char, values: Values) -> Result<String, String> {
    let mut lexer = Lexer { quotes: false, ..Lexer::new(text, escape, values) };
    lexer.all().map(|(text, _)| text)
}

/// The words of `text`, with its variables expanded and its quotes removed.
///
/// # Errors
/// As for [`expand`].
pub fn expand_words(text: &str, escape: char, values: Values) -> Result<Vec<String>, String> {
    Lexer::new(text, escape, values).all().map(|(_, words)| words)
}

/// The words of `text` as they are written: what is quoted or escaped separates none.
pub fn split(text: &str, escape: char) -> Vec<String> {
    split_where(text, escape, |_, _| {})
}

/// The same, where `more` takes what belongs to a word behind a character outside of quotes.
pub(crate) fn split_where(
    text: &str,
    escape: char,
    more: impl Fn(&mut Peekable<Chars>, &mut String),
) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match quote {
            None if c.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            None if c == '\'' || c == '"' => quote = Some(c),
            Some(q) if c == q => quote = None,
            _ => {}
        }
        word.push(c);
        // Nothing is escaped in single quotes.
        if c == escape && quote != Some('\'') {
            word.extend(chars.next());
        } else if quote.is_none() {
            more(&mut chars, &mut word);
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

struct Lexer<'a> {
    rest: Peekable<Chars<'a>>,
    escape: char,
    values: Values<'a>,
    /// Quotes are quotes, and not characters as others.
    quotes: bool,
    depth: usize,
    /// How many characters came out of variables.
    made: usize,
}

/// Words in the making.
#[derive(Default)]
struct Words {
    done: Vec<String>,
    word: Option<String>,
}

impl Words {
    fn raw(&mut self, text: &str) {
        self.word.get_or_insert_default().push_str(text);
    }

    fn split(&mut self, text: &str) {
        for c in text.chars() {
            match c.is_whitespace() {
                true => self.done.extend(self.word.take()),
                false => self.word.get_or_insert_default().push(c),
            }
        }
    }
}

impl<'a> Lexer<'a> {
    fn new(text: &'a str, escape: char, values: Values<'a>) -> Lexer<'a> {
        Lexer { rest: text.chars().peekable(), escape, values, quotes: true, depth: 0, made: 0 }
    }

    fn all(&mut self) -> Result<(String, Vec<String>), String> {
        let (text, mut words) = self.until(None, false)?;
        words.done.extend(words.word.take());
        Ok((text, words.done))
    }

    /// Reads up to `stop`, or to the end where there is none. In a pattern escapes stay as they are.
    fn until(&mut self, stop: Option<char>, pattern: bool) -> Result<(String, Words), String> {
        self.depth += 1;
        if self.depth > MOST_NESTED {
            return Err(format!("variables within each other more than {MOST_NESTED} deep"));
        }
        let (mut text, mut words) = (String::new(), Words::default());
        let mut add = |piece: &str, splits: bool| {
            text.push_str(piece);
            if splits { words.split(piece) } else { words.raw(piece) }
        };
        loop {
            let Some(c) = self.rest.next() else {
                if stop.is_some() {
                    return Err("syntax error: missing '}'".to_owned());
                }
                break;
            };
            match c {
                c if Some(c) == stop => break,
                '\'' if self.quotes => add(&self.single_quoted()?, false),
                '"' if self.quotes => add(&self.double_quoted()?, false),
                '$' => add(&self.variable()?, true),
                c if c == self.escape => {
                    if pattern {
                        add(&c.to_string(), false);
                    }
                    if let Some(c) = self.rest.next() {
                        add(&c.to_string(), false);
                    }
                }
                c => add(c.encode_utf8(&mut [0; 4]), true),
            }
        }
        self.depth -= 1;
        Ok((text, words))
    }

    fn single_quoted(&mut self) -> Result<String, String> {
        let mut text = String::new();
        loop {
            match self.rest.next() {
                Some('\'') => return Ok(text),
                Some(c) => text.push(c),
                None => return Err("a single quote does not end".to_owned()),
            }
        }
    }

    fn double_quoted(&mut self) -> Result<String, String> {
        let mut text = String::new();
        loop {
            match self.rest.next() {
                Some('"') => return Ok(text),
                Some('$') => text.push_str(&self.variable()?),
                Some(c) if c == self.escape => match self.rest.next() {
                    Some(next) => {
                        if next != '"' && next != '$' && next != self.escape {
                            text.push(c);
                        }
                        text.push(next);
                    }
                    None => return Err("a double quote does not end".to_owned()),
                },
                Some(c) => text.push(c),
                None => return Err("a double quote does not end".to_owned()),
            }
        }
    }

    /// What follows a dollar sign.
    fn variable(&mut self) -> Result<String, String> {
        let value = self.variable_of_any_length()?;
        self.made = self.made.saturating_add(value.len());
        if self.made > LONGEST {
            return Err(format!("with its variables the text is longer than {LONGEST} bytes"));
        }
        Ok(value)
    }

    fn variable_of_any_length(&mut self) -> Result<String, String> {
        if self.rest.next_if_eq(&'{').is_none() {
            let name = self.name();
            return Ok(if name.is_empty() {
                "$".to_owned()
            } else {
                (self.values)(&name).unwrap_or_default()
            });
        }
        let bad = || Err("syntax error: bad substitution".to_owned());
        if matches!(self.rest.peek(), Some('{' | '}' | ':')) {
            return bad();
        }
        let name = self.name();
        let value = (self.values)(&name);
        let mut sign = self.rest.next();
        let colon = sign == Some(':');
        if colon {
            sign = self.rest.next();
        }
        let unset = value.is_none() || colon && value.as_deref() == Some("");
        match sign {
            Some('}') if !colon => Ok(value.unwrap_or_default()),
            Some('-') => self.word(false).map(|word| if unset { word } else { value.unwrap_or_default() }),
            Some('+') => self.word(false).map(|word| if unset { String::new() } else { word }),
            Some('?') => {
                let word = self.word(false)?;
                match (unset, value) {
                    (false, Some(value)) => Ok(value),
                    _ if !word.is_empty() => Err(format!("{name}: {word}")),
                    (_, None) => Err(format!("{name}: is not allowed to be unset")),
                    _ => Err(format!("{name}: is not allowed to be empty")),
                }
            }
            Some(sign @ ('#' | '%')) if !colon => {
                let word = self.word(true)?;
                let longest = word.starts_with(sign);
                let pattern = word.strip_prefix(sign).unwrap_or(&word);
                trim(&value.unwrap_or_default(), pattern, sign == '#', longest)
            }
            Some('/') if !colon => {
                let all = self.rest.next_if_eq(&'/').is_some();
                let (pattern, _) = self.until(Some('/'), true)?;
                let replacement = self.word(false)?;
                replace(&value.unwrap_or_default(), &pattern, &replacement, all)
            }
            Some(sign) => {
                let colon = if colon { ":" } else { "" };
                Err(format!("unsupported modifier ({colon}{sign}) in substitution"))
            }
            None => Err("syntax error: missing '}'".to_owned()),
        }
    }

    /// The word behind a sign, up to the closing brace.
    fn word(&mut self, pattern: bool) -> Result<String, String> {
        self.until(Some('}'), pattern).map(|(text, _)| text)
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        let Some(&first) = self.rest.peek() else { return name };
        if first.is_ascii_digit() {
            while let Some(c) = self.rest.next_if(char::is_ascii_digit) {
                name.push(c);
            }
        } else if "@*#?-$!".contains(first) {
            name.extend(self.rest.next());
        } else {
            while let Some(c) = self.rest.next_if(|c| c.is_alphanumeric() || *c == '_') {
                name.push(c);
            }
        }
        name
    }
}

fn boundaries(text: &str) -> Vec<usize> {
    text.char_indices().map(|(at, _)| at).chain([text.len()]).collect()
}

/// Values that are cut and replaced in are not longer: each length is tried.
const LONGEST_CUT: usize = 4096;

fn readable(value: &str) -> Result<(), String> {
    if value.len() > LONGEST_CUT {
        return Err(format!("a value of more than {LONGEST_CUT} bytes is not cut"));
    }
    Ok(())
}

fn trim(value: &str, pattern: &str, front: bool, longest: bool) -> Result<String, String> {
    readable(value)?;
    let pattern = Pattern::new(pattern, Rules::Variable)?;
    let mut places = boundaries(value);
    // From the shortest piece that is cut off to the longest.
    if front == longest {
        places.reverse();
    }
    for at in places {
        let (head, tail) = value.split_at(at);
        let (cut, kept) = if front { (head, tail) } else { (tail, head) };
        if pattern.matches(cut) {
            return Ok(kept.to_owned());
        }
    }
    Ok(value.to_owned())
}

fn replace(value: &str, pattern: &str, replacement: &str, all: bool) -> Result<String, String> {
    readable(value)?;
    let pattern = Pattern::new(pattern, Rules::Variable)?;
    let places = boundaries(value);
    let (mut out, mut done, mut at) = (String::new(), 0, 0);
    while at < places.len() {
        let begin = places[at];
        let end = (at + 1..places.len()).rev().find(|&end| pattern.matches(&value[begin..places[end]]));
        match end {
            Some(end) => {
                out.push_str(&value[done..begin]);
                out.push_str(replacement);
                (done, at) = (places[end], end);
                if !all {
                    break;
                }
            }
            None => at += 1,
        }
    }
    out.push_str(&value[done..]);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(name: &str) -> Option<String> {
        Some(match name {
            "v" => "value".to_owned(),
            "p" => "/usr/lib/lib.so.1".to_owned(),
            "empty" => String::new(),
            "two" => "one two".to_owned(),
            "star" => "a*b".to_owned(),
            "ü" => "umlaut".to_owned(),
            _ => return None,
        })
    }

    #[test]
    fn every_form_of_expansion() {
        for (text, wanted) in [
            ("$v${v}x", "valuevaluex"),
            ("$", "$"),
            ("a$ b", "a$ b"),
            ("$vx", ""),
            ("$none", ""),
            ("${v:-w}|${v-w}|${empty:-w}|${empty-w}|${none-w}", "value|value|w||w"),
            ("${v:+w}|${v+w}|${empty:+w}|${empty+w}|${none:+w}", "w|w||w|"),
            ("${v:?no}|${v?}|${empty?}", "value|value|"),
            ("${none:-${v}/$v}", "value/value"),
            ("${none:-'$v}'}", "$v}"),
            ("${p#*/}|${p##*/}|${p%.*}|${p%%.*}", "usr/lib/lib.so.1|lib.so.1|/usr/lib/lib.so|/usr/lib/lib"),
            ("${p#x}|${p%x}|${v#?}|${v%%*}", "/usr/lib/lib.so.1|/usr/lib/lib.so.1|alue|"),
            ("${p/lib/x}|${p//lib/x}|${v//?/.}|${p/*./}", "/usr/x/lib.so.1|/usr/x/x.so.1|.....|1"),
            (r"${star/\*/-}|${star#a\*}|${star//b/$v}", "a-b|b|a*value"),
            (r"\$v", "$v"),
            (r"\\$v", r"\value"),
            ("'$v'", "$v"),
            ("\"$v'\"", "value'"),
            (r#""\$v \x \" \\""#, r#"$v \x " \"#),
            ("a'b c'\"d\"", "ab cd"),
            ("$1$@$?", ""),
            ("$ü", "umlaut"),
        ] {
            assert_eq!(expand(text, '\\', &values).as_deref(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_expansion() {
        for text in [
            "${",
            "${}",
            "${v",
            "${v:}",
            "${v:#x}",
            "${v:%x}",
            "${v^}",
            "${v:-",
            "'",
            "\"",
            "\"$v",
            "${none?}",
            "${empty:?}",
            "${{v}}",
            "${v/x}",
        ] {
            assert!(expand(text, '\\', &values).is_err(), "{text}: {:?}", expand(text, '\\', &values));
        }
        assert_eq!(expand("${none:?give $v}", '\\', &values), Err("none: give value".to_owned()));
        let deep = format!("{}x{}", "${none:-".repeat(1000), "}".repeat(1000));
        assert!(expand(&deep, '\\', &values).is_err());
    }

    #[test]
    fn the_escape_can_be_another() {
        assert_eq!(expand(r"c:\$v`$v", '`', &values).unwrap(), r"c:\value$v");
    }

    #[test]
    fn words_of_variables_are_split_where_they_are_not_quoted() {
        let words = |text: &str| expand_words(text, '\\', &values).unwrap();
        assert_eq!(words("$two '$two' \"$two\"  x"), ["one", "two", "$two", "one two", "x"]);
        assert_eq!(words(r"a\ b $none '' c"), ["a b", "", "c"]);
    }

    #[test]
    fn words_as_they_are_written() {
        assert_eq!(split(r#"a="b c" d\ e 'f\' g"#, '\\'), [r#"a="b c""#, r"d\ e", r"'f\'", "g"]);
        assert_eq!(expand_content("'$v' \"\\$v\"\n", '\\', &values).unwrap(), "'value' \"$v\"\n");
    }
}
