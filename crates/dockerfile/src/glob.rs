//! Patterns for names: those of COPY (Go's filepath.Match), of .dockerignore (moby's patternmatcher) and of `${v#pattern}`.
//!
//! A pattern is run as a set of states, so that no pattern takes longer than its length times that of the text.

/// Whose rules a pattern follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// Go's filepath.Match: `*`, `?` and `[a-z]`, none of which crosses a slash.
    Path,
    /// What [`Rules::Path`] has, and `**` for any number of directories.
    Ignore,
    /// `*` and `?` stand for any characters.
    Variable,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Literal(char),
    /// One character; a slash only where the flag says so.
    One(bool),
    /// Any number of characters, with slashes where the flag says so.
    Many(bool),
    /// Nothing, or directories with their last slash: `**/`.
    Directories,
    /// One character of these ranges, or of all others.
    Class(bool, Vec<(char, char)>),
}

/// A pattern that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<Token>);

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// It ends in an escape, or a class in it does not end.
    pub fn new(text: &str, rules: Rules) -> Result<Pattern, String> {
        let bad = || format!("{text:?}: not a pattern");
        let (slashes, classes) = (rules == Rules::Variable, rules != Rules::Variable);
        let mut tokens = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            tokens.push(match c {
                '\\' => Token::Literal(rest.next().ok_or_else(bad)?),
                '?' => Token::One(slashes),
                '*' if rules == Rules::Ignore && rest.next_if_eq(&'*').is_some() => match rest.peek() {
                    Some('/') => {
                        rest.next();
                        Token::Directories
                    }
                    Some(_) => Token::Directories,
                    None => Token::Many(true),
                },
                '*' => Token::Many(slashes),
                '[' if classes => class(&mut rest)
                    // moby's patternmatcher makes a regular expression of a pattern, which has no empty ranges.
                    .filter(|token| rules != Rules::Ignore || !has_empty_range(token))
                    .ok_or_else(bad)?,
                c => Token::Literal(c),
            });
        }
        Ok(Pattern(tokens))
    }

    /// True where the whole of `text` is what the pattern describes.
    pub fn matches(&self, text: &str) -> bool {
        let tokens = &self.0;
        let mut states = vec![false; tokens.len() + 1];
        states[0] = true;
        self.skip_empty(&mut states);
        // `**/` is left only behind a slash: a state of its own says that it is in the middle of a name.
        let mut inside = vec![false; tokens.len()];
        for c in text.chars() {
            let (mut next, mut next_inside) = (vec![false; states.len()], vec![false; inside.len()]);
            for (at, token) in tokens.iter().enumerate() {
                if inside[at] {
                    next_inside[at] = true;
                    next[at + 1] |= c == '/';
                }
                if !states[at] {
                    continue;
                }
                match token {
                    Token::Literal(l) => next[at + 1] |= *l == c,
                    Token::One(slash) => next[at + 1] |= *slash || c != '/',
                    Token::Many(slash) => next[at] |= *slash || c != '/',
                    Token::Directories => {
                        next_inside[at] = true;
                        next[at + 1] |= c == '/';
                    }
                    Token::Class(not, ranges) => {
                        let among = ranges.iter().any(|(low, high)| (low..=high).contains(&&c));
                        next[at + 1] |= c != '/' && among != *not;
                    }
                }
            }
            (states, inside) = (next, next_inside);
            self.skip_empty(&mut states);
        }
        states[tokens.len()]
    }

    /// Passes over tokens that may stand for nothing.
    fn skip_empty(&self, states: &mut [bool]) {
        for (at, token) in self.0.iter().enumerate() {
            if matches!(token, Token::Many(_) | Token::Directories) {
                states[at + 1] |= states[at];
            }
        }
    }
}

fn class(rest: &mut std::iter::Peekable<std::str::Chars>) -> Option<Token> {
    let not = rest.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    let one = |rest: &mut std::iter::Peekable<std::str::Chars>| match rest.next()? {
        '\\' => rest.next(),
        '-' | ']' => None,
        c => Some(c),
    };
    loop {
        if rest.next_if_eq(&']').is_some() {
            return (!ranges.is_empty()).then_some(Token::Class(not, ranges));
        }
        let low = one(rest)?;
        let high = match rest.next_if_eq(&'-') {
            Some(_) => one(rest)?,
            None => low,
        };
        ranges.push((low, high));
    }
}

fn has_empty_range(token: &Token) -> bool {
    matches!(token, Token::Class(_, ranges) if ranges.iter().any(|(low, high)| low > high))
}

/// True where `text` has a character that makes it a pattern of COPY.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '\\'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rules: Rules, pattern: &str, yes: &[&str], no: &[&str]) {
        let read = Pattern::new(pattern, rules).unwrap();
        yes.iter().for_each(|text| assert!(read.matches(text), "{pattern} should match {text}"));
        no.iter().for_each(|text| assert!(!read.matches(text), "{pattern} should not match {text}"));
    }

    #[test]
    fn names_of_files() {
        check(Rules::Path, "*.txt", &[".txt", "a.txt"], &["a/b.txt", "a.txt.b", ""]);
        check(Rules::Path, "a/?[b-d^]", &["a/xc", "a/x^"], &["a/xa", "a//b", "a/x"]);
        check(Rules::Path, "[^a]x", &["bx"], &["ax", "/x", "x"]);
        check(Rules::Path, r"\*[\]]", &["*]"], &["a]", "*"]);
        check(Rules::Path, "**", &["abc"], &["a/b"]);
        for bad in
            ["[", "[]", "[a", r"\", "[a-", "[^]", "[-]", "[-x]", "[x-]", "[a-b-c]", "[^-a]", "[]a]", "[a-]"]
        {
            assert!(Pattern::new(bad, Rules::Path).is_err(), "{bad}");
            assert!(Pattern::new(bad, Rules::Ignore).is_err(), "{bad}");
        }
        assert!(Pattern::new("[b-a]", Rules::Path).is_ok() && Pattern::new("[b-a]", Rules::Ignore).is_err());
        check(Rules::Path, r"[\-x][a-b\-]", &["-a", "x-"], &["xx", "yb"]);
    }

    #[test]
    fn directories_of_any_depth() {
        check(Rules::Ignore, "**/a", &["a", "x/a", "x/y/a"], &["xa", "x/ab", "a/x"]);
        check(Rules::Ignore, "a/**", &["a/", "a/b", "a/b/c"], &["a", "ab"]);
        check(Rules::Ignore, "a/**/b", &["a/b", "a/x/b", "a/x/y/b"], &["ab", "a/xb"]);
        check(Rules::Ignore, "**", &["a", "a/b"], &[]);
        check(Rules::Ignore, "a*b**/c", &["ab/c", "axb/y/c", "abc"], &["a/b/c"]);
    }

    #[test]
    fn values_of_variables() {
        check(Rules::Variable, "a*", &["a", "a/b"], &["b"]);
        check(Rules::Variable, "[a]?", &["[a]x", "[a]/"], &["ax"]);
    }

    #[test]
    fn no_pattern_takes_for_ever() {
        let text = "a".repeat(5000);
        check(Rules::Ignore, &format!("{}b", "*a**/".repeat(40)), &[], &[&text]);
    }
}
