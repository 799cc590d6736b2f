//! Content digests: `algorithm:hex`, as the image-spec's descriptor page defines them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use rt_sys::error::{Error, Kind, Result};
use rt_sys::{bail, err};

/// A digest that was checked to be `sha256:` or `sha512:` with as many lower-case hex digits as
/// that algorithm has: safe to be a file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    text: String,
}

impl Digest {
    /// The digest of `bytes`, by SHA-256.
    pub fn of(bytes: &[u8]) -> Digest {
        let mut hasher = Hasher::sha256();
        hasher.update(bytes);
        hasher.finish()
    }

    /// `sha256` or `sha512`.
    pub fn algorithm(&self) -> &str {
        self.text.split_once(':').map_or("", |(a, _)| a)
    }

    /// The hex digits.
    pub fn hex(&self) -> &str {
        self.text.split_once(':').map_or("", |(_, h)| h)
    }

    /// The first twelve hex digits, for people.
    pub fn short(&self) -> &str {
        &self.hex()[..12]
    }

    /// A hasher of this digest's algorithm.
    pub fn hasher(&self) -> Hasher {
        match self.algorithm() {
            "sha512" => Hasher { name: "sha512", context: ring::digest::Context::new(&ring::digest::SHA512) },
            _ => Hasher::sha256(),
        }
    }

    /// # Errors
    /// The digest that `bytes` have, where it is another.
    pub fn check(&self, bytes: &[u8]) -> Result<()> {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        let got = hasher.finish();
        if got == *self { Ok(()) } else { Err(self.mismatch(&got)) }
    }

    /// The error, of kind [`Kind::Damaged`], for bytes that hash to something else.
    pub fn mismatch(&self, got: &Digest) -> Error {
        err!("{self}: its bytes hash to {got}").of_kind(Kind::Damaged)
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// A running hash.
#[derive(Clone)]
pub struct Hasher {
    name: &'static str,
    context: ring::digest::Context,
}

impl Hasher {
    /// SHA-256. ring's assembly is twice as fast as the sha2 crate on processors without SHA-NI.
    pub fn sha256() -> Hasher {
        Hasher { name: "sha256", context: ring::digest::Context::new(&ring::digest::SHA256) }
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
    }

    /// The digest of all that was added.
    pub fn finish(self) -> Digest {
        let mut text = String::with_capacity(7 + 128);
        text.push_str(self.name);
        text.push(':');
        for byte in self.context.finish().as_ref() {
            text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
            text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        }
        Digest { text }
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Digest> {
        let (algorithm, hex) = text.split_once(':').ok_or_else(|| err!("digest {text:?}: no algorithm"))?;
        let digits = match algorithm {
            "sha256" => 64,
            "sha512" => 128,
            _ => bail!("digest {text:?}: only sha256 and sha512 are known"),
        };
        if hex.len() != digits || !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            bail!("digest {text:?}: not {digits} lower-case hex digits");
        }
        Ok(Digest { text: text.to_owned() })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_vectors() {
        assert_eq!(
            Digest::of(b"abc").as_str(),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        let sha512: Digest = format!("sha512:{}", "a".repeat(128)).parse().unwrap();
        let mut hasher = sha512.hasher();
        hasher.update(b"abc");
        assert!(hasher.finish().as_str().starts_with("sha512:ddaf35a193617abacc417349ae204131"));
        assert_eq!(Digest::of(b"abc").check(b"abd").unwrap_err().kind(), Kind::Damaged);
    }

    #[test]
    fn nothing_but_digests_parse() {
        for bad in
            ["", "sha256:", "sha256:../../etc/passwd", "md5:d41d8cd98f00b204e9800998ecf8427e", "sha256"]
        {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
        let upper = format!("sha256:{}", "A".repeat(64));
        assert!(upper.parse::<Digest>().is_err());
    }
}
