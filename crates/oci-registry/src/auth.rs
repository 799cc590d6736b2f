//! `WWW-Authenticate`: what a registry asks for (RFC 9110, 11.6.1; distribution's token page). Pure.

use std::time::{Duration, Instant};

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::engine::{DecodePaddingMode, Engine};
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
    /// The text that follows `Bearer ` in the header.
    pub text: String,
    /// The time after which it is not used any more, a little before it ends.
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

/// Base64 of any end: with its padding or without, and of an encoder that filled the last digit with something else than zeros.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// RFC 4648, with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes of a base64 text of either alphabet; line ends and missing padding are allowed.
pub(crate) fn unbase64(text: &str) -> Option<Vec<u8>> {
    let standard = |letter| match letter {
        '-' => '+',
        '_' => '/',
        other => other,
    };
    let text: String = text.chars().filter(|c| !c.is_ascii_whitespace()).map(standard).collect();
    LENIENT.decode(text).ok()
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
        assert_eq!(unbase64("dXNl\ncjpwYXNz\n").unwrap(), b"user:pass");
        assert_eq!(unbase64("_-8").unwrap(), unbase64("/+8=").unwrap());
        assert_eq!(unbase64("*"), None);
    }

    #[test]
    fn tokens() {
        assert!(Token::parse(br#"{"access_token":"x","expires_in":300}"#).unwrap().fresh());
        assert!(Token::parse(br#"{"token":""}"#).is_err());
    }
}
