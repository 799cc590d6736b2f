//! Reads a config's JSON (RFC 8259) straight into its types.
//!
//! A start reads one config and knows every key that it wants. Derived readers, which must be ready for any order of
//! anything, cost a container a tenth of its start; this one reads what is common by hand and gives what is rare to
//! serde_json. A null is a field that is not there, as for runc.

use rt_sys::error::Error;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;

/// The text is not what was wanted; the reader knows why.
#[derive(Debug)]
pub(crate) struct Wrong;

/// What reading yields.
pub(crate) type Read<T> = Result<T, Wrong>;

/// So deep may values that nobody knows be nested.
const DEEPEST: u32 = 128;

/// A place in a JSON text.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// The last key, for errors.
    key: Cow<'a, str>,
    reason: Cow<'static, str>,
    /// What was read and cannot be used.
    pub warnings: Vec<String>,
}

impl<'a> Reader<'a> {
    /// At the beginning of `text`.
    pub(crate) fn new(text: &'a str) -> Self {
        let key = Cow::Borrowed("");
        Reader { text, at: 0, key, reason: Cow::Borrowed(""), warnings: Vec::new() }
    }

    /// Reads the one value of the text.
    pub(crate) fn whole<T: Value>(&mut self) -> Result<T, Error> {
        let value = T::read(self).and_then(|value| match self.peek() {
            None => Ok(value),
            Some(_) => self.wrong("nothing more is expected"),
        });
        value.map_err(|Wrong| self.error())
    }

    #[cold]
    fn error(&self) -> Error {
        let before = &self.text.as_bytes()[..self.at.min(self.text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        let key = if self.key.is_empty() { String::new() } else { format!("{}: ", self.key) };
        Error::new(format!("{key}{} at line {line} column {column}", self.reason))
    }

    /// Refuses what is here.
    #[cold]
    pub(crate) fn wrong<T>(&mut self, reason: impl Into<Cow<'static, str>>) -> Read<T> {
        self.reason = reason.into();
        Err(Wrong)
    }

    /// The next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            if byte > b' ' || !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    /// Takes the next byte that is no white space, if it is this one.
    fn eat(&mut self, wanted: u8) -> bool {
        let there = self.peek() == Some(wanted);
        self.at += usize::from(there);
        there
    }

    fn word(&mut self, word: &str) -> bool {
        self.peek();
        let there = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        self.at += if there { word.len() } else { 0 };
        there
    }

    /// Takes a null.
    pub(crate) fn null(&mut self) -> bool {
        self.peek() == Some(b'n') && self.word("null")
    }

    /// Reads an object; `field` reads the value of each key.
    pub(crate) fn object(&mut self, field: &mut dyn FnMut(&mut Self, &str) -> Read<()>) -> Read<()> {
        if !self.eat(b'{') {
            return self.wrong("expected an object");
        }
        if self.eat(b'}') {
            return Ok(());
        }
        loop {
            if self.peek() != Some(b'"') {
                return self.wrong("expected a key in quotes");
            }
            let key = self.text()?;
            if !self.eat(b':') {
                return self.wrong("expected a colon");
            }
            self.key = key.clone();
            field(self, &key)?;
            if self.eat(b'}') {
                return Ok(());
            }
            if !self.eat(b',') {
                return self.wrong("expected a comma or the end of an object");
            }
        }
    }

    /// Reads an array; `item` reads each of its values.
    pub(crate) fn array(&mut self, item: &mut dyn FnMut(&mut Self) -> Read<()>) -> Read<()> {
        if !self.eat(b'[') {
            return self.wrong("expected an array");
        }
        if self.eat(b']') {
            return Ok(());
        }
        loop {
            item(self)?;
            if self.eat(b']') {
                return Ok(());
            }
            if !self.eat(b',') {
                return self.wrong("expected a comma or the end of an array");
            }
        }
    }

    /// Reads a string.
    pub(crate) fn text(&mut self) -> Read<Cow<'a, str>> {
        if !self.eat(b'"') {
            return self.wrong("expected a string");
        }
        let bytes = self.text.as_bytes();
        let start = self.at;
        for eight in bytes[start..].as_chunks().0 {
            let plain = plain(*eight);
            self.at += plain;
            if plain < 8 {
                break;
            }
        }
        loop {
            match bytes.get(self.at) {
                Some(b'"') => {
                    let text = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(Cow::Borrowed(text));
                }
                Some(b'\\') => return self.escaped(start).map(Cow::Owned),
                Some(0..0x20) => return self.wrong("a control character in a string"),
                Some(_) => self.at += 1,
                None => return self.wrong("a string without an end"),
            }
        }
    }

    /// The rest of a string that began at `start` and has an escape here.
    #[cold]
    fn escaped(&mut self, start: usize) -> Read<String> {
        let mut text = self.text[start..self.at].to_owned();
        loop {
            let rest = &self.text[self.at..];
            let Some(next) = rest.chars().next() else { return self.wrong("a string without an end") };
            self.at += next.len_utf8();
            match next {
                '"' => return Ok(text),
                '\0'..' ' => return self.wrong("a control character in a string"),
                '\\' => {
                    let letter = self.text.as_bytes().get(self.at).copied();
                    self.at += usize::from(letter.is_some());
                    text.push(match letter {
                        Some(plain @ (b'"' | b'\\' | b'/')) => plain.into(),
                        Some(b'b') => '\x08',
                        Some(b'f') => '\x0c',
                        Some(b'n') => '\n',
                        Some(b'r') => '\r',
                        Some(b't') => '\t',
                        Some(b'u') => self.unicode()?,
                        _ => {
                            self.at -= usize::from(letter.is_some());
                            return self.wrong("no such escape");
                        }
                    });
                }
                next => text.push(next),
            }
        }
    }

    /// The character of `\uXXXX`, or of two of them, after the `u`.
    fn unicode(&mut self) -> Read<char> {
        let high = self.hex()?;
        let code = match high {
            0xd800..0xdc00 if self.text.as_bytes()[self.at..].starts_with(b"\\u") => {
                self.at += 2;
                match self.hex()? {
                    low @ 0xdc00..0xe000 => 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00),
                    _ => return self.wrong("half a character"),
                }
            }
            code => code,
        };
        match char::from_u32(code) {
            Some(character) => Ok(character),
            None => self.wrong("half a character"),
        }
    }

