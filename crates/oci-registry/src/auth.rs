//! `WWW-Authenticate`: what a registry asks for (RFC 9110, 11.6.1; distribution's token page). Pure.

use std::time::{Duration, Instant};

use serde::Deserialize;

use rt_sys::err;
use rt_sys::error::Result;

/// What a registry wants to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// User and password with each request.
    Basic,
    /// A token from the server `realm`.
    Bearer {
        /// URL of the token server.
        realm: String,
        /// Whom the token is for.
        service: Option<String>,
        /// What it shall allow.
        scope: Option<String>,
    },
}

/// Reads the header; the strongest scheme that is known wins.
pub(crate) fn parse(header: &str) -> Option<Challenge> {
    let mut basic = None;
    for (scheme, parameters) in split(header) {
        let get = |name: &str| parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        match scheme.as_str() {
            "bearer" => {
                if let Some(realm) = get("realm") {
                    return Some(Challenge::Bearer { realm, service: get("service"), scope: get("scope") });
                }
            }
            "basic" => basic = Some(Challenge::Basic),
            _ => {}
        }
    }
    basic
}

/// Schemes in lower case, each with its parameters.
fn split(header: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut schemes: Vec<(String, Vec<(String, String)>)> = Vec::new();
    let mut rest = header.trim_start_matches([' ', ',', '\t']);
    while !rest.is_empty() {
        let end = rest.find(['=', ' ', ',', '\t']).unwrap_or(rest.len());
        let word = rest[..end].to_ascii_lowercase();
        rest = rest[end..].trim_start_matches([' ', '\t']);
        match rest.strip_prefix('=') {
            Some(value) => {
                let (value, after) = take_value(value.trim_start_matches([' ', '\t']));
                if let Some((_, parameters)) = schemes.last_mut() {
                    parameters.push((word, value));
                }
                rest = after;
            }
            None if end == 0 => break,
            None => schemes.push((word, Vec::new())),
        }
        rest = rest.trim_start_matches([' ', ',', '\t']);
    }
    schemes
}

fn take_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, c)| c)),
            other => value.push(other),
        }
    }
    (value, "")
}

/// A token, and until when to use it.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    /// For the header.
    pub text: String,
    /// A little before it ends.
    pub until: Instant,
}

impl Token {
    /// Reads a token server's answer. Without a lifetime it has 60 seconds.
    pub(crate) fn parse(body: &[u8]) -> Result<Token> {
        #[derive(Deserialize)]
        struct Answer {
            token: Option<String>,
            access_token: Option<String>,
            expires_in: Option<u64>,
        }
        let answer: Answer = serde_json::from_slice(body).map_err(|e| err!("token server: {e}"))?;
        let text = answer.token.or(answer.access_token).filter(|t| !t.is_empty());
        let text = text.ok_or_else(|| err!("token server: no token in its answer"))?;
        let seconds = answer.expires_in.unwrap_or(60).clamp(10, 24 * 3600);
        Ok(Token { text, until: Instant::now() + Duration::from_secs(seconds * 9 / 10) })
    }

    /// False when a new one is due.
    pub(crate) fn fresh(&self) -> bool {
        Instant::now() < self.until
    }
}

/// RFC 4648, with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut word = 0u32;
        for at in 0..3 {
            word = (word << 8) | u32::from(group.get(at).copied().unwrap_or(0));
        }
        for at in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * at)) as usize & 63] as char;
            text.push(if at <= group.len() { digit } else { '=' });
        }
    }
    text
}

/// The bytes of a base64 text; line ends and missing padding are allowed.
pub(crate) fn unbase64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut word, mut bits) = (0u32, 0);
    for byte in text.bytes().filter(|b| !b.is_ascii_whitespace() && *b != b'=') {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        word = (word << 6) | u32::from(digit);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges() {
        let hub = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/debian:pull,push""#;
        assert_eq!(
            parse(hub),
            Some(Challenge::Bearer {
                realm: "https://auth.docker.io/token".into(),
                service: Some("registry.docker.io".into()),
                scope: Some("repository:library/debian:pull,push".into()),
            })
        );
        assert_eq!(parse("Basic realm=\"a, b\""), Some(Challenge::Basic));
        assert_eq!(
            parse(r#"Basic realm="x", BEARER realm = "https://a\"b""#),
            Some(Challenge::Bearer { realm: "https://a\"b".into(), service: None, scope: None })
        );
        for nothing in ["", "Negotiate", "Bearer", "=", "\"", ",,,", "Bearer realm"] {
            assert_eq!(parse(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn base64_there_and_back() {
        for text in ["", "a", "ab", "abc", "user:pass"] {
            assert_eq!(unbase64(&base64(text.as_bytes())).unwrap(), text.as_bytes());
        }
        assert_eq!(base64(b"user:pass"), "dXNlcjpwYXNz");
        assert_eq!(unbase64("*"), None);
    }

    #[test]
    fn tokens() {
        assert!(Token::parse(br#"{"access_token":"x","expires_in":300}"#).unwrap().fresh());
        assert!(Token::parse(br#"{"token":""}"#).is_err());
    }
}
