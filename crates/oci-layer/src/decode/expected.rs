//! What the plain bytes of a layer must hash to, checked while they pass.

use std::io::{self, Read};

use super::Compression;
use oci_content::digest::{Digest, Hasher};
use rt_sys::err;
use rt_sys::error::Kind;

/// What the plain bytes of a layer are to be.
#[derive(Debug, Clone, Copy)]
pub enum Expected<'a> {
    /// Whatever they are.
    Any,
    /// What hashes to `diff_id`, as far as that is known without hashing them: a layer that is not compressed has
    /// the digest under which it is stored.
    Stored {
        /// The digest of the plain bytes, by the image's config.
        diff_id: &'a Digest,
        /// The digest of the layer as it is stored.
        stored: &'a Digest,
    },
    /// What hashes to this; they are hashed.
    Hashed(&'a Digest),
}

impl Expected<'_> {
    pub(super) fn check(&self, compression: Compression) -> io::Result<()> {
        match self {
            Expected::Stored { diff_id, stored }
                if compression == Compression::None
                    && diff_id.algorithm() == stored.algorithm()
                    && diff_id != stored =>
            {
                // Under `stored` it may be garbage, which has not been hashed yet.
                let differs =
                    err!("neither gzip nor zstd, and uncompressed the image's config says {diff_id}");
                Err(io::Error::other(differs.of_kind(Kind::Damaged)))
            }
            _ => Ok(()),
        }
    }

    /// `plain`, which ends in an error if it is something else.
    pub(super) fn hashed<'a>(&self, plain: Box<dyn Read + Send + 'a>) -> Box<dyn Read + Send + 'a> {
        match self {
            Expected::Hashed(diff_id) => {
                Box::new(Hashed { plain, hasher: Some(diff_id.hasher()), diff_id: (*diff_id).clone() })
            }
            _ => plain,
        }
    }
}

fn another(diff_id: &Digest, got: &Digest) -> io::Error {
    let differs = err!("uncompressed it hashes to {got}, and the image's config says {diff_id}");
    io::Error::other(differs.of_kind(Kind::Damaged))
}

/// Hashes what is read, and compares at the end.
struct Hashed<R> {
    plain: R,
    hasher: Option<Hasher>,
    diff_id: Digest,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.plain.read(buffer)?;
        match &mut self.hasher {
            Some(hasher) if n > 0 => hasher.update(&buffer[..n]),
            _ => {
                let got = self.hasher.take().map(Hasher::finish);
                if let Some(got) = got.filter(|got| *got != self.diff_id) {
                    return Err(another(&self.diff_id, &got));
                }
            }
        }
        Ok(n)
    }
}