    fn hex(&mut self) -> Read<u32> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).unwrap_or_default();
        let mut code = 0;
        for digit in digits {
            match (*digit as char).to_digit(16) {
                Some(digit) => code = code << 4 | digit,
                None => return self.wrong("expected four hexadecimal digits"),
            }
        }
        if digits.is_empty() {
            return self.wrong("expected four hexadecimal digits");
        }
        self.at += 4;
        Ok(code)
    }

    /// Reads a whole number.
    fn number(&mut self) -> Read<i128> {
        let negative = self.eat(b'-');
        let bytes = self.text.as_bytes();
        let first = self.at;
        let mut value = 0u64;
        while let Some(digit @ b'0'..=b'9') = bytes.get(self.at) {
            let more = value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit - b'0')));
            let Some(more) = more else { return self.wrong("a number that is too large") };
            value = more;
            self.at += 1;
        }
        let zero_first = self.at > first + 1 && bytes[first] == b'0';
        let fraction = matches!(bytes.get(self.at), Some(b'.' | b'e' | b'E'));
        if self.at == first || zero_first || fraction {
            return self.wrong("expected a whole number");
        }
        Ok(if negative { -i128::from(value) } else { value.into() })
    }

    /// Passes over any value and returns its text.
    pub(crate) fn skip(&mut self) -> Read<&'a str> {
        self.peek();
        let start = self.at;
        self.pass(DEEPEST)?;
        Ok(&self.text[start..self.at])
    }

    fn pass(&mut self, deeper: u32) -> Read<()> {
        if deeper == 0 {
            return self.wrong("values are nested too deeply");
        }
        match self.peek() {
            Some(b'{') => self.object(&mut |r, _| r.pass(deeper - 1)),
            Some(b'[') => self.array(&mut |r| r.pass(deeper - 1)),
            Some(b'"') => self.text().map(|_| ()),
            Some(b'-' | b'0'..=b'9') => {
                let rest = &self.text[self.at..];
                let end = rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
                let number = &rest[..end.unwrap_or(rest.len())];
                if serde_json::from_str::<serde::de::IgnoredAny>(number).is_err() {
                    return self.wrong("expected a number");
                }
                self.at += number.len();
                Ok(())
            }
            _ if self.word("true") || self.word("false") || self.word("null") => Ok(()),
            _ => self.wrong("expected a value"),
        }
    }

    /// Reads what few configs have, by serde_json.
    #[inline(never)]
    pub(crate) fn rare<T: DeserializeOwned>(&mut self) -> Read<T> {
        let key = self.key.clone();
        let text = self.skip()?;
        serde_json::from_str(text).or_else(|e| {
            // What was passed over had keys of its own; none of them is known to be the wrong one.
            self.key = key;
            let text = e.to_string();
            // The place in the text, and not in this part of it, comes with the error.
            let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
            self.wrong(reason.to_owned())
        })
    }
}

/// How many of eight bytes of a string, from the first, are no quote, no backslash and no control character.
fn plain(eight: [u8; 8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    let word = u64::from_le_bytes(eight);
    // The highest bit of each byte that is below `n`, which is at most 128; bytes after such a one may be wrong.
    let below = |word: u64, n: u64| word.wrapping_sub(ONES * n) & !word & (ONES << 7);
    let special =
        below(word ^ (ONES * b'"' as u64), 1) | below(word ^ (ONES * b'\\' as u64), 1) | below(word, 0x20);
    special.trailing_zeros() as usize / 8
}

/// What a JSON value can be read into.
pub(crate) trait Value: Sized {
    /// Reads it.
    fn read(r: &mut Reader<'_>) -> Read<Self>;
}

impl Value for String {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        r.text().map(Cow::into_owned)
    }
}

impl Value for PathBuf {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        String::read(r).map(PathBuf::from)
    }
}

impl Value for bool {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        match r.word("true") {
            true => Ok(true),
            false if r.word("false") => Ok(false),
            false => r.wrong("expected true or false"),
        }
    }
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Value for $type {
            fn read(r: &mut Reader<'_>) -> Read<Self> {
                let number = r.number()?;
                number.try_into().or_else(|_| r.wrong(concat!("a number out of the range of ", stringify!($type))))
            }
        }
    )*};
}
numbers!(u32 u64 i32 usize);

impl<T: Value> Value for Option<T> {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        if r.null() { Ok(None) } else { T::read(r).map(Some) }
    }
}

impl<T: Value> Value for Vec<T> {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        let mut list = Vec::with_capacity(8);
        r.array(&mut |r| {
            list.push(T::read(r)?);
            Ok(())
        })?;
        Ok(list)
    }
}

impl Value for HashMap<String, String> {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        let mut map = HashMap::new();
        r.object(&mut |r, key| {
            let value = String::read(r)?;
            map.insert(key.to_owned(), value);
            Ok(())
        })?;
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Value>(text: &str) -> Result<T, String> {
        Reader::new(text).whole().map_err(|e| e.to_string())
    }

    #[test]
    fn strings_are_those_of_serde_json() {
        for text in [
            r#""""#,
            r#""plain""#,
            r#" "b\"\\\/\b\f\n\r\t" "#,
            r#""\u0041\u00e9\ud83d\ude00é""#,
            r#""\ud83d""#,
            r#""\ud83dx""#,
            r#""\ude00""#,
            r#""\ud83dA""#,
            r#""\u12"#,
            r#""\u12x4""#,
            r#""\x""#,
            r#""\"#,
            r#""open"#,
            "\"line\nbreak\"",
            r#""a" "b""#,
            "7",
            "",
        ] {
            let theirs = serde_json::from_str::<String>(text);
            assert_eq!(read::<String>(text).ok(), theirs.ok(), "{text}");
        }
    }

    #[test]
    fn strings_end_where_they_end() {
        for length in 0..40 {
            for special in ['"', '\\', '\n', '\x1f', ' ', '!', '#', '[', ']', '\x7f', 'é', '\u{10ffff}'] {
                for at in 0..=length {
                    let text: String = (0..=length).map(|n| if n == at { special } else { 'x' }).collect();
                    let text = format!("\"{text}n\"");
                    assert_eq!(read::<String>(&text).ok(), serde_json::from_str(&text).ok(), "{text}");
                }
            }
        }
    }

    #[test]
    fn numbers_are_whole_and_in_range() {
        for text in
            ["0", "7", "4294967295", "4294967296", "-1", "01", "1.0", "1e3", "18446744073709551616", "-", "x"]
        {
            assert_eq!(read::<u32>(text).ok(), serde_json::from_str(text).ok(), "{text}");
            assert_eq!(read::<i32>(text).ok(), serde_json::from_str(text).ok(), "{text}");
            assert_eq!(read::<u64>(text).ok(), serde_json::from_str(text).ok(), "{text}");
        }
        assert_eq!(read::<u64>("18446744073709551615"), Ok(u64::MAX));
    }

    #[test]
    fn what_is_passed_over_is_json() {
        let skipped = |text: &str| {
            let mut r = Reader::new(text);
            r.skip().is_ok() && r.peek().is_none()
        };
        for text in [
            "null",
            "true",
            "-1.5e+7",
            "[]",
            "{}",
            r#"{"a":[1,{"b":null}],"c":"\n"}"#,
            "[1,]",
            "[1 2]",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{a:1}"#,
            "{",
            "[",
            "nul",
            "1.",
            "1e",
            "--1",
            "\u{feff}1",
            "truefalse",
        ] {
            let theirs = serde_json::from_str::<serde_json::Value>(text).is_ok();
            assert_eq!(skipped(text), theirs, "{text}");
        }
        assert!(!skipped(&"[".repeat(100_000)));
        assert!(skipped(&format!("{}{}", "[".repeat(100), "]".repeat(100))));
    }

    #[test]
    fn errors_say_where() {
        let wrong = |text| read::<HashMap<String, String>>(text).unwrap_err();
        assert_eq!(wrong("{\n \"a\": 7}"), "a: expected a string at line 2 column 7");
        assert_eq!(wrong("{\"a\":\"b\"} x"), "a: nothing more is expected at line 1 column 11");
        assert_eq!(wrong(""), "expected an object at line 1 column 1");
        assert_eq!(read("[\"a\", null]"), Ok(vec![Some("a".to_owned()), None]));
    }
}
